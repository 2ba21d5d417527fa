//! Counts of messages and bytes.

use derive_more::{Add, AddAssign, Sub};
use serde::{Deserialize, Serialize};

/// Counts of one connection, or a sum over many.
///
/// ```
/// use wire::{Flow, Traffic};
///
/// let sent = Flow { messages: 1, payload_bytes: 10, wire_bytes: 16 };
/// let one = Traffic { sent, ..Traffic::default() };
/// let mut sum = one;
/// sum += one;
/// assert_eq!(sum.sent - one.sent, one.sent);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Add, AddAssign, Serialize, Deserialize)]
pub struct Traffic {
    /// From this end to the peer.
    pub sent: Flow,
    /// From the peer to this end.
    pub received: Flow,
    /// This end's HTTP head and TLS handshake.
    pub handshake_sent_bytes: u64,
    /// The peer's HTTP head and TLS handshake.
    pub handshake_received_bytes: u64,
}

/// Counts of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Add, AddAssign, Sub, Serialize, Deserialize)]
pub struct Flow {
    /// Data messages.
    pub messages: u64,
    /// Their payloads before compression.
    pub payload_bytes: u64,
    /// Bytes at the socket after the handshake: frame headers, masks, compressed payloads, control
    /// frames; with TLS, its records.
    pub wire_bytes: u64,
}
