//! The bytes of the reference encoders, and that real signatures survive every format.

mod common;

use codecs::{Format, VerifyLevel, hex};
use common::{Golden, sha256_hex, subjects, vectors};

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
                // The reference altered the event or failed; refusing is right, and so is doing better.
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

/// Where the shared file has a format's bytes: CBOR packed, CBOR intkey and Cap'n Proto by the lossless hex rule
/// ("newer"), the rest of the question's formats as the seed systems write them ("early").
fn original(format: &str) -> (&'static str, String) {
    match format {
        "proto-compact" => ("newer", "proto_binary".to_owned()),
        "cbor-packed" | "cbor-intkey" | "capnp" | "capnp-packed" | "msgpack" => {
            ("newer", format.replace('-', "_"))
        }
        "go-nostr-binary" => ("go", "gonostr_binary".to_owned()),
        "leaner" => ("go", "leaner_binary".to_owned()),
        "tlv" => ("go", "tlv_naive".to_owned()),
        "nson" => ("go", "nson".to_owned()),
        _ => ("early", format.replace('-', "_")),
    }
}

/// The committed file is a digest of the shared one.
#[test]
fn the_committed_vectors_are_those_of_the_reference_run() {
    let Some(path) = common::shared("vectors/synthetic.json") else { return };
    let shared: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let shared = shared["vectors"].as_array().unwrap();
    let vectors = vectors();
    assert_eq!(vectors.len(), shared.len());
    for (vector, shared) in vectors.iter().zip(shared) {
        assert_eq!(vector.name, shared["name"]);
        assert_eq!(vector.event_json, shared["event_json"], "{}", vector.name);
        for (format, golden) in &vector.bytes {
            let (dialect, key) = original(format);
            let original = &shared[dialect][&key];
            match golden {
                // What Go quotes in its own way is not JSON and so not the NSON of this project.
                Golden::Unfit => assert!(
                    original["roundtrip"] != "same" || original["valid_json"] == false,
                    "{} {format}",
                    vector.name
                ),
                Golden::Bytes { len, sha256, hex } => {
                    assert_eq!(original["roundtrip"], "same", "{} {format}", vector.name);
                    assert_eq!(original["len"], *len, "{} {format}", vector.name);
                    assert_eq!(original["sha256"], **sha256, "{} {format}", vector.name);
                    let hex = hex.as_deref().filter(|_| original["hex"].is_string());
                    assert!(hex.is_none_or(|hex| original["hex"] == *hex), "{}", vector.name);
                }
            }
        }
    }
}

/// The one event that every language of the newer seed writes, in the formats that have no other vector.
#[test]
fn flatbuffers_are_those_of_the_cross_language_fixture() {
    let Some(path) = common::shared("vectors/interop-v1.json") else { return };
    let shared: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let event = common::event_of(&shared["semantic_event"].to_string());
    for (format, key) in
        [("flatbuffers", "flatbuffers"), ("msgpack", "msgpack"), ("proto-compact", "proto_binary")]
    {
        for subject in subjects().iter().filter(|subject| subject.format.name() == format) {
            let encoded = subject.event(&event).unwrap();
            assert_eq!(shared["formats"][key]["bytes_hex"], hex::encode(&encoded), "{}", subject.label);
            assert_eq!(subject.codec.decode_event(&encoded).unwrap(), event, "{}", subject.label);
        }
    }
}
