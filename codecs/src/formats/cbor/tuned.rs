//! The three CBOR formats, tuned: events go straight into the caller's buffer, and one walk checks
//! as it reads. Fields of a later version, which may follow in a map, are left to the library.

use std::{borrow::Cow, marker::PhantomData};

use super::{
    Cbor, Dialect,
    head::{ARRAY, BYTES, NEGATIVE, TEXT, UINT, major, read_argument, read_whole, write_head},
    item::MIN_HEX_LEN,
};
use crate::{
    Codec, DecodeError, EncodeError, Event, EventHead,
    codec::assert_batch,
    fixed::{CONTENT, Fixed, VALUE, out_of_line},
    formats::tuned::{TunedFormat, Verb},
    hex,
    reader::Reader,
    text::{Found, Value},
};

/// A tuned CBOR format.
#[derive(Debug)]
pub(in crate::formats) struct TunedCbor<D>(PhantomData<D>);

impl<D> TunedCbor<D> {
    pub(in crate::formats) const NEW: Self = TunedCbor(PhantomData);
}

impl<D: Dialect> TunedFormat for TunedCbor<D> {
    const LIBRARY: &'static dyn Codec = &Cbor::<D>::NEW;

    fn write_event(event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let [id, pubkey, created_at, kind, tags, content, sig] = D::KEYS;
        out.push(D::EVENT_HEAD);
        write_fixed(id, &event.id, out);
        write_fixed(pubkey, &event.pubkey, out);
        out.extend_from_slice(created_at);
        match u64::try_from(event.created_at) {
            Ok(time) => write_head(UINT, time, out),
            Err(_) => write_head(NEGATIVE, !event.created_at.cast_unsigned(), out),
        }
        out.extend_from_slice(kind);
        write_head(UINT, u64::from(event.kind), out);
        out.extend_from_slice(tags);
        write_head(ARRAY, event.tags.len() as u64, out);
        for tag in &event.tags {
            write_head(ARRAY, tag.len() as u64, out);
            tag.iter().for_each(|value| write_value::<D>(value, out));
        }
        out.extend_from_slice(content);
        write_text(&event.content, out);
        write_fixed(sig, &event.sig, out);
        Ok(())
    }

    fn read<'a, V: Value<'a>>(bytes: &'a [u8]) -> Result<V::Event, DecodeError> {
        let (mut reader, mut fixed) = (Reader::new(bytes), Fixed::BLANK);
        out_of_line(|| read_head::<D>(&mut reader, &mut fixed.head))?;
        let [.., tags_key, content_key, sig_key] = D::KEYS;
        read_key(&mut reader, tags_key, "tags")?;
        let count = read_argument(&mut reader, ARRAY, "tags")?;
        let mut tags = Vec::with_capacity(reader.capacity(count));
        for _ in 0..count {
            let values = read_argument(&mut reader, ARRAY, "tag")?;
            let mut tag = Vec::with_capacity(reader.capacity(values));
            for _ in 0..values {
                tag.push(read_value::<D>(&mut reader)?.value(VALUE)?);
            }
            tags.push(tag);
        }
        read_key(&mut reader, content_key, CONTENT)?;
        let content = read_text(&mut reader, CONTENT)?;
        fixed.sig = *read_fixed(&mut reader, sig_key, "sig")?;
        reader.finish()?;
        Ok(V::event(fixed, tags, content.into()))
    }

    fn read_head(bytes: &[u8]) -> Result<EventHead, DecodeError> {
        let mut fixed = Fixed::BLANK;
        read_head::<D>(&mut Reader::new(bytes), &mut fixed.head)?;
        Ok(fixed.head)
    }

    fn write_client(verb: Verb, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        write_head(ARRAY, 2, out);
        out.extend_from_slice(if verb == Verb::Event { D::EVENT } else { D::CLIENT_AUTH });
        Self::write_event(event, out)
    }

    fn split_client(bytes: &[u8]) -> Option<(Verb, &[u8])> {
        let rest = bytes.strip_prefix(&[ARRAY << 5 | 2])?;
        match rest.strip_prefix(D::EVENT) {
            Some(event) => Some((Verb::Event, event)),
            None => rest.strip_prefix(D::CLIENT_AUTH).map(|event| (Verb::Auth, event)),
        }
    }

    fn write_relay(subscription: &str, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        Self::around(subscription, &[], out);
        Self::write_event(event, out)
    }

    fn split_relay(bytes: &[u8]) -> Option<(Cow<'_, str>, &[u8])> {
        let mut reader = Reader::new(bytes.strip_prefix(&[ARRAY << 5 | 3])?.strip_prefix(D::EVENT)?);
        let subscription = read_text(&mut reader, "subscription").ok()?;
        Some((subscription.into(), reader.rest()))
    }

    fn around(subscription: &str, _event: &[u8], out: &mut Vec<u8>) -> &'static [u8] {
        write_head(ARRAY, 3, out);
        out.extend_from_slice(D::EVENT);
        write_text(subscription, out);
        &[]
    }

    fn split_batch<'a>(
        bytes: &'a [u8],
        mut each: impl FnMut(&'a [u8]) -> Option<()>,
    ) -> Option<Cow<'a, str>> {
        let mut reader = Reader::new(bytes.strip_prefix(&[ARRAY << 5 | 3])?.strip_prefix(D::EVENTS)?);
        let subscription = read_text(&mut reader, "subscription").ok()?;
        let count = read_argument(&mut reader, ARRAY, "batch").ok().filter(|count| *count > 0)?;
        for _ in 0..count {
            each(read_whole(&mut reader, |_| Ok(())).ok()?)?;
        }
        reader.is_empty().then(|| subscription.into())
    }

    fn wrap_batch(subscription: &str, events: &[&[u8]], out: &mut Vec<u8>) {
        assert_batch(events);
        write_head(ARRAY, 3, out);
        out.extend_from_slice(D::EVENTS);
        write_text(subscription, out);
        write_head(ARRAY, events.len() as u64, out);
        events.iter().for_each(|event| out.extend_from_slice(event));
    }
}

// --- writing ---

#[inline]
fn write_fixed(key: &[u8], bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(key);
    write_head(BYTES, bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

#[inline]
fn write_text(text: &str, out: &mut Vec<u8>) {
    write_head(TEXT, text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

/// A tag's value; one-letter names and keys skip the general path.
#[inline]
fn write_value<D: Dialect>(value: &str, out: &mut Vec<u8>) {
    if !D::COMPACT || !hex::push_usual(value, [TEXT << 5 | 1], [BYTES << 5 | 24, 32], out) {
        write_other_value::<D>(value, out);
    }
}

fn write_other_value<D: Dialect>(value: &str, out: &mut Vec<u8>) {
    if D::COMPACT && hex::is_compactable(value, MIN_HEX_LEN) {
        write_head(BYTES, value.len() as u64 / 2, out);
        hex::decode_into(value, out);
    } else {
        write_text(value, out);
    }
}

// --- reading ---

#[inline]
fn read_head<D: Dialect>(reader: &mut Reader<'_>, head: &mut EventHead) -> Result<(), DecodeError> {
    let [id, pubkey, created_at, kind, ..] = D::KEYS;
    if reader.u8("event")? != D::EVENT_HEAD {
        return Err(DecodeError::Malformed("event"));
    }
    head.id = *read_fixed(reader, id, "id")?;
    head.pubkey = *read_fixed(reader, pubkey, "pubkey")?;
    read_key(reader, created_at, "created_at")?;
    head.created_at = read_time(reader)?;
    read_key(reader, kind, "kind")?;
    head.kind =
        u16::try_from(read_argument(reader, UINT, "kind")?).map_err(|_| DecodeError::OutOfRange("kind"))?;
    Ok(())
}

#[inline]
fn read_time(reader: &mut Reader<'_>) -> Result<i64, DecodeError> {
    let what = "created_at";
    let is_negative = major(reader) == Some(NEGATIVE);
    let argument = read_argument(reader, if is_negative { NEGATIVE } else { UINT }, what)?;
    let size = i64::try_from(argument).map_err(|_| DecodeError::OutOfRange(what))?;
    Ok(if is_negative { !size } else { size })
}

#[inline]
fn read_key(reader: &mut Reader<'_>, key: &[u8], what: &'static str) -> Result<(), DecodeError> {
    if reader.bytes(key.len() as u64, what)? == key { Ok(()) } else { Err(DecodeError::Missing(what)) }
}

#[inline(always)]
fn read_fixed<'a, const N: usize>(
    reader: &mut Reader<'a>,
    key: &[u8],
    what: &'static str,
) -> Result<&'a [u8; N], DecodeError> {
    read_key(reader, key, what)?;
    if read_argument(reader, BYTES, what)? == N as u64 {
        reader.array_ref(what)
    } else {
        Err(DecodeError::Malformed(what))
    }
}

#[inline]
fn read_text<'a>(reader: &mut Reader<'a>, what: &'static str) -> Result<&'a str, DecodeError> {
    let len = read_argument(reader, TEXT, what)?;
    reader.text(len, what)
}

/// A tag's value; one-letter names and keys skip the general path.
#[inline(always)]
fn read_value<'a, D: Dialect>(reader: &mut Reader<'a>) -> Result<Found<'a>, DecodeError> {
    if let Some(letter) = reader.letter_behind([TEXT << 5 | 1]) {
        return Ok(Found::Letter(letter));
    }
    if D::COMPACT
        && let Some(key) = reader.array_behind([BYTES << 5 | 24, 32])
    {
        return Ok(Found::Key(key));
    }
    read_text_value::<D>(reader)
}

fn read_text_value<'a, D: Dialect>(reader: &mut Reader<'a>) -> Result<Found<'a>, DecodeError> {
    if !D::COMPACT {
        let len = read_argument(reader, TEXT, VALUE)?;
        return reader.bytes(len, VALUE).map(Found::Bytes);
    }
    let is_bytes = major(reader) == Some(BYTES);
    let len = read_argument(reader, if is_bytes { BYTES } else { TEXT }, VALUE)?;
    Found::stored(is_bytes, reader.bytes(len, VALUE)?, MIN_HEX_LEN, VALUE)
}
