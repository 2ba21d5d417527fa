//! How does a Nostr message look in each wire format?
//!
//! Bytes in, messages out, and back: no runtime, no socket, no file, no clock. The nouns are
//! [`Event`], [`Filter`], [`ClientMessage`] and [`RelayMessage`]; a [`Format`] is an entry of the
//! registry [`FORMATS`], and its [`Codec`] reads and writes the bytes. A format and its
//! [`Implementation`] are two axes: the ecosystem's library or code tuned for this project writes
//! the same bytes, and results label which.
//!
//! ```
//! use codecs::{Format, Implementation, RelayMessage};
//!
//! let json = Format::JSON.codec(Implementation::Tuned)?;
//! let notice = json.decode_relay(br#"["NOTICE","slow down"]"#)?;
//! assert_eq!(notice, RelayMessage::Notice { text: "slow down".into() });
//!
//! let cbor = "cbor-packed".parse::<Format>()?.codec(Implementation::Library)?;
//! let mut bytes = Vec::new();
//! cbor.encode_relay(&notice, &mut bytes)?;
//! assert_eq!(bytes, b"\x82\x05\x69slow down");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! To add a format, write `formats/<name>.rs`, declare it in `formats/mod.rs` and add one entry to
//! [`FORMATS`]: the command line, negotiation, comparisons and reports follow from there. The
//! README lists what else tests ask for.

#![warn(missing_docs)]

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
pub use formats::{
    Batch, BatchLayout, Capacity, FORMATS, Format, FormatSpec, Group, Implementation, OneForm, Opcode,
    notepack_text,
};
#[cfg(feature = "signatures")]
pub use model::PublicKeys;
pub use model::{
    ByteEvent, ByteMessage, ClientMessage, EoseHints, Event, EventHead, Filter, FlatEvent, KindClass, Limit,
    Limits, OverLimit, RelayMessage, Request, Tag, TagFilter, TagValue, VerifyError, VerifyLevel,
};
pub use name::UnknownName;
pub use text::{quoted, quoted_lines, quoted_up_to};
