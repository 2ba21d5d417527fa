//! The load at which each cell uses a share of its own relay's cores, so that a format is measured
//! as busy as it would be, and not as busy as the others make it.
//!
//! A cell is probed twice: at a low load, which says what a delivery takes, and at the load that
//! follows. The line through both probes corrects it once, because a relay takes CPU time for being
//! awake, too, and less for each delivery when there are more.

use anyhow::{Context, Result, ensure};

use crate::{matrix::CellSpec, search::Probes};
use report::{
    merged::Merged,
    result::{AtLoad1, Block, Calibration, ChosenLoad, Config, MAX_ROUNDS, Role, SearchConfig, percent},
};

/// Seconds of a probe.
const PROBE_SECONDS: u32 = 3;

/// The load of the first probe.
const LOW: f64 = 0.5;

/// How many times the load of a probe the next may be: what a delivery takes at a low load says
/// little of what it takes far from there.
const FARTHEST: f64 = 40.0;

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

/// The question that the probes are played with.
pub fn question(scenario: &str, run: &Config, at_load_1: AtLoad1) -> SearchConfig {
    SearchConfig {
        scenario: scenario.to_owned(),
        at_load_1: Some(at_load_1),
        start_per_s: 1,
        limit_per_s: u32::MAX,
        probe_seconds: PROBE_SECONDS,
        precision: 1.0,
        seed: run.seed.wrapping_add(3 * u64::from(MAX_ROUNDS)),
        corpus: run.corpus.clone(),
        client_args: run.client_args.clone(),
        ..SearchConfig::default()
    }
}

/// Finds the load of each cell but controls; `None` after an interruption.
///
/// # Errors
/// Those of the generator, and when a probe does not tell how busy the relay was.
pub fn choose(
    cells: &[CellSpec],
    question: &SearchConfig,
    probes: &mut Probes<'_>,
    tell: &mut impl FnMut(&ChosenLoad),
) -> Result<Option<Vec<ChosenLoad>>> {
    let mut chosen: Vec<ChosenLoad> = Vec::new();
    for (index, cell) in cells.iter().enumerate().filter(|(_, cell)| cell.role != Role::Control) {
        let Some(wanted) = cell.utilisation else { continue };
        let Some(found) = calibrate((index, &cell.id, wanted), question, probes)? else { return Ok(None) };
        tell(&found);
        chosen.push(found);
    }
    Ok(Some(chosen))
}

/// Gives each cell its load, and each control that of its anchor.
pub fn give(cells: &mut [CellSpec], chosen: &[ChosenLoad]) {
    for found in chosen {
        let of = cells.iter_mut().filter(|cell| cell.id == found.cell);
        of.for_each(|cell| cell.cell.load = found.load);
    }
    let anchors: Vec<CellSpec> = cells.iter().filter(|cell| cell.role == Role::Anchor).cloned().collect();
    for control in cells.iter_mut().filter(|cell| cell.role == Role::Control) {
        let anchor = anchors.iter().find(|anchor| anchor.load() == control.load());
        control.cell.load = anchor.map_or(control.cell.load, |anchor| anchor.cell.load);
    }
}

fn calibrate(
    (cell, id, wanted): (usize, &str, f64),
    question: &SearchConfig,
    probes: &mut Probes<'_>,
) -> Result<Option<ChosenLoad>> {
    let one = question.at_load_1.context("loads are what is calibrated")?;
    let mut play = |load: f64| -> Result<Option<Calibration>> {
        let block = probes.play(cell, one.deliveries_per_s_at(load), PROBE_SECONDS)?;
        block.map(|block| measured(id, &block)).transpose()
    };
    let in_proportion = |probe: &Calibration| wanted / probe.utilisation * probe.load;
    let Some(low) = play(LOW)? else { return Ok(None) };
    let near = |from: &Calibration, load: f64| load.clamp(from.load / FARTHEST, from.load * FARTHEST);
    let Some(second) = play(near(&low, in_proportion(&low)))? else { return Ok(None) };
    let slope = (second.utilisation - low.utilisation) / (second.load - low.load);
    let on_the_line = second.load + (wanted - second.utilisation) / slope;
    // Noise between probes that are as busy as each other says nothing of a slope.
    let load = if slope > 0.0 && slope.is_finite() { on_the_line } else { in_proportion(&second) };
    let (load, made) = (near(&second, load), vec![low, second]);
    let load = one.load(one.deliveries_per_s_at(load));
    Ok(Some(ChosenLoad { cell: id.to_owned(), utilisation: wanted, load, probes: made }))
}

/// How busy the relay was in a probe.
fn measured(id: &str, block: &Block) -> Result<Calibration> {
    let why = || block.failure.clone().unwrap_or_else(|| "it has no record".to_owned());
    let record = block
        .record
        .as_ref()
        .with_context(|| format!("a probe of --utilisation of {id} failed: {}", why()))?;
    let utilisation = Merged::of_counts([record]).relay_utilisation();
    let utilisation = utilisation.with_context(|| {
        format!(
            "the relay of {id} does not tell its CPU time and cores, so --utilisation cannot ask for a share of them"
        )
    })?;
    ensure!(utilisation > 0.0, "the relay of {id} used no CPU time in {PROBE_SECONDS} s");
    let load = record.cell.load.parse().context("a record names its load")?;
    let deliveries_per_s = record.counts.envelopes() as f64 / (record.elapsed_ns.max(1) as f64 / 1e9);
    Ok(Calibration { load, utilisation, deliveries_per_s })
}
