//! Plays the rounds of `compare run`. With `--precision` a pilot goes before, and decides how many.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use measure::Status;

use crate::{
    assemble::{self, assemble},
    generator::Generator,
    matrix::CellSpec,
    metrics::Metrics,
    outline,
    plan::BlockOrder,
    progress::Progress,
    run::{Outcome, Request, Stopped, run},
    usage::{note, until_signal},
};
use report::{
    precision,
    result::{Block, Config, PlannedRounds, ResultFile, unfinished},
};

/// From the seed of the counted rounds to the pilot's: more than there are counted blocks, of which
/// each has a seed of its own where the relay stays.
const SEEDS_BEFORE_PILOT: u64 = 1 << 32;

/// Settings that the blocks of a run have in common.
#[derive(Clone, Copy)]
pub struct Rounds<'a> {
    /// Plays the blocks.
    pub generator: &'a dyn Generator,
    /// The matrix.
    pub cells: &'a [CellSpec],
    /// An existing folder for the records of single blocks.
    pub running: &'a Path,
    /// The result's folder, in which each block is kept when it ends.
    pub folder: &'a Path,
    /// Whether nothing is said on stderr.
    pub quiet: bool,
    /// The counts for `--metrics-listen`, if it is given.
    pub metrics: Option<&'a Metrics>,
}

/// Rounds that were played.
#[derive(Debug)]
pub struct Measured {
    /// Their result, with the rounds that were planned.
    pub result: ResultFile,
    /// Why not all of them were.
    pub stopped: Option<Stopped>,
}

/// No number of rounds follows from a pilot, or none with an interval: the text says why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoRounds(String);

/// Outcome of the pilot.
enum Pilot {
    /// The rounds that are counted follow from it.
    Planned(PlannedRounds),
    /// It was not finished: what it measured is what there is.
    Stopped(Box<Measured>),
}

impl Rounds<'_> {
    /// Plays the rounds of `header`, or as many as give intervals of this `precision` within so
    /// much time, by a pilot.
    ///
    /// # Errors
    /// The generator's errors, [`NoRounds`], and when blocks cannot be kept.
    pub fn play(
        &self,
        mut header: ResultFile,
        precision: Option<f64>,
        max_time: Option<Duration>,
    ) -> Result<Measured> {
        if let Some(precision) = precision {
            match self.pilot(&header, precision, max_time)? {
                Pilot::Planned(planned) => {
                    header.config.rounds = planned.rounds;
                    header.config.planned_rounds = Some(planned);
                }
                Pilot::Stopped(measured) => return Ok(*measured),
            }
        }
        // What it says is of clients and relays.
        let is_of_pages = header.config.browser.is_some();
        if !is_of_pages && self.cells.iter().any(|cell| cell.cell.saturate.is_none()) {
            note(self.quiet, &outline::power(self.cells, &header.config));
        }
        let plan = BlockOrder::with_spare(self.cells, header.config.rounds, header.config.seed);
        self.measure(header, &plan)
    }

    /// Plays a plan and keeps each block.
    fn measure(&self, header: ResultFile, plan: &BlockOrder) -> Result<Measured> {
        let Rounds { generator, cells, running, .. } = *self;
        let config = &header.config;
        let kept = unfinished::begin(self.folder, &assemble::planned(header.clone(), cells, plan))?;
        let keep = |blocks: &[(usize, Block)]| {
            let mut last = blocks.last().into_iter();
            last.try_for_each(|(cell, block)| unfinished::keep(&kept, &cells[*cell].id, block))
        };
        let request = Request { generator, config, cells, plan, folder: running, keep: Some(&keep) };
        let blocks = u32::try_from(plan.blocks()).context("a plan has few blocks")?.max(1);
        let guess = plan.estimate(cells, config.seconds) / blocks;
        let mut progress = Progress::new(plan.blocks(), guess, self.quiet).scraped(self.metrics.cloned());
        let outcome = until_signal(async |interrupt| run(&request, &mut progress, interrupt.wait()).await);
        progress.end();
        let Outcome { blocks, status, stopped } = outcome?;
        Ok(Measured { result: assemble(ResultFile { status, ..header }, cells, plan, blocks), stopped })
    }

    /// Runs the pilot of `--precision` and plans the rounds.
    fn pilot(&self, header: &ResultFile, precision: f64, max_time: Option<Duration>) -> Result<Pilot> {
        let asked = Config { rounds: precision::PILOT_ROUNDS, ..header.config.clone() };
        // Other draws than those of the counted rounds.
        let config = Config { seed: pilot_seed(asked.seed), ..asked.clone() };
        note(self.quiet, &format!("Pilot of {} rounds, which are not counted:", config.rounds));
        // Apart from records of the counted rounds, whose files have the same names.
        let running = self.running.join("pilot");
        fs::create_dir(&running).with_context(|| format!("cannot make {}", running.display()))?;
        let apart = Rounds { running: &running, ..*self };
        let began = Instant::now();
        let plan = BlockOrder::new(self.cells, config.rounds, config.seed);
        let of = Status::Incomplete { reason: "the pilot of --precision".to_owned() };
        let mut measured = apart.measure(ResultFile { config, status: of, ..header.clone() }, &plan)?;
        let round = began.elapsed() / asked.rounds;
        // Stays where agents' records do.
        let _ = fs::remove_dir(&running);
        if measured.stopped.is_some() {
            measured.result.config = asked;
            measured.result.status =
                Status::Incomplete { reason: "it ended in the pilot of --precision".to_owned() };
            return Ok(Pilot::Stopped(Box::new(measured)));
        }
        let deviations = report::deviations(&measured.result);
        let no_cpu = "the pilot has no CPU time of two rounds to plan with; --rounds N plans without";
        let planned = PlannedRounds::from_pilot(deviations, round, precision, max_time)
            .ok_or_else(|| NoRounds(no_cpu.to_owned()))?;
        if planned.is_too_few() {
            return Err(NoRounds(planned.to_string()).into());
        }
        note(self.quiet, &planned.to_string());
        Ok(Pilot::Planned(planned))
    }
}

fn pilot_seed(seed: u64) -> u64 {
    seed.wrapping_add(SEEDS_BEFORE_PILOT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::round_seed;
    use report::result::{MAX_ROUNDS, with_further};

    #[test]
    fn no_counted_block_has_a_seed_of_the_pilot() {
        // Where the relay stays, each block takes a seed.
        let after = |seed, rounds: u32| round_seed(seed, rounds as usize * 1_000);
        let counted = 7..=after(7, with_further(MAX_ROUNDS));
        let pilot = pilot_seed(7);
        assert!(!counted.contains(&pilot) && !counted.contains(&after(pilot, precision::PILOT_ROUNDS)));
    }
}
