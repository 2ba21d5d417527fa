//! ProtoEvent messages, each after its length as a varint: the layout that the loader of
//! dannym-arx/binostr reads.

use std::io::{self, BufRead, Read};

use codecs::{DecodeError, EncodeError, Event, hex};
use prost::Message;

use super::read_up_to;
use crate::{MAX_RECORD_BYTES, RecordError};

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

/// Reads records.
#[derive(Debug)]
pub(super) struct Records<R> {
    input: R,
    record: Vec<u8>,
    /// Start of the record's length.
    offset: u64,
    /// Start of the next record's length.
    next_offset: u64,
    /// Bytes of a record that is too large, which come first.
    to_pass: u64,
}

impl<R: BufRead> Records<R> {
    pub(super) fn new(input: R) -> Records<R> {
        Records { input, record: Vec::new(), offset: 0, next_offset: 0, to_pass: 0 }
    }

    /// Start of the record that was read last.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The next event; `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<Event<'static>>, RecordError> {
        let passed = io::copy(&mut (&mut self.input).take(self.to_pass), &mut io::sink())?;
        if passed < self.to_pass {
            return Err(RecordError::Truncated { missing_bytes: self.to_pass - passed });
        }
        (self.to_pass, self.offset) = (0, self.next_offset);
        let Some((length, prefix_bytes)) = read_varint(&mut self.input)? else { return Ok(None) };
        self.next_offset = self.offset.saturating_add(prefix_bytes).saturating_add(length);
        if length > MAX_RECORD_BYTES as u64 {
            self.to_pass = length;
            return Err(RecordError::TooLarge);
        }
        let read = read_up_to(&mut self.input, length, &mut self.record)?;
        if read < length {
            return Err(RecordError::Truncated { missing_bytes: length - read });
        }
        Ok(Some(ProtoEvent::decode(self.record.as_slice())?.into_event()?))
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

/// Appends one record.
pub(super) fn encode(event: &Event<'_>, record: &mut Vec<u8>) -> Result<(), EncodeError> {
    let encoded = ProtoEvent::from_event(event).encode_length_delimited(record);
    encoded.map_err(|error| EncodeError::Library(error.to_string()))
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
