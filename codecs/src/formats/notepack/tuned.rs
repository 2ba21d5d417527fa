//! notepack, tuned: straight from the event into the caller's buffer, and one walk that checks as
//! it reads.

use std::borrow::Cow;

use super::MIN_HEX_CHARS;
use crate::{
    ByteEvent, DecodeError, EncodeError, Event, EventCodec, EventHead, TagValue,
    fixed::{CONTENT, Fixed, VALUE, out_of_line},
    hex,
    reader::{Reader, write_varint},
    text::{Found, Value},
};

/// The only version.
const VERSION: u8 = 1;

#[derive(Debug)]
pub(in crate::formats) struct TunedNotepack;

impl EventCodec for TunedNotepack {
    fn encode_event(&self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.push(VERSION);
        out.extend_from_slice(&event.id);
        out.extend_from_slice(&event.pubkey);
        out.extend_from_slice(&event.sig);
        write_varint(event.created_at.cast_unsigned(), out);
        write_varint(u64::from(event.kind), out);
        write_varint(event.content.len() as u64, out);
        out.extend_from_slice(event.content.as_bytes());
        write_varint(event.tags.len() as u64, out);
        for tag in &event.tags {
            write_varint(tag.len() as u64, out);
            tag.iter().for_each(|value| write_value(value, out));
        }
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
        read_version(&mut reader)?;
        let (id, pubkey) = (reader.array_ref("id")?, reader.array_ref("pubkey")?);
        reader.array_ref::<64>("sig")?;
        let created_at = reader.varint("created_at")?.cast_signed();
        let kind = read_kind(&mut reader)?;
        Ok(EventHead { id: *id, pubkey: *pubkey, created_at, kind })
    }
}

/// A tag's value; one-letter names and keys skip the general path.
#[inline]
fn write_value(value: &str, out: &mut Vec<u8>) {
    if !hex::push_usual(value, [1 << 1], [32 << 1 | 1], out) {
        write_other_value(value, out);
    }
}

fn write_other_value(value: &str, out: &mut Vec<u8>) {
    if hex::is_compactable(value, MIN_HEX_CHARS) {
        write_varint(value.len() as u64 | 1, out); // twice the bytes is the number of digits
        hex::decode_into(value, out);
    } else {
        write_varint(2 * value.len() as u64, out);
        out.extend_from_slice(value.as_bytes());
    }
}

fn read<'a, V: Value<'a>>(bytes: &'a [u8]) -> Result<V::Event, DecodeError> {
    let (mut reader, mut fixed) = (Reader::new(bytes), Fixed::BLANK);
    out_of_line(|| read_fixed(&mut reader, &mut fixed))?;
    let content_len = reader.varint("content's length")?;
    let content = Found::Bytes(reader.bytes(content_len, CONTENT)?);
    let count = reader.varint("number of tags")?;
    let mut tags = Vec::with_capacity(reader.capacity(count));
    for _ in 0..count {
        let values = reader.varint("number of values in a tag")?;
        let mut tag = Vec::with_capacity(reader.capacity(values));
        for _ in 0..values {
            tag.push(read_value(&mut reader)?.value(VALUE)?);
        }
        tags.push(tag);
    }
    reader.finish()?;
    Ok(V::event(fixed, tags, content.text(CONTENT)?))
}

#[inline]
fn read_fixed(reader: &mut Reader<'_>, fixed: &mut Fixed) -> Result<(), DecodeError> {
    read_version(reader)?;
    fixed.head.id = *reader.array_ref("id")?;
    fixed.head.pubkey = *reader.array_ref("pubkey")?;
    fixed.sig = *reader.array_ref("sig")?;
    fixed.head.created_at = reader.varint("created_at")?.cast_signed();
    fixed.head.kind = read_kind(reader)?;
    Ok(())
}

#[inline]
fn read_version(reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    if reader.varint("version")? == u64::from(VERSION) {
        Ok(())
    } else {
        Err(DecodeError::OutOfRange("version (only 1 is known)"))
    }
}

#[inline]
fn read_kind(reader: &mut Reader<'_>) -> Result<u16, DecodeError> {
    u16::try_from(reader.varint("kind")?).map_err(|_| DecodeError::OutOfRange("kind"))
}

/// A tag's value; one-letter names and keys skip the general path.
#[inline(always)]
fn read_value<'a>(reader: &mut Reader<'a>) -> Result<Found<'a>, DecodeError> {
    if let Some(letter) = reader.letter_behind([1 << 1]) {
        return Ok(Found::Letter(letter));
    }
    if let Some(key) = reader.array_behind([32 << 1 | 1]) {
        return Ok(Found::Key(key));
    }
    read_text(reader)
}

fn read_text<'a>(reader: &mut Reader<'a>) -> Result<Found<'a>, DecodeError> {
    let head = reader.varint(VALUE)?;
    Found::stored(head & 1 == 1, reader.bytes(head >> 1, VALUE)?, MIN_HEX_CHARS, VALUE)
}
