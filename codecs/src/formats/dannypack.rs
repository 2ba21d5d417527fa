//! DannyPack: the fixed fields first, then tags and content with one-byte length heads.
//!
//! ```text
//! id[32] pubkey[32] sig[64] created_at i64 LE, kind u16 LE                        138 bytes
//! vi(length of the tag block)  vi(tags), for each tag: u8(values), for each value: string
//! string(content)
//! string   head u8: bit 7 hex, low 7 bits n; n < 127: n bytes; n = 127: vi(length), then the bytes
//! ```
//!
//! Tag values and content that are lowercase hex, even and at least 8 digits long are stored as bytes and marked.
//! A tag has at most 255 values; the encoder refuses more. The decoder takes only the form the encoder writes:
//! shortest varints and heads, the hex mark exactly where the rule puts it, nothing left over in the tag block or
//! behind the content.
//!
//! The format has one implementation in the seeds, whose decoder reads out of bounds, so this is ours, written by
//! hand. Not optimised: UTF-8 is checked value by value, and compacted text is looked at twice (rule, conversion).

use std::borrow::Cow;

use crate::{
    DecodeError, EncodeError, Event, EventCodec, Tag, hex,
    reader::{Reader, write_sized, write_varint},
};

/// Shortest hex text stored as bytes.
const MIN_HEX_CHARS: usize = 8;
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
        write_sized(out, |out| write_tags(&event.tags, out))?;
        write_string(&event.content, out);
        Ok(())
    }

    fn decode_event<'a>(&self, bytes: &'a [u8]) -> Result<Event<'a>, DecodeError> {
        let mut reader = Reader::new(bytes);
        let event = Event {
            id: reader.array("id")?,
            pubkey: reader.array("pubkey")?,
            sig: reader.array("sig")?,
            created_at: i64::from_le_bytes(reader.array("created_at")?),
            kind: u16::from_le_bytes(reader.array("kind")?),
            tags: {
                let len = reader.varint("length of the tags")?;
                read_tags(Reader::new(reader.bytes(len, "tags")?))?
            },
            content: read_string(&mut reader, "content")?,
        };
        reader.finish()?;
        Ok(event)
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
        tag.iter().for_each(|value| write_string(value, out));
    }
    Ok(())
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

fn read_tags(mut block: Reader<'_>) -> Result<Vec<Tag<'_>>, DecodeError> {
    let count = block.varint("number of tags")?;
    let mut tags = Vec::with_capacity(block.capacity(count));
    for _ in 0..count {
        let values = block.u8("number of values in a tag")?;
        let mut tag = Tag::with_capacity(block.capacity(u64::from(values)));
        for _ in 0..values {
            tag.push(read_string(&mut block, "tag value")?);
        }
        tags.push(tag);
    }
    block.finish()?;
    Ok(tags)
}

fn read_string<'a>(reader: &mut Reader<'a>, what: &'static str) -> Result<Cow<'a, str>, DecodeError> {
    let head = reader.u8(what)?;
    let len = match head & !HEX {
        LONG => match reader.varint(what)? {
            len if len < u64::from(LONG) => return Err(DecodeError::NotCanonical(what)),
            len => len,
        },
        len => u64::from(len),
    };
    if head & HEX != 0 {
        if len < MIN_HEX_CHARS as u64 / 2 {
            return Err(DecodeError::NotCanonical(what));
        }
        return Ok(Cow::Owned(hex::encode(reader.bytes(len, what)?)));
    }
    let text = reader.text(len, what)?;
    if hex::is_compactable(text, MIN_HEX_CHARS) {
        return Err(DecodeError::NotCanonical(what));
    }
    Ok(Cow::Borrowed(text))
}
