//! Plans, played by a script.

use std::{cell::RefCell, fs, future::pending, path::Path, time::Duration};

use compare::{
    BlockOrder, CellSpec,
    generator::{Generator, Played, Task},
    progress::Progress,
    run::{self, Outcome, Request, Stopped},
};
use measure::{ReasonKind, RunRecord, Status, ValidityClass};
use report::{Block, Config, Role};

use crate::common::{Left, PLAIN, Scripted, config, interrupted, matrix, measured, record};

/// The anchor, its control and two cells: five blocks a round, the anchor first and last.
fn cells() -> Vec<CellSpec> {
    matrix(&["json+deflate", "cbor+deflate"])
}

/// Plays a plan; `keep` hears of each block.
fn played(
    generator: &dyn Generator,
    config: &Config,
    plan: &BlockOrder,
    keep: impl Fn(&[(usize, Block)]),
) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    let kept = |blocks: &[(usize, Block)]| {
        keep(blocks);
        Ok(())
    };
    let request =
        Request { generator, config, cells: &cells(), plan, folder: folder.path(), keep: Some(&kept) };
    let mut progress = Progress::new(plan.blocks(), Duration::from_secs(1), true);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let outcome = runtime.block_on(run::run(&request, &mut progress, pending())).unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "records that were read are removed");
    outcome
}

/// Plays so many rounds, with further ones, by a script of the block's number, from 0 on.
fn by_number(rounds: u32, mut script: impl FnMut(usize) -> Left) -> Outcome {
    let (config, mut number) = (config("quick", rounds), 0);
    let generator = Scripted::new(|_| {
        number += 1;
        script(number - 1)
    });
    played(&generator, &config, &BlockOrder::with_spare(&cells(), rounds, config.seed), |_| ())
}

fn plain() -> RunRecord {
    record("json+none", 1, PLAIN)
}

fn untimed() -> RunRecord {
    let mut record = plain();
    record.validity.add(ValidityClass::Invalid, ReasonKind::CpuPressure { percent: 71.0 });
    record
}

/// The part of a task that is compared with the plan.
type TaskKey = (u32, u32, String, u64, u32);

fn key(task: &Task<'_>) -> TaskKey {
    (task.round, task.position, task.cell.id.clone(), task.seed, task.seconds)
}

#[test]
fn every_round_is_played_in_its_order_and_each_block_kept_when_it_ends() {
    let config = config("quick", 4);
    let plan = BlockOrder::with_spare(&cells(), 4, config.seed);
    let (all, kept) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    let generator = Scripted::new(|task| {
        assert_eq!(task.comparable_with, ["cbor-schemaless", "json"]);
        assert_eq!(all.borrow().len(), kept.borrow().len(), "the block before is kept by now");
        all.borrow_mut().push(key(task));
        measured(plain())
    });
    let outcome = played(&generator, &config, &plan, |blocks| kept.borrow_mut().push(blocks.len()));
    assert_eq!((outcome.status, outcome.stopped), (Status::Complete, None));
    let (rounds, cells) = ((0..).zip(&plan.rounds), cells());
    let expected: Vec<TaskKey> = rounds
        .flat_map(|(round, order)| (0..).zip(order).map(move |(position, cell)| (round, position, *cell)))
        .map(|(round, position, cell)| (round, position, cells[cell].id.clone(), 1 + u64::from(round), 2))
        .collect();
    assert_eq!(expected.len(), 4 * 5);
    assert_eq!(*all.borrow(), expected);
    assert_eq!(*kept.borrow(), (1..=4 * 5).collect::<Vec<_>>());
    for ((cell, block), (round, position, id, seed, _)) in outcome.blocks.iter().zip(&expected) {
        assert_eq!((block.round, block.position, block.seed), (*round, *position, *seed));
        assert!(cells[*cell].id == *id && block.usable().is_some() && block.failure.is_none());
    }
}

#[test]
fn a_relay_that_stays_is_sent_each_event_once() {
    let url = Some("ws://127.0.0.1:1".parse().unwrap());
    let config = Config { url, ..config("quick", 3) };
    let seeds = RefCell::new(Vec::new());
    let generator = Scripted::new(|task| {
        seeds.borrow_mut().push(task.seed);
        measured(plain())
    });
    played(&generator, &config, &BlockOrder::new(&cells(), 3, config.seed), |_| ());
    assert_eq!(*seeds.borrow(), (1..=3 * 5).collect::<Vec<_>>());
}

#[test]
fn a_block_that_fails_is_passed_over_and_three_in_a_row_end_the_run() {
    let fails = |exit_code| {
        let failure = Some("boom".to_owned());
        (None, Played { exit_code, failure, ..Played::default() })
    };
    let outcome = by_number(3, |number| match number {
        2 | 3 | 6 => fails(Some(1)),
        _ => measured(plain()),
    });
    assert_eq!((outcome.status, outcome.stopped, outcome.blocks.len()), (Status::Complete, None, 3 * 5));
    let failed = outcome.blocks.iter().filter(|(_, block)| block.record.is_none());
    assert!(failed.clone().all(|(_, block)| block.failure.as_deref() == Some("boom")));
    assert_eq!(failed.count(), 3);

    let outcome = by_number(3, |number| if number > 3 { fails(None) } else { measured(plain()) });
    assert_eq!((outcome.stopped, outcome.blocks.len()), (Some(Stopped::Failing), 4 + 3));
    let reason = "3 runs in a row left no record".to_owned();
    assert_eq!(outcome.status, Status::Incomplete { reason });
}

#[test]
fn times_that_are_invalid_are_made_up_for_in_further_rounds_and_a_ledger_is_not() {
    let rounds_played = |outcome: &Outcome| outcome.blocks.last().unwrap().1.round + 1;
    // The whole first round: each cell lacks one, so one further round is played.
    let once = by_number(4, |number| measured(if number < 5 { untimed() } else { plain() }));
    assert_eq!((rounds_played(&once), once.blocks.len()), (5, 5 * 5));
    for cell in 0..4 {
        let of_cell = once.blocks.iter().filter(|(of, block)| *of == cell && block.usable().is_some());
        let mut rounds: Vec<u32> = of_cell.map(|(_, block)| block.round).collect();
        rounds.dedup();
        assert_eq!(rounds, [1, 2, 3, 4]);
    }
    // Half as many rounds at most.
    assert_eq!(rounds_played(&by_number(4, |_| measured(untimed()))), 6);
    let lost = by_number(4, |_| {
        let mut record = plain();
        record.counts.deliveries -= 1;
        (Some(record), Played { exit_code: Some(4), ..Played::default() }.with_words())
    });
    assert_eq!(rounds_played(&lost), 4, "what is wrong with a ledger is wrong again");
    assert!(lost.blocks.iter().all(|(_, block)| block.counted().is_none() && block.record.is_some()));
}

#[test]
fn an_interruption_keeps_what_was_measured() {
    // The last block was ended early, once with a record of what it had and once without.
    for with_record in [true, false] {
        let (config, kept) = (config("quick", 3), RefCell::new(Vec::new()));
        let mut number = 0;
        let generator = Scripted::new(|_| {
            number += 1;
            match (number < 8, with_record) {
                (true, _) => measured(plain()),
                (false, true) => (Some(plain()), interrupted().1),
                (false, false) => interrupted(),
            }
        });
        let plan = BlockOrder::with_spare(&cells(), 3, config.seed);
        let outcome = played(&generator, &config, &plan, |blocks| *kept.borrow_mut() = blocks.to_vec());
        assert_eq!(outcome.stopped, Some(Stopped::Interrupted));
        assert_eq!(outcome.status, Status::Interrupted);
        assert_eq!(outcome.blocks.len(), 8);
        assert_eq!(outcome.blocks, *kept.borrow());
        let (_, last) = outcome.blocks.last().unwrap();
        assert_eq!((last.record.is_some(), last.usable().is_some()), (with_record, false));
        assert!(outcome.blocks[..7].iter().all(|(_, block)| block.usable().is_some()));
    }
}

#[test]
fn a_record_that_cannot_be_kept_stays_where_the_client_wrote_it() {
    let (config, cells) = (config("quick", 1), cells());
    let folder = tempfile::tempdir().unwrap();
    let plan = BlockOrder { rounds: vec![vec![0, 1]], spare: Vec::new() };
    let keep = |blocks: &[(usize, Block)]| {
        anyhow::ensure!(blocks.len() > 1, "the disk is full");
        Ok(())
    };
    let generator = Scripted::new(|_| measured(plain()));
    let request = Request {
        generator: &generator,
        config: &config,
        cells: &cells,
        plan: &plan,
        folder: folder.path(),
        keep: Some(&keep),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let mut progress = Progress::new(2, Duration::from_secs(1), true);
    runtime.block_on(run::run(&request, &mut progress, pending())).unwrap();
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    let expected = Path::new(folder.path()).join(format!("000-000-{}.json", cells[0].id));
    assert_eq!(names, [expected]);
    assert_eq!(cells[0].role, Role::Anchor);
}
