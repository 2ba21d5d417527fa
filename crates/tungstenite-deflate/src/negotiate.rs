//! From values of `Sec-WebSocket-Extensions` to parameters (RFC 7692 §7.1), without a socket.

use std::fmt::Write;

use tokio_tungstenite::tungstenite::http::HeaderMap;
pub use tokio_tungstenite::tungstenite::http::header::SEC_WEBSOCKET_EXTENSIONS;

use crate::{
    header::{self, Extension},
    params::{DeflateParams, Direction},
};

/// The extension's name.
pub const PERMESSAGE_DEFLATE: &str = "permessage-deflate";

/// RFC 7692 §7.1.2 also allows 8, with which zlib cannot compress raw deflate.
const MIN_WINDOW_BITS: u8 = 9;
const MAX_WINDOW_BITS: u8 = 15;

/// Why a header fails the handshake (RFC 6455 §9.1, RFC 7692 §7.1).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NegotiationError(String);

/// The lines of `Sec-WebSocket-Extensions` as one list (RFC 9110 §5.3), empty without the header.
pub fn extensions(headers: &HeaderMap) -> String {
    let lines = headers.get_all(SEC_WEBSOCKET_EXTENSIONS).iter();
    lines.map(|line| String::from_utf8_lossy(line.as_bytes())).collect::<Vec<_>>().join(", ")
}

/// The value of a client's `Sec-WebSocket-Extensions`.
///
/// `server_max_window_bits` is offered only for windows below 15: some servers ignore the
/// parameter, which fails the handshake, and others decline offers with it.
///
/// ```
/// use tungstenite_deflate::{DeflateParams, negotiate::offer};
///
/// assert_eq!(offer(&DeflateParams::DEFAULT), "permessage-deflate; client_max_window_bits");
/// ```
pub fn offer(params: &DeflateParams) -> String {
    let mut text = PERMESSAGE_DEFLATE.to_owned();
    text.push_str("; client_max_window_bits");
    if params.to_server.window_bits < MAX_WINDOW_BITS {
        write!(text, "={}", params.to_server.window_bits).expect("writing to a String succeeds");
    }
    if params.to_client.window_bits < MAX_WINDOW_BITS {
        write!(text, "; server_max_window_bits={}", params.to_client.window_bits)
            .expect("writing to a String succeeds");
    }
    if !params.to_server.takeover {
        text.push_str("; client_no_context_takeover");
    }
    if !params.to_client.takeover && !params.shared {
        text.push_str("; server_no_context_takeover");
    }
    text
}

/// Chooses among the offers in a client's header: the value of the server's header and the agreed
/// parameters, or `None` if the server declines. Unknown, duplicate and malformed parameters
/// decline their offer (RFC 7692 §7.1).
///
/// Of several `enabled` parameters the first whose takeover suits the offer counts, else the first.
///
/// ```
/// use tungstenite_deflate::{DeflateParams, negotiate::accept};
///
/// let offer = "permessage-deflate; server_no_context_takeover";
/// let (answer, agreed) = accept(offer, &[DeflateParams::DEFAULT])?.unwrap();
/// assert_eq!(answer, "permessage-deflate; server_no_context_takeover");
/// assert!(!agreed.to_client.takeover && agreed.to_server.takeover);
///
/// assert_eq!(accept("permessage-bzip2", &[DeflateParams::DEFAULT])?, None);
/// # Ok::<(), tungstenite_deflate::negotiate::NegotiationError>(())
/// ```
///
/// # Errors
/// A header outside the grammar, which fails the handshake (RFC 6455 §9.1).
pub fn accept(
    header: &str,
    enabled: &[DeflateParams],
) -> Result<Option<(String, DeflateParams)>, NegotiationError> {
    let offers = header::parse(header).map_err(NegotiationError)?;
    let deflate = offers.iter().filter(|extension| extension.name == PERMESSAGE_DEFLATE);
    Ok(deflate
        .filter_map(|extension| Parameters::read(&extension.parameters, Role::Offer).ok())
        .find_map(|offer| accept_one(&offer, enabled)))
}

fn accept_one(offer: &Parameters, enabled: &[DeflateParams]) -> Option<(String, DeflateParams)> {
    let refuses_takeover = offer.server_no_context_takeover && offer.client_no_context_takeover;
    let suits = |params: &&DeflateParams| params.to_client.takeover != refuses_takeover;
    let params = enabled.iter().find(suits).or_else(|| enabled.first())?;
    // zlib cannot compress with a window of 8, and one of 9 exceeds what the client can read.
    let server_limit = offer.server_max_window_bits.unwrap_or(MAX_WINDOW_BITS);
    if server_limit < MIN_WINDOW_BITS {
        return None;
    }
    let server_bits = params.to_client.window_bits.min(server_limit);
    let client_limit = offer.client_max_window_bits.map(|bits| bits.min(params.to_server.window_bits));

    let server_takeover = params.to_client.takeover && !offer.server_no_context_takeover;
    let client_takeover = params.to_server.takeover && !offer.client_no_context_takeover;
    let mut answer = PERMESSAGE_DEFLATE.to_owned();
    if !server_takeover {
        answer.push_str("; server_no_context_takeover");
    }
    if !client_takeover {
        answer.push_str("; client_no_context_takeover");
    }
    if offer.server_max_window_bits.is_some() {
        write!(answer, "; server_max_window_bits={server_bits}").expect("writing to a String succeeds");
    }
    if let Some(bits) = client_limit.filter(|&bits| bits < MAX_WINDOW_BITS) {
        write!(answer, "; client_max_window_bits={bits}").expect("writing to a String succeeds");
    }
    let agreed = DeflateParams {
        to_client: Direction { takeover: server_takeover, window_bits: server_bits, ..params.to_client },
        to_server: Direction {
            takeover: client_takeover,
            window_bits: client_limit.unwrap_or(MAX_WINDOW_BITS).max(MIN_WINDOW_BITS),
            ..params.to_server
        },
        ..*params
    };
    Some((answer, agreed))
}

/// Checks the server's header against the [`offer`] of the same parameters; `offered` is `None` for
/// a client that offered nothing. Returns the agreed parameters, or `None` if the server declined.
///
/// ```
/// use tungstenite_deflate::{DeflateParams, negotiate::check_answer};
///
/// let offered = DeflateParams::DEFAULT;
/// let agreed = check_answer("permessage-deflate; client_max_window_bits=10", Some(&offered))?.unwrap();
/// assert_eq!(agreed.to_server.window_bits, 10);
/// assert_eq!(check_answer("", Some(&offered))?, None);
/// # Ok::<(), tungstenite_deflate::negotiate::NegotiationError>(())
/// ```
///
/// # Errors
/// An answer that was not offered or does not fit the offer, which fails the handshake (RFC 7692
/// §7.1). A client that is asked for a window of 8, with which zlib cannot compress, sends every
/// message uncompressed.
pub fn check_answer(
    header: &str,
    offered: Option<&DeflateParams>,
) -> Result<Option<DeflateParams>, NegotiationError> {
    check_extensions(&header::parse(header).map_err(NegotiationError)?, offered).map_err(NegotiationError)
}

fn check_extensions(
    extensions: &[Extension<'_>],
    offered: Option<&DeflateParams>,
) -> Result<Option<DeflateParams>, String> {
    let extension = match extensions {
        [] => return Ok(None),
        [extension] => extension,
        _ => return Err("more than one extension in the answer".into()),
    };
    let Some(params) = offered.filter(|_| extension.name == PERMESSAGE_DEFLATE) else {
        return Err(format!(
            "the server answered with the extension {:?}, which was not offered",
            extension.name
        ));
    };
    let answer = Parameters::read(&extension.parameters, Role::Answer)?;
    let server_bits = answer.server_max_window_bits;
    let server_limit = params.to_client.window_bits;
    if server_limit < MAX_WINDOW_BITS && server_bits.is_none_or(|bits| bits > server_limit) {
        return Err(format!("the server did not grant server_max_window_bits={server_limit}"));
    }
    if !params.to_client.takeover && !params.shared && !answer.server_no_context_takeover {
        return Err("the server did not grant server_no_context_takeover".into());
    }
    let client_limit = answer.client_max_window_bits.unwrap_or(MAX_WINDOW_BITS);
    let client_bits = params.to_server.window_bits.min(client_limit);
    // RFC 7692 §6 lets a client compress no message at all.
    let compresses = client_bits >= MIN_WINDOW_BITS;
    Ok(Some(DeflateParams {
        to_client: Direction {
            takeover: !answer.server_no_context_takeover,
            window_bits: server_bits.unwrap_or(MAX_WINDOW_BITS).max(MIN_WINDOW_BITS),
            ..params.to_client
        },
        to_server: Direction {
            takeover: params.to_server.takeover && !answer.client_no_context_takeover,
            window_bits: client_bits.max(MIN_WINDOW_BITS),
            min_bytes: if compresses { params.to_server.min_bytes } else { usize::MAX },
        },
        ..*params
    }))
}

/// The four parameters of RFC 7692 §7.1.
#[derive(Debug, Default)]
struct Parameters {
    server_no_context_takeover: bool,
    client_no_context_takeover: bool,
    server_max_window_bits: Option<u8>,
    client_max_window_bits: Option<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Role {
    Offer,
    Answer,
}

impl Parameters {
    fn read(list: &[(&str, Option<String>)], role: Role) -> Result<Parameters, String> {
        let mut read = Parameters::default();
        for (name, value) in list {
            let value = value.as_deref();
            let is_new = match *name {
                "server_no_context_takeover" => flag(&mut read.server_no_context_takeover, name, value)?,
                "client_no_context_takeover" => flag(&mut read.client_no_context_takeover, name, value)?,
                "server_max_window_bits" => {
                    read.server_max_window_bits.replace(window_bits(name, value)?).is_none()
                }
                // Without a value, in an offer only: the client understands the parameter (RFC 7692
                // §7.1.2.2).
                "client_max_window_bits" => {
                    let bits = match value {
                        None if role == Role::Offer => MAX_WINDOW_BITS,
                        value => window_bits(name, value)?,
                    };
                    read.client_max_window_bits.replace(bits).is_none()
                }
                _ => return Err(format!("unknown parameter {name:?} of {PERMESSAGE_DEFLATE}")),
            };
            if !is_new {
                return Err(format!("parameter {name:?} of {PERMESSAGE_DEFLATE} occurs twice"));
            }
        }
        Ok(read)
    }
}

fn flag(slot: &mut bool, name: &str, value: Option<&str>) -> Result<bool, String> {
    match value {
        Some(value) => Err(format!("parameter {name:?} takes no value, got {value:?}")),
        None => Ok(!std::mem::replace(slot, true)),
    }
}

/// 8 to 15 in decimal without leading zeros (RFC 7692 §7.1.2).
fn window_bits(name: &str, value: Option<&str>) -> Result<u8, String> {
    let value = value.unwrap_or_default();
    let bits = value.parse().ok().filter(|bits| (8..=MAX_WINDOW_BITS).contains(bits));
    bits.filter(|bits: &u8| bits.to_string() == value)
        .ok_or_else(|| format!("parameter {name:?} must be 8 to 15, got {value:?}"))
}
