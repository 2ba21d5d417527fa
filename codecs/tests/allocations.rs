//! Tuned code allocates nothing once its caller's buffer is large enough: counted, not timed.

#![allow(clippy::unwrap_used, reason = "helpers of tests: a failure should end the test")]

mod common;

use allocation_counter::measure;
use codecs::{EventView, Format, RelayMessage, TextView};
use common::{sample_event, vectors};

#[test]
fn encoding_viewing_and_peeking_by_hand_allocate_nothing() {
    let mut events: Vec<_> = vectors().into_iter().map(|vector| vector.event).collect();
    events.push(sample_event());
    for format in Format::all() {
        let Some(codec) = format.spec().tuned else { continue };
        for (number, event) in events.iter().enumerate() {
            let mut bytes = Vec::new();
            if codec.encode_event(event, &mut bytes).is_err() {
                continue;
            }
            let mut out = Vec::with_capacity(bytes.len() + 1024);
            let none = |what, allocations: allocation_counter::AllocationInfo| {
                assert_eq!(allocations.count_total, 0, "{format}: {what} of vector {number}");
            };
            none("encoding", measure(|| codec.encode_event(event, &mut out).unwrap()));
            assert!(out == bytes);
            out.clear();
            none("wrapping", measure(|| codec.wrap_event("subscription", &bytes, &mut out)));
            none("peeking", measure(|| assert!(codec.peek(&bytes).is_ok())));
            let mut view = None;
            none("viewing", measure(|| view = codec.view_event(&bytes).ok()));
            let view: EventView<'_> = view.unwrap();
            none("reading the tags of a view", measure(|| read_all(&view)));
        }
    }
}

/// Compares every text with one that is nowhere, so that all of it is read.
fn read_all(view: &EventView<'_>) {
    let is_other = |text: TextView<'_>| assert!(!text.is("no vector holds this"));
    is_other(view.content());
    view.tags().for_each(|tag| tag.values().for_each(is_other));
}

/// Whatever a message holds, a flat event is two pieces.
#[test]
fn flat_events_are_two_allocations() {
    let event = sample_event();
    for format in Format::all() {
        let Some(codec) = format.spec().tuned else { continue };
        let mut bytes = Vec::new();
        codec.encode_event(&event, &mut bytes).unwrap();
        let mut flat = None;
        let allocations = measure(|| flat = codec.flat_event(&bytes).ok());
        assert!(flat.is_some());
        assert!(allocations.count_max <= 2, "{format}: {} live allocations", allocations.count_max);
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
