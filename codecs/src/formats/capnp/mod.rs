//! Cap'n Proto through the `capnp` crate; see schema/nostr.capnp.
//!
//! ```text
//! message   u32 LE segments - 1, u32 LE words of each, zero padding to 8 bytes, then the segments
//! event     struct of three pointers: fixedData (138 bytes), tagData, content (with a NUL)
//! fixedData id[32] pubkey[32] sig[64] created_at i64 LE, kind u16 LE
//! tagData   u16 LE tags, for each tag: u8 values, for each value: u16 LE head, bytes
//! head      bit 15: lowercase hex (even, 8 digits or more) stored as bytes; bits 0-14: stored bytes
//! ```
//!
//! A tag value longer than 32,767 stored bytes, a tag of more than 255 values and more than 65,535
//! tags do not fit and are refused. An event inside a message is a whole message of its own, as
//! `Data`: pointers are relative, so an embedded struct could not be spliced; so is each event of a
//! batch, in a list of `Data`.
//!
//! The library writes with the crate's builder and its default allocator (first segment 8 KiB,
//! zeroed, for every message): what an adopter gets. Only [`Codec::wrap_event`] and
//! [`Codec::wrap_events`] lay out their few words themselves, so that a fan-out copies an event
//! once. tagData is collected in a vector before the builder copies it.
//!
//! Read in place, without the copy that the crate's `read_message` makes, whatever the address of the
//! frame (feature `unaligned`); text borrows from the frame. The segment table is checked against the
//! input first. The traversal limit is the size of the message, so that no blob can be read twice. The
//! format's rules beyond the schema are checked here. A struct larger than ours is a later schema and
//! accepted; in a filter it is reported as an unknown field when it holds anything.

mod messages;
mod tuned;

use std::borrow::Cow;

use capnp::{
    message::{self, HeapAllocator, ReaderOptions},
    serialize::{self, BufferSegments},
    text,
};

pub(super) use self::tuned::TunedCapnp;
use super::{
    capacity::Capacity,
    generated::nostr_capnp::{client_msg, event_batch, nostr_event, relay_msg},
};
use crate::{
    ClientMessage, Codec, DecodeError, EncodeError, Event, EventCodec, Limits, RelayMessage, Tag,
    codec::{assert_batch, encode_spliced},
    fixed::{Fixed, VALUE},
    hex,
    reader::Reader,
    text::{Found, Value},
};

/// Shortest hex text stored as bytes.
const MIN_HEX_CHARS: usize = 8;
/// The bit of a tag value's head that marks bytes.
const HEX: u16 = 0x8000;
/// The crate asserts that a list has fewer than 2^29 elements, and a text one more for its NUL.
const MAX_BLOB_BYTES: usize = (1 << 29) - 2;
const WORD_BYTES: usize = 8;
/// A pointer to a list of bytes; its length goes into the bits from 35 on.
const BYTE_LIST: u64 = 1 | 2 << 32;
/// A pointer to a list of pointers.
const POINTER_LIST: u64 = 1 | 6 << 32;
/// EVENTS in the union of a relay's message.
const EVENTS: u64 = 9;

/// Counts of u16 and u8, and 15 bits of length.
pub(super) const CAPACITY: Capacity = Capacity {
    tags: u16::MAX as usize,
    tag_values: u8::MAX as usize,
    value_bytes: (HEX - 1) as usize,
    hex_chars: Some(MIN_HEX_CHARS),
    ..Capacity::ANY
};

#[derive(Debug)]
pub(super) struct Capnp;

pub(super) type Built = message::Builder<HeapAllocator>;

/// The message of an event.
pub(super) fn build_event(event: &Event<'_>) -> Result<Built, EncodeError> {
    let mut builder = builder();
    fill_event(event, builder.init_root())?;
    Ok(builder)
}

fn fill_event(event: &Event<'_>, mut out: nostr_event::Builder<'_>) -> Result<(), EncodeError> {
    let mut tag_data = Vec::new();
    write_tags(&event.tags, &mut tag_data)?;
    out.set_fixed_data(&fixed_data(event));
    out.set_tag_data(fits(&tag_data, "tags of a size in bytes")?);
    out.set_content(fits(&*event.content, "content of a size in bytes")?);
    Ok(())
}

/// The message of a batch.
pub(super) fn build_batch<'b, 'e: 'b>(
    events: impl ExactSizeIterator<Item = &'b Event<'e>>,
) -> Result<Built, EncodeError> {
    const MOST: usize = MAX_BLOB_BYTES / 3; // the list counts words, and an event has three
    let what = "a number of events";
    let count = u32::try_from(events.len()).ok().filter(|_| events.len() <= MOST);
    let count = count.ok_or_else(|| too_large(what, events.len(), MOST))?;
    let mut builder = builder();
    let mut list = builder.init_root::<event_batch::Builder<'_>>().init_events(count);
    for (index, event) in (0..).zip(events) {
        fill_event(event, list.reborrow().get(index))?;
    }
    Ok(builder)
}

/// Appends a batch.
pub(super) fn write_batch<'b, 'e: 'b>(
    events: impl ExactSizeIterator<Item = &'b Event<'e>>,
    out: &mut Vec<u8>,
) -> Result<(), EncodeError> {
    write(&build_batch(events)?, out)
}

/// Reads a batch.
pub(super) fn read_batch(bytes: &[u8]) -> Result<Vec<Event<'_>>, DecodeError> {
    let message = open(bytes)?;
    let root = message.get_root::<event_batch::Reader<'_>>().map_err(library)?;
    if !root.has_events() {
        return Err(DecodeError::Missing("list of events"));
    }
    let mut events = Vec::new(); // the length is a claim: grow as events arrive
    for event in root.get_events().map_err(library)? {
        events.push(read_event(bytes, event)?);
    }
    Ok(events)
}

/// The event in a message, whose text borrows from `frame`.
fn read_event<'a>(frame: &'a [u8], event: nostr_event::Reader<'_>) -> Result<Event<'a>, DecodeError> {
    let mut fixed = Fixed::BLANK;
    read_fixed(event.get_fixed_data().map_err(library)?, &mut fixed)?;
    let tags = read_tags(Reader::new(in_frame(frame, event.get_tag_data().map_err(library)?)?))?;
    Ok(fixed.event(tags, read_text(frame, event.has_content(), event.get_content(), "content")?))
}

/// A client's message.
pub(super) fn build_client(message: &ClientMessage<'_>) -> Result<Built, EncodeError> {
    let mut builder = builder();
    messages::build_client(message, builder.init_root())?;
    Ok(builder)
}

/// A relay's message other than EVENT and EVENTS.
pub(super) fn build_relay(message: &RelayMessage<'_>) -> Result<Built, EncodeError> {
    let mut builder = builder();
    messages::build_relay(message, builder.init_root())?;
    Ok(builder)
}

impl EventCodec for Capnp {
    fn encode_event(&self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        write(&build_event(event)?, out)
    }

    fn decode_event<'a>(&self, bytes: &'a [u8]) -> Result<Event<'a>, DecodeError> {
        let message = open(bytes)?;
        read_event(bytes, message.get_root().map_err(library)?)
    }
}

impl Codec for Capnp {
    fn encode_client(&self, message: &ClientMessage<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        write(&build_client(message)?, out)
    }

    fn decode_client_within<'a>(
        &self,
        bytes: &'a [u8],
        limits: &Limits,
    ) -> Result<ClientMessage<'a>, DecodeError> {
        let message = open(bytes)?;
        let root = message.get_root::<client_msg::Reader<'_>>().map_err(library)?;
        messages::read_client(bytes, root, limits)
    }

    fn encode_relay(&self, message: &RelayMessage<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        if let RelayMessage::Event { subscription, .. } | RelayMessage::Events { subscription, .. } = message
        {
            fits(&**subscription, "a subscription id in bytes")?;
        }
        encode_spliced(self, "capnp", message, out, |out| write(&build_relay(message)?, out))
    }

    fn decode_relay<'a>(&self, bytes: &'a [u8]) -> Result<RelayMessage<'a>, DecodeError> {
        let message = open(bytes)?;
        messages::read_relay(bytes, message.get_root::<relay_msg::Reader<'_>>().map_err(library)?)
    }

    fn around_event(&self, subscription: &str, event: &[u8], out: &mut Vec<u8>) -> &'static [u8] {
        event_head(subscription, event.len(), out);
        &[0; WORD_BYTES][..event.len().next_multiple_of(WORD_BYTES) - event.len()]
    }

    fn wrap_events(&self, subscription: &str, events: &[&[u8]], out: &mut Vec<u8>) {
        assert_batch(events);
        batch_head(subscription, events.iter().map(|event| event.len()), out);
        for event in events {
            let start = out.len();
            out.extend_from_slice(event);
            out.resize(start + event.len().next_multiple_of(WORD_BYTES), 0);
        }
    }
}

// --- writing ---

/// The words of a relay's EVENT in front of the event.
pub(super) fn event_head(subscription: &str, event_bytes: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(wrapping(subscription, event_bytes).map(u64::to_le_bytes).as_flattened());
    write_subscription(subscription, out);
}

/// The words of a relay's EVENTS in one segment in front of the events, which are of these sizes in
/// bytes.
pub(super) fn batch_head(
    subscription: &str,
    event_bytes: impl ExactSizeIterator<Item = usize> + Clone,
    out: &mut Vec<u8>,
) {
    let subscription_words = subscription.len() / WORD_BYTES + 1; // with a NUL
    let count = event_bytes.len();
    let event_words: usize = event_bytes.clone().map(|bytes| bytes.div_ceil(WORD_BYTES)).sum();
    let words = 5 + subscription_words + count + event_words;
    let head: [u64; 6] = [
        (words as u64) << 32, // one segment
        1 << 32 | 1 << 48,    // RelayMsg: 1 data word, 1 pointer
        EVENTS,               // its union says events
        2 << 48,              // SubEvents: 2 pointers
        BYTE_LIST | 1 << 2 | (subscription.len() as u64 + 1) << 35,
        POINTER_LIST | (subscription_words as u64) << 2 | (count as u64) << 35,
    ];
    out.extend_from_slice(head.map(u64::to_le_bytes).as_flattened());
    write_subscription(subscription, out);
    let mut words_before = 0;
    for (index, bytes) in event_bytes.enumerate() {
        let words_away = count - 1 - index + words_before; // from the end of the pointer
        let pointer = BYTE_LIST | (words_away as u64) << 2 | (bytes as u64) << 35;
        out.extend_from_slice(&pointer.to_le_bytes());
        words_before += bytes.div_ceil(WORD_BYTES);
    }
}

/// The words before subscription and event in a relay's EVENT of one segment: the segment table,
/// the root struct, its union's data word, and `SubEvent`'s two pointers.
fn wrapping(subscription: &str, event_bytes: usize) -> [u64; 6] {
    let subscription_words = subscription.len() / WORD_BYTES + 1; // with a NUL
    let words = 5 + subscription_words + event_bytes.div_ceil(WORD_BYTES);
    [
        (words as u64) << 32, // one segment
        1 << 32 | 1 << 48,    // RelayMsg: 1 data word, 1 pointer
        0,                    // its union says event
        2 << 48,              // SubEvent: 2 pointers
        BYTE_LIST | 1 << 2 | (subscription.len() as u64 + 1) << 35,
        BYTE_LIST | (subscription_words as u64) << 2 | (event_bytes as u64) << 35,
    ]
}

/// The crate's own settings, explicit: they decide where segments break, and so the bytes.
fn builder() -> Built {
    message::Builder::new(
        HeapAllocator::new()
            .first_segment_words(1024)
            .allocation_strategy(message::AllocationStrategy::GrowHeuristically),
    )
}

fn write(builder: &Built, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    serialize::write_message(out, builder).map_err(|error| EncodeError::Library(error.to_string()))
}

/// `blob`, when the crate can hold it.
fn fits<'b, B: AsRef<[u8]> + ?Sized>(blob: &'b B, what: &'static str) -> Result<&'b B, EncodeError> {
    let len = blob.as_ref().len();
    if len <= MAX_BLOB_BYTES { Ok(blob) } else { Err(too_large(what, len, MAX_BLOB_BYTES)) }
}

fn too_large(what: &'static str, actual: usize, max: usize) -> EncodeError {
    EncodeError::TooLarge { format: "capnp", what, actual, max }
}

/// The text, a NUL, and zeros up to a whole word.
fn write_subscription(subscription: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(subscription.as_bytes());
    out.resize(out.len() + WORD_BYTES - subscription.len() % WORD_BYTES, 0);
}

fn fixed_data(event: &Event<'_>) -> [u8; 138] {
    let mut fixed = [0; 138];
    fixed[..32].copy_from_slice(&event.id);
    fixed[32..64].copy_from_slice(&event.pubkey);
    fixed[64..128].copy_from_slice(&event.sig);
    fixed[128..136].copy_from_slice(&event.created_at.to_le_bytes());
    fixed[136..].copy_from_slice(&event.kind.to_le_bytes());
    fixed
}

fn write_tags(tags: &[Tag<'_>], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let count = u16::try_from(tags.len())
        .map_err(|_| too_large("a number of tags", tags.len(), usize::from(u16::MAX)))?;
    out.extend_from_slice(&count.to_le_bytes());
    for tag in tags {
        let values = u8::try_from(tag.len())
            .map_err(|_| too_large("a number of values in a tag", tag.len(), usize::from(u8::MAX)))?;
        out.push(values);
        for value in tag {
            write_element(value, out)?;
        }
    }
    Ok(())
}

/// A tag's value; one-letter names and keys skip the general path.
#[inline]
fn write_element(value: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    const KEY: [u8; 2] = (32 | HEX).to_le_bytes();
    if hex::push_usual(value, [1, 0], KEY, out) { Ok(()) } else { write_other_element(value, out) }
}

fn write_other_element(value: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let is_hex = hex::is_compactable(value, MIN_HEX_CHARS);
    let stored_bytes = if is_hex { value.len() / 2 } else { value.len() };
    let head = u16::try_from(stored_bytes)
        .ok()
        .filter(|len| len & HEX == 0)
        .ok_or_else(|| too_large("a tag value in stored bytes", stored_bytes, usize::from(HEX - 1)))?;
    if is_hex {
        out.extend_from_slice(&(head | HEX).to_le_bytes());
        hex::decode_into(value, out);
    } else {
        out.extend_from_slice(&head.to_le_bytes());
        out.extend_from_slice(value.as_bytes());
    }
    Ok(())
}

// --- reading ---

/// Checks that the segments are what `bytes` holds, exactly, and leaves the pointers to the crate.
fn open(bytes: &[u8]) -> Result<message::Reader<BufferSegments<&[u8]>>, DecodeError> {
    let words = check_segments(Reader::new(bytes))?;
    // Each blob is read once; the slack is for zero-sized objects, which the crate counts as a
    // word. Messages here nest three deep.
    let options = ReaderOptions { traversal_limit_in_words: Some(words + 16), nesting_limit: 8 };
    serialize::read_message_from_flat_slice(&mut &*bytes, options).map_err(library)
}

/// The number of words in all segments.
fn check_segments(mut reader: Reader<'_>) -> Result<usize, DecodeError> {
    let what = "segment table";
    let segments = u64::from(u32::from_le_bytes(reader.array(what)?)) + 1;
    if segments >= serialize::SEGMENTS_COUNT_LIMIT as u64 {
        return Err(DecodeError::OutOfRange("number of segments"));
    }
    let mut words = 0;
    for _ in 0..segments {
        words += u64::from(u32::from_le_bytes(reader.array(what)?));
    }
    if segments % 2 == 0 && reader.array(what)? != [0; 4] {
        return Err(DecodeError::NotCanonical("segment table's padding"));
    }
    let bytes = reader.bytes(words * WORD_BYTES as u64, "segments")?;
    reader.finish()?;
    Ok(bytes.len() / WORD_BYTES)
}

/// `part`, which the crate found in `frame`, with the lifetime of the frame rather than of the
/// crate's reader.
fn in_frame<'a>(frame: &'a [u8], part: &[u8]) -> Result<&'a [u8], DecodeError> {
    if part.is_empty() {
        return Ok(&[]); // the crate's empty blob lies anywhere
    }
    let start = part.as_ptr().addr().wrapping_sub(frame.as_ptr().addr());
    let end = start.wrapping_add(part.len());
    frame.get(start..end).ok_or(DecodeError::Malformed("pointer"))
}

fn read_text<'a>(
    frame: &'a [u8],
    is_present: bool,
    text: capnp::Result<text::Reader<'_>>,
    what: &'static str,
) -> Result<Cow<'a, str>, DecodeError> {
    if !is_present {
        return Err(DecodeError::Missing(what));
    }
    let bytes = in_frame(frame, text.map_err(library)?.as_bytes())?;
    str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| DecodeError::Utf8(what))
}

fn read_tags<'a, V: Value<'a>>(mut reader: Reader<'a>) -> Result<Vec<Vec<V>>, DecodeError> {
    let count = u16::from_le_bytes(reader.array("number of tags")?);
    let mut tags = Vec::with_capacity(reader.capacity(u64::from(count)));
    for _ in 0..count {
        let values = reader.u8("number of values in a tag")?;
        let mut tag = Vec::with_capacity(reader.capacity(u64::from(values)));
        for _ in 0..values {
            tag.push(read_value(&mut reader)?.value(VALUE)?);
        }
        tags.push(tag);
    }
    reader.finish()?;
    Ok(tags)
}

#[inline]
fn read_fixed(bytes: &[u8], fixed: &mut Fixed) -> Result<(), DecodeError> {
    let mut reader = Reader::new(bytes);
    reader.fixed(fixed)?;
    reader.finish()
}

/// A tag's value; one-letter names and keys skip the general path.
#[inline(always)]
fn read_value<'a>(reader: &mut Reader<'a>) -> Result<Found<'a>, DecodeError> {
    if let Some(letter) = reader.letter_behind(1_u16.to_le_bytes()) {
        return Ok(Found::Letter(letter));
    }
    if let Some(key) = reader.array_behind((HEX | 32).to_le_bytes()) {
        return Ok(Found::Key(key));
    }
    read_text_value(reader)
}

fn read_text_value<'a>(reader: &mut Reader<'a>) -> Result<Found<'a>, DecodeError> {
    let head = u16::from_le_bytes(reader.array(VALUE)?);
    let stored = reader.bytes(u64::from(head & !HEX), VALUE)?;
    Found::stored(head & HEX != 0, stored, MIN_HEX_CHARS, VALUE)
}

#[expect(clippy::needless_pass_by_value, reason = "map_err hands the error over")]
fn library(error: capnp::Error) -> DecodeError {
    DecodeError::Library(error.to_string())
}
