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
    /// zlib's level of this end, 0 to 9. Level 1 of zlib-rs hardly compresses hex; see [`DeflateParams::STANDING`].
    pub level: u32,
    /// This end sends smaller payloads uncompressed.
    pub min_bytes: usize,
    /// What the relay compresses with.
    pub to_client: Direction,
    /// What the client compresses with.
    pub to_relay: Direction,
}

/// One direction of permessage-deflate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Direction {
    /// Whether the window survives from one message to the next ("context takeover").
    pub takeover: bool,
    /// Base-2 logarithm of the window, 9 to 15 (a peer that announced 8 is read with 9).
    pub window_bits: u8,
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
    pub const STANDING: DeflateParams = DeflateParams {
        level: 6,
        min_bytes: 0,
        to_client: Direction::STANDING,
        to_relay: Direction::STANDING,
    };
}

impl Direction {
    /// The largest window, kept from message to message: what a bare `permessage-deflate` means (RFC 7692 §7.1).
    pub const STANDING: Direction = Direction { takeover: true, window_bits: 15 };
    /// The largest window, emptied before each message.
    pub const NO_TAKEOVER: Direction = Direction { takeover: false, window_bits: 15 };
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
            "deflate-no-takeover" => Ok(Compression::Deflate(DeflateParams {
                to_client: Direction::NO_TAKEOVER,
                to_relay: Direction::NO_TAKEOVER,
                ..DeflateParams::STANDING
            })),
            "zstd" => Ok(Compression::Zstd(ZstdParams::STANDING)),
            _ => Err(UnknownName::new("compression", name, Self::NAMES)),
        }
    }

    /// The word on the command line and in results. Takeover is that of the relay, which sends most of the bytes.
    pub fn name(&self) -> &'static str {
        match self {
            Compression::None => "none",
            Compression::Deflate(params) if params.to_client.takeover => "deflate",
            Compression::Deflate(_) => "deflate-no-takeover",
            Compression::Zstd(_) => "zstd",
        }
    }

    /// Every parameter, for results: `level=6 window_bits=15 takeover=yes …`; empty for none. What begins with
    /// `upload` is the client's direction, the rest the relay's or both.
    pub fn parameters(&self) -> String {
        match self {
            Compression::None => String::new(),
            Compression::Deflate(DeflateParams { level, min_bytes, to_client, to_relay }) => format!(
                "level={level} window_bits={} takeover={} upload_window_bits={} upload_takeover={} \
                 min_bytes={min_bytes}",
                to_client.window_bits,
                yes_or_no(to_client.takeover),
                to_relay.window_bits,
                yes_or_no(to_relay.takeover),
            ),
            Compression::Zstd(ZstdParams { level, min_bytes }) => {
                format!("level={level} min_bytes={min_bytes}")
            }
        }
    }
}

fn yes_or_no(answer: bool) -> &'static str {
    if answer { "yes" } else { "no" }
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
