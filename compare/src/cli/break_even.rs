//! `compare search --metric break-even-bandwidth`: the grid is measured in rounds, and a result
//! folder is written.

use std::{ffi::OsString, time::SystemTime};

use anyhow::{Context, Result, anyhow};
use measure::{Exit, Status, utc};

use super::{folder::Folder, links, stopped_code};
use crate::{
    args::SearchFlags,
    assemble,
    bandwidths::Grid,
    git,
    matrix::{CellSpec, cells},
    progress::Progress,
    run::{Outcome, Request, run_until_signal},
    this_machine::ThisMachine,
    usage::{Ended, NOTHING_MEASURED, refuse},
};
use program::{UsageError, report as say};
use report::result::{Block, BreakEvenConfig, Header, ResultFile, Role};

/// Measures the grid and writes a result folder.
pub(super) fn find(flags: &SearchFlags, args: &[OsString]) -> Result<Exit> {
    let mut cells = cells(&flags.matrix().map_err(UsageError)?)?;
    cells.retain(|cell| !matches!(cell.role, Role::Control | Role::Floor));
    let config = flags.break_even();
    refuse(refusal(&config, &cells))?;
    let mut grid = Grid::new(&config, &cells).map_err(|reason| UsageError(anyhow!(reason)))?;
    let mut as_run = config.as_run();
    // Advice is for the flag that this search has.
    let note = |line: &str| say(&line.replace("--seconds", "--probe-seconds"));
    if let Some(reason) = links::size(Some(config.seconds), &mut as_run, &mut grid.blocks, note)? {
        return Err(Ended { exit: Exit::NotPossible, reason }.into());
    }
    let started = SystemTime::now();
    let program = measure::own_program().context("cannot find this program's own file")?;
    let running = tempfile::tempdir().context("cannot make a folder for records")?;
    let header = assemble::header(args, git::current(), started, as_run.clone());
    let plan = grid.plan();
    let guess = plan.estimate(&grid.blocks, config.seconds) / u32::try_from(plan.blocks())?.max(1);
    let mut progress = Progress::new(plan.blocks(), guess, false);
    let folder = Folder::new(&flags.out, format!("{}-break-even-{}", utc::compact(started), config.seed));
    let result_of = |blocks: &[(usize, Block)], status: Status| {
        let header = Header { status, ..header.clone() };
        let corpus = blocks.iter().find_map(|(_, block)| Some(block.record.as_ref()?.corpus.clone()));
        ResultFile::of_break_even(header, grid.found(blocks), corpus)
    };
    let keep = |blocks: &[(usize, Block)]| {
        if blocks.iter().any(|(_, block)| block.record.is_some()) {
            folder.keep(&result_of(blocks, Status::Complete));
        }
        Ok(())
    };
    let request = Request {
        generator: &ThisMachine::new(&program, &as_run, None),
        config: &as_run,
        cells: &grid.blocks,
        plan: &plan,
        folder: running.path(),
        keep: Some(&keep),
    };
    let outcome = run_until_signal(&request, &mut progress);
    progress.end();
    let Outcome { blocks, status, stopped } = outcome?;
    if blocks.iter().all(|(_, block)| block.record.is_none()) {
        let exit = stopped_code(stopped).unwrap_or(Exit::Error);
        return Err(Ended { exit, reason: NOTHING_MEASURED.to_owned() }.into());
    }
    let mut result = result_of(&blocks, status.clone());
    let counted = (result.break_even.iter().flat_map(|found| &found.cells))
        .flat_map(|cell| &cell.blocks)
        .any(|block| block.time_ns_p50.is_some());
    folder.publish(&mut result, false, |_, _| Ok(()))?;
    Ok(match stopped_code(stopped) {
        Some(exit) => exit,
        None if status != Status::Complete => Exit::Error,
        None if !counted => Exit::Invalid,
        None => Exit::Success,
    })
}

/// Why cells on a grid have no break-even.
fn refusal(config: &BreakEvenConfig, cells: &[CellSpec]) -> Option<&'static str> {
    if cells.len() < 2 {
        return Some(
            "a break-even is of two cells; give --format or --compression more, as in --format json,dannypack",
        );
    }
    (config.down_bits_per_s.len() < 2)
        .then_some("a break-even takes two bandwidths or more; give --bandwidths more")
}
