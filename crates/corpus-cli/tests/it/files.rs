//! Corpus files: every format holds the same events, and damage is named by its place.

use std::{fs, path::PathBuf};

use codecs::{Event, VerifyLevel};
use corpus::{
    Corpus, CorpusError, EventWriter, FileFormat, Fingerprint, MAX_BATCH_BYTES, MAX_RECORD_BYTES, Origin,
    RecordError, write,
};

use crate::{gunzip, gzip};

/// Bundled events with few tags and short content, so that cutting at every byte stays quick.
fn some_events() -> Vec<Event<'static>> {
    let is_small = |event: &Event<'_>| event.content.len() < 200 && event.tags.len() < 8;
    Corpus::bundled().events.into_iter().filter(is_small).take(120).collect()
}

fn path(folder: &tempfile::TempDir, name: &str) -> PathBuf {
    folder.path().join(name)
}

/// Writes `bytes` under `name` and reads it as a corpus.
fn read_bytes(name: &str, bytes: &[u8]) -> Result<Corpus, CorpusError> {
    let folder = tempfile::tempdir().unwrap();
    let file = path(&folder, name);
    fs::write(&file, bytes).unwrap();
    Corpus::read(&file)
}

/// Line, offset, events before it and reason of the damage in a file.
fn damage(name: &str, bytes: &[u8]) -> (Option<u64>, u64, usize, RecordError) {
    match read_bytes(name, bytes).unwrap_err() {
        CorpusError::Damaged { line, offset_bytes, events_read, reason, .. } => {
            (line, offset_bytes, events_read, reason)
        }
        error => panic!("{name}: {error}"),
    }
}

/// The file `write` makes of `events` in this format.
fn file_of(format: FileFormat, events: &[Event<'_>]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let file = path(&folder, &format!("events{}", format.extension()));
    write(&file, events).unwrap();
    fs::read(file).unwrap()
}

#[test]
fn a_log_of_event_messages_is_a_corpus() {
    let events = some_events();
    let lines = String::from_utf8(file_of(FileFormat::Jsonl, &events)).unwrap();
    let log: String = lines.lines().map(|event| format!("[\"EVENT\",\"mine\", {event}]\n")).collect();
    assert_eq!(read_bytes("log.jsonl", log.as_bytes()).unwrap().events, events);

    let eose = format!("{log}[\"EOSE\",\"mine\"]\n");
    let error = read_bytes("log.jsonl", eose.as_bytes()).unwrap_err().to_string();
    let line = format!("line {}", events.len() + 1);
    assert!(error.contains(&line) && error.contains("other than EVENT"), "{error}");
    assert!(read_bytes("log.jsonl", b"[\"EVENT\",\"mine\",{}]\n").is_err());
}

#[test]
fn every_format_gives_the_same_events_back_each_once() {
    let events = some_events();
    let given = [&events[..], &events[3..4]].concat();
    for format in FileFormat::all() {
        let name = format!("some.events{}", format.extension());
        let corpus = read_bytes(&name, &file_of(format, &given)).unwrap();
        assert_eq!(corpus.events, events, "{name}");
        assert_eq!(corpus.fingerprint, Fingerprint::from_events(&events), "{name}");
        assert_eq!(corpus.name, name);
        assert_eq!(corpus.origin, Origin::Generated);
    }
}

#[test]
fn a_file_without_events_is_an_error() {
    for format in FileFormat::all() {
        let error = read_bytes(&format!("x{}", format.extension()), &file_of(format, &[])).unwrap_err();
        assert!(matches!(error, CorpusError::Empty { .. }), "{format:?}: {error}");
    }
    assert!(matches!(read_bytes("x.jsonl", b"\n\r\n").unwrap_err(), CorpusError::Empty { .. }));
}

#[test]
fn a_bad_line_is_named() {
    let text = String::from_utf8(file_of(FileFormat::Jsonl, &some_events()[..5])).unwrap();
    let mut lines: Vec<_> = text.lines().collect();
    lines.insert(3, "");
    lines.insert(4, "{\"id\":\"x\"}");
    // A blank line counts as a line, not as an event.
    for (name, bytes) in [
        ("x.jsonl", lines.join("\r\n").into_bytes()),
        ("x.jsonl.gz", gzip(lines.join("\n").as_bytes())),
        ("x.jsonl.zst", zstd::encode_all(lines.join("\n").as_bytes(), 1).unwrap()),
    ] {
        let line_end = if name == "x.jsonl" { 2 } else { 1 };
        let before: usize = lines[..4].iter().map(|line| line.len() + line_end).sum();
        let found = damage(name, &bytes);
        assert!(
            matches!(found, (Some(5), at, 3, RecordError::Decode(_)) if at == before as u64),
            "{found:?}"
        );
        let said = read_bytes(name, &bytes).unwrap_err().to_string();
        assert!(said.contains("line 5, byte ") && said.contains("(3 events read before it)"), "{said}");
    }
}

#[test]
fn compressed_files_cut_short_are_refused_at_every_length() {
    let events = &some_events()[..4];
    for format in [FileFormat::JsonlGzip, FileFormat::JsonlZstd, FileFormat::ProtoGzip] {
        let whole = file_of(format, events);
        for length in 0..whole.len() {
            let error = read_bytes(&format!("x{}", format.extension()), &whole[..length]).err();
            // Nothing at all is an empty zstd stream: no frame, no events.
            let empty = length == 0 && matches!(error, Some(CorpusError::Empty { .. }));
            let named = matches!(error, Some(CorpusError::Damaged { reason: RecordError::Read(_), .. }));
            assert!(empty || named, "{format:?} cut to {length} bytes: {error:?}");
        }
    }
}

#[test]
fn a_batch_cut_short_or_too_long_is_refused_with_its_name() {
    for format in FileFormat::all().filter(|format| !format.can_grow()) {
        let whole = file_of(format, &some_events()[..2]);
        let name = format!("x{}", format.extension());
        for bytes in [&whole[..whole.len() - 1], &[&whole, &b"\0"[..]].concat()] {
            let found = damage(&name, bytes);
            assert!(matches!(found, (None, 0, 0, RecordError::Batch(_))), "{name}: {found:?}");
        }
    }
    let (.., reason) = damage("x.notepack.batch", &vec![0xff; MAX_BATCH_BYTES + 1]);
    assert!(matches!(reason, RecordError::BatchTooLarge), "{reason}");
}

#[test]
fn a_batch_larger_than_is_read_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let large = Event { content: "c".repeat(1 << 20).into(), ..some_events()[0].clone() };
    let mut writer = EventWriter::create(&path(&folder, "x.cbor-packed.batch")).unwrap();
    let refused = (0..100).find_map(|_| writer.write(&large).err()).unwrap();
    let CorpusError::Encode { index: 63, .. } = refused else { panic!("{refused}") };
    assert!(refused.to_string().contains("a batch in a file in bytes"), "{refused}");
}

#[test]
fn a_record_stream_cut_short_is_named_by_offset_and_count() {
    let events = &some_events()[..3];
    let records = gunzip(&file_of(FileFormat::ProtoGzip, events));
    let second = gunzip(&file_of(FileFormat::ProtoGzip, &events[..1])).len();
    let third = gunzip(&file_of(FileFormat::ProtoGzip, &events[..2])).len();
    for length in 1..records.len() {
        let expected = match length {
            l if l == second || l == third => continue,
            l if l < second => (0, 0),
            l if l < third => (second as u64, 1),
            _ => (third as u64, 2),
        };
        let (_, offset, events, reason) = damage("x.pb.gz", &gzip(&records[..length]));
        assert_eq!((offset, events), expected, "{length} bytes");
        assert!(matches!(reason, RecordError::Truncated { .. } | RecordError::Length), "{length}: {reason}");
    }
}

#[test]
fn lengths_are_claims_to_check() {
    let first = gunzip(&file_of(FileFormat::ProtoGzip, &some_events()[..1]));
    let check = |tail: &[u8]| {
        let (_, offset, events, reason) = damage("x.pb.gz", &gzip(&[&first, tail].concat()));
        assert_eq!((offset, events), (first.len() as u64, 1));
        reason
    };
    assert!(matches!(check(&[0x80]), RecordError::Length));
    assert!(matches!(check(&[0xff; 11]), RecordError::Length));
    let longest = [&[0xff; 9][..], &[1]].concat();
    assert!(matches!(check(&longest), RecordError::TooLarge));
    assert!(matches!(check(&[0x81, 0x80, 0x40]), RecordError::TooLarge));
    assert!(matches!(check(&[0x80, 0x80, 0x40]), RecordError::Truncated { missing_bytes: 0x10_0000 }));
    assert!(matches!(check(&[1, 0xff]), RecordError::Decode(_)));
    assert!(matches!(check(&[0]), RecordError::Decode(_)));
}

#[test]
fn a_line_without_end_does_not_fill_memory() {
    let line = zstd::encode_all(vec![b'x'; 3 * MAX_RECORD_BYTES].as_slice(), 1).unwrap();
    let found = damage("long.jsonl.zst", &line);
    assert!(matches!(found, (Some(1), 0, 0, RecordError::TooLarge)), "{found:?}");
}

/// The bytes of a file's stream, decompressed.
fn stream_of(format: FileFormat, file: &[u8]) -> Vec<u8> {
    match format {
        FileFormat::JsonlGzip | FileFormat::ProtoGzip => gunzip(file),
        FileFormat::JsonlZstd => zstd::decode_all(file).unwrap(),
        _ => file.to_owned(),
    }
}

#[test]
fn a_stream_longer_than_is_read_is_refused_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    for format in FileFormat::all() {
        let bytes = file_of(format, &some_events()[..8]);
        let file = path(&folder, &format!("x{}", format.extension()));
        fs::write(&file, &bytes).unwrap();
        let most = stream_of(format, &bytes).len() as u64;
        assert_eq!(Corpus::read_within(&file, most).unwrap().events.len(), 8, "{format:?}");
        match Corpus::read_within(&file, most - 1) {
            Err(CorpusError::Damaged { reason: RecordError::StreamTooLarge(_), .. }) => {}
            read => panic!("{format:?}: {:?}", read.map(|corpus| corpus.events.len())),
        }
    }
    // Empty lines take no memory, but time.
    let bomb = path(&folder, "bomb.jsonl.zst");
    fs::write(&bomb, zstd::encode_all(vec![b'\n'; 4 << 20].as_slice(), 1).unwrap()).unwrap();
    let error = Corpus::read_within(&bomb, 1 << 20).unwrap_err().to_string();
    assert!(error.contains("longer than 1048576 bytes"), "{error}");
}

#[test]
#[ignore = "needs mix.jsonl.zst and mix.pb.gz in the folder REAL_EVENTS"]
fn real_events_read_the_same_from_both_formats() {
    let folder = PathBuf::from(std::env::var_os("REAL_EVENTS").expect("REAL_EVENTS names a folder"));
    let lines = Corpus::read(&folder.join("mix.jsonl.zst")).unwrap();
    let records = Corpus::read(&folder.join("mix.pb.gz")).unwrap();
    assert_eq!(lines.events.len(), 2_300);
    assert_eq!(lines.origin, Origin::Real);
    assert_eq!(lines.fingerprint, records.fingerprint);
    assert_eq!(lines.events, records.events);
    let first = lines.events.iter().take(100);
    assert!(first.map(|event| event.verify(VerifyLevel::Full)).all(|result| result.is_ok()));

    let mixed: Vec<_> = lines.events.into_iter().chain(some_events()).collect();
    assert_eq!(Corpus::from_events("mixed".to_owned(), mixed).origin, Origin::Mixed);
}
