//! `compare contribute`, and the sums of every result in this tree.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use measure::{Counts, PopulationRecord, RunRecord};
use report::{ResultFile, result::MeasuredBy};
use tempfile::TempDir;

use crate::{
    common::{PLAIN, record, result},
    report::{population, tested},
};

/// A result that may be contributed.
fn sound() -> ResultFile {
    let mut sound =
        result("standard", 2, &["cbor-packed+none"], |id, round, _| record(id, round.into(), PLAIN));
    sound.git.as_mut().unwrap().dirty = false;
    tested(&mut sound, &["stall"], None, true);
    sound
}

fn first_record(result: &mut ResultFile) -> &mut RunRecord {
    result.cells[0].blocks[0].record.as_mut().unwrap()
}

/// The only population of a run with so many deliveries.
fn of_deliveries(of: &RunRecord, deliveries: u64) -> PopulationRecord {
    let counts = Counts { deliveries, ..of.counts };
    PopulationRecord { connections: of.connections, counts, ..population(of, "all", None) }
}

/// Results of this tree, packed or not.
fn results_in(folder: &Path) -> Vec<PathBuf> {
    let folders = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut found: Vec<PathBuf> = folders.filter(|one| one.is_dir()).collect();
    found.sort();
    found
}

#[test]
fn the_sums_of_every_result_in_this_tree_hold() {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("results");
    let (published, contributed) =
        (results_in(&results.join("published")), results_in(&results.join("contributed")));
    assert!(published.len() > 10, "{published:?}");
    for folder in &published {
        let broken = ResultFile::read(folder).unwrap().broken_sums();
        assert_eq!(broken, Vec::<String>::new(), "{}", folder.display());
    }
    for folder in &contributed {
        let result = ResultFile::read(folder).unwrap();
        assert_eq!(result.not_contributable(), Vec::<String>::new(), "{}", folder.display());
        assert!(
            result.provenance.is_some(),
            "{}: compare contribute states who measured it",
            folder.display()
        );
    }
}

#[test]
fn each_sum_that_does_not_hold_is_named_with_its_block() {
    assert_eq!(sound().not_contributable(), Vec::<String>::new());
    type Damage = fn(&mut ResultFile);
    let cases: [(Damage, &str); 12] = [
        (
            |one| first_record(one).counts.deliveries -= 1,
            "json+none, round 0, place 0: deliveries_expected 4000 is not",
        ),
        (|one| first_record(one).relay_cpu.as_mut().unwrap().total_ns = 9 << 32, "CPU time of the relay is"),
        (|one| first_record(one).client_cpu.total_ns = u64::MAX, "CPU time of the clients is"),
        (
            |one| {
                let record = first_record(one);
                record.populations = vec![of_deliveries(record, 3_999)];
            },
            "deliveries of its populations are 3999, and of all 4000",
        ),
        (|one| one.cells[0].blocks[0].position += 1, "the schedule has "),
        (|one| one.cells[0].blocks[0].position = u32::MAX, "the schedule has nothing there"),
        (|one| one.git.as_mut().unwrap().dirty = true, "it is of local changes"),
        (|one| one.git = None, "it states no commit"),
        (|one| one.host.optimised = false, "without optimisation"),
        (|one| one.selftest = None, "it has no self-test"),
        (|one| one.selftest.as_mut().unwrap().oracles[0].passed = false, "its self-test failed: stall"),
        (|one| one.cells.clear(), "no block of `compare run`"),
    ];
    for (damage, says) in cases {
        let mut result = sound();
        damage(&mut result);
        let reasons = result.not_contributable();
        assert!(reasons.iter().any(|reason| reason.contains(says)), "{says}: {reasons:?}");
    }
    let mut whole = sound();
    let record = first_record(&mut whole);
    record.populations = vec![of_deliveries(record, 4_000)];
    assert_eq!(whole.broken_sums(), Vec::<String>::new());
}

fn contribute(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_compare")).arg("contribute").arg(folder).args(args).output().unwrap()
}

#[test]
fn a_sound_result_gets_its_provenance_and_the_commands_that_add_it() {
    let tree = TempDir::new().unwrap();
    let folder = tree.path().join("mine's");
    fs::create_dir(&folder).unwrap();
    sound().write(&folder).unwrap();
    let done = contribute(&folder, &["--provenance", "vendor", "--paid-by", "Example\u{1b} Ltd"]);
    assert!(done.status.success(), "{done:?}");
    let commands = String::from_utf8(done.stdout).unwrap();
    let shell = Command::new("sh")
        .args(["-ec", &format!("git init --quiet; {commands}")])
        .current_dir(&tree)
        .status()
        .unwrap();
    assert!(shell.success(), "{commands}");
    let added = tree.path().join("results/contributed/mine's");
    let provenance = ResultFile::read(&added).unwrap().provenance.unwrap();
    assert_eq!(
        (provenance.by, provenance.paid_by.as_deref()),
        (MeasuredBy::Vendor, Some("Example\u{1b} Ltd"))
    );
    let summary = fs::read_to_string(added.join("summary.md")).unwrap();
    assert!(summary.contains("Measured by a vendor of what was measured, paid by Example Ltd"), "{summary}");
    let staged = Command::new("git").args(["ls-files"]).current_dir(&tree).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&staged.stdout).lines().count(), 2);
}

#[test]
fn a_result_with_a_broken_sum_is_refused_and_stays_as_it_was() {
    let folder = TempDir::new().unwrap();
    let mut broken = sound();
    first_record(&mut broken).counts.acked -= 1;
    broken.write(folder.path()).unwrap();
    let refused = contribute(folder.path(), &["--provenance", "contributed"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{said}");
    assert!(said.contains("planned 1000 is not acked 999"), "{said}");
    assert!(refused.stdout.is_empty());
    assert_eq!(ResultFile::read(folder.path()).unwrap(), broken);
    assert_eq!(contribute(folder.path(), &[]).status.code(), Some(2), "provenance is not guessed");
    assert_eq!(contribute(&folder.path().join("none"), &["--provenance", "vendor"]).status.code(), Some(2));
}
