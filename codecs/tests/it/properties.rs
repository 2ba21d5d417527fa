//! Any event and message comes back the same; any bytes give an answer. The answers are those of the
//! fuzzers' checks, in which tuned code is held to the library's.

use std::borrow::Cow;

use codecs::{ClientMessage, EncodeError, Event, Format, Implementation, RelayMessage};
use proptest::{collection::vec, prelude::*, sample::Index, test_runner::FileFailurePersistence};

use crate::{
    checks,
    common::{
        Subject,
        any::{edits, event, mutate, recipe},
        client_messages, relay_messages, sample_event, subjects, vectors,
    },
};

/// The fuzzers' checks: every implementation gives one verdict, and what is accepted can be written
/// and read back the same, in one form where the format has one.
fn ask(format: Format, bytes: &[u8]) {
    checks::events(format, bytes);
    checks::messages(format, bytes);
    checks::batches(format, bytes);
}

fn library(format: Format) -> Subject {
    subjects().into_iter().find(|subject| subject.format == format).unwrap()
}

/// The checks write and read an event a hundred times.
fn is_small(event: &Event<'_>) -> bool {
    event.content.len() + event.tags.iter().flatten().map(|text| text.len()).sum::<usize>() < 1_000
}

/// The event's bytes, messages around it and a batch, as the library writes them.
fn around(format: Format, event: &Event<'static>) -> Result<Vec<Vec<u8>>, EncodeError> {
    let subject = library(format);
    let cow = || Cow::Owned(event.clone());
    let subscription = || "\"\\ä\u{1}".into();
    let batch = RelayMessage::Events { subscription: subscription(), events: vec![event.clone(); 2] };
    let mut all = vec![
        subject.event(event)?,
        subject.client(&ClientMessage::Event(cow()))?,
        subject.client(&ClientMessage::Auth(cow()))?,
        subject.relay(&RelayMessage::Event { subscription: subscription(), event: cow() })?,
        subject.relay(&batch)?,
        Vec::new(),
    ];
    if let Some(batch) = format.batch(Implementation::Library) {
        batch.encode(&[event, event], all.last_mut().unwrap())?;
    }
    Ok(all)
}

#[test]
fn every_cut_and_every_changed_byte_of_an_event_gives_an_answer() {
    for format in Format::all() {
        let bytes = around(format, &sample_event()).unwrap().swap_remove(0);
        for len in 0..bytes.len() {
            checks::events(format, &bytes[..len]);
            for change in [0x01, 0x20, 0x80, 0xff] {
                let mut bytes = bytes.clone();
                bytes[len] ^= change;
                checks::events(format, &bytes);
            }
        }
    }
}

/// Vectors hold the events that layouts are worst at.
#[test]
fn the_vectors_give_an_answer() {
    for vector in vectors().iter().filter(|vector| is_small(&vector.event)) {
        for format in Format::all() {
            for bytes in around(format, &vector.event).into_iter().flatten() {
                ask(format, &bytes);
            }
        }
    }
}

proptest! {
    // PROPTEST_CASES=… asks more; failures are kept in properties.regressions, to be committed.
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_event_and_message_comes_back_the_same(recipe in recipe()) {
        let event = checks::event(&recipe);
        for format in Format::all() {
            checks::values(format, &recipe);
            if is_small(&event) {
                around(format, &event).into_iter().flatten().for_each(|bytes| ask(format, &bytes));
            }
        }
    }

    #[test]
    fn any_bytes_give_an_answer(bytes in vec(any::<u8>(), 0..400)) {
        for format in Format::all() {
            ask(format, &bytes);
        }
    }
}

proptest! {
    // Fewer: each asks many times.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 8,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_change_of_valid_bytes_gives_an_answer(
        event in event(),
        pick in any::<Index>(),
        edits in edits(),
    ) {
        let (client, relay) = (client_messages(), relay_messages());
        for format in Format::all() {
            let subject = library(format);
            let event = if is_small(&event) { &event } else { &sample_event() };
            let mut samples = around(format, event).or_else(|_| around(format, &sample_event())).unwrap();
            samples.push(subject.client(&client[pick.index(client.len())]).unwrap());
            samples.push(subject.relay(&relay[pick.index(relay.len())]).unwrap());
            for mut bytes in samples {
                mutate(&mut bytes, &edits);
                ask(format, &bytes);
            }
        }
    }
}
