//! How long everybody waits.

use std::time::Duration;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

const fn s(s: u64) -> Duration {
    Duration::from_secs(s)
}

/// Between two pings of an agent.
pub(crate) const PING: Duration = ms(200);

/// Between two pings while clocks are compared, so that 16 take a third of a second.
pub(crate) const CLOCK_PING: Duration = ms(20);

/// Without a ping for so long an agent stops.
pub(crate) const SILENCE: Duration = ms(600);

/// For the answer to a ping, so that an agent is lost after [`SILENCE`] since it was last heard.
pub(crate) const PONG: Duration = ms(400);

/// For all agents to claim their slots: gang scheduling starts pods one by one.
pub(crate) const CLAIMS: Duration = s(60);

/// For all players to prepare: a plan of 100,000 connections and its events to store.
pub(crate) const PREPARE: Duration = s(300);

/// For clocks to be compared.
pub(crate) const COMPARE: Duration = s(30);

/// From the command to the start. A player refuses less than 500 ms.
pub(crate) const START_AHEAD: Duration = ms(2_500);

/// Most that the start may be uncertain by.
pub(crate) const BOUND: Duration = ms(5);

/// For a player to stop, and for the last message to leave.
pub(crate) const STOP: Duration = s(1);

/// A block's end beyond three times its duration: connections, timeouts, the record.
pub(crate) const BLOCK_EXTRA: Duration = s(120);

/// Longest wait for an answer of the server, and for a record.
pub(crate) const ANSWER: Duration = s(5);

/// For the server to start: agents and coordinator may be started before it.
pub(crate) const SERVER_STARTS: Duration = s(60);

/// Between two looks for a server or a run.
pub(crate) const LOOK: Duration = ms(250);

/// For a file of events to be stored or fetched.
pub(crate) const TRAVEL: Duration = s(60);

/// Events whose coordinator was killed are forgotten after a day.
pub(crate) const KEPT: Duration = s(24 * 3_600);

/// Nanoseconds of a wait.
pub(crate) fn ns(wait: Duration) -> u64 {
    u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX)
}
