//! DannyPack: the fixed fields first, then tags and content with one-byte length heads.
//!
//! ```text
//! id[32] pubkey[32] sig[64] created_at i64 LE, kind u16 LE                        138 bytes
//! vi(length of the tag block)  vi(tags), for each tag: u8(values), for each value: string
//! string(content)
//! string   u8 head: bit 7 hex, low 7 bits n; n < 127: n bytes; n = 127: vi(length), then the bytes
//! ```
//!
//! `vi` is an unsigned LEB128 number in its shortest form. Tag values and content that are lowercase hex, even and at least
//! 8 digits long are stored as bytes and marked.
//! A tag has at most 255 values; the encoder refuses more. The decoder takes only the form the encoder writes:
//! shortest varints and heads, the hex mark exactly where the rule puts it, nothing left over in the tag block or
//! behind the content.
//!
//! The format has one implementation, in binostr, whose decoder reads out of bounds, so this is ours, written by
//! hand, and stands for `library` and `tuned` alike. Room for the tag block's length is left by a guess, and the block is
//! moved where the guess was wrong.

use crate::{
    DecodeError, EncodeError, Event, EventCodec, EventHead, EventView, FlatEvent, Tag, TextView, hex,
    model::TagLayout,
    reader::{Reader, write_sized_about, write_varint},
    text::Found,
    walk::{self, CONTENT, Fixed, TagSink, VALUE, Walk, Walked},
};

/// Shortest hex text stored as bytes.
const MIN_HEX_CHARS: usize = 8;
/// What most tags take: the count, a letter and a key. The better the guess, the rarer a tag block is moved.
const TAG_BYTES: usize = 1 + 2 + 33;
/// The bit of a head that marks bytes.
const HEX: u8 = 0x80;
/// The length in a head that stands for "a varint follows".
const LONG: u8 = 0x7f;

#[derive(Debug)]
pub(super) struct DannyPack;

impl EventCodec for DannyPack {
    fn encode_event(&self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.extend_from_slice(&event.id);
        out.extend_from_slice(&event.pubkey);
        out.extend_from_slice(&event.sig);
        out.extend_from_slice(&event.created_at.to_le_bytes());
        out.extend_from_slice(&event.kind.to_le_bytes());
        let about = event.tags.len().saturating_mul(TAG_BYTES);
        write_sized_about(about, out, |out| write_tags(&event.tags, out))?;
        write_string(&event.content, out);
        Ok(())
    }

    fn decode_event<'a>(&self, bytes: &'a [u8]) -> Result<Event<'a>, DecodeError> {
        walk::decode::<Self>(bytes)
    }

    fn owned_event(&self, bytes: &[u8]) -> Result<Event<'static>, DecodeError> {
        walk::owned::<Self>(bytes)
    }

    fn view_event<'a>(&self, bytes: &'a [u8]) -> Result<EventView<'a>, DecodeError> {
        walk::view::<Self>(bytes)
    }

    fn flat_event(&self, bytes: &[u8]) -> Result<FlatEvent, DecodeError> {
        walk::flat::<Self>(bytes)
    }

    fn peek(&self, bytes: &[u8]) -> Result<EventHead, DecodeError> {
        let mut reader = Reader::new(bytes);
        let (id, pubkey) = (reader.array_ref("id")?, reader.array_ref("pubkey")?);
        reader.array_ref::<64>("sig")?;
        let created_at = i64::from_le_bytes(reader.array("created_at")?);
        let kind = u16::from_le_bytes(reader.array("kind")?);
        Ok(EventHead { id: *id, pubkey: *pubkey, created_at, kind })
    }
}

fn write_tags(tags: &[Tag<'_>], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    write_varint(tags.len() as u64, out);
    for tag in tags {
        let values = u8::try_from(tag.len()).map_err(|_| EncodeError::TooLarge {
            format: "dannypack",
            what: "a number of values in a tag",
            actual: tag.len(),
            max: usize::from(u8::MAX),
        })?;
        out.push(values);
        tag.iter().for_each(|value| write_value(value, out));
    }
    Ok(())
}

/// A tag's value; names of one letter and keys at a glance.
#[inline]
fn write_value(value: &str, out: &mut Vec<u8>) {
    if !hex::push_usual(value, [1], [HEX | 32], out) {
        write_string(value, out);
    }
}

fn write_string(text: &str, out: &mut Vec<u8>) {
    if hex::is_compactable(text, MIN_HEX_CHARS) {
        write_head(HEX, text.len() / 2, out);
        hex::decode_into(text, out);
    } else {
        write_head(0, text.len(), out);
        out.extend_from_slice(text.as_bytes());
    }
}

fn write_head(mark: u8, len: usize, out: &mut Vec<u8>) {
    match u8::try_from(len) {
        Ok(len) if len < LONG => out.push(mark | len),
        _ => {
            out.push(mark | LONG);
            write_varint(len as u64, out);
        }
    }
}

impl Walk for DannyPack {
    const LAYOUT: &'static dyn TagLayout = &DannyPack;

    #[inline]
    fn walk<'a>(
        bytes: &'a [u8],
        fixed: &mut Fixed,
        tags: &mut impl TagSink<'a>,
    ) -> Result<Walked<'a>, DecodeError> {
        let mut reader = Reader::new(bytes);
        walk::out_of_line(|| read_fixed(&mut reader, fixed))?;
        let len = reader.varint("length of the tags")?;
        let tag_bytes = read_tags(Reader::new(reader.bytes(len, "tags")?), tags)?;
        let content = read_string(&mut reader, CONTENT)?;
        reader.finish()?;
        Ok(Walked { content, tags: tag_bytes })
    }
}

impl TagLayout for DannyPack {
    fn next_tag<'a>(&self, tags: &mut &'a [u8]) -> Option<&'a [u8]> {
        let count = |reader: &mut Reader<'a>| reader.u8("number of values in a tag").map(u64::from);
        walk::counted_tag(tags, count, |reader| read_stored(reader, VALUE).map(drop))
    }

    fn next_value<'a>(&self, tag: &mut &'a [u8]) -> Option<TextView<'a>> {
        let mut reader = Reader::new(tag);
        let value = read_value(&mut reader).ok()?;
        *tag = reader.rest();
        value.view(VALUE).ok()
    }
}

#[inline]
fn read_fixed(reader: &mut Reader<'_>, fixed: &mut Fixed) -> Result<(), DecodeError> {
    fixed.head.id = *reader.array_ref("id")?;
    fixed.head.pubkey = *reader.array_ref("pubkey")?;
    fixed.sig = *reader.array_ref("sig")?;
    fixed.head.created_at = i64::from_le_bytes(reader.array("created_at")?);
    fixed.head.kind = u16::from_le_bytes(reader.array("kind")?);
    Ok(())
}

/// Reads the tag block and returns what stands behind its count.
#[inline(always)]
fn read_tags<'a>(mut block: Reader<'a>, tags: &mut impl TagSink<'a>) -> Result<&'a [u8], DecodeError> {
    let count = block.varint("number of tags")?;
    let tag_bytes = block.rest();
    tags.expect_tags(|| block.capacity(count));
    for _ in 0..count {
        let values = block.u8("number of values in a tag")?;
        tags.tag(|| block.capacity(u64::from(values)));
        for _ in 0..values {
            tags.value(read_value(&mut block)?)?;
        }
    }
    block.finish()?;
    Ok(tag_bytes)
}

/// What is stored for a string: whether it is hex, and the bytes.
#[inline]
fn read_stored<'a>(reader: &mut Reader<'a>, what: &'static str) -> Result<(bool, &'a [u8]), DecodeError> {
    let head = reader.u8(what)?;
    let len = match head & !HEX {
        LONG => match reader.varint(what)? {
            len if len < u64::from(LONG) => return Err(DecodeError::NotCanonical(what)),
            len => len,
        },
        len => u64::from(len),
    };
    Ok((head & HEX != 0, reader.bytes(len, what)?))
}

/// A tag's value; names of one letter and keys at a glance.
#[inline(always)]
fn read_value<'a>(reader: &mut Reader<'a>) -> Result<Found<'a>, DecodeError> {
    if let Some(letter) = reader.letter_behind([1]) {
        return Ok(Found::Letter(letter));
    }
    if let Some(key) = reader.array_behind([HEX | 32]) {
        return Ok(Found::Key(key));
    }
    read_string(reader, VALUE)
}

fn read_string<'a>(reader: &mut Reader<'a>, what: &'static str) -> Result<Found<'a>, DecodeError> {
    let (is_hex, bytes) = read_stored(reader, what)?;
    hex::read_stored(is_hex, bytes, MIN_HEX_CHARS, what)
}
