//! Every fault: its name, its value, what it acts on, what it does, and what a good client does.
//!
//! The parser and the help of `--fault` and the table of `docs/test-relay.md` are made from it.

use self::{ActsOn::*, Parameter::*};

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

/// The keys behind a fault.
const KEYS: [&str; 6] = ["connection", "message", "after", "for", "probability", "seed"];

/// A fault as it is parsed and explained.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    /// How it is written: its name, and a value where it takes one.
    pub(crate) example: &'static str,
    pub(crate) parameter: Parameter,
    pub(crate) acts_on: ActsOn,
    pub(crate) does: &'static str,
    /// The behaviour of a good client.
    #[cfg_attr(not(test), expect(dead_code, reason = "the table of docs/test-relay.md is made of it"))]
    pub(crate) client: &'static str,
    /// The document that says so.
    #[cfg_attr(not(test), expect(dead_code, reason = "the table of docs/test-relay.md is made of it"))]
    pub(crate) source: &'static str,
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
    ($($kind:ident, $example:literal, $parameter:expr, $acts_on:expr, $does:literal, $client:literal, $source:literal;)*) => {
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
            client: $client,
            source: $source,
        },)*];
    };
}

#[rustfmt::skip]
faults! {
    Stall, "stall=500ms@3s", TimeAt, Process,
        "sleeps on the thread that serves, once, 3 s after the start",
        "waits, and does not open a second connection", "NIP-01";
    Burn, "burn=20us", Time, Process,
        "wastes CPU time for each event sent",
        "shows events as they come", "NIP-01";
    Delay, "delay=50ms", Time, Process,
        "sends everything later by this much",
        "does not wait for one answer before the next request", "NIP-01";
    Lose, "lose=1%", Share, Deliveries,
        "leaves the delivery out",
        "uses several relays, and requests again with `since`", "NIP-65, NIP-01";
    Double, "double=1%", Share, Deliveries,
        "sends the delivery twice",
        "identifies events by `id` and shows each once", "NIP-01";
    Alter, "alter=1%", Share, Deliveries,
        "changes one field of the event, never its id",
        "checks id and signature, and drops the event", "NIP-01";
    Invent, "invent=1%", Share, Deliveries,
        "also sends an invented event with a random id",
        "checks the id, and drops the event", "NIP-01";
    Misroute, "misroute=1%", Share, Deliveries,
        "sends the event for another subscription, or for \"nobody\"",
        "drops events that its filter does not match", "NIP-01";
    WrongId, "wrong-id=1%", Share, Deliveries,
        "sends the event with a random id",
        "checks the id, and drops the event", "NIP-01";
    WrongSig, "wrong-sig=1%", Share, Deliveries,
        "sends the event with a wrong signature",
        "checks the signature, and drops the event", "NIP-01";
    NoEose, "no-eose", Share, Requests,
        "never sends EOSE",
        "shows events as they come, and stops waiting after a while", "NIP-01";
    DoubleEose, "double-eose", Share, Requests,
        "sends EOSE twice",
        "ignores the second", "NIP-01";
    EarlyEose, "early-eose", Share, Requests,
        "sends EOSE before the stored events",
        "treats later events as live ones", "NIP-01";
    ReverseOrder, "reverse-order", Share, Requests,
        "sends stored events oldest first, those with `limit` too",
        "sorts by `created_at`, then by `id`", "NIP-01";
    Flood, "flood=1000", Number(1, MOST), Requests,
        "sends this many valid events of kind 9999 after EOSE",
        "drops them by its filter, and sends CLOSE", "NIP-01";
    ClosedStorm, "closed-storm=100", Number(1, MOST), Requests,
        "sends this many CLOSED with `error:`, and opens no subscription",
        "ends the subscription at the first, and requests again later", "NIP-01";
    NoOk, "no-ok", Share, Oks,
        "leaves OK out, also for AUTH",
        "stops waiting after a while, and may send the same event again", "NIP-01";
    LateOk, "late-ok=2s", Time, Oks,
        "sends OK later by this much",
        "assigns OK by its event's id", "NIP-01";
    FalseOk, "false-ok", Share, Oks,
        "answers OK false with `error:` for a stored event",
        "shows the reason", "NIP-01";
    WrongOk, "wrong-ok", Share, Oks,
        "sends OK for another id",
        "ignores it, and waits for its own", "NIP-01";
    RateLimited, "rate-limited", Share, RequestsAndEvents,
        "rejects with `rate-limited:`, by CLOSED or OK false",
        "tries again later, each time after a longer pause", "NIP-01";
    AuthRequired, "auth-required", Share, RequestsAndEvents,
        "rejects with `auth-required:` until the client authenticated, and sends a challenge",
        "signs the challenge, waits for that OK, and sends the message again", "NIP-42";
    AuthLoop, "auth-loop", Share, RequestsAndEvents,
        "rejects with `auth-required:` and a new challenge, also after AUTH",
        "gives up after one AUTH that changed nothing", "NIP-42";
    NoticeStorm, "notice-storm=100", Number(1, MOST), Messages,
        "sends this many NOTICEs",
        "shows few, and takes none as an answer", "NIP-01";
    Clock, "clock=-1h", Offset, Messages,
        "has a wrong clock: events look expired or ahead, AUTH old",
        "reports the difference, and does not send the event again unchanged", "NIP-40, NIP-42";
    Close, "close=4000", Number(1000, 4999), Messages,
        "closes with this code instead of an answer",
        "reconnects after a random pause, and reopens its subscriptions", "RFC 6455 §7.2.3, §7.4";
    Reset, "reset", Share, Messages,
        "resets TCP instead of an answer",
        "reconnects after a random pause, and resends events without OK", "RFC 6455 §7.2.3";
    HalfOpen, "half-open", Share, Messages,
        "stops reading and writing, and keeps TCP open",
        "sends Pings, and drops a connection without a Pong", "RFC 6455 §5.5.2";
    ResetHandshake, "reset-handshake", Share, Connections,
        "resets TCP instead of the handshake's answer",
        "tries again after a random pause that grows", "RFC 6455 §7.2.3";
    IgnoreHandshake, "ignore-handshake", Share, Connections,
        "never answers the handshake, and keeps TCP open",
        "times out, and uses other relays meanwhile", "RFC 6455 §4.1";
    DeclineCompression, "decline-compression", Share, Connections,
        "agrees to no compression",
        "continues without compression", "RFC 7692 §5";
    Slow, "slow=1000", Number(1, 1_000_000_000), Connections,
        "sends this many bytes per second, in small pieces",
        "takes an incomplete message for a sign of life", "RFC 6455 §5.5.2";
    Fragment, "fragment=100", Number(1, 1_000_000_000), Sent,
        "sends a message in frames of at most this many bytes",
        "joins them, with Pings in between", "RFC 6455 §5.4";
    FlipBit, "flip-bit", Share, Compressed,
        "flips a bit after the header of the first block",
        "fails the connection with 1007 or 1002, or drops the event", "RFC 7692 §7.2.2, RFC 6455 §7.1.7";
    Bfinal, "bfinal", Share, Compressed,
        "sends stored blocks, the last with BFINAL, which is allowed",
        "reads it, and keeps its window or fails with 1007 at the next message", "RFC 7692 §7.2.3.4";
    Nip11Lies, "nip11-lies", Share, Documents,
        "claims NIP-50, hardly any limits, and the opposite about AUTH",
        "trusts OK, CLOSED and NOTICE instead", "NIP-11";
}

#[cfg(test)]
mod tests {
    use expect_test::expect_file;

    use super::*;

    const HEAD: &str = "| fault | what it does | a good client |\n| --- | --- | --- |\n";

    fn table() -> String {
        let group = |faults: &[Entry]| {
            let rows = faults.iter().map(|Entry { example, does, client, source, .. }| {
                let source = if *source == "NIP-01" { String::new() } else { format!(" ({source})") };
                format!("| `{example}` | {does} | {client}{source} |\n")
            });
            format!("| **{}** | | |\n{}", faults[0].acts_on.noun(), rows.collect::<String>())
        };
        REGISTRY.chunk_by(|one, next| one.acts_on == next.acts_on).map(group).collect()
    }

    #[test]
    fn the_document_has_the_table_of_all_faults() {
        let text = include_str!("../../../docs/test-relay.md");
        let (before, rest) = text.split_once(HEAD).expect("the table has its head");
        let (_, after) = rest.split_once("\n\n").expect("an empty line ends the table");
        expect_file!["../../../docs/test-relay.md"].assert_eq(&format!("{before}{HEAD}{}\n{after}", table()));
    }
}
