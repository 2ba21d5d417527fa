//! Tuned code allocates nothing once its caller's buffer is large enough: counted, not timed.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure should end the test")]

mod common;

use allocation_counter::measure;
use codecs::{Codec, Event, EventView, FlatEvent, Format, RelayMessage, TextView};
use common::{sample_event, vectors};

#[test]
fn encoding_viewing_and_peeking_by_hand_allocate_nothing() {
    for_each_encoded(|format, codec, number, event, bytes| {
        let mut out = Vec::with_capacity(bytes.len() + 1024);
        let none = |what, allocations: allocation_counter::AllocationInfo| {
            assert_eq!(allocations.count_total, 0, "{format}: {what} of vector {number}");
        };
        none("encoding", measure(|| codec.encode_event(event, &mut out).unwrap()));
        assert!(out == bytes);
        out.clear();
        none("wrapping", measure(|| codec.wrap_event("subscription", bytes, &mut out)));
        none("peeking", measure(|| assert!(codec.peek(bytes).is_ok())));
        let mut view = None;
        none("viewing", measure(|| view = codec.view_event(bytes).ok()));
        let view: EventView<'_> = view.unwrap();
        none("reading the tags of a view", measure(|| read_all(&view)));
    });
}

/// Compares every text with one that is nowhere, so that all of it is read.
fn read_all(view: &EventView<'_>) {
    let is_other = |text: TextView<'_>| assert!(!text.is("no vector holds this"));
    is_other(view.content());
    view.tags().for_each(|tag| tag.values().for_each(is_other));
}

/// Whatever a message holds, a flat event is one piece, and reading it makes no other.
#[test]
fn a_flat_event_is_one_allocation() {
    for_each_encoded(|format, codec, number, _, bytes| {
        let mut flat = None;
        let allocations = measure(|| flat = codec.flat_event(bytes).ok());
        let flat: FlatEvent = flat.unwrap();
        assert!(allocations.count_total <= 1, "{format}: vector {number}: {}", allocations.count_total);
        let reading = measure(|| read_all(&flat.view())).count_total;
        assert_eq!(reading, 0, "{format}: reading vector {number}");
    });
}

/// An owned event is what it is made of and nothing on the way, but for JSON, which does not say how many values
/// follow. Names of one letter are static.
#[test]
fn an_owned_event_allocates_what_it_holds() {
    for_each_encoded(|format, codec, number, event, bytes| {
        if format == Format::JSON {
            return;
        }
        let is_stored = |text: &str| text.len() > 1 || !text.is_ascii();
        let values = event.tags.iter().flatten().filter(|value| is_stored(value)).count();
        let lists = event.tags.iter().filter(|tag| !tag.is_empty()).count();
        let content = usize::from(!event.content.is_empty());
        let held = values + lists + content + usize::from(!event.tags.is_empty());
        let mut owned = None;
        let allocations = measure(|| owned = codec.owned_event(bytes).ok());
        assert!(owned.as_ref() == Some(event));
        assert_eq!(allocations.count_current, held as i64, "{format}: vector {number}");
        // A list whose claimed length the rest of the message could hardly pay for grows as its values come.
        let most = held + lists;
        assert!(allocations.count_total <= most as u64, "{format}: vector {number}: {allocations:?}, {most}");
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
    let message =
        RelayMessage::Event { subscription: "sub".into(), event: std::borrow::Cow::Owned(sample_event()) };
    for format in Format::all() {
        let Some(codec) = format.spec().tuned else { continue };
        let mut out = Vec::with_capacity(4096);
        let allocations = measure(|| codec.encode_relay(&message, &mut out).unwrap());
        assert_eq!(allocations.count_total, 0, "{format}");
    }
}
