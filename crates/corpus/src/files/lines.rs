//! One event a line: a NIP-01 object or EVENT message, or Notepack's text form.

use std::io::{BufRead, Read};

use codecs::{DecodeError, EncodeError, Event, Format, RelayMessage, notepack_text};

use crate::{MAX_RECORD_BYTES, RecordError};

const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The form of an event in a line.
#[derive(Debug, Clone, Copy)]
pub(super) enum Form {
    Json,
    NotepackText,
}

impl Form {
    fn read(self, text: &[u8]) -> Result<Event<'static>, DecodeError> {
        match self {
            Form::Json if text.starts_with(b"[") => event_of_message(text),
            Form::Json => Format::JSON.spec().library.decode_event(text).map(Event::into_owned),
            Form::NotepackText => notepack_text::decode(text),
        }
    }
}

/// The event of `["EVENT",subscription,event]`, of which logs of a relay's messages consist.
fn event_of_message(text: &[u8]) -> Result<Event<'static>, DecodeError> {
    match Format::JSON.spec().library.decode_relay(text)? {
        RelayMessage::Event { event, .. } => Ok(event.into_owned().into_owned()),
        _ => Err(DecodeError::Malformed("event: a relay's message other than EVENT")),
    }
}

/// Reads lines; skips empty ones.
#[derive(Debug)]
pub(super) struct Lines<R> {
    input: R,
    form: Form,
    line: Vec<u8>,
    /// Number of the line in `line`, from 1.
    number: u64,
    /// Start of the line.
    offset: u64,
    /// Start of the next line.
    next_offset: u64,
    /// The last line that was read has no line feed.
    unterminated: bool,
}

impl<R: BufRead> Lines<R> {
    pub(super) fn new(input: R, form: Form) -> Lines<R> {
        Lines { input, form, line: Vec::new(), number: 0, offset: 0, next_offset: 0, unterminated: false }
    }

    /// The next event; `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<Event<'static>>, RecordError> {
        // The rest of a line that is too large.
        if self.unterminated && self.line.len() > MAX_RECORD_BYTES {
            self.next_offset += self.input.skip_until(b'\n')? as u64;
        }
        loop {
            self.number += 1;
            self.offset = self.next_offset;
            if !self.read_line()? {
                return Ok(None);
            }
            let line = match self.number {
                // RFC 8259 §8.1 lets readers ignore the mark, which some editors write.
                1 => self.line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&self.line),
                _ => &self.line,
            };
            let text = line.trim_ascii();
            if !text.is_empty() {
                return Ok(Some(self.form.read(text)?));
            }
        }
    }

    /// Number and first byte of the line that was read last.
    pub(super) fn place(&self) -> (Option<u64>, u64) {
        (Some(self.number), self.offset)
    }

    /// The last line that was read, if it has no line feed.
    pub(super) fn unterminated(&self) -> Option<&[u8]> {
        self.unterminated.then_some(&self.line)
    }

    /// Whether there was another line.
    fn read_line(&mut self) -> Result<bool, RecordError> {
        self.line.clear();
        // One more than allowed, and the line feed.
        let limit = MAX_RECORD_BYTES as u64 + 2;
        let read = (&mut self.input).take(limit).read_until(b'\n', &mut self.line)?;
        self.next_offset += read as u64;
        let terminated = self.line.last() == Some(&b'\n');
        if terminated {
            self.line.pop();
        }
        if read > 0 {
            self.unterminated = !terminated;
        }
        if self.line.len() > MAX_RECORD_BYTES {
            return Err(RecordError::TooLarge);
        }
        Ok(read > 0)
    }
}

/// Appends one line.
pub(super) fn encode(event: &Event<'_>, form: Form, line: &mut Vec<u8>) -> Result<(), EncodeError> {
    match form {
        Form::Json => Format::JSON.spec().library.encode_event(event, line)?,
        Form::NotepackText => notepack_text::encode(event, line),
    }
    line.push(b'\n');
    Ok(())
}
