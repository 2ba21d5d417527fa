//! Reads a message that does not decode as far as it takes to answer it.

use codecs::{Codec, DecodeError, Limits, Opcode, Request, hex};

/// A request that a client waits for an answer to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Asked {
    /// A request of this name.
    Request(Request, String),
    /// The next round of a reconciliation of this name.
    Round(String),
    /// The outcome for the event with this id.
    Event([u8; 32]),
    /// Whether an AUTH event with this id proves who the client is (NIP-42).
    Auth([u8; 32]),
}

/// Looks for what a refused message asks.
///
/// Requests name themselves before their filters, so that a decoder which allows no filter says
/// their name and reads no further. Formats whose reader checks a message as a whole before it
/// reads it (CBOR, Cap'n Proto) name a request only where that check passes. The id of an event
/// stands inside of what does not decode: text shows it nevertheless, a binary format does not.
pub(crate) fn asked(payload: &[u8], opcode: Opcode, codec: &dyn Codec, limits: &Limits) -> Option<Asked> {
    let no_filters = Limits { max_filters: 0, max_filter_values: 0, ..*limits };
    match codec.decode_client_within(payload, &no_filters) {
        Err(DecodeError::OverLimit(over)) => Some(Asked::Request(over.request, over.subscription)),
        _ if opcode == Opcode::Text => asked_in_text(payload, limits),
        _ => None,
    }
}

/// What a message asks for, by its verb and the name or the event behind it.
fn asked_in_text(payload: &[u8], limits: &Limits) -> Option<Asked> {
    let (verb, rest) = text(payload.trim_ascii_start().strip_prefix(b"[")?)?;
    let rest = rest.trim_ascii_start().strip_prefix(b",")?;
    let request = match verb.as_str() {
        "EVENT" => return id(rest).map(Asked::Event),
        "AUTH" => return id(rest).map(Asked::Auth),
        "NEG-MSG" => None,
        "REQ" => Some(Request::Req),
        "COUNT" => Some(Request::Count),
        "NEG-OPEN" => Some(Request::NegOpen),
        _ => return None,
    };
    let (name, _) = text(rest)?;
    let is_name = !name.is_empty() && name.chars().count() <= limits.max_subscription_chars;
    is_name.then_some(match request {
        Some(request) => Asked::Request(request, name),
        None => Asked::Round(name),
    })
}

/// The text in JSON that begins here, and what is behind it.
fn text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let mut values = serde_json::Deserializer::from_slice(bytes).into_iter();
    let text = values.next()?.ok()?;
    Some((text, &bytes[values.byte_offset()..]))
}

/// The `id` of an event. In a text the quotes of the key would be escaped.
fn id(event: &[u8]) -> Option<[u8; 32]> {
    const KEY: &[u8] = br#""id""#;
    let mut places = (0..event.len()).filter(|at| event[*at..].starts_with(KEY));
    places.find_map(|at| {
        let (id, _) = text(event[at + KEY.len()..].trim_ascii_start().strip_prefix(b":")?)?;
        hex::decode_array(id.as_bytes())
    })
}
