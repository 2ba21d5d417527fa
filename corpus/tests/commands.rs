//! The program itself: what it prints and how it exits.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::{
    path::Path,
    process::{Command, Output},
};

use corpus::Corpus;

fn run(args: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_corpus")).args(args).current_dir(folder).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
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
fn verify_lists_bad_events_and_fails() {
    let folder = tempfile::tempdir().unwrap();
    let mut events: Vec<_> = Corpus::bundled().events.into_iter().take(10).collect();
    events[2].sig[5] ^= 1;
    events[7].content = "not what was signed".into();
    corpus::write(&folder.path().join("bad.jsonl"), &events).unwrap();
    let output = run(&["verify", "bad.jsonl"], folder.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("8 valid, 2 bad"), "{}", text(&output.stdout));
    let listed = text(&output.stderr);
    assert!(listed.contains("event 3 ") && listed.contains("signature does not verify"), "{listed}");
    assert!(listed.contains("event 8 ") && listed.contains("event id does not match"), "{listed}");
}

#[test]
fn analyze_describes_the_bundled_sample() {
    let output = run(&["analyze"], Path::new("."));
    let said = text(&output.stdout);
    assert!(output.status.success());
    assert!(said.contains("sample.pb.gz: 5000 events (generated)"), "{said}");
    assert!(said.lines().any(|line| line.trim_start().starts_with("3     285")), "{said}");
}

#[test]
fn mistakes_are_answered_before_the_work() {
    let folder = tempfile::tempdir().unwrap();
    for (args, answer) in [
        (["generate", "--out", "x.csv"].as_slice(), "known: .jsonl .jsonl.gz .jsonl.zst .pb.gz"),
        (&["generate", "--events", "100000", "--out", "x.jsonl"], "at most 71884 events"),
        (&["verify", "none.jsonl"], "there is no corpus"),
    ] {
        let output = run(args, folder.path());
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(text(&output.stderr).contains(answer), "{args:?}: {}", text(&output.stderr));
    }
    assert!(folder.path().read_dir().unwrap().next().is_none(), "nothing is left behind");
}
