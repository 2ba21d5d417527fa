//! One batch of a wire format, read and written whole.

use std::io::BufRead;

use codecs::{Batch, EncodeError, Event, Format, Implementation};

use super::read_up_to;
use crate::{MAX_BATCH_BYTES, RecordError};

fn layout(format: Format) -> Batch {
    format.batch(Implementation::Library).expect("FileFormat::all lists formats with a layout")
}

/// Reads all events at once, with the first request.
#[derive(Debug)]
pub(super) enum Events<R> {
    Unread(R, Format),
    Read(std::vec::IntoIter<Event<'static>>),
}

impl<R: BufRead> Events<R> {
    /// The next event; `None` after the last.
    pub(super) fn next(&mut self) -> Result<Option<Event<'static>>, RecordError> {
        if let Events::Unread(input, format) = self {
            *self = Events::Read(read(input, *format)?.into_iter());
        }
        match self {
            Events::Unread(..) => unreachable!("they were read above"),
            Events::Read(events) => Ok(events.next()),
        }
    }
}

fn read(input: &mut impl BufRead, format: Format) -> Result<Vec<Event<'static>>, RecordError> {
    let mut bytes = Vec::new();
    if read_up_to(input, MAX_BATCH_BYTES as u64 + 1, &mut bytes)? > MAX_BATCH_BYTES as u64 {
        return Err(RecordError::BatchTooLarge);
    }
    let events = layout(format).decode(&bytes).map_err(RecordError::Batch)?;
    Ok(events.into_iter().map(Event::into_owned).collect())
}

/// Events that wait for the last one.
#[derive(Debug)]
pub(super) struct Waiting {
    format: Format,
    events: Vec<Event<'static>>,
    bytes: usize,
}

impl Waiting {
    pub(super) fn new(format: Format) -> Waiting {
        Waiting { format, events: Vec::new(), bytes: 0 }
    }

    /// Adds an event that the format holds; `record` is an empty buffer.
    pub(super) fn add(&mut self, event: &Event<'_>, record: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.format.spec().library.encode_event(event, record)?;
        self.bytes += record.len();
        self.check(self.bytes)?;
        self.events.push(event.clone().into_owned());
        Ok(())
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let mut bytes = Vec::with_capacity(self.bytes);
        layout(self.format).encode(&self.events, &mut bytes)?;
        self.check(bytes.len())?;
        Ok(bytes)
    }

    fn check(&self, actual: usize) -> Result<(), EncodeError> {
        let (format, what, max) = (self.format.name(), "a batch in a file in bytes", MAX_BATCH_BYTES);
        if actual <= max { Ok(()) } else { Err(EncodeError::TooLarge { format, what, actual, max }) }
    }
}
