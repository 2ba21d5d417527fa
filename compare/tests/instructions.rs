//! `compare instructions`, as a program.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::{
    env,
    path::Path,
    process::{Command, Output},
};

use report::{
    check,
    result::{Instructions, RESOLUTION},
    unsteady,
};

fn instructions() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    command.arg("instructions");
    command
}

/// Counts one codec, in the program COUNTED_PROGRAM: optimised, it takes seconds. Without it, in
/// this build.
fn hot_paths(args: &[&str], file: &Path) -> Output {
    let only = ["--hot-paths", "--only", "codec json library", "--out"];
    let program = env::var_os("COUNTED_PROGRAM").map(|file| ["--program".into(), file]);
    instructions().args(only).arg(file).args(args).args(program.into_iter().flatten()).output().unwrap()
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
#[ignore = "needs valgrind: cargo test --release -p compare --test instructions -- --ignored"]
fn a_cost_of_two_per_cent_planted_in_one_codec_is_found_by_instructions() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let committed = file("committed.json");
    let accepted = hot_paths(&[], &committed);
    assert!(accepted.status.success(), "{}", String::from_utf8_lossy(&accepted.stderr));

    // One event in 25 is encoded twice, and the repeated ones are smaller than the average: one in
    // 50 added 1.07 % to the instructions of the bundled corpus.
    let dearer =
        hot_paths(&["--plant", "json=25", "--check", committed.to_str().unwrap()], &file("dearer.json"));
    let text = String::from_utf8_lossy(&dearer.stdout);
    assert_eq!(dearer.status.code(), Some(0), "{text}");
    let (before, now) =
        (Instructions::read(&committed).unwrap(), Instructions::read(&file("dearer.json")).unwrap());
    let differ = [&before, &now].map(Instructions::repeat_difference);
    assert!(differ.iter().all(|differ| *differ < RESOLUTION), "a tenth of what is planted: {differ:?}");
    let relay = |counts: &Instructions| counts.row("codec json library").unwrap().relay;
    assert!((1.01..1.03).contains(&(relay(&now) / relay(&before))), "about 2 %: {text}");
    let found = check(&before, &now, Some("codec json library"));
    let changed = found.changed.markdown();
    assert!(changed.contains("| codec json library | relay | ") && changed.contains("worse"), "{changed}");
    let client = |counts: &Instructions| counts.row("codec json library").unwrap().client;
    assert!((0.995..1.005).contains(&(client(&now) / client(&before))), "nothing was planted there: {text}");
    assert!(text.contains("worse"), "{text}");
}

#[test]
#[ignore = "needs valgrind and minutes: cargo test --release -p compare --test instructions -- --ignored"]
fn campaign_a_path_that_costs_more_fails_and_counts_of_another_compiler_are_not_compared() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("committed.json");
    let count = |args: &[&str]| {
        let only = ["--hot-paths", "--only", "verify full"];
        let output = instructions().args(only).args(args).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let written = file.to_str().unwrap();
    let (code, said) = count(&["--out", written]);
    assert_eq!(code, Some(0), "{said}");
    let counted = Instructions::read(&file).unwrap();
    assert_eq!(count(&["--check", written]).0, Some(0), "the same again");

    let mut cheaper = counted.clone();
    cheaper.rows[0].relay /= 1.04;
    cheaper.write(&file).unwrap();
    let (code, said) = count(&["--check", written]);
    assert_eq!(code, Some(100), "{said}");
    assert!(said.contains("verify full, relay: more than 3 % above") && said.contains("--accept"), "{said}");

    let mut foreign = cheaper;
    foreign.conditions.rustc = Some("rustc 1.0.0".to_owned());
    foreign.write(&file).unwrap();
    let (code, said) = count(&["--check", written]);
    let here = counted.conditions.rustc.unwrap();
    assert_eq!(code, Some(101), "{said}");
    assert!(said.contains("NOT CHECKED"), "{said}");
    assert!(said.contains(&format!("compiler: {here} here, rustc 1.0.0 in the table")), "{said}");
}

#[test]
fn the_committed_counts_and_their_table_agree() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let counts = Instructions::read(&docs.join("instructions.json")).unwrap();
    let table = std::fs::read_to_string(docs.join("instructions.md")).unwrap();
    assert_eq!(table, counts.page(), "--accept writes both");
    assert!(counts.conditions.optimised);
    assert!(unsteady(&counts).is_empty(), "a gate needs counts that repeat: {:?}", unsteady(&counts));
    for path in ["codec json library", "codec dannypack tuned", "wire zstd", "verify full"] {
        assert!(counts.row(path).is_some(), "{path}");
    }
    for path in ["play note-stream json steady", "play follow-list-burst dannypack steady"] {
        let row = counts.row(path).unwrap();
        assert!(row.relay > 0.0 && row.client > 0.0, "{row:?}");
    }
}
