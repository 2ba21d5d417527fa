//! Which messages did real clients and their relay send, and when?
//!
//! A recording is a file of JSON lines under zstd, one line a message. The first line is the
//! [`Header`], every other one an [`Entry`]. A [`Recorder`] records connections while they are served, by
//! a [`Scribe`], which puts pseudonyms in the place of people. A [`Reader`] reads the file again.
//! docs/gateway.md has the format and what pseudonyms do not hide.

#![warn(missing_docs)]

mod entry;
mod error;
pub mod nip19;
mod pseudonyms;
mod reader;
mod recorder;
mod scribe;
mod writer;

pub use entry::{Body, End, Entry, Header, Message, Redaction, Side, VERSION, What};
pub use error::{Error, Reason};
pub use reader::{MAX_LINE_BYTES, Reader};
pub use recorder::{QUEUE_BYTES, QUEUE_LINES, Recorded, Recorder, Status};
pub use scribe::{PRIVATE, Passed, Scribe};
pub use writer::{MAX_TEXT_BYTES, Writer, create};
