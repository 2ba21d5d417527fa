//! What a connection is made on, as people write it: a relay's address and the headers sent to it,
//! a compression with its parameters and dictionary, how events are batched and encoded anew.
//!
//! No socket and no runtime: cells and reports know these words without what carries them out.

#![warn(missing_docs)]

mod compression;
mod dictionary;
mod fanout;
mod header;
mod relay_url;

pub use compression::{
    Compression, CompressionError, DeflateParams, ZSTD_STREAM_MAX_WINDOW_BITS, ZstdMode, ZstdParams,
};
pub use dictionary::{Dictionary, DictionaryId, NotADictionaryId};
pub use fanout::{BatchLimits, Reencode};
pub use header::{Header, HeaderError};
pub use relay_url::{RelayUrl, RelayUrlError, without_password};
