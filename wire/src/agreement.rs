//! What each end brings to the handshake, and what comes out of it.

use std::{fmt, str::FromStr, time::Duration};

use codecs::{Format, UnknownName};

use crate::{
    compression::{Compression, ZstdMode},
    dictionary::{Dictionary, DictionaryId},
};

/// A WebSocket subprotocol token: `nostr.proto-binary.v1`, with batches `nostr.proto-binary.v1.batched` and with the zstd
/// layer `nostr.proto-binary.v1+zstd` or `nostr.proto-binary.v1.batched+zstd`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token {
    /// The format of the messages.
    pub format: Format,
    /// Whether the relay may put several events into one message.
    pub batched: bool,
    /// What is around them.
    pub layer: Layer,
}

/// What a token's suffix says about compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// No suffix: messages as the format has them, perhaps under a WebSocket extension.
    None,
    /// `+zstd`: each message may be a zstd frame.
    Zstd,
    /// `+zstd-stream`: each message may be the next block of its direction's zstd stream.
    ZstdStream,
    /// `+zstd-dict-` and the dictionary's name: each message may be a zstd frame that refers to the dictionary.
    ZstdDict(DictionaryId),
}

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Formats in order of preference; JSON is appended where it is absent, because every relay speaks it.
    pub formats: Vec<Format>,
    /// Whether to ask for batches of events.
    pub batched: bool,
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
    /// Whether clients may ask for batches of events.
    pub batched: bool,
    /// Whether to refuse a client (HTTP 400) that offers only unknown tokens, rather than to speak JSON.
    pub strict: bool,
}

/// What both ends do on a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreement {
    /// The format of every message.
    pub format: Format,
    /// Whether the relay may put several events into one message.
    pub batched: bool,
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
    /// What a connection keeps to read into. What its socket has beyond that is read in the same call and kept until it
    /// was used, 64 KiB at most. The default suits an end with thousands of connections; 16 KiB are faster where much is
    /// received by few.
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
            read_buffer_bytes: 2 << 10,
            write_buffer_bytes: 32 << 10,
            handshake_timeout: Duration::from_secs(10),
            max_head_bytes: 16 << 10,
        }
    }
}

impl Offer {
    /// The tokens to offer, in order, each once, plain JSON last.
    pub fn tokens(&self) -> Vec<Token> {
        let (batched, compression) = (self.batched, self.compression);
        let token = |&format| Token { format, batched, layer: Layer::of(compression, format) };
        let wanted = self.formats.iter().map(token);
        once_each(wanted.chain([Token::JSON]))
    }
}

impl Support {
    /// The tokens that this relay accepts, for NIP-11 and for refusals.
    pub fn tokens(&self) -> Vec<Token> {
        let formats = [Format::JSON].into_iter().chain(self.formats.iter().copied());
        let batched: &[bool] = if self.batched { &[false, true] } else { &[false] };
        let layers = |format| {
            let mut layers: Vec<_> =
                self.compressions.iter().map(|&compression| Layer::of(compression, format)).collect();
            layers.push(Layer::None);
            layers.sort();
            layers
                .into_iter()
                .flat_map(move |layer| batched.iter().map(move |&batched| Token { format, batched, layer }))
        };
        once_each(formats.flat_map(layers))
    }

    /// The WebSocket extensions that this relay accepts, for NIP-11.
    pub fn extensions(&self) -> &'static [&'static str] {
        let deflate = self.compressions.iter().any(|c| matches!(c, Compression::Deflate(_)));
        if deflate { &[tungstenite_deflate::negotiate::PERMESSAGE_DEFLATE] } else { &[] }
    }

    /// The dictionaries that clients may name, each once, for NIP-11.
    pub fn dictionaries(&self) -> Vec<Dictionary> {
        let formats = [Format::JSON].into_iter().chain(self.formats.iter().copied());
        let mut found = Vec::new();
        for (format, compression) in
            formats.flat_map(|format| self.compressions.iter().map(move |c| (format, *c)))
        {
            let dictionary = compression.of_format(format).and_then(|of_format| of_format.dictionary());
            found.extend(dictionary.filter(|dictionary| !found.contains(dictionary)));
        }
        found
    }

    /// The zstd compression behind a token; None for [`Layer::None`].
    pub(crate) fn zstd(&self, token: Token) -> Option<Compression> {
        let enabled = self.compressions.iter().copied();
        let behind =
            |c: &Compression| token.layer != Layer::None && Layer::of(*c, token.format) == token.layer;
        enabled.filter(behind).find_map(|c| c.of_format(token.format))
    }
}

impl Layer {
    /// The layer that asks for the compression of messages of the format.
    fn of(compression: Compression, format: Format) -> Layer {
        let Compression::Zstd(params) = compression else { return Layer::None };
        match params.mode {
            ZstdMode::Frames => Layer::Zstd,
            ZstdMode::Stream => Layer::ZstdStream,
            ZstdMode::Dictionary(_) => {
                let dictionary = compression.of_format(format).and_then(|of_format| of_format.dictionary());
                dictionary.map_or(Layer::None, |dictionary| Layer::ZstdDict(dictionary.id()))
            }
        }
    }
}

/// What stands behind the format in a token.
impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layer::None => Ok(()),
            Layer::Zstd => f.write_str(ZSTD),
            Layer::ZstdStream => f.write_str(ZSTD_STREAM),
            Layer::ZstdDict(dictionary) => write!(f, "{ZSTD_DICT}{dictionary}"),
        }
    }
}

const BATCHED: &str = ".batched";
const ZSTD: &str = "+zstd";
const ZSTD_STREAM: &str = "+zstd-stream";
const ZSTD_DICT: &str = "+zstd-dict-";

impl Token {
    /// Plain NIP-01.
    pub const JSON: Token = Token { format: Format::JSON, batched: false, layer: Layer::None };
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.format.spec().token)?;
        f.write_str(if self.batched { BATCHED } else { "" })?;
        self.layer.fmt(f)
    }
}

impl FromStr for Token {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let suffix = text.find('+').unwrap_or(text.len());
        let layer = match &text[suffix..] {
            "" => Some(Layer::None),
            ZSTD => Some(Layer::Zstd),
            ZSTD_STREAM => Some(Layer::ZstdStream),
            other => other.strip_prefix(ZSTD_DICT).and_then(|id| id.parse().ok()).map(Layer::ZstdDict),
        };
        let plain = text[..suffix].strip_suffix(BATCHED);
        let (name, batched) = (plain.unwrap_or(&text[..suffix]), plain.is_some());
        let known = || Format::all().map(|format| format.spec().token);
        Format::all()
            .find(|format| format.spec().token == name)
            .and_then(|format| Some(Token { format, batched, layer: layer? }))
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
