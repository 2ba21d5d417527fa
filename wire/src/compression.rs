//! The compressions under comparison, with every parameter written out.

use std::{fmt, str::FromStr};

use codecs::UnknownName;

/// How messages of a connection are compressed. Parameters are complete: no library default decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// Payloads travel as they are.
    None,
    /// The WebSocket extension permessage-deflate (RFC 7692).
    Deflate(DeflateParams),
    /// One self-contained zstd frame a message, agreed by the `+zstd` suffix of the subprotocol token.
    Zstd(ZstdParams),
}

/// Parameters of permessage-deflate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeflateParams {
    /// zlib's level, 0 to 9. Level 1 of zlib-rs hardly compresses hex; see [`DeflateParams::STANDING`].
    pub level: u32,
    /// Whether the window survives from one message to the next ("context takeover"), in both directions.
    pub takeover: bool,
    /// Base-2 logarithm of the window, 9 to 15, in both directions.
    pub window_bits: u8,
    /// Smaller payloads are sent uncompressed.
    pub min_bytes: usize,
}

/// Parameters of the zstd layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ZstdParams {
    /// zstd's level, 1 to 22; negative levels are its fast modes.
    pub level: i32,
    /// Smaller payloads are sent uncompressed.
    pub min_bytes: usize,
}

impl DeflateParams {
    /// What `deflate` means on the command line: level 6, as most servers have it. The levels below cost about
    /// the same with zlib-rs, and its level 1 reaches a ratio of only 1.14 on hex.
    pub const STANDING: DeflateParams =
        DeflateParams { level: 6, takeover: true, window_bits: 15, min_bytes: 0 };
}

impl ZstdParams {
    /// What `zstd` means on the command line: level 1, because higher levels gain little on messages of a
    /// kilobyte and cost several times as much, and from 256 bytes, below which a frame saves nothing.
    pub const STANDING: ZstdParams = ZstdParams { level: 1, min_bytes: 256 };
}

impl Compression {
    /// Every name, in the order of every table.
    pub const NAMES: [&str; 4] = ["none", "deflate", "deflate-no-takeover", "zstd"];

    /// The standing parameters of that name.
    ///
    /// # Errors
    /// [`UnknownName`] lists the known names.
    pub fn named(name: &str) -> Result<Compression, UnknownName> {
        match name {
            "none" => Ok(Compression::None),
            "deflate" => Ok(Compression::Deflate(DeflateParams::STANDING)),
            "deflate-no-takeover" => {
                Ok(Compression::Deflate(DeflateParams { takeover: false, ..DeflateParams::STANDING }))
            }
            "zstd" => Ok(Compression::Zstd(ZstdParams::STANDING)),
            _ => Err(UnknownName::new("compression", name, Self::NAMES)),
        }
    }

    /// The word on the command line and in results.
    pub fn name(&self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Deflate(DeflateParams { takeover: true, .. }) => "deflate",
            Compression::Deflate(DeflateParams { takeover: false, .. }) => "deflate-no-takeover",
            Compression::Zstd(_) => "zstd",
        }
    }

    /// Every parameter, for results: `level=6 window_bits=15 min_bytes=0`; empty for none.
    pub fn parameters(&self) -> String {
        match self {
            Compression::None => String::new(),
            Compression::Deflate(DeflateParams { level, takeover: _, window_bits, min_bytes }) => {
                format!("level={level} window_bits={window_bits} min_bytes={min_bytes}")
            }
            Compression::Zstd(ZstdParams { level, min_bytes }) => {
                format!("level={level} min_bytes={min_bytes}")
            }
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Compression {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Self::named(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_names_itself() {
        for name in Compression::NAMES {
            assert_eq!(Compression::named(name).unwrap().name(), name);
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let error = "gzip".parse::<Compression>().unwrap_err().to_string();
        assert_eq!(error, "unknown compression \"gzip\"; known: none deflate deflate-no-takeover zstd");
    }
}
