//! Which event has this id?

use std::sync::Arc;

use ahash::RandomState;
use hashbrown::HashTable;

use super::stored::StoredEvent;

/// Events by id, each next to the hash of its id. This takes less than half the memory of a map with
/// whole ids, and grows without a look at events.
#[derive(Debug, Default)]
pub(super) struct ById {
    events: HashTable<(u64, Arc<StoredEvent>)>,
    hasher: RandomState,
}

impl ById {
    /// The hash of an id, for a caller that needs it several times.
    pub(super) fn hash(&self, id: &[u8; 32]) -> u64 {
        self.hasher.hash_one(id)
    }

    pub(super) fn get(&self, id: &[u8; 32]) -> Option<&Arc<StoredEvent>> {
        self.get_hashed(self.hash(id), id)
    }

    pub(super) fn get_hashed(&self, hash: u64, id: &[u8; 32]) -> Option<&Arc<StoredEvent>> {
        Some(&self.events.find(hash, |entry| is_of(entry, hash, id))?.1)
    }

    /// Adds an event whose id has this hash and is not there.
    pub(super) fn insert(&mut self, hash: u64, event: Arc<StoredEvent>) {
        self.events.insert_unique(hash, (hash, event), |entry| entry.0);
    }

    pub(super) fn remove(&mut self, id: &[u8; 32]) -> Option<Arc<StoredEvent>> {
        let hash = self.hash(id);
        let found = self.events.find_entry(hash, |entry| is_of(entry, hash, id)).ok()?;
        Some(found.remove().0.1)
    }

    pub(super) fn len(&self) -> usize {
        self.events.len()
    }
}

fn is_of(entry: &(u64, Arc<StoredEvent>), hash: u64, id: &[u8; 32]) -> bool {
    entry.0 == hash && entry.1.head().id == *id
}
