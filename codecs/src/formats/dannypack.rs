//! DannyPack: the fixed fields first, then tags and content with one-byte length heads.
//!
//! ```text
//! id[32] pubkey[32] sig[64] created_at i64 LE, kind u16 LE                        138 bytes
//! vi(length of the tag block)  vi(tags), for each tag: u8(values), for each value: string
//! string(content)
//! string   u8 head: bit 7 hex, low 7 bits n; n < 127: n bytes; n = 127: vi(length), then the bytes
//! ```
//!
//! `vi` is an unsigned LEB128 number in its shortest form. Tag values and content that are
//! lowercase hex, even and at least 8 digits long are stored as bytes and marked. A tag has at most
//! 255 values; the encoder refuses more. The decoder accepts only the encoder's form: shortest
//! varints and heads, the hex mark exactly where the rule puts it, nothing left over in the tag
//! block or after the content.
//!
//! The format has one implementation, in binostr, whose decoder reads out of bounds, so this is
//! ours and stands for `library` and `tuned` alike. Room for the tag block's length is left by a
//! guess, and the block is moved where the guess was wrong.

use std::borrow::Cow;

use super::capacity::Capacity;
use crate::{
    ByteEvent, DecodeError, EncodeError, Event, EventCodec, EventHead, Tag, TagValue,
    fixed::{CONTENT, Fixed, VALUE, out_of_line},
    hex,
    reader::{Reader, write_sized_about, write_varint},
    text::{Found, Value},
};

/// Shortest hex text stored as bytes.
const MIN_HEX_CHARS: usize = 8;
/// Bytes of most tags: the count, a letter and a key. The better the guess, the rarer a tag block
/// is moved.
const TAG_BYTES: usize = 1 + 2 + 33;
/// The bit of a head that marks bytes.
const HEX: u8 = 0x80;
/// The length in a head that stands for "a varint follows".
const LONG: u8 = 0x7f;

/// The number of values in a tag is a u8.
pub(super) const CAPACITY: Capacity = Capacity { tag_values: u8::MAX as usize, ..Capacity::ENVELOPE };

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
        read::<Cow<'a, str>>(bytes)
    }

    fn decode_keeping_bytes<'a>(&self, bytes: &'a [u8]) -> Result<ByteEvent<'a>, DecodeError> {
        read::<TagValue<'a>>(bytes)
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

/// A tag's value; one-letter names and keys skip the general path.
#[inline]
fn write_value(value: &str, out: &mut Vec<u8>) {
    if !hex::push_usual(value, [1], [HEX | 32], out) {
        write_string(value, out);
    }
}

/// Inlined, since values are short: the call is a part of their cost.
#[inline(always)]
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

fn read<'a, V: Value<'a>>(bytes: &'a [u8]) -> Result<V::Event, DecodeError> {
    let (mut reader, mut fixed) = (Reader::new(bytes), Fixed::BLANK);
    out_of_line(|| reader.fixed(&mut fixed))?;
    let len = reader.varint("length of the tags")?;
    let tags = read_tags(Reader::new(reader.bytes(len, "tags")?))?;
    let content = read_string(&mut reader, CONTENT)?;
    reader.finish()?;
    Ok(V::event(fixed, tags, content.text(CONTENT)?))
}

fn read_tags<'a, V: Value<'a>>(mut block: Reader<'a>) -> Result<Vec<Vec<V>>, DecodeError> {
    let count = block.varint("number of tags")?;
    let mut tags = Vec::with_capacity(block.capacity(count));
    for _ in 0..count {
        let values = block.u8("number of values in a tag")?;
        let mut tag = Vec::with_capacity(block.capacity(u64::from(values)));
        for _ in 0..values {
            tag.push(read_value(&mut block)?.value(VALUE)?);
        }
        tags.push(tag);
    }
    block.finish()?;
    Ok(tags)
}

/// A tag's value; one-letter names and keys skip the general path.
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
    let head = reader.u8(what)?;
    let len = match head & !HEX {
        LONG => match reader.varint(what)? {
            len if len < u64::from(LONG) => return Err(DecodeError::NotCanonical(what)),
            len => len,
        },
        len => u64::from(len),
    };
    Found::stored(head & HEX != 0, reader.bytes(len, what)?, MIN_HEX_CHARS, what)
}
