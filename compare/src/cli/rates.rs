//! The pilots of `compare run --rates auto`.

use std::{
    env,
    io::{self, Write},
};

use anyhow::{Context, Result};
use measure::Status;

use super::folder::Folder;
use crate::{
    assemble::Header,
    matrix::CellSpec,
    rate,
    result::{Config, MAX_ROUNDS, Probe, ResultFile, Search},
    search::Probes,
    this_machine::ThisMachine,
};

/// Runs the pilot of `--rates auto` for each scenario and sets the rate of its cells; false after
/// an interruption. Its probes are kept in the folder until the run begins.
pub(super) fn choose_rates(
    quiet: bool,
    config: &mut Config,
    cells: &mut [CellSpec],
    header: &Header,
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
