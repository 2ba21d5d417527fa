//! Which messages did real clients and their relay send, and when?
//!
//! A recording is a file of JSON lines under zstd, one line a message. The first line is the
//! [`Header`], every other one an [`Entry`]. A [`Writer`] writes it, a [`Reader`] reads it again.
//! docs/gateway.md has the format and what pseudonyms do not hide.

#![warn(missing_docs)]

mod entry;
mod error;
pub mod nip19;
mod reader;
mod writer;

pub use entry::{Body, End, Entry, Header, Message, Redaction, Side, VERSION, What};
pub use error::{Error, Reason};
pub use reader::{MAX_LINE_BYTES, Reader};
pub use writer::{MAX_TEXT_BYTES, Writer, create};
