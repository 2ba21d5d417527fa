//! Messages between coordinator and agents: JSON, bounded in size.

use measure::LiveCounts;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::spec::{Block, BlockKey};

/// Longest message except results: a block with the longest scenario, escaped.
pub const MESSAGE_BYTES: usize = 256 << 10;

/// Longest record of a run that an agent publishes: below the 1 MiB that a NATS server accepts by
/// default, and twenty times the usual record.
pub const RECORD_BYTES: usize = 900 << 10;

/// Longest reason that is passed on.
const REASON_BYTES: usize = 1_024;

/// Heartbeat, and a round trip for the clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ping {
    /// Number of the ping.
    pub seq: u64,
}

/// An agent's answer to a [`Ping`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pong {
    /// Number of the ping.
    pub seq: u64,
    /// Nonce of the agent, as in its [`Claim`].
    pub nonce: u64,
    /// The ping arrived, by the agent's monotonic clock.
    pub arrived_ns: u64,
    /// The answer left, by the agent's monotonic clock.
    pub left_ns: u64,
    /// The block that `phase` and `facts` are about.
    pub block: Option<BlockKey>,
    /// How far the agent is.
    pub phase: Phase,
    /// Facts from the player once prepared.
    pub facts: Option<Facts>,
    /// Why the agent failed.
    pub failure: Option<String>,
    /// Counts of the player in `block`, where they changed since the last answer. For who watches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Box<LiveCounts>>,
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
    /// The player has ended; its record is on its way.
    Drained,
    /// The stream holds the record.
    Published,
    /// The agent stops, or has stopped.
    Stopped,
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

/// A coordinator's request to one agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Command {
    /// Prepare this block.
    Prepare(Box<Block>),
    /// Start the prepared block.
    Start {
        /// Time zero of the plan, by the agent's monotonic clock.
        at_ns: u64,
    },
    /// All players are done: stop the relay of the block.
    StopRelay,
    /// No block follows: leave.
    Leave,
}

/// Whether an agent does what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Reply {
    /// It does.
    Accepted,
    /// It does not, and stops.
    Refused(String),
}

/// An agent's hold on a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Drawn at random by the agent: tells a second process from the first.
    pub nonce: u64,
    /// Which start of the run it claims a slot of.
    pub spec_sha256: String,
}

/// The end of a run for everybody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Abort {
    /// Why.
    pub reason: String,
}

/// How far a run is, as everybody may read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
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
    /// The stream holds every record.
    Published,
    /// The coordinator has every record of the block.
    Merged,
    /// The run ended early, for this reason.
    Aborted(String),
}

impl RunState {
    /// The word for it.
    pub fn name(&self) -> &'static str {
        match self {
            RunState::Open => "open",
            RunState::Claimed => "claimed",
            RunState::Prepared => "prepared",
            RunState::Armed => "armed",
            RunState::Running => "running",
            RunState::Drained => "drained",
            RunState::Published => "published",
            RunState::Merged => "merged",
            RunState::Aborted(_) => "aborted",
        }
    }
}

/// Why bytes are no message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MessageError {
    /// Longer than allowed.
    #[error("a message of {bytes} bytes, where at most {most} are allowed")]
    TooLong { bytes: usize, most: usize },
    /// Not the JSON that was expected.
    #[error("no message: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// Reads a message of at most [`MESSAGE_BYTES`].
///
/// # Errors
/// When the bytes are too many or do not follow the type.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, MessageError> {
    if bytes.len() > MESSAGE_BYTES {
        return Err(MessageError::TooLong { bytes: bytes.len(), most: MESSAGE_BYTES });
    }
    Ok(serde_json::from_slice(bytes)?)
}

/// Writes a message.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    serde_json::to_vec(message).expect("messages are structs of strings and numbers")
}

/// A reason cut to what is passed on, at a character's boundary.
pub(crate) fn bounded(mut reason: String) -> String {
    let mut end = reason.len().min(REASON_BYTES);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    reason.truncate(end);
    reason
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::block;

    #[test]
    fn every_truncation_is_refused() {
        let command = encode(&Command::Prepare(Box::new(block())));
        for len in 0..command.len() {
            assert!(decode::<Command>(&command[..len]).is_err(), "{len} bytes");
        }
        assert_eq!(decode::<Command>(&command).unwrap(), Command::Prepare(Box::new(block())));
    }

    #[test]
    fn a_message_beyond_the_limit_is_refused_unread() {
        let spaces = vec![b' '; MESSAGE_BYTES + 1];
        assert!(matches!(decode::<Ping>(&spaces), Err(MessageError::TooLong { .. })));
    }

    #[test]
    fn a_reason_is_cut_at_a_character() {
        assert_eq!(bounded("é".repeat(600)).len(), 1_024);
        assert_eq!(bounded(format!("a{}", "é".repeat(600))).len(), 1_023);
    }
}
