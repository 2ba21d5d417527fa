//! Reads a message that does not decode as far as it takes to answer it.

use std::{borrow::Cow, fmt};

use codecs::{Codec, DecodeError, Limits, Opcode, Request, hex};
use serde::{
    Deserializer,
    de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

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
        _ if opcode == Opcode::Text => Start::from_payload(payload).asked(limits),
        _ => None,
    }
}

/// A message's verb, and the subscription or the event's id behind it.
#[derive(Debug, Default)]
struct Start {
    verb: String,
    id: String,
}

impl Start {
    fn from_payload(payload: &[u8]) -> Start {
        let mut start = Start::default();
        // It fails sooner or later: that is why the message was refused.
        let _ = serde_json::Deserializer::from_slice(payload).deserialize_seq(&mut start);
        start
    }

    fn asked(self, limits: &Limits) -> Option<Asked> {
        let named = !self.id.is_empty() && self.id.chars().count() <= limits.max_subscription_chars;
        let request = match self.verb.as_str() {
            "EVENT" => return hex::decode_array(self.id.as_bytes()).map(Asked::Event),
            "AUTH" => return hex::decode_array(self.id.as_bytes()).map(Asked::Auth),
            "NEG-MSG" => return named.then_some(Asked::Round(self.id)),
            "REQ" => Request::Req,
            "COUNT" => Request::Count,
            "NEG-OPEN" => Request::NegOpen,
            _ => return None,
        };
        named.then_some(Asked::Request(request, self.id))
    }
}

impl<'de> Visitor<'de> for &mut Start {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut message: A) -> Result<(), A::Error> {
        self.verb = message.next_element()?.unwrap_or_default();
        message.next_element_seed(Id(&mut self.id)).map(|_| ())
    }
}

/// A subscription's name, or the `id` of an event.
struct Id<'s>(&'s mut String);

impl<'de> DeserializeSeed<'de> for Id<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Id<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name or an event")
    }

    fn visit_str<E>(self, name: &str) -> Result<(), E> {
        name.clone_into(self.0);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut event: A) -> Result<(), A::Error> {
        while let Some(key) = event.next_key::<Cow<'de, str>>()? {
            if key == "id" {
                *self.0 = event.next_value()?;
                break;
            }
            event.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}
