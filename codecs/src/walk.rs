//! One walk over an event's bytes, whatever is to become of them.
//!
//! A tuned format says once how its bytes are read ([`Walk::walk`]) and gets from it the decoded event, the flat
//! one and the checked view: they differ only in what they do with the tags on the way.

use crate::{
    DecodeError, Event, EventHead, EventView, FlatEvent, Tag, TextView,
    model::{FlatText, TagLayout},
    reader::Reader,
};

/// A format whose events are read in one walk.
pub(crate) trait Walk {
    /// How views read the tags.
    const LAYOUT: &'static dyn TagLayout;

    /// Reads the event that fills `bytes`, and hands its tags to `tags` as they come.
    fn walk<'a>(bytes: &'a [u8], tags: &mut impl TagSink<'a>) -> Result<Walked<'a>, DecodeError>;
}

/// What a walk found besides tags.
#[derive(Debug)]
pub(crate) struct Walked<'a> {
    pub(crate) head: EventHead,
    pub(crate) sig: [u8; 64],
    pub(crate) content: TextView<'a>,
    /// Where [`Walk::LAYOUT`] finds the tags.
    pub(crate) tags: &'a [u8],
}

/// What becomes of tags.
pub(crate) trait TagSink<'a> {
    /// So many tags are said to follow; `room` is how many the rest of the input can pay for.
    fn expect_tags(&mut self, _room: usize) {}

    /// A tag begins, of about so many values.
    fn tag(&mut self, room: usize);

    /// The next value of the tag.
    fn value(&mut self, value: TextView<'a>);
}

/// Nothing: the walk itself is the check.
struct Checked;

impl<'a> TagSink<'a> for Checked {
    fn tag(&mut self, _room: usize) {}

    fn value(&mut self, _value: TextView<'a>) {}
}

impl<'a> TagSink<'a> for Vec<Tag<'a>> {
    fn expect_tags(&mut self, room: usize) {
        self.reserve_exact(room);
    }

    fn tag(&mut self, room: usize) {
        self.push(Tag::with_capacity(room));
    }

    fn value(&mut self, value: TextView<'a>) {
        self.last_mut().expect("a walk begins a tag before its values").push(value.to_text());
    }
}

impl<'a> TagSink<'a> for FlatText {
    fn tag(&mut self, _room: usize) {
        self.tag();
    }

    fn value(&mut self, value: TextView<'a>) {
        self.value(value);
    }
}

/// [`EventCodec::decode_event`](crate::EventCodec::decode_event) by a walk.
pub(crate) fn decode<W: Walk>(bytes: &[u8]) -> Result<Event<'_>, DecodeError> {
    let mut tags = Vec::new();
    let Walked { head, sig, content, .. } = W::walk(bytes, &mut tags)?;
    let EventHead { id, pubkey, created_at, kind } = head;
    Ok(Event { id, pubkey, created_at, kind, tags, content: content.to_text(), sig })
}

/// [`EventCodec::view_event`](crate::EventCodec::view_event) by a walk.
pub(crate) fn view<W: Walk>(bytes: &[u8]) -> Result<EventView<'_>, DecodeError> {
    let Walked { head, sig, content, tags } = W::walk(bytes, &mut Checked)?;
    Ok(EventView::in_frame(head, sig, content, tags, W::LAYOUT))
}

/// [`EventCodec::flat_event`](crate::EventCodec::flat_event) by a walk.
pub(crate) fn flat<W: Walk>(bytes: &[u8]) -> Result<FlatEvent, DecodeError> {
    let mut text = FlatText::for_message(bytes.len());
    let Walked { head, sig, content, .. } = W::walk(bytes, &mut text)?;
    Ok(FlatEvent::new(head, sig, text, content))
}

/// [`TagLayout::next_tag`] where a tag is a count and so many values.
pub(crate) fn counted_tag<'a>(
    tags: &mut &'a [u8],
    count: impl FnOnce(&mut Reader<'a>) -> Result<u64, DecodeError>,
    pass: impl Fn(&mut Reader<'a>) -> Result<(), DecodeError>,
) -> Option<&'a [u8]> {
    let mut reader = Reader::new(tags);
    let values = count(&mut reader).ok()?;
    let start = reader.rest();
    for _ in 0..values {
        pass(&mut reader).ok()?;
    }
    *tags = reader.rest();
    start.get(..start.len() - tags.len())
}
