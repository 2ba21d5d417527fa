//! What one client has seen.

use measure::Counts;

use crate::bits::Bits;

/// What one client saw on its connections.
#[derive(Debug, Default)]
pub struct Report {
    /// The client's part of the run's ledger. Sums over the plan are added by [`crate::ledger::close`].
    pub counts: Counts,
    /// For each live subscription of a subscriber, which publications came.
    pub seen: Vec<Bits>,
    /// Live subscriptions of sessions.
    pub stays: Vec<Stay>,
    /// From when to when sessions were at work, in nanoseconds from the start.
    pub busy_ns: Vec<(u64, u64)>,
    /// When the last delivery or acknowledgement came, in nanoseconds from the start.
    pub last_ns: u64,
    /// The first notice or refusal, in the relay's words.
    pub complaint: Option<String>,
    /// Why the relay ended the connection of a slow reader.
    pub cut_off: Option<String>,
}

/// A live subscription of a session, from its EOSE to its end.
#[derive(Debug)]
pub struct Stay {
    /// Its filter, as a place in the plan.
    pub live: u32,
    /// The publications that were sent after its EOSE and before its client wanted to leave: those that match are
    /// owed. What was sent before or after may come or not.
    pub during: Bits,
    /// The publications that came.
    pub seen: Bits,
}
