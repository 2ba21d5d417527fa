//! Actions that the state machine asks of the owner of its connection and clock.

use bytes::Bytes;

use crate::recorder::Sample;

/// One thing to do. Carry out actions in the order in which the machine gives them.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Send one protocol message; flush when no more are waiting.
    Send(Bytes),
    /// Connect, then call `on_connected` or `on_disconnected`.
    Connect,
    /// Close with a Close frame (RFC 6455 §7.1.1).
    Close,
    /// End TCP without a Close frame.
    Abort,
    /// Record a latency.
    Record(Sample),
    /// Count a delivery in the throughput, without a latency.
    Count { now_ns: u64 },
    /// End this client, for this reason; the run is incomplete.
    Fail(String),
}
