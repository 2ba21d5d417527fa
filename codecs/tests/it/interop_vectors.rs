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

use crate::common::{Message, negentropy, sha256_hex, subjects, vectors};

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

fn entry(name: &str, message: &Message) -> Value {
    let text = message.bytes(Format::JSON.spec().library).unwrap();
    let bytes = bytes(|codec, out| message.write(codec, out).is_ok());
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
    let message = || negentropy().into();
    let open = ClientMessage::NegOpen { subscription: sub(), filter: filter(), message: message() };
    let client = [
        ("event", ClientMessage::Event(event())),
        ("auth", ClientMessage::Auth(event())),
        ("req", ClientMessage::Req { subscription: sub(), filters: requests.clone() }),
        ("count", ClientMessage::Count { subscription: sub(), filters: requests }),
        ("close", ClientMessage::Close { subscription: "ü\"\\".into() }),
        ("neg-open", open),
        ("neg-msg", ClientMessage::NegMsg { subscription: sub(), message: message() }),
        ("neg-close", ClientMessage::NegClose { subscription: sub() }),
    ]
    .map(|(name, message)| entry(name, &Message::Client(message)));
    let hll = Some(Box::new(std::array::from_fn(|i| u8::try_from(i).unwrap())));
    let eose = |finish, more| RelayMessage::Eose { subscription: sub(), hints: EoseHints { finish, more } };
    let ok = |accepted, text| RelayMessage::Ok { id: [5; 32], accepted, text };
    let count =
        |count, approximate, hll| RelayMessage::Count { subscription: sub(), count, approximate, hll };
    let relay = [
        ("event", RelayMessage::Event { subscription: sub(), event: event() }),
        ("ok", ok(true, "".into())),
        ("ok-refused", ok(false, "invalid: größe".into())),
        ("eose", eose(false, false)),
        ("eose-finish", eose(true, false)),
        ("eose-more", eose(false, true)),
        ("closed", RelayMessage::Closed { subscription: sub(), text: "error: closed".into() }),
        ("notice", RelayMessage::Notice { text: "invalid: \"x\"".into() }),
        ("auth", RelayMessage::Auth { challenge: "c0ffee".into() }),
        ("count", count(238, false, None)),
        ("count-hll", count(1 << 20, true, hll)),
        ("neg-msg", RelayMessage::NegMsg { subscription: sub(), message: message() }),
        ("neg-err", RelayMessage::NegErr { subscription: sub(), text: "blocked: too many events".into() }),
        ("events-one", RelayMessage::Events { subscription: sub(), events: vec![event().into_owned()] }),
        ("events", RelayMessage::Events { subscription: sub(), events: batch }),
    ]
    .map(|(name, message)| entry(name, &Message::Relay(message)));
    json!({ "version": 1, "events": events, "client": client, "relay": relay })
}

#[test]
fn v1_is_current() {
    let fresh = serde_json::to_string_pretty(&document()).unwrap() + "\n";
    // Other bytes here are other bytes for peers.
    expect_file!["../../vectors/v1.json"].assert_eq(&fresh);
}
