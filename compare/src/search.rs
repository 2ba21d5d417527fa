//! The highest rate that a relay sustains under an SLO, for each cell a bracket: the last rate that passed and the first
//! that failed.
//!
//! Rates double until one fails and then halve the gap until it is small enough. Cells take turns in random order, so
//! that what the machine does meanwhile meets all of them. Then both ends of each bracket are repeated, mixed too.

use std::{fmt::Write as _, fs, path::Path, time::Duration, time::SystemTime};

use anyhow::{Context, Result};
use measure::{Environment, Quantile, RunRecord, SCHEMA_VERSION, Tool, Verdict, utc};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Block, CellSpec, Config, Git, Plan, Role, git,
    progress::Progress,
    report::{self, Table},
    run::{self, Request},
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

/// What a search found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Search {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: String,
    /// The program that wrote this.
    pub tool: Tool,
    /// The command line, `compare` first.
    pub command: Vec<String>,
    /// The source tree, when it ran inside a checkout.
    pub git: Option<Git>,
    /// The machine.
    pub host: Environment,
    /// Wall clock at the start.
    pub started_utc: String,
    /// What was asked for.
    pub config: SearchConfig,
    /// One for each cell.
    pub cells: Vec<CellSearch>,
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
    /// Runs the cell of this index once.
    ///
    /// # Errors
    /// When nothing can be measured at all.
    fn probe(&mut self, cell: usize, rate_per_s: u32) -> Result<Block>;
}

/// Finds every cell's bracket.
///
/// # Errors
/// Those of the prober.
pub fn search(
    cells: &[CellSpec],
    config: &SearchConfig,
    slo: &Slo,
    prober: &mut impl Prober,
    tell: &mut impl FnMut(&str, &Probe),
) -> Result<Vec<CellSearch>> {
    let mut order = ChaCha8Rng::seed_from_u64(config.seed);
    let mut brackets: Vec<Bracket> = cells.iter().map(|_| Bracket::new(config)).collect();
    let mut found: Vec<CellSearch> = cells.iter().map(CellSearch::new).collect();
    let mut run = |cell: usize, rate: u32, purpose: Purpose, found: &mut Vec<CellSearch>| {
        let probe = judge(&prober.probe(cell, rate)?, rate, purpose, config, slo);
        tell(&cells[cell].id, &probe);
        let outcome = probe.outcome;
        found[cell].probes.push(probe);
        anyhow::Ok(outcome)
    };
    loop {
        let mut due: Vec<(usize, u32)> =
            (0..cells.len()).filter_map(|cell| Some((cell, brackets[cell].next()?))).collect();
        if due.is_empty() {
            break;
        }
        due.shuffle(&mut order);
        for (cell, rate) in due {
            let outcome = run(cell, rate, Purpose::Search, &mut found)?;
            brackets[cell].tell(rate, outcome);
        }
    }
    let mut again: Vec<(usize, u32, bool)> = Vec::new();
    for (cell, bracket) in brackets.iter().enumerate() {
        found[cell].last_pass_per_s = bracket.pass;
        found[cell].first_fail_per_s = bracket.fail.map(|(rate, _)| rate);
        found[cell].end = bracket.end();
        for _ in 0..config.confirmations {
            again.extend(bracket.pass.map(|rate| (cell, rate, true)));
            again.extend(bracket.fail.map(|(rate, _)| (cell, rate, false)));
        }
    }
    again.shuffle(&mut order);
    for (cell, rate, passed) in again {
        let outcome = run(cell, rate, Purpose::Confirm, &mut found)?;
        let same = (outcome == ProbeOutcome::Pass) == passed;
        let counter = if passed { &mut found[cell].pass_confirmed } else { &mut found[cell].fail_confirmed };
        *counter += u32::from(same);
    }
    // The floor is no relay that anybody could run.
    let relays = brackets.iter().zip(cells).filter(|(_, cell)| cell.role != Role::Floor);
    let lowest = relays.filter_map(|(bracket, _)| bracket.pass).min().filter(|_| config.curve);
    let mut points: Vec<(usize, u32)> = Vec::new();
    for rate in lowest.into_iter().flat_map(|lowest| CURVE.map(|share| share_of(lowest, share))) {
        points.extend((0..cells.len()).map(|cell| (cell, rate)));
    }
    points.dedup();
    points.shuffle(&mut order);
    for (cell, rate) in points {
        run(cell, rate, Purpose::Curve, &mut found)?;
    }
    Ok(found)
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
            end: End::NothingPassed,
            pass_confirmed: 0,
            fail_confirmed: 0,
            probes: Vec::new(),
        }
    }
}

/// Probes with processes of their own.
pub struct Processes<'a> {
    /// This program's own file.
    pub client: &'a Path,
    /// The matrix.
    pub cells: &'a [CellSpec],
    /// What every probe has in common.
    pub config: &'a SearchConfig,
    /// An existing folder for records.
    pub folder: &'a Path,
    /// How many ran.
    pub probes: u64,
}

impl Prober for Processes<'_> {
    fn probe(&mut self, cell: usize, rate_per_s: u32) -> Result<Block> {
        let mut cells = self.cells.to_vec();
        cells[cell].rate_per_s = Some(rate_per_s);
        let config = Config {
            scenarios: vec![self.config.scenario.clone()],
            profile: "search".to_owned(),
            rounds: 1,
            seconds: self.config.probe_seconds,
            seed: self.config.seed + self.probes,
            corpus: self.config.corpus.clone(),
            client_args: self.config.client_args.clone(),
        };
        self.probes += 1;
        let plan = Plan { rounds: vec![vec![cell]] };
        let request =
            Request { client: self.client, config: &config, cells: &cells, plan: &plan, folder: self.folder };
        let mut progress = Progress::new(1, Duration::from_secs(u64::from(config.seconds)), true);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let outcome = runtime.block_on(run::run(&request, &mut progress, std::future::pending()))?;
        let (_, block) = outcome.blocks.into_iter().next().context("a plan of one block runs one")?;
        anyhow::ensure!(
            block.exit_code != Some(run::EXIT_USAGE),
            "{}",
            block.failure.as_deref().unwrap_or("the client refused its arguments")
        );
        Ok(block)
    }
}

impl Search {
    /// What was found, with everything around it.
    pub fn new(
        command: Vec<String>,
        config: SearchConfig,
        cells: Vec<CellSearch>,
        started: SystemTime,
    ) -> Search {
        Search {
            schema_version: SCHEMA_VERSION.to_owned(),
            tool: Tool { name: "compare".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
            command,
            git: git::current(),
            host: Environment::collect(),
            started_utc: utc::format(started),
            config,
            cells,
        }
    }

    /// Writes `search.json` and `search.md` into an existing folder.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let mut json = serde_json::to_string_pretty(self).context("a search does not serialize")?;
        json.push('\n');
        for (name, text) in [("search.json", json), ("search.md", self.markdown())] {
            let file = folder.join(name);
            fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(())
    }

    /// The brackets, for people.
    pub fn brackets(&self) -> Table {
        let headings = ["cell", "sustains", "does not", "repeated", "first miss"].map(str::to_owned).to_vec();
        let row = |cell: &CellSearch| {
            let rate = |rate: Option<u32>| rate.map_or_else(|| "–".to_owned(), |rate| format!("{rate}/s"));
            let of = self.config.confirmations;
            let beyond = match cell.end {
                End::Slo | End::NothingPassed => rate(cell.first_fail_per_s),
                End::GeneratorLimit => format!("{} generator limit", rate(cell.first_fail_per_s)),
                End::RateLimit => format!("not tried beyond {}/s", self.config.limit_per_s),
            };
            let miss = cell.probes.iter().find(|probe| Some(probe.rate_per_s) == cell.first_fail_per_s);
            let miss = miss.map_or_else(String::new, |probe| probe.why.join("; "));
            let repeated =
                format!("{}/{of} passed, {}/{of} did not", cell.pass_confirmed, cell.fail_confirmed);
            vec![cell.cell.clone(), rate(cell.last_pass_per_s), beyond, repeated, miss]
        };
        Table { names: 1, headings, rows: self.cells.iter().map(row).collect() }
    }

    /// p99 against rate.
    pub fn curve(&self) -> Table {
        let mut rates: Vec<u32> = self.curve_points().map(|(_, probe)| probe.rate_per_s).collect();
        rates.sort_unstable();
        rates.dedup();
        let headings =
            std::iter::once("cell".to_owned()).chain(rates.iter().map(|rate| format!("p99 ms at {rate}/s")));
        let row = |cell: &CellSearch| {
            let shown = |rate: &u32| {
                let probe =
                    self.curve_points().find(|(name, probe)| *name == cell.cell && probe.rate_per_s == *rate);
                match probe.map(|(_, probe)| (probe.p99_ns, probe.outcome)) {
                    Some((Some(ns), ProbeOutcome::GeneratorLimit)) => format!("({:.3})", ns as f64 / 1e6),
                    Some((Some(ns), _)) => format!("{:.3}", ns as f64 / 1e6),
                    _ => "–".to_owned(),
                }
            };
            std::iter::once(cell.cell.clone()).chain(rates.iter().map(shown)).collect()
        };
        Table { names: 1, headings: headings.collect(), rows: self.cells.iter().map(row).collect() }
    }

    fn curve_points(&self) -> impl Iterator<Item = (&str, &Probe)> {
        let probes =
            self.cells.iter().flat_map(|cell| cell.probes.iter().map(|probe| (cell.cell.as_str(), probe)));
        probes.filter(|(_, probe)| probe.purpose == Purpose::Curve)
    }

    /// Both tables for a terminal.
    pub fn terminal(&self) -> String {
        let curve = if self.config.curve { format!("\n{}", self.curve().text()) } else { String::new() };
        format!("{} under {}\n{}{curve}", self.config.scenario, self.config.slo, self.brackets().text())
    }

    fn markdown(&self) -> String {
        let config = &self.config;
        let mut text = String::new();
        let _ = write!(
            text,
            "`{}`\n\n# {}: the highest rate under {}\n\n{}\n## p99 against rate\n\nIn brackets where the measurement is \
             invalid. Rates are 10 to 95 % of what the weakest cell sustains.\n\n{}\n## How it was found\n\n\
             - Probes of {} s, open loop, each with its own relay; the bracket's ends differ by at most {:.0} %. Rates are \
             events published per second.\n\
             - Generator limit: the measurement was invalid there because of the generator or the host, so the relay may \
             sustain more.\n\
             - Seed {}, started {}, {} {}, {} cores, load {:?} at the start of the report.\n",
            self.command.join(" "),
            config.scenario,
            config.slo,
            self.brackets().markdown(),
            self.curve().markdown(),
            config.probe_seconds,
            config.precision * 100.0,
            config.seed,
            self.started_utc,
            self.tool.name,
            self.tool.version,
            self.host.cores,
            self.host.load_1_minute,
        );
        text
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
