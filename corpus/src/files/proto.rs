//! ProtoEvent messages, each behind its length as a varint: the layout that the loader of dannym-arx/binostr reads.

use std::io::{BufRead, Write};

use codecs::{DecodeError, Event, hex};
use prost::Message;

use super::{MAX_RECORD_BYTES, WriteError, read_up_to};
use crate::RecordError;

/// All text, ids included.
#[derive(Clone, PartialEq, Message)]
struct ProtoEvent {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(string, tag = "2")]
    pubkey: String,
    #[prost(int64, tag = "3")]
    created_at: i64,
    #[prost(int32, tag = "4")]
    kind: i32,
    #[prost(message, repeated, tag = "5")]
    tags: Vec<ProtoTag>,
    #[prost(string, tag = "6")]
    content: String,
    #[prost(string, tag = "7")]
    sig: String,
}

#[derive(Clone, PartialEq, Message)]
struct ProtoTag {
    #[prost(string, repeated, tag = "1")]
    values: Vec<String>,
}

/// Appends every record's event; the error carries the offset of the record's length.
pub(super) fn read(
    mut input: impl BufRead,
    events: &mut Vec<Event<'static>>,
) -> Result<(), (u64, RecordError)> {
    let mut offset = 0;
    let mut record = Vec::new();
    loop {
        let prefix = read_varint(&mut input).map_err(|error| (offset, error))?;
        let Some((length, prefix_bytes)) = prefix else { return Ok(()) };
        if length > MAX_RECORD_BYTES as u64 {
            return Err((offset, RecordError::TooLarge));
        }
        let read = read_up_to(&mut input, length, &mut record).map_err(|error| (offset, error))?;
        if read < length {
            return Err((offset, RecordError::Truncated { missing_bytes: length - read }));
        }
        let event = ProtoEvent::decode(record.as_slice()).map_err(|error| (offset, error.into()))?;
        events.push(event.into_event().map_err(|error| (offset, error.into()))?);
        offset += prefix_bytes + length;
    }
}

/// The number and how many bytes it took; `None` at the end of the input.
fn read_varint(input: &mut impl BufRead) -> Result<Option<(u64, u64)>, RecordError> {
    let mut value = 0;
    for position in 0..10 {
        let mut byte = [0];
        if input.read(&mut byte)? == 0 {
            return if position == 0 { Ok(None) } else { Err(RecordError::Length) };
        }
        let bits = u64::from(byte[0] & 0x7f);
        if position == 9 && bits > 1 {
            break;
        }
        value |= bits << (7 * position);
        if byte[0] < 0x80 {
            return Ok(Some((value, position + 1)));
        }
    }
    Err(RecordError::Length)
}

pub(super) fn write(events: &[Event<'_>], out: &mut impl Write) -> Result<(), WriteError> {
    let mut record = Vec::new();
    for event in events {
        record.clear();
        ProtoEvent::from_event(event)
            .encode_length_delimited(&mut record)
            .expect("a Vec grows as far as it must");
        out.write_all(&record)?;
    }
    Ok(())
}

impl ProtoEvent {
    fn into_event(self) -> Result<Event<'static>, DecodeError> {
        Ok(Event {
            id: hex_field("id", &self.id)?,
            pubkey: hex_field("pubkey", &self.pubkey)?,
            created_at: self.created_at,
            kind: u16::try_from(self.kind).map_err(|_| DecodeError::OutOfRange("kind"))?,
            tags: self.tags.into_iter().map(|tag| tag.values.into_iter().map(Into::into).collect()).collect(),
            content: self.content.into(),
            sig: hex_field("sig", &self.sig)?,
        })
    }

    fn from_event(event: &Event<'_>) -> ProtoEvent {
        ProtoEvent {
            id: hex::encode(&event.id),
            pubkey: hex::encode(&event.pubkey),
            created_at: event.created_at,
            kind: event.kind.into(),
            tags: event
                .tags
                .iter()
                .map(|tag| ProtoTag { values: tag.iter().map(|value| value.clone().into_owned()).collect() })
                .collect(),
            content: event.content.clone().into_owned(),
            sig: hex::encode(&event.sig),
        }
    }
}

fn hex_field<const N: usize>(name: &'static str, text: &str) -> Result<[u8; N], DecodeError> {
    match text {
        "" => Err(DecodeError::Missing(name)),
        _ => hex::decode_array(text.as_bytes()).ok_or(DecodeError::Malformed(name)),
    }
}
