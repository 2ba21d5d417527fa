//! tlv: an entry of type, length and value for each field, in the order of the Go program that
//! wrote it.
//!
//! ```text
//! entry   u8(type) u16 BE(length) value
//! event   0 id[32]  3 pubkey[32]  6 sig[64]  2 content  1 kind u32 BE  4 created_at u64 BE  5 tags
//! tags    for each tag: u8(values), for each value: u8(length) text
//! ```
//!
//! Lengths are short: no value above 255 bytes, no tag of more than 255 values, no content and no
//! tags above 65,535 bytes, which about one event in twelve exceeds; the Go program wraps around
//! there, and this encoder refuses. A time before 1970 is cast, as there. The decoder takes the
//! entries in the order above, each once, and nothing behind them.
//!
//! No library exists, so the code here is the only one. Not optimised: UTF-8 is checked value by
//! value.

use std::borrow::Cow;

use super::capacity::Capacity;
use crate::{DecodeError, EncodeError, Event, EventCodec, Tag, reader::Reader};

/// A count and a length of u8, and lengths of u16 for all tags and the content.
pub(super) const CAPACITY: Capacity = Capacity {
    tag_values: u8::MAX as usize,
    value_bytes: u8::MAX as usize,
    tags_bytes: u16::MAX as usize,
    content_bytes: u16::MAX as usize,
    ..Capacity::ENVELOPE
};

#[derive(Debug)]
pub(super) struct Tlv;

impl EventCodec for Tlv {
    fn encode_event(&self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut tags = Vec::new();
        write_tags(&event.tags, &mut tags)?;
        entry(0, &event.id, "id", out)?;
        entry(3, &event.pubkey, "pubkey", out)?;
        entry(6, &event.sig, "sig", out)?;
        entry(2, event.content.as_bytes(), "content in bytes", out)?;
        entry(1, &u32::from(event.kind).to_be_bytes(), "kind", out)?;
        entry(4, &event.created_at.to_be_bytes(), "created_at", out)?;
        entry(5, &tags, "tags of a size in bytes", out)
    }

    fn decode_event<'a>(&self, bytes: &'a [u8]) -> Result<Event<'a>, DecodeError> {
        let mut reader = Reader::new(bytes);
        let id = fixed(0, "id", &mut reader)?;
        let pubkey = fixed(3, "pubkey", &mut reader)?;
        let sig = fixed(6, "sig", &mut reader)?;
        let content = value(2, "content", &mut reader)?.rest_text("content")?;
        let kind = u32::from_be_bytes(fixed(1, "kind", &mut reader)?);
        let created_at = i64::from_be_bytes(fixed(4, "created_at", &mut reader)?);
        let tags = read_tags(value(5, "tags", &mut reader)?)?;
        reader.finish()?;
        let kind = u16::try_from(kind).map_err(|_| DecodeError::OutOfRange("kind"))?;
        Ok(Event { id, pubkey, created_at, kind, tags, content: Cow::Borrowed(content), sig })
    }
}

fn entry(number: u8, value: &[u8], what: &'static str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let len = u16::try_from(value.len()).map_err(|_| too_large(what, value.len(), u16::MAX.into()))?;
    out.push(number);
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(value);
    Ok(())
}

fn write_tags(tags: &[Tag<'_>], out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let short = |len: usize, what| u8::try_from(len).map_err(|_| too_large(what, len, u8::MAX.into()));
    for tag in tags {
        out.push(short(tag.len(), "a number of values in a tag")?);
        for value in tag {
            out.push(short(value.len(), "a tag value in bytes")?);
            out.extend_from_slice(value.as_bytes());
        }
    }
    Ok(())
}

fn too_large(what: &'static str, actual: usize, max: usize) -> EncodeError {
    EncodeError::TooLarge { format: "tlv", what, actual, max }
}

fn value<'a>(number: u8, what: &'static str, reader: &mut Reader<'a>) -> Result<Reader<'a>, DecodeError> {
    if reader.u8(what)? != number {
        return Err(DecodeError::Missing(what)); // another entry stands in its place
    }
    let len = u16::from_be_bytes(reader.array(what)?);
    reader.bytes(len.into(), what).map(Reader::new)
}

fn fixed<const N: usize>(
    number: u8,
    what: &'static str,
    reader: &mut Reader<'_>,
) -> Result<[u8; N], DecodeError> {
    let mut value = value(number, what, reader)?;
    let bytes = value.array(what)?;
    value.finish()?;
    Ok(bytes)
}

fn read_tags(mut block: Reader<'_>) -> Result<Vec<Tag<'_>>, DecodeError> {
    let mut tags = Vec::new();
    while !block.is_empty() {
        let values = block.u8("number of values in a tag")?;
        let mut tag = Tag::with_capacity(block.capacity(values.into()));
        for _ in 0..values {
            let len = block.u8("tag value")?;
            tag.push(Cow::Borrowed(block.text(len.into(), "tag value")?));
        }
        tags.push(tag);
    }
    Ok(tags)
}
