//! Refusals of a disk: known before anything is measured, and no loss of what was.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use report::ResultFile;
use tempfile::TempDir;

use crate::{
    common,
    few::few_events,
    ran::{Ran, Runs, send},
};

fn compare(args: &[&str]) -> Ran {
    common::compare().args(args).stdin(Stdio::null()).ran()
}

#[test]
fn a_file_that_cannot_be_written_is_refused_before_anything_is_measured() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "kept").unwrap();
    fs::create_dir(folder.path().join("table.md")).unwrap();
    for (path, why) in [
        (folder.path().to_owned(), "it is a folder; name a file in it"),
        (folder.path().join("missing/file"), "there is no folder"),
        (file.join("file"), "is not a folder"),
    ] {
        let path = path.to_str().unwrap();
        for args in [
            &["selftest", "--out", path][..],
            &["instructions", "--out", path],
            &["instructions", "--hot-paths", "--accept", "--check", path],
        ] {
            let said = compare(args).ended(2).said;
            let flag = args[args.len() - 2];
            assert!(said.contains(&format!("{flag}: {path} cannot be written")), "{args:?}: {said}");
            assert!(said.contains(why), "{args:?}: {said}");
        }
    }
    // The folder of results, and the table beside the counts, too.
    let out = file.join("results");
    for command in [
        &["run", "--scenario", "note-stream"][..],
        &["search", "--formats", "json", "--scenario", "note-stream"],
        &["browser", "--formats", "json", "--page", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/page")],
    ] {
        compare(&[command, &["--out", out.to_str().unwrap()]].concat()).ended(2).saying(&["--out"]);
    }
    let counts = folder.path().join("table.json");
    let accepts = ["instructions", "--hot-paths", "--accept", "--check", counts.to_str().unwrap()];
    compare(&accepts).ended(2).saying(&["table.md"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn a_self_test_is_printed_although_its_disk_is_full() {
    let output = compare(&["selftest", "--quick", "--only", "bytes", "--out", "/dev/full"]).ended(1);
    assert!(output.saying(&["cannot write /dev/full"]).out.contains("bytes"));
}

/// A command once so many files of what it measured were there, and its folder.
fn started(out: &Path, args: &str, files: usize) -> (Child, PathBuf) {
    let mut command = common::compare();
    command.args(args.split(' ').map(|arg| match arg {
        "OUT" => out.to_str().unwrap(),
        "FEW" => few_events().to_str().unwrap(),
        arg => arg,
    }));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let began = Instant::now();
    loop {
        let folder = fs::read_dir(out).unwrap().next().map(|entry| entry.unwrap().path());
        let kept = folder.iter().filter_map(|folder| fs::read_dir(folder.join("blocks")).ok()).flatten();
        let whole = |name: &str| name.ends_with(".json");
        if kept.filter(|file| file.as_ref().unwrap().file_name().to_str().is_some_and(whole)).count() >= files
        {
            return (child, folder.unwrap());
        }
        assert!(child.try_wait().unwrap().is_none(), "it ended before anything was kept");
        assert!(began.elapsed() < Duration::from_secs(120), "nothing was kept");
        thread::sleep(Duration::from_millis(20));
    }
}

/// What `compare report` makes of the folder of a command that was killed once so many files were there.
fn killed(out: &Path, args: &str, files: usize) -> (PathBuf, ResultFile, String) {
    let (mut child, folder) = started(out, args, files);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(!folder.join("result.json").exists());
    let output = compare(&["report", folder.to_str().unwrap()]).ended(0);
    assert!(fs::read_to_string(folder.join("summary.md")).unwrap().contains("unfinished"));
    let result = ResultFile::read(&folder).unwrap();
    (folder, result, output.out)
}

const SMALL: &str =
    "--out OUT --corpus FEW --scenario note-stream --formats json --compressions none --seconds 1";

#[test]
fn what_a_killed_run_or_its_pilot_measured_is_read_block_by_block() {
    // The plan and two blocks.
    for (more, says) in [
        ("--rounds 20 -- --rate 50", "unfinished: no result was written"),
        ("--precision 10% -- --rate 50", "unfinished (the pilot of --precision)"),
    ] {
        let out = TempDir::new().unwrap();
        let (folder, result, text) = killed(out.path(), &format!("run {SMALL} {more}"), 3);
        let blocks: Vec<_> = result.cells.iter().flat_map(|cell| &cell.blocks).collect();
        assert!(blocks.len() >= 2 && blocks.iter().all(|block| block.record.is_some()), "{}", blocks.len());
        assert!(text.contains(says), "{text}");
        // A block of no cell, and one cut short, are named.
        let block = fs::read_to_string(folder.join("blocks/000-000.json")).unwrap();
        for (text, says) in [
            (block.replacen("\"cell\": \"json", "\"cell\": \"yaml", 1), "does not name"),
            (block[..block.len() / 2].to_owned(), "blocks/000-000.json"),
        ] {
            fs::write(folder.join("blocks/000-000.json"), text).unwrap();
            compare(&["report", folder.to_str().unwrap()]).ended(2).saying(&[says]);
        }
    }
}

#[test]
fn what_a_killed_search_or_pilot_measured_is_read_probe_by_probe() {
    let search = "search --out OUT --corpus FEW --scenario note-stream --formats json --probe-seconds 1 --slo lost=0 --start 20";
    for (args, says) in [
        (search.to_owned(), "unfinished: no result was written"),
        (format!("run {SMALL} --utilisation 8%"), "unfinished (a pilot)"),
    ] {
        let out = TempDir::new().unwrap();
        let (_, result, text) = killed(out.path(), &args, 1);
        assert!(text.contains(says), "{text}");
        let mut cells = result.search.unwrap().cells.into_iter();
        assert!(cells.any(|cell| !cell.probes.is_empty()) && result.corpus.is_some(), "{text}");
    }
}

#[test]
#[ignore = "needs chromium or google-chrome"]
fn what_killed_pages_of_a_browser_measured_is_read() {
    let out = TempDir::new().unwrap();
    let (_, result, text) =
        killed(out.path(), "browser --out OUT --part decode --formats json,cbor-packed --rounds 6", 3);
    assert!(result.cells.iter().any(|cell| !cell.blocks.is_empty()), "{text}");
    assert!(text.contains("unfinished: no result was written"), "{text}");
}

#[test]
fn a_closed_terminal_ends_a_run_that_keeps_what_it_measured() {
    let out = TempDir::new().unwrap();
    let (child, folder) = started(out.path(), &format!("run {SMALL} --rounds 20 -- --rate 50"), 3);
    send(Signal::SIGHUP, child.id());
    child.ran().ended(130);
    assert!(folder.join("result.json").exists() && !folder.join("blocks").exists());
    let result = ResultFile::read(&folder).unwrap();
    assert_eq!(result.incomplete(), Some("interrupted"));
    let blocks = result.cells.iter().flat_map(|cell| &cell.blocks);
    assert!(blocks.filter(|block| block.record.is_some()).count() >= 2);
}

/// A shell's run in a place that it prepared, the table that it printed, and that of a report of what
/// was kept there.
fn in_a_shell(start: &[&str], prepare: &str, out: &Path) -> (Ran, String, String) {
    let compare = env!("CARGO_BIN_EXE_compare");
    let (out, few) = (out.display(), few_events().display());
    let script = format!(
        "{prepare}
         code=0
         {compare} run --out {out} --corpus {few} --scenario note-stream --formats dannypack --compressions none \
             --seconds 1 --rounds 1 -- --rate 50 || code=$?
         echo; echo REPORT
         {compare} report {out}/* || true
         exit $code"
    );
    let mut command = Command::new(start[0]);
    let output = command.args(&start[1..]).arg(script).stdin(Stdio::null()).ran();
    let (run, report) = output.out.split_once("REPORT\n").unwrap();
    let (run, report) = (run.to_owned(), report.to_owned());
    (output, run, report)
}

/// The numbers of blocks in the table of the run, which has all, and in what was kept.
fn blocks((run, table, kept): (Ran, String, String), says: &str) -> (usize, usize) {
    let run = run.ended(1).saying(&[says, "compare report "]);
    assert!(table.contains("\ndannypack") && kept.contains("\ndannypack"), "{table}{kept}");
    let number = |text: &str, before: &str, after: &str| -> usize {
        let found = text.split_once(before).and_then(|(_, rest)| rest.split_once(after));
        found.unwrap_or_else(|| panic!("{text}{}", run.said)).0.parse().unwrap()
    };
    let all = table.lines().find(|line| line.contains(" blocks of 1 s ran")).unwrap();
    let holds = "unfinished: no result was written, blocks holds ";
    (number(all, "", " of "), number(&kept, holds, " blocks"))
}

#[test]
fn a_file_beyond_the_limit_of_its_size_loses_no_block() {
    let out = TempDir::new().unwrap();
    // With SIGXFSZ ignored a write ends with EFBIG (setrlimit(2)). A block has some 12 KB.
    let ended = in_a_shell(&["sh", "-ec"], "trap '' XFSZ; ulimit -f 40", out.path());
    let (all, kept) = blocks(ended, "result.json: File too large");
    assert!(all >= 5 && kept == all, "{kept} of {all}");
}

#[test]
#[ignore = "needs user namespaces, and unshare of util-linux"]
fn a_full_disk_keeps_the_blocks_that_fit_and_prints_the_table() {
    let out = TempDir::new().unwrap();
    let full = format!("mount -t tmpfs -o size=48k tmpfs {}", out.path().display());
    let ended =
        in_a_shell(&["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec"], &full, out.path());
    let (all, kept) = blocks(ended, "No space left on device");
    assert!(all >= 5 && (1..all).contains(&kept), "{kept} of {all}");
}

#[test]
fn what_is_no_result_is_named_with_the_way_out() {
    let place = TempDir::new().unwrap();
    let within = |name: &str| place.path().join(name);
    for (name, text) in [
        ("newer", r#"{"schema_version":"20.0"}"#),
        ("cut", r#"{"schema_version":"2.4","tool":{"na"#),
        ("empty", ""),
        ("list", "[]"),
        ("other", r#"{"schema_version":"2.4"}"#),
        ("bytes", "\u{0}\u{1f}"),
    ] {
        fs::create_dir(within(name)).unwrap();
        fs::write(within(name).join("result.json"), text).unwrap();
    }
    fs::create_dir(within("none")).unwrap();
    for (name, says) in [
        ("newer", "has schema version 20.0; this build reads 2.x"),
        ("cut", "cut/result.json is cut short"),
        ("empty", "empty/result.json is cut short"),
        ("list", "states no schema_version"),
        ("other", "is not a result of this tool: missing field"),
        ("bytes", "bytes/result.json is not a result"),
        ("none", "there is no "),
        ("missing", "expected the folder of a result"),
        ("", "such as "),
    ] {
        let path = within(name);
        let path = path.to_str().unwrap();
        for args in [&["report", path][..], &["diff", path, path]] {
            assert_eq!(compare(args).ended(2).saying(&[says]).out, "");
        }
    }
}
