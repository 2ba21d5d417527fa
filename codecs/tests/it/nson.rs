//! Where NSON here is written otherwise than by go-nostr, and why: codecs/README.md.
//!
//! go-nostr quotes as Go does (`strconv.Quote`). `codecs/interop/go` reads what is written here
//! with Go's own `strconv.Unquote`, as go-nostr's reader does.

use codecs::{Event, Format};

use crate::common::{Subject, committed, sample_event, subjects, vectors};

fn nson() -> Subject {
    subjects().into_iter().find(|subject| subject.format.name() == "nson").unwrap()
}

/// `strconv.Quote` writes \x00 and \U0010ffff for what it does not print: no JSON (RFC 8259 §7).
#[test]
fn what_go_nostr_writes_is_not_always_json() {
    let json = Format::JSON.spec().library;
    for case in committed("nson.json").as_array().unwrap() {
        let (name, theirs) = (case["name"].as_str().unwrap(), case["text"].as_str().unwrap());
        assert!(serde_json::from_str::<serde_json::Value>(theirs).is_err(), "{name}");
        let event = vectors().into_iter().find(|vector| vector.name == name).unwrap().event;
        let ours = nson().event(&event).unwrap();
        assert_ne!(ours, theirs.as_bytes(), "{name}");
        assert!(ours[309..].starts_with(b",\"nson\":\""), "{name}: NSON all the same");
        assert_eq!(json.decode_event(&ours).unwrap(), event, "{name}: and JSON");
        let error = nson().codec.decode_event(theirs.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("invalid escape"), "{name}: {error}");
    }
}

/// Where Go's quotes are JSON too, their event is read: a no-break space, as articles have it, is
/// \u00a0 there and itself here.
#[test]
fn what_go_nostr_writes_is_read_where_it_is_json() {
    let nson = nson();
    for (character, quoted) in [("\u{a0}", "\\u00a0"), ("\u{200d}", "\\u200d"), ("\u{feff}", "\\ufeff")] {
        let event = Event { content: format!("a{character}b").into(), tags: vec![], ..sample_event() };
        let ours = String::from_utf8(nson.event(&event).unwrap()).unwrap();
        let (raw, escaped) = (format!("a{character}b"), format!("a{quoted}b"));
        let length = |text: &str| format!(",\"nson\":\"040100{:02x}00\"", text.len());
        assert!(ours.contains(&length(&raw)), "{ours}");
        let theirs = ours.replace(&raw, &escaped).replace(&length(&raw), &length(&escaped));
        assert_ne!(theirs, ours);
        assert_eq!(nson.codec.decode_event(theirs.as_bytes()).unwrap(), event, "{quoted}");
    }
}

/// Printable text and the escapes that both know are written alike: the golden vectors.
#[test]
fn nothing_else_is_written_otherwise() {
    let printed = "\\ \" \u{8} \t \n \u{c} \r / ß 日本語 \u{fffd} \u{1f30d}";
    let event = Event { content: printed.into(), tags: vec![], ..sample_event() };
    let ours = String::from_utf8(nson().event(&event).unwrap()).unwrap();
    // By Go 1.24: fmt.Println(strconv.Quote(content)).
    assert!(ours.contains(r#""content":"\\ \" \b \t \n \f \r / ß 日本語 � 🌍","tags""#), "{ours}");
}
