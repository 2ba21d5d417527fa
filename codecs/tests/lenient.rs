//! The lenient readers: they take what other encoders write, see the same event in it, and are never used unasked.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure should end the test")]

mod common;

use std::sync::LazyLock;

use codecs::{ClientMessage, Codec, Event, Filter, Format, RelayMessage, TagFilter, hex};
use common::{
    any::{edits, event, mutate},
    client_messages, committed, event_of, expand, relay_messages, sample_event,
};
use proptest::{prelude::*, sample::Index, test_runner::FileFailurePersistence};

/// The formats that have one, with the strict reader before it.
fn lenient() -> Vec<(Format, &'static dyn Codec, &'static dyn Codec)> {
    let both = |format: Format| {
        let strict = format.spec().library;
        Some((format, strict, strict.lenient()?))
    };
    Format::all().filter_map(both).collect()
}

fn codecs_of(format: &str) -> (&'static dyn Codec, &'static dyn Codec) {
    let (_, strict, lenient) = lenient().into_iter().find(|(known, ..)| known.name() == format).unwrap();
    (strict, lenient)
}

#[test]
fn cbor_has_a_lenient_reader_and_no_other_format_needs_one() {
    let names: Vec<_> = lenient().iter().map(|(format, ..)| format.name()).collect();
    assert_eq!(names, ["cbor-schemaless", "cbor-packed", "cbor-intkey"]);
    for (format, _, lenient) in lenient() {
        let tuned = format.spec().tuned.unwrap();
        assert!(tuned.lenient().is_some() && lenient.lenient().is_some(), "{format}");
    }
}

/// The reference run's verdicts: "lenient accept" is taken and is the sample's event; other rejects stay rejects.
#[test]
fn every_malformed_case_ends_as_recommended() {
    let file = committed("malformed.json");
    let mut taken = 0;
    for (format, strict, lenient) in lenient() {
        let cases = file[format.name()].as_array().unwrap();
        let bytes = |case: &serde_json::Value| hex::decode(expand(&case["hex"]).as_bytes()).unwrap();
        let sample = bytes(cases.iter().find(|case| case["case"] == "ok").unwrap());
        let sample = strict.decode_event(&sample).unwrap().into_owned();
        for case in cases {
            let (name, recommended) = (&case["case"], case["recommended"].as_str().unwrap());
            let bytes = bytes(case);
            let read = lenient.decode_event(&bytes);
            if recommended.starts_with("lenient accept") {
                assert!(strict.decode_event(&bytes).is_err(), "{format}, {name}: the strict reader takes it");
                assert_eq!(read.as_ref(), Ok(&sample), "{format}, {name}");
                taken += 1;
            } else if recommended.starts_with("reject") {
                assert!(read.is_err(), "{format}, {name}: {read:?}");
            }
        }
    }
    assert_eq!(taken, 8, "cases of another number");
}

#[test]
fn what_cbor_x_writes_is_read() {
    let file = committed("foreign-cbor.json");
    let event: Event<'static> = event_of(file["event_json"].as_str().unwrap());
    for case in file["cases"].as_array().unwrap() {
        let what = format!("{}, {}", case["format"], case["what"]);
        let (strict, lenient) = codecs_of(case["format"].as_str().unwrap());
        let bytes = hex::decode(case["hex"].as_str().unwrap().as_bytes()).unwrap();
        match case["side"].as_str().unwrap() {
            "event" => {
                assert!(strict.decode_event(&bytes).is_err(), "{what}: it needs no lenient reader");
                assert_eq!(lenient.decode_event(&bytes).as_ref(), Ok(&event), "{what}");
                assert_eq!(lenient.view_event(&bytes).unwrap().to_event(), event, "{what}");
                assert_eq!(lenient.peek(&bytes).unwrap().id, event.id, "{what}");
            }
            "client" => {
                let expected = ClientMessage::Event(std::borrow::Cow::Owned(event.clone()));
                assert!(strict.decode_client(&bytes).is_err(), "{what}: it needs no lenient reader");
                assert_eq!(lenient.decode_client(&bytes), Ok(expected), "{what}");
            }
            "relay" => match lenient.decode_relay(&bytes).unwrap() {
                RelayMessage::Event { event: read, .. } => assert_eq!(*read, event, "{what}"),
                other => panic!("{what}: {other:?}"),
            },
            "request" => {
                let filter = Filter {
                    ids: Some(vec![event.id]),
                    kinds: Some(vec![1]),
                    limit: Some(5),
                    tags: vec![TagFilter { letter: 'p', values: vec![hex::encode(&event.pubkey)] }],
                    ..Filter::default()
                };
                let expected = ClientMessage::Req { subscription: "sub".into(), filters: vec![filter] };
                assert!(strict.decode_client(&bytes).is_err(), "{what}: it needs no lenient reader");
                assert_eq!(lenient.decode_client(&bytes), Ok(expected), "{what}");
            }
            side => panic!("{what}: side {side}"),
        }
    }
}

#[test]
fn what_the_strict_reader_takes_means_the_same() {
    for (format, strict, lenient) in lenient() {
        for message in client_messages() {
            let mut bytes = Vec::new();
            lenient.encode_client(&message, &mut bytes).unwrap();
            assert_eq!(
                strict.decode_client(&bytes).map(ClientMessage::into_owned).as_ref(),
                Ok(&message),
                "{format}"
            );
            assert_eq!(
                lenient.decode_client(&bytes).map(ClientMessage::into_owned).as_ref(),
                Ok(&message),
                "{format}"
            );
        }
        for message in relay_messages() {
            let mut bytes = Vec::new();
            lenient.encode_relay(&message, &mut bytes).unwrap();
            assert_eq!(
                lenient.decode_relay(&bytes).map(RelayMessage::into_owned).as_ref(),
                Ok(&message),
                "{format}"
            );
        }
    }
}

#[test]
fn hostile_spellings_are_refused_in_bounded_memory() {
    let hostile: [(&str, Vec<u8>); 9] = [
        ("lists in lists without end", vec![0x9f; 1 << 20]),
        ("maps in maps without end", [0xbf, 0x00].repeat(1 << 19)),
        ("tags on tags", [0xd8, 0x40].repeat(1 << 19)),
        ("a list of a claimed length", b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff".to_vec()),
        ("a text of a claimed length", b"\x7b\xff\xff\xff\xff\xff\xff\xff\xff".to_vec()),
        ("pieces of another type", b"\x7f\x41a\xff".to_vec()),
        ("a piece in pieces", b"\x7f\x7f\xff\xff".to_vec()),
        ("a break alone", vec![0xff]),
        ("many pieces and no end", [&[0x5f][..], &[0x40; 1 << 20]].concat()),
    ];
    for (format, _, lenient) in lenient() {
        for (what, bytes) in &hostile {
            let mut results = None;
            let peak = allocation_counter::measure(|| {
                let event = lenient.decode_event(bytes).is_ok();
                results =
                    Some([event, lenient.decode_client(bytes).is_ok(), lenient.decode_relay(bytes).is_ok()]);
            });
            assert_eq!(results, Some([false; 3]), "{format}: {what}");
            assert!(peak.bytes_max <= 4 << 20, "{format}: {what}: {} bytes", peak.bytes_max);
        }
    }
}

static FOREIGN: LazyLock<serde_json::Value> = LazyLock::new(|| committed("foreign-cbor.json"));

proptest! {
    // PROPTEST_CASES=… asks more; failures are kept in lenient.regressions, to be committed.
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_is_read_can_be_written_strictly(event in event(), pick in any::<Index>(), edits in edits()) {
        for (format, strict, lenient) in lenient() {
            let cases: Vec<_> = FOREIGN["cases"].as_array().unwrap().iter().filter(|case| case["format"] == format.name()).collect();
            let foreign = hex::decode(cases[pick.index(cases.len())]["hex"].as_str().unwrap().as_bytes()).unwrap();
            let (mut ours, mut sample) = (Vec::new(), Vec::new());
            strict.encode_event(&event, &mut ours).unwrap();
            strict.encode_event(&sample_event(), &mut sample).unwrap();
            for mut bytes in [foreign, ours, sample] {
                mutate(&mut bytes, &edits);
                if let Ok(event) = lenient.decode_event(&bytes) {
                    let mut again = Vec::new();
                    strict.encode_event(&event, &mut again).unwrap();
                    prop_assert_eq!(strict.decode_event(&again), Ok(event), "{}", format);
                }
                if let Ok(message) = lenient.decode_relay(&bytes) {
                    let mut again = Vec::new();
                    strict.encode_relay(&message, &mut again).unwrap();
                    prop_assert_eq!(strict.decode_relay(&again), Ok(message), "{}", format);
                }
                let _ = lenient.decode_client(&bytes);
            }
        }
    }
}
