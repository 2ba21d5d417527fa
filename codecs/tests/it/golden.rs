//! The bytes of the reference encoders, and that real signatures survive every format.

use codecs::{Format, VerifyLevel, hex};

use crate::common::{Golden, sha256_hex, subjects, vectors};

#[test]
fn encoders_write_the_references_bytes() {
    for vector in vectors() {
        for subject in subjects() {
            let label = format!("{} as {}", vector.name, subject.label);
            let encoded = subject.event(&vector.event);
            match vector.bytes.get(subject.format.name()) {
                Some(Golden::Bytes { len, sha256, hex: golden }) => {
                    let encoded = encoded.unwrap_or_else(|error| panic!("{label}: {error}"));
                    if let Some(golden) = golden {
                        assert_eq!(&hex::encode(&encoded), golden, "{label}");
                    }
                    assert_eq!((encoded.len(), &sha256_hex(&encoded)), (*len, sha256), "{label}");
                }
                // The reference altered the event or failed; refusing is right, and so is doing
                // better.
                Some(Golden::Unfit) | None => {
                    if let Ok(encoded) = encoded {
                        let decoded = subject.codec.decode_event(&encoded).unwrap();
                        assert_eq!(decoded, vector.event, "{label}");
                    }
                }
            }
        }
    }
}

#[test]
fn decoders_give_the_identical_event() {
    for vector in vectors() {
        assert_eq!(vector.event.verify(VerifyLevel::Full), Ok(()), "{}", vector.name);
        for subject in subjects() {
            let label = format!("{} as {}", vector.name, subject.label);
            let Ok(encoded) = subject.event(&vector.event) else {
                assert!(subject.must_refuse(&vector.event), "{label}: refused without need");
                continue;
            };
            assert!(!subject.must_refuse(&vector.event), "{label}: no room for it, yet encoded");
            let decoded = subject.codec.decode_event(&encoded).unwrap_or_else(|e| panic!("{label}: {e}"));
            assert_eq!(decoded, vector.event, "{label}");
        }
    }
}

#[test]
fn json_is_the_line_it_was_read_from() {
    let json = Format::JSON.spec().library;
    for vector in vectors() {
        let mut out = Vec::new();
        json.encode_event(&json.decode_event(vector.event_json.as_bytes()).unwrap(), &mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), vector.event_json, "{}", vector.name);
    }
}

#[test]
fn vectors_know_no_format_that_the_registry_does_not_have() {
    for vector in vectors() {
        for name in vector.bytes.keys() {
            name.parse::<Format>().unwrap_or_else(|error| panic!("{}: {error}", vector.name));
        }
    }
}
