//! Any event and filter comes back the same; any bytes give an answer.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure should end the test")]

mod common;

use codecs::{ClientMessage, Filter, OneForm, RelayMessage, TagFilter};
use common::{
    Subject,
    any::{edits, event, mutate, text},
    client_messages, relay_messages, sample_event, subjects,
};
use proptest::{collection::vec, option, prelude::*, sample::Index, test_runner::FileFailurePersistence};

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

/// Accepted bytes must be writable and read back the same: a decoder that invents something fails
/// here, and so does one that takes two forms for one event where the format has room for one only.
fn decode_all(subject: &Subject, bytes: &[u8]) {
    if let Ok(event) = subject.codec.decode_event(bytes) {
        let again = subject.event(&event).unwrap();
        assert_eq!(subject.codec.decode_event(&again).as_ref(), Ok(&event), "{}", subject.label);
        if subject.format.spec().one_form != OneForm::Nothing {
            assert_eq!(again, bytes, "{}: two forms of one event", subject.label);
        }
    }
    if let Ok(message) = subject.read_client(bytes) {
        // Unknown filter fields are reported, never written.
        if let Ok(again) = subject.client(&message) {
            assert_eq!(subject.read_client(&again), Ok(message), "{}", subject.label);
        }
    }
    if let Ok(message) = subject.read_relay(bytes) {
        let again = subject.relay(&message).unwrap();
        assert_eq!(subject.read_relay(&again), Ok(message), "{}", subject.label);
        if subject.format.spec().one_form == OneForm::EventsAndRelayMessages {
            assert_eq!(again, bytes, "{}: two forms of one message", subject.label);
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
        for subject in subjects() {
            decode_all(&subject, &bytes);
        }
    }

    #[test]
    fn any_change_of_valid_bytes_gives_an_answer(
        event in event(),
        pick in any::<Index>(),
        edits in edits(),
    ) {
        let (client, relay) = (client_messages(), relay_messages());
        for subject in subjects() {
            let samples = [
                subject.event(&event).or_else(|_| subject.event(&sample_event())),
                subject.client(&client[pick.index(client.len())]),
                subject.relay(&relay[pick.index(relay.len())]),
            ];
            for bytes in samples {
                let mut bytes = bytes.unwrap();
                mutate(&mut bytes, &edits);
                decode_all(&subject, &bytes);
            }
        }
    }
}

proptest! {
    // Fewer: what they are made of is asked above.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 8,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_batch_comes_back_the_same(events in vec(event(), 1..4), subscription in "[ -~ä]{1,64}") {
        for subject in subjects() {
            let message = RelayMessage::Events { subscription: subscription.clone().into(), events: events.clone() };
            let refused = events.iter().any(|event| subject.must_refuse(event));
            match subject.relay(&message) {
                Ok(bytes) => {
                    prop_assert!(!refused, "{}: no room for it, yet encoded", subject.label);
                    prop_assert_eq!(subject.read_relay(&bytes), Ok(message), "{}", subject.label);
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
            let messages = [
                ClientMessage::NegOpen { subscription: sub(), filter: filter.clone(), message: message.clone().into() },
                ClientMessage::NegMsg { subscription: sub(), message: message.clone().into() },
            ];
            for message in messages {
                let bytes = subject.client(&message).unwrap();
                prop_assert_eq!(subject.read_client(&bytes), Ok(message), "{}", subject.label);
            }
            let messages = [
                RelayMessage::NegMsg { subscription: sub(), message: message.clone().into() },
                RelayMessage::NegErr { subscription: sub(), text: text.clone().into() },
            ];
            for message in messages {
                let bytes = subject.relay(&message).unwrap();
                prop_assert_eq!(subject.read_relay(&bytes), Ok(message), "{}", subject.label);
            }
        }
    }
}
