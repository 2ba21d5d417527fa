//! Events for clients that keep ids and keys as bytes: the same event, however it was written.
//!
//! `properties.rs` and `fuzz_seeds.rs` ask every format and implementation the same of any bytes.

use std::borrow::Cow;

use codecs::{ByteEvent, Event, Format, Implementation, TagValue, VerifyError, VerifyLevel};

use crate::common::{sample_event, subjects};

/// A tag's value, and whether it is a key.
fn values() -> Vec<(String, bool)> {
    let key = "0123456789abcdef".repeat(4);
    vec![
        (key.clone(), true),
        ("f".repeat(64), true),
        (key.to_uppercase(), false),
        (key[..62].to_owned(), false),
        (format!("{key}00"), false),
        (format!("{}g", &key[..63]), false),
        (format!("{}\"", &key[..63]), false),
        ("ä".repeat(32), false),
        (String::new(), false),
        ("e".to_owned(), false),
    ]
}

#[test]
fn every_format_keeps_keys_as_bytes_and_no_other_text() {
    for (value, is_key) in values() {
        let tags = vec![vec![Cow::Borrowed("p"), Cow::Owned(value.clone())], vec![Cow::Owned(value.clone())]];
        let event = Event { tags, ..sample_event() };
        let mut held = 0;
        for subject in subjects() {
            // Its capacity is asked in capacity.rs.
            let Ok(bytes) = subject.event(&event) else { continue };
            held += 1;
            let kept = subject.codec.decode_keeping_bytes(&bytes).unwrap();
            for found in [&kept.tags[0][1], &kept.tags[1][0]] {
                assert_eq!(matches!(found, TagValue::Key(_)), is_key, "{}: {value:?}", subject.label);
            }
            assert_eq!(Event::from(kept), event, "{}: {value:?}", subject.label);
        }
        assert!(held > 20, "{held} codecs hold {value:?}");
    }
}

/// JSON may write any character as an escape; the value is what counts.
#[test]
fn a_key_that_json_wrote_with_escapes_is_a_key() {
    let mut bytes = Vec::new();
    let tags = vec![vec!["p".into(), "a".repeat(64).into()]];
    let event = Event { tags, ..sample_event() };
    let tuned = Format::JSON.codec(Implementation::Tuned).unwrap();
    tuned.encode_event(&event, &mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap().replacen(&"a".repeat(64), &r"\u0061".repeat(64), 1);
    for codec in [tuned, Format::JSON.codec(Implementation::Library).unwrap()] {
        let kept = codec.decode_keeping_bytes(text.as_bytes()).unwrap();
        assert_eq!(kept.tags[0][1], TagValue::Key([0xaa; 32]));
        assert_eq!(kept, ByteEvent::from(event.clone()));
    }
}

#[test]
fn an_event_that_keeps_bytes_has_the_id_of_its_text() {
    for (value, _) in values() {
        let tags = vec![vec!["p".into(), value.clone().into()], vec![]];
        let mut event = Event { tags, ..sample_event() };
        assert_eq!(ByteEvent::from(event.clone()).verify(VerifyLevel::Id), Err(VerifyError::Id), "{value:?}");
        event.id = event.compute_id();
        let kept = ByteEvent::from(event.clone());
        assert_eq!(kept.compute_id(), event.id, "{value:?}");
        for level in VerifyLevel::ALL {
            assert_eq!(kept.verify(level), event.verify(level), "{level} of {value:?}");
        }
        assert!(kept.verify(VerifyLevel::Full).is_err(), "nobody signed it");
    }
}
