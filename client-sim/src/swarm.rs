//! Plays a plan: worker threads connect the clients, release what is due, and return what the
//! clients saw.

use std::{
    cell::RefCell,
    collections::HashSet,
    rc::Rc,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use codecs::VerifyLevel;
use futures::{StreamExt, TryStreamExt, stream::FuturesUnordered};
use measure::{AllocationsRecord, CpuTime, MemoryRecord};
use tokio::{
    runtime,
    sync::{
        mpsc::{self, error::TrySendError},
        oneshot, watch,
    },
    task::{JoinHandle, LocalSet},
};
use wire::Interrupt;

use crate::{
    dial::Dialer,
    driver::{ClientOutcome, Driver},
    memory,
    meters::Clocks,
    own_relay::OwnRelay,
    pacer::Pacer,
    progress::{self, Progress},
    recorder::Recorder,
    share::Player,
    shared::{CLOCKS_APART, Fate, Shared},
    workload::{Due, Role},
};

/// Length of the queue of due work of a client. Publications beyond it are dropped, which makes the
/// run invalid.
const QUEUE: usize = 1 << 16;

/// How often a worker checks whether only slow readers have work left.
const CATCH_UP_POLL: Duration = Duration::from_millis(10);

/// Most concurrent handshakes in one worker.
const CONNECTING: usize = 64;

/// How long clients go on after the first connection failed, to count what is on the way.
const GRACE: Duration = Duration::from_millis(300);

/// How long clients read on after the measured span.
const LINGER: Duration = Duration::from_millis(100);

/// Why a worker ends that waited for the start.
#[derive(Debug, thiserror::Error)]
#[error("another worker could not connect")]
struct NotStarted;

/// Why a run that the user ended is incomplete.
pub const INTERRUPTED: &str = "interrupted";

/// Options of a run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Threads that carry the connections.
    pub workers: usize,
    /// How long the relay may be silent after the last thing was due before the run ends.
    pub drain: Duration,
    /// The process id of the relay, when it runs on this machine.
    pub relay_pid: Option<u32>,
    /// What clients check of each event that they receive.
    pub client_verify: VerifyLevel,
    /// Whether to suppress progress on standard error.
    pub quiet: bool,
    /// Whether to print progress as JSON on standard output.
    pub progress_json: bool,
    /// How long the run takes, for progress, where that is longer than the plan: over links.
    pub expected: Option<Duration>,
    /// The share of the plan to play, where a coordinator starts and stops it.
    pub player: Option<Player>,
}

/// The outcome of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The timings of all clients.
    pub recorder: Recorder,
    /// The results of this process's clients, each with its connection, in the order of the plan.
    pub clients: Vec<(usize, ClientOutcome)>,
    /// CPU time of this process from start to end.
    pub client_cpu: CpuTime,
    /// CPU time of the relay from start to end.
    pub relay_cpu: Option<CpuTime>,
    /// Allocations of both processes from start to end, in builds with `count-allocations`.
    pub allocations: Option<AllocationsRecord>,
    /// How long threads of this process were runnable without running, from start to end, where the
    /// kernel keeps `schedstat`.
    pub client_wait_ns: Option<u64>,
    /// Wall time from start to end.
    pub wall: Duration,
    /// What the emulator of links did from start to end.
    pub links: Option<link::Report>,
    /// Resident memory before and after the connections are open.
    pub memory: Option<MemoryRecord>,
    /// Why the run is incomplete.
    pub incomplete: Option<String>,
}

/// The timings of one worker, and its clients' results by connection.
type WorkerReport = (Recorder, Vec<(usize, ClientOutcome)>);

/// A worker on its thread.
struct Worker {
    thread: thread::JoinHandle<anyhow::Result<WorkerReport>>,
    ready: oneshot::Receiver<()>,
}

/// Connects all clients, plays the plan, and collects the results.
///
/// # Errors
/// When a connection cannot be made before the start. A failure after the start is no error: the
/// measurements are kept, and [`Outcome::incomplete`] has the reason.
pub async fn run(
    shared: Arc<Shared>,
    dialer: &Arc<Dialer>,
    options: &Options,
    mut own_relay: Option<&mut OwnRelay>,
) -> anyhow::Result<Outcome> {
    let memory_before = memory::before(options.relay_pid);
    let (start, stop) = (watch::channel(false), watch::channel(false));
    let mut workers: Vec<Worker> = (0..options.workers)
        .map(|index| spawn_worker(index, options.workers, (&shared, dialer), &start.1, &stop.1))
        .collect();
    let ready = all_ready(&mut workers);
    let connects = |(id, role): (usize, &Role)| shared.carries(id) && role.connects_before();
    let connected = shared.workload.roles.iter().enumerate().filter(|one| connects(*one)).count();
    let memory = || memory_before.and_then(|before| memory::after(before, options.relay_pid, connected));
    let (all_ready, memory, begin) = match &options.player {
        None => (ready.await, memory(), None),
        Some(player) => tokio::select! {
            reason = player.orders.stopped() => return Ok(never_began(&shared, reason)),
            ready = ready => match ready {
                true => {
                    let memory = memory();
                    let Some(start) = cue(player, &shared).await? else {
                        return Ok(never_began(&shared, player.orders.stopped().await));
                    };
                    (true, memory, Some(start))
                }
                false => (false, memory(), None),
            },
        },
    };
    let clocks = Clocks::of(options.relay_pid)?;
    shared.set_start(begin.unwrap_or_else(Instant::now));
    let meters = clocks.start(&mut own_relay)?;
    let mut incomplete = None;
    if all_ready {
        start.0.send_replace(true);
        incomplete = watch_run(&shared, options).await;
    }
    // Workers that still wait for the start end.
    drop(start);
    let cost = meters.stop(&mut own_relay)?;
    let wall = shared.start().elapsed();
    // Reads on after the measured span: what comes twice or unasked after the last delivery is
    // counted. A share that is stopped sends nothing more.
    if incomplete.is_none() || options.player.is_none() {
        tokio::time::sleep(LINGER).await;
    }
    stop.0.send_replace(true);
    let memory = memory.map(|memory| MemoryRecord {
        relay_peak_bytes: options.relay_pid.and_then(memory::resident).map(|relay| relay.peak_bytes),
        ..memory
    });
    let (recorder, clients) = collect(workers).await?;
    progress::tell_all(&shared, &recorder);
    Ok(Outcome {
        recorder,
        clients,
        client_cpu: cost.client_cpu,
        relay_cpu: cost.relay_cpu,
        allocations: cost.allocations,
        client_wait_ns: cost.client_wait_ns,
        links: cost.links,
        wall,
        memory,
        incomplete,
    })
}

/// Waits until every worker is connected; false when one could not connect.
async fn all_ready(workers: &mut [Worker]) -> bool {
    let mut all_ready = true;
    for worker in workers {
        all_ready &= (&mut worker.ready).await.is_ok();
    }
    all_ready
}

/// Tells the coordinator that this share is prepared, and waits until shortly before the start that
/// it is told; `None` when it is told to stop.
///
/// # Errors
/// When the start is refused, or a connection ends before it.
async fn cue(player: &Player, shared: &Shared) -> anyhow::Result<Option<Instant>> {
    player.say_prepared()?;
    let wait = async {
        let start = player.orders.start().await?;
        // From then on clients count what comes: another agent's first events may be early here.
        tokio::time::sleep_until((start - CLOCKS_APART).into()).await;
        anyhow::Ok(Some(start))
    };
    tokio::select! {
        biased;
        _ = player.orders.stopped() => Ok(None),
        start = wait => start,
        // Workers report a failure before the start, and nothing else.
        () = shared.changed.notified() => {
            bail!("before the start: {}", shared.first_failure().unwrap_or_default())
        }
    }
}

/// The outcome of a share that was stopped before its start. Its workers end with the process.
fn never_began(shared: &Shared, reason: String) -> Outcome {
    shared.set_start(Instant::now());
    Outcome {
        recorder: Recorder::default(),
        clients: Vec::new(),
        client_cpu: CpuTime::default(),
        relay_cpu: None,
        allocations: None,
        client_wait_ns: None,
        links: None,
        wall: Duration::ZERO,
        memory: None,
        incomplete: Some(reason),
    }
}

/// Joins the workers: their timings together, and what each client brought back, in the order of
/// the plan.
///
/// # Errors
/// The first failure that is a cause; [`NotStarted`] follows from another.
async fn collect(workers: Vec<Worker>) -> anyhow::Result<WorkerReport> {
    let mut recorder = Recorder::default();
    let mut clients = Vec::new();
    let mut failures = Vec::new();
    for worker in workers {
        let joined = tokio::task::spawn_blocking(|| worker.thread.join()).await?;
        match joined.unwrap_or_else(|_| Err(anyhow::anyhow!("a worker panicked"))) {
            Ok((recorded, reports)) => {
                recorder.merge(&recorded);
                clients.extend(reports);
            }
            Err(failure) => failures.push(failure),
        }
    }
    failures.sort_by_key(|failure| failure.is::<NotStarted>());
    if let Some(cause) = failures.into_iter().next() {
        return Err(cause);
    }
    clients.sort_unstable_by_key(|(id, _)| *id);
    Ok((recorder, clients))
}

/// Completes on a signal that ends the run; never where the system lets nobody take them over.
async fn interruption() {
    match Interrupt::listen() {
        Ok(mut interrupt) => interrupt.wait().await,
        Err(_) => std::future::pending().await,
    }
}

/// Waits until everything is answered, a connection fails, the relay is silent for too long, or the
/// user interrupts. A share keeps its connections until the last instant of the whole plan, because
/// other agents' loads are planned beside them. Returns why the run is incomplete.
async fn watch_run(shared: &Shared, options: &Options) -> Option<String> {
    let last = shared.workload.last_due();
    let mut deadline = tokio::time::Instant::from_std(shared.start() + last + options.drain);
    let others_end = tokio::time::Instant::from_std(shared.start() + last);
    let mut others_play = shared.is_share();
    let mut so_far = (shared.outstanding(), shared.deliveries());
    let mut progress = Progress::new(shared, options.quiet, options.progress_json, options.expected);
    let mut interrupted = Box::pin(interruption());
    let mut stopped = Box::pin(async {
        match &options.player {
            Some(player) => player.orders.stopped().await,
            None => std::future::pending().await,
        }
    });
    loop {
        tokio::select! {
            () = shared.changed.notified() => {}
            () = tokio::time::sleep_until(deadline) => return None,
            () = tokio::time::sleep_until(others_end), if others_play => others_play = false,
            () = progress.tick() => {
                // Late answers are latency, and a closed loop lasts as long as its answers take:
                // only a second without any answer or delivery counts towards the silence that ends
                // a run.
                let now = (shared.outstanding(), shared.deliveries());
                if now.0 < so_far.0 || now.1 > so_far.1 {
                    so_far = now;
                    deadline = deadline.max(tokio::time::Instant::now() + options.drain);
                }
            }
            () = &mut interrupted => return Some(INTERRUPTED.to_owned()),
            reason = &mut stopped => return Some(reason),
        }
        if let Some(failure) = shared.first_failure() {
            tokio::time::sleep(GRACE).await;
            return Some(failure);
        }
        if shared.is_done() && !others_play {
            return None;
        }
    }
}

fn spawn_worker(
    index: usize,
    workers: usize,
    (shared, dialer): (&Arc<Shared>, &Arc<Dialer>),
    start: &watch::Receiver<bool>,
    stop: &watch::Receiver<bool>,
) -> Worker {
    let (ready_sender, ready) = oneshot::channel();
    let (shared, dialer) = (Arc::clone(shared), Arc::clone(dialer));
    let (start, stop) = (start.clone(), stop.clone());
    let thread = thread::Builder::new()
        .name(format!("worker-{index}"))
        .spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
            let local = LocalSet::new();
            let own = (0..shared.workload.roles.len()).filter(|connection| shared.carries(*connection));
            let connections = own.skip(index).step_by(workers).collect();
            local.block_on(&runtime, work(shared, dialer, connections, ready_sender, start, stop))
        })
        .expect("the system starts a thread for each worker");
    Worker { thread, ready }
}

async fn work(
    shared: Arc<Shared>,
    dialer: Arc<Dialer>,
    connections: Vec<usize>,
    ready: oneshot::Sender<()>,
    mut start: watch::Receiver<bool>,
    mut stop: watch::Receiver<bool>,
) -> anyhow::Result<WorkerReport> {
    let recorder = Rc::new(RefCell::new(Recorder::default()));
    let clients: Vec<(usize, Driver)> = futures::stream::iter(connections)
        .map(|id| open(Arc::clone(&shared), Rc::clone(&recorder), Arc::clone(&dialer), id))
        .buffered(CONNECTING)
        .try_collect()
        .await?;
    let mut queues = vec![None; shared.workload.roles.len()];
    // Queues and timer are made before the start, outside the measured span.
    let (mut tasks, mut receivers) = (Vec::new(), Vec::new());
    for (id, client) in clients {
        let (sender, receiver) = mpsc::channel(QUEUE);
        queues[id] = Some(sender);
        receivers.push((id, client, receiver));
    }
    let due = shared.workload.timeline(|connection| queues[connection].is_some());
    // Clients that nothing is due at wait for messages alone.
    let busy: HashSet<usize> = due.iter().map(|(_, connection, _)| *connection).collect();
    for ((connection, queue), role) in queues.iter_mut().enumerate().zip(&shared.workload.roles) {
        *queue = queue.take().filter(|_| busy.contains(&connection) || role.reads_slowly());
    }
    let pacer = Pacer::new()?;
    ready.send(()).ok();
    tokio::select! {
        biased;
        started = start.wait_for(|start| *start) => {
            if started.is_err() {
                return Err(NotStarted.into());
            }
        }
        lost = idle(&shared, receivers.iter_mut().map(|(id, client, _)| (*id, client))) => {
            shared.report_failure(&format!("{lost:#}"));
            return Err(lost);
        }
    }
    let telling = tokio::task::spawn_local(tell(Arc::clone(&shared), Rc::clone(&recorder)));
    for (id, client, receiver) in receivers {
        tasks.push((
            id,
            tokio::task::spawn_local(drive(Arc::clone(&shared), id, client, receiver, stop.clone())),
        ));
    }
    tokio::select! {
        paced = release(&shared, &due, &queues, &pacer) => paced?,
        _ = stop.wait_for(|stop| *stop) => {}
    }
    let reports = join_all(tasks).await?;
    telling.abort();
    // Waits for the cancelled task to release the recorder.
    telling.await.ok();
    let recorder = Rc::into_inner(recorder).context("a client outlived its task")?.into_inner();
    Ok((recorder, reports))
}

/// Reads what comes to the clients of a share until the start, which may be an hour away: pings,
/// and events that another agent gives the relay for later. Returns why a connection ended.
async fn idle<'c>(shared: &Shared, clients: impl Iterator<Item = (usize, &'c mut Driver)>) -> anyhow::Error {
    if !shared.is_share() {
        return std::future::pending().await;
    }
    let reading = clients.map(|(id, client)| async move {
        match client.idle().await {
            Ok(never) => match never {},
            Err(error) => error.context(format!("connection {id}")),
        }
    });
    let mut reading: FuturesUnordered<_> = reading.collect();
    match reading.next().await {
        Some(error) => error,
        None => std::future::pending().await,
    }
}

/// Runs one client, and reports a failure at once.
async fn drive(
    shared: Arc<Shared>,
    id: usize,
    mut client: Driver,
    due: mpsc::Receiver<Due>,
    stop: watch::Receiver<bool>,
) -> ClientOutcome {
    let ended = client.run(shared.start(), due, stop).await;
    let failure = ended.err().map(|error| format!("connection {id}: {error:#}"));
    if let Some(failure) = &failure {
        shared.report_failure(failure);
    }
    ClientOutcome { failure, ..client.finish().await }
}

/// Sums up the last second, each second. Runs also when no progress is shown, so that showing it
/// costs nothing extra.
async fn tell(shared: Arc<Shared>, recorder: Rc<RefCell<Recorder>>) {
    const SECOND: Duration = Duration::from_secs(1);
    let mut seconds = tokio::time::interval_at((shared.start() + SECOND).into(), SECOND);
    seconds.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let mut told = 0;
    loop {
        seconds.tick().await;
        let now = usize::try_from(shared.start().elapsed().as_secs()).unwrap_or(usize::MAX);
        if shared.is_live() {
            shared.add_live(&recorder.borrow().live(told..now));
            told = told.max(now);
        }
        if let Some((samples, p99_ns)) = now.checked_sub(1).and_then(|last| recorder.borrow().second(last)) {
            shared.saw(samples, p99_ns);
        }
    }
}

async fn open(
    shared: Arc<Shared>,
    recorder: Rc<RefCell<Recorder>>,
    dialer: Arc<Dialer>,
    id: usize,
) -> anyhow::Result<(usize, Driver)> {
    let client = Driver::open(shared, recorder, dialer, id).await;
    Ok((id, client.with_context(|| format!("connection {id}"))?))
}

/// Gives each connection what is due, at the planned instant.
async fn release(
    shared: &Shared,
    due: &[(Duration, usize, Due)],
    queues: &[Option<mpsc::Sender<Due>>],
    pacer: &Pacer,
) -> anyhow::Result<()> {
    let start = shared.start();
    pacer.until(start).await?;
    shared.worker_begins();
    for (at, connection, due) in due {
        pacer.until(start + *at).await?;
        let queue = queues[*connection].as_ref().context("a worker only releases what its own clients do")?;
        // A queue that is closed was that of a connection that ended: its work is not sent.
        if let Err(TrySendError::Full(due)) = queue.try_send(*due) {
            drop_due(shared, due);
        }
        // Yields to the clients when many things are due at once.
        tokio::task::consume_budget().await;
    }
    let slow: Vec<_> = (queues.iter().zip(&shared.workload.roles))
        .filter_map(|(queue, role)| queue.as_ref().filter(|_| role.reads_slowly()))
        .collect();
    if !slow.is_empty() {
        // The last thing may be another agent's.
        pacer.until(start + shared.workload.last_due()).await?;
    }
    while !slow.is_empty() && !shared.waits_for_slow_readers() {
        tokio::time::sleep(CATCH_UP_POLL).await;
    }
    for queue in slow {
        // A client without a queue was cut off.
        queue.try_send(Due::CatchUp).ok();
    }
    Ok(())
}

/// Accounts for what did not fit into a queue.
fn drop_due(shared: &Shared, due: Due) {
    match due {
        Due::Publication(n) => shared.settle(n as usize, Fate::Dropped),
        Due::Flood(n) => {
            let flood = shared.workload.floods[n as usize];
            (flood.first..flood.first + flood.count).for_each(|n| shared.settle(n as usize, Fate::Dropped));
        }
        Due::Session(_) => shared.done(1),
        Due::CatchUp => {}
    }
}

async fn join_all(
    tasks: Vec<(usize, JoinHandle<ClientOutcome>)>,
) -> anyhow::Result<Vec<(usize, ClientOutcome)>> {
    let mut reports = Vec::with_capacity(tasks.len());
    for (id, task) in tasks {
        reports.push((id, task.await.context("a client panicked")?));
    }
    Ok(reports)
}
