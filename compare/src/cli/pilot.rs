//! Runs the blocks of `compare run`, and before them the pilots that decide about their number
//! (`--precision`) and their rate (`--rates auto`).

use std::{
    env, fs,
    io::{self, Write},
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use measure::Status;

use super::folder::Folder;
use crate::{
    assemble::Header,
    generator::Generator,
    matrix::CellSpec,
    plan::Plan,
    precision,
    progress::Progress,
    rate, report,
    result::{Block, Config, MAX_ROUNDS, PlannedRounds, Probe, ResultFile, Search, unfinished},
    run::{Outcome, Request, run_until_signal},
    search::Probes,
    this_machine::ThisMachine,
};

/// From the seed of the counted rounds to the pilot's: more than there are counted blocks, of which
/// each has a seed of its own where the relay stays.
const SEEDS_BEFORE_PILOT: u64 = 1 << 32;

/// Runs the pilot of `--rates auto` for each scenario and sets the rate of its cells; false after
/// an interruption. Its probes are kept in the folder until the run begins.
pub(super) fn choose_rates(
    quiet: bool,
    config: &mut Config,
    cells: &mut [CellSpec],
    header: &dyn Fn(&Config) -> Header,
    folder: &Folder<'_>,
) -> Result<bool> {
    let program = env::current_exe().context("cannot find this program's own file")?;
    let running = tempfile::tempdir().context("cannot make a folder for records")?;
    let tell = |line: &str| {
        if !quiet {
            // A closed stderr loses nothing: the result has the same.
            let _ = writeln!(io::stderr(), "{line}");
        }
    };
    for scenario in config.scenarios.clone() {
        let seed = config.seed.wrapping_add(2 * u64::from(MAX_ROUNDS));
        let question = rate::question(&scenario, seed, config.corpus.clone(), config.client_args.clone());
        let own: Vec<CellSpec> =
            cells.iter().filter(|cell| cell.cell.scenario == scenario).cloned().collect();
        tell(&format!("Pilot for the rate of {scenario}, which is not counted:"));
        let machine = ThisMachine::new(&program, &question.as_run(), None);
        let mut probes = Probes::new(&machine, &own, &question, running.path())?;
        let corpus = probes.corpus();
        let mut search = Search::begun(question.clone(), own.iter().map(|cell| cell.id.as_str()));
        let mut say = |cell: &str, probe: &Probe| {
            tell(&format!("{cell}: {}", probe.line()));
            search.add(cell, probe);
            let of = Status::Incomplete { reason: "the pilot of --rates auto".to_owned() };
            let header = Header { status: of, ..header(config) };
            folder.keep(&ResultFile::of_search(header, search.clone(), corpus.get().cloned()));
        };
        let Some(chosen) = rate::choose(&own, &question, &mut probes, &mut say)? else { return Ok(false) };
        tell(&chosen.line());
        for cell in cells.iter_mut().filter(|cell| cell.cell.scenario == scenario) {
            cell.cell.rate_per_s = Some(f64::from(chosen.rate_per_s));
        }
        config.chosen_rates.push(chosen);
    }
    Ok(true)
}

/// What a run's blocks have in common.
pub(super) struct Place<'a> {
    pub(super) generator: &'a dyn Generator,
    pub(super) cells: &'a [CellSpec],
    pub(super) running: &'a Path,
    /// The result's folder, in which each block is kept when it ends.
    pub(super) folder: &'a Path,
    pub(super) quiet: bool,
}

impl Place<'_> {
    /// Runs the rounds of a plan.
    pub(super) fn measure(&self, header: Header, plan: Plan) -> Result<(Plan, Outcome)> {
        let Place { generator, cells, running, .. } = *self;
        let config = header.config.clone();
        let kept = unfinished::begin(self.folder, &ResultFile::planned(header, cells, &plan))?;
        let keep = |blocks: &[(usize, Block)]| {
            let mut last = blocks.last().into_iter();
            last.try_for_each(|(cell, block)| unfinished::keep(&kept, &cells[*cell].id, block))
        };
        let request =
            Request { generator, config: &config, cells, plan: &plan, folder: running, keep: Some(&keep) };
        let blocks = u32::try_from(plan.blocks()).context("a plan has few blocks")?.max(1);
        let guess = plan.estimate(cells, config.seconds) / blocks;
        let mut progress = Progress::new(plan.blocks(), guess, self.quiet);
        let outcome = run_until_signal(&request, &mut progress);
        progress.end();
        Ok((plan, outcome?))
    }

    fn tell(&self, line: &str) {
        if !self.quiet {
            // A closed stderr loses nothing: the result has the same.
            let _ = writeln!(io::stderr(), "{line}");
        }
    }
}

/// What came of the rounds before the counted ones.
pub(super) enum Pilot {
    /// None were asked for.
    None,
    /// The rounds that are counted follow from them.
    Planned(PlannedRounds),
    /// It was not finished: what it measured is what there is.
    Stopped(Plan, Outcome),
    /// No number of rounds follows from it, or none with an interval.
    Refused(String),
}

/// Runs the pilot of `--precision` and plans the rounds.
pub(super) fn pilot(
    place: &Place<'_>,
    header: &Header,
    precision: f64,
    max_time: Option<Duration>,
) -> Result<Pilot> {
    // Other draws than those of the counted rounds.
    let seed = pilot_seed(header.config.seed);
    let config = Config { rounds: precision::PILOT_ROUNDS, seed, ..header.config.clone() };
    place.tell(&format!("Pilot of {} rounds, which are not counted:", config.rounds));
    // Apart from records of the counted rounds, whose files have the same names.
    let running = place.running.join("pilot");
    fs::create_dir(&running).with_context(|| format!("cannot make {}", running.display()))?;
    let apart = Place { running: &running, ..*place };
    let began = Instant::now();
    let plan = Plan::new(place.cells, config.rounds, config.seed);
    let header = Header { config: config.clone(), ..header.clone() };
    let of = Status::Incomplete { reason: "the pilot of --precision".to_owned() };
    let (plan, mut outcome) = apart.measure(Header { status: of, ..header.clone() }, plan)?;
    let round = began.elapsed() / config.rounds;
    // Stays where agents' records do.
    let _ = fs::remove_dir(&running);
    if outcome.stopped.is_some() {
        outcome.status = Status::Incomplete { reason: "it ended in the pilot of --precision".to_owned() };
        return Ok(Pilot::Stopped(plan, outcome));
    }
    let result = ResultFile::assemble(header, place.cells, &plan, outcome.blocks);
    Ok(match PlannedRounds::of(report::deviations(&result), round, precision, max_time) {
        Some(planned) if planned.is_too_few() => Pilot::Refused(planned.to_string()),
        Some(planned) => {
            place.tell(&planned.to_string());
            Pilot::Planned(planned)
        }
        None => Pilot::Refused(
            "the pilot has no CPU time of two rounds to plan with; --rounds N plans without".to_owned(),
        ),
    })
}

fn pilot_seed(seed: u64) -> u64 {
    seed.wrapping_add(SEEDS_BEFORE_PILOT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{plan::round_seed, result::with_further};

    #[test]
    fn no_counted_block_has_a_seed_of_the_pilot() {
        // Where the relay stays, each block takes a seed.
        let after = |seed, rounds: u32| round_seed(seed, rounds as usize * 1_000);
        let counted = 7..=after(7, with_further(MAX_ROUNDS));
        let pilot = pilot_seed(7);
        assert!(!counted.contains(&pilot) && !counted.contains(&after(pilot, precision::PILOT_ROUNDS)));
    }
}
