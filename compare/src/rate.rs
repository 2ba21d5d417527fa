//! The rate of a comparison of latencies, chosen by a pilot: one at which no cell uses so much of
//! its cores that its latency is the length of a queue.

use anyhow::Result;
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

use crate::{
    matrix::CellSpec,
    probe::{self, PlannedProbe},
    search::Probes,
};
use report::{
    Utilisation,
    bracket::Bracket,
    merged::Merged,
    result::{ChosenRate, Probe, ProbeOutcome, Purpose, Role, SearchConfig},
    slo::Slo,
};

/// Share of its cores' time that relay and generator may use. The mean wait of a queue at 0.6 is
/// one and a half service times (M/M/1: ρ/(1−ρ); Kleinrock, Queueing Systems, volume 1, 1975). A
/// share of a cell's capacity would not do: sessions do not grow with the rate, and the fewer
/// deliveries share a flush the more each costs.
const UTILISATION_MAX: f64 = 0.6;

/// The SLO of a cell in the pilot beside [`UTILISATION_MAX`]: the rate itself. Latencies are what
/// the run is to find.
const KEPT: &str = "lost=0, achieved>=0.97";

/// Events published per second in the first probe.
const START_PER_S: u32 = 250;

/// The highest rate of a pilot.
const LIMIT_PER_S: u32 = 1_000_000;

/// Seconds of a probe of the pilot.
const PROBE_SECONDS: u32 = 3;

/// How closely the pilot knows a capacity: a rate at a share of it needs no more.
const PRECISION: f64 = 0.15;

/// Share of the lowest rate so far that a cell must keep for not being weaker, and share of the
/// weakest cell's that is chosen: every cell kept it.
const AS_STRONG: f64 = 0.9;

/// The question of the pilot.
pub(crate) fn question(
    scenario: &str,
    seed: u64,
    corpus: Option<String>,
    client_args: Vec<String>,
) -> SearchConfig {
    SearchConfig {
        scenario: scenario.to_owned(),
        slo: KEPT.to_owned(),
        start_per_s: START_PER_S,
        limit_per_s: LIMIT_PER_S,
        probe_seconds: PROBE_SECONDS,
        precision: PRECISION,
        seed,
        corpus,
        client_args,
        ..SearchConfig::default()
    }
}

/// Finds the weakest of the cells of one scenario and chooses the rate. Every cell is probed at
/// nearly the lowest rate so far; only one that misses there is searched. `None` after an
/// interruption.
///
/// # Errors
/// Those of the generator, and when a cell keeps no rate.
pub fn choose(
    cells: &[CellSpec],
    config: &SearchConfig,
    probes: &mut Probes<'_>,
    tell: &mut impl FnMut(&str, &Probe),
) -> Result<Option<ChosenRate>> {
    let mut pilot = Pilot { cells, config, probes, tell, made: Vec::new() };
    let compared = |index: &usize| !matches!(cells[*index].role, Role::Floor | Role::Control);
    let mut order: Vec<usize> = (0..cells.len()).filter(compared).collect();
    order.shuffle(&mut ChaCha8Rng::seed_from_u64(config.seed));
    let mut weakest: Option<(usize, u32)> = None;
    for cell in order {
        if let Some((_, lowest)) = weakest {
            match pilot.probe(cell, share_of(lowest, AS_STRONG))? {
                Some(ProbeOutcome::Pass) => continue,
                Some(_) => {}
                None => return Ok(None),
            }
        }
        let start = weakest.map_or(config.start_per_s, |(_, lowest)| share_of(lowest, 0.5));
        let Some(found) = pilot.search(cell, start)? else { return Ok(None) };
        let Some(capacity) = found else {
            anyhow::bail!(
                "{} of {} keeps no rate with at most {:.0} % of its cores, or the host is too busy to tell: leave it \
                 out, or give --rates a number",
                cells[cell].id,
                config.scenario,
                UTILISATION_MAX * 100.0
            );
        };
        if weakest.is_none_or(|(_, lowest)| capacity < lowest) {
            weakest = Some((cell, capacity));
        }
    }
    let Some((cell, capacity_per_s)) = weakest else { anyhow::bail!("there is no cell to compare") };
    Ok(Some(ChosenRate {
        scenario: config.scenario.clone(),
        rate_per_s: share_of(capacity_per_s, AS_STRONG),
        weakest: cells[cell].id.clone(),
        capacity_per_s,
        utilisation_max: Some(UTILISATION_MAX),
        probes: pilot.made,
    }))
}

fn share_of(rate: u32, share: f64) -> u32 {
    // Rounded down: at most the share.
    measure::whole((f64::from(rate) * share).max(1.0))
}

struct Pilot<'a, 'g, T> {
    cells: &'a [CellSpec],
    config: &'a SearchConfig,
    probes: &'a mut Probes<'g>,
    tell: &'a mut T,
    made: Vec<(String, Probe)>,
}

impl<T: FnMut(&str, &Probe)> Pilot<'_, '_, T> {
    /// The capacity of a cell, `Some(None)` when it has none, `None` after an interruption.
    fn search(&mut self, cell: usize, start_per_s: u32) -> Result<Option<Option<u32>>> {
        let mut bracket = Bracket::new(&SearchConfig { start_per_s, ..self.config.clone() });
        while let Some(rate) = bracket.next_rate() {
            let Some(outcome) = self.probe(cell, rate)? else { return Ok(None) };
            bracket.observe(rate, outcome);
        }
        Ok(Some(bracket.sustained()))
    }

    fn probe(&mut self, cell: usize, rate_per_s: u32) -> Result<Option<ProbeOutcome>> {
        let seconds = self.config.probe_seconds;
        let Some(block) = self.probes.play(cell, rate_per_s, seconds)? else { return Ok(None) };
        let slo: Slo = KEPT.parse().expect("the bounds are a constant that was tried");
        let mut probe =
            probe::judge(&block, PlannedProbe { rate_per_s, seconds, purpose: Purpose::Search }, &slo);
        // Whichever side it is: the latencies of the cell would be those of its queue.
        let busy = (block.record.as_ref())
            .map(|record| Utilisation::from_merged(&Merged::of_counts([record])).above(UTILISATION_MAX));
        if let Some(busy) = busy.filter(|busy| !busy.is_empty()) {
            (probe.outcome, probe.why) = (ProbeOutcome::Fail, busy);
        }
        (self.tell)(&self.cells[cell].id, &probe);
        let outcome = probe.outcome;
        self.made.push((self.cells[cell].id.clone(), probe));
        Ok(Some(outcome))
    }
}
