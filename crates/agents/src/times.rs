//! How long everybody waits, in nanoseconds.

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// Between two pings of an agent.
pub(crate) const PING_NS: u64 = 200 * MS;

/// Between two pings while clocks are compared, so that 16 take a third of a second.
pub(crate) const CLOCK_PING_NS: u64 = 20 * MS;

/// Without a ping for so long an agent stops, without an answer the coordinator: a loss is known
/// within 1 s.
pub(crate) const SILENCE_NS: u64 = 600 * MS;

/// Without an answer for so long an agent is shown as late: two pings.
pub(crate) const LATE_NS: u64 = 2 * PING_NS;

/// From a claim to the first ping: the coordinator watches claims.
pub(crate) const FIRST_PING_NS: u64 = 10 * S;

/// For all agents to claim their slots: gang scheduling starts pods one by one.
pub(crate) const CLAIMS_NS: u64 = 60 * S;

/// For all players to prepare: a plan of 100,000 connections and its events to store.
pub(crate) const PREPARE_NS: u64 = 300 * S;

/// From the command to the start.
pub(crate) const START_AHEAD_NS: u64 = 2_500 * MS;

/// Least wait that an agent accepts: its player refuses less than 500 ms, and hears of the start
/// through a pipe after the agent has confirmed it.
pub(crate) const LEAST_WAIT_NS: u64 = 600 * MS;

/// Longest wait that an agent accepts.
pub(crate) const FURTHEST_START_NS: u64 = 60 * S;

/// Most that the start may be uncertain by.
pub(crate) const BOUND_NS: u64 = 5 * MS;

/// For a player to stop and write its record.
pub(crate) const STOP_NS: u64 = S;

/// For that record to reach the stream.
pub(crate) const PUBLISH_NS: u64 = S;

/// From the end of a run that is aborted until the coordinator looks for records: agents hear of
/// the end within 200 ms, or have lost the server.
pub(crate) const PARTIAL_NS: u64 = STOP_NS + PUBLISH_NS + 200 * MS;

/// A block's end beyond three times its duration: connections, timeouts, the record.
pub(crate) const BLOCK_EXTRA_NS: u64 = 120 * S;
