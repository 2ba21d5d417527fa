//! The program itself: what it prints and how it exits.

use std::{fs::File, io::Write, process::Stdio};

use corpus::Corpus;
use nix::sys::signal::Signal;

use crate::{
    Folder,
    ran::{Runs, send},
};

#[test]
fn short_help_fills_one_screen_of_50_lines_at_most() {
    let folder = Folder::new();
    let commands = "generate verify convert sample capture import-har train-dictionary".split(' ');
    for command in commands.chain([""]) {
        let words = command.split_whitespace().chain(["-h"]);
        let help = folder.corpus(&[]).args(words).env("COLUMNS", "100").ran().ended(0).out;
        let lines = help.lines().count();
        assert!(lines <= 50, "corpus {command} -h has {lines} lines\n{help}");
        assert!(help.contains("Usage: corpus"), "{help}");
        assert_eq!(help.contains("Exit codes: 0 done, 1 failed"), command.is_empty(), "{help}");
    }
}

#[test]
fn generated_converted_and_verified_events_are_the_same() {
    let folder = Folder::new();
    for name in ["a.pb.gz", "b.pb.gz"] {
        folder.run(&["generate", "--events", "60", "--seed", "9", "--out", name]).ended(0);
    }
    assert_eq!(folder.read("a.pb.gz"), folder.read("b.pb.gz"));
    folder.run(&["convert", "a.pb.gz", "c.jsonl.zst"]).ended(0);
    let [a, c] = ["a.pb.gz", "c.jsonl.zst"].map(|name| Corpus::read(&folder.path(name)).unwrap());
    assert_eq!(a.events, c.events);
    let said = folder.run(&["verify", "c.jsonl.zst"]).ended(0).out;
    assert!(said.contains("60 valid, 0 bad") && said.contains(&a.fingerprint.to_string()), "{said}");
    folder.run(&["convert", "a.pb.gz", "c.jsonl.zst"]).ended(1).saying(&["never overwrites"]);
}

#[test]
fn a_batch_holds_all_events_or_is_not_written() {
    let folder = Folder::new();
    folder.run(&["generate", "--events", "50", "--out", "a.jsonl"]);
    folder.run(&["convert", "a.jsonl", "a.json.batch"]).ended(0);
    let batch: Vec<serde_json::Value> = serde_json::from_slice(&folder.read("a.json.batch")).unwrap();
    assert_eq!(batch.len(), 50);
    // An event that DannyPack cannot hold.
    let event = Corpus::bundled().events.swap_remove(0);
    let wide = codecs::Event { tags: vec![vec!["v".into(); 256]], ..event };
    corpus::write(&folder.path("wide.jsonl"), &[wide]).unwrap();
    folder.run(&["convert", "wide.jsonl", "b.dannypack.batch"]).ended(1).saying(&["its largest is 255"]);
    assert!(!folder.path("b.dannypack.batch").exists());
    folder.run(&["convert", "a.jsonl", "a.leaner.batch"]).saying(&[".dannypack.batch"]);
}

#[test]
fn verify_counts_repeated_ids_and_speaks_json() {
    let folder = Folder::new();
    let mut events: Vec<_> = Corpus::bundled().events.into_iter().take(10).collect();
    events.push(events[4].clone());
    corpus::write(&folder.path("twice.pb.gz"), &events).unwrap();
    let said = folder.run(&["verify", "--json", "twice.pb.gz"]).ended(0).out;
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!((&said["events"], &said["valid"], &said["duplicates"]), (&11.into(), &11.into(), &1.into()));
    assert_eq!(said["origin"], "generated");
    assert_eq!(said["fingerprint"], Corpus::from_events(String::new(), events).fingerprint.to_string());
}

#[test]
fn sample_draws_events_of_the_wanted_kinds() {
    let folder = Folder::new();
    corpus::write(&folder.path("all.jsonl"), &Corpus::bundled().events[..400]).unwrap();
    let args = ["sample", "all.jsonl", "some.jsonl.gz", "--events", "30", "--seed", "2", "--kinds", "1,7"];
    folder.run(&args).ended(0);
    let drawn = Corpus::read(&folder.path("some.jsonl.gz")).unwrap();
    assert_eq!(drawn.events.len(), 30);
    assert!(drawn.events.iter().all(|event| [1, 7].contains(&event.kind)));
    folder.run(&args).ended(1).saying(&["never overwrites"]);
    folder
        .run(&["sample", "all.jsonl", "none.jsonl", "--kinds", "4242"])
        .ended(1)
        .saying(&["no such events"]);
}

#[test]
fn a_corpus_of_today_is_the_same_one_later() {
    let folder = Folder::new();
    let made = |args: &[&str]| {
        let all = [&["generate", "--events", "50", "--out", "a.jsonl"], args].concat();
        folder.run(&all).ended(0);
        Corpus::read(&folder.path("a.jsonl")).unwrap().events
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
    let folder = Folder::new();
    folder.run(&["generate", "--events", "300", "--out", "a.jsonl"]);
    folder.write("mine.jsonl", "mine");
    let generate = ["generate", "--events", "5000000", "--out", "mine.jsonl"];
    // As on a full disk.
    for args in [&generate[..], &["convert", "a.jsonl", "b.jsonl"], &["sample", "a.jsonl", "b.jsonl.gz"]] {
        folder.starved(8, args).ran().ended(1).saying(&["File too large"]);
        assert_eq!(folder.names(), ["a.jsonl", "mine.jsonl"], "{args:?}");
    }
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let child = folder.corpus(&generate).spawn().unwrap();
        while folder.names().len() < 3 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        send(signal, child.id());
        child.ran().ended(130);
        assert_eq!(folder.names(), ["a.jsonl", "mine.jsonl"]);
    }
    assert_eq!(folder.read("mine.jsonl"), b"mine");
}

#[test]
fn a_cut_file_is_not_converted() {
    let folder = Folder::new();
    corpus::write(&folder.path("whole.jsonl"), &Corpus::bundled().events[..20]).unwrap();
    let whole = folder.read("whole.jsonl");
    folder.write("cut.jsonl", &whole[..whole.len() - 100]);
    folder.run(&["convert", "cut.jsonl", "copy.jsonl"]).ended(1).saying(&["(19 events read before it)"]);
    assert_eq!(folder.names(), ["cut.jsonl", "whole.jsonl"], "no half of a corpus");
}

#[test]
fn an_answer_that_cannot_be_written_is_an_error() {
    let folder = Folder::new();
    corpus::write(&folder.path("a.jsonl"), &Corpus::bundled().events[..3]).unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let ran = folder.corpus(&["verify", "--json", "a.jsonl"]).stdout(full).ran();
    ran.ended(1).saying(&["cannot write to standard output"]);
}

#[test]
fn pipes_and_files_of_other_names_are_read_by_their_content() {
    let folder = Folder::new();
    let names = ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.pb.gz", "a.notepack.txt", "a.json.batch"];
    folder.run(&["generate", "--events", "80", "--out", "a.jsonl"]);
    for name in names {
        folder.run(&["convert", "a.jsonl", name]);
        let bytes = folder.read(name);
        for other in ["-", "/dev/stdin", "b", "b.ndjson", "b.json", "b.txt"] {
            if other.starts_with('b') {
                folder.write(other, &bytes);
            }
            let mut child = folder.corpus(&["verify", other]).stdin(Stdio::piped()).spawn().unwrap();
            let mut pipe = child.stdin.take().unwrap();
            let (first, rest) = bytes.split_at(3);
            // In pieces, as a slow writer would. A reader of a file leaves the pipe alone.
            let _ = pipe.write_all(first).and_then(|()| pipe.flush());
            std::thread::sleep(std::time::Duration::from_millis(5));
            let _ = pipe.write_all(rest);
            drop(pipe);
            let ran = child.ran().ended(0);
            assert!(ran.out.contains("80"), "{name} as {other}: {ran}");
        }
    }
    for (bytes, answer) in [("id,pubkey", "cannot tell the format"), ("", "no events"), ("{}", "line 1")] {
        folder.write("b", bytes);
        let said = folder.run(&["verify", "b"]).ended(1).to_string();
        assert!(said.contains(answer), "{bytes:?}: {said}");
    }
}

#[test]
fn mistakes_are_answered_before_the_work() {
    let folder = Folder::new();
    for (args, code, answer) in [
        (["generate", "--out", "x.csv"].as_slice(), 1, "known: .jsonl .jsonl.gz .jsonl.zst .pb.gz"),
        (&["generate", "--events", "0", "--out", "x.jsonl"], 2, "0 is not in 1.."),
        (&["generate", "--newest", "today", "--out", "x.jsonl"], 2, "expected now, or seconds since 1970"),
        (&["train-dictionary", "x.zdict", "--events", "0"], 2, "0 is not in 1.."),
        (&["sample", "x.jsonl", "y.jsonl", "--events", "0"], 2, "0 is not in 1.."),
        (&["verify", "none.jsonl"], 1, "there is no corpus"),
    ] {
        folder.run(args).ended(code).saying(&[answer]);
    }
    assert!(folder.names().is_empty(), "nothing is left behind");
}
