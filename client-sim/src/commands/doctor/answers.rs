//! Answers of a relay to the probes: the output of `client-sim doctor --json`.

use std::collections::BTreeMap;

use corpus::Rules;
use serde::{Deserialize, Serialize};

/// The answer to one probe.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// The probe was not made.
    #[default]
    NotAsked,
    /// As NIP-01 has it: OK true, or EOSE.
    Taken,
    /// OK false, CLOSED or NOTICE, with the relay's words.
    Refused(String),
    /// The connection ended.
    Ended(String),
    /// Nothing came in time.
    Silent,
}

/// A bound or a demand of the relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Demand {
    /// Bytes of an event or message.
    EventBytes,
    /// Tags of an event.
    EventTags,
    /// Bytes of a tag value.
    TagValueBytes,
    /// The form of `e` and `p` tags.
    HexReferences,
    /// Age of an event.
    Age,
    /// Entries of a list of a filter.
    FilterValues,
    /// Subscriptions at one time.
    Subscriptions,
    /// Stored events of one filter.
    StoredEvents,
    /// Stored events of one filter without a limit.
    UnlimitedEvents,
    /// AUTH or another condition before reading.
    Read,
    /// AUTH or another condition before publishing.
    Write,
    /// An AUTH challenge.
    Challenge,
    /// Events in a given time.
    Rate,
    /// Compression of messages.
    Deflate,
}

/// NIP-11 as far as a run asks for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Info {
    /// The relay's name.
    pub(crate) name: Option<String>,
    /// The project of its software.
    pub(crate) software: Option<String>,
    /// The version of its software.
    pub(crate) version: Option<String>,
    /// NIPs that it names.
    pub(crate) supported_nips: Vec<u64>,
    /// Subprotocol tokens that it names (`wire.tokens`, docs/transport.md).
    pub(crate) tokens: Vec<String>,
    /// Bounds that it names.
    pub(crate) limitation: Limitation,
}

/// The `limitation` of NIP-11, as far as a run asks for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Limitation {
    /// Bytes of a message.
    pub(crate) max_message_length: Option<u64>,
    /// Subscriptions of a connection.
    pub(crate) max_subscriptions: Option<u64>,
    /// Stored events of one filter.
    pub(crate) max_limit: Option<u64>,
    /// Stored events of one filter without a limit.
    pub(crate) default_limit: Option<u64>,
    /// Tags of an event.
    pub(crate) max_event_tags: Option<u64>,
    /// Whether AUTH comes before everything.
    pub(crate) auth_required: Option<bool>,
}

/// Outcome of one offer in the WebSocket handshake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Handshake {
    /// The format that was offered.
    pub(crate) format: String,
    /// The compression that was offered, by its label.
    pub(crate) compression: String,
    /// Whether batches were offered.
    pub(crate) batched: bool,
    /// The compression by whose label the relay grants the offer, or why it declines.
    pub(crate) granted: Result<String, String>,
}

/// Order of stored events with one `created_at`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ties {
    /// The probe was not made, or its events did not come back.
    #[default]
    Unknown,
    /// The lowest id first, as NIP-01 has it.
    LowestIdFirst,
    /// Another order.
    Other,
}

/// Events that were published while subscriptions were opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seam {
    /// Deliveries that were due: each accepted event once at each subscription.
    pub(crate) due: u64,
    /// Deliveries that came again.
    pub(crate) doubled: u64,
    /// Deliveries that did not come.
    pub(crate) missing: u64,
}

/// Cost of the probes to the relay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spent {
    /// Connections.
    pub(crate) connections: u64,
    /// Ephemeral events, which no relay stores.
    pub(crate) ephemeral_events: u64,
    /// Events that may be stored. They ask to expire (NIP-40), and deletions of them are published
    /// at the end (NIP-09), which count, too.
    pub(crate) stored_events: u64,
    /// Requests.
    pub(crate) requests: u64,
}

/// All answers of a relay.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Answers {
    /// The relay.
    pub(crate) url: String,
    /// The NIP-11 document, if the relay sent one.
    pub(crate) info: Option<Info>,
    /// Why there is no NIP-11 document.
    pub(crate) no_info: Option<String>,
    /// Whether the relay sent an AUTH challenge (NIP-42).
    pub(crate) challenge: bool,
    /// A small ephemeral event.
    pub(crate) write: Answer,
    /// The same after AUTH, where it was refused without.
    pub(crate) write_after_auth: Answer,
    /// The smallest event of each kind that a plan gives the relay or publishes, signed anew.
    pub(crate) written_kinds: BTreeMap<u16, Answer>,
    /// The same after AUTH, of kinds that were refused without.
    pub(crate) kinds_after_auth: BTreeMap<u16, Answer>,
    /// A request with `limit: 0`.
    pub(crate) limit_zero: Answer,
    /// A request that matches nothing.
    pub(crate) read: Answer,
    /// The same after AUTH, where it was refused without.
    pub(crate) read_after_auth: Answer,
    /// NEG-OPEN over nothing (NIP-77).
    pub(crate) reconcile: Answer,
    /// The bounds that were found.
    pub(crate) rules: Rules,
    /// The relay's words at each bound.
    pub(crate) said: BTreeMap<Demand, String>,
    /// Kinds whose requests were refused, and why.
    pub(crate) unread_kinds: BTreeMap<u16, String>,
    /// Order of equal `created_at`.
    pub(crate) ties: Ties,
    /// Stored and live deliveries of the same event.
    pub(crate) seam: Option<Seam>,
    /// Ephemeral events accepted of a burst, and sent.
    pub(crate) burst: Option<(u64, u64)>,
    /// Offers of formats and compressions.
    pub(crate) handshakes: Vec<Handshake>,
    /// Why the probes ended early.
    pub(crate) stopped: Option<String>,
    pub(crate) spent: Spent,
}

impl Demand {
    /// The purpose of a setting, as in "settings for larger events".
    pub(crate) fn words(self) -> &'static str {
        match self {
            Demand::EventBytes => "larger events",
            Demand::EventTags => "more tags",
            Demand::TagValueBytes => "longer tag values",
            Demand::HexReferences => "other e and p tags",
            Demand::Age => "older events",
            Demand::FilterValues => "longer filters",
            Demand::Subscriptions => "more subscriptions",
            Demand::StoredEvents => "more stored events a filter",
            Demand::UnlimitedEvents => "more stored events a filter without a limit",
            Demand::Read => "reading",
            Demand::Write => "publishing",
            Demand::Challenge => "an AUTH challenge",
            Demand::Rate => "more events a second",
            Demand::Deflate => "compression",
        }
    }
}

impl Answers {
    /// Whether the relay answers a small request, after AUTH if the plan answers a challenge.
    pub(crate) fn reads(&self, auth: bool) -> bool {
        self.read == Answer::Taken || (auth && self.read_after_auth == Answer::Taken)
    }

    /// The answer to events of a kind, after AUTH if the plan answers a challenge; `None` where it
    /// was not asked.
    pub(crate) fn to_kind(&self, kind: u16, auth: bool) -> Option<&Answer> {
        let after = self.kinds_after_auth.get(&kind).filter(|_| auth);
        after.or_else(|| self.written_kinds.get(&kind))
    }

    /// Whether the relay takes any event, with AUTH or without.
    pub(crate) fn is_written(&self) -> bool {
        let kinds = self.written_kinds.values().chain(self.kinds_after_auth.values());
        [&self.write, &self.write_after_auth].into_iter().chain(kinds).any(|one| *one == Answer::Taken)
    }
}

impl Answer {
    /// Why it is not [`Answer::Taken`]; `None` also when it was not asked.
    pub(crate) fn refusal(&self) -> Option<String> {
        match self {
            Answer::NotAsked | Answer::Taken => None,
            Answer::Refused(text) => Some(format!("{text:?}")),
            Answer::Ended(text) => Some(format!("the relay ended the connection: {text}")),
            Answer::Silent => Some("the relay was silent".to_owned()),
        }
    }
}
