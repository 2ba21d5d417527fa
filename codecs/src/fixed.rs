//! The fields of an event that have a fixed length, as tuned readers fill them in.

use std::borrow::Cow;

use crate::{
    error::DecodeError,
    model::{Event, EventHead, Tag},
};

/// Id, author, time, kind and signature.
#[derive(Debug)]
pub(crate) struct Fixed {
    pub(crate) head: EventHead,
    pub(crate) sig: [u8; 64],
}

impl Fixed {
    /// All zeros, to be overwritten field by field: returned by value, each array would be copied
    /// once more.
    pub(crate) const BLANK: Fixed =
        Fixed { head: EventHead { id: [0; 32], pubkey: [0; 32], created_at: 0, kind: 0 }, sig: [0; 64] };

    /// The event of these fields.
    pub(crate) fn event<'a>(self, tags: Vec<Tag<'a>>, content: Cow<'a, str>) -> Event<'a> {
        let EventHead { id, pubkey, created_at, kind } = self.head;
        Event { id, pubkey, created_at, kind, tags, content, sig: self.sig }
    }
}

/// Calls `read`, which fills in a [`Fixed`], out of line. Inlined into the reader of a whole event,
/// the compiler takes the arrays apart and puts them together again in pieces.
#[inline(never)]
pub(crate) fn out_of_line(read: impl FnOnce() -> Result<(), DecodeError>) -> Result<(), DecodeError> {
    read()
}

/// The name of a tag's value in errors.
pub(crate) const VALUE: &str = "tag value";
/// The name of the content in errors.
pub(crate) const CONTENT: &str = "content";
