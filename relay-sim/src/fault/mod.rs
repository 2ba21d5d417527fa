//! Misbehaves on request, so that a test of an instrument has something to find (`compare
//! selftest`).
//!
//! A relay with faults names them in its log, its announcement, its totals and its information
//! document (NIP-11).

use std::{fmt, str::FromStr, time::Duration};

mod deliveries;
mod process;

pub use deliveries::{DeliveryFault, Rate};
pub(crate) use deliveries::{DeliveryFaults, Draw, with_altered_sig};
pub(crate) use process::{Burner, behind_a_delay, stall};

/// One way to misbehave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Nothing is done for a while: the thread that serves sleeps.
    Stall {
        /// How long.
        length: Duration,
        /// Since the relay began to listen.
        after: Duration,
    },
    /// CPU time is wasted for every event that is sent to a subscription.
    Burn {
        /// How much, on the thread's own clock: waiting for a core does not count.
        each: Duration,
    },
    /// Everything sent to clients arrives later by this much.
    Delay {
        /// How much.
        by: Duration,
    },
    /// Some deliveries go wrong. A delivery is an event for a subscription, stored or live; at most
    /// one fault hits it, the first that does.
    Delivery {
        /// How.
        kind: DeliveryFault,
        /// How many.
        rate: Rate,
        /// Which.
        seed: u64,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Stall { length, after } => {
                write!(f, "stall={}ms@{}ms", length.as_millis(), after.as_millis())
            }
            Fault::Burn { each } => write!(f, "burn={}ns", each.as_nanos()),
            Fault::Delay { by } => write!(f, "delay={}us", by.as_micros()),
            Fault::Delivery { kind, rate, seed } => write!(f, "{}={rate}:seed={seed}", kind.name()),
        }
    }
}

/// The text is no fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no fault; known: stall=500ms@3s (once, 3 s after the start), burn=20us (CPU for each event sent), delay=50ms \
     (of everything sent), with ns, us, ms or s; lose=1%, double=1%, alter=1%, invent=1%, misroute=1% (of deliveries, each \
     with :seed=7 if need be)"
)]
pub struct UnknownFault(String);

impl FromStr for Fault {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Fault, UnknownFault> {
        let fault = || {
            let (name, value) = text.split_once('=')?;
            match name {
                "stall" => {
                    let (length, after) = value.split_once('@')?;
                    Some(Fault::Stall { length: duration(length)?, after: duration(after)? })
                }
                "burn" => Some(Fault::Burn { each: duration(value)? }),
                "delay" => Some(Fault::Delay { by: duration(value)? }),
                _ => {
                    let (_, kind) = DeliveryFault::NAMES.into_iter().find(|(known, _)| *known == name)?;
                    let (rate, seed) = value.split_once(":seed=").unwrap_or((value, "1"));
                    Some(Fault::Delivery { kind, rate: rate.parse().ok()?, seed: seed.parse().ok()? })
                }
            }
        };
        fault().ok_or_else(|| UnknownFault(text.to_owned()))
    }
}

/// A whole number and a unit; nothing beyond a minute, which no test waits for.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let unit_ns = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    let ns = number.parse::<u64>().ok()?.checked_mul(unit_ns)?;
    Some(Duration::from_nanos(ns)).filter(|duration| *duration <= Duration::from_secs(60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_written_as_they_are_read() {
        for (text, fault) in [
            (
                "stall=500ms@3s",
                Fault::Stall { length: Duration::from_millis(500), after: Duration::from_secs(3) },
            ),
            ("burn=1500ns", Fault::Burn { each: Duration::from_nanos(1_500) }),
            ("delay=50ms", Fault::Delay { by: Duration::from_millis(50) }),
            (
                "lose=1%",
                Fault::Delivery { kind: DeliveryFault::Lose, rate: "0.01".parse().unwrap(), seed: 1 },
            ),
            (
                "misroute=0.5:seed=7",
                Fault::Delivery { kind: DeliveryFault::Misroute, rate: "50%".parse().unwrap(), seed: 7 },
            ),
        ] {
            assert_eq!(text.parse(), Ok(fault));
            assert_eq!(fault.to_string().parse(), Ok(fault));
        }
        for text in [
            "",
            "burn",
            "burn=",
            "burn=5",
            "burn=ms",
            "burn=-1ms",
            "stall=1s",
            "delay=99999999999999999999s",
            "delay=61s",
            "lose=0%",
            "lose=1%:seed=",
            "lose=1%:seed=-1",
            "loose=1%",
        ] {
            let error = text.parse::<Fault>().unwrap_err().to_string();
            assert!(error.contains("known: stall=500ms@3s"), "{error}");
        }
    }
}
