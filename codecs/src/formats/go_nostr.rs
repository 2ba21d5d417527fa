//! leaner and go-nostr-binary: two layouts of Go programs, big-endian, everything text but ids,
//! keys and signature.
//!
//! ```text
//! id[32] pubkey[32] sig[64]  created_at u32 BE  kind u16 BE  u16 BE(length) content
//! tags (leaner: u8, go-nostr-binary: u16 BE), for each tag: u8(values),
//!     for each value: u16 BE(length) text 00
//! ```
//!
//! The byte 00 behind each value is an artefact of the index arithmetic of the first encoder, and
//! by now the format. Both were fast because they hold less: no time before 1970 or after 2106, no
//! content or value above 65,535 bytes, no tag of more than 255 values; leaner no more than 255
//! tags. Their own encoders wrap around (leaner) or collect the tags in 64 KiB and panic beyond
//! (go-nostr); this one rejects only events that the layout cannot hold. Their decoders check
//! neither UTF-8 nor the end of the message; this one does, and wants every 00.
//!
//! No library exists in Rust, so the code here is the only one. Not optimised: UTF-8 is checked
//! value by value.

use std::borrow::Cow;

use super::capacity::Capacity;
use crate::{DecodeError, EncodeError, Event, EventCodec, EventHead, Tag, reader::Reader};

/// leaner: a u8 for the number of tags.
pub(super) const LEANER: GoNostr = GoNostr { name: "leaner", max_tags: u8::MAX as usize };
/// go-nostr's package `binary`: a u16 for the number of tags.
pub(super) const GO_NOSTR_BINARY: GoNostr = GoNostr { name: "go-nostr-binary", max_tags: u16::MAX as usize };

/// A time of u32, counts of u16 and u8, lengths of u16.
pub(super) const GO_NOSTR_BINARY_CAPACITY: Capacity = Capacity {
    times: 0..=u32::MAX as i64,
    tags: GO_NOSTR_BINARY.max_tags,
    tag_values: u8::MAX as usize,
    value_bytes: u16::MAX as usize,
    content_bytes: u16::MAX as usize,
    ..Capacity::ENVELOPE
};
/// Capacity of leaner, which has fewer tags.
pub(super) const LEANER_CAPACITY: Capacity = Capacity { tags: LEANER.max_tags, ..GO_NOSTR_BINARY_CAPACITY };

#[derive(Debug)]
pub(super) struct GoNostr {
    name: &'static str,
    max_tags: usize,
}

impl EventCodec for GoNostr {
    fn encode_event(&self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let created_at = u32::try_from(event.created_at).map_err(|_| EncodeError::Unrepresentable {
            format: self.name,
            what: "a time before 1970 or after 2106",
        })?;
        out.extend_from_slice(&event.id);
        out.extend_from_slice(&event.pubkey);
        out.extend_from_slice(&event.sig);
        out.extend_from_slice(&created_at.to_be_bytes());
        out.extend_from_slice(&event.kind.to_be_bytes());
        self.write_text(&event.content, "content in bytes", out)?;
        self.write_tag_count(event.tags.len(), out)?;
        for tag in &event.tags {
            let too_many = |_| self.too_large("a number of values in a tag", tag.len(), u8::MAX.into());
            out.push(u8::try_from(tag.len()).map_err(too_many)?);
            for value in tag {
                self.write_text(value, "a tag value in bytes", out)?;
                out.push(0);
            }
        }
        Ok(())
    }

    fn decode_event<'a>(&self, bytes: &'a [u8]) -> Result<Event<'a>, DecodeError> {
        let mut reader = Reader::new(bytes);
        let event = Event {
            id: reader.array("id")?,
            pubkey: reader.array("pubkey")?,
            sig: reader.array("sig")?,
            created_at: u32::from_be_bytes(reader.array("created_at")?).into(),
            kind: u16::from_be_bytes(reader.array("kind")?),
            content: read_text(&mut reader, "content")?,
            tags: self.read_tags(&mut reader)?,
        };
        reader.finish()?;
        Ok(event)
    }

    fn peek(&self, bytes: &[u8]) -> Result<EventHead, DecodeError> {
        let mut reader = Reader::new(bytes);
        let (id, pubkey) = (reader.array_ref("id")?, reader.array_ref("pubkey")?);
        reader.array_ref::<64>("sig")?;
        let created_at = u32::from_be_bytes(reader.array("created_at")?).into();
        let kind = u16::from_be_bytes(reader.array("kind")?);
        Ok(EventHead { id: *id, pubkey: *pubkey, created_at, kind })
    }
}

impl GoNostr {
    fn too_large(&self, what: &'static str, actual: usize, max: usize) -> EncodeError {
        EncodeError::TooLarge { format: self.name, what, actual, max }
    }

    fn write_text(&self, text: &str, what: &'static str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let len = u16::try_from(text.len()).map_err(|_| self.too_large(what, text.len(), u16::MAX.into()))?;
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(text.as_bytes());
        Ok(())
    }

    fn write_tag_count(&self, count: usize, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let fitting = u16::try_from(count).ok().filter(|_| count <= self.max_tags);
        let count = fitting.ok_or_else(|| self.too_large("a number of tags", count, self.max_tags))?;
        out.extend_from_slice(&count.to_be_bytes()[self.unused_count_bytes()..]);
        Ok(())
    }

    /// Bytes of a u16 that the number of tags does not use.
    fn unused_count_bytes(&self) -> usize {
        usize::from(self.max_tags == usize::from(u8::MAX))
    }

    fn read_tags<'a>(&self, reader: &mut Reader<'a>) -> Result<Vec<Tag<'a>>, DecodeError> {
        let what = "number of tags";
        let high = if self.unused_count_bytes() == 0 { reader.u8(what)? } else { 0 };
        let count = u16::from_be_bytes([high, reader.u8(what)?]);
        let mut tags = Vec::with_capacity(reader.capacity(count.into()));
        for _ in 0..count {
            let values = reader.u8("number of values in a tag")?;
            let mut tag = Tag::with_capacity(reader.capacity(values.into()));
            for _ in 0..values {
                tag.push(read_text(reader, "tag value")?);
                if reader.u8("tag value")? != 0 {
                    return Err(DecodeError::Malformed("tag value: a zero byte follows it"));
                }
            }
            tags.push(tag);
        }
        Ok(tags)
    }
}

fn read_text<'a>(reader: &mut Reader<'a>, what: &'static str) -> Result<Cow<'a, str>, DecodeError> {
    let len = u16::from_be_bytes(reader.array(what)?);
    reader.text(len.into(), what).map(Cow::Borrowed)
}
