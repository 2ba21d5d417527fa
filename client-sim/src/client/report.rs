//! What one client brings back.

use wire::{CompressionMemory, Traffic};

use crate::bits::Bits;

/// What one client saw.
#[derive(Debug, Default)]
pub struct ClientReport {
    /// Bytes and messages since the start, over all its connections.
    pub traffic: Traffic,
    /// Connections that ended, and what their compression took then: their own added up, the thread's as the last found it.
    pub ended: (u64, CompressionMemory),
    /// Requests that ended with EOSE.
    pub requests_completed: u64,
    /// Planned deliveries to requests that came, each once and unaltered.
    pub deliveries: u64,
    /// The same event twice on one subscription.
    pub duplicated: u64,
    /// An event that is not what its author published.
    pub altered: u64,
    /// An event that nobody asked for.
    pub unexpected: u64,
    /// Deliveries of events that this client had from another relay.
    pub repeats: u64,
    /// Of those, recognised without decoding.
    pub repeats_peeked: u64,
    /// Reconciliations that came to their end.
    pub reconciliations: u64,
    /// Messages sent in reconciliations.
    pub negentropy_rounds: u64,
    /// Bytes of negentropy in both directions.
    pub negentropy_bytes: u64,
    /// Events of other clients that a reconciliation had to bring, or brought: planned by nobody, owed all the same.
    pub owed: u64,
    /// Messages that are not of the agreed format.
    pub decode_errors: u64,
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
    /// Why the connection ended early.
    pub failure: Option<String>,
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
