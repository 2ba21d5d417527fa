//! Answers of a relay to a rehearsal: the output of `client-sim doctor --json`.

use std::collections::BTreeMap;

use corpus::Rules;
use serde::{Deserialize, Serialize};

/// The answer to one message.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// Nothing was sent.
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

/// What a plan asks of a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Demand {
    /// Bytes of an event as JSON.
    EventBytes,
    /// Tags of an event.
    EventTags,
    /// Bytes of a tag value.
    TagValueBytes,
    /// The form of `e` and `p` tags.
    HexReferences,
    /// Seconds of an event's age.
    Age,
    /// Seconds that an event is dated ahead.
    Future,
    /// Requests with long lists or of certain kinds.
    Requests,
    /// Connections at one time.
    Connections,
    /// Subscriptions of a connection at one time.
    Subscriptions,
    /// Stored events of one filter.
    StoredEvents,
    /// Stored events of one filter without a limit.
    UnlimitedEvents,
    /// To be given back what was published.
    Read,
    /// To publish.
    Write,
    /// A challenge (NIP-42), and its answer accepted.
    Auth,
    /// Events within a second.
    Rate,
}

/// NIP-11 as far as a run asks for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Info {
    pub(crate) name: Option<String>,
    /// The project of its software.
    pub(crate) software: Option<String>,
    pub(crate) version: Option<String>,
    pub(crate) supported_nips: Vec<u64>,
    /// Subprotocol tokens that it names (`wire.tokens`, docs/transport.md).
    pub(crate) tokens: Vec<String>,
    /// The numbers of its `limitation`.
    pub(crate) limitation: BTreeMap<String, u64>,
}

/// Outcome of one offer in the WebSocket handshake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Handshake {
    pub(crate) format: String,
    /// The compression that was offered, by its label.
    pub(crate) compression: String,
    /// Whether batches were offered.
    pub(crate) batched: bool,
    /// The compression by whose label the relay grants the offer, or why it declines.
    pub(crate) granted: Result<String, String>,
}

/// The most that a relay takes, and its words at more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bound {
    pub(crate) most: u64,
    pub(crate) said: String,
}

/// Cost of the rehearsal to the relay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spent {
    pub(crate) connections: u64,
    /// Ephemeral events, which no relay stores.
    pub(crate) ephemeral_events: u64,
    /// Events that may be stored, with the deletions of them (NIP-09).
    pub(crate) stored_events: u64,
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
    /// A small request.
    pub(crate) read: Answer,
    /// The same after AUTH.
    pub(crate) read_after_auth: Answer,
    /// The signed challenge (NIP-42); [`Answer::NotAsked`] without a challenge.
    pub(crate) auth: Answer,
    /// The events that a plan leaves out.
    pub(crate) rules: Rules,
    /// The relay's words at each of the rules, and at its bound on the rate.
    pub(crate) said: BTreeMap<Demand, String>,
    /// What it has too little of.
    pub(crate) bounds: BTreeMap<Demand, Bound>,
    /// The most entries in a list of a filter, by the kinds of the filter.
    pub(crate) requests: BTreeMap<String, Bound>,
    /// NEG-OPEN over nothing (NIP-77).
    pub(crate) reconcile: Answer,
    /// Offers of formats and compressions.
    pub(crate) handshakes: Vec<Handshake>,
    /// Why nothing can be played, or the rehearsal ended early.
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
            Demand::Future => "events dated ahead",
            Demand::Requests => "such requests",
            Demand::Connections => "more connections",
            Demand::Subscriptions => "more subscriptions",
            Demand::StoredEvents => "more stored events a filter",
            Demand::UnlimitedEvents => "more stored events a filter without a limit",
            Demand::Read => "reading",
            Demand::Write => "publishing",
            Demand::Auth => "AUTH",
            Demand::Rate => "more events a second",
        }
    }
}

impl Answers {
    /// Whether the relay answers a small request, after AUTH if the plan answers a challenge.
    pub(crate) fn reads(&self, auth: bool) -> bool {
        self.read == Answer::Taken || (auth && self.read_after_auth == Answer::Taken)
    }

    /// The events that a plan leaves out, with AUTH or without.
    pub(crate) fn rules(&self, auth: bool) -> Rules {
        let kinds = if auth { &self.rules.kinds_after_auth } else { &self.rules.kinds };
        Rules { kinds: kinds.clone(), ..self.rules.clone() }
    }
}

impl Answer {
    /// Why it is not [`Answer::Taken`]; `None` also if nothing was sent.
    pub(crate) fn refusal(&self) -> Option<String> {
        match self {
            Answer::NotAsked | Answer::Taken => None,
            Answer::Refused(text) => Some(format!("{text:?}")),
            Answer::Ended(text) => Some(format!("the relay ended the connection: {text}")),
            Answer::Silent => Some("the relay was silent".to_owned()),
        }
    }
}
