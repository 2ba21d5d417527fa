//! Shared by the tests: every codec of the registry, the vectors, and samples of every message.

pub(crate) mod any;

use std::{borrow::Cow, collections::BTreeMap, fs, path::Path, sync::LazyLock};

use codecs::{
    ClientMessage, Codec, DecodeError, EncodeError, EoseHints, Event, Filter, Format, Implementation,
    RelayMessage, TagFilter, hex,
};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The formats whose messages are in the common envelope, which alone has one byte for a
/// subscription's length.
pub(crate) static ENVELOPE: LazyLock<Vec<&str>> = LazyLock::new(|| {
    let in_envelope = |format: &Format| format.spec().capacity.subscription_bytes == 255;
    Format::all().filter(in_envelope).map(Format::name).collect()
});

/// The protobuf formats.
pub(crate) const PROTOBUF: &[&str] = &["proto-string", "proto-binary", "proto-compact"];

/// A codec of the registry and how to call it in a message.
pub(crate) struct Subject {
    pub(crate) format: Format,
    pub(crate) implementation: Implementation,
    pub(crate) label: String,
    pub(crate) codec: &'static dyn Codec,
}

/// Every implementation of every format.
pub(crate) fn subjects() -> Vec<Subject> {
    let mut subjects = Vec::new();
    for format in Format::all() {
        for implementation in Implementation::ALL {
            if let Ok(codec) = format.codec(implementation) {
                let label = format!("{format} ({implementation})");
                subjects.push(Subject { format, implementation, label, codec });
            }
        }
    }
    assert!(subjects.len() >= Format::all().len(), "every format has an implementation");
    subjects
}

impl Subject {
    pub(crate) fn event(&self, event: &Event<'_>) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::new();
        self.codec.encode_event(event, &mut out).map(|()| out)
    }

    pub(crate) fn client(&self, message: &ClientMessage<'_>) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::new();
        self.codec.encode_client(message, &mut out).map(|()| out)
    }

    pub(crate) fn relay(&self, message: &RelayMessage<'_>) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::new();
        self.codec.encode_relay(message, &mut out).map(|()| out)
    }

    pub(crate) fn read_client(&self, bytes: &[u8]) -> Result<ClientMessage<'static>, DecodeError> {
        self.codec.decode_client(bytes).map(ClientMessage::into_owned)
    }

    pub(crate) fn read_relay(&self, bytes: &[u8]) -> Result<RelayMessage<'static>, DecodeError> {
        self.codec.decode_relay(bytes).map(RelayMessage::into_owned)
    }

    /// Whether the layout has no room for the event, so that the encoder must refuse it. Nothing
    /// else may be refused.
    pub(crate) fn must_refuse(&self, event: &Event<'_>) -> bool {
        !self.format.spec().capacity.holds(event)
    }
}

/// A message of either direction.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Message {
    Client(ClientMessage<'static>),
    Relay(RelayMessage<'static>),
}

impl Message {
    /// Every message.
    pub(crate) fn all() -> Vec<Message> {
        let client = client_messages().into_iter().map(Message::Client);
        client.chain(relay_messages().into_iter().map(Message::Relay)).collect()
    }

    pub(crate) fn write(&self, codec: &dyn Codec, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        match self {
            Message::Client(message) => codec.encode_client(message, out),
            Message::Relay(message) => codec.encode_relay(message, out),
        }
    }

    pub(crate) fn bytes(&self, codec: &dyn Codec) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::new();
        self.write(codec, &mut out).map(|()| out)
    }

    /// Reads bytes as a message of the same direction.
    pub(crate) fn read(&self, codec: &dyn Codec, bytes: &[u8]) -> Result<Message, DecodeError> {
        match self {
            Message::Client(_) => {
                codec.decode_client(bytes).map(|message| Message::Client(message.into_owned()))
            }
            Message::Relay(_) => {
                codec.decode_relay(bytes).map(|message| Message::Relay(message.into_owned()))
            }
        }
    }
}

/// A committed vector file.
pub(crate) fn committed(file: &str) -> Value {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/vectors")).join(file);
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// An event and its bytes by the reference encoders.
pub(crate) struct Vector {
    pub(crate) name: String,
    pub(crate) event_json: String,
    pub(crate) event: Event<'static>,
    /// By format name; the dialects are those this project speaks.
    pub(crate) bytes: BTreeMap<String, Golden>,
}

/// The output of a reference encoder.
pub(crate) enum Golden {
    /// Bytes that hold the event.
    Bytes { len: usize, sha256: String, hex: Option<String> },
    /// The reference cannot hold the event and altered it, or failed.
    Unfit,
}

pub(crate) fn vectors() -> Vec<Vector> {
    let file = committed("synthetic.json");
    file.as_array().unwrap().iter().map(vector).collect()
}

fn vector(value: &Value) -> Vector {
    let event_json = expand(&value["event_json"]);
    let golden = |golden: &Value| match golden["sha256"].as_str() {
        None => Golden::Unfit,
        Some(sha256) => Golden::Bytes {
            len: golden["len"].as_u64().unwrap().try_into().unwrap(),
            sha256: sha256.to_owned(),
            hex: golden["hex"].as_str().map(str::to_owned),
        },
    };
    Vector {
        name: value["name"].as_str().unwrap().to_owned(),
        event: event_of(&event_json),
        event_json,
        bytes: value["bytes"].as_object().unwrap().iter().map(|(k, v)| (k.clone(), golden(v))).collect(),
    }
}

/// Text in parts: as it is, a unit repeated, or `p` tags of keys that are the hashes of consecutive
/// numbers.
pub(crate) fn expand(parts: &Value) -> String {
    let number = |value: &Value| value.as_u64().unwrap();
    let part = |part: &Value| match part {
        Value::String(text) => text.clone(),
        repeat if repeat["repeat"].is_string() => {
            repeat["repeat"].as_str().unwrap().repeat(number(&repeat["times"]).try_into().unwrap())
        }
        tags => {
            let (first, count) = (number(&tags["from"]), number(&tags["p_tags"]));
            let tag = |n: u64| format!("[\"p\",\"{}\"]", sha256_hex(&n.to_le_bytes()));
            (first..first + count).map(tag).collect::<Vec<_>>().join(",")
        }
    };
    match parts {
        Value::Array(parts) => parts.iter().map(part).collect(),
        single => part(single),
    }
}

pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex::encode(&Sha256::digest(bytes))
}

/// An event of NIP-01's JSON, read without the code under test.
pub(crate) fn event_of(json: &str) -> Event<'static> {
    fn bytes<const N: usize>(value: &Value) -> [u8; N] {
        hex::decode_array(value.as_str().unwrap().as_bytes()).unwrap()
    }
    fn text(value: &Value) -> Cow<'static, str> {
        Cow::Owned(value.as_str().unwrap().to_owned())
    }
    let value: Value = serde_json::from_str(json).unwrap();
    let tags = value["tags"].as_array().unwrap();
    Event {
        id: bytes(&value["id"]),
        pubkey: bytes(&value["pubkey"]),
        created_at: value["created_at"].as_i64().unwrap(),
        kind: value["kind"].as_u64().unwrap().try_into().unwrap(),
        tags: tags.iter().map(|tag| tag.as_array().unwrap().iter().map(text).collect()).collect(),
        content: text(&value["content"]),
        sig: bytes(&value["sig"]),
    }
}

/// A small event with text, hex and empty values.
pub(crate) fn sample_event() -> Event<'static> {
    Event {
        id: [0xa1; 32],
        pubkey: [0xb2; 32],
        created_at: 1_700_000_000,
        kind: 1,
        tags: vec![
            vec!["e".into(), "c3".repeat(32).into(), "wss://relay.example".into(), "".into()],
            vec!["t".into(), "DEADBEEF".into()],
            vec![],
        ],
        content: "Grüße \"quoted\" \u{1}\u{1f30d}".into(),
        sig: [0xd4; 64],
    }
}

/// A filter with every field.
pub(crate) fn full_filter() -> Filter {
    Filter {
        ids: Some(vec![[1; 32], [2; 32]]),
        authors: Some(vec![[3; 32]]),
        kinds: Some(vec![0, 1, 255, 256, 65_535]),
        since: Some(1_600_000_000),
        until: Some(1_800_000_000),
        limit: Some(500),
        search: Some("größer".into()),
        tags: vec![
            TagFilter { letter: 't', values: vec!["nostr".into(), "".into()] },
            TagFilter { letter: 'e', values: vec!["ab".repeat(32), "AB".repeat(32)] },
            TagFilter { letter: 'Z', values: vec!["abcd".into()] },
        ],
        unknown: None,
    }
}

/// Every client message.
pub(crate) fn client_messages() -> Vec<ClientMessage<'static>> {
    let event = || Cow::Owned(sample_event());
    let requests = [
        vec![Filter::default()],
        vec![full_filter()],
        vec![Filter { limit: Some(0), ..Filter::default() }, full_filter()],
    ];
    let mut messages = vec![
        ClientMessage::Event(event()),
        ClientMessage::Auth(event()),
        ClientMessage::Close { subscription: "sub".into() },
        ClientMessage::Close { subscription: "ü\"\\\n".into() },
    ];
    for filters in requests {
        messages.push(ClientMessage::Req { subscription: "feed:1".into(), filters: filters.clone() });
        messages.push(ClientMessage::Count { subscription: "c".into(), filters });
    }
    for filter in [Filter::default(), full_filter()] {
        messages.push(ClientMessage::NegOpen {
            subscription: "neg".into(),
            filter,
            message: negentropy().into(),
        });
    }
    for message in [negentropy(), vec![0x61]] {
        messages.push(ClientMessage::NegMsg { subscription: "neg".into(), message: message.into() });
    }
    messages.push(ClientMessage::NegClose { subscription: "neg".into() });
    messages
}

/// Every relay message.
pub(crate) fn relay_messages() -> Vec<RelayMessage<'static>> {
    let event = || Cow::Owned(sample_event());
    let mut messages = vec![
        RelayMessage::Event { subscription: "sub".into(), event: event() },
        RelayMessage::Event { subscription: "x".repeat(64).into(), event: event() },
        RelayMessage::Ok { id: [5; 32], accepted: true, text: "".into() },
        RelayMessage::Ok { id: [5; 32], accepted: false, text: "invalid: größe".into() },
        RelayMessage::Closed { subscription: "sub".into(), text: "error: closed".into() },
        RelayMessage::Notice { text: "invalid: \"\u{0}\"".into() },
        RelayMessage::Auth { challenge: "c0ffee".into() },
    ];
    for (finish, more) in [(false, false), (true, false), (false, true), (true, true)] {
        messages.push(RelayMessage::Eose { subscription: "sub".into(), hints: EoseHints { finish, more } });
    }
    let registers = std::array::from_fn(|i| u8::try_from(i).unwrap());
    for hll in [None, Some(Box::new([0; 256])), Some(Box::new(registers))] {
        for (count, approximate) in [(0, false), (238, false), (u64::MAX, true)] {
            messages.push(RelayMessage::Count {
                subscription: "c".into(),
                count,
                approximate,
                hll: hll.clone(),
            });
        }
    }
    messages.push(RelayMessage::NegMsg { subscription: "neg".into(), message: negentropy().into() });
    messages.push(RelayMessage::NegErr { subscription: "neg".into(), text: "blocked: größe".into() });
    for count in [1, 3] {
        messages.push(RelayMessage::Events { subscription: "sub".into(), events: batch(count) });
    }
    messages
}

/// A message of the negentropy protocol, with every byte: formats must carry all of them.
pub(crate) fn negentropy() -> Vec<u8> {
    let mut message = vec![0x61];
    message.extend(0..=255);
    message
}

/// Events that differ.
pub(crate) fn batch(count: u8) -> Vec<Event<'static>> {
    (0..count)
        .map(|n| Event { id: [n; 32], content: "x".repeat(n.into()).into(), ..sample_event() })
        .collect()
}
