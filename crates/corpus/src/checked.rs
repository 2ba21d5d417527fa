//! Files that contain more than valid events: every record is verified, and invalid ones are
//! counted and named instead of ending the file.

use std::{collections::VecDeque, path::Path};

use codecs::{Event, VerifyLevel};

use crate::{
    CorpusError, EventReader, Invalid, RecordError, Skipped, error::place, files::Damage, keys::in_parallel,
};

/// Records that are checked together, on all cores: some 5 MB of memory, 100 ms of a core.
const TOGETHER: usize = 2_048;

/// Reads and verifies every record of a file. Ends where nothing more can be found, and fails only
/// if the system or a batch does.
#[derive(Debug)]
pub struct Checked {
    reader: EventReader,
    ready: VecDeque<Result<Event<'static>, Invalid>>,
    failed: Option<CorpusError>,
    /// A record after which nothing can be found is an error.
    whole: bool,
}

impl Checked {
    /// Opens a file whose name announces its format.
    ///
    /// # Errors
    /// As [`EventReader::open`].
    pub fn open(path: &Path) -> Result<Checked, CorpusError> {
        EventReader::open(path).map(Checked::from_reader)
    }

    pub(crate) fn from_reader(reader: EventReader) -> Checked {
        Checked { reader, ready: VecDeque::new(), failed: None, whole: false }
    }

    /// Whether the last line has no line feed.
    #[must_use]
    pub fn unterminated(&self) -> bool {
        self.reader.unterminated()
    }

    fn fill(&mut self) {
        let mut records = Vec::new();
        while records.len() < TOGETHER {
            let record = match self.reader.record() {
                None => break,
                Some(Ok(event)) => {
                    let (line, offset_bytes) = self.reader.place();
                    Ok((event, line, offset_bytes))
                }
                Some(Err(damage)) if is_fatal(&damage.reason) || (self.whole && damage.is_last) => {
                    self.failed = Some(damage.at(self.reader.path(), self.reader.events_read()));
                    break;
                }
                Some(Err(damage)) => Err(damage),
            };
            records.push(record);
        }
        let path = self.reader.path();
        let invalid = |line, offset_bytes, id, reason| {
            let place = place(path, offset_bytes);
            Invalid { line, offset_bytes, id, reason, place }
        };
        let outcomes = verify(&records);
        let checked = records.into_iter().zip(outcomes).map(|(record, wrong)| match (record, wrong) {
            (Ok((event, ..)), None) => Ok(event),
            (Ok((event, line, offset_bytes)), Some(wrong)) => {
                Err(invalid(line, offset_bytes, Some(event.id), wrong))
            }
            (Err(Damage { line, offset_bytes, reason, is_last }), _) => {
                let rest = if is_last { "; nothing behind it can be read" } else { "" };
                Err(invalid(line, offset_bytes, None, format!("{reason}{rest}")))
            }
        });
        self.ready.extend(checked);
    }
}

/// Whether what cannot be read is no matter of a record.
fn is_fatal(reason: &RecordError) -> bool {
    let of_all =
        matches!(reason, RecordError::StreamTooLarge(_) | RecordError::Batch(_) | RecordError::BatchTooLarge);
    of_all || reason.is_of_the_system()
}

type Record = Result<(Event<'static>, Option<u64>, u64), Damage>;

/// Checks id and signature of each event, in order; `None` for a valid one.
fn verify(records: &[Record]) -> Vec<Option<String>> {
    in_parallel(records.len(), |place| match &records[place] {
        Ok((event, ..)) => event.verify(VerifyLevel::Full).err().map(|error| error.to_string()),
        Err(_) => None,
    })
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
    /// Opens a file whose name announces its format. Without `skip_invalid` nothing is verified,
    /// and a record that is no event is an error.
    ///
    /// # Errors
    /// As [`EventReader::open`].
    pub fn open(path: &Path, skip_invalid: bool) -> Result<Events, CorpusError> {
        EventReader::open(path).map(|reader| Events::from_reader(reader, skip_invalid))
    }

    /// [`Events::open`] for appending: a truncated end is an error.
    ///
    /// # Errors
    /// As [`EventReader::open`].
    pub fn open_to_append(path: &Path, skip_invalid: bool) -> Result<Events, CorpusError> {
        EventReader::open(path).map(|reader| Events::to_append(reader, skip_invalid))
    }

    pub(crate) fn to_append(reader: EventReader, skip_invalid: bool) -> Events {
        let mut events = Events::from_reader(reader, skip_invalid);
        if let Source::Checked(checked) = &mut events.source {
            checked.whole = true;
        }
        events
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

    /// As [`EventReader::unterminated`].
    #[must_use]
    pub fn unterminated(&self) -> bool {
        match &self.source {
            Source::Whole(reader) => reader.unterminated(),
            Source::Checked(checked) => checked.unterminated(),
        }
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
