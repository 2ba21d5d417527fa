//! Requests of coordinator and agents, and their answers: JSON, bounded in size.

use derive_more::Display;
use measure::LiveCounts;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use terms::RelayUrl;

use crate::spec::{PLAY_BYTES, Play, Spec};

/// Longest message except records: a block, and what it is asked with.
pub(crate) const MESSAGE_BYTES: usize = PLAY_BYTES + 1_024;

/// Longest record of a player: twenty times the usual record.
pub(crate) const RECORD_BYTES: usize = 900 << 10;

/// Longest payload with its headers. A NATS server accepts 1 MiB by default.
pub(crate) const PAYLOAD_BYTES: usize = RECORD_BYTES + 1_024;

/// Exit code of the player whose record a message is; absent when a signal ended it.
pub(crate) const EXIT_HEADER: &str = "Nsim-Exit";

/// Longest reason that is passed on.
const REASON_CHARS: usize = 1_024;

/// A coordinator's answer to whoever looks for its run.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Opened {
    pub(crate) state: Phase,
    pub(crate) spec: Spec,
}

/// A coordinator's request to one agent.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Ask {
    /// Heartbeat, and a round trip for the clocks. The answer is a [`Status`], as to all but the last two.
    Ping,
    /// Prepare this block.
    Prepare { block: u32, play: Box<Play> },
    /// Start the prepared block at this time of the agent's monotonic clock.
    Start { at_ns: u64 },
    /// All players are done: stop the relay of the block.
    StopRelay,
    /// Send the record of the block, which is the answer.
    Record,
    /// The run is over. Nobody waits for an answer.
    Leave { aborted: Option<String> },
}

/// How an agent is.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Status {
    /// The request arrived, by the agent's monotonic clock.
    pub(crate) arrived_ns: u64,
    /// The answer left, by the agent's monotonic clock.
    pub(crate) left_ns: u64,
    /// The block that the rest is about; 0 before the first.
    pub(crate) block: u32,
    pub(crate) phase: Phase,
    /// What the player says.
    pub(crate) said: Said,
    /// Why the agent leaves.
    pub(crate) failure: Option<String>,
}

/// How far a run is, or an agent with a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Display, Serialize, Deserialize)]
#[display(rename_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The run stores its events.
    Storing,
    /// The run has free slots.
    Open,
    /// Every slot of the run is taken; an agent holds its slot and has no block.
    Claimed,
    /// The player reads its inputs and connects.
    Preparing,
    /// The player waits for the start.
    Prepared,
    /// The start is set.
    Armed,
    /// The start has passed.
    Running,
    /// The player has ended, and the agent has its record.
    Drained,
    /// The coordinator has every record of the block.
    Merged,
    /// The run ended early.
    Aborted,
}

/// What a player says while it plays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Said {
    /// Facts, once it waits for its start.
    pub facts: Option<Facts>,
    /// What it counts so far, for who watches.
    pub counts: LiveCounts,
}

/// Facts of a player once it is prepared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// Hash of the whole plan, the same for all agents.
    pub plan_sha256: String,
    /// Fingerprint of the events, that of the run.
    pub corpus_sha256: String,
    /// Where the others reach the relay that it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<RelayUrl>,
}

/// Reads a message, unless it is too long or does not follow the type.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    (bytes.len() <= MESSAGE_BYTES).then(|| serde_json::from_slice(bytes).ok())?
}

/// Writes a message.
pub(crate) fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    serde_json::to_vec(message).expect("messages are structs of strings and numbers")
}

/// A reason as it is passed on and shown: on one line, short and harmless to a terminal.
pub(crate) fn bounded(reason: impl AsRef<str>) -> String {
    codecs::quoted_up_to(reason.as_ref(), REASON_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::tests::play;

    #[test]
    fn a_message_that_is_cut_or_too_long_or_has_other_fields_is_none() {
        let ask = encode(&Ask::Prepare { block: 1, play: Box::new(play()) });
        for len in 0..ask.len() {
            assert_eq!(decode::<Ask>(&ask[..len]), None, "{len} bytes");
        }
        assert!(matches!(decode(&ask), Some(Ask::Prepare { .. })));
        let mut padded = encode(&Ask::Ping);
        padded.resize(MESSAGE_BYTES + 1, b' ');
        assert_eq!(decode::<Ask>(&padded), None);
        assert_eq!(decode(&padded[..MESSAGE_BYTES]), Some(Ask::Ping));
        let mut json = serde_json::to_value(play()).unwrap();
        json["record"] = "/etc/passwd".into();
        assert!(decode::<Play>(json.to_string().as_bytes()).is_none());
    }
}
