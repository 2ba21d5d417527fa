//! What is timed: each row is one thing done with every event of a column.

use std::{collections::BTreeMap, hint::black_box};

use codecs::{Codec, Format};

use crate::sets::{self, AsJson, EventSet, Sets};

/// How often a frame is peeked at in a row for [`What::PeekHot`].
const HOT_PEEKS: usize = 64;
/// Of how many events of a column: enough for a time that a clock can tell.
const HOT_EVENTS: usize = 64;

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    /// Copying the encoded bytes into a reused buffer.
    Memcpy,
    /// Writing the event into a reused buffer.
    Encode,
    /// Reading an event that borrows what it can.
    Decode,
    /// Id, author, time and kind of the next frame of the stream.
    PeekCold,
    /// The same of a frame that was just peeked at.
    PeekHot,
}

impl What {
    pub(crate) fn name(self) -> &'static str {
        match self {
            What::Memcpy => "memcpy",
            What::Encode => "encode",
            What::Decode => "decode",
            What::PeekCold => "peek cold",
            What::PeekHot => "peek hot",
        }
    }
}

/// Does it with the events at these places and says how many times that was, in events.
type Pass<'e> = Box<dyn Fn(&mut Vec<u8>, &[usize]) -> usize + 'e>;

pub(crate) struct Row<'e> {
    /// Which of [`Sets::sets`].
    pub(crate) set: usize,
    pub(crate) format: &'static str,
    /// Empty for what does not depend on an implementation.
    pub(crate) by: &'static str,
    pub(crate) what: What,
    pub(crate) pass: Pass<'e>,
}

/// The bytes of every event in each format.
pub(crate) struct Encoded(BTreeMap<Format, Vec<Vec<u8>>>);

impl Encoded {
    pub(crate) fn new(formats: &[Format], sets: &Sets<'_>) -> Self {
        let encoded = |format: Format| {
            let codec = format.spec().library;
            sets.of(format).events.iter().map(|event| sets::encode(codec, event)).collect()
        };
        Encoded(formats.iter().map(|format| (*format, encoded(*format))).collect())
    }
}

pub(crate) fn rows<'e>(formats: &[Format], sets: &'e Sets<'_>, encoded: &'e Encoded) -> Vec<Row<'e>> {
    let mut rows = Vec::new();
    for format in formats {
        let (set, frames) = (sets.of(*format), &encoded.0[format]);
        let at = sets.of_format[format];
        let mut add = |by, what, pass| rows.push(Row { set: at, format: format.name(), by, what, pass });
        add("", What::Memcpy, memcpy(frames));
        if *format == Format::JSON {
            add("sonic-rs", What::Encode, sonic_rs(set));
        }
        for (by, codec) in sets::codecs_of(*format) {
            let by = by.name();
            add(by, What::Encode, encode(codec, set));
            add(by, What::Decode, read(frames, move |bytes| drop(black_box(codec.decode_event(bytes)))));
            add(by, What::PeekCold, read(frames, move |bytes| peek(codec, bytes)));
            if format.spec().tuned.is_some() && by == "tuned" {
                add(by, What::PeekHot, peek_hot(codec, frames));
            }
        }
    }
    rows
}

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

fn encode<'e>(codec: &'static dyn Codec, set: &'e EventSet<'_>) -> Pass<'e> {
    Box::new(move |buffer, members| {
        for at in members {
            buffer.clear();
            codec
                .encode_event(black_box(set.events[*at]), buffer)
                .expect("the set holds what the format holds");
            black_box(&*buffer);
        }
        members.len()
    })
}

fn sonic_rs<'e>(set: &'e EventSet<'_>) -> Pass<'e> {
    Box::new(move |buffer, members| {
        for at in members {
            buffer.clear();
            sonic_rs::to_writer(&mut *buffer, &AsJson(black_box(set.events[*at])))
                .expect("JSON holds every event");
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
