//! Counts a stream of events without holding it: duplicates, origin, fingerprint.

use std::collections::HashSet;

use codecs::Event;

use crate::{Fingerprint, Origin, fingerprint::FingerprintHasher, origin::SignerSample};

/// Most ids that are remembered to find duplicates: some 150 MB, and more events than a run
/// streams.
const MAX_IDS: usize = 4_000_000;

/// Ids of events, up to 4,000,000.
#[derive(Debug, Default)]
pub struct Ids {
    /// The first half of each id: 2^64 ids would have to be tried to make two alike.
    halves: HashSet<[u8; 16]>,
}

impl Ids {
    /// Whether the event is one of them.
    pub fn contains(&self, event: &Event<'_>) -> bool {
        self.halves.contains(&half(event))
    }

    /// Adds the event, unless there are too many; false if it was there.
    pub fn insert(&mut self, event: &Event<'_>) -> bool {
        if self.is_full() { !self.contains(event) } else { self.halves.insert(half(event)) }
    }

    fn is_full(&self) -> bool {
        self.halves.len() >= MAX_IDS
    }
}

fn half(event: &Event<'_>) -> [u8; 16] {
    event.id.first_chunk().copied().expect("an id has 32 bytes")
}

/// Counts events, their duplicates, their origin and their fingerprint.
#[derive(Debug, Default)]
pub struct Census {
    ids: Ids,
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
    /// Events after the first 4,000,000; unknown whether they are duplicates.
    pub unchecked: u64,
    /// Fingerprint of the events without duplicates, in order.
    pub fingerprint: Fingerprint,
    /// Origin of the events.
    pub origin: Origin,
}

impl Census {
    /// Counts one event; false for a duplicate.
    pub fn add(&mut self, event: &Event<'_>) -> bool {
        let is_full = self.ids.is_full();
        if !self.ids.insert(event) {
            self.duplicates += 1;
            return false;
        }
        self.unchecked += u64::from(is_full);
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
