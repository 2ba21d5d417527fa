//! The program itself: what it prints and how it exits.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use corpus::Corpus;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{run, text};

#[test]
fn short_help_fills_one_screen_of_50_lines_at_most() {
    let commands = [
        "",
        "generate",
        "verify",
        "convert",
        "sample",
        "fetch",
        "capture",
        "import-har",
        "analyze",
        "train-dictionary",
    ];
    for command in commands {
        let words = command.split_whitespace().chain(["-h"]);
        let mut program = Command::new(env!("CARGO_BIN_EXE_corpus"));
        let output = program.args(words).env("COLUMNS", "100").output().unwrap();
        let help = text(&output.stdout);
        let lines = help.lines().count();
        assert!(output.status.success() && lines <= 50, "corpus {command} -h has {lines} lines\n{help}");
        assert!(help.contains("Usage: corpus"), "{help}");
        assert_eq!(help.contains("Exit codes: 0 done, 1 failed"), command.is_empty(), "{help}");
    }
}

#[test]
fn generated_converted_and_verified_events_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    assert!(run(&["generate", "--events", "60", "--seed", "9", "--out", "a.pb.gz"], at).status.success());
    assert!(run(&["generate", "--events", "60", "--seed", "9", "--out", "b.pb.gz"], at).status.success());
    assert_eq!(std::fs::read(at.join("a.pb.gz")).unwrap(), std::fs::read(at.join("b.pb.gz")).unwrap());
    assert!(run(&["convert", "a.pb.gz", "c.jsonl.zst"], at).status.success());
    let (a, c) = (Corpus::read(&at.join("a.pb.gz")).unwrap(), Corpus::read(&at.join("c.jsonl.zst")).unwrap());
    assert_eq!(a.events, c.events);
    let verified = run(&["verify", "c.jsonl.zst"], at);
    assert!(verified.status.success());
    let said = text(&verified.stdout);
    assert!(said.contains("60 valid, 0 bad") && said.contains(&a.fingerprint.to_string()), "{said}");
    let again = run(&["convert", "a.pb.gz", "c.jsonl.zst"], at);
    assert!(!again.status.success() && text(&again.stderr).contains("never overwrites"));
}

#[test]
fn convert_writes_and_reads_batches_and_notepack_text() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let events: Vec<_> = Corpus::bundled().events.into_iter().take(50).collect();
    corpus::write(&at.join("a.jsonl"), &events).unwrap();
    let mut from = "a.jsonl".to_owned();
    for to in
        ["b.notepack.batch", "c.capnp-packed.batch", "d.notepack.txt", "e.json.batch", "f.proto-binary.batch"]
    {
        let output = run(&["convert", &from, to], at);
        assert!(output.status.success(), "{to}: {}", text(&output.stderr));
        assert_eq!(Corpus::read(&at.join(to)).unwrap().events, events, "{to}");
        from = to.to_owned();
    }
    let batch: Vec<serde_json::Value> =
        serde_json::from_slice(&std::fs::read(at.join("e.json.batch")).unwrap()).unwrap();
    assert_eq!(batch.len(), 50);
    // An event that DannyPack cannot hold: no half of a corpus.
    let wide = vec![codecs::Event { tags: vec![vec!["v".into(); 256]], ..events[0].clone() }];
    corpus::write(&at.join("wide.jsonl"), &wide).unwrap();
    let output = run(&["convert", "wide.jsonl", "wide.dannypack.batch"], at);
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("its largest is 255"), "{said}");
    assert!(!at.join("wide.dannypack.batch").exists());
    let unknown = run(&["convert", "a.jsonl", "a.leaner.batch"], at);
    assert!(text(&unknown.stderr).contains(".dannypack.batch"), "{}", text(&unknown.stderr));
}

#[test]
fn verify_counts_repeated_ids_and_speaks_json() {
    let folder = tempfile::tempdir().unwrap();
    let mut events: Vec<_> = Corpus::bundled().events.into_iter().take(10).collect();
    events.push(events[4].clone());
    corpus::write(&folder.path().join("twice.pb.gz"), &events).unwrap();
    let output = run(&["verify", "--json", "twice.pb.gz"], folder.path());
    assert!(output.status.success());
    let said: serde_json::Value = serde_json::from_str(text(&output.stdout)).unwrap();
    assert_eq!((&said["events"], &said["valid"], &said["duplicates"]), (&11.into(), &11.into(), &1.into()));
    assert_eq!(said["origin"], "generated");
    assert_eq!(said["fingerprint"], Corpus::from_events(String::new(), events).fingerprint.to_string());
}

#[test]
fn sample_draws_events_of_the_wanted_kinds() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    corpus::write(&at.join("all.jsonl"), &Corpus::bundled().events[..400]).unwrap();
    let args = ["sample", "all.jsonl", "some.jsonl.gz", "--events", "30", "--seed", "2", "--kinds", "1,7"];
    assert!(run(&args, at).status.success());
    let drawn = Corpus::read(&at.join("some.jsonl.gz")).unwrap();
    assert_eq!(drawn.events.len(), 30);
    assert!(drawn.events.iter().all(|event| [1, 7].contains(&event.kind)));
    let again = run(&args, at);
    assert!(!again.status.success() && text(&again.stderr).contains("never overwrites"));
    let none = run(&["sample", "all.jsonl", "none.jsonl", "--kinds", "4242"], at);
    assert!(!none.status.success() && text(&none.stderr).contains("no such events"));
}

#[test]
fn damage_is_named_by_every_command_that_reads() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    corpus::write(&at.join("whole.jsonl"), &Corpus::bundled().events[..20]).unwrap();
    let whole = std::fs::read(at.join("whole.jsonl")).unwrap();
    let offset = whole.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(12).unwrap().0 + 1;
    let mut cut = whole;
    cut.truncate(offset + 100);
    std::fs::write(at.join("cut.jsonl"), cut).unwrap();
    let place = format!("line 14, byte {offset}:");
    for args in [
        ["analyze", "cut.jsonl"].as_slice(),
        &["convert", "cut.jsonl", "copy.jsonl"],
        &["sample", "cut.jsonl", "some.jsonl"],
    ] {
        let output = run(args, at);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let said = text(&output.stderr);
        assert!(said.contains(&place) && said.contains("(13 events read before it)"), "{args:?}: {said}");
    }
    assert!(!at.join("copy.jsonl").exists() && !at.join("some.jsonl").exists(), "no half of a corpus");
}

#[test]
fn a_dictionary_is_tried_on_events_that_it_did_not_learn_from() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = Corpus::bundled();
    corpus::write(&folder.path().join("all.jsonl"), &corpus.events[..900]).unwrap();
    corpus::write(&folder.path().join("some.jsonl"), &corpus.events[..300]).unwrap();
    let args = ["train-dictionary", "a.zdict", "--corpus", "all.jsonl", "--bytes", "4096"];
    let learned = |more: &[&str]| {
        let output = run(&[&args, more].concat(), folder.path());
        let said = text(&output.stdout);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let words: Vec<&str> = said.split_whitespace().collect();
        let from = words.iter().position(|word| *word == "from").unwrap();
        (words[from + 1].parse::<usize>().unwrap(), said.to_owned())
    };
    let (all, _) = learned(&[]);
    let (others, said) = learned(&["--try", "some.jsonl"]);
    let (strangers, _) = learned(&["--try", "some.jsonl", "--strangers"]);
    assert!(strangers < others && others + 300 >= all && others < all, "{all} {others} {strangers}");
    // A row a compression, each with its bytes; whatever compresses leaves less than none.
    let table = said.lines().skip_while(|line| !line.starts_with("compression"));
    let bytes: Vec<f64> =
        table.skip(1).map(|row| row.split_whitespace().rev().nth(1).unwrap().parse().unwrap()).collect();
    assert!(bytes.len() == 5 && bytes[1..].iter().all(|less| *less < 0.8 * bytes[0]), "{said}");
    assert!(bytes[4] < bytes[2], "a dictionary saves more than zstd alone: {said}");
    let same =
        run(&["train-dictionary", "b.zdict", "--corpus", "some.jsonl", "--try", "some.jsonl"], folder.path());
    assert!(!same.status.success() && text(&same.stderr).contains("every event to learn from"));
    assert!(!folder.path().join("b.zdict").exists());
}

#[test]
fn a_corpus_of_today_is_the_same_one_later() {
    let folder = tempfile::tempdir().unwrap();
    let made = |args: &[&str]| {
        let all = [&["generate", "--events", "50", "--out", "a.jsonl"], args].concat();
        assert!(run(&all, folder.path()).status.success());
        Corpus::read(&folder.path().join("a.jsonl")).unwrap().events
    };
    let (usual, of_then) = (made(&[]), made(&["--newest", "1900000000"]));
    let later = 1_900_000_000 - usual[49].created_at;
    for (usual, of_then) in usual.iter().zip(&of_then) {
        assert_eq!(usual.created_at + later, of_then.created_at);
        of_then.verify(codecs::VerifyLevel::Full).unwrap();
    }
    let now = i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap();
    assert!((now - 5..=now + 60).contains(&made(&["--newest", "now"])[49].created_at));
}

#[test]
fn a_file_is_written_whole_or_stays_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let names = || {
        let names = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    run(&["generate", "--events", "300", "--out", "a.jsonl"], folder.path());
    std::fs::write(folder.path().join("mine.jsonl"), "mine").unwrap();
    let generate = ["generate", "--events", "5000000", "--out", "mine.jsonl"];
    // As on a full disk.
    for args in [&generate[..], &["convert", "a.jsonl", "b.jsonl"], &["sample", "a.jsonl", "b.jsonl.gz"]] {
        let mut starved = Command::new("sh");
        starved.args(["-c", "ulimit -f 8; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_corpus")]).args(args);
        let output = starved.current_dir(folder.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {output:?}");
        assert!(text(&output.stderr).contains("File too large"), "{args:?}: {output:?}");
        assert_eq!(names(), ["a.jsonl", "mine.jsonl"], "{args:?}");
    }
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_corpus"));
        let mut child = program.args(generate).current_dir(folder.path()).spawn().unwrap();
        while names().len() < 3 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert_eq!(names(), ["a.jsonl", "mine.jsonl"]);
    }
    assert_eq!(std::fs::read(folder.path().join("mine.jsonl")).unwrap(), b"mine");
}

#[test]
fn pipes_and_files_of_other_names_are_read_by_their_content() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.pb.gz", "a.notepack.txt", "a.json.batch"];
    run(&["generate", "--events", "80", "--out", "a.jsonl"], folder.path());
    for name in names {
        run(&["convert", "a.jsonl", name], folder.path());
        let bytes = std::fs::read(folder.path().join(name)).unwrap();
        for other in ["-", "/dev/stdin", "b", "b.ndjson", "b.json", "b.txt"] {
            if other.starts_with('b') {
                std::fs::write(folder.path().join(other), &bytes).unwrap();
            }
            let mut child = Command::new(env!("CARGO_BIN_EXE_corpus"))
                .args(["verify", other])
                .current_dir(folder.path())
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut pipe = child.stdin.take().unwrap();
            let (first, rest) = bytes.split_at(3);
            // In pieces, as a slow writer would. A reader of a file leaves the pipe alone.
            let _ = pipe.write_all(first).and_then(|()| pipe.flush());
            std::thread::sleep(std::time::Duration::from_millis(5));
            let _ = pipe.write_all(rest);
            drop(pipe);
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "{name} as {other}: {}", text(&output.stderr));
            assert!(text(&output.stdout).contains("80"), "{name} as {other}: {}", text(&output.stdout));
        }
    }
    for (bytes, answer) in [("id,pubkey", "cannot tell the format"), ("", "no events"), ("{}", "line 1")] {
        std::fs::write(folder.path().join("b"), bytes).unwrap();
        let output = run(&["verify", "b"], folder.path());
        let said = text(&output.stderr).to_owned() + text(&output.stdout);
        assert!(!output.status.success() && said.contains(answer), "{bytes:?}: {said}");
    }
}

#[test]
fn mistakes_are_answered_before_the_work() {
    let folder = tempfile::tempdir().unwrap();
    for (args, code, answer) in [
        (["generate", "--out", "x.csv"].as_slice(), 1, "known: .jsonl .jsonl.gz .jsonl.zst .pb.gz"),
        (&["generate", "--events", "0", "--out", "x.jsonl"], 2, "0 is not in 1.."),
        (&["generate", "--newest", "today", "--out", "x.jsonl"], 2, "expected now, or seconds since 1970"),
        (&["train-dictionary", "x.zdict", "--events", "0"], 2, "0 is not in 1.."),
        (&["sample", "x.jsonl", "y.jsonl", "--events", "0"], 2, "0 is not in 1.."),
        (&["verify", "none.jsonl"], 1, "there is no corpus"),
    ] {
        let output = run(args, folder.path());
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        assert!(text(&output.stderr).contains(answer), "{args:?}: {}", text(&output.stderr));
    }
    assert!(folder.path().read_dir().unwrap().next().is_none(), "nothing is left behind");
}

#[test]
fn a_password_of_a_mirror_is_not_repeated() {
    let folder = tempfile::tempdir().unwrap();
    for url in [
        "http://me:s3cret@127.0.0.1:1/sample.pb.gz",
        "http://me:s3cret@127.0.0.1:port/sample.pb.gz",
        "http://me:s3cret/1@127.0.0.1:1/",
        "ftp://me:s3cret@127.0.0.1:1/",
        "me:s3cret@127.0.0.1",
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_corpus"))
            .args(["fetch", "binostr", "--out", "sample.pb.gz", "--url", url])
            .current_dir(folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains("***@127.0.0.1"), "{url}: {said}");
        assert!(!said.contains("s3cret"), "{url}: {said}");
    }
}
