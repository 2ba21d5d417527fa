//! Any event, and any change of bytes, for proptest.

use codecs::Event;
use proptest::{collection::vec, prelude::*, sample::Index};

use crate::checks;

/// Bytes that are the recipe of an event and of messages.
pub(crate) fn recipe() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..600)
}

pub(crate) fn event() -> impl Strategy<Value = Event<'static>> {
    recipe().prop_map(|bytes| checks::event(&bytes))
}

/// Changes of bytes: what, where, to which byte.
pub(crate) fn edits() -> impl Strategy<Value = Vec<(u8, Index, u8)>> {
    vec((any::<u8>(), any::<Index>(), any::<u8>()), 1..5)
}

/// Changes, puts in, takes out or doubles a few bytes.
pub(crate) fn mutate(bytes: &mut Vec<u8>, edits: &[(u8, Index, u8)]) {
    for (edit, at, byte) in edits {
        if bytes.is_empty() {
            return;
        }
        let at = at.index(bytes.len());
        match edit % 6 {
            0 => bytes[at] = *byte,
            1 => bytes[at] ^= 1 << (byte % 8),
            2 => bytes.insert(at, *byte),
            3 => drop(bytes.remove(at)),
            4 => bytes.truncate(at),
            _ => bytes.extend_from_within(at..),
        }
    }
}
