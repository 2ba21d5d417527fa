//! A relay's JSON in the client's format, and the client's messages as JSON.

use codecs::{ClientMessage, Codec, Event, Format, RelayMessage};
use serde_json::Value;

/// Bytes of a subscription id that every format holds.
const SUBSCRIPTION_BYTES: usize = 255;

/// A relay's EVENT in its parts. The message is `prefix` and `rest`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct EventMessage<'m> {
    pub(crate) prefix: &'m [u8],
    /// The JSON string of the subscription id, with its quotes.
    subscription: &'m [u8],
    /// The event, `]` and whitespace: some relays end messages with a line feed.
    pub(crate) rest: &'m [u8],
}

impl<'m> EventMessage<'m> {
    /// The parts of a message; `None` for other messages. The event is not checked.
    pub(crate) fn of(message: &'m [u8]) -> Option<EventMessage<'m>> {
        let (verb, rest) = first(message)?;
        let rest = rest.trim_ascii_start().strip_prefix(b",")?.trim_ascii_start();
        let (subscription, rest) = literal(rest).filter(|_| verb == b"\"EVENT\"")?;
        let rest = rest.trim_ascii_start().strip_prefix(b",")?.trim_ascii_start();
        event_of(rest).filter(|event| event.starts_with(b"{"))?;
        Some(EventMessage { prefix: &message[..message.len() - rest.len()], subscription, rest })
    }

    /// The subscription id, if every format holds it.
    pub(crate) fn subscription(&self) -> Option<String> {
        let text: String = serde_json::from_slice(self.subscription).ok()?;
        Some(text).filter(|text| text.len() <= SUBSCRIPTION_BYTES)
    }
}

/// The event at the start of [`EventMessage::rest`].
pub(crate) fn event_of(rest: &[u8]) -> Option<&[u8]> {
    rest.trim_ascii_end().strip_suffix(b"]")
}

/// Whether a client's message in JSON proves who the client is (NIP-42).
pub(crate) fn is_auth(message: &[u8]) -> bool {
    first(message).is_some_and(|(verb, _)| {
        verb == b"\"AUTH\""
            // Letters may be escaped.
            || verb.contains(&b'\\') && serde_json::from_slice::<String>(verb).is_ok_and(|verb| verb == "AUTH")
    })
}

/// The first element of an array, which is a string, and the rest.
fn first(message: &[u8]) -> Option<(&[u8], &[u8])> {
    literal(message.trim_ascii_start().strip_prefix(b"[")?.trim_ascii_start())
}

/// The string at the start of JSON, with its quotes, and the rest.
fn literal(json: &[u8]) -> Option<(&[u8], &[u8])> {
    let inside = json.strip_prefix(b"\"")?;
    let mut at = 0;
    loop {
        match inside.get(at)? {
            b'"' => return json.split_at_checked(at + 2),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

/// The code that reads and writes a format.
pub(crate) fn codec(format: Format) -> &'static dyn Codec {
    let spec = format.spec();
    spec.tuned.unwrap_or(spec.library)
}

/// An event in the codec's format; `None` if the format does not give back the values of `json`.
pub(crate) fn event(event: &Event<'_>, json: &[u8], codec: &dyn Codec) -> Option<Vec<u8>> {
    let (mut bytes, mut back) = (Vec::new(), Vec::new());
    codec.encode_event(event, &mut bytes).ok()?;
    self::codec(Format::JSON).encode_event(&codec.decode_event(&bytes).ok()?, &mut back).ok()?;
    same_values(json, &back).then_some(bytes)
}

/// A relay's message in the codec's format; `None` if the format does not give back its values.
pub(crate) fn to_client(json: &[u8], codec: &dyn Codec) -> Option<Vec<u8>> {
    let message: RelayMessage<'_> = self::codec(Format::JSON).decode_relay(json).ok()?;
    let (mut bytes, mut back) = (Vec::new(), Vec::new());
    codec.encode_relay(&message, &mut bytes).ok()?;
    self::codec(Format::JSON).encode_relay(&codec.decode_relay(&bytes).ok()?, &mut back).ok()?;
    same_values(json, &back).then_some(bytes)
}

/// A client's message as JSON.
///
/// # Errors
/// The answer to a request that JSON cannot hold: without its unknown field it would match more.
pub(crate) fn to_relay(message: &ClientMessage<'_>) -> Result<Vec<u8>, Box<RelayMessage<'static>>> {
    let mut json = Vec::new();
    codec(Format::JSON).encode_client(message, &mut json).map(|()| json).map_err(|error| {
        let text = format!("unsupported: {error}").into();
        Box::new(match message {
            ClientMessage::Req { subscription, .. } | ClientMessage::Count { subscription, .. } => {
                RelayMessage::Closed { subscription: subscription.to_string().into(), text }
            }
            ClientMessage::NegOpen { subscription, .. } => {
                RelayMessage::NegErr { subscription: subscription.to_string().into(), text }
            }
            _ => RelayMessage::Notice { text },
        })
    })
}

fn same_values(one: &[u8], other: &[u8]) -> bool {
    let read = |json| serde_json::from_slice::<Value>(json).ok();
    read(one).is_some_and(|value| Some(value) == read(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_message_is_cut_around_its_event_whatever_its_spaces() {
        for (prefix, event, end) in [
            (r#"["EVENT","a","#, r#"{"id":1}"#, "]"),
            (r#"["EVENT","a","#, "{}", "]\r\n"),
            (" [ \"EVENT\" , \"a\\\"]\" ,\n", "{} ", "]"),
        ] {
            let message = [prefix, event, end].concat();
            let found = EventMessage::of(message.as_bytes()).unwrap();
            assert_eq!((found.prefix, found.rest), (prefix.as_bytes(), [event, end].concat().as_bytes()));
            assert_eq!(event_of(found.rest), Some(event.as_bytes()));
        }
        for other in [
            "",
            "[",
            "EVENT",
            r#"["EVENT","#,
            r#"["EVENT","a"#,
            r#"["EVENT","a\"#,
            r#"["EVENT","a",{}"#,
            r#"["EVENT","a",{}]x"#,
            r#"["EVENT","a",[{}]]"#,
            r#"["EVENT",{}]"#,
            r#"["OK","a",{}]"#,
        ] {
            assert_eq!(EventMessage::of(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn a_proof_is_one_however_it_is_spelled() {
        for (message, expected) in [
            (r#"["AUTH",{}]"#, true),
            (" [ \"\\u0041UTH\", {}]", true),
            (r#"["AUT",{}]"#, false),
            (r#"{"AUTH":1}"#, false),
        ] {
            assert_eq!(is_auth(message.as_bytes()), expected, "{message}");
        }
    }

    #[test]
    fn what_would_not_come_back_equal_is_not_transcoded() {
        let key = "07".repeat(32);
        let event = |more: &str, kind: &str| {
            format!(
                r#"{{"id":"{key}","pubkey":"{key}","created_at":1,"kind":{kind},"tags":[],"content":"é\n","sig":"{key}{key}"{more}}}"#
            )
        };
        for format in Format::all() {
            let codec = codec(format);
            let coded = |json: &str| {
                let read = self::codec(Format::JSON).decode_event(json.as_bytes()).ok()?;
                super::event(&read, json.as_bytes(), codec)
            };
            assert!(coded(&event("", "1")).is_some(), "{format}");
            assert_eq!(coded(&event(r#","seen_on":["a"]"#, "1")), None, "{format}: an unknown field");
            assert_eq!(coded(&event("", "1.0")), None, "{format}: a form of number");
            assert_eq!(coded(&event(r#","kind":1"#, "1")), None, "{format}: a field twice");
            assert!(to_client(br#"["EOSE","a"]"#, codec).is_some(), "{format}");
            for other in [r#"["LIMITS",{}]"#, r#"["OK",1]"#, r#"["EOSE","a",["more","finish"]]"#, "[]", "x"] {
                assert_eq!(to_client(other.as_bytes(), codec), None, "{format}: {other}");
            }
        }
    }
}
