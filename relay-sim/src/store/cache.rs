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
    /// Notes that an event was used.
    pub(super) fn touch(&mut self, event: &Arc<StoredEvent>) {
        let id = &event.head().id;
        if !self.young.contains_key(id) {
            self.old.remove(id);
            self.young.insert(*id, Arc::clone(event));
        }
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
