//! Searches the highest rate of deliveries, or of publishing, that each cell sustains under an SLO
//! ([`Limit`](report::bracket::Limit)).
//!
//! Cells take turns in random order, so that drift of the machine meets all of them.

use std::{cell::OnceCell, io, path::Path, rc::Rc};

use anyhow::{Context, Result, anyhow};
use measure::{CorpusRecord, Exit};
use program::Interrupt;
use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use tokio::runtime::Runtime;

use crate::{
    generator::Generator,
    matrix::CellSpec,
    plan::{self, BlockOrder},
    probe::{self, PlannedProbe},
    progress::Progress,
    run::{self, Request, Stopped},
};
use program::UsageError;
use report::{
    bracket::Bracket,
    result::{Block, CellProbes, Config, Probe, ProbeOutcome, Purpose, Role, SearchConfig},
    slo::Slo,
};

/// Shares of the lowest capacity at which p99 is measured.
const CURVE: [f64; 6] = [0.10, 0.25, 0.50, 0.70, 0.85, 0.95];

/// Outcome of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// One for each cell.
    pub cells: Vec<CellProbes>,
    /// False when it was interrupted.
    pub finished: bool,
}

/// Finds every cell's capacity. An interruption keeps the probes so far.
///
/// # Errors
/// Those of the generator, and arguments that it refuses.
pub fn search(
    cells: &[CellSpec],
    config: &SearchConfig,
    slo: &Slo,
    probes: &mut Probes<'_>,
    tell: &mut impl FnMut(&str, &Probe),
) -> Result<Found> {
    let mut under_way = UnderWay {
        cells,
        config,
        slo,
        order: ChaCha8Rng::seed_from_u64(config.seed),
        brackets: cells.iter().map(|_| Bracket::new(config)).collect(),
        answers_per_event: vec![None; cells.len()],
        found: cells.iter().map(|cell| CellProbes { cell: cell.id.clone(), probes: Vec::new() }).collect(),
        probes,
        tell,
    };
    let finished = under_way.narrow()? && under_way.curve()?;
    Ok(Found { cells: under_way.found, finished })
}

/// A search between two probes.
struct UnderWay<'a, 'g, T> {
    cells: &'a [CellSpec],
    config: &'a SearchConfig,
    slo: &'a Slo,
    order: ChaCha8Rng,
    brackets: Vec<Bracket>,
    /// Answers for each event in a cell's last probe; they decide how long the next one is.
    answers_per_event: Vec<Option<f64>>,
    found: Vec<CellProbes>,
    probes: &'a mut Probes<'g>,
    tell: &'a mut T,
}

impl<T: FnMut(&str, &Probe)> UnderWay<'_, '_, T> {
    /// Until every capacity is known well enough; whether it was not interrupted.
    fn narrow(&mut self) -> Result<bool> {
        loop {
            let mut due: Vec<(usize, u32)> = (self.brackets.iter().enumerate())
                .filter_map(|(cell, bracket)| Some((cell, bracket.next_rate()?)))
                .collect();
            if due.is_empty() {
                return Ok(true);
            }
            due.shuffle(&mut self.order);
            for (cell, rate) in due {
                let Some(outcome) = self.probe(cell, rate, Purpose::Search)? else { return Ok(false) };
                self.brackets[cell].observe(rate, outcome);
            }
        }
    }

    /// p99 at shares of what the weakest relay sustains.
    fn curve(&mut self) -> Result<bool> {
        // The floor speaks no Nostr, so it sets no limit.
        let relays = self.brackets.iter().zip(self.cells).filter(|(_, cell)| cell.role != Role::Floor);
        let lowest =
            relays.filter_map(|(bracket, _)| bracket.sustained()).min().filter(|_| self.config.curve);
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

    fn probe(&mut self, cell: usize, rate_per_s: u32, purpose: Purpose) -> Result<Option<ProbeOutcome>> {
        let at_least = self.config.probe_seconds;
        let seconds = probe::seconds(self.slo, rate_per_s, self.answers_per_event[cell], at_least);
        let asked = PlannedProbe { rate_per_s, seconds, purpose };
        let Some(block) = self.probes.play(cell, rate_per_s, seconds)? else { return Ok(None) };
        let answers = block.record.as_ref().and_then(|record| probe::answers_per_event(record, asked));
        self.answers_per_event[cell] = answers.or(self.answers_per_event[cell]);
        let probe = probe::judge(&block, asked, self.slo);
        (self.tell)(&self.cells[cell].id, &probe);
        let outcome = probe.outcome;
        self.found[cell].probes.push(probe);
        Ok(Some(outcome))
    }
}

fn share_of(rate: u32, share: f64) -> u32 {
    measure::whole((f64::from(rate) * share).round().max(1.0))
}

/// Plays probes: plans of one block.
pub struct Probes<'a> {
    generator: &'a dyn Generator,
    cells: &'a [CellSpec],
    config: &'a SearchConfig,
    folder: &'a Path,
    played: u64,
    runtime: Runtime,
    interrupt: Interrupt,
    corpus: Rc<OnceCell<CorpusRecord>>,
}

impl<'a> Probes<'a> {
    /// `folder` is an existing one for records.
    ///
    /// # Errors
    /// When the runtime cannot be started.
    pub fn new(
        generator: &'a dyn Generator,
        cells: &'a [CellSpec],
        config: &'a SearchConfig,
        folder: &'a Path,
    ) -> Result<Probes<'a>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start the runtime")?;
        let interrupt = runtime.block_on(async { Interrupt::listen() })?;
        Ok(Probes { generator, cells, config, folder, played: 0, runtime, interrupt, corpus: Rc::default() })
    }

    /// The events, once the first probe stated them.
    pub fn corpus(&self) -> Rc<OnceCell<CorpusRecord>> {
        Rc::clone(&self.corpus)
    }

    /// Plays the cell of this index once, with so many seconds of work; `None` after an
    /// interruption.
    pub(crate) fn play(&mut self, cell: usize, rate_per_s: u32, seconds: u32) -> Result<Option<Block>> {
        let mut cells = self.cells.to_vec();
        match self.config.at_load_1 {
            Some(one) => cells[cell].cell.load = one.load(rate_per_s),
            None => cells[cell].cell.rate_per_s = Some(f64::from(rate_per_s)),
        }
        let config =
            Config { seed: self.config.seed.wrapping_add(self.played), seconds, ..self.config.as_run() };
        self.played += 1;
        let request = Request {
            generator: self.generator,
            config: &config,
            cells: &cells,
            plan: &BlockOrder { rounds: vec![vec![cell]], spare: Vec::new() },
            folder: self.folder,
            keep: None,
        };
        // The caller prints the outcome; a terminal shows that the probe runs.
        let guess = plan::block_estimate(config.seconds);
        let mut progress = Progress::new(1, guess, !program::rewrites_lines(&io::stderr()));
        let outcome = self.runtime.block_on(run::run(&request, &mut progress, self.interrupt.wait()));
        progress.end();
        let outcome = outcome?;
        if outcome.stopped == Some(Stopped::Interrupted) {
            return Ok(None);
        }
        let (_, block) = outcome.blocks.into_iter().next().context("a plan of one block runs one")?;
        if Exit::Usage.is(block.exit_code) {
            let said = block.failure.unwrap_or_else(|| "the client refused its arguments".to_owned());
            return Err(UsageError(anyhow!(said)).into());
        }
        if let Some(record) = &block.record {
            self.corpus.get_or_init(|| record.corpus.clone());
        }
        Ok(Some(block))
    }
}
