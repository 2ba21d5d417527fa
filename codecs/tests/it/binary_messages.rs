//! Messages of CBOR, the common envelope, protobuf and Cap'n Proto: forms other than the one that encoders
//! write are refused. `vectors/v1.json` pins that one.

use codecs::{ClientMessage, DecodeError, Filter, RelayMessage};

use crate::common::{ENVELOPE, PROTOBUF, Subject, batch, subjects};

/// The CBOR formats whose verbs and fields are numbers.
const NUMBERED: &[&str] = &["cbor-packed", "cbor-intkey"];

fn subjects_named(names: &'static [&str]) -> impl Iterator<Item = Subject> {
    subjects().into_iter().filter(|subject| names.contains(&subject.format.name()))
}

fn request(filter: Filter) -> ClientMessage<'static> {
    ClientMessage::Req { subscription: "s".into(), filters: vec![filter] }
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
    let client: [(&[&str], &[u8]); 45] = [
        (NUMBERED, b"\x84\x06\x61s\xa0\x61a"), // NEG-OPEN: text in place of bytes
        (NUMBERED, b"\x83\x06\x61s\x41\x61"),  // NEG-OPEN without a filter
        (NUMBERED, b"\x83\x06\x61s\xa0"),      // NEG-OPEN without bytes
        (NUMBERED, b"\x83\x07\x61s\x81\x01"),  // NEG-MSG: numbers in place of bytes
        (NUMBERED, b"\x83\x08\x61s\x41\x61"),  // NEG-CLOSE with bytes
        (NUMBERED, b"\x82\x03\x41s"),          // CLOSE: subscription as bytes
        (NUMBERED, b"\x82\x61\x33\x61s"),      // opcode as text
        (NUMBERED, b"\x82\x20\x61s"),          // negative opcode
        (NUMBERED, b"\x81\x03"),               // CLOSE without subscription
        (NUMBERED, b"\x83\x03\x61s\x61s"),     // CLOSE with one element too many
        (NUMBERED, b"\x80"),                   // no verb
        (NUMBERED, b"\xa1\x03\x61s"),          // not an array
        (NUMBERED, b"\x42\x03\x61"),           // bytes in place of an array
        (NUMBERED, b"\x83\x02\x61s\x80"),      // REQ: filter is an array
        (NUMBERED, b"\x83\x02\x61s\xa1\x03\x41\x01"), // kinds as bytes
        (NUMBERED, b"\x83\x02\x61s\xa1\x01\x40"), // ids as bytes
        (NUMBERED, b"\x83\x02\x61s\xa2\x05\x01\x04\x01"), // until before since
        (NUMBERED, b"\x83\x02\x61s\xa2\x05\x01\x05\x01"), // until twice
        (NUMBERED, b"\x83\x02\x61s\xa1\x08\xa0"), // empty tag conditions
        (NUMBERED, b"\x83\x02\x61s\xa1\x08\xa1\x61e\x81\x68abababab"), // hex as text
        (NUMBERED, b"\x83\x02\x61s\xa1\x08\xa2\x61e\x80\x61e\x80"), // a letter twice
        (&ENVELOPE, b"\x08\x01st"),            // NEG-CLOSE with a byte too many
        (&ENVELOPE, b"\x06\x01s\x03\x03\x01"), // NEG-OPEN: a filter longer than the message
        (PROTOBUF, b"\x32\x03\x0a\x01s"),      // NEG-OPEN without a filter
        (PROTOBUF, b"\x3a\x08\x12\x01a\x0a\x01s\x0a\x00"), // NEG-MSG: bytes before the subscription
        (&ENVELOPE, b"\x03\x01st"),            // CLOSE with a byte too many
        (&ENVELOPE, b"\x02\x01s\x81\x00\x00"), // a padded number of filters
        (&ENVELOPE, b"\x02\x01s\x01\x06\x05\x01\x00\x04\x01\x00"), // until before since
        (&ENVELOPE, b"\x02\x01s\x01\x06\x05\x01\x00\x05\x01\x00"), // until twice
        (&ENVELOPE, b"\x02\x01s\x01\x04\x05\x02\x00\x00"), // until with a byte too many
        (&ENVELOPE, b"\x02\x01s\x01\x05\x03\x03\xff\xff\x07"), // kind 131071
        (&ENVELOPE, b"\x02\x01s\x01\x04\x01\x02\xab\xab"), // an id of two bytes
        (&ENVELOPE, b"\x02\x01s\x01\x0c\x08\x0ae\x10abababab"), // hex as text
        (&ENVELOPE, b"\x02\x01s\x01\x06\x08\x04e\x05\xab\xab"), // bytes of too short hex
        (&ENVELOPE, b"\x02\x01s\x01\x03\x08\x01\xe9"), // not a letter
        (&ENVELOPE, b"\x02\x01s\x01\x06\x08\x01e\x08\x01e"), // a letter twice
        (PROTOBUF, b""),                       // no message
        (PROTOBUF, b"\x1a\x01s\x1a\x01s"),     // two messages
        (PROTOBUF, b"\x12\x05\x12\x00\x0a\x01s"), // filters before the subscription
        (PROTOBUF, b"\x12\x06\x0a\x01s\x0a\x01t"), // two subscriptions
        (PROTOBUF, b"\x12\x02\x0a\x00"),       // an empty subscription spelled out
        (PROTOBUF, b"\x12\x07\x0a\x01s\x12\x02\x18\x01"), // kinds one by one
        (PROTOBUF, b"\x12\x09\x0a\x01s\x12\x04\x1a\x02\x81\x00"), // a padded kind
        (PROTOBUF, b"\x12\x05\x0a\x01s\x18\x01"), // a field that REQ does not have
        (PROTOBUF, b"\x12\x09\x0a\x01s\x12\x04\x42\x02\x0a\x00"), // a tag condition without a letter
    ];
    let refuses = |subject: &Subject, bytes: &[u8], error: Option<DecodeError>| {
        let refused = error.is_some_and(|error| !matches!(error, DecodeError::UnknownMessage(_)));
        assert!(refused, "{}: {bytes:02x?}", subject.label);
    };
    for (formats, bytes) in client {
        subjects_named(formats)
            .for_each(|subject| refuses(&subject, bytes, subject.read_client(bytes).err()));
    }
    let relay: [(&[&str], &[u8]); 19] = [
        (NUMBERED, b"\x83\x08\x61s\x61a"),    // NEG-MSG: text in place of bytes
        (NUMBERED, b"\x83\x09\x61s\x41a"),    // NEG-ERR: bytes in place of text
        (NUMBERED, b"\x83\x0a\x61s\x81\x00"), // EVENTS: a number in place of an event
        (NUMBERED, b"\x83\x03\x61s\x80"),     // EOSE: no hint
        (NUMBERED, b"\x83\x03\x61s\x82\x64more\x66finish"), // hints out of order
        (NUMBERED, b"\x83\x03\x61s\x82\x64more\x64more"), // a hint twice
        (NUMBERED, b"\x84\x07\x61s\x01\xf4"), // COUNT: a lone false
        (NUMBERED, b"\x85\x07\x61s\x01\xf5\x41\x00"), // hll of one byte
        (NUMBERED, b"\x84\x02\x41\x00\xf5\x60"), // OK: an id of one byte
        (&ENVELOPE, b"\x8a\x01s\x81\x00a"),   // EVENTS: a padded length
        (&ENVELOPE, b"\x8a\x01s\x02a"),       // EVENTS: an event longer than the message
        (PROTOBUF, b"\x52\x07\x12\x00\x0a\x01s\x12\x00"), // EVENTS: the subscription between events
        (PROTOBUF, b"\x42\x05\x0a\x01s\x12\x00"), // NEG-MSG: no bytes, spelled out
        (&ENVELOPE, b"\x83\x01s\x04"),        // EOSE: a third hint
        (&ENVELOPE, b"\x87\x01s\x00\x02\x00"), // COUNT: hll of one byte
        (PROTOBUF, b"\x0a\x03\x0a\x01s"),     // EVENT without an event
        (PROTOBUF, b"\x3a\x05\x0a\x01s\x10\x00"), // COUNT: zero spelled out
        (PROTOBUF, b"\x3a\x05\x0a\x01s\x18\x02"), // COUNT: approximate is 2
        (PROTOBUF, b"\x3a\x06\x0a\x01s\x22\x01a"), // COUNT: hll of one byte
    ];
    for (formats, bytes) in relay {
        subjects_named(formats).for_each(|subject| refuses(&subject, bytes, subject.read_relay(bytes).err()));
    }
}

/// Filters of a later version: the relay must be able to answer CLOSED `unsupported`.
#[test]
fn unknown_filter_fields_reach_their_own_filter() {
    let cases: [(&[&str], &[u8], &str); 9] = [
        (&["json"], b"[\"REQ\",\"s\",{},{\"ids\":[],\"frob\":{\"a\":[1]},\"limit\":1}]", "frob"),
        (&["json"], b"[\"REQ\",\"s\",{},{\"#long\":[\"x\"]}]", "#long"),
        (&["cbor-schemaless"], b"\x84\x63REQ\x61s\xa0\xa2\x64frob\xa1\x00\x81\x01\x65limit\x01", "frob"),
        (&["cbor-schemaless"], b"\x84\x63REQ\x61s\xa0\xa1\x65#long\x80", "#long"),
        (&["cbor-schemaless"], b"\x84\x63REQ\x61s\xa0\xa1\x64tags\xa0", "tags"),
        (NUMBERED, b"\x84\x02\x61s\xa0\xa2\x06\x01\x18\x63\x80", "99"),
        (NUMBERED, b"\x84\x02\x61s\xa0\xa1\x08\xa1\x64long\x80", "#long"),
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
