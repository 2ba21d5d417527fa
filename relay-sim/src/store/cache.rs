//! Which events of the disk are in memory? Those that were sent or published last.
//!
//! It has two generations instead of a list in order of use. An event that is used again moves to the
//! younger one. The older one is dropped as a whole to make room.

use std::sync::Arc;

use ahash::HashMap;

use super::stored::StoredEvent;

/// Events by id.
#[derive(Debug, Default)]
pub(super) struct Cache {
    young: HashMap<[u8; 32], Arc<StoredEvent>>,
    old: HashMap<[u8; 32], Arc<StoredEvent>>,
}

impl Cache {
    /// Adds an event that was just published.
    pub(super) fn add(&mut self, event: &Arc<StoredEvent>) {
        self.young.insert(event.head().id, Arc::clone(event));
    }

    /// The event for an answer: the one that is here, or a copy that is here from now on.
    pub(super) fn used(&mut self, stored: &StoredEvent) -> Arc<StoredEvent> {
        let id = stored.head().id;
        let older = || self.old.remove(&id).unwrap_or_else(|| Arc::new(stored.copy_of_head()));
        Arc::clone(self.young.entry(id).or_insert_with(older))
    }

    /// Drops the older generation; the younger becomes the older.
    pub(super) fn age(&mut self) {
        self.old = std::mem::take(&mut self.young);
    }

    pub(super) fn remove(&mut self, id: &[u8; 32]) {
        self.young.remove(id);
        self.old.remove(id);
    }
}
