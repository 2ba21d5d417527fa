//! What went over a connection.

use std::ops::{Add, AddAssign, Sub};

/// Counts of one connection, or of many added up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// From this end to the peer.
    pub sent: Flow,
    /// From the peer to this end.
    pub received: Flow,
    /// The HTTP head that this end wrote, with the TLS handshake where there is TLS.
    pub handshake_sent_bytes: u64,
    /// The HTTP head that the peer wrote, with the TLS handshake where there is TLS.
    pub handshake_received_bytes: u64,
}

/// Counts of one direction.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flow {
    /// Data messages; control frames are none.
    pub messages: u64,
    /// Their payloads before compression.
    pub payload_bytes: u64,
    /// What passed the socket after the handshake: frame headers, masks, compressed payloads, control frames;
    /// with TLS, as its records.
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

impl std::iter::Sum for Traffic {
    fn sum<I: Iterator<Item = Traffic>>(traffics: I) -> Traffic {
        traffics.fold(Traffic::default(), Add::add)
    }
}
