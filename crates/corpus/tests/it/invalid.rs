//! Files with what is no valid event: `verify` names all of it, and `--skip-invalid` leaves it out.

use std::{
    fs::{self, File},
    os::unix::fs::symlink,
    process::{Command, Stdio},
};

use codecs::Event;
use corpus::{Corpus, FileFormat};
use serde_json::Value;

use crate::{gunzip, gzip, json, run, text};

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

fn packed(name: &str, bytes: &[u8]) -> Vec<u8> {
    if name.ends_with(".gz") {
        gzip(bytes)
    } else if name.ends_with(".zst") {
        zstd::encode_all(bytes, 1).unwrap()
    } else {
        bytes.to_vec()
    }
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
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"] {
        fs::write(folder.path().join(name), packed(name, &bytes)).unwrap();
        let output = run(&["verify", name], folder.path());
        assert_eq!(output.status.code(), Some(1), "{name}");
        let (said, listed) = (text(&output.stdout), text(&output.stderr));
        assert!(said.contains("40 valid, 15 bad"), "{name}: {said}");
        assert_eq!(listed.lines().count(), numbers.len(), "{listed}");
        for ((found, number), (_, reason)) in listed.lines().zip(&numbers).zip(bad_lines()) {
            assert!(
                found.starts_with(&format!("line {number}")) && found.contains(reason),
                "{found}: {reason}"
            );
            assert!(!FOREIGN_WORDS.iter().any(|word| found.contains(word)), "{found}");
        }
        let output = run(&["verify", "--json", name], folder.path());
        assert_eq!(output.status.code(), Some(1), "{name}");
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&said["valid"], &said["bad"], &said["events"]), (&40.into(), &15.into(), &41.into()));
        let lines: Vec<u64> =
            said["invalid"].as_array().unwrap().iter().map(|bad| bad["line"].as_u64().unwrap()).collect();
        assert_eq!(lines, numbers, "{name}");
    }
}

#[test]
fn many_bad_lines_stay_readable_and_machines_get_all() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a.jsonl"), "hello\n".repeat(5_000)).unwrap();
    let output = run(&["verify", "a.jsonl"], folder.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("0 valid, 5000 bad"), "{}", text(&output.stdout));
    assert_eq!(text(&output.stderr).lines().count(), 101);
    assert!(text(&output.stderr).ends_with("and 4900 more; --json lists all\n"));
    let said: Value =
        serde_json::from_slice(&run(&["verify", "--json", "a.jsonl"], folder.path()).stdout).unwrap();
    assert_eq!(said["invalid"].as_array().unwrap().len(), 5_000);
    let skipped = run(&["convert", "--skip-invalid", "a.jsonl", "b.jsonl"], folder.path());
    assert_eq!(skipped.status.code(), Some(1), "a file without events is none");
    assert!(
        text(&skipped.stderr).contains("holds no valid events: 5000 skipped"),
        "{}",
        text(&skipped.stderr)
    );
    assert!(!folder.path().join("b.jsonl").exists());
}

/// Records of a `.pb.gz` file that are no events: of a kind too large, no message, larger than any
/// event, without a field.
fn bad_records(good: &Event<'_>) -> Vec<(Vec<u8>, &'static str)> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("one.pb.gz");
    corpus::write(&file, std::slice::from_ref(good)).unwrap();
    let mut record = gunzip(&fs::read(file).unwrap());
    let prefix_bytes = record.iter().position(|byte| *byte < 0x80).unwrap() + 1;
    let mut message = record.split_off(prefix_bytes);
    message.extend([0x20, 0xb4, 0x91, 0x27]);
    let mut of_kind = Vec::new();
    prost::encode_length_delimiter(message.len(), &mut of_kind).unwrap();
    of_kind.extend(message);
    let mut large = Vec::new();
    prost::encode_length_delimiter(3 << 20, &mut large).unwrap();
    large.resize(large.len() + (3 << 20), b'x');
    vec![
        (of_kind, "kind is out of range: NIP-01 has 0 to 65535"),
        (vec![1, 0xff], "not a ProtoEvent"),
        (large, "longer than 1048576 bytes"),
        (vec![0], "id is missing"),
    ]
}

#[test]
fn records_and_lines_of_every_format_are_skipped_by_every_command() {
    let good = some_events(40);
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let (lines, numbers) = mixed(&good);
    let mut records = Vec::new();
    for (index, event) in good.iter().enumerate() {
        let file = at.join("one.pb.gz");
        corpus::write(&file, std::slice::from_ref(event)).unwrap();
        records.extend(gunzip(&fs::read(file).unwrap()));
        records
            .extend(bad_records(event).into_iter().nth(index).map(|(record, _)| record).unwrap_or_default());
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
        let file = at.join(name);
        fs::write(&file, &bytes).unwrap();
        let skips = format!("{bad} invalid skipped");
        for args in
            [["convert", name, "out.jsonl"].as_slice(), &["sample", name, "out.jsonl"], &["analyze", name]]
        {
            let strict = run(args, at);
            assert_eq!(strict.status.code(), Some(1), "{args:?}");
            let said = text(&strict.stderr);
            assert!(said.contains("corpus verify") && said.contains("--skip-invalid"), "{args:?}: {said}");
            assert!(!at.join("out.jsonl").exists());
            let output = run(&[args, &["--skip-invalid"]].concat(), at);
            assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
            assert!(text(&output.stdout).contains(&skips), "{args:?}: {}", text(&output.stdout));
            if args[0] != "analyze" {
                assert_eq!(Corpus::read(&at.join("out.jsonl")).unwrap().events, good, "{args:?}");
                assert!(run(&["verify", "out.jsonl"], at).status.success());
                fs::remove_file(at.join("out.jsonl")).unwrap();
            }
        }
        assert_eq!(fs::read(&file).unwrap(), bytes, "{name}: a file is read, not changed");
        let corpus = Corpus::read_with(&file, true).unwrap();
        assert_eq!((corpus.events, corpus.skipped.count()), (good.clone(), bad as u64), "{name}");
    }
    let args = ["train-dictionary", "a.zdict", "--corpus", "a.jsonl", "--bytes", "1024", "--skip-invalid"];
    let output = run(&args, at);
    assert!(text(&output.stderr).contains("15 skipped"), "{}", text(&output.stderr));
}

#[test]
fn bad_records_of_protobuf_are_named() {
    let good = some_events(1);
    let folder = tempfile::tempdir().unwrap();
    for (record, reason) in bad_records(&good[0]) {
        let mut bytes = record;
        bytes.extend([0x80]); // a length without its end
        fs::write(folder.path().join("a.pb.gz"), packed("a.gz", &bytes)).unwrap();
        let listed = run(&["verify", "a.pb.gz"], folder.path()).stderr;
        assert!(text(&listed).contains(reason), "{reason}: {}", text(&listed));
        assert!(text(&listed).lines().last().unwrap().ends_with("nothing behind it can be read"));
    }
}

#[test]
fn a_stream_that_is_cut_or_damaged_counts_as_one_and_what_is_before_it_is_read() {
    let good = some_events(40);
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for format in [FileFormat::JsonlGzip, FileFormat::JsonlZstd, FileFormat::ProtoGzip] {
        let name = format!("a{}", format.extension());
        corpus::write(&at.join(&name), &good).unwrap();
        let mut bytes = fs::read(at.join(&name)).unwrap();
        corpus::write(&at.join(&name), &good[..5]).unwrap();
        bytes.truncate(bytes.len() - 9);
        let cut = [fs::read(at.join(&name)).unwrap(), bytes].concat();
        fs::write(at.join(&name), &cut).unwrap();
        let output = run(&["verify", &name], at);
        assert_eq!(output.status.code(), Some(1), "{name}");
        assert!(text(&output.stderr).contains("nothing behind it can be read"), "{}", text(&output.stderr));
        assert!(text(&output.stdout).contains(" 1 bad"), "{}", text(&output.stdout));
        let corpus = Corpus::read_with(&at.join(&name), true).unwrap();
        assert!(corpus.events.len() >= 5 && corpus.skipped.count() == 1, "{name}: {}", corpus.events.len());
    }
}

#[test]
fn odd_files_are_read_or_named() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let good = some_events(3);
    let lines: Vec<_> = good.iter().map(|event| [&json(event)[..], b"\r\n"].concat()).collect();
    fs::write(at.join("bom.jsonl"), [&b"\xef\xbb\xbf"[..], &lines.concat()].concat()).unwrap();
    assert_eq!(Corpus::read(&at.join("bom.jsonl")).unwrap().events, good);
    fs::create_dir(at.join("folder.jsonl")).unwrap();
    fs::write(at.join("empty.jsonl"), "").unwrap();
    let utf16: Vec<u8> = "\u{feff}{}\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    fs::write(at.join("utf16.jsonl"), utf16).unwrap();
    for (name, says) in [
        ("folder.jsonl", "directory"),
        ("empty.jsonl", "holds no events"),
        ("none.jsonl", "no corpus"),
        ("utf16.jsonl", "UTF-16"),
    ] {
        for args in [
            ["verify", name].as_slice(),
            &["convert", name, "out.jsonl"],
            &["analyze", name],
            &["sample", name, "out.jsonl"],
        ] {
            for extra in [[].as_slice(), &["--skip-invalid"]] {
                if args[0] == "verify" && !extra.is_empty() {
                    continue;
                }
                let output = run(&[args, extra].concat(), at);
                assert_eq!(output.status.code(), Some(1), "{args:?}");
                assert!(text(&output.stderr).contains(says), "{args:?}: {}", text(&output.stderr));
                assert!(!at.join("out.jsonl").exists(), "{args:?}");
            }
        }
    }
}

#[test]
fn no_file_of_the_user_is_overwritten_through_a_link_or_beside() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    corpus::write(&at.join("a.jsonl"), &some_events(3)).unwrap();
    symlink("nowhere.jsonl", at.join("link.jsonl")).unwrap();
    for command in ["convert", "sample"] {
        let output = run(&[command, "a.jsonl", "link.jsonl"], at);
        assert!(!output.status.success() && text(&output.stderr).contains("never overwrites"));
        assert!(at.join("link.jsonl").is_symlink() && !at.join("nowhere.jsonl").exists());
    }
    assert!(corpus::EventWriter::create_new(&at.join("a.jsonl")).is_err());
    assert_eq!(Corpus::read(&at.join("a.jsonl")).unwrap().events.len(), 3);
}

#[test]
fn an_answer_that_cannot_be_written_is_an_error_and_a_closed_pipe_is_none() {
    let folder = tempfile::tempdir().unwrap();
    corpus::write(&folder.path().join("a.jsonl"), &some_events(3)).unwrap();
    let command = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_corpus"));
        command.args(args).current_dir(folder.path()).stderr(Stdio::piped());
        command
    };
    for args in [["verify", "a.jsonl"].as_slice(), &["verify", "--json", "a.jsonl"], &["analyze", "a.jsonl"]]
    {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = command(args).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(text(&output.stderr).contains("cannot write to standard output"), "{}", text(&output.stderr));
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = command(args).stdout(writer).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    }
    // Nor is a standard error that nobody reads.
    fs::write(folder.path().join("bad.jsonl"), "hello\n".repeat(9)).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command(&["verify", "bad.jsonl"]).stderr(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
}
