//! Counts of messages and bytes.

use std::ops::{Add, AddAssign, Sub};

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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flow {
    /// Data messages.
    pub messages: u64,
    /// Their payloads before compression.
    pub payload_bytes: u64,
    /// Bytes at the socket after the handshake: frame headers, masks, compressed payloads, control
    /// frames; with TLS, its records.
    pub wire_bytes: u64,
}

impl Add for Flow {
    type Output = Flow;

    fn add(self, other: Flow) -> Flow {
        Flow {
            messages: self.messages + other.messages,
            payload_bytes: self.payload_bytes + other.payload_bytes,
            wire_bytes: self.wire_bytes + other.wire_bytes,
        }
    }
}

impl Sub for Flow {
    type Output = Flow;

    fn sub(self, earlier: Flow) -> Flow {
        Flow {
            messages: self.messages - earlier.messages,
            payload_bytes: self.payload_bytes - earlier.payload_bytes,
            wire_bytes: self.wire_bytes - earlier.wire_bytes,
        }
    }
}

impl Add for Traffic {
    type Output = Traffic;

    fn add(self, other: Traffic) -> Traffic {
        Traffic {
            sent: self.sent + other.sent,
            received: self.received + other.received,
            handshake_sent_bytes: self.handshake_sent_bytes + other.handshake_sent_bytes,
            handshake_received_bytes: self.handshake_received_bytes + other.handshake_received_bytes,
        }
    }
}

impl AddAssign for Traffic {
    fn add_assign(&mut self, other: Traffic) {
        *self = *self + other;
    }
}
