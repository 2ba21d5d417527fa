//! What a disk refuses: known before anything is measured, and no loss of what was.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::{
    fs,
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

fn compare(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    command.args(args).stdin(Stdio::null()).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
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
        (file.join("file"), "is no folder"),
    ] {
        let path = path.to_str().unwrap();
        for args in [
            &["selftest", "--out", path][..],
            &["instructions", "--out", path],
            &["instructions", "--hot-paths", "--accept", "--check", path],
            &["export", "no result is read", "--github-action-benchmark", path],
        ] {
            let output = compare(args);
            let said = said(&output);
            assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
            let flag = args[args.len() - 2];
            assert!(said.contains(&format!("{flag}: {path} cannot be written")), "{args:?}: {said}");
            assert!(said.contains(why), "{args:?}: {said}");
        }
    }
    // The table beside the counts, too.
    let counts = folder.path().join("table.json");
    let output = compare(&["instructions", "--hot-paths", "--accept", "--check", counts.to_str().unwrap()]);
    assert!(output.status.code() == Some(2) && said(&output).contains("table.md"), "{}", said(&output));
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn a_self_test_is_printed_although_its_disk_is_full() {
    let output = compare(&["selftest", "--quick", "--only", "bytes", "--out", "/dev/full"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("bytes") && said(&output).contains("cannot write /dev/full"), "{table}");
}
