//! One walk over an event's bytes, whatever is to become of them.
//!
//! A tuned format says once how its bytes are read ([`Walk::walk`]) and gets from it the decoded event, the flat
//! one and the checked view: they differ only in what they do with the tags on the way.

use crate::{
    DecodeError, Event, EventHead, EventView, FlatEvent, Tag, model::TagLayout, reader::Reader, text::Found,
};

/// A format whose events are read in one walk.
pub(crate) trait Walk {
    /// How views read the tags.
    const LAYOUT: &'static dyn TagLayout;

    /// Reads the event that fills `bytes`: writes its fields of fixed length where they are to stay, hands its tags
    /// to `tags` as they come, and returns the rest.
    fn walk<'a>(
        bytes: &'a [u8],
        fixed: &mut Fixed,
        tags: &mut impl TagSink<'a>,
    ) -> Result<Walked<'a>, DecodeError>;
}

/// An event's fields of fixed length.
#[derive(Debug)]
pub(crate) struct Fixed {
    pub(crate) head: EventHead,
    pub(crate) sig: [u8; 64],
}

impl Fixed {
    /// To be written over.
    pub(crate) const BLANK: Fixed =
        Fixed { head: EventHead { id: [0; 32], pubkey: [0; 32], created_at: 0, kind: 0 }, sig: [0; 64] };
}

/// What a walk found besides tags and what has a fixed length.
#[derive(Debug)]
pub(crate) struct Walked<'a> {
    pub(crate) content: Found<'a>,
    /// Where [`Walk::LAYOUT`] finds the tags.
    pub(crate) tags: &'a [u8],
}

/// What becomes of tags.
pub(crate) trait TagSink<'a> {
    /// Tags follow; `room` tells how many the rest of the input can pay for, to whom wants to know.
    #[inline]
    fn expect_tags(&mut self, _room: impl FnOnce() -> usize) {}

    /// A tag begins; `room` tells of about how many values.
    fn tag(&mut self, room: impl FnOnce() -> usize);

    /// The next value of the tag.
    fn value(&mut self, value: Found<'a>) -> Result<(), DecodeError>;
}

/// Nothing: the walk itself is the check, but for UTF-8.
pub(crate) struct Checked;

impl<'a> TagSink<'a> for Checked {
    #[inline]
    fn tag(&mut self, _room: impl FnOnce() -> usize) {}

    #[inline(always)]
    fn value(&mut self, value: Found<'a>) -> Result<(), DecodeError> {
        value.check(VALUE)
    }
}

impl<'a> TagSink<'a> for Vec<Tag<'a>> {
    #[inline]
    fn expect_tags(&mut self, room: impl FnOnce() -> usize) {
        self.reserve_exact(room());
    }

    #[inline]
    fn tag(&mut self, room: impl FnOnce() -> usize) {
        self.push(Tag::with_capacity(room()));
    }

    #[inline(always)]
    fn value(&mut self, value: Found<'a>) -> Result<(), DecodeError> {
        let tag = self.last_mut().expect("a walk begins a tag before its values");
        tag.push(value.view(VALUE)?.to_text());
        Ok(())
    }
}

/// Tags that own their text, but for names of one letter: those are there for ever.
struct Owned(Vec<Tag<'static>>);

impl<'a> TagSink<'a> for Owned {
    #[inline]
    fn expect_tags(&mut self, room: impl FnOnce() -> usize) {
        self.0.reserve_exact(room());
    }

    #[inline]
    fn tag(&mut self, room: impl FnOnce() -> usize) {
        self.0.push(Tag::with_capacity(room()));
    }

    #[inline(always)]
    fn value(&mut self, value: Found<'a>) -> Result<(), DecodeError> {
        let tag = self.0.last_mut().expect("a walk begins a tag before its values");
        tag.push(value.own(VALUE)?);
        Ok(())
    }
}

/// What errors call a value of a tag.
pub(crate) const VALUE: &str = "tag value";
/// And the content.
pub(crate) const CONTENT: &str = "content";

/// [`EventCodec::decode_event`](crate::EventCodec::decode_event) by a walk.
pub(crate) fn decode<W: Walk>(bytes: &[u8]) -> Result<Event<'_>, DecodeError> {
    let (mut fixed, mut tags) = (Fixed::BLANK, Vec::new());
    let content = W::walk(bytes, &mut fixed, &mut tags)?.content.view(CONTENT)?.to_text();
    let Fixed { head: EventHead { id, pubkey, created_at, kind }, sig } = fixed;
    Ok(Event { id, pubkey, created_at, kind, tags, content, sig })
}

/// [`EventCodec::owned_event`](crate::EventCodec::owned_event) by a walk.
pub(crate) fn owned<W: Walk>(bytes: &[u8]) -> Result<Event<'static>, DecodeError> {
    let (mut fixed, mut tags) = (Fixed::BLANK, Owned(Vec::new()));
    let content = W::walk(bytes, &mut fixed, &mut tags)?.content.own(CONTENT)?;
    let Fixed { head: EventHead { id, pubkey, created_at, kind }, sig } = fixed;
    Ok(Event { id, pubkey, created_at, kind, tags: tags.0, content, sig })
}

/// [`EventCodec::view_event`](crate::EventCodec::view_event) by a walk.
pub(crate) fn view<W: Walk>(bytes: &[u8]) -> Result<EventView<'_>, DecodeError> {
    let mut fixed = Fixed::BLANK;
    let Walked { content, tags } = W::walk(bytes, &mut fixed, &mut Checked)?;
    content.check(CONTENT)?;
    Ok(EventView::in_frame(fixed.head, fixed.sig, content, tags, W::LAYOUT))
}

/// [`EventCodec::flat_event`](crate::EventCodec::flat_event) by a walk.
pub(crate) fn flat<W: Walk>(bytes: &[u8]) -> Result<FlatEvent, DecodeError> {
    let mut fixed = Fixed::BLANK;
    let Walked { content, tags } = W::walk(bytes, &mut fixed, &mut Checked)?;
    content.check(CONTENT)?;
    Ok(FlatEvent::in_frame(fixed.head, fixed.sig, content, tags, W::LAYOUT))
}

/// Reads fields of fixed length by a call of its own. Inlined into a walk, the compiler takes the arrays apart and
/// puts them together again in pieces that the processor must wait for: 30 ns an event.
#[inline(never)]
pub(crate) fn out_of_line(read: impl FnOnce() -> Result<(), DecodeError>) -> Result<(), DecodeError> {
    read()
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
