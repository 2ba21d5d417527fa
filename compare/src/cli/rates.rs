//! The pilots of `compare run --rates auto` and `--utilisation`.

use std::collections::BTreeMap;

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
    let is_asked = |cell: &&CellSpec| match cell.role {
        Role::Control => false,
        Role::Floor => cell.utilisation.is_some(),
        Role::Anchor | Role::Cell => true,
    };
    let asked: Vec<CellSpec> = cells.iter().filter(is_asked).cloned().collect();
    let about = |cell: &CellSpec| (cell.cell.scenario.clone(), cell.utilisation);
    for own in asked.chunk_by(|one, other| about(one) == about(other)) {
        let (scenario, share) = about(&own[0]);
        let question = match share {
            Some(share) => pilot::of_share(share, at_load_1(&own[0].cell, config)?),
            None => pilot::of_rate(),
        };
        let probes = pilot::probes(&scenario, config, &question);
        let Some(mut chosen) = found(quiet, (&probes, &question), own, header, folder)? else {
            return Ok(false);
        };
        if share.is_none() {
            let weakest = pilot::weakest(chosen).context("there is a cell")?;
            for cell in cells.iter_mut().filter(|cell| cell.cell.scenario == scenario) {
                cell.cell.rate_per_s = weakest.rate_per_s.map(f64::from);
            }
            chosen = vec![weakest];
        }
        chosen.iter().for_each(|one| note(quiet, &one.line(None)));
        config.chosen.extend(chosen);
    }
    pilot::give(cells, &config.chosen);
    Ok(true)
}

/// What a pilot finds of these cells; `None` after an interruption.
fn found(
    quiet: bool,
    (config, question): (&Config, &SearchConfig),
    cells: &[CellSpec],
    header: &ResultFile,
    folder: &Folder<'_>,
) -> Result<Option<Vec<report::result::Chosen>>> {
    let program = measure::own_program().context("cannot find this program's own file")?;
    let running = tempfile::TempDir::with_prefix("compare-").context("cannot make a folder for records")?;
    note(quiet, &format!("Pilot for {}, which is not counted:", config.scenarios.join(", ")));
    let machine = ThisMachine::new(&program, config, BTreeMap::new())?;
    let mut say = |found: &Found, cell: &str, probe: &Probe| {
        note(quiet, &format!("{cell}: {}", probe.line(question.axis())));
        let status = Status::Incomplete { reason: "a pilot".to_owned() };
        folder.keep(&found.result(ResultFile { config: config.clone(), ..header.clone() }, status));
    };
    pilot::choose(cells, (config, question), (&machine, running.path()), &mut say)
}

/// Demand of a cell's plan at load 1, in blocks of this configuration.
pub(super) fn at_load_1(cell: &Cell, config: &Config) -> Result<AtLoad1> {
    let Config { corpus, client_args, seconds, .. } = config;
    let (set, skip_invalid) = (values(client_args, "--set"), skips_invalid(client_args));
    let asked = workload::asked_per_second(cell, &set, *seconds, corpus.as_deref(), skip_invalid);
    let asked = asked.map_err(UsageError)?;
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
