//! NSON: JSON with the lengths of its own parts inside, so that a reader need not look for their
//! ends.
//!
//! ```text
//! {"id":"…64","pubkey":"…64","sig":"…128","created_at":N10,"nson":"…","kind":K,"content":"C","tags":[["V",…],…]}
//! nson   hex of: u8 descriptor bytes, then the descriptor: u8 digits of K, u16 BE(C), u8 tags,
//!        for each tag: u8 values, for each value u16 BE(V)             lengths are bytes of the escaped text
//! ```
//!
//! Everything before `kind` lies at a fixed offset: id 7, pubkey 83, sig 156, created_at 299 (ten
//! digits), the descriptor 320. The size byte counts descriptor bytes, as go-nostr writes it (the
//! draft's example counts digits). Text is escaped as in `json`, where go-nostr quotes as Go does,
//! which is not JSON for control characters (README.md); so every message here is one that any JSON
//! reader takes, with the same event in it.
//!
//! NSON cannot hold these, which are sent as plain JSON: a time without ten digits, a text above
//! 65,535 escaped bytes, a descriptor above 255 bytes (some 120 values), an empty tag before
//! another one (go-nostr's reader loses its way there). Readers take both, and a message is NSON
//! when its fixed parts stand where they must. A descriptor that lies would show NSON readers
//! another event than JSON readers: each part must end where it says, as JSON too.
//!
//! No library exists in Rust; serde_json writes and reads the texts. Messages other than EVENT and
//! AUTH are `json`'s.

use std::borrow::Cow;

use serde::de::IgnoredAny;

use super::json::{Json, Text};
use crate::{
    ClientMessage, Codec, DecodeError, EncodeError, Event, EventCodec, Limits, RelayMessage, Tag,
    codec::encode_spliced, hex, reader::Reader,
};

#[derive(Debug)]
pub(super) struct Nson;

/// Ten digits.
const TIMES: std::ops::RangeInclusive<i64> = 1_000_000_000..=9_999_999_999;

/// The fixed parts of the text: position and content.
const MARKS: [(usize, &[u8]); 5] = [
    (0, b"{\"id\":\""),
    (71, b"\",\"pubkey\":\""),
    (147, b"\",\"sig\":\""),
    (284, b"\",\"created_at\":"),
    (309, b",\"nson\":\""),
];

impl EventCodec for Nson {
    fn encode_event(&self, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut body = Vec::with_capacity(event.content.len() + 64);
        match write_body(event, &mut body) {
            Some(descriptor) => {
                write_head(event, &descriptor, out);
                out.extend_from_slice(&body);
                Ok(())
            }
            None => Json.encode_event(event, out),
        }
    }

    fn decode_event<'a>(&self, bytes: &'a [u8]) -> Result<Event<'a>, DecodeError> {
        if is_nson(bytes) { read(bytes) } else { Json.decode_event(bytes) }
    }
}

impl Codec for Nson {
    fn encode_client(&self, message: &ClientMessage<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let (verb, event) = match message {
            ClientMessage::Event(event) => ("EVENT", event),
            ClientMessage::Auth(event) => ("AUTH", event),
            _ => return Json.encode_client(message, out),
        };
        out.extend_from_slice(b"[\"");
        out.extend_from_slice(verb.as_bytes());
        out.extend_from_slice(b"\",");
        self.encode_event(event, out)?;
        out.push(b']');
        Ok(())
    }

    fn decode_client_within<'a>(
        &self,
        bytes: &'a [u8],
        limits: &Limits,
    ) -> Result<ClientMessage<'a>, DecodeError> {
        let event = |verb: &[u8]| bytes.strip_prefix(verb)?.strip_suffix(b"]").filter(|event| is_nson(event));
        if let Some(event) = event(b"[\"EVENT\",") {
            return Ok(ClientMessage::Event(Cow::Owned(read(event)?)));
        }
        if let Some(event) = event(b"[\"AUTH\",") {
            return Ok(ClientMessage::Auth(Cow::Owned(read(event)?)));
        }
        Json.decode_client_within(bytes, limits)
    }

    fn encode_relay(&self, message: &RelayMessage<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        encode_spliced(self, "nson", message, out, |out| Json.encode_relay(message, out))
    }

    fn decode_relay<'a>(&self, bytes: &'a [u8]) -> Result<RelayMessage<'a>, DecodeError> {
        if let Some((subscription, event)) = split_delivery(bytes) {
            return Ok(RelayMessage::Event { subscription, event: Cow::Owned(read(event)?) });
        }
        match split_batch(bytes) {
            Some((subscription, parts)) => Ok(RelayMessage::Events {
                subscription,
                events: parts.into_iter().map(|event| self.decode_event(event)).collect::<Result<_, _>>()?,
            }),
            None => Json.decode_relay(bytes),
        }
    }

    fn around_event(&self, subscription: &str, event: &[u8], out: &mut Vec<u8>) -> &'static [u8] {
        Json.around_event(subscription, event, out)
    }

    fn wrap_events(&self, subscription: &str, events: &[&[u8]], out: &mut Vec<u8>) {
        Json.wrap_events(subscription, events, out);
    }
}

// --- writing ---

/// Appends everything from `kind` on and returns the descriptor, or `None` if it is too large for
/// NSON.
fn write_body(event: &Event<'_>, body: &mut Vec<u8>) -> Option<Vec<u8>> {
    let last = event.tags.len().saturating_sub(1);
    if !TIMES.contains(&event.created_at) || event.tags.iter().take(last).any(Vec::is_empty) {
        return None;
    }
    let kind = event.kind.to_string();
    body.extend_from_slice(b"\",\"kind\":");
    body.extend_from_slice(kind.as_bytes());
    body.extend_from_slice(b",\"content\":");
    let content_len = write_text(&event.content, body)?;
    body.extend_from_slice(b",\"tags\":[");
    let mut descriptor = vec![u8::try_from(kind.len()).ok()?];
    descriptor.extend_from_slice(&content_len.to_be_bytes());
    descriptor.push(u8::try_from(event.tags.len()).ok()?);
    for (index, tag) in event.tags.iter().enumerate() {
        descriptor.push(u8::try_from(tag.len()).ok()?);
        body.extend_from_slice(if index == 0 { b"[" } else { b",[" });
        for (index, value) in tag.iter().enumerate() {
            if index > 0 {
                body.push(b',');
            }
            descriptor.extend_from_slice(&write_text(value, body)?.to_be_bytes());
        }
        body.push(b']');
    }
    body.extend_from_slice(b"]}");
    (descriptor.len() <= usize::from(u8::MAX)).then_some(descriptor)
}

/// Appends a JSON string and returns the bytes between its quotes.
fn write_text(text: &str, out: &mut Vec<u8>) -> Option<u16> {
    let start = out.len();
    serde_json::to_writer(&mut *out, text).expect("text always serializes into memory");
    u16::try_from(out.len() - start - 2).ok()
}

fn write_head(event: &Event<'_>, descriptor: &[u8], out: &mut Vec<u8>) {
    let size = u8::try_from(descriptor.len()).expect("write_body keeps it below 256");
    let [id, pubkey, sig, created_at, nson] = MARKS.map(|(_, mark)| mark);
    out.extend_from_slice(id);
    hex::encode_into(&event.id, out);
    out.extend_from_slice(pubkey);
    hex::encode_into(&event.pubkey, out);
    out.extend_from_slice(sig);
    hex::encode_into(&event.sig, out);
    out.extend_from_slice(created_at);
    out.extend_from_slice(event.created_at.to_string().as_bytes());
    out.extend_from_slice(nson);
    hex::encode_into(&[size], out);
    hex::encode_into(descriptor, out);
}

// --- reading ---

fn is_nson(event: &[u8]) -> bool {
    MARKS.iter().all(|(at, mark)| event.get(*at..).is_some_and(|rest| rest.starts_with(mark)))
}

/// The subscription and the NSON event of a relay's EVENT in its usual spelling.
fn split_delivery(bytes: &[u8]) -> Option<(Cow<'_, str>, &[u8])> {
    let rest = bytes.strip_prefix(b"[\"EVENT\",")?.strip_suffix(b"]")?;
    let mut texts = serde_json::Deserializer::from_slice(rest).into_iter::<Text<'_>>();
    let subscription = texts.next()?.ok()?.0;
    let event = rest[texts.byte_offset()..].strip_prefix(b",")?;
    is_nson(event).then_some((subscription, event))
}

/// The subscription and the events of a relay's EVENTS in its usual spelling, if all of them are
/// objects.
fn split_batch(bytes: &[u8]) -> Option<(Cow<'_, str>, Vec<&[u8]>)> {
    let rest = bytes.strip_prefix(b"[\"EVENTS\",")?.strip_suffix(b"]]")?;
    let mut texts = serde_json::Deserializer::from_slice(rest).into_iter::<Text<'_>>();
    let subscription = texts.next()?.ok()?.0;
    let mut rest = rest[texts.byte_offset()..].strip_prefix(b",[")?;
    let mut events = Vec::new();
    loop {
        let mut values = serde_json::Deserializer::from_slice(rest).into_iter::<IgnoredAny>();
        values.next()?.ok()?;
        let (event, more) = rest.split_at(values.byte_offset());
        events.push(event.strip_prefix(b"{").map(|_| event)?);
        match more.strip_prefix(b",") {
            Some(more) => rest = more,
            None => return more.is_empty().then_some((subscription, events)),
        }
    }
}

/// Reads an event whose fixed parts [`is_nson`] has seen.
fn read(bytes: &[u8]) -> Result<Event<'_>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let [id_mark, pubkey_mark, sig_mark, created_at_mark, nson_mark] = MARKS.map(|(_, mark)| mark);
    let id = key::<32>(&mut reader, id_mark, "id")?;
    let pubkey = key::<32>(&mut reader, pubkey_mark, "pubkey")?;
    let sig = key::<64>(&mut reader, sig_mark, "sig")?;
    literal(&mut reader, created_at_mark)?;
    let created_at = digits(&mut reader, 10, "created_at")?;
    literal(&mut reader, nson_mark)?;
    let descriptor = read_descriptor(&mut reader)?;
    let mut lengths = Reader::new(&descriptor);

    literal(&mut reader, b"\",\"kind\":")?;
    let kind = digits(&mut reader, lengths.u8(LENGTHS)?.into(), "kind")?;
    literal(&mut reader, b",\"content\":")?;
    let content = text(&mut reader, &mut lengths, "content")?;
    literal(&mut reader, b",\"tags\":[")?;
    let mut tags = Vec::new();
    for index in 0..lengths.u8(LENGTHS)? {
        literal(&mut reader, if index == 0 { b"[" } else { b",[" })?;
        let mut tag = Tag::new();
        for index in 0..lengths.u8(LENGTHS)? {
            if index > 0 {
                literal(&mut reader, b",")?;
            }
            tag.push(text(&mut reader, &mut lengths, "tag value")?);
        }
        literal(&mut reader, b"]")?;
        tags.push(tag);
    }
    literal(&mut reader, b"]}")?;
    lengths.finish()?;
    reader.finish()?;
    let kind = u16::try_from(kind).map_err(|_| DecodeError::OutOfRange("kind"))?;
    Ok(Event { id, pubkey, created_at, kind, tags, content, sig })
}

const LENGTHS: &str = "NSON's descriptor";

fn literal(reader: &mut Reader<'_>, expected: &[u8]) -> Result<(), DecodeError> {
    let what = "event: its parts do not end where NSON's descriptor says";
    if reader.bytes(expected.len() as u64, what)? == expected {
        Ok(())
    } else {
        Err(DecodeError::Malformed(what))
    }
}

fn key<const N: usize>(
    reader: &mut Reader<'_>,
    mark: &[u8],
    what: &'static str,
) -> Result<[u8; N], DecodeError> {
    literal(reader, mark)?;
    hex::decode_array(reader.bytes(2 * N as u64, what)?).ok_or(DecodeError::Malformed(what))
}

fn read_descriptor(reader: &mut Reader<'_>) -> Result<Vec<u8>, DecodeError> {
    let [size] = hex::decode_array(reader.bytes(2, LENGTHS)?).ok_or(DecodeError::Malformed(LENGTHS))?;
    let digits = reader.bytes(2 * u64::from(size), LENGTHS)?;
    hex::decode(digits).ok_or(DecodeError::Malformed(LENGTHS))
}

/// A JSON number of exactly `len` digits.
fn digits(reader: &mut Reader<'_>, len: u64, what: &'static str) -> Result<i64, DecodeError> {
    let digits = reader.bytes(len, what)?;
    let is_number = digits.iter().all(u8::is_ascii_digit) && (digits.len() == 1 || !digits.starts_with(b"0"));
    let number = str::from_utf8(digits).ok().filter(|_| is_number).and_then(|digits| digits.parse().ok());
    number.ok_or(DecodeError::Malformed(what))
}

/// A JSON string whose length is the descriptor's next two bytes.
fn text<'a>(
    reader: &mut Reader<'a>,
    lengths: &mut Reader<'_>,
    what: &'static str,
) -> Result<Cow<'a, str>, DecodeError> {
    let len = u64::from(u16::from_be_bytes(lengths.array(LENGTHS)?));
    let quoted = str::from_utf8(reader.bytes(len + 2, what)?).map_err(|_| DecodeError::Utf8(what))?;
    if !quoted.starts_with('"') {
        return Err(DecodeError::Malformed(what)); // serde_json would pass over spaces
    }
    let text: Text<'a> =
        serde_json::from_str(quoted).map_err(|error| DecodeError::library(&error.to_string()))?;
    if quoted.ends_with('"') { Ok(text.0) } else { Err(DecodeError::Malformed(what)) }
}
