//! Bounds of each format, to the last value: that one comes back the same, and the next is
//! refused with nothing written. No encoder wraps, cuts or alters.
//!
//! The limits are those of [`codecs::Capacity`], and NSON's descriptor. Cap'n Proto's and
//! FlatBuffers' limits of some 500 MB are not tried: an event of that size would be most of a
//! machine's memory.

use std::borrow::Cow;

use codecs::{Capacity, ClientMessage, EncodeError, Event, Filter, Format, RelayMessage, Tag, TagFilter};

use crate::common::{self, Message, PROTOBUF, Subject, sample_event, subjects};

/// Bytes that were in the caller's buffer before.
const BEFORE: &[u8] = b"what was there before";

fn with_tags(tags: Vec<Tag<'static>>) -> Event<'static> {
    Event { tags, ..sample_event() }
}

fn with_values(values: usize) -> Event<'static> {
    with_tags(vec![vec![Cow::Borrowed("v"); values]])
}

fn with_value(value: String) -> Event<'static> {
    with_tags(vec![vec!["t".into(), value.into()], vec!["e".into(), "after".into()]])
}

fn with_content(bytes: usize) -> Event<'static> {
    Event { content: "c".repeat(bytes).into(), ..sample_event() }
}

fn at(created_at: i64) -> Event<'static> {
    Event { created_at, ..sample_event() }
}

/// Tags of so many bytes together: of one value of up to 255 bytes each, and tags without a value.
fn with_tag_block(bytes: usize) -> Event<'static> {
    let mut tags = vec![vec![Cow::Owned("x".repeat(255))]; bytes / 257];
    tags.extend(vec![Tag::new(); bytes % 257]);
    with_tags(tags)
}

/// What, the last event that fits, and the first that does not.
type Border = (&'static str, Event<'static>, Event<'static>);

/// The borders of a format, and the values beyond them.
fn borders(capacity: &Capacity) -> Vec<Border> {
    let Capacity { times, tags, tag_values, value_bytes, hex_chars, tags_bytes, content_bytes, .. } =
        capacity;
    let sized = |limit: usize, event: &dyn Fn(usize) -> Event<'static>| {
        (limit < usize::MAX).then(|| (event(limit), event(limit + 1)))
    };
    let empty_tags = |count| with_tags(vec![Tag::new(); count]);
    let mut borders: Vec<Border> = Vec::new();
    let mut add = |what, pair: Option<(Event<'static>, Event<'static>)>| {
        borders.extend(pair.map(|(fits, exceeds)| (what, fits, exceeds)));
    };
    add("values in a tag", sized(*tag_values, &with_values));
    add("tags", sized(*tags, &empty_tags));
    add("value", sized(*value_bytes, &|bytes| with_value("x".repeat(bytes))));
    let two_byte_chars = |bytes: usize| with_value("ä".repeat(bytes / 2) + &"x".repeat(bytes % 2));
    add("value in characters of two bytes", sized(*value_bytes, &two_byte_chars));
    if hex_chars.is_some() {
        // Hex is stored as bytes, so twice as many digits fit; an odd number of digits is text.
        add("hex value", sized(*value_bytes, &|bytes| with_value("ab".repeat(bytes))));
        let odd = |digits: usize| with_value("a".repeat(digits));
        add("odd hex", (*value_bytes < usize::MAX).then(|| (odd(*value_bytes), odd(value_bytes + 2))));
    }
    add("content", sized(*content_bytes, &with_content));
    add("all tags in bytes", sized(*tags_bytes, &with_tag_block));
    if *times != Capacity::ANY.times {
        add("earliest time", Some((at(*times.start()), at(times.start() - 1))));
        add("latest time", Some((at(*times.end()), at(times.end() + 1))));
    }
    borders
}

/// The borders of every format.
fn all_borders() -> Vec<Border> {
    Format::all().flat_map(|format| borders(&format.spec().capacity)).collect()
}

/// The bytes behind what was there, or the error with the buffer as it was.
fn encode_behind(
    what: &str,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<Vec<u8>, EncodeError> {
    let mut out = BEFORE.to_vec();
    let result = write(&mut out);
    assert!(out.starts_with(BEFORE), "{what}: what was there before has changed");
    let bytes = out.split_off(BEFORE.len());
    assert!(result.is_ok() || bytes.is_empty(), "{what}: {} bytes of a refused event stay", bytes.len());
    result.map(|()| bytes)
}

fn comes_back(subject: &Subject, what: &str, event: &Event<'static>) {
    let what = format!("{}, {what}", subject.label);
    let bytes = encode_behind(&what, |out| subject.codec.encode_event(event, out));
    let bytes = bytes.unwrap_or_else(|error| panic!("{what}: {error}"));
    let back = subject.codec.decode_event(&bytes).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(back == *event, "{what}: another event came back");
}

fn is_refused(subject: &Subject, what: &str, event: &Event<'static>) {
    let what = format!("{}, {what}", subject.label);
    let error = encode_behind(&what, |out| subject.codec.encode_event(event, out)).expect_err(&what);
    assert!(error.to_string().contains("cannot hold"), "{what}: {error}");
    if let EncodeError::TooLarge { actual, max, .. } = error {
        assert!(actual > max, "{what}: {error}");
    }
    // As a part of a message too.
    let message = ClientMessage::Event(Cow::Owned(event.clone()));
    encode_behind(&what, |out| subject.codec.encode_client(&message, out)).expect_err(&what);
    let message = RelayMessage::Event { subscription: "sub".into(), event: Cow::Owned(event.clone()) };
    encode_behind(&what, |out| subject.codec.encode_relay(&message, out)).expect_err(&what);
}

#[test]
fn the_last_event_that_fits_comes_back_and_the_next_is_refused() {
    let mut limited = 0;
    for subject in subjects() {
        let borders = borders(&subject.format.spec().capacity);
        limited += usize::from(!borders.is_empty());
        for (what, fits, exceeds) in &borders {
            assert!(!subject.must_refuse(fits) && subject.must_refuse(exceeds), "{}: {what}", subject.label);
            comes_back(&subject, &format!("largest {what}"), fits);
            is_refused(&subject, &format!("too large: {what}"), exceeds);
        }
    }
    assert!(limited > 0, "no format has a limit");
}

/// Where the layout has no such limit, the value beyond another format's is held: no format refuses
/// for no reason.
#[test]
fn what_a_layout_can_hold_is_not_refused() {
    let borders = all_borders();
    for subject in subjects() {
        for (what, _, exceeds) in borders.iter().filter(|(_, _, event)| !subject.must_refuse(event)) {
            comes_back(&subject, what, exceeds);
        }
    }
}

/// NSON refuses nothing: beyond its descriptor's limits the message is plain JSON.
#[test]
fn nson_is_plain_json_beyond_its_descriptor() {
    let values = |count| with_tags(vec![vec![Cow::Borrowed("v"); count]]);
    // One byte more each for a quote that is escaped.
    let quotes = |count: usize| Event { content: "\"".repeat(count).into(), ..sample_event_for_nson() };
    let empty_tag_before_another = with_tags(vec![vec![], vec!["t".into()]]);
    let empty_tag_at_the_end = with_tags(vec![vec!["t".into()], vec![]]);
    let cases = [
        // 4 bytes, and for the tag 1 and 2 a value: 255 with 125.
        ("descriptor of 255 bytes", values(125), true),
        ("descriptor of 257 bytes", values(126), false),
        ("content of 65,535 bytes", Event { content: "c".repeat(65_535).into(), ..values(1) }, true),
        ("content of 65,536 bytes", Event { content: "c".repeat(65_536).into(), ..values(1) }, false),
        ("content of 65,534 bytes when escaped", quotes(32_767), true),
        ("content of 65,536 bytes when escaped", quotes(32_768), false),
        ("value of 65,535 bytes", with_value("x".repeat(65_535)), true),
        ("value of 65,536 bytes", with_value("x".repeat(65_536)), false),
        ("time of nine digits", Event { created_at: 999_999_999, ..values(1) }, false),
        ("first time of ten digits", Event { created_at: 1_000_000_000, ..values(1) }, true),
        ("last time of ten digits", Event { created_at: 9_999_999_999, ..values(1) }, true),
        ("time of eleven digits", Event { created_at: 10_000_000_000, ..values(1) }, false),
        ("an empty tag before another", empty_tag_before_another, false),
        ("an empty tag at the end", empty_tag_at_the_end, true),
    ];
    let subjects = subjects();
    let nson = subjects.iter().find(|subject| subject.format.name() == "nson").unwrap();
    for (what, event, is_nson) in cases {
        let bytes = nson.event(&event).unwrap();
        assert_eq!(bytes[309..].starts_with(b",\"nson\":\""), is_nson, "{what}");
        comes_back(nson, what, &event);
        let json = Format::JSON.spec().library;
        assert!(json.decode_event(&bytes).unwrap() == event, "{what}: JSON readers see another event");
        let mut plain = Vec::new();
        json.encode_event(&event, &mut plain).unwrap();
        assert_eq!(plain == bytes, !is_nson, "{what}");
    }
}

fn sample_event_for_nson() -> Event<'static> {
    with_tags(vec![vec!["t".into()]])
}

/// One byte of length in the common envelope; text elsewhere.
#[test]
fn subscriptions_are_held_to_the_last_byte() {
    for subject in subjects() {
        for len in [255, 256] {
            let subscription = || Cow::Owned("s".repeat(len));
            let relay = [
                RelayMessage::Closed { subscription: subscription(), text: "error: x".into() },
                RelayMessage::Event { subscription: subscription(), event: Cow::Owned(sample_event()) },
                RelayMessage::Eose { subscription: subscription(), hints: codecs::EoseHints::default() },
            ];
            let client = [
                ClientMessage::Close { subscription: subscription() },
                ClientMessage::Req { subscription: subscription(), filters: vec![common::full_filter()] },
                ClientMessage::Count { subscription: subscription(), filters: vec![Filter::default()] },
            ];
            let fits = len <= subject.format.spec().capacity.subscription_bytes;
            for message in relay.map(Message::Relay).into_iter().chain(client.map(Message::Client)) {
                let bytes = encode_behind(&subject.label, |out| message.write(subject.codec, out));
                assert_eq!(bytes.is_ok(), fits, "{}: {bytes:?}", subject.label);
                let read = bytes.map(|bytes| message.read(subject.codec, &bytes));
                assert!(read.is_err() || read == Ok(Ok(message)), "{}", subject.label);
            }
        }
    }
}

/// Filters that NIP-01 allows and a layout cannot write are refused, with nothing written.
#[test]
fn filters_that_cannot_be_written_leave_the_buffer_alone() {
    let condition = |letter| TagFilter { letter, values: vec!["v".into()] };
    let cases = [
        ("an unknown field", Filter { unknown: Some("x".into()), ..Filter::default() }, None),
        ("a condition without a letter", Filter { tags: vec![condition('1')], ..Filter::default() }, None),
        ("a letter beyond ASCII", Filter { tags: vec![condition('é')], ..Filter::default() }, None),
        ("a letter twice", Filter { tags: vec![condition('e'), condition('e')], ..Filter::default() }, None),
        ("no ids", Filter { ids: Some(Vec::new()), ..Filter::default() }, Some(PROTOBUF)),
        ("no authors", Filter { authors: Some(Vec::new()), ..Filter::default() }, Some(PROTOBUF)),
        ("no kinds", Filter { kinds: Some(Vec::new()), ..Filter::default() }, Some(PROTOBUF)),
    ];
    for subject in subjects() {
        for (what, filter, only) in &cases {
            // The first filter can be written, so that something has been when the second cannot.
            let filters = vec![common::full_filter(), filter.clone()];
            let message = ClientMessage::Req { subscription: "sub".into(), filters };
            let what = format!("{}, {what}", subject.label);
            let bytes = encode_behind(&what, |out| subject.codec.encode_client(&message, out));
            if only.is_none_or(|only| only.contains(&subject.format.name())) {
                assert!(bytes.is_err(), "{what}: written");
            } else {
                assert!(
                    subject.read_client(&bytes.unwrap()) == Ok(message),
                    "{what}: another message came back"
                );
            }
        }
    }
}
