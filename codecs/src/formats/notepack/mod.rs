//! notepack, through the `notepack` crate, and tuned in `tuned.rs`.
//!
//! ```text
//! vi(1)  id[32] pubkey[32] sig[64]  vi(created_at) vi(kind)  vi(length) content
//! vi(tags), for each tag: vi(values), for each value: vi(2 * length + is_bytes) payload
//! ```
//!
//! `vi` is an unsigned LEB128 number in its shortest form. Tag values that are lowercase hex of
//! even length, two digits or more, are stored as bytes; content never is. `created_at` is unsigned
//! on the wire and cast, as binostr does: a time before 1970 takes ten bytes and returns.
//!
//! Costs of the crate are part of what an adopter gets today (0.3.0): its encoder wants an owned
//! `NoteBuf` with id, key and signature as hex text and every tag value as a `String`, and turns
//! the hex back into bytes; its decoder borrows. That decoder also panics on truncated input and
//! accepts other versions, kinds above 65,535, overlong varints and trailing bytes, so [`check`]
//! walks the message first and the crate only ever sees what its own encoder could have written.
//! The walk is part of our decoding time and not of the crate's.

pub mod text;
mod tuned;

use std::borrow::Cow;

use notepack::{NoteBuf, NoteParser, StringType};

pub(super) use self::tuned::TunedNotepack;
use crate::{DecodeError, EncodeError, Event, EventCodec, Tag, hex, reader::Reader};

/// Shortest hex text stored as bytes.
const MIN_HEX_CHARS: usize = 2;

#[derive(Debug)]
pub(super) struct Notepack;

impl EventCodec for Notepack {
    fn encode_event(&self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let note = NoteBuf {
            id: hex::encode(&event.id),
            pubkey: hex::encode(&event.pubkey),
            sig: hex::encode(&event.sig),
            created_at: event.created_at.cast_unsigned(),
            kind: u64::from(event.kind),
            tags: event
                .tags
                .iter()
                .map(|tag| tag.iter().map(|value| (**value).to_owned()).collect())
                .collect(),
            content: (*event.content).to_owned(),
        };
        let bytes = notepack::pack_note(&note).map_err(|error| EncodeError::Library(error.to_string()))?;
        out.extend_from_slice(&bytes);
        Ok(())
    }

    fn decode_event<'a>(&self, bytes: &'a [u8]) -> Result<Event<'a>, DecodeError> {
        let kind = check(bytes)?;
        let mut note = NoteParser::new(bytes).into_note().map_err(library)?;
        let mut tags = Vec::with_capacity(counted(note.tags.len()));
        while let Some(values) = note.tags.next_tag().map_err(library)? {
            let mut tag = Tag::with_capacity(counted(values.remaining()));
            for value in values {
                tag.push(match value.map_err(library)? {
                    StringType::Bytes(raw) => Cow::Owned(hex::encode(raw)),
                    StringType::Str(text) => Cow::Borrowed(text),
                });
            }
            tags.push(tag);
        }
        Ok(Event {
            id: *note.id,
            pubkey: *note.pubkey,
            created_at: note.created_at.cast_signed(),
            kind,
            tags,
            content: Cow::Borrowed(note.content),
            sig: *note.sig,
        })
    }
}

/// Walks the whole layout without allocating: version 1, every length inside the message, shortest
/// varints, the one right choice between text and bytes, nothing after the last tag. Returns the
/// kind. Content's UTF-8 is left to the crate, which reports it properly.
fn check(bytes: &[u8]) -> Result<u16, DecodeError> {
    let mut reader = Reader::new(bytes);
    if reader.varint("version")? != 1 {
        return Err(DecodeError::OutOfRange("version (only 1 is known)"));
    }
    reader.array::<32>("id")?;
    reader.array::<32>("pubkey")?;
    reader.array::<64>("sig")?;
    reader.varint("created_at")?;
    let kind = u16::try_from(reader.varint("kind")?).map_err(|_| DecodeError::OutOfRange("kind"))?;
    let content_len = reader.varint("content's length")?;
    reader.bytes(content_len, "content")?;
    for _ in 0..reader.varint("number of tags")? {
        for _ in 0..reader.varint("number of values in a tag")? {
            check_value(&mut reader)?;
        }
    }
    reader.finish()?;
    Ok(kind)
}

fn check_value(reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    let what = "tag value";
    let head = reader.varint(what)?;
    let canonical = if head & 1 == 1 {
        !reader.bytes(head >> 1, what)?.is_empty()
    } else {
        !hex::is_compactable(reader.text(head >> 1, what)?, MIN_HEX_CHARS)
    };
    if canonical { Ok(()) } else { Err(DecodeError::NotCanonical(what)) }
}

/// A count that [`check`] has seen to be true, so that reserving for it is safe.
fn counted(count: u64) -> usize {
    usize::try_from(count).expect("each counted thing took a byte of the message")
}

fn library(error: notepack::Error) -> DecodeError {
    match error {
        notepack::Error::Utf8(_) => DecodeError::Utf8("text"),
        other => DecodeError::Library(other.to_string()),
    }
}
