//! Files with what is no valid event: `verify` names all of it, and `--skip-invalid` leaves it out.

use std::{fs, os::unix::fs::symlink};

use codecs::Event;
use corpus::{Corpus, FileFormat};
use serde_json::Value;

use crate::{Folder, gunzip, json, packed};

fn some_events(count: usize) -> Vec<Event<'static>> {
    Corpus::bundled().events.into_iter().filter(|event| event.tags.len() < 20).take(count).collect()
}

/// A good line with one part replaced.
fn with(part: &str, instead: &str) -> Vec<u8> {
    let good = String::from_utf8(json(&some_events(1)[0])).unwrap();
    let start = good.find(part).unwrap();
    let end = start + good[start..].find(",\"").unwrap();
    [&good[..start], instead, &good[end..]].concat().into_bytes()
}

/// Lines that are no valid events, each with words of its reason.
fn bad_lines() -> Vec<(Vec<u8>, &'static str)> {
    let forged = Event { sig: [7; 64], ..some_events(1)[0].clone() };
    vec![
        (b"{}".to_vec(), "id is missing"),
        (with("\"kind\":", "\"kind\":641204"), "kind: 641204, expected a whole number from 0 to 65535"),
        (with("\"kind\":", "\"kind\":\"1\""), "kind: \"1\", expected a whole number from 0 to 65535"),
        (with("\"created_at\":", "\"created_at\":1.5"), "created_at: 1.5, expected a whole number"),
        (with("\"id\":", "\"id\":\"AB\""), "id: expected 64 lowercase hex digits"),
        (with("\"kind\":", "\"kind\":1,\"tags\":{}"), "tags: an object, expected an array of tags"),
        (b"[1,2]".to_vec(), "1, expected text"),
        (b"[\"NOTICE\",\"hello\"]".to_vec(), "other than EVENT"),
        (b"\"text\"".to_vec(), "\"text\", expected an event object"),
        (b"hello".to_vec(), "not JSON"),
        (b"{\"id\":\"".to_vec(), "id: the JSON ends inside a string"),
        (b"\x00\x00\x00".to_vec(), "not JSON"),
        (b"{\"id\":\"\xff\xfe\"}".to_vec(), "is not UTF-8"),
        (vec![b'x'; (1 << 20) + 5], "longer than 1048576 bytes"),
        (json(&forged), "signature"),
    ]
}

/// Good and bad lines in turns; returns the numbers of the bad ones, too.
fn mixed(good: &[Event<'_>]) -> (Vec<u8>, Vec<u64>) {
    let (mut lines, mut numbers) = (Vec::new(), Vec::new());
    let mut bad = bad_lines().into_iter();
    for event in good {
        lines.push(json(event));
        if let Some((bad, _)) = bad.next() {
            lines.push(bad);
            numbers.push(lines.len() as u64);
        }
    }
    (lines.join(&b'\n'), numbers)
}

/// Words that no user should have to know.
const FOREIGN_WORDS: [&str; 8] =
    ["u16", "i64", "u64", "invalid type", "invalid value", "missing field", "at line 1", "sequence"];

#[test]
fn verify_names_every_bad_line_with_its_reason_and_counts_the_good() {
    let good = some_events(40);
    let (bytes, numbers) = mixed(&good);
    let folder = Folder::new();
    for name in ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"] {
        folder.write(name, packed(name, &bytes));
        let ran = folder.run(&["verify", name]).ended(1);
        assert!(ran.out.contains("40 valid, 15 bad"), "{ran}");
        let listed = ran.said;
        assert_eq!(listed.lines().count(), numbers.len(), "{listed}");
        for ((found, number), (_, reason)) in listed.lines().zip(&numbers).zip(bad_lines()) {
            assert!(
                found.starts_with(&format!("line {number}")) && found.contains(reason),
                "{found}: {reason}"
            );
            assert!(!FOREIGN_WORDS.iter().any(|word| found.contains(word)), "{found}");
        }
        let said = folder.run(&["verify", "--json", name]).ended(1).out;
        let said: Value = serde_json::from_str(&said).unwrap();
        assert_eq!((&said["valid"], &said["bad"], &said["events"]), (&40.into(), &15.into(), &41.into()));
        let lines: Vec<u64> =
            said["invalid"].as_array().unwrap().iter().map(|bad| bad["line"].as_u64().unwrap()).collect();
        assert_eq!(lines, numbers, "{name}");
    }
}

#[test]
fn many_bad_lines_stay_readable_and_machines_get_all() {
    let folder = Folder::new();
    folder.write("a.jsonl", "hello\n".repeat(5_000));
    let ran = folder.run(&["verify", "a.jsonl"]).ended(1);
    assert!(ran.out.contains("0 valid, 5000 bad"), "{ran}");
    assert_eq!(ran.said.lines().count(), 101);
    assert!(ran.said.ends_with("and 4900 more; --json lists all\n"));
    let said: Value = serde_json::from_str(&folder.run(&["verify", "--json", "a.jsonl"]).out).unwrap();
    assert_eq!(said["invalid"].as_array().unwrap().len(), 5_000);
    // A file without events is none.
    let skipped = folder.run(&["convert", "--skip-invalid", "a.jsonl", "b.jsonl"]).ended(1);
    skipped.saying(&["holds no valid events: 5000 skipped"]);
    assert!(!folder.path("b.jsonl").exists());
}

/// The record of a `.pb.gz` file.
fn record(event: &Event<'_>) -> Vec<u8> {
    let folder = Folder::new();
    corpus::write(&folder.path("one.pb.gz"), std::slice::from_ref(event)).unwrap();
    gunzip(&folder.read("one.pb.gz"))
}

/// Records of a `.pb.gz` file that are no events: of a kind too large, no message, larger than any
/// event, without a field.
fn bad_records(good: &Event<'_>) -> Vec<(Vec<u8>, &'static str)> {
    let mut of_kind = record(&Event { kind: 30_023, ..good.clone() });
    let kind = of_kind.windows(4).position(|field| field == [0x20, 0xc7, 0xea, 0x01]).unwrap();
    of_kind.splice(kind + 1..kind + 4, [0xff, 0xff, 0x7f]);
    vec![
        (of_kind, "kind is out of range: NIP-01 has 0 to 65535"),
        (vec![1, 0xff], "not an event"),
        // A length of 3 MiB.
        ([vec![0x80, 0x80, 0xc0, 0x01], vec![b'x'; 3 << 20]].concat(), "longer than 1048576 bytes"),
        (vec![0], "id is missing"),
    ]
}

#[test]
fn records_and_lines_of_every_format_are_skipped_by_every_command() {
    let good = some_events(40);
    let folder = Folder::new();
    let (lines, numbers) = mixed(&good);
    let mut records = Vec::new();
    for (index, event) in good.iter().enumerate() {
        records.extend(record(event));
        records.extend(bad_records(event).into_iter().nth(index).unwrap_or_default().0);
    }
    let notepack: Vec<_> = good
        .iter()
        .map(|event| {
            let mut line = Vec::new();
            codecs::notepack_text::encode(event, &mut line);
            [&line[..], b"\nnote1\n"].concat()
        })
        .collect();
    for (name, bytes, bad) in [
        ("a.jsonl", lines.clone(), numbers.len()),
        ("a.jsonl.gz", packed("a.gz", &lines), numbers.len()),
        ("a.jsonl.zst", packed("a.zst", &lines), numbers.len()),
        ("a.pb.gz", packed("a.gz", &records), 4),
        ("a.notepack.txt", notepack.concat(), 40),
    ] {
        folder.write(name, &bytes);
        let skips = format!("{bad} invalid skipped");
        for args in [["convert", name, "out.jsonl"], ["sample", name, "out.jsonl"]] {
            folder.run(&args).ended(1).saying(&["corpus verify", "--skip-invalid"]);
            assert!(!folder.path("out.jsonl").exists());
            let ran = folder.run(&[&args[..], &["--skip-invalid"]].concat()).ended(0);
            assert!(ran.out.contains(&skips), "{ran}");
            assert_eq!(Corpus::read(&folder.path("out.jsonl")).unwrap().events, good, "{args:?}");
            folder.run(&["verify", "out.jsonl"]).ended(0);
            fs::remove_file(folder.path("out.jsonl")).unwrap();
        }
        assert_eq!(folder.read(name), bytes, "{name}: a file is read, not changed");
        let corpus = Corpus::read_with(&folder.path(name), true).unwrap();
        assert_eq!((corpus.events, corpus.skipped.count()), (good.clone(), bad as u64), "{name}");
    }
    let args = ["train-dictionary", "a.zdict", "--corpus", "a.jsonl", "--bytes", "1024", "--skip-invalid"];
    folder.run(&args).saying(&["15 skipped"]);
}

#[test]
fn bad_records_of_protobuf_are_named() {
    let good = some_events(1);
    let folder = Folder::new();
    for (record, reason) in bad_records(&good[0]) {
        let mut bytes = record;
        bytes.extend([0x80]); // a length without its end
        folder.write("a.pb.gz", packed("a.gz", &bytes));
        let listed = folder.run(&["verify", "a.pb.gz"]).saying(&[reason]).said;
        assert!(listed.ends_with("nothing behind it can be read\n"), "{listed}");
    }
}

#[test]
fn a_stream_that_is_cut_or_damaged_counts_as_one_and_what_is_before_it_is_read() {
    let good = some_events(40);
    let folder = Folder::new();
    for format in [FileFormat::JsonlGzip, FileFormat::JsonlZstd, FileFormat::ProtoGzip] {
        let name = format!("a{}", format.extension());
        let [whole, few] = [&good[..], &good[..5]].map(|events| {
            corpus::write(&folder.path(&name), events).unwrap();
            folder.read(&name)
        });
        folder.write(&name, [&few, &whole[..whole.len() - 9]].concat());
        let ran = folder.run(&["verify", &name]).ended(1).saying(&["nothing behind it can be read"]);
        assert!(ran.out.contains(" 1 bad"), "{ran}");
        let corpus = Corpus::read_with(&folder.path(&name), true).unwrap();
        assert!(corpus.events.len() >= 5 && corpus.skipped.count() == 1, "{name}: {}", corpus.events.len());
    }
}

#[test]
fn odd_files_are_read_or_named() {
    let folder = Folder::new();
    let good = some_events(3);
    let lines: Vec<_> = good.iter().map(|event| [&json(event)[..], b"\r\n"].concat()).collect();
    folder.write("bom.jsonl", [&b"\xef\xbb\xbf"[..], &lines.concat()].concat());
    assert_eq!(Corpus::read(&folder.path("bom.jsonl")).unwrap().events, good);
    fs::create_dir(folder.path("folder.jsonl")).unwrap();
    folder.write("empty.jsonl", "");
    let utf16: Vec<u8> = "\u{feff}{}\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    folder.write("utf16.jsonl", utf16);
    for (name, says) in [
        ("folder.jsonl", "directory"),
        ("empty.jsonl", "holds no events"),
        ("none.jsonl", "no corpus"),
        ("utf16.jsonl", "UTF-16"),
    ] {
        let convert = ["convert", name, "out.jsonl", "--skip-invalid"];
        for args in [["verify", name].as_slice(), &convert[..3], &convert] {
            folder.run(args).ended(1).saying(&[says]);
            assert!(!folder.path("out.jsonl").exists(), "{args:?}");
        }
    }
}

#[test]
fn no_file_of_the_user_is_overwritten_through_a_link_or_beside() {
    let folder = Folder::new();
    corpus::write(&folder.path("a.jsonl"), &some_events(3)).unwrap();
    symlink("nowhere.jsonl", folder.path("link.jsonl")).unwrap();
    for command in ["convert", "sample"] {
        folder.run(&[command, "a.jsonl", "link.jsonl"]).ended(1).saying(&["never overwrites"]);
        assert!(folder.path("link.jsonl").is_symlink() && !folder.path("nowhere.jsonl").exists());
    }
    assert!(corpus::EventWriter::create_new(&folder.path("a.jsonl")).is_err());
    assert_eq!(Corpus::read(&folder.path("a.jsonl")).unwrap().events.len(), 3);
}
