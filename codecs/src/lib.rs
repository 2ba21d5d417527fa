//! How does a Nostr message look in each wire format?
//!
//! Bytes in, messages out, and back: no runtime, no socket, no file, no clock. The nouns are [`Event`], [`Filter`],
//! [`ClientMessage`] and [`RelayMessage`]; a [`Format`] is an entry of the registry [`FORMATS`], and its
//! [`Codec`] is what reads and writes the bytes. A format and its [`Implementation`] are two axes: the same bytes
//! can be written by the ecosystem's library or by code tuned for this project, and results label which.
//!
//! To add a format, write `formats/<name>.rs` and add one entry to [`FORMATS`]: the command line, negotiation,
//! tests and reports follow from there.

mod codec;
mod envelope;
mod formats;
pub mod hex;
mod model;
mod reader;
mod text;
mod walk;

pub use codec::{Codec, DecodeError, EncodeError, EventCodec};
pub use formats::{FORMATS, Format, FormatSpec, Group, Implementation, Opcode, UnknownName};
pub use model::{
    ClientMessage, EoseHints, Event, EventHead, EventView, Filter, FlatEvent, KindClass, Limit, Limits,
    OverLimit, RelayMessage, Request, Tag, TagFilter, TagView, TextView, VerifyError, VerifyLevel,
};
