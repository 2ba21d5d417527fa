//! What a recording tells of people, and what it keeps for a relay.

use std::path::Path;

use codecs::{ClientMessage, Codec, Event, Filter, Format, RelayMessage, TagFilter, hex};
use recording::{Body, End, Message, Passed, Reader, Redaction, Scribe, Side, What, nip19};

const ALICE: [u8; 32] = [0xa1; 32];
const BOB: [u8; 32] = [0xb0; 32];

fn json() -> &'static dyn Codec {
    Format::JSON.spec().library
}

fn event(id: u8, kind: u16, tags: &[&[&str]], content: &str) -> Event<'static> {
    Event {
        id: [id; 32],
        pubkey: ALICE,
        created_at: 1_700_000_000,
        kind,
        tags: tags.iter().map(|tag| tag.iter().map(|value| value.to_string().into()).collect()).collect(),
        content: content.to_owned().into(),
        sig: [id; 64],
    }
}

/// The bodies of messages, and the last line.
fn recorded(redaction: Redaction, messages: &[(Side, Format, Vec<u8>)]) -> (Vec<Body>, End) {
    let mut bytes = Vec::new();
    let mut scribe = Scribe::new(&mut bytes, redaction, "a test").unwrap();
    for (from, format, payload) in messages {
        let (from, format, payload) = (*from, *format, payload.clone());
        let passed = Passed { from, payload_bytes: payload.len(), format, payload };
        scribe.message(0, 1, &passed).unwrap();
    }
    let end = scribe.finish().unwrap();
    let entries = Reader::new(&bytes[..], Path::new("a")).unwrap().map(|entry| entry.unwrap().what);
    let bodies = entries.filter_map(|what| match what {
        What::Message(Message { body, .. }) => Some(body),
        _ => None,
    });
    (bodies.collect(), end)
}

fn client(message: &ClientMessage<'_>) -> (Side, Format, Vec<u8>) {
    let mut bytes = Vec::new();
    json().encode_client(message, &mut bytes).unwrap();
    (Side::Client, Format::JSON, bytes)
}

fn relay(message: &RelayMessage<'_>, format: Format) -> (Side, Format, Vec<u8>) {
    let mut bytes = Vec::new();
    format.spec().library.encode_relay(message, &mut bytes).unwrap();
    (Side::Relay, format, bytes)
}

fn delivery(event: &Event<'_>) -> (Side, Format, Vec<u8>) {
    let event = std::borrow::Cow::Borrowed(event);
    relay(&RelayMessage::Event { subscription: "alice's feed".into(), event }, Format::JSON)
}

fn text(body: &Body) -> &str {
    match body {
        Body::Text(text) => text,
        withheld @ Body::Withheld { .. } => panic!("{withheld:?}"),
    }
}

fn read_event(body: &Body) -> Event<'_> {
    match json().decode_relay(text(body).as_bytes()).unwrap() {
        RelayMessage::Event { event, .. } => event.into_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn filters_match_the_same_events_under_pseudonyms() {
    let id = hex::encode(&[1; 32]);
    let bob = hex::encode(&BOB);
    let address = format!("30023:{bob}:an-article");
    let events = [
        event(1, 1, &[&["t", "gardening"], &["p", &bob, "wss://relay.example"]], "hello"),
        event(2, 7, &[&["e", &id], &["k", "1"]], "+"),
        event(3, 1, &[&["a", &address], &["t", "fishing"]], ""),
        event(4, 30_023, &[&["d", "an-article"]], "long"),
        event(5, 1, &[&["t", "ab"]], ""),
        event(6, 1, &[&["t", "ac"]], ""),
        event(7, 1, &[&["t", "07"]], ""),
        event(8, 1, &[&["t", "08"]], ""),
    ];
    let tag = |letter, value: &str| Filter {
        tags: vec![TagFilter { letter, values: vec![value.to_owned()] }],
        ..Filter::default()
    };
    let filters = vec![
        Filter { authors: Some(vec![ALICE]), kinds: Some(vec![1, 7]), ..Filter::default() },
        Filter { ids: Some(vec![[1; 32], [4; 32]]), ..Filter::default() },
        tag('t', "gardening"),
        tag('p', &bob),
        tag('e', &id),
        tag('a', &address),
        tag('d', "an-article"),
        tag('k', "1"),
        tag('t', "ab"),
        tag('t', "07"),
    ];
    let request = ClientMessage::Req { subscription: "alice's feed".into(), filters: filters.clone() };
    let messages: Vec<_> = [client(&request)].into_iter().chain(events.iter().map(delivery)).collect();
    let (bodies, _) = recorded(Redaction::Pseudonyms, &messages);
    let ClientMessage::Req { subscription, filters: mapped } =
        json().decode_client(text(&bodies[0]).as_bytes()).unwrap()
    else {
        panic!("{bodies:?}")
    };
    let mapped_events: Vec<_> = bodies[1..].iter().map(read_event).collect();
    for (filter, mapped) in filters.iter().zip(&mapped) {
        let matched = |filter: &Filter, events: &[Event<'_>]| -> Vec<bool> {
            events.iter().map(|event| filter.matches(event)).collect()
        };
        let expected = matched(filter, &events);
        assert!(expected.contains(&true));
        assert_eq!(matched(mapped, &mapped_events), expected, "{filter:?} {mapped:?}");
    }
    assert!(bodies[1..].iter().all(|body| text(body).contains(&format!("\"{subscription}\""))));
    for (event, mapped) in events.iter().zip(&mapped_events) {
        assert_eq!((event.kind, event.created_at), (mapped.kind, mapped.created_at));
        let sizes = |event: &Event<'_>| -> Vec<Vec<usize>> {
            event.tags.iter().map(|tag| tag.iter().map(|value| value.len()).collect()).collect()
        };
        assert_eq!((sizes(event), event.content.len()), (sizes(mapped), mapped.content.len()));
    }
}

#[test]
fn references_in_texts_name_the_pseudonyms_and_nothing_else() {
    let relay_url = b"wss://relay.example";
    let [length] = [u8::try_from(relay_url.len()).unwrap()];
    let profile = [&[0, 32][..], &BOB, &[1, length], relay_url].concat();
    let content = format!(
        "{} nostr:{} {} nostr:{}, nsec1qqqsyrhqy2aaaaaaa",
        hex::encode(&BOB),
        nip19::encode("npub", &BOB),
        hex::encode(&[1; 32]),
        nip19::encode("nprofile", &profile),
    );
    let by_bob = Event { pubkey: BOB, ..event(1, 1, &[], "") };
    let (bodies, _) =
        recorded(Redaction::Pseudonyms, &[delivery(&event(2, 1, &[], &content)), delivery(&by_bob)]);
    let (mapped, by_bob) = (read_event(&bodies[0]), read_event(&bodies[1]));
    let words: Vec<_> = mapped.content.split([' ', ':', ',']).collect();
    assert_eq!((words[0], words[3]), (&*hex::encode(&by_bob.pubkey), &*hex::encode(&by_bob.id)));
    assert_eq!(nip19::decode(words[2]).unwrap(), ("npub", by_bob.pubkey.to_vec()));
    let (prefix, mut data) = nip19::decode(words[5]).unwrap();
    assert_eq!((prefix, data.len()), ("nprofile", profile.len()));
    assert_eq!(nip19::hashes(prefix, &mut data)[0], &by_bob.pubkey);
    assert!(!data.windows(5).any(|five| relay_url.windows(5).any(|of_url| of_url == five)));
    assert!(!mapped.content.contains("nsec"));
}

#[test]
fn a_text_keeps_its_length_and_its_script() {
    let foreign = "Привет, Ёж! 今日は良い天気ですね。 한국어 né à l'été 🤙🏽 שלום 12:30";
    let (bodies, _) = recorded(Redaction::Pseudonyms, &[delivery(&event(1, 1, &[], foreign))]);
    let mapped = read_event(&bodies[0]).content.into_owned();
    assert_ne!(mapped, foreign);
    let kinds = |text: &str| -> Vec<_> {
        text.chars().map(|c| (c.len_utf8(), c.is_alphabetic(), c.is_numeric(), c.is_lowercase())).collect()
    };
    assert_eq!(kinds(&mapped), kinds(foreign));
    assert!(mapped.contains(", ") && mapped.contains('。') && !mapped.contains('🤙'));
}

#[test]
fn every_character_is_replaced_by_one_of_its_length() {
    let all: Vec<char> = ('\0'..=char::MAX).step_by(41).collect();
    for chars in all.chunks(9_973) {
        let content: String = chars.iter().collect();
        let (bodies, _) = recorded(Redaction::Pseudonyms, &[delivery(&event(1, 1, &[], &content))]);
        let mapped = read_event(&bodies[0]).content.into_owned();
        let lengths = |text: &str| text.chars().map(char::len_utf8).collect::<Vec<_>>();
        assert!(lengths(&mapped) == lengths(&content), "from {:?}", chars[0]);
    }
}

#[test]
fn what_is_private_or_not_understood_has_no_text_even_in_a_raw_recording() {
    let secret = "meet me at the harbour";
    let kinds = [4, 13, 14, 15, 1059, 21_059, 22_242, 27_235];
    let mut messages: Vec<_> = kinds.iter().map(|kind| delivery(&event(1, *kind, &[], secret))).collect();
    let mut expected: Vec<_> = kinds.iter().map(|kind| Some(u32::from(*kind))).collect();
    let owned = |kind| std::borrow::Cow::Owned(event(1, kind, &[], secret));
    let batch = RelayMessage::Events {
        subscription: "a".into(),
        events: vec![event(1, 1, &[], "note"), event(2, 1059, &[], secret)],
    };
    let dannypack = "dannypack".parse().unwrap();
    for (message, kind) in [
        (client(&ClientMessage::Auth(owned(22_242))), Some(22_242)),
        (client(&ClientMessage::Event(owned(4))), Some(4)),
        (relay(&RelayMessage::Auth { challenge: secret.into() }, Format::JSON), None),
        (relay(&batch, Format::JSON), Some(1059)),
        (relay(&RelayMessage::Auth { challenge: secret.into() }, dannypack), None),
        ((Side::Client, Format::JSON, format!(r#"["WHISPER","{secret}"]"#).into()), None),
        ((Side::Client, Format::JSON, secret.into()), None),
        ((Side::Relay, Format::JSON, vec![0xff; 9]), None),
    ] {
        messages.push(message);
        expected.push(kind);
    }
    for redaction in [Redaction::Pseudonyms, Redaction::None] {
        let (bodies, end) = recorded(redaction, &messages);
        for ((body, kind), (_, _, payload)) in bodies.iter().zip(&expected).zip(&messages) {
            let text_bytes = payload.len() as u64;
            assert_eq!(*body, Body::Withheld { text_bytes, kind: *kind }, "{redaction:?}");
        }
        assert_eq!((bodies.len(), end.ratio_source), (expected.len(), 1.0));
    }
    // Of a filter it is not known what its unknown fields tell.
    let unknown = format!(r#"["REQ","a",{{"{secret}":1}}]"#);
    let text_bytes = unknown.len() as u64;
    let (bodies, _) = recorded(Redaction::Pseudonyms, &[(Side::Client, Format::JSON, unknown.into())]);
    assert_eq!(bodies, [Body::Withheld { text_bytes, kind: None }]);
}

#[test]
fn a_raw_recording_has_messages_as_they_are_and_other_formats_as_json() {
    let note = event(1, 1, &[], "in the open");
    let spaced = br#"["NOTICE",  "as it is"]"#.to_vec();
    let closed = RelayMessage::Closed { subscription: "a".into(), text: "auth-required: who are you".into() };
    let messages =
        [delivery(&note), (Side::Relay, Format::JSON, spaced), relay(&closed, "dannypack".parse().unwrap())];
    let (bodies, end) = recorded(Redaction::None, &messages);
    assert!(text(&bodies[0]).contains("in the open"));
    assert_eq!(text(&bodies[1]), r#"["NOTICE",  "as it is"]"#);
    assert_eq!(text(&bodies[2]), r#"["CLOSED","a","auth-required: who are you"]"#);
    assert_eq!(end.ratio_source, end.ratio_written);
    let (bodies, _) = recorded(Redaction::Pseudonyms, &messages);
    assert!(text(&bodies[2]).contains("\"auth-required:") && !text(&bodies[2]).contains("who"));
}
