//! JSON exactly as NIP-01 has it, through serde_json.
//!
//! ```text
//! event    {"id":"…64","pubkey":"…64","created_at":N,"kind":N,"tags":[["…",…],…],"content":"…","sig":"…128"}
//! client   ["EVENT",e] ["REQ",sub,filter…] ["CLOSE",sub] ["AUTH",e] ["COUNT",sub,filter…]
//!          ["NEG-OPEN",sub,filter,"hex…"] ["NEG-MSG",sub,"hex…"] ["NEG-CLOSE",sub]
//! relay    ["EVENT",sub,e] ["OK",id,bool,text] ["EOSE",sub] ["EOSE",sub,["finish"|"more",…]] ["CLOSED",sub,text]
//!          ["NOTICE",text] ["AUTH",challenge] ["COUNT",sub,{"count":N,"approximate":true,"hll":"…512"}]
//!          ["NEG-MSG",sub,"hex…"] ["NEG-ERR",sub,text] ["EVENTS",sub,[e,…]]
//! ```
//!
//! Written compactly in this field order: real clients scan the first bytes of a frame for verb and
//! subscription. Escapes are serde_json's, the ones every deployed implementation hashes. Read in
//! any field order, unknown event fields ignored, duplicates and capitals in hex refused.
//!
//! Costs of the library: serde_json checks UTF-8 and numbers generically, and ids pass through a
//! stack buffer as hex text. `tuned.rs` reads and writes events without it.

mod canonical;
mod cursor;
mod escape;
mod filter;
mod item;
mod read;
mod tuned;
mod words;
mod write;

use std::{cell::Cell, marker::PhantomData};

use serde::{Deserialize, Serialize, de::DeserializeSeed};

pub(super) use self::canonical::is_canonical;
pub(super) use self::item::Text;
pub(super) use self::tuned::{TunedJson, read_tuned_array};
use self::{
    read::{ClientSeed, EventArray, Known, OwnedEvent},
    write::{CountJson, EventJson, FilterJson, Request},
};
use crate::{
    ClientMessage, Codec, DecodeError, EncodeError, EoseHints, Event, EventCodec, Limits, RelayMessage,
    codec::{all_or_nothing, assert_batch},
    formats::tuned::Tuned,
    hex, text,
};

/// The tuned reader does not take the form; the library distinguishes unusual from wrong.
const UNUSUAL: DecodeError = DecodeError::Malformed("JSON");

#[derive(Debug)]
pub(super) struct Json;

impl EventCodec for Json {
    fn encode_event(&self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        write(&EventJson(event), out)
    }

    fn decode_event<'a>(&self, bytes: &'a [u8]) -> Result<Event<'a>, DecodeError> {
        read::<OwnedEvent<'a>>(bytes).map(|event| event.0)
    }
}

impl Codec for Json {
    fn encode_client(&self, message: &ClientMessage<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match message {
            ClientMessage::Event(event) => write(&("EVENT", EventJson(event)), out),
            ClientMessage::Auth(event) => write(&("AUTH", EventJson(event)), out),
            ClientMessage::Close { subscription } => write(&("CLOSE", subscription), out),
            ClientMessage::Req { subscription, filters } => {
                write(&Request("REQ", subscription, filters), out)
            }
            ClientMessage::Count { subscription, filters } => {
                write(&Request("COUNT", subscription, filters), out)
            }
            ClientMessage::NegOpen { subscription, filter, message } => {
                write(&("NEG-OPEN", subscription, FilterJson(filter), hex::encode(message)), out)
            }
            ClientMessage::NegMsg { subscription, message } => {
                write(&("NEG-MSG", subscription, hex::encode(message)), out)
            }
            ClientMessage::NegClose { subscription } => write(&("NEG-CLOSE", subscription), out),
        }
    }

    fn decode_client_within<'a>(
        &self,
        bytes: &'a [u8],
        limits: &Limits,
    ) -> Result<ClientMessage<'a>, DecodeError> {
        let over = Cell::new(None);
        let read = read_seed(bytes, ClientSeed { limits, over: &over });
        read.map_err(|error| over.take().map_or(error, DecodeError::from))?.into_result()
    }

    fn encode_relay(&self, message: &RelayMessage<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match message {
            RelayMessage::Event { subscription, event } => {
                write(&("EVENT", subscription, EventJson(event)), out)
            }
            RelayMessage::Ok { id, accepted, text } => {
                let mut buffer = [0; 64];
                write(&("OK", hex::encode_array(id, &mut buffer), accepted, text), out)
            }
            RelayMessage::Eose { subscription, hints } if *hints == EoseHints::default() => {
                write(&("EOSE", subscription), out)
            }
            RelayMessage::Eose { subscription, hints } => {
                let words: Vec<_> = [(hints.finish, "finish"), (hints.more, "more")]
                    .into_iter()
                    .filter_map(|(set, word)| set.then_some(word))
                    .collect();
                write(&("EOSE", subscription, words), out)
            }
            RelayMessage::Closed { subscription, text } => write(&("CLOSED", subscription, text), out),
            RelayMessage::Notice { text } => write(&("NOTICE", text), out),
            RelayMessage::Auth { challenge } => write(&("AUTH", challenge), out),
            RelayMessage::Count { subscription, count, approximate, hll } => {
                let body = CountJson { count: *count, approximate: *approximate, hll: hll.as_deref() };
                write(&("COUNT", subscription, body), out)
            }
            RelayMessage::NegMsg { subscription, message } => {
                write(&("NEG-MSG", subscription, hex::encode(message)), out)
            }
            RelayMessage::NegErr { subscription, text } => write(&("NEG-ERR", subscription, text), out),
            RelayMessage::Events { events, .. } if events.is_empty() => {
                let what = "EVENTS without an event";
                Err(EncodeError::Unrepresentable { format: "json", what })
            }
            RelayMessage::Events { subscription, events } => {
                let events: Vec<_> = events.iter().map(EventJson).collect();
                write(&("EVENTS", subscription, events), out)
            }
        }
    }

    fn decode_relay<'a>(&self, bytes: &'a [u8]) -> Result<RelayMessage<'a>, DecodeError> {
        read::<Known<RelayMessage<'a>>>(bytes)?.into_result()
    }

    fn event_in<'a>(&self, message: &'a [u8]) -> Option<&'a [u8]> {
        Tuned(TunedJson).event_in(message)
    }

    fn around_event(&self, subscription: &str, _event: &[u8], out: &mut Vec<u8>) -> &'static [u8] {
        out.extend_from_slice(b"[\"EVENT\",");
        serde_json::to_writer(&mut *out, subscription).expect("text always serializes into memory");
        out.push(b',');
        b"]"
    }

    fn wrap_events(&self, subscription: &str, events: &[&[u8]], out: &mut Vec<u8>) {
        assert_batch(events);
        out.extend_from_slice(b"[\"EVENTS\",");
        serde_json::to_writer(&mut *out, subscription).expect("text always serializes into memory");
        push_batch(events, out);
    }
}

/// The events of an array.
pub(super) fn read_array(bytes: &[u8]) -> Result<Vec<Event<'_>>, DecodeError> {
    read::<EventArray<'_>>(bytes).map(|array| array.0)
}

/// The part of EVENTS after the subscription.
fn push_batch(events: &[&[u8]], out: &mut Vec<u8>) {
    for (index, event) in events.iter().enumerate() {
        out.extend_from_slice(if index == 0 { b",[" } else { b"," });
        out.extend_from_slice(event);
    }
    out.extend_from_slice(b"]]");
}

fn write(value: &impl Serialize, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    all_or_nothing(out, |out| {
        serde_json::to_writer(out, value).map_err(|error| EncodeError::Library(error.to_string()))
    })
}

fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, DecodeError> {
    read_seed(bytes, PhantomData)
}

fn read_seed<'a, S: DeserializeSeed<'a>>(bytes: &'a [u8], seed: S) -> Result<S::Value, DecodeError> {
    // Once for the whole message: from_slice would check text by text, and not at all inside
    // ignored fields.
    let text = text::checked(bytes, "message")?;
    let mut json = serde_json::Deserializer::from_str(text);
    let value = seed.deserialize(&mut json).and_then(|value| json.end().map(|()| value));
    value.map_err(|error| DecodeError::library(&words::describe(&error)))
}
