//! Runs the plan: one client process for each block, which starts and stops its own relay.

use std::{
    collections::{BTreeSet, VecDeque},
    env, fmt, fs,
    future::Future,
    path::{Path, PathBuf},
    pin::Pin,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use cell::Factor;
use measure::{Exit, RunRecord, Status, ValidityClass};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time,
};

use crate::{
    matrix::CellSpec,
    over_agents::Agents,
    plan::{self, Plan},
    progress::Progress,
    result::{Block, Config, Role},
};

/// How a client ends that leaves a record behind although something is wrong.
const KEPT: [Exit; 3] = [Exit::Invalid, Exit::Unbalanced, Exit::Incomplete];

/// Runs in a row without a record that end the plan: the next would leave none either.
const FAILURES_IN_A_ROW: usize = 3;

/// Bytes kept of a failing client's stderr: an error and its causes.
const TAIL_BYTES: usize = 4096;

/// Time for a client to stop by itself after Ctrl-C, which the terminal sends to it, too.
const CLIENT_STOPS_ALONE: Duration = Duration::from_secs(1);

/// Time for a client to write its record and stop its relay after SIGTERM.
const CLIENT_STOPS_ASKED: Duration = Duration::from_secs(10);

/// Upper bound on a block beyond three times what it should take: start, corpus, signatures,
/// timeouts.
const BLOCK_EXTRA: Duration = Duration::from_secs(120);

/// A plan with its cells.
#[derive(Debug)]
pub struct Request<'a> {
    /// The client program; its first argument is `role:client`.
    pub client: &'a Path,
    /// What every block has in common.
    pub config: &'a Config,
    /// The matrix.
    pub cells: &'a [CellSpec],
    /// The order.
    pub plan: &'a Plan,
    /// An existing folder for the records of single blocks.
    pub folder: &'a Path,
    /// Keeps each block when it ends, so that a run that is killed loses none.
    pub keep: Option<Keep<'a>>,
    /// What the relay of others answered, for `--doctor` of every client.
    pub answers: Option<&'a Path>,
    /// Who plays the blocks together, instead of one client on this machine.
    pub agents: Option<&'a Agents>,
}

/// What is done with the blocks so far, each with the index of its cell.
type Kept<'a> = dyn Fn(&[(usize, Block)]) -> Result<()> + 'a;

/// Keeps the last of the blocks so far.
#[derive(Clone, Copy)]
pub struct Keep<'a>(pub &'a Kept<'a>);

impl fmt::Debug for Keep<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keep")
    }
}

/// The blocks that ran.
#[derive(Debug)]
pub struct Outcome {
    /// The blocks in the order they ran, each with the index of its cell.
    pub blocks: Vec<(usize, Block)>,
    /// Whether all of the plan ran.
    pub status: Status,
    /// Why not, for the exit code.
    pub stopped: Option<Stopped>,
}

/// Why a plan was not finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// `interrupt` completed.
    Interrupted,
    /// The client refused its arguments.
    Usage,
    /// An agent, or what coordinates them, was lost.
    AgentsLost,
    /// Several runs in a row left no record.
    Failing,
}

/// Runs every block of the plan in order, and of its further rounds as many as are needed. Once
/// `interrupt` completes, stops the running client and returns the blocks so far.
///
/// # Errors
/// When the client program cannot be started.
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
            let (block, interrupted) =
                run_block(request, &place, &file, progress, interrupt.as_mut()).await?;
            progress.finish_block(&block);
            if !interrupted {
                report_trouble(progress, &place, &block);
            }
            in_a_row = if block.record.is_some() { 0 } else { in_a_row + 1 };
            let interrupted = interrupted || Exit::Interrupted.is(block.exit_code);
            let stopped = if interrupted {
                Some((Stopped::Interrupted, "interrupted".to_owned()))
            } else if Exit::Usage.is(block.exit_code) {
                Some((Stopped::Usage, "the client refused its arguments".to_owned()))
            } else if let Some(failure) = lost_agents(request, &block) {
                Some((Stopped::AgentsLost, failure))
            } else if in_a_row == FAILURES_IN_A_ROW {
                Some((Stopped::Failing, format!("{FAILURES_IN_A_ROW} runs in a row left no record")))
            } else {
                None
            };
            blocks.push((cell, block));
            keep_last(request, &blocks, &file, progress);
            if let Some((stopped, reason)) = stopped {
                return Ok(Outcome { blocks, status: Status::Incomplete { reason }, stopped: Some(stopped) });
            }
        }
        round += 1;
    }
    Ok(Outcome { blocks, status: Status::Complete, stopped: None })
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
    // Of a single round, such as a probe, which is not counted, the number says nothing.
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
        progress.note(&format!("{place}: invalid: {}", record.validity.reasons.join("; ")));
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
    match request.keep.map(|Keep(keep)| keep(blocks)) {
        Some(Err(error)) => progress.note(&format!("{error:#}")),
        _ if is_read => {
            // A file that stays does no harm.
            let _ = fs::remove_file(file);
        }
        _ => {}
    }
}

async fn run_block(
    request: &Request<'_>,
    place: &Place<'_>,
    file: &Path,
    progress: &mut Progress,
    interrupt: Pin<&mut (impl Future<Output = ()> + ?Sized)>,
) -> Result<(Block, bool)> {
    // A relay that stays has the events of the blocks before, and drops what it has.
    let drawn = match request.config.url {
        Some(_) => place.round * request.plan.rounds[0].len() + place.position,
        None => place.round,
    };
    let seed = plan::round_seed(request.config.seed, drawn);
    let began = Instant::now();
    let round = u32::try_from(place.round).context("more rounds than the flag allows")?;
    let position = u32::try_from(place.position).context("more cells than a registry has")?;
    let limit = plan::cell_estimate(place.cell, request.config.seconds) * 3 + BLOCK_EXTRA;
    let (ending, failure) = match request.agents {
        Some(agents) => {
            let load = (seed, request.config.seconds);
            let block = agents.block((round, position), place.cell, formats(request.cells), load)?;
            let (played, interrupted) = agents.play(block, file, progress, interrupt).await?;
            let ending =
                Ending { exit_code: played.exit_code, tail: String::new(), timed_out: false, interrupted };
            (ending, played.failure)
        }
        None => {
            let ending = play(request, place.cell, seed, file, limit, progress, interrupt).await?;
            (ending, None)
        }
    };
    let mut block = Block {
        round,
        position,
        seed,
        started_after_ns: nanoseconds(began - place.started),
        process_ns: nanoseconds(began.elapsed()),
        exit_code: ending.exit_code,
        failure: failure.or_else(|| ending.failure(limit)),
        record: None,
    };
    take_record(place, file, &mut block);
    Ok((block, ending.interrupted))
}

/// Why no further block can be played.
fn lost_agents(request: &Request<'_>, block: &Block) -> Option<String> {
    request.agents.filter(|agents| agents.is_over())?;
    block.failure.clone()
}

/// Has a client of this machine play a block.
async fn play(
    request: &Request<'_>,
    cell: &CellSpec,
    seed: u64,
    file: &Path,
    limit: Duration,
    progress: &mut Progress,
    interrupt: Pin<&mut (impl Future<Output = ()> + ?Sized)>,
) -> Result<Ending> {
    let mut command = command(request, cell, seed, file);
    if progress.is_live() {
        command.arg("--progress-json").stdout(Stdio::piped());
    }
    let child =
        command.spawn().with_context(|| format!("cannot start the client {}", request.client.display()))?;
    attend(child, limit, progress, interrupt).await
}

/// The formats of the plan: events that one of them cannot hold are set aside for all.
fn formats(cells: &[CellSpec]) -> Vec<String> {
    let formats: BTreeSet<&str> = cells.iter().map(|cell| cell.cell.format.name()).collect();
    formats.into_iter().map(str::to_owned).collect()
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn command(request: &Request<'_>, cell: &CellSpec, seed: u64, record: &Path) -> Command {
    let config = request.config;
    let mut command = Command::new(request.client);
    command.args(["role:client", "--cell", &serde_json::json!(cell.cell).to_string()]);
    command.args(["--comparable-with", &formats(request.cells).join(",")]);
    if let Some(url) = &config.url {
        let answers = request.answers.iter().flat_map(|file| ["--doctor".as_ref(), file.as_os_str()]);
        command.args(["--url", url.with_password()]).args(answers);
    }
    if cell.role == Role::Floor {
        command.arg("--floor");
    }
    for fault in &cell.faults {
        command.args(["--relay-fault", fault]);
    }
    if let Some(packets_per_s) = cell.over_links.and_then(|over| over.packets_per_s) {
        command.args(["--link-capacity", &packets_per_s.to_string()]);
    }
    if let Some(corpus) = &config.corpus {
        command.args(["--corpus", corpus]);
    }
    command.args(["--seed", &seed.to_string(), "--seconds", &config.seconds.to_string()]);
    command.arg("--record").arg(record).arg("--quiet").args(&config.client_args);
    if env::var_os("RUST_LOG").is_none() {
        // A relay's progress would hide the failure in the last lines.
        command.env("RUST_LOG", "warn");
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// How a client process ended.
struct Ending {
    exit_code: Option<i32>,
    tail: String,
    timed_out: bool,
    interrupted: bool,
}

impl Ending {
    /// The failure with the client's last lines; `None` when the exit code reports none.
    fn failure(&self, limit: Duration) -> Option<String> {
        let what = match self.exit_code {
            _ if self.interrupted => "interrupted".to_owned(),
            _ if self.timed_out => {
                format!("the client did not end within {} s and was stopped", limit.as_secs())
            }
            None => "a signal ended the client".to_owned(),
            Some(code) => match Exit::of(code) {
                Some(Exit::Success | Exit::Invalid | Exit::BoundMissed) => return None,
                Some(Exit::Unbalanced) => "events were lost or altered".to_owned(),
                Some(Exit::Incomplete) => "the relay was lost".to_owned(),
                Some(Exit::NotPossible) => "not possible for this scenario".to_owned(),
                _ => format!("the client ended with exit code {code}"),
            },
        };
        Some(if self.tail.is_empty() { what } else { format!("{what}; it wrote:\n{}", self.tail) })
    }
}

/// Waits for the client to end; stops it on an interruption or after `limit`.
async fn attend(
    mut child: Child,
    limit: Duration,
    progress: &mut Progress,
    mut interrupt: Pin<&mut (impl Future<Output = ()> + ?Sized)>,
) -> Result<Ending> {
    let mut stderr = child.stderr.take().context("stderr was piped")?;
    let mut tail = Tail::default();
    let mut seconds = child.stdout.take().map(|stdout| BufReader::new(stdout).lines());
    let (mut timed_out, mut interrupted, mut asked) = (false, false, false);
    let deadline = time::sleep(limit);
    tokio::pin!(deadline);
    let status = loop {
        tokio::select! {
            status = child.wait() => break status.context("cannot wait for the client")?,
            () = tail.read_some(&mut stderr) => {}
            second = next_line(&mut seconds) => progress.second(&second),
            () = interrupt.as_mut(), if !interrupted => {
                interrupted = true;
                deadline.as_mut().reset(time::Instant::now() + CLIENT_STOPS_ALONE);
            }
            () = deadline.as_mut() => {
                timed_out = !interrupted;
                if asked {
                    child.start_kill().context("cannot kill the client")?;
                } else if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
                    asked = true;
                    // If it ended this instant, the wait above completes.
                    let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
                }
                deadline.as_mut().reset(time::Instant::now() + CLIENT_STOPS_ASKED);
            }
        }
    };
    // Drains the pipe. A relay that outlives its client holds the pipe open, hence the limit.
    let _ = time::timeout(Duration::from_secs(1), async {
        while tail.open() {
            tail.read_some(&mut stderr).await;
        }
    })
    .await;
    Ok(Ending { exit_code: status.code(), tail: tail.text(), timed_out, interrupted })
}

/// The next line; pending forever after the last.
async fn next_line(lines: &mut Option<Lines<BufReader<ChildStdout>>>) -> String {
    if let Some(open) = lines {
        if let Ok(Some(line)) = open.next_line().await {
            return line;
        }
        *lines = None;
    }
    std::future::pending().await
}

/// The last bytes of a stream.
#[derive(Default)]
struct Tail {
    bytes: VecDeque<u8>,
    ended: bool,
}

impl Tail {
    fn open(&self) -> bool {
        !self.ended
    }

    /// Reads available bytes; pending forever after the end.
    async fn read_some(&mut self, stream: &mut (impl AsyncRead + Unpin)) {
        if self.ended {
            return std::future::pending().await;
        }
        let mut buffer = [0; 1024];
        let count = stream.read(&mut buffer).await.unwrap_or(0);
        self.ended = count == 0;
        self.bytes.extend(&buffer[..count]);
        let excess = self.bytes.len().saturating_sub(TAIL_BYTES);
        self.bytes.drain(..excess);
    }

    fn text(mut self) -> String {
        String::from_utf8_lossy(self.bytes.make_contiguous()).trim().to_owned()
    }
}

/// Reads the client's record into the block and checks its judgement against the ledger and the
/// exit code.
fn take_record(place: &Place<'_>, file: &Path, block: &mut Block) {
    let expected = block.failure.is_none() || KEPT.iter().any(|exit| exit.is(block.exit_code));
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
    let validity = &mut record.validity;
    match KEPT.into_iter().find(|exit| exit.is(block.exit_code)) {
        // The client's own judgement, whose reasons stand in the record.
        Some(Exit::Invalid) if validity.class == ValidityClass::Invalid => {}
        Some(_) if validity.counts == ValidityClass::Invalid => {}
        Some(exit) => {
            validity.add(ValidityClass::Invalid, format!("the client ended with exit code {}", exit.code()));
        }
        None => {
            let failure = block.failure.as_ref().and_then(|failure| failure.lines().next());
            if let Some(failure) = failure.filter(|_| validity.counts != ValidityClass::Invalid) {
                validity.add(ValidityClass::Invalid, failure.to_owned());
            }
        }
    }
    // Guards against a client that passes an unbalanced ledger.
    if let Err(failure) = record.counts.balanced()
        && validity.counts != ValidityClass::Invalid
    {
        validity.add(ValidityClass::Invalid, format!("the ledger does not balance: {failure}"));
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
    let floor = record.relay.as_ref().is_some_and(|relay| relay.software.ends_with("--floor"));
    if floor != (cell.role == Role::Floor) {
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
