//! Meaning of a relay's message: the one rule of runs and of `client-sim doctor`.
//!
//! NIP-01 fixes no rule for NOTICE, and relays extend the protocol: greetings, verbs of their own,
//! further elements. What answers a request is taken as its answer, what answers nothing is passed
//! over, and only bytes that hold no message are a fault.

use codecs::{Codec, DecodeError, RelayMessage};
use serde::de::IgnoredAny;
use serde_json::Value;

/// Largest message whose elements are looked at one by one: parsed, they take many times its bytes.
const MOST_BYTES: usize = 256 << 10;

/// Meaning of a relay's message.
#[derive(Debug, PartialEq)]
pub enum Meaning<'a> {
    /// A message in the form of its NIP.
    Message(RelayMessage<'a>),
    /// A message with more or fewer elements than its NIP has.
    Extended(RelayMessage<'a>),
    /// A message that no NIP defines, or an answer without a required element.
    Foreign,
    /// No message: a fault.
    Undecodable(DecodeError),
}

/// Reads messages in one format.
#[derive(Debug, Clone, Copy)]
pub struct Interpreter {
    codec: &'static dyn Codec,
    /// Whether the format is the JSON of NIP-01, which relays extend.
    is_json: bool,
}

impl Interpreter {
    pub fn new(codec: &'static dyn Codec) -> Interpreter {
        let mut notice = Vec::new();
        let written = codec.encode_relay(&RelayMessage::Notice { text: "".into() }, &mut notice);
        Interpreter { codec, is_json: written.is_ok() && notice == br#"["NOTICE",""]"# }
    }

    #[inline]
    pub fn read<'a>(&self, payload: &'a [u8]) -> Meaning<'a> {
        match self.codec.decode_relay(payload) {
            Ok(message) => Meaning::Message(message),
            Err(error) if self.is_json => self.read_extended(payload, error),
            Err(error) => Meaning::Undecodable(error),
        }
    }

    #[cold]
    fn read_extended<'a>(&self, payload: &[u8], error: DecodeError) -> Meaning<'a> {
        // Without a tree: JSON may be as deep as it is long.
        if serde_json::from_slice::<IgnoredAny>(payload).is_err() {
            // Keep-alives such as PING, empty or binary messages; what begins as a message is damaged.
            let is_damaged = payload.trim_ascii_start().first() == Some(&b'[');
            return if is_damaged { Meaning::Undecodable(error) } else { Meaning::Foreign };
        }
        if matches!(error, DecodeError::UnknownMessage(_)) {
            return Meaning::Foreign;
        }
        let value = if payload.len() <= MOST_BYTES { serde_json::from_slice(payload).ok() } else { None };
        let elements = match value {
            Some(Value::Array(elements)) => elements,
            Some(_) => return Meaning::Foreign,
            None => return Meaning::Undecodable(error),
        };
        let Some(verb) = elements.first().and_then(Value::as_str).map(str::to_owned) else {
            return Meaning::Foreign;
        };
        let usual = serde_json::to_vec(&usual_form(&verb, elements)).unwrap_or_default();
        match self.codec.decode_relay(&usual) {
            Ok(message) => Meaning::Extended(message.into_owned()),
            // An event or a round of a reconciliation that is damaged is owed all the same.
            Err(error) if matches!(&*verb, "EVENT" | "EVENTS" | "NEG-MSG") => Meaning::Undecodable(error),
            Err(_) => Meaning::Foreign,
        }
    }
}

/// The elements in the form of the verb's NIP: the text is optional, and what follows is left out.
fn usual_form(verb: &str, mut elements: Vec<Value>) -> Vec<Value> {
    let length = match verb {
        "NOTICE" | "AUTH" | "EOSE" => 2,
        "OK" => 4,
        _ => 3,
    };
    elements.truncate(length);
    if matches!(verb, "OK" | "CLOSED" | "NEG-ERR") {
        if elements.len() == length - 1 {
            elements.push("".into());
        }
        match elements.get_mut(length - 1) {
            Some(text) if text.is_null() => *text = "".into(),
            Some(text) if !text.is_string() => *text = text.to_string().into(),
            _ => {}
        }
    }
    elements
}

/// A relay's answer to a publication (NIP-01).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Accepted,
    /// It had the event, and delivers nothing.
    Duplicate,
    /// An ephemeral event that nobody listens to.
    Mute,
    Refused,
}

impl Verdict {
    pub fn from_ok(accepted: bool, text: &str) -> Verdict {
        match accepted {
            true if text.starts_with("duplicate:") => Verdict::Duplicate,
            true => Verdict::Accepted,
            false if text.starts_with("mute:") => Verdict::Mute,
            false => Verdict::Refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use codecs::{EoseHints, Format, Implementation};

    use super::*;

    const ID: [u8; 32] = [0xab; 32];

    fn read(text: &str) -> Meaning<'static> {
        let read = |implementation| {
            let codec = Format::JSON.codec(implementation).unwrap();
            match Interpreter::new(codec).read(text.as_bytes()) {
                Meaning::Message(message) => Meaning::Message(message.into_owned()),
                Meaning::Extended(message) => Meaning::Extended(message.into_owned()),
                Meaning::Foreign => Meaning::Foreign,
                Meaning::Undecodable(error) => Meaning::Undecodable(error),
            }
        };
        let meaning = read(Implementation::Library);
        match (&meaning, read(Implementation::Tuned)) {
            (Meaning::Undecodable(_), Meaning::Undecodable(_)) => {}
            (_, tuned) => assert_eq!(tuned, meaning, "{text}"),
        }
        meaning
    }

    fn ok(accepted: bool, text: &'static str) -> RelayMessage<'static> {
        RelayMessage::Ok { id: ID, accepted, text: text.into() }
    }

    #[test]
    fn answers_with_elements_more_or_fewer_are_answers() {
        let id = "ab".repeat(32);
        for rest in ["", r#","""#, ",null", r#","",{"took_ms":3}"#] {
            let meaning = read(&format!(r#"["OK","{id}",true{rest}]"#));
            match rest {
                r#","""# => assert_eq!(meaning, Meaning::Message(ok(true, ""))),
                _ => assert_eq!(meaning, Meaning::Extended(ok(true, "")), "{rest}"),
            }
        }
        assert_eq!(read(&format!(r#"["OK","{id}",false,7]"#)), Meaning::Extended(ok(false, "7")));
        for rest in [r#","x""#, ",null", ",{}", ",12,[]", ",[1]"] {
            let eose = RelayMessage::Eose { subscription: "a".into(), hints: EoseHints::default() };
            assert_eq!(read(&format!(r#"["EOSE","a"{rest}]"#)), Meaning::Extended(eose), "{rest}");
        }
        let closed =
            |text: &'static str| RelayMessage::Closed { subscription: "a".into(), text: text.into() };
        assert_eq!(read(r#"["CLOSED","a"]"#), Meaning::Extended(closed("")));
        assert_eq!(read(r#"["CLOSED","a","error: x",1]"#), Meaning::Extended(closed("error: x")));
        let auth = RelayMessage::Auth { challenge: "c".into() };
        assert_eq!(read(r#"["AUTH","c",{}]"#), Meaning::Extended(auth));
        let notice = RelayMessage::Notice { text: "n".into() };
        assert_eq!(read(r#"["NOTICE","n","m"]"#), Meaning::Extended(notice));
    }

    #[test]
    fn json_that_answers_nothing_is_foreign_however_deep_and_long() {
        let deep = format!("[\"LIMITS\",{}{}]", "[".repeat(5_000), "]".repeat(5_000));
        let long = format!("[\"LIMITS\",\"{}\"]", "x".repeat(2 * MOST_BYTES));
        for text in [
            r#"["LIMITS",{"max":1}]"#,
            "[]",
            "[1]",
            "{}",
            r#""pong""#,
            "null",
            "7",
            r#"["NOTICE"]"#,
            r#"["NOTICE",{"a":1}]"#,
            r#"["OK","?",false,"invalid: no id"]"#,
            r#"["OK"]"#,
            r#"["EOSE"]"#,
            r#"["EOSE",7]"#,
            r#"["COUNT","a",{}]"#,
            r#"["notice","lower case"]"#,
            "",
            "PING",
            "\u{2}\u{1}",
            &deep,
            &long,
        ] {
            assert_eq!(read(text), Meaning::Foreign, "{text:.80}");
        }
    }

    #[test]
    fn what_is_no_message_or_a_damaged_delivery_is_a_fault() {
        for text in [
            "[",
            " [\"EVENT\"",
            r#"["EVENT","a",{}]"#,
            r#"["EVENT",{}]"#,
            r#"["EVENT","a",{},1]"#,
            r#"["NEG-MSG","a","no hex"]"#,
            r#"["NOTICE","x"] tail"#,
        ] {
            assert!(matches!(read(text), Meaning::Undecodable(_)), "{text}");
        }
        // A binary format is not extended by JSON: a relay that sends it does not speak the format.
        let codec = "cbor-packed".parse::<Format>().unwrap().spec().library;
        let meaning = Interpreter::new(codec).read(br#"["LIMITS",{}]"#);
        assert!(matches!(meaning, Meaning::Undecodable(_)), "{meaning:?}");
    }
}
