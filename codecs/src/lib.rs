//! How does a Nostr message look in each wire format?
//!
//! Bytes in, messages out, and back: no runtime, no socket, no file, no clock. The nouns are
//! [`Event`], [`Filter`], [`ClientMessage`] and [`RelayMessage`]; a [`Format`] is an entry of the
//! registry [`FORMATS`], and its [`Codec`] is what reads and writes the bytes. A format and its
//! [`Implementation`] are two axes: the same bytes can be written by the ecosystem's library or by
//! code tuned for this project, and results label which.
//!
//! To add a format, write `formats/<name>.rs` and add one entry to [`FORMATS`]: the command line,
//! negotiation, tests and reports follow from there.

mod codec;
mod envelope;
mod error;
mod fixed;
mod formats;
pub mod hex;
mod model;
mod name;
mod reader;
mod text;

pub use codec::{Codec, EventCodec};
pub use error::{DecodeError, EncodeError};
pub use formats::{FORMATS, Format, FormatSpec, Group, Implementation, Opcode};
pub use model::{
    ClientMessage, EoseHints, Event, EventHead, Filter, FlatEvent, KindClass, Limit, Limits, OverLimit,
    RelayMessage, Request, Tag, TagFilter, VerifyError, VerifyLevel,
};
pub use name::UnknownName;
