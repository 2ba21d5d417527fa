//! Events together: EVENTS, the message, and the batch layout that a format may have.

use std::{collections::BTreeMap, hint::black_box};

use codecs::{Batch, Codec, Event, RelayMessage};

use crate::{
    sets::EventSet,
    what::{Pass, SUBSCRIPTION, What},
};

/// How many events a message or batch holds: as many as fill a page of most clients.
pub(crate) const TOGETHER: usize = 100;

/// Events of one column, in messages.
pub(crate) type Groups<T> = BTreeMap<usize, Vec<T>>;

/// The EVENTS messages of every column, which a column's first event finds.
pub(crate) fn messages(set: &EventSet<'_>) -> Groups<RelayMessage<'static>> {
    let groups = set.groups.iter().filter_map(|group| Some((*group.members.first()?, &group.members)));
    let of_group = |members: &Vec<usize>| {
        let chunks = members.chunks(TOGETHER);
        chunks.map(|chunk| message(chunk.iter().map(|at| set.events[*at].clone()).collect())).collect()
    };
    groups.map(|(first, members)| (first, of_group(members))).collect()
}

pub(crate) fn message(events: Vec<Event<'static>>) -> RelayMessage<'static> {
    RelayMessage::Events { subscription: SUBSCRIPTION.into(), events }
}

fn events<'m>(message: &'m RelayMessage<'static>) -> &'m [Event<'static>] {
    match message {
        RelayMessage::Events { events, .. } => events,
        _ => unreachable!("messages are made here"),
    }
}

/// The object that is written: a message by a codec, or a batch without one.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    Message(&'static dyn Codec),
    Batch(Batch),
}

impl Form {
    /// The names of its rows.
    pub(crate) fn what(self) -> [What; 2] {
        match self {
            Form::Message(_) => [What::EncodeEvents, What::DecodeEvents],
            Form::Batch(_) => [What::EncodeBatch, What::DecodeBatch],
        }
    }

    pub(crate) fn write(self, message: &RelayMessage<'static>, out: &mut Vec<u8>) {
        let written = match self {
            Form::Message(codec) => codec.encode_relay(message, out),
            Form::Batch(batch) => batch.encode(events(message), out),
        };
        written.expect("events that the format cannot hold were set aside");
    }

    fn read(self, bytes: &[u8]) {
        match self {
            Form::Message(codec) => drop(black_box(codec.decode_relay(bytes))),
            Form::Batch(batch) => drop(black_box(batch.decode(bytes))),
        }
    }

    pub(crate) fn encode<'m>(self, messages: &'m Groups<RelayMessage<'static>>) -> Pass<'m> {
        Box::new(move |buffer, members| {
            for message in &messages[&members[0]] {
                buffer.clear();
                self.write(black_box(message), buffer);
                black_box(&*buffer);
            }
            members.len()
        })
    }

    pub(crate) fn decode(self, messages: &Groups<RelayMessage<'static>>) -> Pass<'static> {
        let frame = |message: &RelayMessage<'static>| {
            let mut out = Vec::new();
            self.write(message, &mut out);
            out
        };
        let of_group = |messages: &Vec<RelayMessage<'static>>| messages.iter().map(frame).collect();
        let frames: Groups<Vec<u8>> =
            messages.iter().map(|(first, messages)| (*first, of_group(messages))).collect();
        Box::new(move |_, members| {
            frames[&members[0]].iter().for_each(|frame| self.read(black_box(frame)));
            members.len()
        })
    }
}
