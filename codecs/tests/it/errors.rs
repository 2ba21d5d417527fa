//! Errors tell a peer which field, what was expected, and never a copy of what it sent.

use codecs::{DecodeError, Format};

use crate::common::subjects;

fn json_client(text: &str) -> String {
    Format::JSON.spec().library.decode_client(text.as_bytes()).expect_err(text).to_string()
}

fn json_relay(text: &str) -> String {
    Format::JSON.spec().library.decode_relay(text.as_bytes()).expect_err(text).to_string()
}

#[test]
fn json_errors_name_field_and_expectation() {
    let id = "ab".repeat(32);
    let cases = [
        (json_client("{}"), "an object, expected an array that starts with a verb"),
        (json_client("[\"EVENT\",{\"id\":\"AB\"}]"), "id: expected 64 lowercase hex digits"),
        (json_client("[\"EVENT\",{\"kind\":65536}]"), "kind: 65536, expected a whole number from 0 to 65535"),
        (json_client("[\"EVENT\",{\"kind\":\"1\"}]"), "kind: \"1\", expected a whole number from 0 to 65535"),
        (
            json_client("[\"EVENT\",{\"created_at\":18446744073709551615}]"),
            "created_at: 18446744073709551615, expected a whole number of at most 63 bits",
        ),
        (json_client("[\"EVENT\",{\"tags\":[[\"e\",5]]}]"), "tags: 5, expected text"),
        (json_client("[\"EVENT\",{\"content\":\"a"), "content: the JSON ends inside a string"),
        (json_client("[\"EVENT\",}"), "not JSON: expected value"),
        (json_client("[\"EVENT\",{}]"), "id is missing"),
        (json_client(&format!("[\"EVENT\",{{\"id\":\"{id}\",\"id\":\"{id}\"}}]")), "id occurs twice"),
        (
            json_client("[\"REQ\",\"s\",{\"since\":1.5}]"),
            "since: 1.5, expected a whole number of at most 63 bits",
        ),
        (json_relay("[\"COUNT\",\"s\",[5]]"), "an array, expected an object with a count"),
        (json_relay("[\"EOSE\"]"), "expected [\"EOSE\",subscription] or [\"EOSE\",subscription,[hint…]]"),
    ];
    for (message, expected) in cases {
        let (what, place) = message.rsplit_once(" (byte ").unwrap();
        assert_eq!(what, expected);
        assert!(place.trim_end_matches(')').parse::<usize>().is_ok(), "{message}");
    }
}

#[test]
fn text_is_utf8_even_in_fields_that_are_ignored() {
    let mut event = b"{\"x\":\"?\"}".to_vec();
    event[6] = 0xff;
    assert_eq!(Format::JSON.spec().library.decode_event(&event), Err(DecodeError::Utf8("message")));
}

#[test]
fn errors_never_repeat_a_long_text() {
    let long = "x".repeat(200_000);
    for subject in subjects() {
        let inputs: Vec<Vec<u8>> = match subject.format.name() {
            "json" => vec![
                format!("[\"{long}\"]").into_bytes(),
                format!("[\"EVENT\",\"{long}\"]").into_bytes(),
                format!("[\"EVENT\",{{\"kind\":\"{long}\"}}]").into_bytes(),
            ],
            "cbor-schemaless" => {
                vec![[&b"\x81\x79\x0f\xff"[..], &long.as_bytes()[..0xfff]].concat()]
            }
            "cbor-packed" | "cbor-intkey" => {
                // A filter condition on 60,000 hex digits that should be bytes.
                let head = b"\x83\x02\x61s\xa1\x08\xa1\x61e\x81\x79\xea\x60";
                vec![[&head[..], "ab".repeat(30_000).as_bytes()].concat()]
            }
            _ => vec![long.clone().into_bytes()],
        };
        for input in inputs {
            let error = subject.codec.decode_client(&input).unwrap_err().to_string();
            assert!(error.len() < 1_000, "{}: {} bytes of error", subject.label, error.len());
        }
    }
}
