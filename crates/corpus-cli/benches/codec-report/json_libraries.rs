//! JSON through other libraries: NIP-01's objects for serde, read into the fields of an event.
//!
//! Each reads what `codecs` reads: ids, keys and signatures as bytes, text borrowed where it
//! has no escape, fields in any order. Refusals are each library's own.

use std::{
    borrow::{Borrow, Cow},
    cell::RefCell,
    fmt,
    hint::black_box,
};

use codecs::{Codec, Event, EventHead, RelayMessage, hex};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, Visitor},
    ser::SerializeStruct,
};

use crate::what::{Pass, SUBSCRIPTION, What};

/// Beside serde_json, which is `library`, and tuned code.
pub(crate) const OTHERS: [&str; 2] = ["sonic-rs", "simd-json"];

/// The event for a JSON library that knows serde, in the same order of fields.
pub(crate) struct AsJson<'e>(pub(crate) &'e Event<'e>);

impl Serialize for AsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let event = self.0;
        let (mut key, mut sig) = ([0; 64], [0; 128]);
        let mut object = serializer.serialize_struct("Event", 7)?;
        object.serialize_field("id", hex::encode_array(&event.id, &mut key))?;
        object.serialize_field("pubkey", hex::encode_array(&event.pubkey, &mut key))?;
        object.serialize_field("created_at", &event.created_at)?;
        object.serialize_field("kind", &event.kind)?;
        object.serialize_field("tags", &event.tags)?;
        object.serialize_field("content", &event.content)?;
        object.serialize_field("sig", hex::encode_array(&event.sig, &mut sig))?;
        object.end()
    }
}

/// Text that borrows unless it had an escape.
struct Text<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// Bytes as lowercase hex.
struct Hex<const N: usize>([u8; N]);

impl<'de, const N: usize> Deserialize<'de> for Hex<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HexVisitor<const N: usize>;
        impl<const N: usize> Visitor<'_> for HexVisitor<N> {
            type Value = Hex<N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{N} bytes in lowercase hex")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Hex<N>, E> {
                hex::decode_array(text.as_bytes()).map(Hex).ok_or_else(|| E::custom("not lowercase hex"))
            }
        }
        deserializer.deserialize_str(HexVisitor)
    }
}

#[derive(Deserialize)]
struct WholeEvent<'a> {
    id: Hex<32>,
    pubkey: Hex<32>,
    created_at: i64,
    kind: u16,
    #[serde(borrow)]
    tags: Vec<Vec<Text<'a>>>,
    #[serde(borrow)]
    content: Text<'a>,
    sig: Hex<64>,
}

impl<'a> From<WholeEvent<'a>> for Event<'a> {
    fn from(event: WholeEvent<'a>) -> Self {
        let WholeEvent { id, pubkey, created_at, kind, tags, content, sig } = event;
        // As large as what it becomes, so the vectors are turned in place.
        let tags = tags.into_iter().map(|tag| tag.into_iter().map(|text| text.0).collect()).collect();
        Event { id: id.0, pubkey: pubkey.0, created_at, kind, tags, content: content.0, sig: sig.0 }
    }
}

/// The fields that filters look at; the other fields are passed over.
#[derive(Deserialize)]
struct ThreeFields {
    pubkey: Hex<32>,
    created_at: i64,
    kind: u16,
}

/// A relay's EVENT.
#[derive(Deserialize)]
struct Delivery<'a>(#[serde(borrow)] Text<'a>, #[serde(borrow)] Text<'a>, #[serde(borrow)] WholeEvent<'a>);

/// The calls of a library: read a value, write a value. simd-json decodes in place, so each of its
/// reads is of a copy, and the copy is timed.
macro_rules! library {
    ($name:ident, $read:expr, $write:expr) => {
        mod $name {
            use super::*;

            pub(super) fn write<'e, E: Borrow<Event<'static>>>(events: &'e [E], what: What) -> Pass<'e> {
                Box::new(move |buffer, members| {
                    for at in members {
                        buffer.clear();
                        let event = AsJson(black_box(events[*at].borrow()));
                        let written = match what {
                            What::Encode => $write(&mut *buffer, &event),
                            _ => $write(&mut *buffer, &("EVENT", SUBSCRIPTION, event)),
                        };
                        written.expect("JSON holds every event");
                        black_box(&*buffer);
                    }
                    members.len()
                })
            }

            pub(super) fn read<'e>(frames: &'e [Vec<u8>], what: What) -> Pass<'e> {
                let scratch = RefCell::new(Scratch::default());
                Box::new(move |_, members| {
                    let mut scratch = scratch.borrow_mut();
                    for at in members {
                        let frame = black_box(&frames[*at]);
                        match what {
                            What::Decode => drop(black_box(event(frame, &mut scratch))),
                            What::ThreeFields => drop(black_box(three_fields(frame, &mut scratch))),
                            _ => drop(black_box(delivery(frame, &mut scratch))),
                        }
                    }
                    members.len()
                })
            }

            pub(super) fn event<'a>(frame: &'a [u8], scratch: &'a mut Scratch) -> Option<Event<'a>> {
                $read(frame, scratch).map(|event: WholeEvent<'a>| event.into())
            }

            pub(super) fn three_fields(frame: &[u8], scratch: &mut Scratch) -> Option<([u8; 32], i64, u16)> {
                $read(frame, scratch)
                    .map(|ThreeFields { pubkey, created_at, kind }| (pubkey.0, created_at, kind))
            }

            pub(super) fn delivery<'a>(
                frame: &'a [u8],
                scratch: &'a mut Scratch,
            ) -> Option<(Cow<'a, str>, Event<'a>)> {
                $read(frame, scratch).and_then(|Delivery(verb, subscription, event): Delivery<'a>| {
                    (verb.0 == "EVENT").then(|| (subscription.0, event.into()))
                })
            }
        }
    };
}

/// Buffers of simd-json.
#[derive(Default)]
struct Scratch {
    copy: Vec<u8>,
    buffers: simd_json::Buffers,
}

fn read_in_place<'a, T: Deserialize<'a>>(frame: &[u8], scratch: &'a mut Scratch) -> Option<T> {
    scratch.copy.clear();
    scratch.copy.extend_from_slice(frame);
    simd_json::serde::from_slice_with_buffers(&mut scratch.copy, &mut scratch.buffers).ok()
}

fn read_by_serde_json<'a, T: Deserialize<'a>>(frame: &'a [u8], _: &'a mut Scratch) -> Option<T> {
    serde_json::from_slice(frame).ok()
}

fn read_by_sonic<'a, T: Deserialize<'a>>(frame: &'a [u8], _: &'a mut Scratch) -> Option<T> {
    sonic_rs::from_slice(frame).ok()
}

library!(by_serde_json, read_by_serde_json, serde_json::to_writer);
library!(by_sonic, read_by_sonic, sonic_rs::to_writer);
library!(by_simd_json, read_in_place, simd_json::to_writer);

/// A row of a JSON library that is not in `codecs`; for serde_json only the three fields, which its
/// codec does not read by themselves.
pub(crate) fn pass<'e, E: Borrow<Event<'static>>>(
    by: &str,
    what: What,
    events: &'e [E],
    frames: &'e [Vec<u8>],
    deliveries: &'e [Vec<u8>],
) -> Pass<'e> {
    let frames = if what == What::DecodeMessage { deliveries } else { frames };
    let writes = matches!(what, What::Encode | What::EncodeMessage);
    match (by, writes) {
        ("sonic-rs", true) => by_sonic::write(events, what),
        ("sonic-rs", false) => by_sonic::read(frames, what),
        ("simd-json", true) => by_simd_json::write(events, what),
        ("simd-json", false) => by_simd_json::read(frames, what),
        (_, true) => by_serde_json::write(events, what),
        (_, false) => by_serde_json::read(frames, what),
    }
}

/// The three fields by tuned code, which reads the whole head.
pub(crate) fn tuned_three_fields<'e>(codec: &'static dyn Codec, frames: &'e [Vec<u8>]) -> Pass<'e> {
    Box::new(move |_, members| {
        for at in members {
            black_box(codec.peek(black_box(&frames[*at])).map(|head: EventHead| {
                let EventHead { pubkey, created_at, kind, .. } = head;
                (pubkey, created_at, kind)
            }))
            .ok();
        }
        members.len()
    })
}

/// Fails unless every library reads what `codecs` wrote as the same event, and writes the same.
pub(crate) fn check<E: Borrow<Event<'static>>>(
    events: &[E],
    frames: &[Vec<u8>],
    deliveries: &[Vec<u8>],
) -> anyhow::Result<()> {
    let mut scratch = Scratch::default();
    let events = events.iter().map(Borrow::borrow);
    for ((event, frame), delivery) in events.zip(frames).zip(deliveries) {
        let id = hex::encode(&event.id);
        let three = Some((event.pubkey, event.created_at, event.kind));
        let mut written = [Vec::new(), Vec::new()];
        sonic_rs::to_writer(&mut written[0], &AsJson(event))?;
        simd_json::to_writer(&mut written[1], &AsJson(event))?;
        macro_rules! same {
            ($name:ident) => {
                let label = stringify!($name);
                let read = $name::event(frame, &mut scratch);
                anyhow::ensure!(read.as_ref() == Some(event), "{label} reads event {id} otherwise");
                let read = $name::three_fields(frame, &mut scratch);
                anyhow::ensure!(read == three, "{label} reads three fields of event {id} otherwise");
                let read = $name::delivery(delivery, &mut scratch);
                let same = matches!(&read, Some((sub, read)) if sub == SUBSCRIPTION && read == event);
                anyhow::ensure!(same, "{label} reads the message of event {id} otherwise");
            };
        }
        same!(by_serde_json);
        same!(by_sonic);
        same!(by_simd_json);
        for (by, written) in OTHERS.iter().zip(&written) {
            let read = by_serde_json::event(written, &mut scratch);
            anyhow::ensure!(read.as_ref() == Some(event), "{by} writes event {id} otherwise");
        }
    }
    Ok(())
}

/// The relay's EVENT of every event in JSON.
pub(crate) fn deliveries<E: Borrow<Event<'static>>>(codec: &dyn Codec, events: &[E]) -> Vec<Vec<u8>> {
    let deliver = |event: &E| {
        let event = Cow::Borrowed(event.borrow());
        let mut out = Vec::new();
        codec
            .encode_relay(&RelayMessage::Event { subscription: SUBSCRIPTION.into(), event }, &mut out)
            .expect("events that the format cannot hold were set aside");
        out
    };
    events.iter().map(deliver).collect()
}
