//! Pilots of `compare run`, whose blocks are not counted:
//!
//! - `--rates auto` finds the rate that each cell keeps with a share of its cores, so that its latency is
//!   not the length of a queue.
//! - `--utilisation` finds the load at which each cell's relay uses a share of its cores, so that every
//!   format is measured equally busy.

use std::path::Path;

use anyhow::{Context, Result};

use crate::{
    generator::Generator,
    matrix::CellSpec,
    search::{SEARCH, Tell, search},
};
use report::{
    bracket::{Bracket, End, Limit},
    result::{AtLoad1, CellProbes, Chosen, Config, MAX_ROUNDS, Role, SearchConfig, percent},
};

/// Share of its cores' time that relay and generator may use at the rate of a comparison. The mean
/// wait of a queue at 0.6 is one and a half service times (M/M/1: ρ/(1−ρ); Kleinrock, Queueing
/// Systems, volume 1, 1975). A share of a cell's capacity would not do: sessions do not grow with
/// the rate, and the fewer deliveries share a flush the more each costs.
pub(crate) const UTILISATION_MAX: f64 = 0.6;

/// The SLO of a cell at that rate: the rate itself. Latencies are what the run is to find.
const KEPT: &str = "lost=0, achieved>=0.97";

/// Share of the weakest cell's rate that is chosen, which a probe knows to a tenth.
const CHOSEN: f64 = 0.9;

/// The question of a rate that each cell keeps.
pub fn of_rate() -> SearchConfig {
    SearchConfig {
        slo: KEPT.to_owned(),
        utilisation: Some(UTILISATION_MAX),
        start_per_s: 250,
        limit_per_s: 1_000_000,
        precision: 0.1,
        ..SearchConfig::default()
    }
}

/// The question of the load at which each cell uses a share of its own relay's cores.
pub fn of_share(share: f64, at_load_1: AtLoad1) -> SearchConfig {
    SearchConfig {
        at_load_1: Some(at_load_1),
        utilisation: Some(share),
        start_per_s: at_load_1.deliveries_per_s_at(0.5),
        limit_per_s: at_load_1.deliveries_per_s_at(cell::MOST_LOAD),
        precision: 0.05,
        ..SearchConfig::default()
    }
}

/// The configuration of a pilot's probes. Seeds are other ones than those of counted rounds, and of
/// pilots of the other kind.
pub fn probes(scenario: &str, run: &Config, question: &SearchConfig) -> Config {
    let seeds = if question.at_load_1.is_some() { 3 } else { 2 };
    Config {
        scenarios: vec![scenario.to_owned()],
        profile: SEARCH.to_owned(),
        rounds: 1,
        seconds: 3,
        seed: run.seed.wrapping_add(seeds * u64::from(MAX_ROUNDS)),
        corpus: run.corpus.clone(),
        client_args: run.client_args.clone(),
        ..Config::default()
    }
}

/// Finds the rate or load of each cell; `None` after an interruption.
///
/// # Errors
/// The generator's errors, and when a cell has no such rate.
pub fn choose(
    cells: &[CellSpec],
    (config, question): (&Config, &SearchConfig),
    place: (&dyn Generator, &Path),
    tell: Tell<'_>,
) -> Result<Option<Vec<Chosen>>> {
    let found = search(cells, (config, question), place, tell)?;
    let share = question.utilisation.context("a pilot seeks a share of cores")?;
    let chosen = |cell: CellProbes| {
        let end = Limit::from_probes(question, &cell).end;
        let says_nothing =
            matches!(end, End::Disturbed | End::TooFewAnswers | End::RelayChanged | End::Unfinished);
        let root = Bracket::of(question, &cell).sustained().filter(|_| !says_nothing).with_context(|| {
            let why = cell.probes.last().map_or_else(String::new, |probe| probe.why.join("; "));
            let found = if end == End::Disturbed { "found the host too busy for a probe" } else { "has no probe" };
            format!(
                "{} of {} {found} with at most {} % of its cores ({why}): leave it out, or give --rates or --load a \
                 number",
                cell.cell,
                config.scenarios.join(", "),
                percent(share),
            )
        })?;
        Ok(Chosen {
            cell: cell.cell,
            utilisation: share,
            rate_per_s: question.at_load_1.is_none().then_some(root),
            load: question.at_load_1.map(|one| one.load(root)),
            probes: cell.probes,
        })
    };
    found.finished.then(|| found.search.cells.into_iter().map(chosen).collect()).transpose()
}

/// The rate of all cells: what the weakest keeps, with something to spare.
pub fn weakest(chosen: Vec<Chosen>) -> Option<Chosen> {
    let weakest = chosen.into_iter().min_by_key(|one| one.rate_per_s)?;
    let rate_per_s = weakest.rate_per_s.map(|rate| measure::whole((f64::from(rate) * CHOSEN).max(1.0)));
    Some(Chosen { rate_per_s, ..weakest })
}

/// Each cell once at each share of its own relay's cores.
pub fn at_shares(cells: &[CellSpec], shares: &[f64]) -> Vec<CellSpec> {
    let mut shares = shares.to_vec();
    shares.sort_by(f64::total_cmp);
    shares.dedup();
    let several = shares.len() > 1;
    let at = |share: f64| {
        cells.iter().cloned().map(move |mut cell| {
            if several {
                cell.id = format!("{}+{}-percent", cell.id, percent(share));
            }
            CellSpec { utilisation: Some(share), ..cell }
        })
    };
    shares.into_iter().flat_map(at).collect()
}

/// Gives each cell its load, and each control that of its anchor.
pub fn give(cells: &mut [CellSpec], chosen: &[Chosen]) {
    for cell in cells.iter_mut() {
        let found = chosen.iter().find(|found| found.cell == cell.id);
        cell.cell.load = found.and_then(|found| found.load).unwrap_or(cell.cell.load);
    }
    let anchors: Vec<CellSpec> = cells.iter().filter(|cell| cell.role == Role::Anchor).cloned().collect();
    for control in cells.iter_mut().filter(|cell| cell.role == Role::Control) {
        let anchor = anchors.iter().find(|anchor| anchor.load() == control.load());
        control.cell.load = anchor.map_or(control.cell.load, |anchor| anchor.cell.load);
    }
}
