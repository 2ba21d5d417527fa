//! `vectors/v1.json` for readers in other languages: events and every message, in every format, as
//! bytes and SHA-256.
//!
//! `UPDATE_EXPECT=1 cargo test -p codecs --test it interop_vectors` writes it. Its shape, and readers in
//! three languages, are in `interop/`.

use std::borrow::Cow;

use codecs::{
    ClientMessage, Codec, EoseHints, Event, Filter, Format, RelayMessage, TagFilter, VerifyLevel, hex,
};
use expect_test::expect_file;
use serde_json::{Map, Value, json};

use crate::common::{negentropy, sha256_hex, subjects, vectors};

/// Generated events of the golden vectors: text, hex of every kind, empty tags and values, borders
/// of numbers.
const EVENTS: &[&str] = &[
    "kind4_dm",
    "empty_tags_between",
    "unicode_mix",
    "json_specials",
    "nul_chars",
    "tag_mixed_hex64",
    "tag_short_hex",
    "content_hex8",
    "tag_text_len_256",
    "values_in_tag_24",
    "kind_65535",
    "created_at_neg1",
];

/// In each format that can hold it: the bytes and their hash.
fn bytes(write: impl Fn(&dyn Codec, &mut Vec<u8>) -> bool) -> Value {
    let mut formats = Map::new();
    for format in Format::all() {
        let mut out = Vec::new();
        if write(format.spec().library, &mut out) {
            let entry = json!({ "sha256": sha256_hex(&out), "hex": hex::encode(&out) });
            formats.insert(format.name().to_owned(), entry);
        }
    }
    Value::Object(formats)
}

fn client(name: &str, message: &ClientMessage<'_>) -> Value {
    let mut text = Vec::new();
    Format::JSON.spec().library.encode_client(message, &mut text).unwrap();
    let bytes = bytes(|codec, out| codec.encode_client(message, out).is_ok());
    json!({ "name": name, "json": String::from_utf8(text).unwrap(), "bytes": bytes })
}

fn relay(name: &str, message: &RelayMessage<'_>) -> Value {
    let mut text = Vec::new();
    Format::JSON.spec().library.encode_relay(message, &mut text).unwrap();
    let bytes = bytes(|codec, out| codec.encode_relay(message, out).is_ok());
    json!({ "name": name, "json": String::from_utf8(text).unwrap(), "bytes": bytes })
}

fn filter() -> Filter {
    Filter {
        ids: Some(vec![[1; 32], [2; 32]]),
        authors: Some(vec![[3; 32]]),
        kinds: Some(vec![0, 1, 300, 65_535]),
        since: Some(1_600_000_000),
        until: Some(1_800_000_000),
        limit: Some(500),
        search: Some("größer".into()),
        tags: vec![
            TagFilter { letter: 'e', values: vec!["ab".repeat(32), "AB".repeat(32)] },
            TagFilter { letter: 't', values: vec!["nostr".into(), "".into()] },
        ],
        unknown: None,
    }
}

fn document() -> Value {
    let vectors = vectors();
    let chosen: Vec<_> =
        EVENTS.iter().map(|name| vectors.iter().find(|vector| vector.name == *name).unwrap()).collect();
    let events: Vec<_> = chosen
        .iter()
        .map(|vector| {
            assert_eq!(vector.event.verify(VerifyLevel::Full), Ok(()), "{}", vector.name);
            let bytes = bytes(|codec, out| codec.encode_event(&vector.event, out).is_ok());
            json!({ "name": vector.name, "json": vector.event_json, "bytes": bytes })
        })
        .collect();
    let event = || Cow::<Event<'static>>::Owned(chosen[0].event.clone());
    // Those of the chosen that every format holds.
    let fits = |event: &Event<'_>| subjects().iter().all(|subject| subject.event(event).is_ok());
    let batch: Vec<_> =
        chosen.iter().map(|vector| &vector.event).filter(|event| fits(event)).take(4).cloned().collect();
    assert_eq!(batch.len(), 4, "the vectors hold enough events for a batch");
    let sub = || Cow::Borrowed("feed:1");
    let requests = vec![Filter { limit: Some(0), ..Filter::default() }, filter()];
    let client = [
        client("event", &ClientMessage::Event(event())),
        client("auth", &ClientMessage::Auth(event())),
        client("req", &ClientMessage::Req { subscription: sub(), filters: requests.clone() }),
        client("count", &ClientMessage::Count { subscription: sub(), filters: requests }),
        client("close", &ClientMessage::Close { subscription: "ü\"\\".into() }),
        client(
            "neg-open",
            &ClientMessage::NegOpen { subscription: sub(), filter: filter(), message: negentropy().into() },
        ),
        client("neg-msg", &ClientMessage::NegMsg { subscription: sub(), message: negentropy().into() }),
        client("neg-close", &ClientMessage::NegClose { subscription: sub() }),
    ];
    let hll = Some(Box::new(std::array::from_fn(|i| u8::try_from(i).unwrap())));
    let eose = |finish, more| RelayMessage::Eose { subscription: sub(), hints: EoseHints { finish, more } };
    let relay = [
        relay("event", &RelayMessage::Event { subscription: sub(), event: event() }),
        relay("ok", &RelayMessage::Ok { id: [5; 32], accepted: true, text: "".into() }),
        relay(
            "ok-refused",
            &RelayMessage::Ok { id: [5; 32], accepted: false, text: "invalid: größe".into() },
        ),
        relay("eose", &eose(false, false)),
        relay("eose-finish", &eose(true, false)),
        relay("eose-more", &eose(false, true)),
        relay("closed", &RelayMessage::Closed { subscription: sub(), text: "error: closed".into() }),
        relay("notice", &RelayMessage::Notice { text: "invalid: \"x\"".into() }),
        relay("auth", &RelayMessage::Auth { challenge: "c0ffee".into() }),
        relay(
            "count",
            &RelayMessage::Count { subscription: sub(), count: 238, approximate: false, hll: None },
        ),
        relay(
            "count-hll",
            &RelayMessage::Count { subscription: sub(), count: 1 << 20, approximate: true, hll },
        ),
        relay("neg-msg", &RelayMessage::NegMsg { subscription: sub(), message: negentropy().into() }),
        relay(
            "neg-err",
            &RelayMessage::NegErr { subscription: sub(), text: "blocked: too many events".into() },
        ),
        relay(
            "events-one",
            &RelayMessage::Events { subscription: sub(), events: vec![event().into_owned()] },
        ),
        relay("events", &RelayMessage::Events { subscription: sub(), events: batch }),
    ];
    json!({ "version": 1, "events": events, "client": client, "relay": relay })
}

#[test]
fn v1_is_current() {
    let fresh = serde_json::to_string_pretty(&document()).unwrap() + "\n";
    // Other bytes here are other bytes for peers.
    expect_file!["../../vectors/v1.json"].assert_eq(&fresh);
}
