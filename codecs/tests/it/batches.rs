//! Batches: the bytes of binostr's encoders, and strict readers. `properties.rs` asks them of any bytes, too.

use allocation_counter::measure;
use codecs::{Batch, BatchLayout, DecodeError, EncodeError, Event, Format, Implementation, hex};

use crate::common::{batch, committed, event_of, sample_event, subjects, vectors};

/// Every reader and writer of batches.
fn batches() -> Vec<(Format, String, Batch)> {
    let all = subjects().into_iter().filter_map(|subject| {
        let batch = subject.format.batch(subject.implementation)?;
        Some((subject.format, subject.label, batch))
    });
    let all: Vec<_> = all.collect();
    assert!(all.len() > 11, "formats with a layout: {}", all.len());
    all
}

fn written(batch: &Batch, events: &[Event<'_>]) -> Result<Vec<u8>, EncodeError> {
    let mut out = Vec::new();
    batch.encode(events, &mut out).map(|()| out)
}

#[test]
fn batches_are_the_references_bytes() {
    let file = committed("batches.json");
    let mut compared = 0;
    for case in file.as_array().unwrap() {
        let texts = case["events"].as_array().unwrap();
        let events: Vec<_> = texts.iter().map(|event| event_of(event.as_str().unwrap())).collect();
        for (format, label, batch) in batches() {
            let Some(golden) = case["bytes"][format.name()].as_str() else {
                assert_eq!(format.name(), "proto-compact", "binostr wrote no batch of {format}");
                continue;
            };
            assert_eq!(hex::encode(&written(&batch, &events).unwrap()), golden, "{label}");
            let golden = hex::decode(golden.as_bytes()).unwrap();
            assert_eq!(batch.decode(&golden).unwrap(), events, "{label}");
            compared += 1;
        }
    }
    assert!(compared > 20, "{compared} compared");
}

/// The bytes around the events, put together without the code under test.
#[test]
fn layouts_are_events_and_what_stands_between() {
    for (format, label, batch) in batches() {
        let codec = format.spec().library;
        let encode = |event: &Event<'_>| {
            let mut out = Vec::new();
            codec.encode_event(event, &mut out).ok().map(|()| out)
        };
        let (events, parts): (Vec<_>, Vec<_>) = vectors()
            .into_iter()
            .filter_map(|vector| encode(&vector.event).map(|bytes| (vector.event, bytes)))
            .take(30)
            .unzip();
        let length = |len: usize| u32::try_from(len).unwrap().to_le_bytes();
        let expected = match format.spec().batch.unwrap() {
            BatchLayout::JsonArray => [b"[", &parts.join(&b","[..])[..], b"]"].concat(),
            BatchLayout::CborArray => [&[0x98, 30], &parts.concat()[..]].concat(),
            BatchLayout::CountAndLengths => {
                let sized = parts.iter().flat_map(|part| [&length(part.len()), &part[..]].concat());
                length(30).into_iter().chain(sized).collect()
            }
            BatchLayout::ProtobufField => parts
                .iter()
                .flat_map(|part| {
                    let mut field = vec![0x0a];
                    prost::encoding::encode_varint(part.len() as u64, &mut field);
                    [field, part.clone()].concat()
                })
                .collect(),
            // Pointers, which the crate lays out: `batches_are_the_references_bytes`.
            BatchLayout::CapnpList | BatchLayout::CapnpPackedList => written(&batch, &events).unwrap(),
        };
        assert_eq!(written(&batch, &events).unwrap(), expected, "{label}");
        assert_eq!(batch.decode(&expected).unwrap(), events, "{label}");
    }
}

#[test]
fn a_batch_with_an_event_beyond_the_format_is_refused_whole() {
    let wide = Event { tags: vec![vec!["v".into(); 256]], ..sample_event() };
    for name in ["dannypack", "capnp", "capnp-packed"] {
        let batch = name.parse::<Format>().unwrap().batch(Implementation::Library).unwrap();
        let mut out = b"before".to_vec();
        let error = batch.encode(&[sample_event(), wide.clone()], &mut out).unwrap_err();
        assert!(matches!(error, EncodeError::TooLarge { actual: 256, max: 255, .. }), "{name}: {error}");
        assert_eq!(out, b"before", "{name}");
    }
}

#[test]
fn truncated_and_longer_batches_are_refused() {
    for (format, label, codec) in batches() {
        let bytes = written(&codec, &batch(3)).unwrap();
        // Fields end where an event does: a protobuf message of two is one of three, cut.
        let whole: Vec<_> = match format.spec().batch.unwrap() {
            BatchLayout::ProtobufField => (0..3).map(|n| written(&codec, &batch(n)).unwrap().len()).collect(),
            _ => Vec::new(),
        };
        for len in (0..bytes.len()).filter(|len| !whole.contains(len)) {
            assert!(codec.decode(&bytes[..len]).is_err(), "{label}: {len} of {} bytes", bytes.len());
        }
        for behind in [&[0][..], b"]", &bytes] {
            let longer = [&bytes, behind].concat();
            let result = codec.decode(&longer).map(|events| events.len());
            let repeats = format.spec().batch == Some(BatchLayout::ProtobufField) && behind == bytes;
            assert!(result.is_err() != repeats, "{label}: {} more bytes: {result:?}", behind.len());
        }
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let read = |name: &str, bytes: &[u8]| {
        let batch = name.parse::<Format>().unwrap().batch(Implementation::Library).unwrap();
        batch.decode(bytes).unwrap_err()
    };
    let one = |name: &str| {
        let batch = name.parse::<Format>().unwrap().batch(Implementation::Library).unwrap();
        written(&batch, &[sample_event()]).unwrap()
    };
    for name in ["dannypack", "notepack"] {
        assert_eq!(read(name, &[2, 0]), DecodeError::Truncated("number of events"));
        assert_eq!(read(name, &[0xff; 4]), DecodeError::Truncated("event's length"));
        assert_eq!(read(name, &[1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 1]), DecodeError::Truncated("event"));
        assert_eq!(read(name, &[0, 0, 0, 0, 7]), DecodeError::Trailing(1));
        let mut fewer = one(name);
        fewer[0] = 0;
        assert_eq!(read(name, &fewer), DecodeError::Trailing(fewer.len() - 4));
        fewer[0] = 2;
        assert_eq!(read(name, &fewer), DecodeError::Truncated("event's length"));
    }
    assert_eq!(read("cbor-packed", b"\xa0"), DecodeError::Malformed("array of events"));
    assert_eq!(read("cbor-packed", b"\x9f\xff"), DecodeError::NotCanonical("an item of indefinite length"));
    assert_eq!(read("cbor-packed", b"\x98\x00"), DecodeError::NotCanonical("an integer or length"));
    assert_eq!(
        read("cbor-packed", b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff"),
        DecodeError::Truncated("a CBOR head")
    );
    assert_eq!(read("proto-binary", b"\x12\x00"), DecodeError::Malformed("field of a batch"));
    assert_eq!(read("proto-binary", b"\x0a\x80\x00"), DecodeError::NotCanonical("event's length"));
    assert_eq!(read("proto-binary", b"\x0a\x05\x00"), DecodeError::Truncated("event"));
    assert!(read("json", b"[,]").to_string().contains("expected value"));
    assert!(read("json", b"{}").to_string().contains("an array of events"));
    // A root without a list, which the crate reads as an empty one.
    let rootless = b"\0\0\0\0\x02\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0";
    assert_eq!(read("capnp", rootless), DecodeError::Missing("list of events"));
}

/// Other claims are asked in `memory.rs`.
#[test]
fn a_list_of_nothing_reserves_nothing() {
    // A list of 2^29 - 1 structs of no size, which no word has to stand for.
    let zero_sized = [
        &b"\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\x01\0\x01\0\0\0\x07\0\0\0"[..],
        &(0x1fff_ffff_u64 << 2).to_le_bytes(),
    ];
    let capnp = "capnp".parse::<Format>().unwrap().batch(Implementation::Library).unwrap();
    let peak = measure(|| assert!(capnp.decode(&zero_sized.concat()).is_err())).bytes_max;
    assert!(peak < 1 << 20, "{peak} bytes");
}
