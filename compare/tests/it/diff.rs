//! `compare diff`: what it finds, what it refuses, and its exit codes.

use std::{path::Path, process::Command, sync::LazyLock};

use crate::{
    common::{Run, record, result},
    report::{CELLS, measured},
    search,
};
use report::ResultFile;

/// Everything as usual, but relay CPU of cbor-packed without compression is so many percent of the
/// usual.
fn run(percent: u64) -> ResultFile {
    result("standard", 12, &CELLS, |id, round, position| {
        let mut record = measured(id, round, position);
        if id == "cbor-packed+none" {
            let cpu = record.relay_cpu.as_mut().unwrap();
            cpu.total_ns = cpu.total_ns * percent / 100;
        }
        record
    })
}

static USUAL: LazyLock<ResultFile> = LazyLock::new(|| run(100));

fn diff(before: &ResultFile, after: &ResultFile, flags: &[&str]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let write = |result: &ResultFile, name: &str| {
        let folder = folder.path().join(name);
        std::fs::create_dir(&folder).unwrap();
        result.write(&folder).unwrap();
        folder
    };
    let (before, after) = (write(before, "before"), write(after, "after"));
    let program = Path::new(env!("CARGO_BIN_EXE_compare"));
    let output = Command::new(program).arg("diff").args([before, after]).args(flags).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn a_regression_is_found_and_an_improvement_is_none() {
    let (code, text) = diff(&USUAL, &run(110), &[]);
    assert_eq!(code, Some(100), "{text}");
    let line =
        text.lines().find(|line| line.starts_with("cbor-packed+none") && line.contains("relay CPU")).unwrap();
    assert!(line.contains("] worse ") && line.contains("×0.60") && line.contains("×1.10 ["), "{line}");
    let (code, text) = diff(&USUAL, &run(90), &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("better"), "{text}");
    assert_eq!(diff(&USUAL, &USUAL, &[]).0, Some(0));
}

#[test]
fn a_run_says_in_a_line_what_became_of_the_last_one_of_its_cells() {
    let line = report::since(&USUAL, &run(110)).unwrap();
    assert!(line.starts_with("1 worse (cbor-packed+none relay CPU ×1.10), 0 better, "), "{line}");
    assert!(report::since(&USUAL, &USUAL).unwrap().starts_with("0 worse, 0 better, "));
    type Change = fn(&mut ResultFile);
    let others: [Change; 5] = [
        |one| one.host.kernel = Some("another".to_owned()),
        |one| drop(one.cells.pop()),
        |one| one.config.seconds += 1,
        |one| one.config.relays.push(report::result::RelayCommand::default()),
        |one| one.status = measure::Status::Interrupted,
    ];
    for change in others {
        let mut other = USUAL.clone();
        change(&mut other);
        assert_eq!(report::since(&other, &USUAL), None);
    }
}

#[test]
fn inconclusive_counts_only_when_strict() {
    // proto's relay CPU is noise in these runs.
    assert_eq!(diff(&USUAL, &USUAL, &["--strict"]).0, Some(101));
}

#[test]
fn unlike_results_are_refused_unless_forced() {
    let mut other = result("standard", 12, &CELLS, |id, _, _| {
        record(id, 1, Run { deliveries: 40, ..crate::common::PLAIN })
    });
    other.host.cores = 64;
    other.corpus.as_mut().unwrap().sha256 = "another".to_owned();
    let (code, text) = diff(&USUAL, &other, &[]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("corpus: ") && text.contains("64 cores") && text.contains("--force"), "{text}");
    let (_, text) = diff(&USUAL, &other, &["--force"]);
    assert!(text.contains("not comparable") && text.contains("cbor-packed+none"), "{text}");
}

#[test]
fn cells_that_were_measured_otherwise_are_unlike() {
    let mut other = run(100);
    let cell = other.cells.iter_mut().find(|cell| cell.id == "cbor-packed+none").unwrap();
    cell.cell.implementation = "tuned".to_owned();
    let (code, text) = diff(&USUAL, &other, &[]);
    assert_eq!(code, Some(2), "{text}");
    assert!(
        text.contains("cbor-packed+none: ")
            && text.contains("implementation library")
            && text.contains("implementation tuned"),
        "{text}"
    );
    let mut other = run(100);
    other.config.seconds += 1;
    let (code, text) = diff(&USUAL, &other, &[]);
    assert!(code == Some(2) && text.contains("seconds of a block"), "{text}");
}

#[test]
fn a_failed_control_withholds_changes_and_is_none_itself() {
    let mut other = run(110);
    let control = other.cells.iter_mut().find(|cell| cell.id == "json-control").unwrap();
    for block in &mut control.blocks {
        block.record.as_mut().unwrap().relay_cpu.as_mut().unwrap().total_ns *= 2;
    }
    let (code, text) = diff(&USUAL, &other, &[]);
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn searches_are_compared_by_their_capacities() {
    let before = search::sustaining([900, 3_000]);
    let (code, text) = diff(&before, &search::sustaining([900, 2_000]), &[]);
    assert_eq!(code, Some(100), "{text}");
    let line = |cell: &str| text.lines().find(|line| line.starts_with(cell)).unwrap();
    assert!(line("cbor+none").contains("] worse ") && line("cbor+none").contains("×0.6"), "{text}");
    assert!(line("json+none").contains("capacity") && !line("json+none").contains("worse"), "{text}");
    let (code, text) = diff(&before, &search::sustaining([900, 4_500]), &[]);
    assert!(code == Some(0) && text.contains("better"), "{text}");
    // Two searches differ by chance, and say so where that is asked.
    assert_eq!(diff(&before, &before, &["--strict"]).0, Some(101));
    // The rate's limit that ended it is above what it kept.
    let (code, text) = diff(&search::sustaining([900, 200_000]), &before, &[]);
    assert!(code == Some(100) && text.contains("at least "), "{text}");
    // A break-even is neither better nor worse elsewhere.
    let (code, text) = diff(&search::break_even(1.0), &search::break_even(2.0), &[]);
    assert!(code == Some(0) && text.contains("break-even") && text.contains("×0.5"), "{text}");
    let mut other = before.clone();
    other.search.as_mut().unwrap().config.slo = "p99<20ms, lost=0".to_owned();
    let (code, text) = diff(&before, &other, &[]);
    assert!(code == Some(2) && text.contains("SLO: p99<10ms"), "{text}");
}

#[test]
fn results_without_a_shared_cell_are_unlike_and_nothing_of_them_compares() {
    for other in [search::sustaining([900, 3_000]), search::break_even(1.0)] {
        let (code, text) = diff(&USUAL, &other, &[]);
        assert!(code == Some(2) && text.contains("not comparable: "), "{text}");
        let (code, text) = diff(&USUAL, &other, &["--force"]);
        assert!(code == Some(101) && text.contains("nothing compares"), "{text}");
    }
}
