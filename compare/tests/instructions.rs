//! `compare instructions`, as a program.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::{
    path::Path,
    process::{Command, Output},
};

use compare::{
    report::{Verdict, check},
    result::{Instructions, RESOLUTION},
};

fn instructions() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    command.arg("instructions");
    command
}

fn hot_paths(args: &[&str], file: &Path) -> Output {
    let only = ["--hot-paths", "--only", "codec json library", "--out"];
    instructions().args(only).arg(file).args(args).output().unwrap()
}

#[test]
fn without_valgrind_nothing_is_counted_and_the_answer_says_how_to_get_it() {
    for args in [&["--hot-paths"][..], &["--scenario", "note-stream"]] {
        let output = instructions().args(args).env("PATH", "/nonexistent").output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("not installed") && text.contains("apt install valgrind"), "{text}");
    }
}

#[test]
#[ignore = "needs valgrind and minutes: cargo test --release -p compare --test instructions -- --ignored"]
fn campaign_a_cost_of_two_per_cent_in_one_codec_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let committed = file("committed.json");
    let accepted = instructions()
        .args(["--hot-paths", "--only", "codec json library", "--out"])
        .arg(&committed)
        .output()
        .unwrap();
    assert!(accepted.status.success(), "{}", String::from_utf8_lossy(&accepted.stderr));

    // One event in 25 is encoded twice, and the repeated ones are smaller than the average: one in
    // 50 added 1.07 % to the instructions of the bundled corpus.
    let dearer =
        hot_paths(&["--plant", "json=25", "--check", committed.to_str().unwrap()], &file("dearer.json"));
    let text = String::from_utf8_lossy(&dearer.stdout);
    assert_eq!(dearer.status.code(), Some(0), "{text}");
    let (before, now) =
        (Instructions::read(&committed).unwrap(), Instructions::read(&file("dearer.json")).unwrap());
    assert!(before.repeat_difference() <= RESOLUTION && now.repeat_difference() <= RESOLUTION);
    let found = check(&before, &now, Some("codec json library"));
    assert_eq!(found.verdict("codec json library, relay"), Some(Verdict::Worse), "{text}");
    assert_eq!(found.verdict("codec json library, client"), Some(Verdict::Same), "{text}");
    assert!(text.contains("worse"), "{text}");
}

#[test]
#[ignore = "needs valgrind and minutes: cargo test --release -p compare --test instructions -- --ignored"]
fn campaign_a_scenario_is_counted_at_both_ends_and_counts_repeat() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("counts.json");
    let output = instructions()
        .args(["--formats", "dannypack", "--seconds", "0.05", "--verify", "none", "--out"])
        .arg(&file)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("not time"), "{text}");
    assert_eq!(text.contains("NOT optimised"), cfg!(debug_assertions), "{text}");
    let counts = Instructions::read(&file).unwrap();
    let names: Vec<&str> = counts.rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(
        names,
        ["json+none young", "json+none steady", "dannypack+none young", "dannypack+none steady"]
    );
    assert!(counts.rows.iter().all(|row| row.relay > 0.0 && row.client > 0.0), "{counts:?}");
    assert!(counts.repeat_difference() <= RESOLUTION, "{counts:?}");
}
