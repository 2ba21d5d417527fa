//! Header values to decisions, without a socket: the subprotocol token (RFC 6455 §4.2.2) and the
//! extension (RFC 7692 §7.1).
//!
//! ```
//! use wire::{Offer, Support, negotiate};
//!
//! let compression = "deflate".parse().unwrap();
//! let offer = Offer { formats: vec![], batched: false, compression };
//! let compressions = vec![compression];
//! let support = Support { formats: vec![], compressions, batched: false };
//!
//! let offers = [offer];
//! let request = negotiate::request(&offers);
//! assert_eq!(request.protocols, "nostr.json");
//! let asked = request.extensions.as_deref();
//! let relay = negotiate::accept(Some(&request.protocols), asked, &support).unwrap();
//! let answered = relay.extensions.as_deref();
//! let client = negotiate::check_answer(&offers, relay.token.as_deref(), answered).unwrap();
//! assert_eq!(client, relay);
//! assert_eq!(client.compression.name(), "deflate");
//! ```

use std::collections::HashMap;

use terms::{Compression, DeflateParams};
use tungstenite_deflate::negotiate::{self as extensions, NegotiationError};

use crate::{
    agreement::{Agreement, Offer, Support, Token},
    deflate::{agreed, transport},
};

/// The headers of a client's request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// `Sec-WebSocket-Protocol`.
    pub protocols: String,
    /// `Sec-WebSocket-Extensions`.
    pub extensions: Option<String>,
}

/// The headers for offers, in order of preference. Of several with deflate the first is made.
pub fn request(offers: &[Offer]) -> Request {
    let tokens: Vec<String> = Offer::tokens_of(offers).iter().map(Token::to_string).collect();
    Request {
        protocols: tokens.join(", "),
        extensions: deflate(offers).map(|params| extensions::offer(&transport(params))),
    }
}

fn deflate(offers: &[Offer]) -> Option<&DeflateParams> {
    offers.iter().find_map(|offer| match &offer.compression {
        Compression::Deflate(params) => Some(params),
        Compression::None | Compression::Zstd(_) => None,
    })
}

/// Decides on a client's header values; `None` stands for an absent header.
///
/// The client's first enabled token wins; without one, both ends speak JSON. Compressions are never
/// stacked: with a zstd token every extension is declined.
///
/// # Errors
/// A header outside its grammar, which is answered with HTTP 400.
pub fn accept(
    protocols: Option<&str>,
    extensions: Option<&str>,
    support: &Support,
) -> Result<Agreement, NegotiationError> {
    let token = protocols.and_then(|list| choose_token(list, support));
    let enabled: Vec<_> = support
        .compressions
        .iter()
        .filter_map(|compression| match compression {
            Compression::Deflate(params) => Some(transport(params)),
            Compression::None | Compression::Zstd(_) => None,
        })
        .collect();
    // Also without an enabled deflate: a malformed header fails the handshake.
    let deflate = extensions::accept(extensions.unwrap_or_default(), &enabled)?;

    let chosen = token.unwrap_or(Token::JSON);
    let deflate = deflate.filter(|_| chosen.compression == Compression::None);
    let (extensions, deflate) = deflate.unzip();
    Ok(Agreement {
        format: chosen.format,
        batched: chosen.batched,
        compression: deflate.map_or(chosen.compression, agreed),
        token: token.map(|token| token.to_string()),
        extensions,
    })
}

fn choose_token(list: &str, support: &Support) -> Option<Token> {
    let enabled = support.tokens().into_iter().map(|token| (token.to_string(), token));
    let enabled: HashMap<String, Token> = enabled.collect();
    list.split(',').find_map(|token| enabled.get(token.trim()).copied())
}

/// Checks the relay's header values against the offers; `None` stands for an absent header. A relay
/// that names no token speaks plain NIP-01 JSON.
///
/// # Errors
/// A token or an extension that was not offered, parameters that do not fit the offer, or two
/// compressions, one above the other: the handshake failed.
pub fn check_answer(
    offers: &[Offer],
    protocol: Option<&str>,
    extensions: Option<&str>,
) -> Result<Agreement, String> {
    let token = match protocol {
        None => None,
        Some(text) => {
            let offered = Offer::tokens_of(offers);
            let token = offered.iter().find(|token| token.to_string() == text);
            Some(*token.ok_or_else(|| {
                let offered = request(offers).protocols;
                format!("the relay chose the subprotocol {text:?}, which was not offered ({offered})")
            })?)
        }
    };
    let offered = deflate(offers).map(transport);
    let deflate = extensions::check_answer(extensions.unwrap_or_default(), offered.as_ref())
        .map_err(|error| error.to_string())?;
    let chosen = token.unwrap_or(Token::JSON);
    if chosen.compression != Compression::None && deflate.is_some() {
        return Err(format!("the relay chose {} by {chosen} and deflate above it", chosen.compression));
    }
    Ok(Agreement {
        format: chosen.format,
        batched: chosen.batched,
        compression: deflate.map_or(chosen.compression, agreed),
        token: token.map(|token| token.to_string()),
        extensions: extensions.filter(|_| deflate.is_some()).map(str::to_owned),
    })
}
