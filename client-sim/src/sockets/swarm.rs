//! Plays a plan: workers connect the clients and release what is due, from the start to the end of
//! the run.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use anyhow::bail;
use measure::{MemoryRecord, Status, Threads};
use program::Interrupt;
use tokio::sync::watch;

use crate::{
    args::Args,
    interruption::Interrupted,
    relays::{
        memory,
        meters::{self, Cost},
        own_relay::OwnRelay,
    },
    share::{Player, say_prepared},
    sockets::{
        dial::Dialer,
        driver::ClientOutcome,
        patience::Patience,
        progress::{self, Progress},
        worker::{self, NotStarted, Worker, WorkerReport},
    },
};
use client::{
    recorder::Recorder,
    shared::{CLOCKS_APART, Shared},
};
use workload::Role;

/// How long clients go on after the first connection failed, to count what is on the way.
const GRACE: Duration = Duration::from_millis(300);

/// How long clients read on after the measured span.
const LINGER: Duration = Duration::from_millis(100);

/// Options of a run.
#[derive(Debug, Clone)]
pub struct Options<'a> {
    /// The command line.
    pub args: &'a Args,
    /// The process ids of the relay, when it runs on this machine, with that of the gateway before
    /// it.
    pub relay_pids: Vec<u32>,
    /// The process id of the gateway, where there is one.
    pub gateway_pid: Option<u32>,
    /// How long the run takes, for progress, where that is longer than the plan: over links.
    pub expected: Option<Duration>,
    /// What a coordinator has this process play. `None` plays the whole plan.
    pub player: Option<Player>,
    /// The state of the run, once there is one, for who watches.
    pub watched: Arc<OnceLock<Arc<Shared>>>,
}

/// The outcome of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The timings of all clients.
    pub recorder: Recorder,
    /// The results of this process's clients, each with its connection, in the order of the plan.
    pub clients: Vec<(usize, ClientOutcome)>,
    /// Cost to both processes from start to end.
    pub(crate) cost: Cost,
    /// Wall time from start to end.
    pub wall: Duration,
    /// Resident memory before and after the connections are open.
    pub memory: Option<MemoryRecord>,
    /// Whether the run reached its end.
    pub status: Status,
}

/// Connects all clients, plays the plan, and collects the results.
///
/// # Errors
/// When a connection cannot be made before the start, or the run is stopped until then. Workers end with
/// the process. After a later failure the measurements are kept, and [`Outcome::status`] has the reason.
pub async fn run(
    shared: Arc<Shared>,
    dialer: &Arc<Dialer>,
    options: &Options<'_>,
    mut own_relay: Option<&mut OwnRelay>,
    interrupt: &mut Interrupt,
) -> anyhow::Result<Outcome> {
    let (relay_pids, gateway_pid) = (&*options.relay_pids, options.gateway_pid);
    let memory_before = memory::before(relay_pids, gateway_pid);
    let (start, stop) = (watch::channel(false), watch::channel(false));
    let count = usize::from(options.args.workers);
    let mut workers: Vec<Worker> = (0..count)
        .map(|index| worker::spawn(index, count, (&shared, dialer), &start.1, &stop.1))
        .collect::<anyhow::Result<_>>()?;
    let ready = all_ready(&mut workers, &shared);
    let connects = |(id, role): (usize, &Role)| shared.carries(id) && role.connects_before();
    let connected = shared.workload.roles.iter().enumerate().filter(|one| connects(*one)).count();
    let memory = || memory::opened(memory_before?, relay_pids, gateway_pid, connected);
    let opening = async {
        let (all_ready, memory) = (ready.await, memory());
        let begin = match &options.player {
            Some(player) if all_ready => Some(cue(player, &shared).await?),
            _ => None,
        };
        anyhow::Ok((all_ready, memory, begin))
    };
    let (all_ready, memory, begin) = tokio::select! {
        biased;
        () = interrupt.wait() => return Err(Interrupted.into()),
        reason = stopped(options) => bail!("stopped before the start: {reason}"),
        opened = opening => opened?,
    };
    let stop_meters = meters::start(relay_pids, gateway_pid, &mut own_relay)?;
    shared.set_start(begin.unwrap_or_else(Instant::now));
    let mut status = Status::Complete;
    if all_ready {
        start.0.send_replace(true);
        status = watch_run(&shared, options, interrupt).await;
    }
    // Ends workers that still wait for the start.
    drop(start);
    let wall = shared.start().elapsed();
    let cost = stop_meters(&mut own_relay)?;
    // Clients read on, to count messages that come twice or unasked after the last delivery. A share that
    // was stopped gets none.
    if status == Status::Complete || options.player.is_none() {
        tokio::time::sleep(LINGER).await;
    }
    stop.0.send_replace(true);
    let memory = memory.map(|memory| memory::at_end(memory, relay_pids));
    let (recorder, clients) = collect(workers).await?;
    if options.player.is_some() && options.args.progress_json {
        progress::tell_all(&shared, &recorder);
    }
    Ok(Outcome { recorder, clients, cost, wall, memory, status })
}

/// Waits until every worker is connected; false when a connection could not be made, or ended
/// meanwhile.
async fn all_ready(workers: &mut [Worker], shared: &Shared) -> bool {
    let ready = futures::future::try_join_all(workers.iter_mut().map(|worker| &mut worker.ready));
    tokio::select! {
        ready = ready => ready.is_ok(),
        _ = shared.failed() => false,
    }
}

/// Waits until the coordinator of a share stops it; returns the reason.
pub(crate) async fn stopped(options: &Options<'_>) -> String {
    match &options.player {
        Some(player) => player.orders.stopped().await,
        None => std::future::pending().await,
    }
}

/// Reports to the coordinator that this share is prepared, and waits until shortly before the start
/// that the coordinator sets.
///
/// # Errors
/// When the start is refused, or a connection ends before it.
async fn cue(player: &Player, shared: &Shared) -> anyhow::Result<Instant> {
    say_prepared(&player.plan_sha256, &player.corpus_sha256, None)?;
    let wait = async {
        let start = player.orders.start().await?;
        // From then on clients count what comes: another agent's first events may be early here.
        tokio::time::sleep_until((start - CLOCKS_APART).into()).await;
        anyhow::Ok(start)
    };
    tokio::select! {
        biased;
        start = wait => start,
        failure = shared.failed() => bail!("before the start: {failure}"),
    }
}

/// Joins the workers. Returns their timings together, and the result of each client in the order of
/// the plan.
///
/// # Errors
/// The first failure other than [`NotStarted`], which another failure causes.
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

/// Waits until everything is answered, a connection fails, the relay is silent for too long, or the
/// user interrupts. A share keeps its connections until the last instant of the whole plan, because
/// other agents need them as load. Returns whether the run reached its end.
async fn watch_run(shared: &Shared, options: &Options<'_>, interrupt: &mut Interrupt) -> Status {
    let last = shared.workload.last_due();
    let drain = Duration::from_secs(options.args.drain_seconds);
    let mut patience = Patience::new(shared.start() + last, drain, Threads::from_pids(&options.relay_pids));
    let others_end = tokio::time::Instant::from_std(shared.start() + last);
    let mut others_play = shared.is_share();
    let mut so_far = (shared.outstanding(), shared.deliveries());
    let mut progress = Progress::new(shared, options.args, options.expected);
    let mut stopped = Box::pin(stopped(options));
    loop {
        tokio::select! {
            () = shared.changed.notified() => {}
            () = tokio::time::sleep_until(patience.deadline().into()) => {
                if patience.is_over(Instant::now(), Threads::from_pids(&options.relay_pids)) {
                    return Status::Complete;
                }
            }
            () = tokio::time::sleep_until(others_end), if others_play => others_play = false,
            () = progress.tick() => {
                // Late answers are latency, and a closed loop lasts as long as its answers take:
                // only a second without any answer or delivery counts towards the silence that ends
                // a run.
                let now = (shared.outstanding(), shared.deliveries());
                if now.0 < so_far.0 || now.1 > so_far.1 {
                    so_far = now;
                    patience.heard(Instant::now(), Threads::from_pids(&options.relay_pids));
                }
            }
            () = interrupt.wait() => return Status::Interrupted,
            reason = &mut stopped => return Status::Incomplete { reason },
        }
        if let Some(reason) = shared.first_failure() {
            tokio::time::sleep(GRACE).await;
            return Status::Incomplete { reason };
        }
        if shared.is_done() && !others_play {
            return Status::Complete;
        }
    }
}
