//! A worker: a thread that connects clients, releases what is due to them, and returns what they
//! saw.

use std::{
    cell::RefCell,
    collections::HashSet,
    rc::Rc,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use tokio::{
    runtime,
    sync::{
        mpsc::{self, error::TrySendError},
        oneshot, watch,
    },
    task::{JoinHandle, LocalSet},
};

use crate::sockets::{
    dial::Dialer,
    driver::{ClientOutcome, Driver},
    opening::Window,
    pacer::Pacer,
};
use client::{
    recorder::Recorder,
    shared::{Fate, Shared},
};
use workload::Due;

/// Length of the queue of due work of a client. Publications beyond it are dropped, which makes the
/// run invalid.
const QUEUE: usize = 1 << 16;

/// Why a worker ends that waited for the start.
#[derive(Debug, thiserror::Error)]
#[error("another connection could not be made, or ended before the start")]
pub(crate) struct NotStarted;

/// The timings of one worker, and its clients' results by connection.
pub(crate) type WorkerReport = (Recorder, Vec<(usize, ClientOutcome)>);

/// A worker on its thread.
pub(crate) struct Worker {
    pub(crate) thread: thread::JoinHandle<anyhow::Result<WorkerReport>>,
    pub(crate) ready: oneshot::Receiver<()>,
}

/// Starts worker `index` of `workers`, with the connections whose turn it is.
///
/// # Errors
/// When the system gives no thread.
pub(crate) fn spawn(
    index: usize,
    workers: usize,
    (shared, dialer): (&Arc<Shared>, &Arc<Dialer>),
    start: &watch::Receiver<bool>,
    stop: &watch::Receiver<bool>,
) -> anyhow::Result<Worker> {
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
        .context("cannot start a thread for a worker: raise the limit of processes (pids.max, ulimit -u)")?;
    Ok(Worker { thread, ready })
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
    // Plan, queues and timer are made before the start, outside of the measured span.
    let own: HashSet<usize> = connections.iter().copied().collect();
    let due = shared.workload.timeline(|connection| own.contains(&connection));
    // Clients that nothing is due at wait for messages alone.
    let busy: HashSet<usize> = due.iter().map(|(_, connection, _)| *connection).collect();
    let pacer = Pacer::new()?;
    let mut queues = vec![None; shared.workload.roles.len()];
    let (mut tasks, mut waiting, mut window) = (Vec::new(), connections.into_iter(), Window::default());
    let (told, mut tells) = mpsc::unbounded_channel();
    let begun = Instant::now();
    loop {
        for id in waiting.by_ref().take(window.room()) {
            let (sender, receiver) = mpsc::channel(QUEUE);
            queues[id] = Some(sender).filter(|_| busy.contains(&id));
            let opening = Driver::open(Arc::clone(&shared), Rc::clone(&recorder), Arc::clone(&dialer), id);
            let (start, stop, told) = (start.clone(), stop.clone(), told.clone());
            let client = live(Arc::clone(&shared), id, opening, (receiver, start, stop), told);
            tasks.push((id, tokio::task::spawn_local(client)));
            window.begins();
        }
        if window.is_idle() {
            break;
        }
        tokio::select! {
            biased;
            Some(told) = tells.recv() => {
                let connects = told?;
                window.opened(connects.then(|| begun.elapsed()));
            }
            _ = start.wait_for(|start| *start) => return Err(NotStarted.into()),
        }
    }
    ready.send(()).ok();
    tokio::select! {
        biased;
        started = start.wait_for(|start| *start) => {
            if started.is_err() {
                return Err(NotStarted.into());
            }
        }
        Some(Err(lost)) = tells.recv() => return Err(lost),
    }
    let telling = tokio::task::spawn_local(tell(Arc::clone(&shared), Rc::clone(&recorder)));
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

/// Work due to a client, and when the run starts and stops.
type Cues = (mpsc::Receiver<Due>, watch::Receiver<bool>, watch::Receiver<bool>);

/// Runs one client from its connection to its end, and reports a failure at once. From its opening
/// to the start, which may be an hour away, the connection is read: a relay may ping it (RFC 6455
/// §5.5.2). Tells its worker when it is open, and whether that took a connection, or why the
/// connection failed before the start.
async fn live(
    shared: Arc<Shared>,
    id: usize,
    opening: impl Future<Output = anyhow::Result<Driver>>,
    (due, mut start, stop): Cues,
    told: mpsc::UnboundedSender<anyhow::Result<bool>>,
) -> ClientOutcome {
    let report = |error: &anyhow::Error| {
        let failure = format!("connection {id}: {error:#}");
        shared.report_failure(&failure);
        Some(failure)
    };
    let fail_to_start = |error: anyhow::Error| {
        let failure = report(&error);
        told.send(Err(error.context(format!("connection {id}")))).ok();
        ClientOutcome { failure, ..ClientOutcome::default() }
    };
    // Boxed: a client would keep room for its opening.
    let mut client = match Box::pin(opening).await {
        Ok(client) => client,
        Err(error) => return fail_to_start(error),
    };
    told.send(Ok(shared.workload.roles[id].connects_before())).ok();
    tokio::select! {
        biased;
        started = start.wait_for(|start| *start) => {
            if started.is_err() {
                return ClientOutcome::default();
            }
        }
        lost = client.idle() => match lost {
            Ok(never) => match never {},
            Err(error) => return fail_to_start(error),
        },
    }
    let failure = client.run(shared.start(), due, stop).await.err().and_then(|error| report(&error));
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
        shared.add_live(&recorder.borrow().live(shared.live_timing, told..now));
        told = told.max(now);
    }
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
    Ok(())
}

/// Accounts for what did not fit into a queue.
fn drop_due(shared: &Shared, due: Due) {
    match due {
        Due::Publication(n) => shared.settle(n as usize, Fate::Dropped),
        Due::Flood(_) if shared.workload.until.is_some() => shared.done(1),
        Due::Flood(n) => {
            let flood = shared.workload.floods[n as usize];
            (flood.first..flood.first + flood.count).for_each(|n| shared.settle(n as usize, Fate::Dropped));
        }
        Due::Session(n) => shared.drop_session(n),
        // A recorded client's actions depend on its earlier ones.
        Due::Turn(_) => shared.report_failure(
            "a recorded client fell behind by more messages than its queue holds: play it with a lower --load",
        ),
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
