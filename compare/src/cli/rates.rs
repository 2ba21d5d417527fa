//! The pilots of `compare run --rates auto` and `--utilisation`.

use anyhow::{Context, Result, anyhow};
use cell::Cell;
use measure::Status;

use super::folder::Folder;
use crate::{
    matrix::CellSpec,
    pilot,
    search::Found,
    this_machine::ThisMachine,
    usage::{note, skips_invalid, values},
};
use program::UsageError;
use report::result::{AtLoad1, Config, Probe, ResultFile, Role, SearchConfig};

/// Searches the rate of each scenario, or with shares of cores the load of each cell, and sets it;
/// false after an interruption. Probes are kept in the folder until the run begins.
pub(super) fn choose(
    quiet: bool,
    config: &mut Config,
    cells: &mut [CellSpec],
    header: &ResultFile,
    folder: &Folder<'_>,
) -> Result<bool> {
    for scenario in config.scenarios.clone() {
        let of_scenario: Vec<CellSpec> = (cells.iter())
            .filter(|cell| cell.cell.scenario == scenario && cell.role != Role::Control)
            .cloned()
            .collect();
        let mut shares: Vec<f64> = of_scenario.iter().filter_map(|cell| cell.utilisation).collect();
        shares.dedup();
        let shares = if shares.is_empty() { vec![None] } else { shares.into_iter().map(Some).collect() };
        for share in shares {
            let is_asked = |cell: &&CellSpec| match share {
                Some(_) => cell.utilisation == share,
                None => cell.role != Role::Floor,
            };
            let own: Vec<CellSpec> = of_scenario.iter().filter(is_asked).cloned().collect();
            let question = match share {
                Some(share) => {
                    let flags = (config.corpus.as_deref(), &config.client_args[..]);
                    pilot::of_share(&scenario, config, share, at_load_1(&own[0].cell, flags, config.seconds)?)
                }
                None => pilot::of_rate(&scenario, config),
            };
            let Some(mut chosen) = found(quiet, &question, &own, config, header, folder)? else {
                return Ok(false);
            };
            if share.is_none() {
                let weakest = pilot::weakest(chosen).context("there is no cell to compare")?;
                for cell in cells.iter_mut().filter(|cell| cell.cell.scenario == scenario) {
                    cell.cell.rate_per_s = weakest.rate_per_s.map(f64::from);
                }
                chosen = vec![weakest];
            }
            chosen.iter().for_each(|one| note(quiet, &one.line(None)));
            config.chosen.extend(chosen);
        }
    }
    pilot::give(cells, &config.chosen);
    Ok(true)
}

/// What a pilot finds of these cells; `None` after an interruption.
fn found(
    quiet: bool,
    question: &SearchConfig,
    cells: &[CellSpec],
    config: &Config,
    header: &ResultFile,
    folder: &Folder<'_>,
) -> Result<Option<Vec<report::result::Chosen>>> {
    let program = measure::own_program().context("cannot find this program's own file")?;
    let running = tempfile::TempDir::with_prefix("compare-").context("cannot make a folder for records")?;
    note(quiet, &format!("Pilot for {}, which is not counted:", question.scenario));
    let machine = ThisMachine::new(&program, &question.as_run(), None);
    let mut say = |found: &Found, cell: &str, probe: &Probe| {
        note(quiet, &format!("{cell}: {}", probe.line(question.axis())));
        let of = Status::Incomplete { reason: "a pilot".to_owned() };
        let (search, corpus) = (Some(found.search.clone()), found.corpus.clone());
        let config = config.clone();
        folder.keep(&ResultFile { status: of, config, search, corpus, ..header.clone() });
    };
    pilot::choose(cells, question, (&machine, running.path()), &mut say)
}

/// Demand of a cell's plan at load 1, with this corpus and these arguments of clients.
pub(super) fn at_load_1(
    cell: &Cell,
    (corpus, client_args): (Option<&str>, &[String]),
    seconds: u32,
) -> Result<AtLoad1> {
    let set = values(client_args, "--set");
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
