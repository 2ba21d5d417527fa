//! The parts of both ends in the handshake, and its result.

use std::{collections::HashSet, fmt, time::Duration};

use codecs::Format;
use serde_json::{Map, Value, json};
use terms::{Compression, Dictionary};

/// A WebSocket subprotocol token (RFC 6455 §1.9): a format, `.batched` for batches, and a suffix
/// for the zstd layer.
///
/// ```
/// use wire::Token;
///
/// assert_eq!(Token::JSON.to_string(), "nostr.json");
/// let token = Token { batched: true, compression: "zstd".parse().unwrap(), ..Token::JSON };
/// assert_eq!(token.to_string(), "nostr.json.batched+zstd");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// The format of the messages.
    pub format: Format,
    /// Whether the relay may put several events into one message.
    pub batched: bool,
    /// The zstd layer that the suffix names; `None` without one. A WebSocket extension may compress then.
    pub compression: Compression,
}

/// A client's request in the handshake.
///
/// ```
/// let offer = wire::Offer {
///     formats: vec!["dannypack".parse().unwrap()],
///     batched: false,
///     compression: "zstd".parse().unwrap(),
/// };
/// let tokens: Vec<_> = offer.tokens().iter().map(ToString::to_string).collect();
/// assert_eq!(tokens, ["nostr.dannypack.v1+zstd", "nostr.json"]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// Formats in order of preference; JSON, which every relay speaks, is appended if absent.
    pub formats: Vec<Format>,
    /// Whether to request batches of events.
    pub batched: bool,
    /// The compression to request. The [`Agreement`] states whether the relay granted it.
    pub compression: Compression,
}

/// The formats and compressions that a relay enables.
///
/// ```
/// let support = wire::Support {
///     formats: vec![],
///     compressions: vec!["deflate".parse().unwrap(), "zstd".parse().unwrap()],
///     batched: false,
/// };
/// let tokens: Vec<_> = support.tokens().iter().map(ToString::to_string).collect();
/// assert_eq!(tokens, ["nostr.json", "nostr.json+zstd"]);
/// assert_eq!(support.extensions(), ["permessage-deflate"]);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Support {
    /// Formats; JSON is always enabled.
    pub formats: Vec<Format>,
    /// Compressions; `none` is always enabled.
    pub compressions: Vec<Compression>,
    /// Whether clients may request batches of events.
    pub batched: bool,
}

/// The result of a handshake: what both ends do on a connection.
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
    /// Largest incoming message, before and after inflation.
    pub max_message_bytes: usize,
    /// Largest outgoing message, which bounds what waits for a peer that does not read; a multiple
    /// of the incoming one when absent.
    pub max_outgoing_bytes: Option<usize>,
    /// Read buffer of a connection. The socket's further bytes are read in the same call, up to 64
    /// KiB, and kept until used. The default suits an end with thousands of connections; 16 KiB are
    /// faster for few that receive much (`cargo bench -p wire --bench transport -- --part
    /// stream,echo`).
    pub read_buffer_bytes: usize,
    /// Size from which fed messages are written without a flush.
    pub write_buffer_bytes: usize,
    /// Receive buffer of a client's socket (`SO_RCVBUF`, socket(7)), for one that reads slowly; the
    /// system's choice when absent.
    pub receive_buffer_bytes: Option<u32>,
    /// Limit of the handshake, from the first byte (for clients: from the connect).
    pub handshake_timeout: Duration,
    /// Largest HTTP head.
    pub max_head_bytes: usize,
}

impl WireLimits {
    /// Ratio of the limits of outgoing and incoming messages: an event is up to six times longer in
    /// JSON (`\u0000` for one byte) than in the format of its publisher.
    const OUTGOING_FACTOR: usize = 8;

    /// The largest outgoing message.
    pub fn outgoing_bytes(&self) -> usize {
        let usual = self.max_message_bytes.saturating_mul(WireLimits::OUTGOING_FACTOR);
        self.max_outgoing_bytes.unwrap_or(usual)
    }

    /// Limits of a process with this many connections. Few connections get larger read buffers,
    /// which would take gigabytes for many.
    #[must_use]
    pub fn for_connections(connections: usize) -> WireLimits {
        const FEW: usize = 1_000;
        const STREAM_BUFFER_BYTES: usize = 16 << 10;
        let standing = WireLimits::default();
        let few = connections <= FEW;
        WireLimits {
            read_buffer_bytes: if few { STREAM_BUFFER_BYTES } else { standing.read_buffer_bytes },
            ..standing
        }
    }
}

impl Default for WireLimits {
    fn default() -> Self {
        WireLimits {
            max_message_bytes: 1 << 20,
            max_outgoing_bytes: None,
            read_buffer_bytes: 2 << 10,
            write_buffer_bytes: 32 << 10,
            receive_buffer_bytes: None,
            handshake_timeout: Duration::from_secs(10),
            max_head_bytes: 16 << 10,
        }
    }
}

impl Offer {
    /// The tokens to offer, in order, each once, plain JSON last.
    pub fn tokens(&self) -> Vec<Token> {
        Offer::tokens_of(std::slice::from_ref(self))
    }

    /// The tokens of several offers, the first offer's first, plain JSON last.
    pub(crate) fn tokens_of(offers: &[Offer]) -> Vec<Token> {
        let wanted = offers.iter().flat_map(|offer| {
            offer.formats.iter().map(|format| Token::of(*format, offer.batched, offer.compression))
        });
        once_each(wanted.filter(|token| *token != Token::JSON).chain([Token::JSON]))
    }
}

impl Support {
    /// The accepted tokens, for NIP-11 and for refusals.
    pub fn tokens(&self) -> Vec<Token> {
        let formats = [Format::JSON].into_iter().chain(self.formats.iter().copied());
        let batched: &[bool] = if self.batched { &[false, true] } else { &[false] };
        once_each(formats.flat_map(|format| {
            let compressions = [Compression::None].into_iter().chain(self.compressions.iter().copied());
            compressions.flat_map(move |compression| {
                batched.iter().map(move |&batched| Token::of(format, batched, compression))
            })
        }))
    }

    /// The accepted WebSocket extensions, for NIP-11.
    pub fn extensions(&self) -> &'static [&'static str] {
        let deflate = self.compressions.iter().any(|c| matches!(c, Compression::Deflate(_)));
        if deflate { &[tungstenite_deflate::negotiate::PERMESSAGE_DEFLATE] } else { &[] }
    }

    /// The accepted dictionaries, each once, for NIP-11.
    pub fn dictionaries(&self) -> Vec<Dictionary> {
        let mut found = Vec::new();
        for dictionary in self.tokens().iter().filter_map(|token| token.compression.dictionary()) {
            if !found.contains(&dictionary) {
                found.push(dictionary);
            }
        }
        found
    }

    /// What clients may offer, for the `wire` key of a NIP-11 document.
    pub fn described(&self) -> Value {
        let tokens: Vec<_> = self.tokens().iter().map(Token::to_string).collect();
        // By the names that tokens have.
        let dictionaries: Map<_, _> = self.dictionaries().into_iter().map(about).collect();
        json!({
            "version": 1,
            "tokens": tokens,
            "extensions": self.extensions(),
            "dictionaries": dictionaries,
        })
    }
}

fn about(dictionary: Dictionary) -> (String, Value) {
    let sha256 = codecs::hex::encode(&dictionary.sha256());
    (dictionary.id(), json!({ "sha256": sha256, "bytes": dictionary.bytes().len() }))
}

impl Token {
    /// Plain NIP-01.
    pub const JSON: Token = Token { format: Format::JSON, batched: false, compression: Compression::None };

    /// The token under a compression: without suffix for one that no token names, or that lacks a
    /// dictionary of the format.
    fn of(format: Format, batched: bool, compression: Compression) -> Token {
        let layer = match compression {
            Compression::Zstd(_) => compression.of_format(format.name()),
            Compression::None | Compression::Deflate(_) => None,
        };
        Token { format, batched, compression: layer.unwrap_or(Compression::None) }
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.format.spec().token)?;
        f.write_str(if self.batched { ".batched" } else { "" })?;
        match (self.compression, self.compression.dictionary()) {
            (_, Some(dictionary)) => write!(f, "+zstd-dict2-{}", dictionary.id()),
            (Compression::Zstd(_), None) => write!(f, "+{}", self.compression.name()),
            (Compression::None | Compression::Deflate(_), None) => Ok(()),
        }
    }
}

/// RFC 6455 §4.1 forbids offering a token twice; browsers throw.
fn once_each(tokens: impl Iterator<Item = Token>) -> Vec<Token> {
    let mut named = HashSet::new();
    tokens.filter(|token| named.insert(token.to_string())).collect()
}
