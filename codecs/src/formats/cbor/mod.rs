//! Code that the three CBOR formats (RFC 8949) share: the strict profile, names, events, filters
//! and whole messages, read and written through ciborium's serde interface.
//!
//! ```text
//! numbers  client   [1,event] [2,sub,filter…] [3,sub] [4,event] [5,sub,filter…]
//!                   [6,sub,filter,bytes] [7,sub,bytes] [8,sub]
//!          relay    [1,sub,event] [2,id,bool,text] [3,sub] [3,sub,[hint…]] [4,sub,text] [5,text] [6,challenge]
//!                   [7,sub,count] [7,sub,count,true] [7,sub,count,approximate,hll] [8,sub,bytes] [9,sub,text]
//!                   [10,sub,[event…]]
//!          filter   {1:[id…] 2:[author…] 3:[kind…] 4:since 5:until 6:limit 7:search 8:{"e":[value…]…}}
//! spelled  client   ["EVENT",event] ["REQ",sub,filter…] ["CLOSE",sub] ["AUTH",event] ["COUNT",sub,filter…]
//!                   ["NEG-OPEN",sub,filter,bytes] ["NEG-MSG",sub,bytes] ["NEG-CLOSE",sub]
//!          relay    ["EVENT",sub,event] ["OK",id,bool,text] ["EOSE",sub] ["EOSE",sub,[hint…]]
//!                   ["CLOSED",sub,text] ["NOTICE",text] ["AUTH",challenge]
//!                   ["COUNT",sub,count] and so on as above; "NEG-MSG", "NEG-ERR", "EVENTS" likewise
//!          filter   {"ids":[id…] "authors":[…] "kinds":[…] "since":… "until":… "limit":… "search":… "#e":[value…]…}
//! ```
//!
//! cbor-packed and cbor-intkey speak in numbers, the opcodes without their high bit;
//! cbor-schemaless spells JSON's verbs and field names. In all three, ids and keys are byte strings
//! of 32, also in filters and OK, `hll` is one of 256, and hints are the text strings of NIP-67.
//!
//! Strict profile: [`strict::check`] sees the bytes first and refuses whatever RFC 8949 allows
//! besides the preferred serialization (and tags, floats, null); ciborium then builds the message
//! and refuses wrong types. Fields stand in the order above. Optional parts are left out where they
//! say nothing: an empty hint list, a lone `false`, an empty map 8 are not canonical. Hints ascend,
//! and unknown ones are ignored (NIP-67 lets relays add words). Unknown filter fields may stand
//! anywhere and are reported, so that a relay can answer CLOSED. The schema is `schema/nostr.cddl`.
//!
//! Costs of the library: ciborium never lends from its input, so every text is owned, read
//! through a 4 KiB buffer that it clears for each message; the strict walk reads every head a
//! second time. `tuned.rs` reads and writes events without it.

mod event;
mod filter;
mod head;
mod item;
mod limits;
mod message;
mod strict;
mod tuned;

use std::{fmt, marker::PhantomData};

use serde::{Deserializer, Serialize, Serializer, de::DeserializeOwned};

pub(super) use event::{Tags, read_map, tags, write_map};
pub(super) use item::{Bytes, Fixed};
pub(super) use tuned::TunedCbor;

use self::{
    head::{ARRAY, read_argument, read_whole, write_head},
    message::{ClientCbor, ReadMessage, RelayCbor},
};
use crate::{
    ClientMessage, Codec, DecodeError, EncodeError, Event, EventCodec, Limits, RelayMessage,
    codec::{all_or_nothing, assert_batch},
    formats::tuned::Tuned,
    reader::Reader,
};

/// The choices of a single CBOR format.
pub(super) trait Dialect: fmt::Debug + Send + Sync + 'static {
    /// Verbs and field names are JSON's words; otherwise numbers.
    const SPELLED: bool;

    /// Tag values that are lowercase hex of even length from 8 digits on travel as byte strings,
    /// and only so.
    const COMPACT: bool;

    /// The head of an event's item: an array or a map of seven.
    const EVENT_HEAD: u8;

    /// The key before each field of an event, in the order of NIP-01.
    const KEYS: [&'static [u8]; 7];

    /// EVENT, in both directions, as it is written.
    const EVENT: &'static [u8] = if Self::SPELLED { b"\x65EVENT" } else { b"\x01" };

    /// A relay's EVENTS as it is written.
    const EVENTS: &'static [u8] = if Self::SPELLED { b"\x66EVENTS" } else { b"\x0a" };

    /// A client's AUTH as it is written.
    const CLIENT_AUTH: &'static [u8] = if Self::SPELLED { b"\x64AUTH" } else { b"\x04" };

    /// Writes the event's item.
    fn write_event<S: Serializer>(event: &Event<'_>, serializer: S) -> Result<S::Ok, S::Error>;

    /// Reads the event's item.
    fn read_event<'de, R: Deserializer<'de>>(deserializer: R) -> Result<Event<'static>, R::Error>;
}

/// A CBOR format through ciborium.
#[derive(Debug)]
pub(super) struct Cbor<D>(PhantomData<D>);

impl<D> Cbor<D> {
    pub(super) const NEW: Self = Cbor(PhantomData);
}

impl<D: Dialect> EventCodec for Cbor<D> {
    fn encode_event(&self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        write(&EventCbor::<D>::new(event), out)
    }

    fn decode_event<'a>(&self, bytes: &'a [u8]) -> Result<Event<'a>, DecodeError> {
        read::<OwnedEvent<D>>(bytes).map(|event| event.0)
    }
}

impl<D: Dialect> Codec for Cbor<D> {
    fn encode_client(&self, message: &ClientMessage<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        write(&ClientCbor::<D>::new(message), out)
    }

    fn decode_client_within<'a>(
        &self,
        bytes: &'a [u8],
        limits: &Limits,
    ) -> Result<ClientMessage<'a>, DecodeError> {
        strict::check(bytes)?;
        limits::check::<D>(bytes, limits)?;
        build::<ReadMessage<D, ClientMessage<'a>>>(bytes)?.0
    }

    fn encode_relay(&self, message: &RelayMessage<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        write(&RelayCbor::<D>::new(message), out)
    }

    fn decode_relay<'a>(&self, bytes: &'a [u8]) -> Result<RelayMessage<'a>, DecodeError> {
        read::<ReadMessage<D, RelayMessage<'a>>>(bytes)?.0
    }

    fn event_in<'a>(&self, message: &'a [u8]) -> Option<&'a [u8]> {
        Tuned(TunedCbor::<D>::NEW).event_in(message)
    }

    fn around_event(&self, subscription: &str, _event: &[u8], out: &mut Vec<u8>) -> &'static [u8] {
        const ARRAY_OF_3: u8 = 0x83;
        out.push(ARRAY_OF_3);
        write(&message::relay::EVENT.written(D::SPELLED), out).expect("a name always serializes into memory");
        write(&subscription, out).expect("text always serializes into memory");
        &[]
    }

    fn wrap_events(&self, subscription: &str, events: &[&[u8]], out: &mut Vec<u8>) {
        const ARRAY_OF_3: u8 = 0x83;
        assert_batch(events);
        out.push(ARRAY_OF_3);
        write(&message::relay::EVENTS.written(D::SPELLED), out)
            .expect("a name always serializes into memory");
        write(&subscription, out).expect("text always serializes into memory");
        head::write_head(head::ARRAY, events.len() as u64, out);
        events.iter().for_each(|event| out.extend_from_slice(event));
    }
}

/// Writes the head of an array of `len` items.
pub(super) fn write_array_head(len: usize, out: &mut Vec<u8>) {
    write_head(ARRAY, len as u64, out);
}

/// Calls `each` with the bytes of every item of an array that fills `bytes`. The caller checks what is
/// in the items.
pub(super) fn read_array<'a>(
    bytes: &'a [u8],
    mut each: impl FnMut(&'a [u8]) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut reader = Reader::new(bytes);
    for _ in 0..read_argument(&mut reader, ARRAY, "array of events")? {
        each(read_whole(&mut reader, |_| Ok(()))?)?;
    }
    reader.finish()
}

fn write(value: &impl Serialize, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    use ciborium::ser::Error;
    all_or_nothing(out, |out| {
        ciborium::into_writer(value, out).map_err(|error| match error {
            Error::Io(error) => EncodeError::Library(error.to_string()),
            Error::Value(reason) => EncodeError::Library(reason),
        })
    })
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    strict::check(bytes)?;
    build(bytes)
}

/// Reads bytes that the strict walk has accepted.
fn build<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, DecodeError> {
    use ciborium::de::Error;
    ciborium::from_reader(bytes).map_err(|error| match error {
        Error::Io(_) => DecodeError::Truncated("a CBOR item"),
        // The strict walk accepted every head, so only the text between them can be at fault.
        Error::Syntax(_) => DecodeError::Utf8("text"),
        Error::Semantic(_, reason) => DecodeError::library(&reason),
        Error::RecursionLimitExceeded => DecodeError::Malformed("nesting"),
    })
}

struct EventCbor<'e, D>(&'e Event<'e>, PhantomData<D>);

impl<'e, D> EventCbor<'e, D> {
    fn new(event: &'e Event<'e>) -> Self {
        EventCbor(event, PhantomData)
    }
}

impl<D: Dialect> Serialize for EventCbor<'_, D> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        D::write_event(self.0, serializer)
    }
}

struct OwnedEvent<D>(Event<'static>, PhantomData<D>);

impl<'de, D: Dialect> serde::Deserialize<'de> for OwnedEvent<D> {
    fn deserialize<R: Deserializer<'de>>(deserializer: R) -> Result<Self, R::Error> {
        D::read_event(deserializer).map(|event| OwnedEvent(event, PhantomData))
    }
}

impl<D> From<OwnedEvent<D>> for Event<'static> {
    fn from(event: OwnedEvent<D>) -> Self {
        event.0
    }
}
