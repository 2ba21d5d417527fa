//! Every fault: its name, its value, what it acts on and what it does.
//!
//! The parser and the help of `--fault` are made from it. The table of `docs/test-relay.md` also says what a
//! good client does.

use self::{ActsOn::*, Parameter::*};
use super::when::KEYS;

/// The value behind `NAME=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parameter {
    /// A share, 100% where it is left out: the key `probability` by another place.
    Share,
    /// As in `50ms`.
    Time,
    /// A time and when it begins, as in `500ms@3s`.
    TimeAt,
    /// Seconds ahead or behind, as in `-1h`.
    Offset,
    /// A whole number between these.
    Number(u32, u32),
}

/// The things that a fault counts and hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ActsOn {
    Process,
    Documents,
    Connections,
    Sent,
    Compressed,
    Messages,
    Requests,
    RequestsAndEvents,
    Oks,
    Deliveries,
}

impl ActsOn {
    /// Its noun in help and documents.
    pub(crate) fn noun(self) -> &'static str {
        match self {
            Process => "the process",
            Documents => "NIP-11 documents",
            Connections => "connections",
            Sent => "messages sent",
            Compressed => "messages sent compressed by deflate",
            Messages => "the client's messages",
            Requests => "REQs",
            RequestsAndEvents => "REQs and EVENTs",
            Oks => "OKs",
            Deliveries => "deliveries",
        }
    }

    /// Whether faults on it take this key, or nothing does.
    pub(super) fn takes(self, key: &str) -> bool {
        match self {
            Process => !KEYS.contains(&key),
            Documents => !KEYS.contains(&key) || ["after", "for"].contains(&key),
            Connections => key != "message",
            _ => true,
        }
    }
}

/// A fault as it is parsed and explained.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    /// How it is written: its name, and a value where it takes one.
    pub(crate) example: &'static str,
    pub(crate) parameter: Parameter,
    pub(crate) acts_on: ActsOn,
    pub(crate) does: &'static str,
}

impl Entry {
    /// Its name in `--fault`.
    pub(crate) fn name(&self) -> &'static str {
        self.example.split('=').next().expect("a split has a first part")
    }
}

impl Kind {
    /// The text about it.
    pub(crate) fn entry(self) -> &'static Entry {
        &REGISTRY[self as usize]
    }
}

/// The longest storm or flood for one message, which goes out as fast as the client reads.
const MOST: u32 = 100_000;

/// Makes [`Kind`] and [`REGISTRY`] of one list.
macro_rules! faults {
    ($($kind:ident, $example:literal, $parameter:expr, $acts_on:expr, $does:literal;)*) => {
        /// The subject of a fault.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Kind {
            $($kind,)*
        }

        /// An entry of each, in their order.
        pub(crate) static REGISTRY: &[Entry] = &[$(Entry {
            kind: Kind::$kind,
            example: $example,
            parameter: $parameter,
            acts_on: $acts_on,
            does: $does,
        },)*];
    };
}

#[rustfmt::skip]
faults! {
    Stall, "stall=500ms@3s", TimeAt, Process,
        "sleeps on the thread that serves, once, 3 s after the start";
    Burn, "burn=20us", Time, Process,
        "wastes CPU time for each event sent";
    Delay, "delay=50ms", Time, Process,
        "sends everything later by this much";
    Lose, "lose=1%", Share, Deliveries,
        "leaves the delivery out";
    Double, "double=1%", Share, Deliveries,
        "sends the delivery twice";
    Alter, "alter=1%", Share, Deliveries,
        "changes one field of the event, never its id";
    Invent, "invent=1%", Share, Deliveries,
        "also sends an invented event with a random id";
    Misroute, "misroute=1%", Share, Deliveries,
        "sends the event for another subscription, or for \"nobody\"";
    WrongId, "wrong-id=1%", Share, Deliveries,
        "sends the event with a random id";
    WrongSig, "wrong-sig=1%", Share, Deliveries,
        "sends the event with a wrong signature";
    NoEose, "no-eose", Share, Requests,
        "never sends EOSE";
    DoubleEose, "double-eose", Share, Requests,
        "sends EOSE twice";
    EarlyEose, "early-eose", Share, Requests,
        "sends EOSE before the stored events";
    ReverseOrder, "reverse-order", Share, Requests,
        "sends stored events oldest first, those with `limit` too";
    Flood, "flood=1000", Number(1, MOST), Requests,
        "sends this many valid events of kind 9999 after EOSE";
    ClosedStorm, "closed-storm=100", Number(1, MOST), Requests,
        "sends this many CLOSED with `error:`, and opens no subscription";
    NoOk, "no-ok", Share, Oks,
        "leaves OK out, also for AUTH";
    LateOk, "late-ok=2s", Time, Oks,
        "sends OK later by this much";
    FalseOk, "false-ok", Share, Oks,
        "answers OK false with `error:` for a stored event";
    WrongOk, "wrong-ok", Share, Oks,
        "sends OK for another id";
    RateLimited, "rate-limited", Share, RequestsAndEvents,
        "rejects with `rate-limited:`, by CLOSED or OK false";
    AuthRequired, "auth-required", Share, RequestsAndEvents,
        "rejects with `auth-required:` until the client authenticated, and sends a challenge";
    AuthLoop, "auth-loop", Share, RequestsAndEvents,
        "rejects with `auth-required:` and a new challenge, also after AUTH";
    NoticeStorm, "notice-storm=100", Number(1, MOST), Messages,
        "sends this many NOTICEs";
    Clock, "clock=-1h", Offset, Messages,
        "has a wrong clock: events look expired or ahead, AUTH old";
    Close, "close=4000", Number(1000, 4999), Messages,
        "closes with this code instead of an answer";
    Reset, "reset", Share, Messages,
        "resets TCP instead of an answer";
    HalfOpen, "half-open", Share, Messages,
        "stops reading and writing, and keeps TCP open";
    ResetHandshake, "reset-handshake", Share, Connections,
        "resets TCP instead of the handshake's answer";
    IgnoreHandshake, "ignore-handshake", Share, Connections,
        "never answers the handshake, and keeps TCP open";
    DeclineCompression, "decline-compression", Share, Connections,
        "agrees to no compression";
    Slow, "slow=1000", Number(1, 1_000_000_000), Connections,
        "sends this many bytes per second, in small pieces";
    Fragment, "fragment=100", Number(1, 1_000_000_000), Sent,
        "sends a message in frames of at most this many bytes";
    FlipBit, "flip-bit", Share, Compressed,
        "flips a bit after the header of the first block";
    Bfinal, "bfinal", Share, Compressed,
        "sends stored blocks, the last with BFINAL, which is allowed";
    Nip11Lies, "nip11-lies", Share, Documents,
        "claims NIP-50, hardly any limits, and the opposite about AUTH";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_a_row_of_each_fault() {
        let document = include_str!("../../../docs/test-relay.md");
        for Entry { example, acts_on, does, .. } in REGISTRY {
            let (head, row) = (format!("| **{}** |", acts_on.noun()), format!("| `{example}` | {does} | "));
            assert!(document.contains(&head) && document.contains(&row), "{row}");
        }
        let rows = document.lines().filter(|line| line.starts_with("| `") && line.matches('|').count() == 4);
        assert_eq!(rows.count(), REGISTRY.len());
    }
}
