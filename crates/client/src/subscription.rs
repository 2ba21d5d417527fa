//! Subscription ids, which say what a REQ or NEG-OPEN is for.

use std::{fmt, str::FromStr};

/// The purpose of a subscription, which its id encodes. [`Display`](fmt::Display) writes the id
/// that goes over the wire, and [`FromStr`] reads exactly these ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subscription {
    /// `live-0`: a live subscription of a subscriber, by its place among the role's filters.
    Live(u32),
    /// `v7-0`: a live subscription of session 7, by its place among the session's filters.
    ///
    /// Both are places: in `Workload::sessions` and in `Session::live`.
    Stay { session: u32, filter: u32 },
    /// `s7-0-1`: request 1 of step 0 of session 7.
    Request(RequestId),
    /// `n7`: the reconciliation (NIP-77) of session 7.
    Reconciliation(u32),
    /// `f7-0`: a REQ for events that the reconciliation of session 7 found missing.
    ///
    /// Places in `Workload::sessions` and among the REQs, for one may not hold all ids.
    Fetch { session: u32, chunk: u32 },
}

/// One planned request for stored events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId {
    /// Place in `Workload::sessions`.
    pub session: u32,
    /// Place in `Session::steps`.
    pub step: u32,
    /// Place in the step.
    pub request: u32,
}

/// An id that no simulated client makes.
#[derive(Debug, PartialEq, Eq)]
pub struct ForeignId;

impl fmt::Display for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subscription::Live(filter) => write!(f, "live-{filter}"),
            Subscription::Stay { session, filter } => write!(f, "v{session}-{filter}"),
            Subscription::Request(RequestId { session, step, request }) => {
                write!(f, "s{session}-{step}-{request}")
            }
            Subscription::Reconciliation(session) => write!(f, "n{session}"),
            Subscription::Fetch { session, chunk } => write!(f, "f{session}-{chunk}"),
        }
    }
}

impl FromStr for Subscription {
    type Err = ForeignId;

    fn from_str(id: &str) -> Result<Subscription, ForeignId> {
        if let Some(filter) = id.strip_prefix("live-") {
            return Ok(Subscription::Live(number(filter)?));
        }
        let rest = id.get(1..).ok_or(ForeignId)?;
        let mut numbers = rest.splitn(3, '-').map(number);
        let mut next = || numbers.next().ok_or(ForeignId)?;
        let subscription = match id.as_bytes()[0] {
            b'v' => Subscription::Stay { session: next()?, filter: next()? },
            b's' => Subscription::Request(RequestId { session: next()?, step: next()?, request: next()? }),
            b'n' => Subscription::Reconciliation(next()?),
            b'f' => Subscription::Fetch { session: next()?, chunk: next()? },
            _ => return Err(ForeignId),
        };
        if numbers.next().is_some() { Err(ForeignId) } else { Ok(subscription) }
    }
}

/// Parses a number, but refuses `+7` and `07`, which `u32` reads as 7: a changed id is another id.
fn number(digits: &str) -> Result<u32, ForeignId> {
    let canonical = digits == "0" || digits.starts_with(|first| matches!(first, '1'..='9'));
    digits.parse().ok().filter(|_| canonical).ok_or(ForeignId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_reads_back_as_what_was_written() {
        let request = RequestId { session: 7, step: 0, request: 12 };
        for (subscription, id) in [
            (Subscription::Live(0), "live-0"),
            (Subscription::Stay { session: 7, filter: 10 }, "v7-10"),
            (Subscription::Request(request), "s7-0-12"),
            (Subscription::Reconciliation(u32::MAX), "n4294967295"),
            (Subscription::Fetch { session: 0, chunk: 3 }, "f0-3"),
        ] {
            assert_eq!(subscription.to_string(), id);
            assert_eq!(id.parse(), Ok(subscription));
        }
    }

    #[test]
    fn an_id_that_no_client_makes_is_refused() {
        let ids = "l live- live--1 live-+1 live-01 v1 v1- v1-2-3 s1-2 s1-2-3-4 n n-1 n1-2 f1 x1 nobody n4294967296 \
                   é1 s1-2-é";
        for id in ids.split(' ').chain([""]) {
            assert_eq!(id.parse::<Subscription>(), Err(ForeignId), "{id}");
        }
    }
}
