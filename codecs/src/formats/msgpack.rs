//! MessagePack array, through the `rmp` crate.
//!
//! ```text
//! 97  bin(id)  bin(pubkey)  int(created_at)  uint(kind)  array of arrays of (str / bin)  str(content)  bin(sig)
//! ```
//!
//! The same model as cbor-packed with other heads: tag values that are lowercase hex of even length
//! from 8 digits on are bin. Every head is in its shortest form. The crate reads every form, so the
//! result is written again and compared. That is part of our decoding time, not of the crate's.
//!
//! The crate's low-level interface is used, which neither builds values nor copies text: text
//! borrows from the frame.

use std::borrow::Cow;

use rmp::{
    Marker, decode,
    encode::{self, ValueWriteError},
};

use crate::{DecodeError, EncodeError, Event, EventCodec, Tag, hex};

/// Shortest hex text stored as bytes.
const MIN_HEX_CHARS: usize = 8;
/// id, pubkey, created_at, kind, tags, content, sig.
const FIELDS: u32 = 7;
/// The longest head: a marker and eight bytes.
const MAX_HEAD_BYTES: usize = 9;

#[derive(Debug)]
pub(super) struct MsgPack;

impl EventCodec for MsgPack {
    fn encode_event(&self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode::write_array_len(out, FIELDS).map_err(unwritten)?;
        encode::write_bin(out, &event.id).map_err(unwritten)?;
        encode::write_bin(out, &event.pubkey).map_err(unwritten)?;
        encode::write_sint(out, event.created_at).map_err(unwritten)?;
        encode::write_uint(out, event.kind.into()).map_err(unwritten)?;
        encode::write_array_len(out, count(event.tags.len(), "a number of tags")?).map_err(unwritten)?;
        for tag in &event.tags {
            let values = count(tag.len(), "a number of values in a tag")?;
            encode::write_array_len(out, values).map_err(unwritten)?;
            tag.iter().try_for_each(|value| write_value(value, out))?;
        }
        write_text(&event.content, out)?;
        encode::write_bin(out, &event.sig).map_err(unwritten)
    }

    fn decode_event<'a>(&self, bytes: &'a [u8]) -> Result<Event<'a>, DecodeError> {
        let mut input = bytes;
        if array(&mut input, "event")? != FIELDS {
            return Err(DecodeError::Malformed("event, which is an array of 7"));
        }
        let event = Event {
            id: key(&mut input, "id")?,
            pubkey: key(&mut input, "pubkey")?,
            created_at: read(&mut input, "created_at", decode::read_int, |o, n: i64| {
                encode::write_sint(o, n)
            })?,
            kind: read(&mut input, "kind", decode::read_int, |o, n: u16| encode::write_uint(o, n.into()))?,
            tags: read_tags(&mut input)?,
            content: Cow::Borrowed(text(&mut input, "content")?),
            sig: key(&mut input, "sig")?,
        };
        if input.is_empty() { Ok(event) } else { Err(DecodeError::Trailing(input.len())) }
    }
}

fn write_value(value: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if !hex::is_compactable(value, MIN_HEX_CHARS) {
        return write_text(value, out);
    }
    encode::write_bin_len(out, count(value.len() / 2, "a tag value in bytes")?).map_err(unwritten)?;
    hex::decode_into(value, out);
    Ok(())
}

fn write_text(text: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    count(text.len(), "text in bytes")?;
    encode::write_str(out, text).map_err(unwritten)
}

fn count(actual: usize, what: &'static str) -> Result<u32, EncodeError> {
    let max = u32::MAX as usize;
    u32::try_from(actual).map_err(|_| EncodeError::TooLarge { format: "msgpack", what, actual, max })
}

#[expect(clippy::needless_pass_by_value, reason = "map_err hands the error over")]
fn unwritten(error: ValueWriteError) -> EncodeError {
    EncodeError::Library(error.to_string())
}

/// Reads a head, which the crate takes in any form, and refuses all but the one that the crate
/// writes.
fn read<'a, T: Copy, E: std::fmt::Display, W>(
    input: &mut &'a [u8],
    what: &'static str,
    read: impl FnOnce(&mut &'a [u8]) -> Result<T, E>,
    write: impl FnOnce(&mut &mut [u8], T) -> Result<W, ValueWriteError>,
) -> Result<T, DecodeError> {
    let before = *input;
    let value = read(input).map_err(|error| DecodeError::Library(format!("{what}: {error}")))?;
    let mut shortest = [0; MAX_HEAD_BYTES];
    let mut room = &mut shortest[..];
    write(&mut room, value).map_err(|_| DecodeError::Malformed(what))?;
    let written = MAX_HEAD_BYTES - room.len();
    let consumed = &before[..before.len() - input.len()];
    if consumed == &shortest[..written] { Ok(value) } else { Err(DecodeError::NotCanonical(what)) }
}

fn array(input: &mut &[u8], what: &'static str) -> Result<u32, DecodeError> {
    read(input, what, decode::read_array_len, |o, n| encode::write_array_len(o, n))
}

fn text<'a>(input: &mut &'a [u8], what: &'static str) -> Result<&'a str, DecodeError> {
    let len = read(input, what, decode::read_str_len, |o, n| encode::write_str_len(o, n))?;
    str::from_utf8(take(input, len, what)?).map_err(|_| DecodeError::Utf8(what))
}

fn bytes<'a>(input: &mut &'a [u8], what: &'static str) -> Result<&'a [u8], DecodeError> {
    let len = read(input, what, decode::read_bin_len, |o, n| encode::write_bin_len(o, n))?;
    take(input, len, what)
}

fn key<const N: usize>(input: &mut &[u8], what: &'static str) -> Result<[u8; N], DecodeError> {
    bytes(input, what)?.try_into().map_err(|_| DecodeError::Malformed(what))
}

fn take<'a>(input: &mut &'a [u8], len: u32, what: &'static str) -> Result<&'a [u8], DecodeError> {
    let (head, rest) = input.split_at_checked(len as usize).ok_or(DecodeError::Truncated(what))?;
    *input = rest;
    Ok(head)
}

fn read_tags<'a>(input: &mut &'a [u8]) -> Result<Vec<Tag<'a>>, DecodeError> {
    let count = array(input, "tags")?;
    let mut tags = Vec::with_capacity(room(count, input));
    for _ in 0..count {
        let values = array(input, "tag")?;
        let mut tag = Tag::with_capacity(room(values, input));
        for _ in 0..values {
            tag.push(read_value(input)?);
        }
        tags.push(tag);
    }
    Ok(tags)
}

/// Number of `claimed` entries to make room for at once; see `Reader::capacity`.
fn room(claimed: u32, rest: &[u8]) -> usize {
    (claimed as usize).min(rest.len() / 8)
}

fn read_value<'a>(input: &mut &'a [u8]) -> Result<Cow<'a, str>, DecodeError> {
    let what = "tag value";
    let is_bytes = input
        .first()
        .is_some_and(|first| matches!(Marker::from_u8(*first), Marker::Bin8 | Marker::Bin16 | Marker::Bin32));
    let (value, canonical) = if is_bytes {
        let raw = bytes(input, what)?;
        (Cow::Owned(hex::encode(raw)), 2 * raw.len() >= MIN_HEX_CHARS)
    } else {
        let text = text(input, what)?;
        (Cow::Borrowed(text), !hex::is_compactable(text, MIN_HEX_CHARS))
    };
    if canonical { Ok(value) } else { Err(DecodeError::NotCanonical(what)) }
}
