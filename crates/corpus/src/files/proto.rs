//! ProtoEvent messages, each after its length as a varint: the layout that the loader of
//! dannym-arx/binostr reads.

use std::io::{self, BufRead, Read};

use codecs::{Codec, EncodeError, Event, Format};

use super::read_up_to;
use crate::{MAX_RECORD_BYTES, RecordError};

/// Reads and writes a ProtoEvent, which is an event of the format proto-string.
fn codec() -> &'static dyn Codec {
    "proto-string".parse::<Format>().expect("it is a format").spec().library
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
        Ok(Some(codec().decode_event(&self.record)?.into_owned()))
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
    let mut message = Vec::new();
    codec().encode_event(event, &mut message)?;
    let mut length = message.len();
    while length >= 0x80 {
        record.push(length.to_le_bytes()[0] | 0x80);
        length >>= 7;
    }
    record.push(length.to_le_bytes()[0]);
    record.append(&mut message);
    Ok(())
}
