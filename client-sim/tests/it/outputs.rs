//! Files that a run writes when it ends: tried before it begins, and never in the way of what it
//! prints.

use std::{fs, path::Path, process::Stdio};

use measure::RunRecord;
use tempfile::TempDir;

use crate::{
    few::few_events,
    ran::{Ran, Runs},
    setup::Setup,
};

/// An address where nobody listens: what is not refused before anything runs fails on it.
const NOBODY: &str = "ws://127.0.0.1:1";

/// Plays a few notes with these flags, and writes these files.
fn run(args: &[&str], files: &[(&str, &Path)]) -> Ran {
    let mut command = Setup::built_in("note-stream", Some(few_events())).plan();
    if !args.contains(&"--seconds") {
        command.args(["--seconds", "0.3"]);
    }
    files.iter().for_each(|(flag, file)| _ = command.arg(flag).arg(file));
    command.args(["--rate", "50"]).args(args).stdin(Stdio::null()).ran()
}

#[test]
fn a_file_that_cannot_be_written_is_refused_before_anything_runs() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "kept").unwrap();
    let serve = ["--serve", "127.0.0.1:0", "--seed", "1"];
    for (path, why) in [
        (folder.path().to_owned(), "it is a folder; name a file in it"),
        (folder.path().join("missing/file"), "there is no folder"),
        (file.join("file"), "is not a folder"),
    ] {
        for (args, flag) in [
            (&["--url", NOBODY][..], "--record"),
            (&["--url", NOBODY], "--html"),
            (&["--url", NOBODY], "--ledger"),
            (&serve, "--record"),
        ] {
            run(args, &[(flag, &path)]).ended(2).saying(&[&format!("{flag}: {}", path.display()), why]);
        }
    }
    for flags in [["--record", "--ledger"], ["--html", "--record"], ["--ledger", "--html"]] {
        let files = flags.map(|flag| (flag, &*file));
        run(&["--url", NOBODY], &files).ended(2).saying(&["the same file"]);
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_run_that_measures_nothing_leaves_files_as_they_were() {
    let folder = TempDir::new().unwrap();
    let old = |name: &str| folder.path().join(name);
    fs::write(old("record.json"), "an older record").unwrap();
    fs::write(old("ledger.jsonl"), "an older ledger").unwrap();
    for (record, ledger) in [("record.json", "ledger.jsonl"), ("new.json", "new.jsonl")] {
        run(&["--url", NOBODY], &[("--record", &old(record)), ("--ledger", &old(ledger))]).ended(1);
    }
    assert_eq!(fs::read_to_string(old("record.json")).unwrap(), "an older record");
    assert_eq!(fs::read_to_string(old("ledger.jsonl")).unwrap(), "an older ledger");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn a_run_writes_its_page_and_says_on_its_way_how_it_goes() {
    let folder = TempDir::new().unwrap();
    let page = folder.path().join("run.html");
    let output = run(&["--seconds", "2.5"], &[("--html", &page)]);
    let page = fs::read_to_string(&page).unwrap();
    assert!(
        page.starts_with("<!doctype html>")
            && page.contains("<title>note-stream: one run of json+none</title>")
    );
    assert!(page.contains("\"slowest\":[[2.0,") && page.contains("publishes acked"));
    let line = output.said.lines().find(|line| line.starts_with("1 s of ")).unwrap_or_default().to_owned();
    for part in [" deliveries, ", "/s, p50 ", " ms, p99 ", " ms"] {
        assert!(line.contains(part), "{part} in {line:?} of {}", output.said);
    }
}

#[test]
fn a_run_whose_messages_and_log_nobody_reads_is_played_to_its_end() {
    let (reader, unread) = std::io::pipe().unwrap();
    drop(reader);
    let setup = Setup::built_in("note-stream", Some(few_events()));
    let mut command = setup.command(&["--seconds", "0.3", "--rate", "50"]);
    let status = command.env("RUST_LOG", "trace").stdout(Stdio::null()).stderr(unread).status().unwrap();
    // A log of this level makes it suspect, and a busy machine may make it invalid (3).
    assert!(matches!(status.code(), Some(0 | 3)), "{status}");
    setup.record().counts.balanced().unwrap();
}

#[test]
fn a_full_disk_takes_neither_the_summary_nor_the_other_file() {
    let folder = TempDir::new().unwrap();
    let (record, ledger) = (folder.path().join("record.json"), folder.path().join("ledger.jsonl"));
    let full = Path::new("/dev/full");
    // Nobody waits longer for what is lost.
    let lossy = ["--relay-fault", "lose=20%", "--drain-seconds", "1"];
    let output = run(&lossy, &[("--record", full), ("--ledger", &ledger)]).ended(1);
    assert!(output.saying(&["cannot write /dev/full"]).out.contains("p99"));
    assert!(fs::read_to_string(&ledger).unwrap().lines().count() > 0);
    for flag in ["--html", "--ledger"] {
        let output = run(&lossy, &[("--record", &record), (flag, full)]).ended(1);
        output.saying(&[&format!("cannot write {flag} /dev/full")]);
    }
    assert!(RunRecord::read(&record).unwrap().counts.balanced().is_err());
}
