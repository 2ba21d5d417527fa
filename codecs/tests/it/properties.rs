//! Any event and filter comes back the same; any bytes give an answer. The answers are those of the
//! fuzzers' checks, in which tuned code is held to the library's.

use std::borrow::Cow;

use codecs::{ClientMessage, EncodeError, Event, Filter, Format, RelayMessage, TagFilter};
use proptest::{collection::vec, option, prelude::*, sample::Index, test_runner::FileFailurePersistence};

use crate::{
    checks,
    common::{
        Message, Subject,
        any::{edits, event, mutate, text},
        client_messages, relay_messages, sample_event, subjects, vectors,
    },
};

/// Filters with what every format must be able to ask: no empty list, times since 1970.
fn filter() -> impl Strategy<Value = Filter> {
    let ids = || option::of(vec(any::<[u8; 32]>(), 1..5));
    let kinds = option::of(vec(any::<u16>(), 1..5));
    let time = || option::of(0..=i64::MAX);
    let limit = option::of(prop_oneof![0..=5_000_u64, Just(u64::from(u32::MAX))]);
    let letters = proptest::sample::subsequence(vec!['a', 'd', 'e', 'p', 't', 'E', 'Z'], 0..5).prop_shuffle();
    let tags = letters.prop_flat_map(|letters| {
        letters
            .into_iter()
            .map(|letter| vec(text(), 1..4).prop_map(move |values| TagFilter { letter, values }))
            .collect::<Vec<_>>()
    });
    (ids(), ids(), kinds, time(), time(), limit, option::of(text()), tags).prop_map(
        |(ids, authors, kinds, since, until, limit, search, tags)| Filter {
            ids,
            authors,
            kinds,
            since,
            until,
            limit,
            search,
            tags,
            unknown: None,
        },
    )
}

/// Filters at the edge: each format returns them unchanged or refuses to write them.
fn odd_filter() -> impl Strategy<Value = Filter> {
    (filter(), any::<[bool; 4]>(), any::<i64>(), any::<u64>()).prop_map(|(mut filter, empty, time, limit)| {
        filter.ids = if empty[0] { Some(Vec::new()) } else { filter.ids };
        filter.kinds = if empty[1] { Some(Vec::new()) } else { filter.kinds };
        filter.since = Some(time);
        filter.limit = if empty[2] { Some(limit) } else { filter.limit };
        if let (true, Some(tag)) = (empty[3], filter.tags.first_mut()) {
            tag.values.clear();
        }
        filter
    })
}

/// The fuzzers' checks: every implementation gives one verdict, and what is accepted can be written
/// and read back the same, in one form where the format has one.
fn ask(format: Format, bytes: &[u8]) {
    checks::events(format, bytes);
    checks::messages(format, bytes);
}

fn library(format: Format) -> Subject {
    Subject { format, label: format.to_string(), codec: format.spec().library }
}

/// The checks write and read an event a hundred times.
fn is_small(event: &Event<'_>) -> bool {
    event.content.len() + event.tags.iter().flatten().map(|text| text.len()).sum::<usize>() < 1_000
}

/// The event's bytes, and messages around it, as the library writes them.
fn around(format: Format, event: &Event<'static>) -> Result<Vec<Vec<u8>>, EncodeError> {
    let subject = library(format);
    let cow = || Cow::Owned(event.clone());
    let subscription = || "\"\\ä\u{1}".into();
    let batch = RelayMessage::Events { subscription: subscription(), events: vec![event.clone(); 2] };
    Ok(vec![
        subject.event(event)?,
        subject.client(&ClientMessage::Event(cow()))?,
        subject.client(&ClientMessage::Auth(cow()))?,
        subject.relay(&RelayMessage::Event { subscription: subscription(), event: cow() })?,
        subject.relay(&batch)?,
    ])
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
    fn any_event_comes_back_the_same(event in event()) {
        for subject in subjects() {
            match subject.event(&event) {
                Ok(bytes) => {
                    prop_assert!(!subject.must_refuse(&event), "{}: no room for it, yet encoded", subject.label);
                    prop_assert_eq!(subject.codec.decode_event(&bytes), Ok(event.clone()), "{}", subject.label);
                }
                Err(error) => prop_assert!(subject.must_refuse(&event), "{}: {}", subject.label, error),
            }
        }
        for format in Format::all().filter(|_| is_small(&event)) {
            around(format, &event).into_iter().flatten().for_each(|bytes| ask(format, &bytes));
        }
    }

    #[test]
    fn any_ordinary_filter_comes_back_the_same(filters in vec(filter(), 1..4), subscription in "[ -~ä]{1,64}") {
        let message = ClientMessage::Req { subscription: subscription.into(), filters };
        for subject in subjects() {
            let bytes = subject.client(&message);
            prop_assert!(bytes.is_ok(), "{}: {:?}", subject.label, bytes);
            prop_assert_eq!(subject.read_client(&bytes.unwrap()), Ok(message.clone()), "{}", subject.label);
        }
    }

    #[test]
    fn any_odd_filter_comes_back_the_same_or_is_refused(filter in odd_filter()) {
        let message = ClientMessage::Count { subscription: "sub".into(), filters: vec![filter] };
        for subject in subjects() {
            if let Ok(bytes) = subject.client(&message) {
                prop_assert_eq!(subject.read_client(&bytes), Ok(message.clone()), "{}", subject.label);
            }
        }
    }

    #[test]
    fn any_text_comes_back_the_same(subscription in text(), text in text()) {
        prop_assume!(subscription.len() <= 255);
        let messages = [
            RelayMessage::Closed { subscription: subscription.into(), text: text.clone().into() },
            RelayMessage::Notice { text: text.clone().into() },
            RelayMessage::Ok { id: [7; 32], accepted: false, text: text.clone().into() },
            RelayMessage::Auth { challenge: text.into() },
        ];
        for subject in subjects() {
            for message in &messages {
                let bytes = subject.relay(message).unwrap();
                prop_assert_eq!(subject.read_relay(&bytes), Ok(message.clone()), "{}", subject.label);
            }
        }
    }

    #[test]
    fn any_bytes_give_an_answer(bytes in vec(any::<u8>(), 0..400)) {
        for format in Format::all() {
            ask(format, &bytes);
            checks::batches(format, &bytes);
            checks::values(format, &bytes);
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

    #[test]
    fn any_batch_comes_back_the_same(events in vec(event(), 1..4), subscription in "[ -~ä]{1,64}") {
        for subject in subjects() {
            let message = RelayMessage::Events { subscription: subscription.clone().into(), events: events.clone() };
            let refused = events.iter().any(|event| subject.must_refuse(event));
            match subject.relay(&message) {
                Ok(bytes) => {
                    prop_assert!(!refused, "{}: no room for it, yet encoded", subject.label);
                    prop_assert_eq!(subject.read_relay(&bytes), Ok(message), "{}", subject.label);
                    checks::messages(subject.format, &bytes);
                }
                Err(error) => prop_assert!(refused, "{}: {}", subject.label, error),
            }
        }
    }

    #[test]
    fn any_reconciliation_comes_back_the_same(
        filter in filter(),
        message in vec(any::<u8>(), 0..300),
        text in text(),
    ) {
        for subject in subjects() {
            let sub = || "neg".into();
            let client = [
                ClientMessage::NegOpen { subscription: sub(), filter: filter.clone(), message: message.clone().into() },
                ClientMessage::NegMsg { subscription: sub(), message: message.clone().into() },
            ];
            let relay = [
                RelayMessage::NegMsg { subscription: sub(), message: message.clone().into() },
                RelayMessage::NegErr { subscription: sub(), text: text.clone().into() },
            ];
            for message in client.map(Message::Client).into_iter().chain(relay.map(Message::Relay)) {
                let bytes = message.bytes(subject.codec).unwrap();
                prop_assert_eq!(message.read(subject.codec, &bytes), Ok(message), "{}", subject.label);
            }
        }
    }
}
