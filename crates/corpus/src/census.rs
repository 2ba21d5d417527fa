//! Counts a stream of events without holding it: duplicates, origin, fingerprint.

use std::collections::HashSet;

use codecs::Event;

use crate::{Fingerprint, Origin, fingerprint::FingerprintHasher, origin::SignerSample};

/// Most ids that are remembered to find duplicates: some 150 MB, and more events than a run
/// streams.
pub const MAX_IDS: usize = 4_000_000;

/// Counts events, their duplicates, their origin and their fingerprint.
#[derive(Debug, Default)]
pub struct Census {
    /// The first half of each id: 2^64 ids would have to be tried to make two alike.
    ids: HashSet<[u8; 16]>,
    fingerprint: FingerprintHasher,
    signers: SignerSample,
    events: u64,
    duplicates: u64,
    unchecked: u64,
}

/// The counts of a [`Census`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// Events without the duplicates.
    pub events: u64,
    /// Events whose id an earlier one has.
    pub duplicates: u64,
    /// Events after the first [`MAX_IDS`]; unknown whether they are duplicates.
    pub unchecked: u64,
    /// Fingerprint of the events without duplicates, in order.
    pub fingerprint: Fingerprint,
    /// Origin of the events.
    pub origin: Origin,
}

impl Census {
    /// Counts one event; false for a duplicate.
    pub fn add(&mut self, event: &Event<'_>) -> bool {
        let half = event.id.first_chunk().copied().expect("an id has 32 bytes");
        if self.ids.len() < MAX_IDS {
            if !self.ids.insert(half) {
                self.duplicates += 1;
                return false;
            }
        } else if self.ids.contains(&half) {
            self.duplicates += 1;
            return false;
        } else {
            self.unchecked += 1;
        }
        self.events += 1;
        self.fingerprint.add(event);
        self.signers.add(event);
        true
    }

    /// Events so far, duplicates left out.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The sums.
    pub fn finish(self) -> Counted {
        Counted {
            events: self.events,
            duplicates: self.duplicates,
            unchecked: self.unchecked,
            origin: self.signers.origin(),
            fingerprint: self.fingerprint.finish(),
        }
    }
}
