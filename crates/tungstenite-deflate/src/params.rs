//! The parameters of permessage-deflate.

/// Parameters of permessage-deflate. The level belongs to one end; takeover and windows of the
/// directions are negotiated.
///
/// ```
/// use tungstenite_deflate::{DeflateParams, Direction};
///
/// let to_client = Direction { window_bits: 12, ..Direction::DEFAULT };
/// let small = DeflateParams { to_client, ..DeflateParams::DEFAULT };
/// assert_eq!(
///     tungstenite_deflate::negotiate::offer(&small),
///     "permessage-deflate; client_max_window_bits; server_max_window_bits=12",
/// );
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeflateParams {
    /// zlib's level of this end, 0 to 9; higher ones count as 9.
    pub level: u32,
    /// The server's compressor.
    pub to_client: Direction,
    /// The client's compressor.
    pub to_server: Direction,
    /// Whether this end, a server, may send payloads that were compressed once for many connections
    /// ([`crate::WebSocket::start_shared`]); requires `to_client` without takeover. On the wire it
    /// is `server_no_context_takeover`, so a client cannot request it. A client with `shared` does
    /// not offer that parameter.
    pub shared: bool,
}

/// One direction of permessage-deflate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Direction {
    /// Whether the window survives from one message to the next ("context takeover", RFC 7692
    /// §7.1.1).
    pub takeover: bool,
    /// Base-2 logarithm of the window (RFC 7692 §7.1.2), 9 to 15. A peer that announced 8 is read
    /// with 9.
    pub window_bits: u8,
    /// Its sender leaves payloads of fewer bytes uncompressed, which RFC 7692 §6 allows for any
    /// message. The other end does not learn of it.
    pub min_bytes: usize,
}

impl DeflateParams {
    /// Level 6, zlib's own default, and the meaning of a bare `permessage-deflate`: 32 KiB windows
    /// with takeover.
    pub const DEFAULT: DeflateParams = DeflateParams {
        level: 6,
        to_client: Direction::DEFAULT,
        to_server: Direction::DEFAULT,
        shared: false,
    };
}

impl Default for DeflateParams {
    fn default() -> DeflateParams {
        DeflateParams::DEFAULT
    }
}

impl Direction {
    /// The largest window, kept from message to message (RFC 7692 §7.1).
    pub const DEFAULT: Direction = Direction { takeover: true, window_bits: 15, min_bytes: 0 };
    /// The largest window, emptied before each message.
    pub const NO_TAKEOVER: Direction = Direction { takeover: false, ..Direction::DEFAULT };
}
