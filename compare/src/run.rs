//! Runs the plan: block by block, in its order, by whatever plays them.

use std::{
    collections::BTreeSet,
    fs,
    future::Future,
    path::{Path, PathBuf},
    pin::Pin,
    time::Instant,
};

use anyhow::{Context, Result};
use cell::Factor;
use measure::{Exit, ReasonKind, RunRecord, Status, ValidityClass};
use workload::schedule::nanos;

use crate::{
    generator::{Generator, Played, Task},
    matrix::CellSpec,
    plan::{self, BlockOrder},
    progress::Progress,
};
use report::result::{Block, Config, Role};

/// How a client ends that leaves a record behind although something is wrong.
const KEPT: [Exit; 3] = [Exit::Invalid, Exit::Unbalanced, Exit::Incomplete];

/// Runs in a row without a record that end the plan: the next would leave none either.
const FAILURES_IN_A_ROW: usize = 3;

/// A plan with its cells.
pub struct Request<'a> {
    /// Plays the blocks.
    pub generator: &'a dyn Generator,
    /// Settings that every block has in common.
    pub config: &'a Config,
    /// The matrix.
    pub cells: &'a [CellSpec],
    /// The order.
    pub plan: &'a BlockOrder,
    /// An existing folder for the records of single blocks.
    pub folder: &'a Path,
    /// Keeps each block when it ends, so that a run that is killed loses none, and has what is wrong
    /// with it told. Without, both are the caller's.
    pub keep: Option<&'a Keep<'a>>,
}

/// Keeps the last of the blocks so far, each with the index of its cell.
pub type Keep<'a> = dyn Fn(&[(usize, Block)]) -> Result<()> + 'a;

/// The blocks that ran.
#[derive(Debug)]
pub struct Outcome {
    /// The blocks in the order they ran, each with the index of its cell.
    pub blocks: Vec<(usize, Block)>,
    /// Whether all of the plan ran.
    pub status: Status,
    /// Why the plan was not finished, for the exit code.
    pub stopped: Option<Stopped>,
}

/// Why a plan was not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// `interrupt` completed.
    Interrupted,
    /// The client refused its arguments.
    Usage,
    /// No further block can be played: an agent or what coordinates them was lost, or the program of
    /// a relay was replaced.
    Over,
    /// Several runs in a row left no record.
    Failing,
}

/// Runs every block of the plan in order, and of its further rounds as many as are needed. Once
/// `interrupt` completes, stops the running client and returns the blocks so far.
///
/// # Errors
/// When the generator cannot play.
pub async fn run(
    request: &Request<'_>,
    progress: &mut Progress,
    interrupt: impl Future<Output = ()>,
) -> Result<Outcome> {
    let mut interrupt = Box::pin(interrupt);
    let started = Instant::now();
    let mut blocks: Vec<(usize, Block)> = Vec::new();
    let mut in_a_row = 0;
    let planned = request.plan.rounds.len();
    let mut round = 0;
    while let Some(order) = request.plan.next_round(round, &blocks) {
        if round >= planned {
            progress.add(order.len(), round - planned + 1, request.plan.spare.len());
        }
        let rounds = planned.max(round + 1);
        for (position, &cell) in order.iter().enumerate() {
            let place = Place { round, rounds, position, cell: &request.cells[cell], started };
            progress.block(round, rounds, &place.cell.id);
            let file = request.record_file(&place);
            let (block, played) = run_block(request, &place, &file, progress, interrupt.as_mut()).await?;
            progress.finish_block(&block);
            if request.keep.is_some() && !played.interrupted && !block.interrupted {
                report_trouble(progress, &place, &block);
            }
            in_a_row = if block.record.is_some() { 0 } else { in_a_row + 1 };
            let stopped = why_stopped(&played, &block, in_a_row);
            blocks.push((cell, block));
            keep_last(request, &blocks, &file, progress);
            if let Some((stopped, status)) = stopped {
                return Ok(Outcome { blocks, status, stopped: Some(stopped) });
            }
        }
        round += 1;
    }
    Ok(Outcome { blocks, status: Status::Complete, stopped: None })
}

/// Why a plan ends with this block, after so many in a row without a record.
fn why_stopped(played: &Played, block: &Block, in_a_row: usize) -> Option<(Stopped, Status)> {
    if played.interrupted || block.interrupted {
        return Some((Stopped::Interrupted, Status::Interrupted));
    }
    let incomplete = |stopped, reason| Some((stopped, Status::Incomplete { reason }));
    if Exit::Usage.is(block.exit_code) {
        return incomplete(Stopped::Usage, "the client refused its arguments".to_owned());
    }
    if let Some(failure) = block.failure.as_ref().filter(|_| played.is_over) {
        return incomplete(Stopped::Over, failure.clone());
    }
    let reason = || format!("{FAILURES_IN_A_ROW} runs in a row left no record");
    if in_a_row == FAILURES_IN_A_ROW { incomplete(Stopped::Failing, reason()) } else { None }
}

/// Where in the plan a block stands.
struct Place<'a> {
    round: usize,
    rounds: usize,
    position: usize,
    cell: &'a CellSpec,
    started: Instant,
}

fn report_trouble(progress: &Progress, place: &Place<'_>, block: &Block) {
    let id = &place.cell.id;
    // Of a single round the number says nothing.
    let place = match place.rounds {
        1 => id.clone(),
        _ => format!("round {}, {id}", place.round + 1),
    };
    if let Some(failure) = &block.failure {
        progress.note(&format!("{place}: {failure}"));
    }
    if let Some(record) =
        block.record.as_ref().filter(|record| record.validity.class == ValidityClass::Invalid)
    {
        progress.note(&format!("{place}: invalid: {}", record.validity));
    }
}

impl Request<'_> {
    /// Where the client of a block writes its record.
    fn record_file(&self, place: &Place<'_>) -> PathBuf {
        self.folder.join(format!("{:03}-{:03}-{}.json", place.round, place.position, place.cell.id))
    }
}

/// Has the last block kept and removes the client's own record of it, which stays where the block
/// cannot be kept.
fn keep_last(request: &Request<'_>, blocks: &[(usize, Block)], file: &Path, progress: &Progress) {
    let is_read = blocks.last().is_some_and(|(_, block)| block.record.is_some());
    match request.keep.map(|keep| keep(blocks)) {
        Some(Err(error)) => progress.note(&format!("{error:#}")),
        _ if is_read => {
            // A file that stays does no harm.
            let _ = fs::remove_file(file);
        }
        _ => {}
    }
}

/// Plays a block and reads its record. Whether the plan ends with it is what `Played` says.
async fn run_block(
    request: &Request<'_>,
    place: &Place<'_>,
    file: &Path,
    progress: &mut Progress,
    interrupt: Pin<&mut impl Future<Output = ()>>,
) -> Result<(Block, Played)> {
    // A relay that stays has the events of the blocks before, and drops what it has.
    let drawn = match request.config.url {
        Some(_) => place.round * request.plan.rounds[0].len() + place.position,
        None => place.round,
    };
    let began = Instant::now();
    let task = Task {
        round: u32::try_from(place.round).context("more rounds than the flag allows")?,
        position: u32::try_from(place.position).context("more cells than a registry has")?,
        cell: place.cell,
        comparable_with: &formats(request.cells),
        seed: plan::round_seed(request.config.seed, drawn),
        seconds: request.config.seconds,
        record: file,
    };
    let played = request.generator.play(task, progress, interrupt).await?;
    // The user may have ended the run after the block's end.
    let is_over = [Exit::Success, Exit::Invalid, Exit::BoundMissed].map(|exit| exit.is(played.exit_code));
    let is_over = is_over.contains(&true);
    let mut block = Block {
        round: task.round,
        position: task.position,
        seed: task.seed,
        started_after_ns: nanos(began - place.started),
        process_ns: nanos(began.elapsed()),
        exit_code: played.exit_code,
        failure: played.failure.clone(),
        interrupted: Exit::Interrupted.is(played.exit_code) || (played.interrupted && !is_over),
        record: None,
    };
    take_record(place, file, &mut block);
    Ok((block, played))
}

/// The formats of the plan: events that one of them cannot hold are set aside for all.
fn formats(cells: &[CellSpec]) -> Vec<String> {
    let formats: BTreeSet<&str> = cells.iter().map(|cell| cell.cell.format.name()).collect();
    formats.into_iter().map(str::to_owned).collect()
}

/// Reads the client's record into the block and checks its judgement against the ledger and the
/// exit code.
fn take_record(place: &Place<'_>, file: &Path, block: &mut Block) {
    let expected =
        !block.interrupted && block.failure.is_none() || KEPT.iter().any(|exit| exit.is(block.exit_code));
    if !file.exists() {
        if expected {
            add_failure(block, format!("the client wrote no record to {}", file.display()));
        }
        return;
    }
    let mut record = match RunRecord::read(file) {
        Ok(record) => record,
        Err(error) => return add_failure(block, format!("{:#}", anyhow::Error::new(error))),
    };
    if let Some(difference) = difference(place.cell, block.seed, &record) {
        return add_failure(block, difference);
    }
    let (owed, is_interrupted) = (record.owed(), record.status == Status::Interrupted);
    let validity = &mut record.validity;
    match KEPT.into_iter().find(|exit| exit.is(block.exit_code)) {
        // The client's own judgement, whose reasons stand in the record.
        Some(Exit::Invalid) if validity.class == ValidityClass::Invalid => {}
        Some(_) if validity.counts == ValidityClass::Invalid => {}
        // The record's status says so, and nothing is wrong with the relay.
        None if is_interrupted => {}
        Some(exit) => {
            let why = format!("the client ended with exit code {}", exit.code());
            validity.add(ValidityClass::Invalid, ReasonKind::ClientEnded { why });
        }
        None => {
            let failure = block.failure.as_ref().and_then(|failure| failure.lines().next());
            let failure = failure.or(block.interrupted.then_some("interrupted"));
            if let Some(why) = failure.filter(|_| validity.counts != ValidityClass::Invalid) {
                validity.add(ValidityClass::Invalid, ReasonKind::ClientEnded { why: why.to_owned() });
            }
        }
    }
    // Guards against a client that passes an unbalanced ledger.
    if let Err(why) = owed.balanced()
        && validity.counts != ValidityClass::Invalid
    {
        validity.add(ValidityClass::Invalid, ReasonKind::Unbalanced { why });
    }
    block.record = Some(record);
}

fn add_failure(block: &mut Block, text: String) {
    block.failure = Some(match block.failure.take() {
        Some(failure) => format!("{failure}\n{text}"),
        None => text,
    });
}

/// Why a record is not about the block that asked for it.
fn difference(cell: &CellSpec, seed: u64, record: &RunRecord) -> Option<String> {
    // A relay with faults never passes for one without.
    let faults = record.relay.as_ref().map_or(&[][..], |relay| &relay.faults);
    if faults.len() != cell.faults.len() {
        return Some(format!("the relay had the faults {faults:?} where {:?} were asked for", cell.faults));
    }
    let is_floor = record.relay.as_ref().is_some_and(|relay| relay.is_floor);
    if is_floor != (cell.role == Role::Floor) {
        return Some("the client played against a relay that does no Nostr work, or should have".to_owned());
    }
    let asked = cell.cell.recorded();
    for row in Factor::ALL.map(Factor::row) {
        let (asked, found) = ((row.recorded)(&asked), (row.recorded)(&record.cell));
        if asked != found {
            return Some(format!(
                "the client measured {} {:?} where {:?} was asked for",
                row.name,
                found.unwrap_or_default(),
                asked.unwrap_or_default()
            ));
        }
    }
    (seed != record.seed)
        .then(|| format!("the client measured seed {} where {seed} was asked for", record.seed))
}
