//! Files that contain more than valid events: every record is verified, and invalid ones are
//! counted and named instead of ending the file.

use std::{collections::VecDeque, path::Path};

use codecs::{Event, VerifyLevel};

use crate::{CorpusError, Invalid, Skipped, error::place, files::EventReader, keys::in_parallel};

/// Records that are checked together, on all cores: some 5 MB of memory, 100 ms of a core.
const TOGETHER: usize = 2_048;

/// Reads and verifies every record of a file. Ends where nothing more can be found, and fails only
/// if the system or a batch does.
#[derive(Debug)]
pub struct Checked {
    reader: EventReader,
    ready: VecDeque<Result<Event<'static>, Invalid>>,
    failed: Option<CorpusError>,
}

impl Checked {
    /// Opens a file.
    ///
    /// # Errors
    /// As [`Events::open`].
    pub fn open(path: &Path) -> Result<Checked, CorpusError> {
        EventReader::open(path, None).map(Checked::from_reader)
    }

    pub(crate) fn from_reader(reader: EventReader) -> Checked {
        Checked { reader, ready: VecDeque::new(), failed: None }
    }

    fn fill(&mut self) {
        let mut records = Vec::new();
        while records.len() < TOGETHER {
            match self.reader.record() {
                None => break,
                Some(Err(reason)) if reason.is_of_all() => {
                    self.failed = Some(self.reader.damaged(reason));
                    break;
                }
                Some(record) => records.push((self.reader.place(), record)),
            }
        }
        let wrong = in_parallel(records.len(), |n| match &records[n].1 {
            Ok(event) => event.verify(VerifyLevel::Full).err().map(|error| error.to_string()),
            Err(reason) if reason.is_last() => Some(format!("{reason}; nothing behind it can be read")),
            Err(reason) => Some(reason.to_string()),
        });
        let path = self.reader.path();
        let checked = records.into_iter().zip(wrong).map(|(((line, offset_bytes), record), wrong)| {
            match (record, wrong) {
                (Ok(event), None) => Ok(event),
                (record, wrong) => Err(Invalid {
                    line,
                    offset_bytes,
                    id: record.ok().map(|event| event.id),
                    reason: wrong.unwrap_or_default(),
                    place: place(path, offset_bytes),
                }),
            }
        });
        self.ready.extend(checked);
    }
}

impl Iterator for Checked {
    type Item = Result<Result<Event<'static>, Invalid>, CorpusError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.is_empty() && self.failed.is_none() {
            self.fill();
        }
        match self.ready.pop_front() {
            Some(record) => Some(Ok(record)),
            None => self.failed.take().map(Err),
        }
    }
}

/// The events of a file: all of them, or with `--skip-invalid` those that are valid.
#[derive(Debug)]
pub struct Events {
    source: Source,
    skipped: Skipped,
}

#[derive(Debug)]
enum Source {
    Whole(EventReader),
    Checked(Checked),
}

impl Events {
    /// Opens a file whose name or content announces its format; `-` is standard input. A pipe is
    /// read once, from its start to its end. Without `skip_invalid` nothing is verified, and a
    /// record that is no event is an error, which ends the file: half a corpus is another corpus.
    ///
    /// # Errors
    /// [`CorpusError`] when there is none, it cannot be opened, or neither announces a known format.
    pub fn open(path: &Path, skip_invalid: bool) -> Result<Events, CorpusError> {
        EventReader::open(path, None).map(|reader| Events::from_reader(reader, skip_invalid))
    }

    pub(crate) fn from_reader(reader: EventReader, skip_invalid: bool) -> Events {
        let source =
            if skip_invalid { Source::Checked(Checked::from_reader(reader)) } else { Source::Whole(reader) };
        Events { source, skipped: Skipped::default() }
    }

    /// Records that were left out so far.
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// Whether the last line has no line feed, so that whatever is appended needs one first. Known
    /// when the last event was read, and not with `skip_invalid`.
    #[must_use]
    pub fn unterminated(&self) -> bool {
        matches!(&self.source, Source::Whole(reader) if reader.unterminated())
    }
}

impl Iterator for Events {
    type Item = Result<Event<'static>, CorpusError>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.source {
            Source::Whole(reader) => reader.next(),
            Source::Checked(checked) => loop {
                match checked.next()? {
                    Ok(Ok(event)) => return Some(Ok(event)),
                    Ok(Err(invalid)) => self.skipped.add(&invalid),
                    Err(error) => return Some(Err(error)),
                }
            },
        }
    }
}
