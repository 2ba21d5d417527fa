//! The parameters of a connection, as people write them: a relay's address and headers, a
//! compression with its parameters and dictionary, batches, re-encoding.
//!
//! No socket and no runtime, so cells and reports need no transport.

#![warn(missing_docs)]

mod compression;
mod dictionary;
mod fanout;
mod header;
mod relay_url;

pub use compression::{
    Compression, CompressionError, DeflateParams, ZSTD_STREAM_MAX_WINDOW_BITS, ZstdMode, ZstdParams,
};
pub use dictionary::Dictionary;
pub use fanout::{BatchLimits, Reencode};
pub use header::{Header, HeaderError};
pub use relay_url::{RelayUrl, RelayUrlError, without_password};
