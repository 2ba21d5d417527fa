//! `Sec-WebSocket-Extensions`: the header's grammar (RFC 6455 §9.1) and permessage-deflate in it (RFC 7692 §7.1).

use std::fmt::Write;

use crate::compression::{DeflateParams, Direction};

/// The extension's name on the wire.
pub(crate) const PERMESSAGE_DEFLATE: &str = "permessage-deflate";

/// The smallest window that zlib can compress raw deflate with; RFC 7692 also allows 8.
const MIN_WINDOW_BITS: u8 = 9;
const MAX_WINDOW_BITS: u8 = 15;

/// The offer of a client with these parameters. `server_max_window_bits` is offered only for windows below 15:
/// some servers ignore it, which fails the handshake, and others decline offers of it.
pub(crate) fn offer(params: &DeflateParams) -> String {
    let mut text = PERMESSAGE_DEFLATE.to_owned();
    text.push_str("; client_max_window_bits");
    if params.to_relay.window_bits < MAX_WINDOW_BITS {
        write!(text, "={}", params.to_relay.window_bits).expect("a String takes everything");
    }
    if params.to_client.window_bits < MAX_WINDOW_BITS {
        write!(text, "; server_max_window_bits={}", params.to_client.window_bits)
            .expect("a String takes everything");
    }
    if !params.to_relay.takeover {
        text.push_str("; client_no_context_takeover");
    }
    if !params.to_client.takeover && !params.shared {
        text.push_str("; server_no_context_takeover");
    }
    text
}

/// A relay's choice among the offers in a client's header: the answer's text and what was agreed, or `None`
/// where no offer can be honoured. Unknown, duplicate and malformed parameters decline their offer (RFC 7692
/// §7.1), and the next one is tried.
///
/// # Errors
/// A header outside the grammar, which RFC 6455 §9.1 says must fail the handshake.
pub(crate) fn accept(
    header: &str,
    enabled: &[DeflateParams],
) -> Result<Option<(String, DeflateParams)>, String> {
    let offers = parse(header)?;
    let deflate = offers.iter().filter(|extension| extension.name == PERMESSAGE_DEFLATE);
    Ok(deflate
        .filter_map(|extension| Parameters::read(&extension.parameters, Role::Offer).ok())
        .find_map(|offer| accept_one(&offer, enabled)))
}

fn accept_one(offer: &Parameters, enabled: &[DeflateParams]) -> Option<(String, DeflateParams)> {
    let refuses_takeover = offer.server_no_context_takeover && offer.client_no_context_takeover;
    let suits = |params: &&DeflateParams| params.to_client.takeover != refuses_takeover;
    let params = enabled.iter().find(suits).or_else(|| enabled.first())?;
    // A window of 8 cannot be compressed with, and 9 would exceed what the client can read.
    let server_limit = offer.server_max_window_bits.map_or(MAX_WINDOW_BITS, |bits| bits.value_or_max());
    if server_limit < MIN_WINDOW_BITS {
        return None;
    }
    let server_bits = params.to_client.window_bits.min(server_limit);
    let client_limit =
        offer.client_max_window_bits.map(|bits| bits.value_or_max().min(params.to_relay.window_bits));

    let server_takeover = params.to_client.takeover && !offer.server_no_context_takeover;
    let client_takeover = params.to_relay.takeover && !offer.client_no_context_takeover;
    let mut answer = PERMESSAGE_DEFLATE.to_owned();
    if !server_takeover {
        answer.push_str("; server_no_context_takeover");
    }
    if !client_takeover {
        answer.push_str("; client_no_context_takeover");
    }
    if offer.server_max_window_bits.is_some() {
        write!(answer, "; server_max_window_bits={server_bits}").expect("a String takes everything");
    }
    if let Some(bits) = client_limit.filter(|&bits| bits < MAX_WINDOW_BITS) {
        write!(answer, "; client_max_window_bits={bits}").expect("a String takes everything");
    }
    let agreed = DeflateParams {
        to_client: Direction { takeover: server_takeover, window_bits: server_bits },
        to_relay: Direction {
            takeover: client_takeover,
            window_bits: client_limit.unwrap_or(MAX_WINDOW_BITS).max(MIN_WINDOW_BITS),
        },
        ..*params
    };
    Some((answer, agreed))
}

/// A client's check of the relay's answer to [`offer`] of the same parameters (`None`: it offered nothing).
/// `None` comes back where the relay declined.
///
/// # Errors
/// An answer that was not offered or does not fit the offer: the handshake has failed (RFC 7692 §7.1).
pub(crate) fn check_answer(
    header: &str,
    offered: Option<&DeflateParams>,
) -> Result<Option<DeflateParams>, String> {
    let extensions = parse(header)?;
    let [extension] = extensions.as_slice() else {
        return if extensions.is_empty() {
            Ok(None)
        } else {
            Err("more than one extension in the answer".into())
        };
    };
    let Some(params) = offered.filter(|_| extension.name == PERMESSAGE_DEFLATE) else {
        return Err(format!(
            "the relay answered with the extension {:?}, which was not offered",
            extension.name
        ));
    };
    let answer = Parameters::read(&extension.parameters, Role::Answer)?;
    let server_bits = answer.server_max_window_bits.map(Bits::value_or_max);
    let server_limit = params.to_client.window_bits;
    if server_limit < MAX_WINDOW_BITS && server_bits.is_none_or(|bits| bits > server_limit) {
        return Err(format!("the relay did not grant server_max_window_bits={server_limit}"));
    }
    if !params.to_client.takeover && !params.shared && !answer.server_no_context_takeover {
        return Err("the relay did not grant server_no_context_takeover".into());
    }
    let client_limit = answer.client_max_window_bits.map_or(MAX_WINDOW_BITS, Bits::value_or_max);
    let client_bits = params.to_relay.window_bits.min(client_limit);
    if client_bits < MIN_WINDOW_BITS {
        return Err("the relay asks for client_max_window_bits=8, which zlib cannot compress with".into());
    }
    Ok(Some(DeflateParams {
        to_client: Direction {
            takeover: !answer.server_no_context_takeover,
            window_bits: server_bits.unwrap_or(MAX_WINDOW_BITS).max(MIN_WINDOW_BITS),
        },
        to_relay: Direction {
            takeover: params.to_relay.takeover && !answer.client_no_context_takeover,
            window_bits: client_bits,
        },
        ..*params
    }))
}

/// The four parameters of RFC 7692 §7.1.
#[derive(Debug, Default)]
struct Parameters {
    server_no_context_takeover: bool,
    client_no_context_takeover: bool,
    server_max_window_bits: Option<Bits>,
    client_max_window_bits: Option<Bits>,
}

#[derive(Debug, Clone, Copy)]
enum Bits {
    Unstated,
    Stated(u8),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Role {
    Offer,
    Answer,
}

impl Bits {
    fn value_or_max(self) -> u8 {
        match self {
            Bits::Unstated => MAX_WINDOW_BITS,
            Bits::Stated(bits) => bits,
        }
    }
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
                    read.server_max_window_bits.replace(Bits::Stated(window_bits(name, value)?)).is_none()
                }
                // Only a client's offer may leave the value out: it then says "I understand this parameter".
                "client_max_window_bits" => {
                    let bits = match value {
                        None if role == Role::Offer => Bits::Unstated,
                        value => Bits::Stated(window_bits(name, value)?),
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

/// One element of the header.
#[derive(Debug, PartialEq, Eq)]
struct Extension<'a> {
    name: &'a str,
    /// Values are owned because quoted ones lose their backslashes.
    parameters: Vec<(&'a str, Option<String>)>,
}

fn parse(header: &str) -> Result<Vec<Extension<'_>>, String> {
    let mut cursor = Cursor { rest: header };
    let mut list = Vec::new();
    loop {
        // RFC 7230 §7: recipients of a list accept empty elements.
        while cursor.take(',') {}
        if cursor.is_done() {
            return Ok(list);
        }
        let name = cursor.token()?;
        let mut parameters = Vec::new();
        while cursor.take(';') {
            let name = cursor.token()?;
            let value = if cursor.take('=') { Some(cursor.value()?) } else { None };
            parameters.push((name, value));
        }
        list.push(Extension { name, parameters });
        if !cursor.is_done() && !cursor.take(',') {
            return Err(cursor.malformed("a comma"));
        }
    }
}

/// Reads the header from left to right; white space between elements is skipped.
struct Cursor<'a> {
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    fn is_done(&mut self) -> bool {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
        self.rest.is_empty()
    }

    fn take(&mut self, symbol: char) -> bool {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
        match self.rest.strip_prefix(symbol) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn token(&mut self) -> Result<&'a str, String> {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
        let len = self.rest.bytes().position(|byte| !is_token_byte(byte)).unwrap_or(self.rest.len());
        if len == 0 {
            return Err(self.malformed("a name"));
        }
        let (token, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(token)
    }

    /// A token, or one in quotes, whose content must be a token as well (RFC 6455 §9.1).
    fn value(&mut self) -> Result<String, String> {
        if !self.take('"') {
            return self.token().map(str::to_owned);
        }
        let mut value = String::new();
        let mut chars = self.rest.char_indices();
        while let Some((at, char)) = chars.next() {
            let char = match char {
                '"' if !value.is_empty() => {
                    self.rest = &self.rest[at + 1..];
                    return Ok(value);
                }
                '\\' => chars.next().map_or('"', |(_, escaped)| escaped),
                char => char,
            };
            if !char.is_ascii() || !u8::try_from(char).is_ok_and(is_token_byte) {
                break;
            }
            value.push(char);
        }
        Err(self.malformed("a quoted token"))
    }

    fn malformed(&self, expected: &str) -> String {
        let rest: String = self.rest.chars().take(40).collect();
        format!("malformed Sec-WebSocket-Extensions: expected {expected} at {rest:?}")
    }
}

/// `tchar` of RFC 7230 §3.2.6.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
