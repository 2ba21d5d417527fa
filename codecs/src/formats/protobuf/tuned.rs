//! The two protobuf formats, tuned: lengths are counted before they are written, so that events go
//! straight into the caller's buffer, and one walk checks as it reads. Fields of a later version,
//! which may follow the last one, are left to the library.

use std::{borrow::Cow, fmt, marker::PhantomData};

use super::{strict::KIND_MAX, write_bytes};
use crate::{
    Codec, DecodeError, EncodeError, Event, EventHead, Tag,
    fixed::{Fixed, out_of_line},
    formats::tuned::{TunedFormat, Verb},
    hex,
    reader::{Reader, varint_len, write_sized, write_varint},
    text::{Found, Value},
};

/// The differences between the two formats.
pub(in crate::formats) trait Dialect: fmt::Debug + Send + Sync + 'static {
    /// The format through prost.
    const LIBRARY: &'static dyn Codec;

    /// Ids, keys and signatures are hex text; otherwise bytes.
    const SPELLED: bool;
}

/// A tuned protobuf format.
#[derive(Debug)]
pub(in crate::formats) struct TunedProtobuf<D>(PhantomData<D>);

impl<D> TunedProtobuf<D> {
    pub(in crate::formats) const NEW: Self = TunedProtobuf(PhantomData);
}

// The keys of an event's fields: number and wire type (0 varint, 2 length and bytes).
const ID: u8 = 1 << 3 | 2;
const PUBKEY: u8 = 2 << 3 | 2;
const CREATED_AT: u8 = 3 << 3;
const KIND: u8 = 4 << 3;
const TAG: u8 = 5 << 3 | 2;
const CONTENT: u8 = 6 << 3 | 2;
const SIG: u8 = 7 << 3 | 2;
/// In a tag.
const VALUE: u8 = 1 << 3 | 2;
/// In a client's message: members 1 and 4 of the oneof.
const CLIENT_EVENT: u8 = 1 << 3 | 2;
const CLIENT_AUTH: u8 = 4 << 3 | 2;
/// In a relay's message, and in the message that it is there.
const RELAY_EVENT: u8 = 1 << 3 | 2;
const RELAY_EVENTS: u8 = 10 << 3 | 2;
const SUB: u8 = 1 << 3 | 2;
const SUB_EVENT: u8 = 2 << 3 | 2;

impl<D: Dialect> TunedFormat for TunedProtobuf<D> {
    const LIBRARY: &'static dyn Codec = D::LIBRARY;

    fn write_event(event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        write_fixed::<D, 32, 64>(ID, &event.id, out);
        write_fixed::<D, 32, 64>(PUBKEY, &event.pubkey, out);
        if event.created_at != 0 {
            out.push(CREATED_AT);
            write_varint(event.created_at.cast_unsigned(), out);
        }
        if event.kind != 0 {
            out.push(KIND);
            write_varint(event.kind.into(), out);
        }
        for tag in &event.tags {
            out.push(TAG);
            write_varint(tag_len(tag) as u64, out);
            tag.iter().for_each(|value| write_bytes(VALUE, value.as_bytes(), out));
        }
        if !event.content.is_empty() {
            write_bytes(CONTENT, event.content.as_bytes(), out);
        }
        write_fixed::<D, 64, 128>(SIG, &event.sig, out);
        Ok(())
    }

    fn read<'a, V: Value<'a>>(bytes: &'a [u8]) -> Result<V::Event, DecodeError> {
        let (mut reader, mut fixed) = (Reader::new(bytes), Fixed::BLANK);
        out_of_line(|| read_head::<D>(&mut reader, &mut fixed.head))?;
        let mut tags = Vec::with_capacity(count_fields(reader, TAG));
        while has_key(&mut reader, TAG) {
            let len = reader.varint("tag")?;
            let mut values = Reader::new(reader.bytes(len, "tag")?);
            let mut tag = Vec::with_capacity(count_fields(values, VALUE));
            while !values.is_empty() {
                tag.push(read_value(&mut values)?.value("tag value")?);
            }
            tags.push(tag);
        }
        let content = optional_bytes(&mut reader, CONTENT, "content")?.unwrap_or_default();
        read_fixed::<D, 64>(&mut reader, SIG, "sig", &mut fixed.sig)?;
        reader.finish()?;
        Ok(V::event(fixed, tags, Found::Bytes(content).text("content")?))
    }

    fn read_head(bytes: &[u8]) -> Result<EventHead, DecodeError> {
        let mut fixed = Fixed::BLANK;
        read_head::<D>(&mut Reader::new(bytes), &mut fixed.head)?;
        Ok(fixed.head)
    }

    fn write_client(verb: Verb, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.push(if verb == Verb::Event { CLIENT_EVENT } else { CLIENT_AUTH });
        write_sized(out, |out| Self::write_event(event, out))
    }

    fn split_client(bytes: &[u8]) -> Option<(Verb, &[u8])> {
        let (key, rest) = bytes.split_first()?;
        let verb = match *key {
            CLIENT_EVENT => Verb::Event,
            CLIENT_AUTH => Verb::Auth,
            _ => return None,
        };
        last_field(rest).map(|event| (verb, event))
    }

    fn write_relay(subscription: &str, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.push(RELAY_EVENT);
        write_sized(out, |out| {
            if !subscription.is_empty() {
                write_bytes(SUB, subscription.as_bytes(), out);
            }
            out.push(SUB_EVENT);
            write_sized(out, |out| Self::write_event(event, out))
        })
    }

    fn split_relay(bytes: &[u8]) -> Option<(Cow<'_, str>, &[u8])> {
        let mut reader = Reader::new(last_field(bytes.strip_prefix(&[RELAY_EVENT])?)?);
        let subscription = match optional_bytes(&mut reader, SUB, "subscription").ok()? {
            Some(subscription) => str::from_utf8(subscription).ok()?,
            None => "",
        };
        let event = last_field(reader.rest().strip_prefix(&[SUB_EVENT])?)?;
        Some((subscription.into(), event))
    }

    fn split_batch<'a>(
        bytes: &'a [u8],
        mut each: impl FnMut(&'a [u8]) -> Option<()>,
    ) -> Option<Cow<'a, str>> {
        let mut reader = Reader::new(last_field(bytes.strip_prefix(&[RELAY_EVENTS])?)?);
        let subscription = match optional_bytes(&mut reader, SUB, "subscription").ok()? {
            Some(subscription) => str::from_utf8(subscription).ok()?,
            None => "",
        };
        loop {
            if !has_key(&mut reader, SUB_EVENT) {
                return None;
            }
            let len = reader.varint("event").ok()?;
            each(reader.bytes(len, "event").ok()?)?;
            if reader.is_empty() {
                return Some(subscription.into());
            }
        }
    }
}

// --- writing ---

fn write_fixed<D: Dialect, const N: usize, const M: usize>(key: u8, bytes: &[u8; N], out: &mut Vec<u8>) {
    if D::SPELLED {
        write_bytes(key, hex::encode_array(bytes, &mut [0; M]).as_bytes(), out);
    } else {
        write_bytes(key, bytes, out);
    }
}

fn tag_len(tag: &Tag<'_>) -> usize {
    tag.iter().map(|value| 1 + varint_len(value.len() as u64) + value.len()).sum()
}

// --- reading ---

#[inline]
fn read_head<D: Dialect>(reader: &mut Reader<'_>, head: &mut EventHead) -> Result<(), DecodeError> {
    read_fixed::<D, 32>(reader, ID, "id", &mut head.id)?;
    read_fixed::<D, 32>(reader, PUBKEY, "pubkey", &mut head.pubkey)?;
    head.created_at = optional_varint(reader, CREATED_AT, u64::MAX, "created_at")?.cast_signed();
    let kind = optional_varint(reader, KIND, KIND_MAX, "kind")?;
    head.kind = u16::try_from(kind).map_err(|_| DecodeError::OutOfRange("kind"))?;
    Ok(())
}

/// Takes a key, if it is the next.
#[inline]
fn has_key(reader: &mut Reader<'_>, key: u8) -> bool {
    let has = reader.rest().first() == Some(&key);
    if has {
        *reader = Reader::new(&reader.rest()[1..]);
    }
    has
}

#[inline(always)]
fn read_fixed<D: Dialect, const N: usize>(
    reader: &mut Reader<'_>,
    key: u8,
    what: &'static str,
    fixed: &mut [u8; N],
) -> Result<(), DecodeError> {
    if !has_key(reader, key) {
        return Err(DecodeError::Missing(what));
    }
    let len = reader.varint(what)?;
    let stored = reader.bytes(len, what)?;
    if D::SPELLED {
        return if hex::decode_to(stored, fixed) { Ok(()) } else { Err(DecodeError::Malformed(what)) };
    }
    *fixed = *<&[u8; N]>::try_from(stored).map_err(|_| DecodeError::Malformed(what))?;
    Ok(())
}

/// A number that is absent when it is zero, and only then.
fn optional_varint(
    reader: &mut Reader<'_>,
    key: u8,
    max: u64,
    what: &'static str,
) -> Result<u64, DecodeError> {
    if !has_key(reader, key) {
        return Ok(0);
    }
    match reader.varint(what)? {
        0 => Err(DecodeError::NotCanonical(what)),
        value if value > max => Err(DecodeError::OutOfRange(what)),
        value => Ok(value),
    }
}

/// Bytes that are absent when they are empty, and only then.
fn optional_bytes<'a>(
    reader: &mut Reader<'a>,
    key: u8,
    what: &'static str,
) -> Result<Option<&'a [u8]>, DecodeError> {
    if !has_key(reader, key) {
        return Ok(None);
    }
    match reader.varint(what)? {
        0 => Err(DecodeError::NotCanonical(what)),
        len => reader.bytes(len, what).map(Some),
    }
}

/// A tag's value; one-letter names skip the general path.
#[inline(always)]
fn read_value<'a>(reader: &mut Reader<'a>) -> Result<Found<'a>, DecodeError> {
    if let Some(letter) = reader.letter_behind([VALUE, 1]) {
        return Ok(Found::Letter(letter));
    }
    read_text_value(reader)
}

fn read_text_value<'a>(reader: &mut Reader<'a>) -> Result<Found<'a>, DecodeError> {
    if !has_key(reader, VALUE) {
        return Err(DecodeError::Malformed("tag value"));
    }
    let len = reader.varint("tag value")?;
    reader.bytes(len, "tag value").map(Found::Bytes)
}

/// Number of fields that seem to follow with this key: room for them is made at once.
fn count_fields(mut reader: Reader<'_>, key: u8) -> usize {
    let mut count = 0;
    while has_key(&mut reader, key)
        && let Ok(len) = reader.varint("field")
        && reader.bytes(len, "field").is_ok()
    {
        count += 1;
    }
    count
}

/// Length and bytes that end the message.
fn last_field(bytes: &[u8]) -> Option<&[u8]> {
    let mut reader = Reader::new(bytes);
    let len = reader.varint("length").ok()?;
    (reader.rest().len() as u64 == len).then(|| reader.rest())
}
