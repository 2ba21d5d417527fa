//! Requests of coordinator and agents, and their answers: JSON, bounded in size.

use std::fmt;

use measure::LiveCounts;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::spec::{Block, BlockKey, Spec};

/// Longest message except records: a block with the longest scenario, escaped.
const MESSAGE_BYTES: usize = 256 << 10;

/// Longest record of a player: below the 1 MiB that a NATS server accepts by default, and twenty
/// times the usual record.
pub(crate) const RECORD_BYTES: usize = 900 << 10;

/// Longest reason that is passed on.
const REASON_BYTES: usize = 1_024;

/// What a coordinator says of its run to anybody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Opened {
    pub(crate) state: RunState,
    pub(crate) spec: Spec,
}

/// Asks for a slot. The answer is `Result<(), String>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claim {
    /// Drawn at random by the agent: tells a second process from a second attempt.
    pub(crate) nonce: u64,
}

/// A coordinator's request to one agent. The answer is a [`Status`] or, of the last two, a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Ask {
    /// Heartbeat, and a round trip for the clocks.
    Ping,
    /// Prepare this block.
    Prepare(Box<Block>),
    /// Start the prepared block.
    Start {
        /// Time zero of the plan, by the agent's monotonic clock.
        at_ns: u64,
    },
    /// All players are done: stop the relay of the block.
    StopRelay,
    /// Send the record of the block.
    Record,
    /// The run is over. The answer is what there is of a record.
    Leave {
        /// Why it ended early.
        aborted: Option<String>,
    },
}

/// How an agent is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Status {
    /// The request arrived, by the agent's monotonic clock.
    pub(crate) arrived_ns: u64,
    /// The answer left, by the agent's monotonic clock.
    pub(crate) left_ns: u64,
    /// The block that the rest is about.
    pub(crate) block: Option<BlockKey>,
    pub(crate) phase: Phase,
    /// Facts from the player once prepared.
    pub(crate) facts: Option<Facts>,
    /// Why the agent stopped.
    pub(crate) failure: Option<String>,
    /// Counts of the player, where they changed since the last answer. For who watches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) counts: Option<Box<LiveCounts>>,
}

/// How far an agent is with a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// It holds a slot and has no block.
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
    /// The agent stops, or has stopped.
    Stopped,
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// Slots are free.
    Open,
    /// Every slot is taken, and no block is under way beyond its preparation.
    Claimed,
    /// Every player waits for the start.
    Prepared,
    /// Every agent has confirmed the start.
    Armed,
    /// The start has passed.
    Running,
    /// Every player has ended.
    Drained,
    /// The coordinator has every record of the block.
    Merged,
    /// The run ended early.
    Aborted,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

/// Facts of a player once it is prepared: of plan and events all agents must say the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// Hash of the whole plan.
    pub plan_sha256: String,
    /// Fingerprint of the events.
    pub corpus_sha256: String,
    /// Where the others reach the relay that it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// Reads a message, unless it is too long or does not follow the type.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    (bytes.len() <= MESSAGE_BYTES).then(|| serde_json::from_slice(bytes).ok())?
}

/// Writes a message.
pub(crate) fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    serde_json::to_vec(message).expect("messages are structs of strings and numbers")
}

/// A reason cut to what is passed on, at a character's boundary.
pub(crate) fn bounded(mut reason: String) -> String {
    reason.truncate(reason.floor_char_boundary(REASON_BYTES));
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_cut_or_beyond_the_limit_is_none() {
        let ask = encode(&Ask::Prepare(Box::new(crate::spec::tests::block())));
        for len in 0..ask.len() {
            assert_eq!(decode::<Ask>(&ask[..len]), None, "{len} bytes");
        }
        assert!(matches!(decode(&ask), Some(Ask::Prepare(_))));
        let mut padded = encode(&Ask::Ping);
        padded.resize(MESSAGE_BYTES + 1, b' ');
        assert_eq!(decode::<Ask>(&padded), None);
        assert_eq!(decode(&padded[..MESSAGE_BYTES]), Some(Ask::Ping));
    }
}
