//! Tuned code allocates nothing once its caller's buffer is large enough: counted, not timed.

use std::borrow::Cow;

use allocation_counter::measure;
use codecs::{ByteMessage, Codec, Event, FlatEvent, Format, RelayMessage, TagValue};

use crate::common::{sample_event, vectors};

#[test]
fn encoding_and_peeking_allocate_nothing() {
    for_each_encoded(|format, codec, number, event, bytes| {
        let mut out = Vec::with_capacity(bytes.len() + 1024);
        let none = |what, allocations: allocation_counter::AllocationInfo| {
            assert_eq!(allocations.count_total, 0, "{format}: {what} of vector {number}");
        };
        none("encoding", measure(|| codec.encode_event(event, &mut out).unwrap()));
        assert!(out == bytes);
        out.clear();
        none("wrapping", measure(|| assert!(codec.wrap_event("subscription", bytes, &mut out) > 0)));
        none("peeking", measure(|| assert!(codec.peek(bytes).is_ok())));
    });
}

/// Whatever a message holds, a flat event is one piece, and reading it makes no other.
#[test]
fn a_flat_event_is_one_allocation() {
    for vector in vectors() {
        let mut flat = None;
        let allocations = measure(|| flat = Some(FlatEvent::from(&vector.event))).count_total;
        assert!(allocations <= 1, "{}: {allocations}", vector.name);
        let flat = flat.unwrap();
        let values = |tags: usize, tag: &mut dyn Iterator<Item = &str>| tags + tag.count();
        let reading = measure(|| {
            let read = flat.tags().fold(0, |sum, mut tag| values(sum, &mut tag));
            assert_eq!(read, vector.event.tags.iter().map(Vec::len).sum::<usize>());
        });
        assert_eq!(reading.count_total, 0, "reading {}", vector.name);
    }
}

/// A decoded event borrows its text: it allocates its lists, text that stands for bytes and nothing
/// on the way, but for JSON, which does not say how many values follow.
#[test]
fn a_decoded_event_allocates_its_lists_and_hex() {
    for_each_encoded(|format, codec, number, event, bytes| {
        if format == Format::JSON {
            return;
        }
        let owned = |text: &Cow<'_, str>| usize::from(matches!(text, Cow::Owned(text) if !text.is_empty()));
        let mut decoded = None;
        let allocations = measure(|| decoded = codec.decode_event(bytes).ok());
        let decoded = decoded.unwrap();
        assert!(decoded == *event);
        let values: usize = decoded.tags.iter().flatten().map(owned).sum();
        let lists = event.tags.iter().filter(|tag| !tag.is_empty()).count();
        let held = values + lists + owned(&decoded.content) + usize::from(!event.tags.is_empty());
        assert_eq!(allocations.count_current, held as i64, "{format}: vector {number}");
        // A list whose claimed length the rest of the message could hardly pay for grows as its
        // values come.
        let most = held + lists;
        assert!(allocations.count_total <= most as u64, "{format}: vector {number}: {allocations:?}, {most}");
    });
}

/// Keys in tags, which most text is made of, are no allocation where bytes are kept.
#[test]
fn an_event_that_keeps_bytes_allocates_no_key() {
    for_each_encoded(|format, codec, number, event, bytes| {
        let mut kept = None;
        let allocations = measure(|| kept = codec.decode_keeping_bytes(bytes).ok());
        let kept = kept.unwrap();
        let owned = |text: &Cow<'_, str>| usize::from(matches!(text, Cow::Owned(text) if !text.is_empty()));
        let texts = kept.tags.iter().flatten().map(|value| match value {
            TagValue::Key(_) => 0,
            TagValue::Text(text) => owned(text),
        });
        let lists = event.tags.iter().filter(|tag| !tag.is_empty()).count();
        let held = texts.sum::<usize>() + lists + owned(&kept.content) + usize::from(!event.tags.is_empty());
        assert_eq!(allocations.count_current, held as i64, "{format}: vector {number}");
        let mut message = Vec::new();
        codec.wrap_event("sub", bytes, &mut message);
        let mut delivered = None;
        let allocations = measure(|| delivered = codec.decode_relay_keeping_bytes(&message).ok());
        let Some(ByteMessage::Event { event, subscription }) = delivered else {
            panic!("{format}: no EVENT")
        };
        assert!(event == kept, "{format}: another event in vector {number}");
        let held = held + owned(&subscription);
        assert_eq!(allocations.count_current, held as i64, "{format}: EVENT of vector {number}");
    });
}

/// Every vector in every tuned format that can hold it.
fn for_each_encoded(check: impl Fn(Format, &dyn Codec, usize, &Event<'static>, &[u8])) {
    let mut events: Vec<_> = vectors().into_iter().map(|vector| vector.event).collect();
    events.push(sample_event());
    for format in Format::all() {
        let Some(codec) = format.spec().tuned else { continue };
        for (number, event) in events.iter().enumerate() {
            let mut bytes = Vec::new();
            if codec.encode_event(event, &mut bytes).is_ok() {
                check(format, codec, number, event, &bytes);
            }
        }
    }
}

#[test]
fn a_relays_event_needs_no_second_buffer() {
    let message = RelayMessage::Event { subscription: "sub".into(), event: Cow::Owned(sample_event()) };
    for format in Format::all() {
        let Some(codec) = format.spec().tuned else { continue };
        let mut out = Vec::with_capacity(4096);
        let allocations = measure(|| codec.encode_relay(&message, &mut out).unwrap());
        assert_eq!(allocations.count_total, 0, "{format}");
    }
}
