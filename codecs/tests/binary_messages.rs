//! Messages of the common envelope, protobuf and Cap'n Proto: the bytes peers see, and the other
//! forms, which are refused.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure should end the test")]

mod common;

use codecs::{
    ClientMessage, DecodeError, EncodeError, EoseHints, Filter, Limit, OverLimit, RelayMessage, Request,
    TagFilter,
};
use common::{ENVELOPE, PROTOBUF, Subject, batch, subjects};

/// Those whose tag values are always text.
const TEXT_PROTOBUF: &[&str] = &["proto-string", "proto-binary"];

fn subjects_named(names: &'static [&str]) -> impl Iterator<Item = Subject> {
    subjects().into_iter().filter(|subject| names.contains(&subject.format.name()))
}

fn request(filter: Filter) -> ClientMessage<'static> {
    ClientMessage::Req { subscription: "s".into(), filters: vec![filter] }
}

fn asking() -> Filter {
    Filter {
        kinds: Some(vec![1, 256]),
        since: Some(0),
        limit: Some(300),
        tags: vec![TagFilter { letter: 'e', values: vec!["abababab".into(), "x".into()] }],
        ..Filter::default()
    }
}

#[test]
fn messages_are_pinned() {
    let eose =
        RelayMessage::Eose { subscription: "s".into(), hints: EoseHints { finish: false, more: true } };
    let count = RelayMessage::Count { subscription: "s".into(), count: 300, approximate: true, hll: None };
    let round = RelayMessage::NegMsg { subscription: "s".into(), message: b"\x61\xff"[..].into() };
    let refused = RelayMessage::NegErr { subscription: "s".into(), text: "blocked: x".into() };
    let relay: [(&[&str], &RelayMessage<'_>, &[u8]); 8] = [
        (&ENVELOPE, &round, b"\x88\x01s\x61\xff"),
        (&ENVELOPE, &refused, b"\x89\x01sblocked: x"),
        (PROTOBUF, &round, b"\x42\x07\x0a\x01s\x12\x02\x61\xff"),
        (PROTOBUF, &refused, b"\x4a\x0f\x0a\x01s\x12\x0ablocked: x"),
        (&ENVELOPE, &eose, b"\x83\x01s\x02"),
        (&ENVELOPE, &count, b"\x87\x01s\xac\x02\x01"),
        (PROTOBUF, &eose, b"\x1a\x09\x0a\x01s\x12\x04more"),
        (PROTOBUF, &count, b"\x3a\x08\x0a\x01s\x10\xac\x02\x18\x01"),
    ];
    for (formats, message, bytes) in relay {
        for subject in subjects_named(formats) {
            assert_eq!(subject.relay(message).unwrap(), bytes, "{}", subject.label);
        }
    }
    let client: [(&[&str], &[u8]); 3] = [
        (&ENVELOPE, b"\x02\x01s\x01\x16\x03\x03\x01\x80\x02\x04\x01\x00\x06\x02\xac\x02\x08\x08e\x09\xab\xab\xab\xab\x02x"),
        (
            TEXT_PROTOBUF,
            b"\x12\x21\x0a\x01s\x12\x1c\x1a\x03\x01\x80\x02\x20\x00\x30\xac\x02\x42\x10\x0a\x01e\x12\x08abababab\x12\x01x",
        ),
        (
            &["proto-compact"],
            b"\x12\x21\x0a\x01s\x12\x1c\x1a\x03\x01\x80\x02\x20\x00\x30\xac\x02\x42\x10\x0a\x01e\x12\x06\x12\x04\xab\xab\xab\xab\x12\x03\x0a\x01x",
        ),
    ];
    for (formats, bytes) in client {
        for subject in subjects_named(formats) {
            assert_eq!(subject.client(&request(asking())).unwrap(), bytes, "{}", subject.label);
        }
    }
    let open = ClientMessage::NegOpen {
        subscription: "s".into(),
        filter: Filter { kinds: Some(vec![1]), ..Filter::default() },
        message: b"\x61\x00"[..].into(),
    };
    let round = ClientMessage::NegMsg { subscription: "s".into(), message: b"\x61"[..].into() };
    let end = ClientMessage::NegClose { subscription: "s".into() };
    let negentropy: [(&[&str], &ClientMessage<'_>, &[u8]); 6] = [
        (&ENVELOPE, &open, b"\x06\x01s\x03\x03\x01\x01\x61\x00"),
        (&ENVELOPE, &round, b"\x07\x01s\x61"),
        (&ENVELOPE, &end, b"\x08\x01s"),
        (PROTOBUF, &open, b"\x32\x0c\x0a\x01s\x12\x03\x1a\x01\x01\x1a\x02\x61\x00"),
        (PROTOBUF, &round, b"\x3a\x06\x0a\x01s\x12\x01\x61"),
        (PROTOBUF, &end, b"\x42\x01s"),
    ];
    for (formats, message, bytes) in negentropy {
        for subject in subjects_named(formats) {
            assert_eq!(subject.client(message).unwrap(), bytes, "{}", subject.label);
        }
    }
    let close = ClientMessage::Close { subscription: "sub".into() };
    for subject in subjects_named(&["capnp"]) {
        let words: [u64; 5] =
            [4 << 32, 1 << 32 | 1 << 48, 2, 1 | 2 << 32 | 4 << 35, u64::from_le_bytes(*b"sub\0\0\0\0\0")];
        assert_eq!(subject.client(&close).unwrap(), words.map(u64::to_le_bytes).concat());
        let words: [u64; 7] = [
            6 << 32,
            1 << 32 | 1 << 48,
            6,
            2 << 48,
            1 | 1 << 2 | 2 << 32 | 2 << 35,
            1 | 1 << 2 | 2 << 32 | 1 << 35,
            0x73,
        ];
        let bytes = [words.map(u64::to_le_bytes).concat(), 0x61_u64.to_le_bytes().to_vec()].concat();
        let bytes = [&7_u64.to_le_bytes()[..], &bytes].concat();
        assert_eq!(subject.client(&round).unwrap()[8..], bytes[16..]);
    }
}

/// A batch's head, byte by byte; its events stand in it as they are.
#[test]
fn batches_are_pinned() {
    let message = RelayMessage::Events { subscription: "s".into(), events: batch(2) };
    for subject in subjects() {
        let events: Vec<_> = batch(2).iter().map(|event| subject.event(event).unwrap()).collect();
        let varint = |mut n: usize| {
            let mut out = Vec::new();
            while n >= 0x80 {
                out.push(u8::try_from(n & 0x7f).unwrap() | 0x80);
                n >>= 7;
            }
            out.push(u8::try_from(n).unwrap());
            out
        };
        let expected = match subject.format.name() {
            name if ENVELOPE.contains(&name) => {
                let sized = |event: &Vec<u8>| [&varint(event.len())[..], event].concat();
                [&b"\x8a\x01s"[..], &sized(&events[0]), &sized(&events[1])].concat()
            }
            name if PROTOBUF.contains(&name) => {
                let field = |event: &Vec<u8>| [&[0x12][..], &varint(event.len()), event].concat();
                let body = [&b"\x0a\x01s"[..], &field(&events[0]), &field(&events[1])].concat();
                [&[0x52][..], &varint(body.len()), &body].concat()
            }
            "capnp" => {
                let [first, second] = [events[0].len() as u64, events[1].len() as u64];
                let words: [u64; 9] = [
                    (8 + (first + second) / 8) << 32,
                    1 << 32 | 1 << 48,
                    9,
                    2 << 48,
                    1 | 1 << 2 | 2 << 32 | 2 << 35,
                    1 | 1 << 2 | 6 << 32 | 2 << 35,
                    0x73,
                    1 | 1 << 2 | 2 << 32 | first << 35,
                    1 | (first / 8) << 2 | 2 << 32 | second << 35,
                ];
                [words.map(u64::to_le_bytes).concat(), events.concat()].concat()
            }
            _ => continue,
        };
        assert_eq!(subject.relay(&message).unwrap(), expected, "{}", subject.label);
    }
}

/// Pointers of a batch that all name one large event: as bytes it is there once, in memory it would
/// be often.
#[test]
fn capnp_reads_no_event_of_a_batch_twice() {
    for subject in subjects_named(&["capnp"]) {
        let event = subject.event(&batch(1)[0]).unwrap();
        let parts = vec![event.as_slice(); 100];
        let mut bytes = Vec::new();
        subject.codec.wrap_events("s", &parts, &mut bytes);
        assert!(subject.read_relay(&bytes).is_ok());
        let first_pointer = 7 * 8;
        for pointer in 1..100_u64 {
            let at = first_pointer + usize::try_from(pointer).unwrap() * 8;
            let near: u64 = 1 | (99 - pointer) << 2 | 2 << 32 | (event.len() as u64) << 35;
            bytes[at..at + 8].copy_from_slice(&near.to_le_bytes());
        }
        // Without the other 99 events there is no room for what the pointers claim.
        bytes.truncate(first_pointer + 100 * 8 + event.len());
        let words = u32::try_from(bytes.len() / 8 - 1).unwrap();
        bytes[4..8].copy_from_slice(&words.to_le_bytes());
        let read = subject.read_relay(&bytes);
        assert!(read.is_err(), "{}: {read:?}", subject.label);
    }
}

#[test]
fn messages_have_one_form() {
    let client: [(&[&str], &[u8]); 24] = [
        (&ENVELOPE, b"\x08\x01st"),                        // NEG-CLOSE with a byte too many
        (&ENVELOPE, b"\x06\x01s\x03\x03\x01"),             // NEG-OPEN: a filter longer than the message
        (PROTOBUF, b"\x32\x03\x0a\x01s"),                  // NEG-OPEN without a filter
        (PROTOBUF, b"\x3a\x08\x12\x01a\x0a\x01s\x0a\x00"), // NEG-MSG: bytes before the subscription
        (&ENVELOPE, b"\x03\x01st"),                        // CLOSE with a byte too many
        (&ENVELOPE, b"\x02\x01s\x81\x00\x00"),             // a padded number of filters
        (&ENVELOPE, b"\x02\x01s\x01\x06\x05\x01\x00\x04\x01\x00"), // until before since
        (&ENVELOPE, b"\x02\x01s\x01\x06\x05\x01\x00\x05\x01\x00"), // until twice
        (&ENVELOPE, b"\x02\x01s\x01\x04\x05\x02\x00\x00"), // until with a byte too many
        (&ENVELOPE, b"\x02\x01s\x01\x05\x03\x03\xff\xff\x07"), // kind 131071
        (&ENVELOPE, b"\x02\x01s\x01\x04\x01\x02\xab\xab"), // an id of two bytes
        (&ENVELOPE, b"\x02\x01s\x01\x0c\x08\x0ae\x10abababab"), // hex as text
        (&ENVELOPE, b"\x02\x01s\x01\x06\x08\x04e\x05\xab\xab"), // bytes of too short hex
        (&ENVELOPE, b"\x02\x01s\x01\x03\x08\x01\xe9"),     // not a letter
        (&ENVELOPE, b"\x02\x01s\x01\x06\x08\x01e\x08\x01e"), // a letter twice
        (PROTOBUF, b""),                                   // no message
        (PROTOBUF, b"\x1a\x01s\x1a\x01s"),                 // two messages
        (PROTOBUF, b"\x12\x05\x12\x00\x0a\x01s"),          // filters before the subscription
        (PROTOBUF, b"\x12\x06\x0a\x01s\x0a\x01t"),         // two subscriptions
        (PROTOBUF, b"\x12\x02\x0a\x00"),                   // an empty subscription spelled out
        (PROTOBUF, b"\x12\x07\x0a\x01s\x12\x02\x18\x01"),  // kinds one by one
        (PROTOBUF, b"\x12\x09\x0a\x01s\x12\x04\x1a\x02\x81\x00"), // a padded kind
        (PROTOBUF, b"\x12\x05\x0a\x01s\x18\x01"),          // a field that REQ does not have
        (PROTOBUF, b"\x12\x09\x0a\x01s\x12\x04\x42\x02\x0a\x00"), // a tag condition without a letter
    ];
    for (formats, bytes) in client {
        for subject in subjects_named(formats) {
            let result = subject.read_client(bytes);
            let refused =
                result.as_ref().is_err_and(|error| !matches!(error, DecodeError::UnknownMessage(_)));
            assert!(refused, "{}: {bytes:02x?} gave {result:?}", subject.label);
        }
    }
    let relay: [(&[&str], &[u8]); 10] = [
        (&ENVELOPE, b"\x8a\x01s\x81\x00a"),               // EVENTS: a padded length
        (&ENVELOPE, b"\x8a\x01s\x02a"),                   // EVENTS: an event longer than the message
        (PROTOBUF, b"\x52\x07\x12\x00\x0a\x01s\x12\x00"), // EVENTS: the subscription between events
        (PROTOBUF, b"\x42\x05\x0a\x01s\x12\x00"),         // NEG-MSG: no bytes, spelled out
        (&ENVELOPE, b"\x83\x01s\x04"),                    // EOSE: a third hint
        (&ENVELOPE, b"\x87\x01s\x00\x02\x00"),            // COUNT: hll of one byte
        (PROTOBUF, b"\x0a\x03\x0a\x01s"),                 // EVENT without an event
        (PROTOBUF, b"\x3a\x05\x0a\x01s\x10\x00"),         // COUNT: zero spelled out
        (PROTOBUF, b"\x3a\x05\x0a\x01s\x18\x02"),         // COUNT: approximate is 2
        (PROTOBUF, b"\x3a\x06\x0a\x01s\x22\x01a"),        // COUNT: hll of one byte
    ];
    for (formats, bytes) in relay {
        for subject in subjects_named(formats) {
            let result = subject.read_relay(bytes);
            assert!(result.is_err(), "{}: {bytes:02x?} gave {result:?}", subject.label);
        }
    }
}

#[test]
fn unknown_filter_fields_reach_their_own_filter() {
    let cases: [(&[&str], &[u8], &str); 2] = [
        (&ENVELOPE, b"\x02\x01s\x02\x03\x05\x01\x00\x06\x05\x01\x00\x63\x01x", "field 99"),
        (PROTOBUF, b"\x12\x0e\x0a\x01s\x12\x02\x28\x00\x12\x05\x28\x00\x4a\x01x", "field 9"),
    ];
    for (formats, bytes, field) in cases {
        for subject in subjects_named(formats) {
            let Ok(ClientMessage::Req { filters, .. }) = subject.read_client(bytes) else {
                panic!("{}: {:?}", subject.label, subject.read_client(bytes))
            };
            let unknown: Vec<_> = filters.iter().map(|filter| filter.unknown.as_deref()).collect();
            assert_eq!(unknown, [None, Some(field)], "{}", subject.label);
        }
    }
    // A filter of a later schema: the last of its pointers moves to a sixth place, which ours does
    // not have.
    for subject in subjects_named(&["capnp"]) {
        let mut bytes = subject.client(&request(Filter { since: Some(7), ..Filter::default() })).unwrap();
        let tag_word = bytes.windows(8).position(|word| word == [4, 0, 0, 0, 4, 0, 5, 0]).unwrap();
        bytes[tag_word + 4..tag_word + 8].copy_from_slice(&[5, 0, 4, 0]); // one more data word, one pointer fewer
        let beyond = tag_word + 8 + 4 * 8;
        let read = |bytes: &[u8]| match subject.read_client(bytes) {
            Ok(ClientMessage::Req { filters, .. }) => filters[0].clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            read(&bytes),
            Filter { since: Some(7), ..Filter::default() },
            "an unused field says nothing"
        );
        bytes[beyond] = 1;
        assert!(read(&bytes).unknown.is_some());
    }
}

#[test]
fn filters_are_counted_before_they_are_kept() {
    let many = vec![Filter::default(); 4_097];
    for subject in subjects_named(PROTOBUF)
        .chain(subjects_named(&ENVELOPE))
        .chain(subjects_named(&["capnp", "capnp-packed"]))
    {
        let message =
            |count: usize| ClientMessage::Req { subscription: "s".into(), filters: many[..count].to_vec() };
        let bytes = subject.client(&message(4_096)).unwrap();
        assert!(subject.read_client(&bytes).is_ok(), "{}", subject.label);
        let refused = subject.client(&message(4_097));
        assert!(
            matches!(refused, Err(EncodeError::TooLarge { max: 4_096, .. })),
            "{}: {refused:?}",
            subject.label
        );
    }
    let hostile: [(&[&str], Vec<u8>); 2] = [
        (&ENVELOPE, [&b"\x02\x01s\x81\x20"[..], &[0; 4_097]].concat()),
        (PROTOBUF, [&b"\x12\x85\x40\x0a\x01s"[..], &b"\x12\x00".repeat(4_097)].concat()),
    ];
    for (formats, bytes) in hostile {
        for subject in subjects_named(formats) {
            let result = subject.read_client(&bytes);
            let over = OverLimit {
                limit: Limit::Filters(4_096),
                request: Request::Req,
                subscription: "s".to_owned(),
            };
            assert_eq!(result, Err(DecodeError::OverLimit(Box::new(over))), "{}", subject.label);
        }
    }
}

#[test]
fn proto3_cannot_ask_for_none_of_a_list() {
    for subject in subjects_named(PROTOBUF) {
        for filter in [
            Filter { ids: Some(vec![]), ..Filter::default() },
            Filter { authors: Some(vec![]), ..Filter::default() },
            Filter { kinds: Some(vec![]), ..Filter::default() },
        ] {
            let result = subject.client(&request(filter));
            assert!(
                matches!(result, Err(EncodeError::Unrepresentable { .. })),
                "{}: {result:?}",
                subject.label
            );
        }
    }
}

/// Byte positions: segment table 0, root pointer 8, union 16, SubEvent's pointer 24, its sub 32,
/// its event 40.
#[test]
fn capnp_reads_no_blob_twice_and_nothing_outside() {
    for subject in subjects_named(&["capnp"]) {
        let message = RelayMessage::Closed { subscription: "s".repeat(8_000).into(), text: "".into() };
        let good = subject.relay(&message).unwrap();
        assert!(subject.read_relay(&good).is_ok());
        let check = |what: &str, change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = good.clone();
            change(&mut bytes);
            let result = subject.read_relay(&bytes);
            assert!(result.is_err(), "{what}: {result:?}");
        };
        check("text is the subscription again", &|bytes| {
            let sub = u64::from_le_bytes(bytes[32..40].try_into().unwrap());
            bytes[40..48].copy_from_slice(&(sub - 4).to_le_bytes()); // one word on, so one word less away
        });
        check("a far pointer to a segment that is not there", &|bytes| {
            bytes[8..16].copy_from_slice(&(2_u64 | 7 << 32).to_le_bytes());
        });
        check("a far pointer to itself", &|bytes| bytes[8..16].copy_from_slice(&2_u64.to_le_bytes()));
        check("a segment table of 2^32 segments", &|bytes| bytes[..4].fill(0xff));
        check("a segment larger than the message", &|bytes| bytes[4..8].fill(0xff));
        check("a word after the message", &|bytes| bytes.extend_from_slice(&[0; 8]));
        check("a null subscription", &|bytes| bytes[32..40].fill(0));
    }
}
