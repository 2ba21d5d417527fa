//! Searches the highest rate that each cell sustains under an SLO, as a bracket
//! ([`Limit`](crate::bracket::Limit)).
//!
//! Cells take turns in random order, so that drift of the machine meets all of them. Then both ends
//! of each bracket are repeated, in random order too.

use std::{
    io::{self, IsTerminal},
    path::Path,
};

use anyhow::{Context, Result};
use measure::{CorpusRecord, Exit, Quantile, RunRecord, ValidityClass};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use tokio::runtime::Runtime;

use crate::{
    bracket::Bracket,
    matrix::CellSpec,
    merged::{Merged, latency_of},
    plan::{self, Plan},
    progress::Progress,
    result::{Block, CellProbes, Config, Probe, ProbeOutcome, Purpose, Role, SearchConfig},
    run::{self, Interrupt, Request, Stopped},
    slo::{Measured, Slo},
};

/// Shares of the lowest limit at which p99 is measured.
const CURVE: [f64; 6] = [0.10, 0.25, 0.50, 0.70, 0.85, 0.95];

/// CPU of the generator, as a share of one core, beyond which the generator is the limit.
const GENERATOR_BUSY: f64 = 0.8;

/// CPU of the generator, as a share of its cores, beyond which a missed bound is the generator's.
const GENERATOR_FULL: f64 = 0.95;

/// Measures one cell at one rate.
pub trait Prober {
    /// Runs the cell of this index once; `None` after an interruption.
    ///
    /// # Errors
    /// When nothing can be measured at all.
    fn probe(&mut self, cell: usize, rate_per_s: u32) -> Result<Option<Block>>;
}

/// What a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// One for each cell.
    pub cells: Vec<CellProbes>,
    /// False when it was interrupted.
    pub finished: bool,
}

/// Finds every cell's bracket. An interruption keeps the probes so far.
///
/// # Errors
/// Those of the prober.
pub fn search(
    cells: &[CellSpec],
    config: &SearchConfig,
    slo: &Slo,
    prober: &mut impl Prober,
    tell: &mut impl FnMut(&str, &Probe),
) -> Result<Found> {
    let mut under_way = UnderWay {
        cells,
        config,
        slo,
        order: ChaCha8Rng::seed_from_u64(config.seed),
        brackets: cells.iter().map(|_| Bracket::new(config)).collect(),
        found: cells.iter().map(|cell| CellProbes { cell: cell.id.clone(), probes: Vec::new() }).collect(),
        prober,
        tell,
    };
    let finished = under_way.narrow()? && under_way.confirm()? && under_way.curve()?;
    Ok(Found { cells: under_way.found, finished })
}

/// A search between two probes.
struct UnderWay<'a, P, T> {
    cells: &'a [CellSpec],
    config: &'a SearchConfig,
    slo: &'a Slo,
    order: ChaCha8Rng,
    brackets: Vec<Bracket>,
    found: Vec<CellProbes>,
    prober: &'a mut P,
    tell: &'a mut T,
}

impl<P: Prober, T: FnMut(&str, &Probe)> UnderWay<'_, P, T> {
    /// Until every bracket is small enough; whether it was not interrupted.
    fn narrow(&mut self) -> Result<bool> {
        loop {
            let mut due: Vec<(usize, u32)> = (self.brackets.iter().enumerate())
                .filter_map(|(cell, bracket)| Some((cell, bracket.next()?)))
                .collect();
            if due.is_empty() {
                return Ok(true);
            }
            due.shuffle(&mut self.order);
            for (cell, rate) in due {
                let Some(outcome) = self.probe(cell, rate, Purpose::Search)? else { return Ok(false) };
                self.brackets[cell].tell(rate, outcome);
            }
        }
    }

    /// Repeats both ends of every bracket.
    fn confirm(&mut self) -> Result<bool> {
        let mut again: Vec<(usize, u32)> = Vec::new();
        for (cell, bracket) in self.brackets.iter().enumerate() {
            for _ in 0..self.config.confirmations {
                again.extend(bracket.pass.map(|rate| (cell, rate)));
                again.extend(bracket.fail.map(|(rate, _)| (cell, rate)));
            }
        }
        again.shuffle(&mut self.order);
        for (cell, rate) in again {
            if self.probe(cell, rate, Purpose::Confirm)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// p99 at shares of what the weakest relay sustains.
    fn curve(&mut self) -> Result<bool> {
        // The floor speaks no Nostr, so it sets no limit.
        let relays = self.brackets.iter().zip(self.cells).filter(|(_, cell)| cell.role != Role::Floor);
        let lowest = relays.filter_map(|(bracket, _)| bracket.pass).min().filter(|_| self.config.curve);
        let mut points: Vec<(usize, u32)> = Vec::new();
        for rate in lowest.into_iter().flat_map(|lowest| CURVE.map(|share| share_of(lowest, share))) {
            points.extend((0..self.cells.len()).map(|cell| (cell, rate)));
        }
        points.dedup();
        points.shuffle(&mut self.order);
        for (cell, rate) in points {
            if self.probe(cell, rate, Purpose::Curve)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn probe(&mut self, cell: usize, rate: u32, purpose: Purpose) -> Result<Option<ProbeOutcome>> {
        let Some(block) = self.prober.probe(cell, rate)? else { return Ok(None) };
        let probe = judge(&block, rate, purpose, self.config, self.slo);
        (self.tell)(&self.cells[cell].id, &probe);
        let outcome = probe.outcome;
        self.found[cell].probes.push(probe);
        Ok(Some(outcome))
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a rate is a rate")]
fn share_of(rate: u32, share: f64) -> u32 {
    (f64::from(rate) * share).round().max(1.0) as u32
}

fn judge(block: &Block, rate: u32, purpose: Purpose, config: &SearchConfig, slo: &Slo) -> Probe {
    let mut probe = Probe {
        rate_per_s: rate,
        purpose,
        outcome: ProbeOutcome::Fail,
        why: Vec::new(),
        p99_ns: None,
        achieved: None,
    };
    let Some(record) = &block.record else {
        probe.outcome = ProbeOutcome::GeneratorLimit;
        probe.why.extend(block.failure.clone());
        return probe;
    };
    let latency = latency_of([record]).0;
    let measured = Measured::of(&[record], config.probe_seconds);
    let p99 = record.latency.get(latency).map_or(Quantile::Missing, |latency| latency.quantile_ns(0.99));
    (probe.p99_ns, probe.achieved) = (p99.ns(), measured.achieved());
    if generator_failed(record) {
        probe.outcome = ProbeOutcome::GeneratorLimit;
        probe.why.clone_from(&record.validity.reasons);
        return probe;
    }
    let missed = slo.judge("", &measured, latency).into_iter().filter(|result| !result.met);
    probe.why = missed.map(|result| result.bound).collect();
    if record.validity.class == ValidityClass::Invalid {
        probe.why.extend(record.validity.reasons.iter().cloned());
    }
    let used = Merged::of([record]).client_utilisation().unwrap_or(0.0);
    if probe.why.is_empty() {
        probe.outcome = ProbeOutcome::Pass;
    } else if used > GENERATOR_FULL && record.counts.balanced().is_ok() {
        probe.outcome = ProbeOutcome::GeneratorLimit;
        probe.why.push(format!("the generator used {:.0} % of its cores", used * 100.0));
    }
    probe
}

/// Whether the generator or the host made a record invalid. A saturated relay makes clients late,
/// too, but leaves the generator idle.
fn generator_failed(record: &RunRecord) -> bool {
    if record.validity.class != ValidityClass::Invalid || record.counts.balanced().is_err() {
        return false;
    }
    let busy = record.client_cpu.total_ns as f64 / record.elapsed_ns.max(1) as f64 > GENERATOR_BUSY;
    busy || record.validity.blames_host()
}

/// Probes with processes of their own.
#[derive(Debug)]
pub struct Processes<'a> {
    client: &'a Path,
    cells: &'a [CellSpec],
    config: &'a SearchConfig,
    folder: &'a Path,
    probes: u64,
    runtime: Runtime,
    interrupt: Interrupt,
    corpus: Option<CorpusRecord>,
}

impl<'a> Processes<'a> {
    /// `client` is this program's own file, `folder` an existing one for records.
    ///
    /// # Errors
    /// When the runtime cannot be started.
    pub fn new(
        client: &'a Path,
        cells: &'a [CellSpec],
        config: &'a SearchConfig,
        folder: &'a Path,
    ) -> Result<Processes<'a>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start the runtime")?;
        let interrupt = runtime.block_on(async { Interrupt::listen() })?;
        Ok(Processes { client, cells, config, folder, probes: 0, runtime, interrupt, corpus: None })
    }

    /// The events, as the first probe stated them.
    pub fn corpus(self) -> Option<CorpusRecord> {
        self.corpus
    }
}

impl Prober for Processes<'_> {
    fn probe(&mut self, cell: usize, rate_per_s: u32) -> Result<Option<Block>> {
        let mut cells = self.cells.to_vec();
        cells[cell].rate_per_s = Some(rate_per_s);
        let config = Config { seed: self.config.seed + self.probes, ..self.config.as_run() };
        self.probes += 1;
        let one = Plan { rounds: vec![vec![cell]] };
        let request =
            Request { client: self.client, config: &config, cells: &cells, plan: &one, folder: self.folder };
        // The caller prints the outcome; a terminal shows that the probe runs.
        let guess = plan::block_estimate(config.seconds);
        let mut progress = Progress::new(1, guess, !io::stderr().is_terminal());
        let interrupt = self.interrupt.wait();
        let outcome = self.runtime.block_on(run::run(&request, &mut progress, interrupt));
        progress.end();
        let outcome = outcome?;
        if outcome.stopped == Some(Stopped::Interrupted) {
            return Ok(None);
        }
        let (_, block) = outcome.blocks.into_iter().next().context("a plan of one block runs one")?;
        anyhow::ensure!(
            !Exit::Usage.is(block.exit_code),
            "{}",
            block.failure.as_deref().unwrap_or("the client refused its arguments")
        );
        let corpus = || block.record.as_ref().map(|record| record.corpus.clone());
        self.corpus = self.corpus.take().or_else(corpus);
        Ok(Some(block))
    }
}

impl SearchConfig {
    /// The configuration of every probe.
    pub fn as_run(&self) -> Config {
        Config {
            scenarios: vec![self.scenario.clone()],
            profile: "search".to_owned(),
            rounds: 1,
            seconds: self.probe_seconds,
            seed: self.seed,
            corpus: self.corpus.clone(),
            url: None,
            client_args: self.client_args.clone(),
            slo: None,
        }
    }
}
