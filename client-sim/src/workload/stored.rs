//! What the relay holds before the clock starts, and what it must answer.

use std::collections::BTreeMap;

use codecs::Event;

/// Stored events by author and kind.
pub(super) struct StoredIndex(BTreeMap<([u8; 32], u16), Vec<u32>>);

impl StoredIndex {
    pub(super) fn new(events: &[Event<'_>]) -> Self {
        let mut index = BTreeMap::<_, Vec<u32>>::new();
        for (position, event) in (0..).zip(events) {
            index.entry((event.pubkey, event.kind)).or_default().push(position);
        }
        StoredIndex(index)
    }

    pub(super) fn authors(&self, kinds: &[u16]) -> Vec<[u8; 32]> {
        let mut authors: Vec<_> =
            self.0.keys().filter(|(_, kind)| kinds.contains(kind)).map(|(author, _)| *author).collect();
        authors.dedup();
        authors
    }

    pub(super) fn expected(&self, authors: &[[u8; 32]], kinds: &[u16]) -> Vec<u32> {
        let keys = authors.iter().flat_map(|author| kinds.iter().map(|kind| (*author, *kind)));
        let mut expected: Vec<_> = keys.filter_map(|key| self.0.get(&key)).flatten().copied().collect();
        expected.sort_unstable();
        expected.dedup();
        expected
    }
}
