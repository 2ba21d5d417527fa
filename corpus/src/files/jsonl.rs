//! One NIP-01 object a line.

use std::io::{BufRead, Read, Write};

use codecs::{Codec, Event, Format, Implementation};

use super::{MAX_RECORD_BYTES, WriteError};
use crate::RecordError;

/// Appends every line's event; the error carries the line, counted from 1. Empty lines are skipped.
pub(super) fn read(
    mut input: impl BufRead,
    events: &mut Vec<Event<'static>>,
) -> Result<(), (u64, RecordError)> {
    let codec = codec();
    let mut line = Vec::new();
    for number in 1.. {
        if !read_line(&mut input, &mut line).map_err(|error| (number, error))? {
            break;
        }
        let text = line.trim_ascii();
        if text.is_empty() {
            continue;
        }
        let event = codec.decode_event(text).map_err(|error| (number, error.into()))?;
        events.push(event.into_owned());
    }
    Ok(())
}

/// Whether there was another line.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> Result<bool, RecordError> {
    line.clear();
    // One more than allowed, and the line feed.
    let limit = MAX_RECORD_BYTES as u64 + 2;
    let read = input.take(limit).read_until(b'\n', line)?;
    if line.last() == Some(&b'\n') {
        line.pop();
    }
    if line.len() > MAX_RECORD_BYTES {
        return Err(RecordError::TooLarge);
    }
    Ok(read > 0)
}

pub(super) fn write(events: &[Event<'_>], out: &mut impl Write) -> Result<(), WriteError> {
    let codec = codec();
    let mut line = Vec::new();
    for (index, event) in events.iter().enumerate() {
        line.clear();
        codec.encode_event(event, &mut line).map_err(|reason| WriteError::Encode { index, reason })?;
        line.push(b'\n');
        out.write_all(&line)?;
    }
    Ok(())
}

fn codec() -> &'static dyn Codec {
    Format::JSON.codec(Implementation::Library).expect("every format has the library implementation")
}
