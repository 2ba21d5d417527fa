//! The file: what is written is read, up to where it is cut off.

use std::{io::Write, path::Path};

use recording::{
    Body, End, Entry, Header, MAX_LINE_BYTES, MAX_TEXT_BYTES, Message, Reader, Reason, Redaction, Side,
    VERSION, What, Writer,
};

const FIRST: &str = r#"{"recording":1,"redaction":"none","by":"a test"}"#;

fn header() -> Header {
    Header { version: VERSION, redaction: Redaction::Pseudonyms, by: "a test".to_owned() }
}

fn message(from: Side, body: Body) -> What {
    What::Message(Message { from, wire_bytes: 310, body })
}

/// One entry of each kind.
fn entries() -> Vec<Entry> {
    let at = |t_ns, what| Entry { conn: 7, t_ns, what };
    vec![
        at(1, What::Open { client: Some("nostr.dannypack".to_owned()), relay: None }),
        at(2, message(Side::Client, Body::Text("[\"REQ\",\"a\",{}]\n\u{1f600}".to_owned()))),
        at(3, message(Side::Relay, Body::Withheld { text_bytes: 900, kind: Some(1059) })),
        at(4, message(Side::Client, Body::Withheld { text_bytes: 9, kind: None })),
        Entry { conn: 0, t_ns: 5, what: What::Lost(12) },
        at(6, What::Close { code: Some(1000), by: Side::Gateway }),
        at(7, What::Close { code: None, by: Side::Client }),
        Entry { conn: 0, t_ns: 0, what: What::End(End { lost: 12, ratio_source: 3.1, ratio_written: 3.0 }) },
    ]
}

/// A recording that is flushed behind each entry, and where that was.
fn written(entries: &[Entry]) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = Vec::new();
    let mut ends = Vec::new();
    for count in 0..=entries.len() {
        bytes.clear();
        let mut writer = Writer::new(&mut bytes, &header()).unwrap();
        for entry in &entries[..count] {
            writer.write(entry.clone()).unwrap();
            writer.flush().unwrap();
        }
        if count == entries.len() {
            writer.finish().unwrap();
        } else {
            drop(writer);
        }
        ends.push(bytes.len());
    }
    (bytes, ends)
}

fn under_zstd(text: &str) -> Vec<u8> {
    zstd::encode_all(text.as_bytes(), 3).unwrap()
}

fn read(bytes: &[u8]) -> Result<(Vec<Entry>, bool), recording::Error> {
    let mut reader = Reader::new(bytes, Path::new("day.jsonl.zst"))?;
    let entries = reader.by_ref().collect::<Result<_, _>>()?;
    Ok((entries, reader.torn()))
}

#[test]
fn what_is_written_is_read() {
    let (bytes, _) = written(&entries());
    assert_eq!(Reader::new(&bytes[..], Path::new("a")).unwrap().header(), &header());
    assert_eq!(read(&bytes).unwrap(), (entries(), false));
}

#[test]
fn the_lines_are_those_of_the_document() {
    let (bytes, _) = written(&entries());
    let text = String::from_utf8(zstd::decode_all(&bytes[..]).unwrap()).unwrap();
    let lines = [
        r#"{"recording":1,"redaction":"pseudonyms","by":"a test"}"#,
        r#"{"conn":7,"t_ns":1,"open":{"client":"nostr.dannypack","relay":null}}"#,
        r#"{"conn":7,"t_ns":2,"from":"client","wire_bytes":310,"text":"[\"REQ\",\"a\",{}]\n😀"}"#,
        r#"{"conn":7,"t_ns":3,"from":"relay","wire_bytes":310,"text_bytes":900,"kind":1059}"#,
        r#"{"conn":7,"t_ns":4,"from":"client","wire_bytes":310,"text_bytes":9}"#,
        r#"{"conn":0,"t_ns":5,"lost":12}"#,
        r#"{"conn":7,"t_ns":6,"close":{"code":1000,"by":"gateway"}}"#,
        r#"{"conn":7,"t_ns":7,"close":{"code":null,"by":"client"}}"#,
        r#"{"conn":0,"t_ns":0,"end":{"lost":12,"ratio_source":3.1,"ratio_written":3.0}}"#,
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), lines);
}

#[test]
fn a_file_cut_off_at_any_byte_is_read_up_to_where_it_was_flushed() {
    let (bytes, ends) = written(&entries());
    for cut in 0..bytes.len() {
        let whole = ends.iter().filter(|end| **end <= cut).count();
        match read(&bytes[..cut]) {
            Ok((found, is_torn)) => {
                assert!(found.len() + 1 >= whole, "{cut}: {found:?}");
                assert_eq!(found, entries()[..found.len()], "{cut}");
                assert_eq!(is_torn, found.len() < entries().len(), "{cut}");
            }
            Err(error) => assert!(whole == 0 && matches!(error.reason, Reason::NoHeader), "{cut}: {error}"),
        }
    }
}

#[test]
fn hostile_files_are_errors_that_name_file_line_and_reason() {
    let lines = |more: &str| under_zstd(&format!("{FIRST}\n{more}\n"));
    let damaged = [under_zstd(&format!("{FIRST}\n")), b"no zstd".to_vec()].concat();
    for (bytes, expected) in [
        (b"{\"recording\":1}\n".to_vec(), "line 1: Unknown frame descriptor"),
        (under_zstd("{}\n"), "line 1: not a line of a recording: missing field `recording`"),
        (under_zstd(&format!("{}\n", FIRST.replace('1', "2"))), "line 1: this is a recording of version 2"),
        (lines("[]"), "line 2: not a line of a recording"),
        (lines("{}"), "line 2: not a line of a recording"),
        (lines(r#"{"conn":1,"t_ns":1,"close":{"code":1}}"#), "line 2: not a line of a recording"),
        (lines(r#"{"conn":1,"t_ns":1,"from":"relay","wire_bytes":1}"#), "line 2: not a line of a recording"),
        (
            lines(r#"{"conn":1,"t_ns":1,"from":"relay","wire_bytes":1,"text":"","text_bytes":0}"#),
            "line 2: not a line of a recording",
        ),
        (lines(r#"{"t_ns":1,"close":{"code":1,"by":"relay"}}"#), "it has no conn"),
        (lines(r#"{"conn":1,"close":{"code":1,"by":"relay"}}"#), "it has no t_ns"),
        (
            lines(r#"{"conn":1,"t_ns":1,"from":"gateway","wire_bytes":1,"text":""}"#),
            "a message is from client or relay",
        ),
        (lines(r#"{"conn":-1,"t_ns":1,"lost":1}"#), "line 2: not a line of a recording: invalid value"),
        (
            lines("{\"end\":{\"lost\":0,\"ratio_source\":1,\"ratio_written\":1}}\n{\"t_ns\":1,\"lost\":1}"),
            "line 3: lines follow the end",
        ),
        (lines(&" ".repeat(MAX_LINE_BYTES + 1)), "line 2: the line has more than"),
        (damaged, "; a recording is JSON lines under zstd"),
    ] {
        let error = read(&bytes).unwrap_err().to_string();
        assert!(error.starts_with("day.jsonl.zst, line ") && error.contains(expected), "{error}");
    }
}

#[test]
fn a_window_beyond_the_bound_is_refused() {
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).unwrap();
    encoder.window_log(27).unwrap();
    encoder.write_all(format!("{FIRST}\n").as_bytes()).unwrap();
    let error = read(&encoder.finish().unwrap()).unwrap_err();
    assert!(error.to_string().contains("requires too much memory"), "{error}");
}

#[test]
fn the_longest_text_comes_back_and_a_longer_one_is_withheld() {
    let of =
        |text: &str| Entry { conn: 0, t_ns: 1, what: message(Side::Client, Body::Text(text.to_owned())) };
    let longest = "\0".repeat(MAX_TEXT_BYTES);
    let (bytes, _) = written(&[of(&longest)]);
    assert_eq!(read(&bytes).unwrap().0, [of(&longest)]);
    let (bytes, _) = written(&[of(&format!("{longest}a"))]);
    let text_bytes = MAX_TEXT_BYTES as u64 + 1;
    let withheld =
        Entry { conn: 0, t_ns: 1, what: message(Side::Client, Body::Withheld { text_bytes, kind: None }) };
    assert_eq!(read(&bytes).unwrap().0, [withheld]);
}

#[test]
fn a_file_is_its_owners_alone_and_never_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("day.jsonl.zst");
    let created = recording::create(&file).unwrap();
    #[cfg(unix)]
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&created.metadata().unwrap().permissions()) & 0o777,
        0o600
    );
    assert_eq!(recording::create(&file).unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
    let error = Reader::open(&folder.path().join("none")).err().unwrap();
    assert!(error.to_string().contains("none, line 1: "), "{error}");
    drop(created);
}
