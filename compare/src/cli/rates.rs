//! The pilots of `compare run --rates auto` and `--utilisation`.

use anyhow::{Context, Result, anyhow};
use cell::Cell;
use measure::Status;

use super::{folder::Folder, links};
use crate::{
    matrix::CellSpec, own_core, rate, search::Probes, this_machine::ThisMachine, usage::skips_invalid,
};
use program::UsageError;
use report::result::{AtLoad1, ChosenLoad, Config, Header, MAX_ROUNDS, Probe, ResultFile, Search};

/// Runs the pilot of `--rates auto` for each scenario and sets the rate of its cells; false after
/// an interruption. Its probes are kept in the folder until the run begins.
pub(super) fn choose_rates(
    quiet: bool,
    config: &mut Config,
    cells: &mut [CellSpec],
    header: &Header,
    folder: &Folder<'_>,
) -> Result<bool> {
    let program = measure::own_program().context("cannot find this program's own file")?;
    let running = tempfile::tempdir().context("cannot make a folder for records")?;
    let tell = |line: &str| {
        if !quiet {
            // A closed stderr loses nothing: the result has the same.
            program::report(line);
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
            let header = Header { status: of, config: config.clone(), ..header.clone() };
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

/// Plays the probes of `--utilisation` and sets the load of each cell; false after an interruption.
pub(super) fn choose_loads(quiet: bool, config: &mut Config, cells: &mut [CellSpec]) -> Result<bool> {
    let program = measure::own_program().context("cannot find this program's own file")?;
    let running = tempfile::tempdir().context("cannot make a folder for records")?;
    let mut tell = |chosen: &ChosenLoad| {
        if !quiet {
            // A closed stderr loses nothing: the result has the same.
            program::report(&chosen.line(None));
        }
    };
    for scenario in config.scenarios.clone() {
        let own: Vec<CellSpec> =
            cells.iter().filter(|cell| cell.cell.scenario == scenario).cloned().collect();
        let Some(first) = own.first() else { continue };
        let flags = (config.corpus.as_deref(), &config.client_args[..]);
        let question = own_core::question(&scenario, config, at_load_1(&first.cell, flags, config.seconds)?);
        let machine = ThisMachine::new(&program, &question.as_run(), None);
        let mut probes = Probes::new(&machine, &own, &question, running.path())?;
        let Some(chosen) = own_core::choose(&own, &question, &mut probes, &mut tell)? else {
            return Ok(false);
        };
        config.chosen_loads.extend(chosen);
    }
    own_core::give(cells, &config.chosen_loads);
    Ok(true)
}

/// Demand of a cell's plan at load 1, with this corpus and these arguments of clients.
pub(super) fn at_load_1(
    cell: &Cell,
    (corpus, client_args): (Option<&str>, &[String]),
    seconds: u32,
) -> Result<AtLoad1> {
    let set = links::values(client_args, "--set");
    let skip_invalid = skips_invalid(client_args);
    let asked = workload::asked_per_second(cell, &set, seconds, corpus, skip_invalid).map_err(UsageError)?;
    let deliveries_per_s =
        if asked.deliveries_per_s > 0.0 { asked.deliveries_per_s } else { asked.publishes_per_s };
    if deliveries_per_s <= 0.0 {
        let scenario = &cell.scenario;
        let why =
            format!("{scenario} asks for no delivery in {seconds} s: take more seconds or another scenario");
        return Err(UsageError(anyhow!(why)).into());
    }
    Ok(AtLoad1 { deliveries_per_s })
}
