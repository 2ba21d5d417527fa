//! Code that the protobuf formats share: events through prost, their strict profile, and the filters
//! and messages around them.
//!
//! prost reads into and writes from its own struct, which owns every text. Encoding copies each text
//! once into such a struct, and decoding moves texts out. That is what an adopter pays.

mod filter;
mod message;
pub(in crate::formats) mod strict;
mod tuned;

use std::{fmt, marker::PhantomData};

use prost::Message;

use self::message::{BARE_CLIENT, BARE_RELAY, Reading, Writing};
pub(super) use self::tuned::TunedProtobuf;
use crate::{
    ClientMessage, Codec, DecodeError, EncodeError, Event, EventCodec, Limits, RelayMessage,
    codec::assert_batch,
    hex,
    parts::{CLIENT_VERBS, RELAY_VERBS, read_client, read_relay, write_client, write_relay},
    reader::{varint_len, write_varint},
};

/// The choices of a single protobuf format.
pub(super) trait Dialect: fmt::Debug + Send + Sync + 'static {
    /// The format's name, for errors.
    const NAME: &'static str;

    /// Ids, keys and signatures are hex text; otherwise bytes.
    const SPELLED: bool;

    /// Tag values are messages of text or, where it is lowercase hex, bytes; otherwise text.
    const COMPACT: bool;

    /// prost's event.
    type Event: Message + Default;

    fn to_event(event: &Event<'_>) -> Self::Event;

    /// Converts an event that the strict walk has accepted.
    fn from_event(event: Self::Event) -> Result<Event<'static>, DecodeError>;
}

/// An id, a key or a signature in prost's event: bytes, or hex text.
pub(super) trait Key {
    fn from_bytes(bytes: &[u8]) -> Self;
    fn array<const N: usize>(&self) -> Option<[u8; N]>;
}

impl Key for Vec<u8> {
    fn from_bytes(bytes: &[u8]) -> Self {
        bytes.to_vec()
    }

    fn array<const N: usize>(&self) -> Option<[u8; N]> {
        self.as_slice().try_into().ok()
    }
}

impl Key for String {
    fn from_bytes(bytes: &[u8]) -> Self {
        hex::encode(bytes)
    }

    fn array<const N: usize>(&self) -> Option<[u8; N]> {
        hex::decode_array(self.as_bytes())
    }
}

/// A tag's value in prost's event.
pub(super) trait TagValue {
    fn from_text(text: &str) -> Self;
    fn into_text(self) -> String;
}

impl TagValue for String {
    fn from_text(text: &str) -> Self {
        text.to_owned()
    }

    fn into_text(self) -> String {
        self
    }
}

/// Implements the conversions of [`Dialect`] by the generated module `pb`.
macro_rules! conversions {
    () => {
        type Event = pb::Event;

        fn to_event(event: &Event<'_>) -> pb::Event {
            let to_tag = |tag: &Tag<'_>| pb::Tag {
                values: tag.iter().map(|value| TagValue::from_text(value)).collect(),
            };
            pb::Event {
                id: Key::from_bytes(&event.id),
                pubkey: Key::from_bytes(&event.pubkey),
                created_at: event.created_at,
                kind: i32::from(event.kind),
                tags: event.tags.iter().map(to_tag).collect(),
                content: (*event.content).to_owned(),
                sig: Key::from_bytes(&event.sig),
            }
        }

        fn from_event(event: pb::Event) -> Result<Event<'static>, DecodeError> {
            Ok(Event {
                id: event.id.array().ok_or(DecodeError::Malformed("id"))?,
                pubkey: event.pubkey.array().ok_or(DecodeError::Malformed("pubkey"))?,
                created_at: event.created_at,
                kind: u16::try_from(event.kind).map_err(|_| DecodeError::OutOfRange("kind"))?,
                // A String and a Cow<str> are equally large, so the vectors are turned in place.
                tags: event
                    .tags
                    .into_iter()
                    .map(|tag| tag.values.into_iter().map(|value| Cow::Owned(value.into_text())).collect())
                    .collect(),
                content: event.content.into(),
                sig: event.sig.array().ok_or(DecodeError::Malformed("sig"))?,
            })
        }
    };
}
pub(super) use conversions;

/// A protobuf format through prost.
#[derive(Debug)]
pub(super) struct Protobuf<D>(PhantomData<D>);

impl<D> Protobuf<D> {
    pub(super) const NEW: Self = Protobuf(PhantomData);
}

impl<D: Dialect> EventCodec for Protobuf<D> {
    fn encode_event(&self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        D::to_event(event).encode(out).map_err(|error| EncodeError::Library(error.to_string()))
    }

    fn decode_event<'a>(&self, bytes: &'a [u8]) -> Result<Event<'a>, DecodeError> {
        strict::check_event::<D>(bytes)?;
        let event = D::Event::decode(bytes).map_err(|error| DecodeError::Library(error.to_string()))?;
        D::from_event(event)
    }
}

impl<D: Dialect> Codec for Protobuf<D> {
    fn encode_client(&self, message: &ClientMessage<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut parts = Writing::<D>::new(BARE_CLIENT);
        write_client(message, &mut parts)?;
        parts.append_to(out);
        Ok(())
    }

    fn decode_client_within<'a>(
        &self,
        bytes: &'a [u8],
        limits: &Limits,
    ) -> Result<ClientMessage<'a>, DecodeError> {
        let (verb, mut parts) = Reading::<D>::open(bytes, CLIENT_VERBS, BARE_CLIENT)?;
        let message = read_client(verb, &mut parts, limits)?;
        parts.finish()?;
        Ok(message)
    }

    fn encode_relay(&self, message: &RelayMessage<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut parts = Writing::<D>::new(BARE_RELAY);
        write_relay(message, &mut parts)?;
        parts.append_to(out);
        Ok(())
    }

    fn decode_relay<'a>(&self, bytes: &'a [u8]) -> Result<RelayMessage<'a>, DecodeError> {
        let (verb, mut parts) = Reading::<D>::open(bytes, RELAY_VERBS, BARE_RELAY)?;
        let message = read_relay(verb, &mut parts)?;
        parts.finish()?;
        Ok(message)
    }

    /// Writes `RelayMsg { event: SubEvent { sub, event } }` up to the event, which ends it.
    fn around_event(&self, subscription: &str, event: &[u8], out: &mut Vec<u8>) -> &'static [u8] {
        out.push(1 << 3 | 2);
        write_varint((subscription_len(subscription) + sized(event.len())) as u64, out);
        write_subscription(subscription, out);
        out.push(2 << 3 | 2);
        write_varint(event.len() as u64, out);
        &[]
    }

    /// Writes `RelayMsg { events: SubEvents { sub, events } }`.
    fn wrap_events(&self, subscription: &str, events: &[&[u8]], out: &mut Vec<u8>) {
        assert_batch(events);
        let events_len: usize = events.iter().map(|event| sized(event.len())).sum();
        out.push(10 << 3 | 2);
        write_varint((subscription_len(subscription) + events_len) as u64, out);
        write_subscription(subscription, out);
        events.iter().for_each(|event| write_bytes(2 << 3 | 2, event, out));
    }
}

/// Bytes of a field of so many bytes: its key, its length, and itself.
fn sized(len: usize) -> usize {
    1 + varint_len(len as u64) + len
}

fn subscription_len(subscription: &str) -> usize {
    if subscription.is_empty() { 0 } else { sized(subscription.len()) }
}

/// The first field of a message, absent when it is empty.
fn write_subscription(subscription: &str, out: &mut Vec<u8>) {
    if !subscription.is_empty() {
        write_bytes(1 << 3 | 2, subscription.as_bytes(), out);
    }
}

fn write_bytes(key: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.push(key);
    write_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}
