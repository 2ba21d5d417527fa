//! Root finding along an axis ([`Limit`](report::bracket::Limit)), for one cell or a pair:
//!
//! - the highest rate or load under an SLO,
//! - the load at which a relay uses a share of its cores,
//! - the bandwidth at which two cells take equally long.
//!
//! Cells take turns in random order, so that drift of the machine meets all of them.

use std::{io, path::Path};

use anyhow::{Context, Result, anyhow};
use cell::Cell;
use link::Link;
use measure::{CorpusRecord, Status};
use program::{Interrupt, UsageError};
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

use crate::{
    generator::Generator,
    matrix::CellSpec,
    plan::{self, BlockOrder},
    probe,
    progress::Progress,
    run::{self, Outcome, Request, Stopped},
    usage::until_signal,
};
use report::{
    bracket::Bracket,
    result::{Block, Config, Probe, Purpose, ResultFile, Role, Search, SearchConfig, SearchedLinks},
    slo::Slo,
};

/// The profile of a search, as results name it.
pub(crate) const SEARCH: &str = "search";

/// Shares of the lowest capacity at which p99 is measured.
const CURVE: [f64; 6] = [0.10, 0.25, 0.50, 0.70, 0.85, 0.95];

/// What a probe plays: a cell, or two over links of the same round trip.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Subject {
    name: String,
    /// Their indexes.
    cells: Vec<usize>,
    rtt_ns: u64,
}

/// Every cell; or for each round trip every cell beside every earlier one.
fn subjects(cells: &[CellSpec], links: Option<&SearchedLinks>) -> Vec<Subject> {
    let Some(links) = links else {
        let one =
            |(at, cell): (usize, &CellSpec)| Subject { name: cell.id.clone(), cells: vec![at], rtt_ns: 0 };
        return cells.iter().enumerate().map(one).collect();
    };
    let mut all = Vec::new();
    for rtt_ns in &links.rtts_ns {
        for (other, earlier) in cells.iter().enumerate() {
            for (one, cell) in cells.iter().enumerate().skip(other + 1) {
                let rtt_ms = *rtt_ns as f64 / 1e6;
                let name = format!("{} ÷ {}, {rtt_ms} ms", cell.id, earlier.id);
                all.push(Subject { name, cells: vec![one, other], rtt_ns: *rtt_ns });
            }
        }
    }
    all
}

/// What a search found so far.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The probes of each subject.
    pub search: Search,
    /// The events, once the first probe stated them.
    pub corpus: Option<CorpusRecord>,
    /// Whether it came to its end: an interruption keeps the probes so far.
    pub finished: bool,
}

impl Found {
    /// The result of a search, which may go on.
    pub(crate) fn result(&self, header: ResultFile, status: Status) -> ResultFile {
        ResultFile { status, search: Some(self.search.clone()), corpus: self.corpus.clone(), ..header }
    }
}

/// Takes a probe of a subject, by its name, and what was found with it.
pub type Tell<'a> = &'a mut dyn FnMut(&Found, &str, &Probe);

/// Finds the root of every subject by probes of this configuration. `folder` is an existing one for
/// records.
///
/// # Errors
/// The generator's errors, and arguments that it refuses.
pub fn search(
    cells: &[CellSpec],
    (config, question): (&Config, &SearchConfig),
    (generator, folder): (&dyn Generator, &Path),
    tell: Tell<'_>,
) -> Result<Found> {
    let subjects = subjects(cells, question.links.as_ref());
    let search = Search::begun(question.clone(), subjects.iter().map(|subject| subject.name.as_str()));
    let mut under_way = UnderWay {
        generator,
        cells,
        config,
        question,
        folder,
        slo: if question.slo.is_empty() {
            Slo::default()
        } else {
            question.slo.parse().map_err(anyhow::Error::msg)?
        },
        order: ChaCha8Rng::seed_from_u64(config.seed),
        brackets: subjects.iter().map(|_| Bracket::new(question)).collect(),
        subjects,
        played: 0,
        found: Found { search, corpus: None, finished: false },
        tell,
    };
    until_signal(async |interrupt| {
        under_way.found.finished = under_way.narrow(interrupt).await? && under_way.curve(interrupt).await?;
        Ok(())
    })?;
    Ok(under_way.found)
}

/// A search between two probes.
struct UnderWay<'a> {
    generator: &'a dyn Generator,
    cells: &'a [CellSpec],
    config: &'a Config,
    question: &'a SearchConfig,
    folder: &'a Path,
    slo: Slo,
    order: ChaCha8Rng,
    subjects: Vec<Subject>,
    brackets: Vec<Bracket>,
    /// Probes that were played.
    played: u64,
    found: Found,
    tell: Tell<'a>,
}

impl UnderWay<'_> {
    /// Probes until every root is known well enough; false after an interruption.
    async fn narrow(&mut self, interrupt: &mut Interrupt) -> Result<bool> {
        loop {
            let mut due: Vec<(usize, u32)> = (self.brackets.iter().enumerate())
                .filter_map(|(at, bracket)| Some((at, bracket.next_rate()?)))
                .collect();
            if due.is_empty() {
                return Ok(true);
            }
            due.shuffle(&mut self.order);
            if !self.probe_each(due, Purpose::Search, interrupt).await? {
                return Ok(false);
            }
        }
    }

    /// Probes all subjects at shares of the weakest relay's capacity; false after an interruption.
    async fn curve(&mut self, interrupt: &mut Interrupt) -> Result<bool> {
        // The floor speaks no Nostr, so it sets no limit.
        let relays = self.brackets.iter().zip(self.cells).filter(|(_, cell)| cell.role != Role::Floor);
        let lowest =
            relays.filter_map(|(bracket, _)| bracket.sustained()).min().filter(|_| self.question.curve);
        let mut points: Vec<(usize, u32)> = Vec::new();
        for rate in lowest.into_iter().flat_map(|lowest| CURVE.map(|share| share_of(lowest, share))) {
            points.extend((0..self.subjects.len()).map(|at| (at, rate)));
        }
        points.dedup();
        points.shuffle(&mut self.order);
        self.probe_each(points, Purpose::Curve, interrupt).await
    }

    /// Makes these probes; false after an interruption.
    async fn probe_each(
        &mut self,
        probes: Vec<(usize, u32)>,
        purpose: Purpose,
        interrupt: &mut Interrupt,
    ) -> Result<bool> {
        for (at, rate_per_s) in probes {
            let Some(blocks) = self.play(at, rate_per_s, interrupt).await? else { return Ok(false) };
            let probe =
                probe::judge(&blocks, rate_per_s, purpose, (self.question, &self.slo, self.config.seconds));
            if purpose == Purpose::Search {
                self.brackets[at].observe(&probe);
            }
            self.found.search.cells[at].probes.push(probe.clone());
            (self.tell)(&self.found, &self.subjects[at].name, &probe);
        }
        Ok(true)
    }

    /// Plays each cell of a subject once, with the same load, in random order; `None` after an
    /// interruption.
    async fn play(
        &mut self,
        subject: usize,
        rate_per_s: u32,
        interrupt: &mut Interrupt,
    ) -> Result<Option<Vec<Block>>> {
        let Subject { cells, rtt_ns, .. } = self.subjects[subject].clone();
        let seed = self.config.seed.wrapping_add(self.played);
        self.played += 1;
        let mut order: Vec<usize> = (0..cells.len()).collect();
        order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        let mut blocks = Vec::new();
        for place in order {
            let value = (rate_per_s, rtt_ns);
            let Some(block) = self.play_cell(cells[place], value, seed, interrupt).await? else {
                return Ok(None);
            };
            blocks.push((place, block));
        }
        blocks.sort_by_key(|(place, _)| *place);
        Ok(Some(blocks.into_iter().map(|(_, block)| block).collect()))
    }

    /// Sets the searched value of a cell: its link's bandwidth in kbit/s, its load, or its rate.
    fn set_searched(&self, cell: &mut Cell, (value, rtt_ns): (u32, u64)) -> Result<()> {
        match (&self.question.links, self.question.at_load_1) {
            (Some(links), _) => cell.link = Some(link(links, value, rtt_ns)?),
            (None, Some(at_load_1)) => cell.load = at_load_1.load(value),
            (None, None) => cell.rate_per_s = Some(f64::from(value)),
        }
        Ok(())
    }

    /// Plays one block of a cell; `None` after an interruption.
    async fn play_cell(
        &mut self,
        cell: usize,
        value: (u32, u64),
        seed: u64,
        interrupt: &mut Interrupt,
    ) -> Result<Option<Block>> {
        let mut cells = self.cells.to_vec();
        self.set_searched(&mut cells[cell].cell, value)?;
        let config = Config { seed, ..self.config.clone() };
        let request = Request {
            generator: self.generator,
            config: &config,
            cells: &cells,
            plan: &BlockOrder { rounds: vec![vec![cell]], spare: Vec::new() },
            folder: self.folder,
            keep: None,
        };
        // The caller prints the outcome; a terminal shows that the probe runs.
        let guess = plan::cell_estimate(&cells[cell], config.seconds);
        let mut progress = Progress::new(1, guess, !program::rewrites_lines(&io::stderr()));
        let played = run::run(&request, &mut progress, interrupt.wait()).await;
        progress.end();
        let Outcome { mut blocks, stopped, .. } = played?;
        let (_, block) = blocks.pop().context("a probe is one block")?;
        let failure = || anyhow!(block.failure.clone().unwrap_or_else(|| "no probe can follow".to_owned()));
        match stopped {
            Some(Stopped::Interrupted) => return Ok(None),
            Some(Stopped::Usage) => return Err(UsageError(failure()).into()),
            Some(Stopped::Over | Stopped::Failing) => return Err(failure()),
            None => {}
        }
        if let Some(record) = &block.record {
            self.found.corpus.get_or_insert_with(|| record.corpus.clone());
        }
        Ok(Some(block))
    }
}

fn share_of(rate: u32, share: f64) -> u32 {
    measure::whole((f64::from(rate) * share).round().max(1.0))
}

/// The link of a user with this downlink.
///
/// # Errors
/// Says why there is no such link.
pub(crate) fn link(links: &SearchedLinks, down_kbit_per_s: u32, rtt_ns: u64) -> Result<Link> {
    let up: u64 = measure::whole((f64::from(down_kbit_per_s) * 1e3 * links.uplink_share).round());
    let text = format!("down={down_kbit_per_s}kbit:up={up}bit:rtt={}us", rtt_ns / 1_000);
    let link = text.parse::<Link>().map_err(|error| UsageError(anyhow!("{text}: {}", error.why())))?;
    Ok(link)
}
