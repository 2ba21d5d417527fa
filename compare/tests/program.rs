//! The real program: it starts clients, which start relays.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use compare::ResultFile;
use tempfile::TempDir;

fn compare(out: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_compare"))
        .args(["run", "--scenario", "note-stream", "--rounds", "1", "--seconds", "1", "--out"])
        .arg(out)
        .args(args)
        .output()
        .unwrap()
}

#[test]
fn a_small_matrix_runs_from_start_to_table() {
    let out = TempDir::new().unwrap();
    let run =
        compare(out.path(), &["--formats", "dannypack", "--compressions", "zstd", "--", "--rate", "200"]);
    let (table, progress) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    // A busy machine may make a block invalid (3); nothing else may go wrong.
    assert!(matches!(run.status.code(), Some(0 | 3)), "{:?}\n{progress}", run.status);
    for cell in ["json", "dannypack"] {
        assert!(table.contains(cell), "{table}");
    }
    let folder = fs::read_dir(out.path()).unwrap().next().unwrap().unwrap().path();
    let result = ResultFile::read(&folder).unwrap();
    let ids: Vec<&str> = result.cells.iter().map(|cell| cell.id.as_str()).collect();
    assert_eq!(ids, ["json+none", "json-control", "floor", "dannypack+zstd"]);
    for record in result.cells.iter().map(|cell| cell.blocks[0].record.as_ref().unwrap()) {
        record.counts.balanced().unwrap();
        assert_eq!(record.counts.deliveries, 1_600, "200 notes a second to 8 subscribers");
        assert!(record.relay_cpu.as_ref().unwrap().total_ns > 0);
    }
    assert!(fs::read_to_string(folder.join("summary.md")).unwrap().contains("| dannypack | zstd |"));
}

#[test]
fn when_nothing_was_measured_no_result_is_left_behind() {
    let out = TempDir::new().unwrap();
    let run = compare(out.path(), &["--corpus", "missing.jsonl"]);
    let said = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(2), "{said}");
    assert!(
        said.contains("there is no corpus \"missing.jsonl\"") && said.contains("nothing was measured"),
        "{said}"
    );
    assert!(run.stdout.is_empty());
    assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0);
}
