//! The highest rate that a relay sustains under an SLO, for each cell a bracket: the last rate that passed and the first
//! that failed.
//!
//! Rates double until one fails and then halve the gap until it is small enough. Cells take turns in random order, so
//! that what the machine does meanwhile meets all of them. Then both ends of each bracket are repeated, mixed too.

use std::{
    io::{self, IsTerminal},
    path::Path,
    time::Duration,
};

use anyhow::{Context, Result};
use measure::{CorpusRecord, Quantile, RunRecord, Verdict};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use crate::{
    Block, CellSpec, Config, Plan, Role,
    progress::Progress,
    report,
    run::{self, Interrupt, Request, Stopped},
    slo::{Measured, Slo},
};

/// Shares of the lowest limit at which p99 is measured.
const CURVE: [f64; 6] = [0.10, 0.25, 0.50, 0.70, 0.85, 0.95];

/// A generator that uses more of its core than this may be what cannot keep up.
const GENERATOR_BUSY: f64 = 0.8;

/// What is searched for, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SearchConfig {
    /// Scenario name or file.
    pub scenario: String,
    /// What must hold.
    pub slo: String,
    /// The first rate, in events published per second.
    pub start_per_s: u32,
    /// No probe goes beyond this.
    pub limit_per_s: u32,
    /// Seconds of a probe.
    pub probe_seconds: u32,
    /// The bracket's ends differ by at most this share.
    pub precision: f64,
    /// How often each end is repeated.
    pub confirmations: u32,
    /// Whether p99 is measured at shares of the lowest limit.
    pub curve: bool,
    /// Decides the order of the probes; each probe has a seed of its own.
    pub seed: u64,
    /// The corpus file, when another than the bundled one.
    pub corpus: Option<String>,
    /// Further arguments of every client.
    pub client_args: Vec<String>,
}

/// One cell's bracket and how it came about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellSearch {
    /// The cell's name.
    pub cell: String,
    /// The highest rate that passed.
    pub last_pass_per_s: Option<u32>,
    /// The lowest rate that did not.
    pub first_fail_per_s: Option<u32>,
    /// What did not pass there.
    pub end: End,
    /// Of the repetitions of the last pass, how many passed.
    pub pass_confirmed: u32,
    /// Of the repetitions of the first fail, how many failed.
    pub fail_confirmed: u32,
    /// Every probe in the order they ran, repetitions and points of the curve included.
    pub probes: Vec<Probe>,
}

/// Why a search ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The relay missed the SLO.
    Slo,
    /// The measurement was invalid there: the generator or the host could not go on, so the relay's limit is higher.
    GeneratorLimit,
    /// Nothing failed up to the highest rate that was allowed.
    RateLimit,
    /// Not even one event a second passed.
    NothingPassed,
    /// The search was interrupted before the bracket was small enough.
    Unfinished,
}

/// One run at one rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Probe {
    /// Events published per second.
    pub rate_per_s: u32,
    /// What it was for.
    pub purpose: Purpose,
    /// What came out.
    pub outcome: ProbeOutcome,
    /// Which bounds were missed, or why the measurement is invalid.
    pub why: Vec<String>,
    /// p99 of the latency in nanoseconds, with enough samples.
    pub p99_ns: Option<u64>,
    /// The block's seconds ÷ the time until the last answer.
    pub achieved: Option<f64>,
}

/// What a probe is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Finding the bracket.
    Search,
    /// Repeating one of its ends.
    Confirm,
    /// p99 against rate.
    Curve,
}

/// What a probe found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProbeOutcome {
    /// The SLO held.
    Pass,
    /// It did not.
    Fail,
    /// The measurement is invalid: never the relay's failure.
    GeneratorLimit,
}

/// The search of one cell, without the measuring.
#[derive(Debug, Clone, PartialEq)]
struct Bracket {
    pass: Option<u32>,
    fail: Option<(u32, ProbeOutcome)>,
    start: u32,
    limit: u32,
    precision: f64,
}

impl Bracket {
    fn new(config: &SearchConfig) -> Bracket {
        let (limit, precision) = (config.limit_per_s, config.precision);
        Bracket { pass: None, fail: None, start: config.start_per_s.min(limit), limit, precision }
    }

    /// The rate to try next; `None` when the bracket is small enough or cannot become smaller.
    fn next(&self) -> Option<u32> {
        match (self.pass, self.fail) {
            (None, None) => Some(self.start),
            (Some(pass), None) => Some(pass.saturating_mul(2).min(self.limit)).filter(|rate| *rate > pass),
            (None, Some((fail, _))) => Some(fail / 2).filter(|rate| *rate > 0),
            (Some(pass), Some((fail, _))) => {
                let near = f64::from(fail) <= f64::from(pass) * (1.0 + self.precision);
                Some(u32::midpoint(pass, fail)).filter(|rate| !near && *rate > pass)
            }
        }
    }

    fn tell(&mut self, rate: u32, outcome: ProbeOutcome) {
        match outcome {
            ProbeOutcome::Pass => self.pass = Some(self.pass.map_or(rate, |pass| pass.max(rate))),
            _ => self.fail = Some((rate, outcome)),
        }
    }

    fn end(&self) -> End {
        match (self.pass, self.fail) {
            (_, Some((_, ProbeOutcome::GeneratorLimit))) => End::GeneratorLimit,
            (None, _) => End::NothingPassed,
            (Some(_), None) => End::RateLimit,
            (Some(_), Some(_)) => End::Slo,
        }
    }
}

/// Measures one cell at one rate.
pub trait Prober {
    /// Runs the cell of this index once; `None` when the user has had enough.
    ///
    /// # Errors
    /// When nothing can be measured at all.
    fn probe(&mut self, cell: usize, rate_per_s: u32) -> Result<Option<Block>>;
}

/// What a search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// One for each cell.
    pub cells: Vec<CellSearch>,
    /// False when it was interrupted.
    pub finished: bool,
}

/// Finds every cell's bracket. What was found until an interruption is kept.
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
        found: cells.iter().map(CellSearch::new).collect(),
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
    found: Vec<CellSearch>,
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
                let bracket = &mut self.brackets[cell];
                bracket.tell(rate, outcome);
                let found = &mut self.found[cell];
                found.last_pass_per_s = bracket.pass;
                found.first_fail_per_s = bracket.fail.map(|(rate, _)| rate);
                found.end = if bracket.next().is_some() { End::Unfinished } else { bracket.end() };
            }
        }
    }

    /// Repeats both ends of every bracket.
    fn confirm(&mut self) -> Result<bool> {
        let mut again: Vec<(usize, u32, bool)> = Vec::new();
        for (cell, bracket) in self.brackets.iter().enumerate() {
            for _ in 0..self.config.confirmations {
                again.extend(bracket.pass.map(|rate| (cell, rate, true)));
                again.extend(bracket.fail.map(|(rate, _)| (cell, rate, false)));
            }
        }
        again.shuffle(&mut self.order);
        for (cell, rate, passed) in again {
            let Some(outcome) = self.probe(cell, rate, Purpose::Confirm)? else { return Ok(false) };
            let same = (outcome == ProbeOutcome::Pass) == passed;
            let found = &mut self.found[cell];
            let counter = if passed { &mut found.pass_confirmed } else { &mut found.fail_confirmed };
            *counter += u32::from(same);
        }
        Ok(true)
    }

    /// p99 at shares of what the weakest relay sustains.
    fn curve(&mut self) -> Result<bool> {
        // The floor is no relay that anybody could run.
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
    let latency = report::latency_of([record]).0;
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
    if record.validity.verdict == Verdict::Invalid {
        probe.why.extend(record.validity.reasons.iter().cloned());
    }
    if probe.why.is_empty() {
        probe.outcome = ProbeOutcome::Pass;
    }
    probe
}

/// Whether an invalid record is the generator's or the host's doing. A relay that takes no more makes its clients late,
/// too: then the generator has time to spare.
fn generator_failed(record: &RunRecord) -> bool {
    if record.validity.verdict != Verdict::Invalid || record.counts.balanced().is_err() {
        return false;
    }
    let busy = record.client_cpu.total_ns as f64 / record.elapsed_ns.max(1) as f64 > GENERATOR_BUSY;
    busy || record.validity.blames_host()
}

impl Probe {
    /// One line for whoever waits.
    pub fn line(&self) -> String {
        let outcome = match self.outcome {
            ProbeOutcome::Pass => "passes".to_owned(),
            ProbeOutcome::Fail => format!("fails: {}", self.why.join("; ")),
            ProbeOutcome::GeneratorLimit => format!("generator limit: {}", self.why.join("; ")),
        };
        let p99 = self.p99_ns.map_or_else(String::new, |ns| format!(", p99 {:.3} ms", ns as f64 / 1e6));
        format!("{}/s{p99}, {outcome}", self.rate_per_s)
    }
}

impl CellSearch {
    fn new(spec: &CellSpec) -> CellSearch {
        CellSearch {
            cell: spec.id.clone(),
            last_pass_per_s: None,
            first_fail_per_s: None,
            end: End::Unfinished,
            pass_confirmed: 0,
            fail_confirmed: 0,
            probes: Vec::new(),
        }
    }
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
        let plan = Plan { rounds: vec![vec![cell]] };
        let request =
            Request { client: self.client, config: &config, cells: &cells, plan: &plan, folder: self.folder };
        // What came out is told by whoever asked for the probe; meanwhile a terminal shows that it runs.
        let guess = Duration::from_secs(u64::from(config.seconds)) + run::BLOCK_OVERHEAD;
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
            block.exit_code != Some(run::EXIT_USAGE),
            "{}",
            block.failure.as_deref().unwrap_or("the client refused its arguments")
        );
        let corpus = || block.record.as_ref().map(|record| record.corpus.clone());
        self.corpus = self.corpus.take().or_else(corpus);
        Ok(Some(block))
    }
}

impl SearchConfig {
    /// As every probe has it.
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
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> SearchConfig {
        SearchConfig {
            scenario: "x".to_owned(),
            slo: "p99<10ms".to_owned(),
            start_per_s: 100,
            limit_per_s: 100_000,
            probe_seconds: 1,
            precision: 0.05,
            confirmations: 3,
            curve: true,
            seed: 1,
            corpus: None,
            client_args: Vec::new(),
        }
    }

    /// Plays a relay that sustains so many events a second.
    fn found(start: u32, limit: u32, sustains: u32, beyond: ProbeOutcome) -> (Bracket, u32) {
        let mut bracket = Bracket::new(&SearchConfig { start_per_s: start, limit_per_s: limit, ..config() });
        let mut probes = 0;
        while let Some(rate) = bracket.next() {
            assert!(rate <= limit && probes < 60, "{bracket:?}");
            bracket.tell(rate, if rate <= sustains { ProbeOutcome::Pass } else { beyond });
            probes += 1;
        }
        (bracket, probes)
    }

    #[test]
    fn the_bracket_holds_the_limit_and_is_small() {
        for sustains in [1, 7, 99, 100, 101, 4_321, 50_000] {
            let (bracket, probes) = found(100, 100_000, sustains, ProbeOutcome::Fail);
            let (pass, (fail, _)) = (bracket.pass.unwrap(), bracket.fail.unwrap());
            assert!(pass <= sustains && sustains < fail, "{sustains}: [{pass}, {fail}]");
            assert!(f64::from(fail) <= f64::from(pass) * 1.05 || fail == pass + 1, "[{pass}, {fail}]");
            assert!(probes <= 20, "{probes}");
            assert_eq!(bracket.end(), End::Slo);
        }
    }

    #[test]
    fn what_ends_a_search_is_said() {
        assert_eq!(found(100, 100_000, 0, ProbeOutcome::Fail).0.end(), End::NothingPassed);
        assert_eq!(found(100, 1_000, 5_000, ProbeOutcome::Fail).0.end(), End::RateLimit);
        assert_eq!(found(100, 100_000, 5_000, ProbeOutcome::GeneratorLimit).0.end(), End::GeneratorLimit);
    }
}
