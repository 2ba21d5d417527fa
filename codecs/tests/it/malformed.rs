//! Hostile inputs: what the strict profile refuses is refused, with an error and without a panic.

use codecs::hex;

use crate::common::{committed, expand, subjects};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Verdict {
    Accept,
    Reject,
    /// The format's own decision; it must not panic.
    Free,
}

/// The verdict that the case's recommendation asks of a strict decoder. Where it names two readers,
/// ours is the strict one, and for the hex rule the newer one.
fn verdict(recommended: &str) -> Verdict {
    if recommended.starts_with("reject")
        || recommended.starts_with("strict reject")
        || recommended.starts_with("newer: reject")
        || recommended.ends_with("strict reject")
        || recommended.ends_with("strict profile reject")
    {
        Verdict::Reject
    } else if recommended.starts_with("accept") {
        Verdict::Accept
    } else {
        Verdict::Free
    }
}

/// Cases that the file leaves open or where this project decides otherwise, and why.
const DECIDED: &[(&str, &str, Verdict, &str)] = &[
    ("json", "created_at_negative", Verdict::Accept, "NIP-01 sets no lower bound; the id still verifies"),
    ("cbor-schemaless", "unknown_key", Verdict::Accept, "as in JSON, and as cbor-intkey's key 7"),
    ("cbor-intkey", "negative_key", Verdict::Reject, "extensions ascend from 7"),
    (
        "proto-binary",
        "tag_unknown_subfield",
        Verdict::Reject,
        "the newer dialect's values would be lost in silence",
    ),
    (
        "proto-binary",
        "newer_v2_bytes",
        Verdict::Reject,
        "the newer dialect's values would be lost in silence",
    ),
    ("capnp", "hex_empty_value", Verdict::Reject, "the newer hex rule never compacts an empty value"),
    (
        "notepack",
        "created_at_2^63_wraps_negative",
        Verdict::Accept,
        "the format has no other form for times before 1970, see the vector created_at_neg1",
    ),
];

#[test]
fn every_case_ends_as_recommended() {
    let file = committed("malformed.json");
    let mut wrong = Vec::new();
    for subject in subjects() {
        let format = subject.format.name();
        for case in file[format].as_array().into_iter().flatten() {
            let name = case["case"].as_str().unwrap();
            let recommended = case["recommended"].as_str().unwrap();
            let bytes = hex::decode(expand(&case["hex"]).as_bytes()).unwrap();
            let decided = DECIDED.iter().find(|decided| (decided.0, decided.1) == (format, name));
            let expected = decided.map_or_else(|| verdict(recommended), |decided| decided.2);
            let result = subject.codec.decode_event(&bytes);
            let fits = match expected {
                Verdict::Accept => result.is_ok(),
                Verdict::Reject => result.is_err(),
                Verdict::Free => true,
            };
            if let (Ok(event), "ok") = (&result, name) {
                assert_eq!(
                    subject.event(event).unwrap(),
                    bytes,
                    "{}: written back as it came",
                    subject.label
                );
            }
            if !fits {
                wrong
                    .push(format!("{}, {name}: recommended {recommended:?}, gave {result:?}", subject.label));
            }
        }
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn decisions_name_existing_cases_that_need_one() {
    let file = committed("malformed.json");
    for (format, name, decided, why) in DECIDED {
        let cases = file[format].as_array().unwrap();
        let case = cases.iter().find(|case| case["case"] == *name).unwrap();
        assert_ne!(verdict(case["recommended"].as_str().unwrap()), *decided, "{format} {name} ({why})");
    }
}
