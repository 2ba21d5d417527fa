//! What each end brings to the handshake, and what comes out of it.

use std::{fmt, str::FromStr, time::Duration};

use codecs::{Format, UnknownName};

use crate::compression::Compression;

/// A WebSocket subprotocol token: `nostr.proto-binary.v1` or, with the zstd layer, `nostr.proto-binary.v1+zstd`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token {
    /// The format of the messages.
    pub format: Format,
    /// What is around them.
    pub layer: Layer,
}

/// What a token's suffix says about compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layer {
    /// No suffix: messages as the format has them, perhaps under a WebSocket extension.
    None,
    /// `+zstd`: each message may be a zstd frame.
    Zstd,
    /// `+zstd-stream`: each message may be the next block of its direction's zstd stream.
    ZstdStream,
}

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Formats in order of preference; JSON is appended where it is absent, because every relay speaks it.
    pub formats: Vec<Format>,
    /// The one compression to ask for. The [`Agreement`] says whether the relay granted it.
    pub compression: Compression,
}

/// What a relay enables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Support {
    /// Formats; JSON is enabled whether or not it is listed.
    pub formats: Vec<Format>,
    /// Compressions; none is enabled whether or not it is listed.
    pub compressions: Vec<Compression>,
    /// Whether to refuse a client (HTTP 400) that offers only unknown tokens, rather than to speak JSON.
    pub strict: bool,
}

/// What both ends do on a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreement {
    /// The format of every message.
    pub format: Format,
    /// This end's compression with the negotiated parameters.
    pub compression: Compression,
    /// The subprotocol token as the relay echoed it.
    pub token: Option<String>,
    /// The relay's `Sec-WebSocket-Extensions` answer.
    pub extensions: Option<String>,
}

/// Bounds of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WireLimits {
    /// Largest incoming message, as it comes and after inflation.
    pub max_message_bytes: usize,
    /// Read buffer. It is filled with zeros before each read, so large ones are slower, not faster.
    pub read_buffer_bytes: usize,
    /// Fed messages gather up to this size before they are written without a flush.
    pub write_buffer_bytes: usize,
    /// From the first byte (for clients: from the connect) to the end of the handshake.
    pub handshake_timeout: Duration,
    /// Largest HTTP head.
    pub max_head_bytes: usize,
}

impl Default for WireLimits {
    fn default() -> Self {
        WireLimits {
            max_message_bytes: 1 << 20,
            read_buffer_bytes: 8 << 10,
            write_buffer_bytes: 32 << 10,
            handshake_timeout: Duration::from_secs(10),
            max_head_bytes: 16 << 10,
        }
    }
}

impl Offer {
    /// The tokens to offer, in order, each once, plain JSON last.
    pub fn tokens(&self) -> Vec<Token> {
        let layer = Layer::of(&self.compression);
        let wanted = self.formats.iter().map(|&format| Token { format, layer });
        once_each(wanted.chain([Token::JSON]))
    }
}

impl Support {
    /// The tokens that this relay accepts, for NIP-11 and for refusals.
    pub fn tokens(&self) -> Vec<Token> {
        let formats = [Format::JSON].into_iter().chain(self.formats.iter().copied());
        let layers = |format| Layer::ALL.map(|layer| Token { format, layer });
        let enabled = |token: &Token| token.layer == Layer::None || self.zstd(token.layer).is_some();
        once_each(formats.flat_map(layers).filter(enabled))
    }

    /// The WebSocket extensions that this relay accepts, for NIP-11.
    pub fn extensions(&self) -> &'static [&'static str] {
        let deflate = self.compressions.iter().any(|c| matches!(c, Compression::Deflate(_)));
        if deflate { &[crate::extensions::PERMESSAGE_DEFLATE] } else { &[] }
    }

    /// The zstd compression behind a token with this layer; `None` for [`Layer::None`].
    pub(crate) fn zstd(&self, layer: Layer) -> Option<Compression> {
        self.compressions.iter().copied().find(|c| layer != Layer::None && Layer::of(c) == layer)
    }
}

impl Layer {
    const ALL: [Layer; 3] = [Layer::None, Layer::Zstd, Layer::ZstdStream];

    fn of(compression: &Compression) -> Layer {
        match compression {
            Compression::None | Compression::Deflate(_) => Layer::None,
            Compression::Zstd(params) if params.stream => Layer::ZstdStream,
            Compression::Zstd(_) => Layer::Zstd,
        }
    }

    fn suffix(self) -> &'static str {
        match self {
            Layer::None => "",
            Layer::Zstd => "+zstd",
            Layer::ZstdStream => "+zstd-stream",
        }
    }
}

impl Token {
    /// Plain NIP-01.
    pub const JSON: Token = Token { format: Format::JSON, layer: Layer::None };
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.format.spec().token)?;
        f.write_str(self.layer.suffix())
    }
}

impl FromStr for Token {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let suffix = text.find('+').unwrap_or(text.len());
        let layer = Layer::ALL.into_iter().find(|layer| layer.suffix() == &text[suffix..]);
        let known = || Format::all().map(|format| format.spec().token);
        Format::all()
            .find(|format| format.spec().token == &text[..suffix])
            .and_then(|format| Some(Token { format, layer: layer? }))
            .ok_or_else(|| UnknownName::new("subprotocol token", text, known()))
    }
}

/// RFC 6455 §4.1 forbids to offer a token twice; browsers throw on it.
fn once_each(tokens: impl Iterator<Item = Token>) -> Vec<Token> {
    let mut list = Vec::new();
    for token in tokens {
        if !list.contains(&token) {
            list.push(token);
        }
    }
    list
}
