//! Why a recording cannot be read.

use std::{io, path::PathBuf};

/// A recording that cannot be read: the file, the line and why.
#[derive(Debug, thiserror::Error)]
#[error("{}, line {line}: {reason}", file.display())]
pub struct Error {
    /// The file.
    pub file: PathBuf,
    /// The line, which counts from 1.
    pub line: u64,
    /// Why.
    pub reason: Reason,
}

/// What is wrong with a line.
#[derive(Debug, thiserror::Error)]
pub enum Reason {
    /// The file cannot be read, or its zstd is damaged.
    #[error("{0}; a recording is JSON lines under zstd, as gateway --record writes them")]
    Io(#[from] io::Error),
    /// The file ends before its first line does.
    #[error("the file ends here; a recording begins with a line that states its version")]
    NoHeader,
    /// The first line is that of another version.
    #[error("this is a recording of version {0}, and this program reads version {VERSION}", VERSION = crate::VERSION)]
    Version(u32),
    /// More than [`crate::MAX_LINE_BYTES`].
    #[error("the line has more than {MAX} bytes, which no recorder writes", MAX = crate::MAX_LINE_BYTES)]
    TooLong,
    /// Not JSON, or not the fields that a line has.
    #[error("not a line of a recording: {0}")]
    Json(#[from] serde_json::Error),
    /// A line after the last one.
    #[error("lines follow the end; recordings cannot be joined")]
    AfterEnd,
}
