//! Errors of corpus files. Every message is complete in itself, so none has a
//! `source`.

use std::{
    io,
    path::{Path, PathBuf},
};

use codecs::{DecodeError, EncodeError};

use crate::{FileFormat, MAX_BATCH_BYTES, MAX_RECORD_BYTES, Skipped};

/// Why a corpus cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CorpusError {
    /// No such file.
    #[error(
        "there is no corpus {path:?}; expected a file of Nostr events ({known}); \
         without --corpus the bundled sample is used, and data/README.md says how to get real events",
        known = FileFormat::known()
    )]
    NotFound { path: PathBuf },
    /// Neither name nor content determines the file's format.
    #[error("cannot tell the format of {path:?} from its name; known: {known}", known = FileFormat::known())]
    UnknownExtension { path: PathBuf },
    /// The file cannot be opened, created or written.
    #[error("cannot {action} {path:?}: {reason}")]
    Io { action: &'static str, path: PathBuf, reason: io::Error },
    /// No file can be written there.
    #[error(transparent)]
    Unwritable(#[from] measure::Unwritable),
    /// A record of a file is not an event, or the file ends or is damaged there.
    ///
    /// `line` counts from 1, in formats that have lines; `offset_bytes` from 0.
    #[error(
        "{path:?}, {}{}: {reason} ({events_read} events read before it){}",
        line.map_or_else(String::new, |line| format!("line {line}, ")), place(path, *offset_bytes), fix(path, reason)
    )]
    Damaged { path: PathBuf, line: Option<u64>, offset_bytes: u64, events_read: usize, reason: RecordError },
    /// The name announces another compression than the content has.
    #[error("{path:?}: its name says {named}, its content is {content}; rename it, known: {known}",
        known = FileFormat::known())]
    Misnamed { path: PathBuf, named: &'static str, content: &'static str },
    /// Text as Windows writes it.
    #[error("{path:?} is UTF-16; expected UTF-8, which `iconv -f UTF-16 -t UTF-8` makes")]
    Utf16 { path: PathBuf },
    /// The file is whole and holds no event.
    #[error("{path:?} holds no events")]
    Empty { path: PathBuf },
    /// Everything in the file was skipped.
    #[error("{path:?} holds no valid events: {skipped}")]
    NoneValid { path: PathBuf, skipped: Skipped },
    /// A file that is never overwritten.
    #[error("{path:?} exists already; this command never overwrites")]
    Exists { path: PathBuf },
    /// A batch is one value, to which nothing can be added.
    #[error("cannot add events to {path:?}: a batch is written whole; use .jsonl.zst, then `corpus convert`")]
    CannotGrow { path: PathBuf },
    /// An event that the file format cannot hold.
    #[error("cannot write event {index} (counted from 0) to {path:?}: {reason}")]
    Encode { path: PathBuf, index: usize, reason: EncodeError },
}

impl CorpusError {
    /// Why a file gives no event.
    pub fn without_events(path: &Path, skipped: &Skipped) -> CorpusError {
        let path = path.to_owned();
        match skipped.count() {
            0 => CorpusError::Empty { path },
            _ => CorpusError::NoneValid { path, skipped: skipped.clone() },
        }
    }
}

/// The remedy for a bad record: nothing helps against a disk that fails or a batch that is damaged.
fn fix(path: &Path, reason: &RecordError) -> String {
    if reason.is_of_all() {
        return String::new();
    }
    format!(
        "; `corpus verify {}` lists all that is wrong, --skip-invalid (also of `corpus convert`) leaves it out",
        path.display()
    )
}

/// A position as a reader of the file finds it.
pub(crate) fn place(path: &Path, offset_bytes: u64) -> String {
    match FileFormat::from_path(path) {
        Ok(format) if format.is_compressed() => format!("byte {offset_bytes} of the decompressed stream"),
        _ => format!("byte {offset_bytes}"),
    }
}

/// Why a record of a file is not an event.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The bytes cannot be had: a damaged or shortened compressed stream, or a failing disk.
    #[error("the file is damaged or cut short: {0}")]
    Read(io::Error),
    /// The decompressed stream is longer than the reader may read.
    #[error("{0}")]
    StreamTooLarge(io::Error),
    /// The file ends inside a record.
    #[error("the file ends inside a record: {missing_bytes} bytes are missing")]
    Truncated { missing_bytes: u64 },
    /// The file ends inside a length, or the length has no end.
    #[error("malformed record length: expected a varint of at most 64 bits")]
    Length,
    /// Longer than any event a relay here accepts.
    #[error("the record is longer than {MAX_RECORD_BYTES} bytes")]
    TooLarge,
    /// Longer than any batch that is read whole.
    #[error("the batch is longer than {MAX_BATCH_BYTES} bytes")]
    BatchTooLarge,
    /// Not a batch of this format.
    #[error("not a batch of events: {0}")]
    Batch(DecodeError),
    /// Not an event in this format.
    #[error("not an event: {0}")]
    Decode(DecodeError),
}

impl RecordError {
    /// Whether nothing behind it can be found.
    pub(crate) fn is_last(&self) -> bool {
        !matches!(self, RecordError::TooLarge | RecordError::Decode(_))
    }

    /// Whether no record by itself is damaged: the whole file is, or the system cannot read it.
    pub(crate) fn is_of_all(&self) -> bool {
        match self {
            RecordError::StreamTooLarge(_) | RecordError::Batch(_) | RecordError::BatchTooLarge => true,
            RecordError::Read(reason) => reason.raw_os_error().is_some(),
            _ => false,
        }
    }
}

impl From<io::Error> for RecordError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::FileTooLarge => RecordError::StreamTooLarge(error),
            _ => RecordError::Read(error),
        }
    }
}

impl From<DecodeError> for RecordError {
    fn from(error: DecodeError) -> Self {
        RecordError::Decode(error)
    }
}
