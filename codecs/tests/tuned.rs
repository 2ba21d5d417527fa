//! Tuned code is held to the library's: the same bytes, the same inputs accepted, the same event
//! seen. Events and changes to valid bytes come from proptest.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure should end the test")]

mod common;

use std::borrow::Cow;

use codecs::{ClientMessage, Codec, Event, EventHead, Format, RelayMessage};
use common::{
    any::{edits, event, mutate},
    client_messages, event_of, relay_messages, sample_event,
};
use proptest::{prelude::*, sample::Index, test_runner::FileFailurePersistence};

/// A format's two codecs.
fn pairs() -> Vec<(Format, &'static dyn Codec, &'static dyn Codec)> {
    Format::all().filter_map(|format| Some((format, format.spec().library, format.spec().tuned?))).collect()
}

fn encode(codec: &dyn Codec, event: &Event<'_>) -> Option<Vec<u8>> {
    let mut out = b"before".to_vec();
    codec.encode_event(event, &mut out).ok()?;
    Some(out.split_off(6))
}

/// The same bytes, or both refuse.
fn same_bytes(event: &Event<'_>) {
    for (format, library, tuned) in pairs() {
        let bytes = encode(tuned, event);
        assert!(bytes == encode(library, event), "{format}: tuned wrote {bytes:02x?}");
        let Some(bytes) = bytes else { continue };
        same_event(format, tuned, &bytes, event);
        same_messages(format, library, tuned, event, &bytes);
    }
}

/// The event and its head.
fn same_event(format: Format, codec: &dyn Codec, bytes: &[u8], event: &Event<'_>) {
    assert!(codec.decode_event(bytes).as_ref() == Ok(event), "{format}: another event came back");
    assert_eq!(codec.peek(bytes).unwrap(), EventHead::from(event), "{format}");
}

fn same_messages(
    format: Format,
    library: &dyn Codec,
    tuned: &dyn Codec,
    event: &Event<'_>,
    event_bytes: &[u8],
) {
    // Messages are invariant over their lifetime, so the event to compare with has one of its own.
    let owned = event.clone().into_owned();
    let cow = || Cow::Owned(owned.clone());
    for message in [ClientMessage::Event(cow()), ClientMessage::Auth(cow())] {
        let (mut by_library, mut by_tuned) = (Vec::new(), Vec::new());
        library.encode_client(&message, &mut by_library).unwrap();
        tuned.encode_client(&message, &mut by_tuned).unwrap();
        assert!(by_library == by_tuned, "{format}: another client message");
        let back = tuned.decode_client(&by_tuned).unwrap().into_owned();
        assert!(back == message, "{format}: another client message came back");
    }
    {
        let count = 2;
        let message = RelayMessage::Events { subscription: "s".into(), events: vec![owned.clone(); count] };
        let (mut by_library, mut by_tuned, mut wrapped) = (Vec::new(), Vec::new(), Vec::new());
        library.encode_relay(&message, &mut by_library).unwrap();
        tuned.encode_relay(&message, &mut by_tuned).unwrap();
        tuned.wrap_events("s", &vec![event_bytes; count], &mut wrapped);
        assert!(by_library == by_tuned && by_library == wrapped, "{format}: another batch");
        let back = tuned.decode_relay(&by_tuned).unwrap().into_owned();
        assert!(back == message, "{format}: another batch came back");
    }
    for subscription in ["", "s", "feed:1", "\"\\ä\u{1}"] {
        let message = RelayMessage::Event { subscription: subscription.into(), event: cow() };
        let (mut by_library, mut by_tuned, mut wrapped) = (Vec::new(), Vec::new(), Vec::new());
        library.encode_relay(&message, &mut by_library).unwrap();
        tuned.encode_relay(&message, &mut by_tuned).unwrap();
        let prefix_bytes = tuned.wrap_event(subscription, event_bytes, &mut wrapped);
        assert!(wrapped[prefix_bytes..].starts_with(event_bytes), "{format}: the event is elsewhere");
        assert!(by_library == by_tuned && by_library == wrapped, "{format}: another relay message");
        let back = tuned.decode_relay(&by_tuned).unwrap().into_owned();
        assert!(back == message, "{format}: another relay message came back");
    }
}

#[test]
fn an_answer_to_an_event_gets_the_librarys_bytes() {
    for (format, library, tuned) in pairs() {
        for (accepted, text) in [(true, ""), (false, "invalid: \"\\ä\u{1}")] {
            let message = RelayMessage::Ok { id: sample_event().id, accepted, text: text.into() };
            let (mut by_library, mut by_tuned) = (Vec::new(), Vec::new());
            library.encode_relay(&message, &mut by_library).unwrap();
            tuned.encode_relay(&message, &mut by_tuned).unwrap();
            assert_eq!(by_tuned, by_library, "{format}");
        }
    }
}

/// Whatever the library makes of these bytes, the tuned code does too.
fn same_verdict(format: Format, library: &dyn Codec, tuned: &dyn Codec, bytes: &[u8]) {
    let (by_library, by_tuned) = (library.decode_event(bytes), tuned.decode_event(bytes));
    match (&by_library, &by_tuned) {
        (Ok(event), Ok(_)) => same_event(format, tuned, bytes, event),
        (Err(_), Err(_)) => {
            let _ = tuned.peek(bytes);
        }
        _ => panic!("{format}: library {by_library:?}, tuned {by_tuned:?} of {bytes:02x?}"),
    }
    let (by_library, by_tuned) = (library.decode_client(bytes), tuned.decode_client(bytes));
    assert!(by_library.ok() == by_tuned.ok(), "{format}: another client message in {bytes:02x?}");
    let (by_library, by_tuned) = (library.decode_relay(bytes), tuned.decode_relay(bytes));
    assert!(by_library.ok() == by_tuned.ok(), "{format}: another relay message in {bytes:02x?}");
}

proptest! {
    // PROPTEST_CASES=… asks more; failures are kept in tuned.regressions, to be committed.
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_event_gets_the_librarys_bytes(event in event()) {
        same_bytes(&event);
    }

    #[test]
    fn any_change_of_valid_bytes_gets_the_librarys_verdict(
        event in event(),
        pick in any::<Index>(),
        edits in edits(),
    ) {
        let (client, relay) = (client_messages(), relay_messages());
        for (format, library, tuned) in pairs() {
            let mut client_bytes = Vec::new();
            library.encode_client(&client[pick.index(client.len())], &mut client_bytes).unwrap();
            let mut relay_bytes = Vec::new();
            library.encode_relay(&relay[pick.index(relay.len())], &mut relay_bytes).unwrap();
            let event_bytes = encode(library, &event).or_else(|| encode(library, &sample_event())).unwrap();
            for mut bytes in [event_bytes, encode(library, &sample_event()).unwrap(), client_bytes, relay_bytes] {
                mutate(&mut bytes, &edits);
                same_verdict(format, library, tuned, &bytes);
            }
        }
    }
}

#[test]
fn every_cut_and_every_changed_byte_gets_the_librarys_verdict() {
    for (format, library, tuned) in pairs() {
        let bytes = encode(library, &sample_event()).unwrap();
        for len in 0..bytes.len() {
            same_verdict(format, library, tuned, &bytes[..len]);
            for change in [0x01, 0x20, 0x80, 0xff] {
                let mut bytes = bytes.clone();
                bytes[len] ^= change;
                same_verdict(format, library, tuned, &bytes);
            }
        }
    }
}

/// Vectors hold the events that layouts are worst at.
#[test]
fn the_vectors_get_the_librarys_bytes() {
    common::vectors().iter().for_each(|vector| same_bytes(&event_of(&vector.event_json)));
}
