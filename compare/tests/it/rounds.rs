//! Pilots, and the rounds that they plan, played by a script.

use std::{collections::BTreeSet, fs, path::Path, time::Duration};

use anyhow::Result;
use compare::{
    CellSpec,
    generator::{Generator, Task},
    rounds::{Measured, NoRounds},
    run::Stopped,
};
use measure::{ReasonKind, RunRecord, Status, ValidityClass};
use report::{Block, ResultFile, Role, result::CellResult};

use crate::common::{self, Left, PLAIN, Run, Scripted, config, interrupted, matrix, measured, record};

/// Rounds and blocks of a pilot of [`cells`].
const PILOT: (u32, usize) = (5, 5 * 3);

/// The anchor and a cell: three blocks a round.
fn cells() -> Vec<CellSpec> {
    let mut cells = matrix(&["cbor+none"]);
    cells.retain(|cell| cell.role != Role::Control);
    cells
}

/// Plays rounds for a precision of 10 % in this folder.
fn play(folder: &Path, generator: &dyn Generator, max_time: Option<Duration>) -> Result<Measured> {
    common::play(folder, generator, &cells(), config("standard", 12), Some(0.1), max_time)
}

/// The result, its blocks each with the place of its cell, and why it was stopped.
fn played(folder: &Path, generator: &dyn Generator) -> (ResultFile, Vec<(usize, Block)>, Option<Stopped>) {
    let Measured { result, stopped } = play(folder, generator, None).unwrap();
    let blocks = |(place, cell): (usize, &CellResult)| {
        cell.blocks.clone().into_iter().map(move |block| (place, block))
    };
    let blocks = result.cells.iter().enumerate().flat_map(blocks).collect();
    (result, blocks, stopped)
}

/// CBOR takes the relay a tenth more or less than JSON, by turns, and more of that with `times`.
fn noisy(task: &Task<'_>, times: u64) -> RunRecord {
    let odd = task.round % 2 == 1 && task.cell.role == Role::Cell;
    let relay_us_per_event = if odd { 600 + 60 * times } else { 600 };
    record("json+none", 1, Run { relay_us_per_event, ..PLAIN })
}

const BUSY: ReasonKind = ReasonKind::CpuPressure { percent: 71.0 };

fn untimed(mut record: RunRecord, reason: ReasonKind) -> Left {
    record.validity.add(ValidityClass::Invalid, reason);
    measured(record)
}

#[test]
fn a_pilot_plans_more_rounds_for_more_noise_and_is_not_counted() {
    let mut rounds = Vec::new();
    for times in [1, 2, 3] {
        let (folder, mut asked) = (tempfile::tempdir().unwrap(), Vec::new());
        let generator = Scripted::new(|task| {
            let is_pilot = task.record.parent().unwrap().ends_with("running/pilot");
            asked.push((is_pilot, task.seed));
            measured(noisy(task, times))
        });
        let (ResultFile { config, status, .. }, blocks, stopped) = played(folder.path(), &generator);
        let planned = config.planned_rounds.unwrap();
        assert_eq!((planned.rounds, planned.rounds_needed), (config.rounds, config.rounds));
        assert_eq!((status, stopped), (Status::Complete, None));
        assert_eq!(blocks.len(), 3 * config.rounds as usize);
        let (pilot, counted) = asked.split_at(PILOT.1);
        assert!(pilot.iter().all(|(is_pilot, _)| *is_pilot) && !counted.iter().any(|(pilot, _)| *pilot));
        let seeds = |all: &[(bool, u64)]| all.iter().map(|(_, seed)| *seed).collect::<BTreeSet<_>>();
        assert_eq!((seeds(pilot).len(), seeds(counted).len()), (5, config.rounds as usize));
        assert!(seeds(pilot).is_disjoint(&seeds(counted)));
        rounds.push(config.rounds);
    }
    // Below six rounds there is no interval.
    assert!(rounds[0] >= 6 && rounds.is_sorted() && rounds[2] > rounds[0] + 5, "{rounds:?}");
}

#[test]
fn rounds_that_a_pilot_planned_are_made_up_for_by_further_ones() {
    let late = ReasonKind::SendLag { ns_p99: 60_000_000, burst_ns: 0, sends: 1 };
    // What the cell itself made late is a result.
    for (reason, further) in [(BUSY, 2), (late, 0)] {
        let (folder, mut number) = (tempfile::tempdir().unwrap(), 0);
        let generator = Scripted::new(|task| {
            number += 1;
            // The first two counted rounds.
            let is_late = (PILOT.1 + 1..=PILOT.1 + 6).contains(&number);
            let record = noisy(task, 1);
            if is_late { untimed(record, reason.clone()) } else { measured(record) }
        });
        let (result, blocks, _) = played(folder.path(), &generator);
        let rounds = result.config.rounds as usize + further;
        assert_eq!((result.status, blocks.len()), (Status::Complete, 3 * rounds));
        let usable = blocks.iter().filter(|(cell, block)| *cell == 1 && block.usable().is_some());
        assert_eq!(usable.count(), rounds - 2);
    }
}

#[test]
fn an_interrupted_pilot_is_all_there_is() {
    let (folder, mut number) = (tempfile::tempdir().unwrap(), 0);
    let generator = Scripted::new(|task| {
        number += 1;
        if number <= 7 { measured(noisy(task, 1)) } else { interrupted() }
    });
    let (ResultFile { config, status, .. }, blocks, stopped) = played(folder.path(), &generator);
    assert_eq!((config.seed, config.rounds, config.planned_rounds, blocks.len()), (1, PILOT.0, None, 8));
    assert_eq!(stopped, Some(Stopped::Interrupted));
    let reason = "it ended in the pilot of --precision".to_owned();
    assert_eq!(status, Status::Incomplete { reason });
    // The plan and each block, for who reads the folder of a run that is killed.
    assert_eq!(fs::read_dir(folder.path().join("blocks")).unwrap().count(), 1 + 8);
}

#[test]
fn a_pilot_that_no_rounds_follow_from_is_refused() {
    let refused = |max_time, is_late| {
        let folder = tempfile::tempdir().unwrap();
        let mut blocks = 0;
        let generator = Scripted::new(|task| {
            blocks += 1;
            let record = noisy(task, 1);
            if is_late { untimed(record, BUSY) } else { measured(record) }
        });
        let error = play(folder.path(), &generator, max_time).unwrap_err();
        assert_eq!(blocks, PILOT.1, "nothing is counted");
        error.downcast::<NoRounds>().unwrap().to_string()
    };
    let reason = refused(Some(Duration::ZERO), false);
    assert!(reason.contains("Fewer than 6 rounds have no interval"), "{reason}");
    let reason = refused(None, true);
    assert!(reason.contains("no CPU time of two rounds"), "{reason}");
}
