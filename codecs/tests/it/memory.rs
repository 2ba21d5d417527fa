//! Bytes from strangers: what a message claims or repeats never costs more memory than its size can
//! justify, whatever the format. Counted by the allocator, at the worst moment of decoding.

use std::borrow::Cow;

use allocation_counter::measure;
use codecs::{ClientMessage, Event, Filter, RelayMessage, Tag, TagFilter};

use crate::common::{self, Subject, sample_event, subjects};

/// Bytes in memory for each byte of a message. The worst are empty tags and values, of one byte in
/// most binary formats and 24 bytes as `Vec` or `Cow`; a list that grows is copied to one of twice
/// the size, so both are there for a moment; and a library may hold a copy of its own until ours is
/// made.
const MAX_BYTES_PER_BYTE: u64 = 24 * (2 + 1) + 24;
/// The same where keys are kept as bytes: a value has 40 bytes then.
const MAX_KEPT_BYTES_PER_BYTE: u64 = 40 * (2 + 1) + 24;
/// Memory for which no message is too small: the filters of a request, 4,096 at most, and buffers
/// of libraries.
const MAX_BYTES_AT_ALL: u64 = 2 << 20;

fn is_bounded(subject: &Subject, what: &str, bytes: &[u8]) {
    let check = |how: &str, peak: u64| {
        let a_byte =
            if how.ends_with("keeping_bytes") { MAX_KEPT_BYTES_PER_BYTE } else { MAX_BYTES_PER_BYTE };
        let limit = MAX_BYTES_AT_ALL + a_byte * bytes.len() as u64;
        assert!(
            peak <= limit,
            "{}, {how}, {what}: {peak} bytes for a message of {}",
            subject.label,
            bytes.len()
        );
    };
    check("decode_event", measure(|| drop(subject.codec.decode_event(bytes))).bytes_max);
    let kept = measure(|| drop(subject.codec.decode_keeping_bytes(bytes)));
    check("decode_keeping_bytes", kept.bytes_max);
    check("decode_client", measure(|| drop(subject.codec.decode_client(bytes))).bytes_max);
    check("decode_relay", measure(|| drop(subject.codec.decode_relay(bytes))).bytes_max);
    let kept = measure(|| drop(subject.codec.decode_relay_keeping_bytes(bytes)));
    check("decode_relay_keeping_bytes", kept.bytes_max);
    if let Some(batch) = subject.format.batch(subject.implementation) {
        check("batch", measure(|| drop(batch.decode(bytes))).bytes_max);
    }
}

/// Events that are mostly structure.
fn dense_events() -> Vec<(&'static str, Event<'static>)> {
    let with = |tags: Vec<Tag<'static>>| Event { tags, ..sample_event() };
    let empty = || Cow::Borrowed("");
    vec![
        ("empty tags", with(vec![Tag::new(); 16_000])),
        ("tags of one empty value", with(vec![vec![empty()]; 8_000])),
        ("empty values", with(vec![vec![empty(); 255]; 64])),
        ("values of one character", with(vec![vec!["x".into(); 250]; 50])),
        ("short hex", with(vec![vec!["00112233".into(); 250]; 25])),
        ("escapes", Event { content: "\u{1}".repeat(16_000).into(), ..sample_event() }),
    ]
}

#[test]
fn dense_events_cost_no_more_than_their_size_allows() {
    for subject in subjects() {
        for (what, event) in dense_events() {
            let Ok(bytes) = subject.event(&event) else { continue };
            is_bounded(&subject, what, &bytes);
            let message = ClientMessage::Event(Cow::Owned(event.clone()));
            is_bounded(&subject, what, &subject.client(&message).unwrap());
            let message = RelayMessage::Event { subscription: "s".into(), event: Cow::Owned(event) };
            is_bounded(&subject, what, &subject.relay(&message).unwrap());
        }
    }
}

#[test]
fn dense_requests_cost_no_more_than_their_size_allows() {
    let values = |count| Filter {
        tags: vec![TagFilter { letter: 'e', values: vec![String::new(); count] }],
        ..Filter::default()
    };
    let kinds = Filter { kinds: Some(vec![1; 16_000]), ..Filter::default() };
    let cases = [
        ("4,096 empty filters", vec![Filter::default(); 4_096]),
        ("empty values of a condition", vec![values(16_000)]),
        ("a kind many times", vec![kinds]),
        ("conditions in every filter", vec![values(2); 4_096]),
    ];
    for subject in subjects() {
        for (what, filters) in &cases {
            let message = ClientMessage::Req { subscription: "s".into(), filters: filters.clone() };
            is_bounded(&subject, what, &subject.client(&message).unwrap());
        }
    }
}

/// A claim behind which nothing comes: each byte of a sample in turn becomes the largest, and so
/// does each run of bytes that could be a number.
#[test]
fn claims_reserve_nothing() {
    for subject in subjects() {
        let mut samples = vec![
            subject.event(&sample_event()).unwrap(),
            subject.client(&common::client_messages()[5]).unwrap(),
            subject.relay(&common::relay_messages()[0]).unwrap(),
        ];
        if let Some(batch) = subject.format.batch(subject.implementation) {
            let mut bytes = Vec::new();
            batch.encode(&[sample_event()], &mut bytes).unwrap();
            samples.push(bytes);
        }
        for sample in samples {
            for at in 0..sample.len() {
                for width in [1, 4, 8] {
                    let mut bytes = sample.clone();
                    bytes[at..].iter_mut().take(width).for_each(|byte| *byte = 0xff);
                    is_bounded(&subject, "bytes of ff", &bytes);
                    bytes[at..].iter_mut().take(width).last().into_iter().for_each(|byte| *byte = 0x7f);
                    is_bounded(&subject, "bytes of ff and 7f", &bytes);
                }
            }
        }
    }
}

/// A request of more filters than the bound is refused when the bound is reached, not when all were
/// read.
#[test]
fn more_filters_than_the_bound_are_refused_at_once() {
    let json = format!("[\"REQ\",\"s\"{}]", ",{}".repeat(300_000));
    let head = [&[0x9a][..], &300_002_u32.to_be_bytes()].concat();
    let numbered = [&head[..], b"\x02\x61s", &[0xa0; 300_000]].concat();
    let spelled = [&head[..], b"\x63REQ\x61s", &[0xa0; 300_000]].concat();
    let proto = [&b"\x12\xc3\xcf\x24\x0a\x01s"[..], &b"\x12\x00".repeat(300_000)].concat();
    let envelope = [&b"\x02\x01s\xe0\xa7\x12"[..], &[0; 300_000]].concat();
    for subject in subjects() {
        let bytes = match subject.format.name() {
            "json" | "nson" => json.as_bytes(),
            "cbor-schemaless" => &spelled,
            "cbor-packed" | "cbor-intkey" => &numbered,
            name if common::PROTOBUF.contains(&name) => &proto,
            name if common::ENVELOPE.contains(&name) => &envelope,
            _ => continue, // Cap'n Proto: a count in front, see `claims_reserve_nothing`
        };
        let mut result = None;
        let peak = measure(|| result = Some(subject.codec.decode_client(bytes).map(drop))).bytes_max;
        let error = result.unwrap().expect_err(&subject.label).to_string();
        assert!(error.contains("filters"), "{}: {error}", subject.label);
        assert!(peak <= MAX_BYTES_AT_ALL, "{}: {peak} bytes", subject.label);
    }
}
