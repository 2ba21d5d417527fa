//! Compression, once, of the part that messages to many connections share.

use tungstenite_deflate::SharedDeflate;

use crate::zstd::SharedZstd;

/// The compressed common end of messages to many connections, in each compression that shares it,
/// made by the first connection that needs it. One value belongs to one payload.
#[derive(Debug, Default)]
pub struct Shared {
    pub(crate) deflate: SharedDeflate,
    pub(crate) zstd: SharedZstd,
}

impl Shared {
    /// Compressed bytes held.
    pub fn held_bytes(&self) -> usize {
        self.deflate.held_bytes() + self.zstd.held_bytes()
    }
}
