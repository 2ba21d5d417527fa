//! Did two runs use the same events?

use std::fmt;

use codecs::{Event, hex};
use sha2::{Digest, Sha256};

/// SHA-256 over `id || sig` of every event in order, so it does not depend on the file format. Printed as hex.
///
/// The signature is in it because the id does not cover it, yet it is a part of every message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of these events in this order.
    pub fn of(events: &[Event<'_>]) -> Fingerprint {
        let mut hasher = Sha256::new();
        for event in events {
            hasher.update(event.id);
            hasher.update(event.sig);
        }
        Fingerprint(hasher.finalize().into())
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}
