//! Rows of the report: each is one thing done with every event of a column, and timed.

use std::{
    borrow::{Borrow, Cow},
    collections::BTreeMap,
    hint::black_box,
};

use codecs::{Codec, Event, Format, Implementation, RelayMessage};

use crate::{
    escapes::{self, Texts},
    json_libraries,
    sets::{self, EventSet, Sets},
    together::{self, Form, Groups},
    what::{Pass, SUBSCRIPTION, What},
};

/// How often a frame is peeked at in a row for [`What::PeekHot`].
const HOT_PEEKS: usize = 64;
/// Of how many events of a column: enough for a time that a clock can tell.
const HOT_EVENTS: usize = 64;

pub(crate) struct Row<'e> {
    /// Which of [`Sets::sets`].
    pub(crate) set: usize,
    pub(crate) format: &'static str,
    /// Empty for what does not depend on an implementation.
    pub(crate) by: &'static str,
    pub(crate) what: What,
    pub(crate) pass: Pass<'e>,
}

/// The inputs and outputs of rows, made before the first is timed.
pub(crate) struct Inputs {
    /// The bytes of every event in each format.
    frames: BTreeMap<Format, Vec<Vec<u8>>>,
    /// JSON's relay messages.
    deliveries: Vec<Vec<u8>>,
    /// Events with JSON in JSON.
    texts: Vec<Texts>,
    /// For each set.
    messages: Vec<Groups<RelayMessage<'static>>>,
}

impl Inputs {
    /// Encodes everything.
    ///
    /// # Errors
    /// A JSON library that reads or writes an event otherwise than `codecs`.
    pub(crate) fn new(formats: &[Format], sets: &Sets<'_>) -> anyhow::Result<Self> {
        let encoded = |format: Format| -> Vec<Vec<u8>> {
            let codec = format.spec().library;
            sets.for_format(format).events.iter().map(|event| sets::encode(codec, event)).collect()
        };
        let json = sets.for_format(Format::JSON);
        let inputs = Inputs {
            frames: formats.iter().map(|format| (*format, encoded(*format))).collect(),
            deliveries: json_libraries::deliveries(Format::JSON.spec().library, &json.events),
            texts: escapes::texts(json)?,
            messages: sets.sets.iter().map(together::messages).collect(),
        };
        json_libraries::check(&json.events, &inputs.frames[&Format::JSON], &inputs.deliveries)?;
        Ok(inputs)
    }
}

pub(crate) fn rows<'e>(formats: &[Format], sets: &'e Sets<'_>, inputs: &'e Inputs) -> Vec<Row<'e>> {
    let mut rows = Vec::new();
    for format in formats {
        let (set, frames) = (sets.for_format(*format), &inputs.frames[format]);
        let at = sets.of_format[format];
        let mut add = |by, what, pass| rows.push(Row { set: at, format: format.name(), by, what, pass });
        add("", What::Memcpy, memcpy(frames));
        for (by, codec) in sets::codecs_of(*format) {
            let forms = [Some(Form::Message(codec)), format.batch(by).map(Form::Batch)];
            let by = by.name();
            add(by, What::Encode, encode(codec, &set.events));
            add(by, What::Decode, decode(codec, frames));
            add(by, What::KeepBytes, keep_bytes(codec, frames));
            add(by, What::PeekCold, read(frames, move |bytes| peek(codec, bytes)));
            if format.spec().tuned.is_some() && by == "tuned" {
                add(by, What::PeekHot, peek_hot(codec, frames));
            }
            for form in forms.into_iter().flatten() {
                let [written, read] = form.what();
                add(by, written, form.encode(&inputs.messages[at]));
                add(by, read, form.decode(&inputs.messages[at]));
            }
            if *format == Format::JSON {
                let of_messages =
                    read(&inputs.deliveries, move |bytes| drop(black_box(codec.decode_relay(bytes))));
                add(by, What::DecodeMessage, of_messages);
                add(by, What::EncodeMessage, encode_message(codec, set));
                for Texts { what: [written, read], events, frames, .. } in &inputs.texts {
                    add(by, *written, encode(codec, events));
                    add(by, *read, decode(codec, frames));
                }
            }
        }
        if *format == Format::JSON {
            let pass = |by, what| json_libraries::pass(by, what, &set.events, frames, &inputs.deliveries);
            let library = Implementation::Library.name();
            add(library, What::ThreeFields, pass(library, What::ThreeFields));
            let tuned = Format::JSON.spec().tuned.expect("JSON has tuned code");
            add("tuned", What::ThreeFields, json_libraries::tuned_three_fields(tuned, frames));
            for by in json_libraries::OTHERS {
                JSON_ROWS.into_iter().for_each(|what| add(by, what, pass(by, what)));
                for Texts { what: [written, read], events, frames, .. } in &inputs.texts {
                    let pass = |what| json_libraries::pass(by, what, events, frames, &[]);
                    add(by, *written, pass(What::Encode));
                    add(by, *read, pass(What::Decode));
                }
            }
        }
    }
    rows
}

/// The rows of JSON libraries.
pub(crate) const JSON_ROWS: [What; 5] =
    [What::Encode, What::Decode, What::ThreeFields, What::EncodeMessage, What::DecodeMessage];

fn memcpy(frames: &[Vec<u8>]) -> Pass<'_> {
    Box::new(move |buffer, members| {
        for at in members {
            buffer.clear();
            buffer.extend_from_slice(black_box(&frames[*at]));
            black_box(&*buffer);
        }
        members.len()
    })
}

fn decode<'e>(codec: &'static dyn Codec, frames: &'e [Vec<u8>]) -> Pass<'e> {
    read(frames, move |bytes| drop(black_box(codec.decode_event(bytes))))
}

fn keep_bytes<'e>(codec: &'static dyn Codec, frames: &'e [Vec<u8>]) -> Pass<'e> {
    read(frames, move |bytes| drop(black_box(codec.decode_keeping_bytes(bytes))))
}

fn encode<'e, E: Borrow<Event<'static>>>(codec: &'static dyn Codec, events: &'e [E]) -> Pass<'e> {
    Box::new(move |buffer, members| {
        for at in members {
            buffer.clear();
            codec
                .encode_event(black_box(events[*at].borrow()), buffer)
                .expect("the set holds what the format holds");
            black_box(&*buffer);
        }
        members.len()
    })
}

fn encode_message<'e>(codec: &'static dyn Codec, set: &'e EventSet<'_>) -> Pass<'e> {
    Box::new(move |buffer, members| {
        for at in members {
            buffer.clear();
            let event = Cow::Borrowed(black_box(set.events[*at]));
            let message = RelayMessage::Event { subscription: SUBSCRIPTION.into(), event };
            codec.encode_relay(&message, buffer).expect("the set holds what the format holds");
            black_box(&*buffer);
        }
        members.len()
    })
}

fn read<'e>(frames: &'e [Vec<u8>], read: impl Fn(&'e [u8]) + 'e) -> Pass<'e> {
    Box::new(move |_, members| {
        members.iter().for_each(|at| read(black_box(&frames[*at])));
        members.len()
    })
}

/// Leaves the head where it was written: handing on its 88 bytes by value takes longer than reading
/// them.
fn peek(codec: &dyn Codec, bytes: &[u8]) {
    let head = codec.peek(bytes);
    black_box(&head);
}

fn peek_hot<'e>(codec: &'static dyn Codec, frames: &'e [Vec<u8>]) -> Pass<'e> {
    Box::new(move |_, members| {
        let some = &members[..members.len().min(HOT_EVENTS)];
        for at in some {
            for _ in 0..HOT_PEEKS {
                peek(codec, black_box(&frames[*at]));
            }
        }
        some.len() * HOT_PEEKS
    })
}
