//! Notepack's text form: the strings of the crate's own documents, and strict reading. The fuzzers' checks ask it
//! of any event.

use codecs::{DecodeError, Event, hex, notepack_text};
use notepack::{NoteBuf, pack_note_to_string};
use proptest::prelude::*;

use crate::common::{event_of, vectors};

/// The example in notepack 0.3.0's README.
const EXAMPLE_JSON: &str = r#"{"id": "f1e7bc2a9756453fcc0e80ecf62183fa95b9a1278a01281dbc310b6777320e80","pubkey": "7fe437db5884ee013f701a75f8d1a84ecb434e997f2a31411685551ffff1b841","created_at": 1753900182,"kind": 1,"tags": [],"content": "hi","sig": "75507f84d78211a68f2f964221f5587aa957a66c1941d01125caa07b9aabdf5a98c3e63d1fe1e307cbf01b74b0a1b95ffe636eb6746c00167e0d48e5b11032d5"}"#;
const EXAMPLE: &str = "notepack_AfHnvCqXVkU/zA6A7PYhg/qVuaEnigEoHbwxC2d3Mg6Af+Q321iE7gE/cBp1+NGoTstDTpl/KjFBFoVVH//xuEF1UH+E14IRpo8vlkIh9Vh6qVembBlB0BElyqB7mqvfWpjD5j0f4eMHy/AbdLChuV/+Y262dGwAFn4NSOWxEDLVlsmpxAYBAmhpAA";
/// The test vector of its SPEC.md §9, which leaves the version out, and the string in its
/// documentation of `NoteParser::decode`, which is of a layout without one.
const VERSIONLESS: [&str; 2] = [
    "notepack_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAARERERERERERERERERERERERERERERERERERERERERESIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiIiKAvJS0BgAFaGVsbG8CAwJlQaqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqLndzczovL3JlbGF5LmV4YW1wbGUuY29tAgJwQbu7u7u7u7u7u7u7u7u7u7u7u7u7u7u7u7u7u7u7u7u7",
    "notepack_737yskaxtaKQSL3IPPhOOR8T1R4G/f4ARPHGeNPfOpF4417q9YtU+4JZGOD3+Y0S3uVU6/edo64oTqJQ0pOF29Ms7GmX6fzM4Wjc6sohGPlbdRGLjhuqIRccETX5DliwUFy9qGg2lDD9oMl8ijoNFq4wwJ5Ikmr4Vh7NYWBwOkuo/anEBgECaGkA",
];

fn written(event: &Event<'_>) -> String {
    let mut out = b"before ".to_vec();
    notepack_text::encode(event, &mut out);
    String::from_utf8(out).unwrap().strip_prefix("before ").unwrap().to_owned()
}

fn by_the_crate(event: &Event<'_>) -> String {
    pack_note_to_string(&NoteBuf {
        id: hex::encode(&event.id),
        pubkey: hex::encode(&event.pubkey),
        sig: hex::encode(&event.sig),
        created_at: event.created_at.cast_unsigned(),
        kind: event.kind.into(),
        tags: event.tags.iter().map(|tag| tag.iter().map(|value| value.to_string()).collect()).collect(),
        content: event.content.to_string(),
    })
    .unwrap()
}

#[test]
fn the_example_of_the_crate_is_read_and_written() {
    let event = event_of(EXAMPLE_JSON);
    assert_eq!(written(&event), EXAMPLE);
    assert_eq!(notepack_text::decode(EXAMPLE.as_bytes()), Ok(event));
}

#[test]
fn texts_without_a_version_are_refused() {
    for text in VERSIONLESS {
        let error = notepack_text::decode(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("version"), "{error}");
    }
}

#[test]
fn texts_are_what_the_crate_writes() {
    for vector in vectors() {
        let text = written(&vector.event);
        assert_eq!(text, by_the_crate(&vector.event), "{}", vector.name);
        assert_eq!(notepack_text::decode(text.as_bytes()), Ok(vector.event), "{}", vector.name);
    }
}

#[test]
fn an_event_has_one_text() {
    let refuse = |text: &str, what: &str| {
        let error = notepack_text::decode(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(what), "{text}: {error}");
    };
    let digits = EXAMPLE.strip_prefix("notepack_").unwrap();
    for text in ["", "notepack", digits, &format!("Notepack_{digits}"), &format!(" {EXAMPLE}")] {
        refuse(text, "begins with notepack_");
    }
    refuse("notepack_", "input ended");
    refuse(&format!("{EXAMPLE}="), "padding");
    refuse(&format!("{EXAMPLE}\n"), "Invalid symbol");
    refuse(&EXAMPLE.replace('/', "_"), "Invalid symbol"); // the URL's alphabet
    refuse(&format!("{EXAMPLE}AA"), "after the end");
    refuse(&EXAMPLE[..EXAMPLE.len() - 2], "input ended");
    // Two digits stand for the last byte, with four bits to spare.
    refuse(&format!("{}B", &EXAMPLE[..EXAMPLE.len() - 1]), "last symbol");
    assert_eq!(notepack_text::decode(b"notepack_\xff").map_err(|_| ()), Err(()));
    assert_eq!(
        notepack_text::decode(b"note1abc"),
        Err(DecodeError::Malformed("notepack text: it begins with notepack_"))
    );
}

proptest! {
    #[test]
    fn any_text_gives_an_answer(text in "(notepack_)?[A-Za-z0-9+/=_]{0,300}") {
        if let Ok(event) = notepack_text::decode(text.as_bytes()) {
            prop_assert_eq!(written(&event), text);
        }
    }
}
