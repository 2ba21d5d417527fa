//! Did two runs use the same events?

use codecs::{Event, hex};
use sha2::{Digest, Sha256};

/// SHA-256 over `id || sig` of every event in order, so it does not depend on the file format.
/// Printed as hex.
///
/// Includes the signature, which is a part of every message and not covered by the id.
#[derive(Debug, derive_more::Display, Clone, Copy, PartialEq, Eq, Hash)]
#[display("{}", hex::encode(_0))]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// The fingerprint of these events in this order.
    pub fn from_events(events: &[Event<'_>]) -> Fingerprint {
        let mut hasher = FingerprintHasher::default();
        events.iter().for_each(|event| hasher.add(event));
        hasher.finish()
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Computes a [`Fingerprint`] event by event.
#[derive(Debug, Clone, Default)]
pub(crate) struct FingerprintHasher(Sha256);

impl FingerprintHasher {
    pub(crate) fn add(&mut self, event: &Event<'_>) {
        self.0.update(event.id);
        self.0.update(event.sig);
    }

    pub(crate) fn finish(self) -> Fingerprint {
        Fingerprint(self.0.finalize().into())
    }
}
