//! The state that the workers of a run share: the plan, the start, and the fate of every
//! publication.

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicI32, AtomicI64, AtomicU8, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use ahash::HashSet;
use codecs::{ByteEvent, VerifyLevel};
use fixedbitset::FixedBitSet;
use measure::{AddUp, LiveCounts, LiveLatency};
use tokio::sync::Notify;

use crate::incidents::Incidents;
use workload::{Publication, Task, Timing, Workload, schedule::nanos};

/// The fate of a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Fate {
    /// No answer yet.
    Planned,
    /// The relay accepted the event.
    Acked,
    /// The relay refused the event.
    Rejected,
    /// The relay had the event already.
    Duplicate,
    /// The generator did not send the event, because a queue of its own was full.
    Dropped,
    /// The event was not sent, because the relay ended the reconciliation that it belongs to.
    NotSent,
    /// Another agent publishes the event, and this process does not learn what the relay said.
    Elsewhere,
}

impl Fate {
    /// Whether no subscriber gets the event.
    pub fn is_undelivered(self) -> bool {
        matches!(self, Fate::Rejected | Fate::Duplicate | Fate::Dropped | Fate::NotSent)
    }
}

/// An upper bound on the difference between agents' clocks. A share's clients count deliveries from this
/// long before the start. A stay is owed another agent's event only if the event is due this long after
/// the stay began.
pub const CLOCKS_APART: Duration = Duration::from_millis(100);

/// How many windows of publications a reader may lag behind in a loop that time ends.
const LAG: i64 = 4;

/// How many publications of closed loops may be unanswered in all.
fn windows(workload: &Workload) -> i64 {
    let window = |flood: &workload::Flood| match workload.roles[flood.connection].task {
        Task::Publisher { window } => i64::try_from(window).unwrap_or(i64::MAX),
        _ => 0,
    };
    workload.floods.iter().map(window).fold(0, i64::saturating_add)
}

/// What latencies of a plan are of: deliveries, or else answers.
fn live_timing(workload: &Workload) -> Timing {
    let requests = || workload.sessions.iter().flat_map(|session| &session.steps).flatten();
    let delivers = workload.live.iter().any(|live| !live.matches.is_clear())
        || requests().any(|request| !request.expected.is_empty())
        || workload.sessions.iter().any(|session| session.reconciliation.is_some())
        || workload.turns.iter().any(|turn| !turn.expected.is_empty());
    match (delivers, workload.publications.is_empty()) {
        (true, _) => Timing::Response,
        (false, false) => Timing::PublishOk,
        (false, true) => Timing::Eose,
    }
}

/// The mean, rounded up.
fn mean(numbers: &[i32]) -> i64 {
    let sum: i64 = numbers.iter().copied().map(i64::from).sum();
    let count = i64::try_from(numbers.len()).unwrap_or(i64::MAX).max(1);
    sum / count + 1
}

/// The state shared by all workers.
#[derive(Debug)]
pub struct Shared {
    /// The plan.
    pub workload: Workload,
    /// When each publication was sent, in nanoseconds from the start; 0 before that.
    sent_ns: Vec<AtomicU64>,
    /// Notified when everything is done, or something failed.
    pub changed: Notify,
    /// The check of each event that clients receive, besides that the plan has it.
    pub verify: VerifyLevel,
    /// The events of the plan with ids and keys in tags as bytes, where clients keep them so.
    kept: Option<Vec<ByteEvent<'static>>>,
    fates: Vec<AtomicU8>,
    /// For each publication, the deliveries that are outstanding; 0 or less once none is.
    fan_out: Vec<AtomicI32>,
    start: OnceLock<Instant>,
    /// When the last thing of the plan is due, in nanoseconds from the start.
    pub(crate) last_due_ns: u64,
    outstanding: AtomicI64,
    /// From how much outstanding work on loops wait before they publish, where time ends loops.
    enough: i64,
    /// The number of slow readers that have not caught up.
    behind: AtomicI64,
    deliveries: AtomicU64,
    /// What latencies are of while clients play.
    pub live_timing: Timing,
    /// Latencies of all workers until the last second.
    live: Mutex<LiveLatency>,
    /// The 99th percentile of the last second, in nanoseconds.
    pub latency_ns_p99: AtomicU64,
    /// The connections of this process; all without other agents.
    carried: Option<Vec<bool>>,
    /// How long after the start the last worker began, in nanoseconds.
    started_late_ns: AtomicU64,
    /// The shortest handshake of a connection, in nanoseconds; the most there is before the first.
    handshake_ns_min: AtomicU64,
    failures: Mutex<Vec<String>>,
    /// Sessions that the generator did not begin.
    dropped_sessions: Mutex<HashSet<u32>>,
    /// Deliveries that were lost, doubled, altered or not owed.
    pub incidents: Arc<Incidents>,
    /// Ids of the events that each client with several relays has.
    known: Vec<Mutex<HashSet<[u8; 32]>>>,
}

impl Shared {
    /// Makes the state for a run of `workload`.
    pub fn new(workload: Workload) -> Self {
        Shared::of_share(workload, None)
    }

    /// Makes the state for a run of some connections of `workload`, while other agents play the
    /// others; of all connections with `None`.
    pub fn of_share(workload: Workload, carried: Option<Vec<bool>>) -> Self {
        let carries = |connection: usize| carried.as_ref().is_none_or(|carried| carried[connection]);
        let fan_out = workload.fan_out_to(carries);
        let fan_out: Vec<i32> =
            fan_out.into_iter().map(|n| i32::try_from(n).expect("plans fit into memory")).collect();
        let deliveries: i64 = fan_out.iter().copied().map(i64::from).sum();
        let roles = workload.roles.iter().enumerate();
        let slow = roles.filter(|(connection, role)| carries(*connection) && role.reads_slowly()).count();
        let fates = workload
            .publications
            .iter()
            .map(|publication| if carries(publication.connection) { Fate::Planned } else { Fate::Elsewhere });
        let fates: Vec<Fate> = fates.collect();
        let sessions = workload.sessions.iter().filter(|session| carries(session.connection));
        let (work, deliveries) = match workload.until {
            // A loop is one piece of work; a publication and its deliveries count from its sending.
            Some(_) => (workload.floods.len() + sessions.filter(|session| !session.follows).count(), 0),
            None => {
                let own = fates.iter().filter(|fate| **fate == Fate::Planned).count();
                let turns = workload.turns.iter().filter(|turn| carries(turn.connection));
                let turns = turns.map(|turn| 1 + turn.expected.len()).sum::<usize>();
                (own + sessions.count() + turns, deliveries)
            }
        };
        let work = i64::try_from(work).expect("plans fit into memory");
        let enough = work + windows(&workload).saturating_mul(1 + LAG * mean(&fan_out));
        Shared {
            sent_ns: workload.publications.iter().map(|_| AtomicU64::new(0)).collect(),
            changed: Notify::new(),
            verify: VerifyLevel::None,
            kept: None,
            fates: fates.into_iter().map(|fate| AtomicU8::new(fate as u8)).collect(),
            carried,
            started_late_ns: AtomicU64::new(0),
            handshake_ns_min: AtomicU64::new(u64::MAX),
            start: OnceLock::new(),
            last_due_ns: nanos(workload.last_due()),
            behind: AtomicI64::new(i64::try_from(slow).unwrap_or(i64::MAX)),
            outstanding: AtomicI64::new(deliveries + work),
            enough,
            deliveries: AtomicU64::new(0),
            live_timing: live_timing(&workload),
            live: Mutex::default(),
            latency_ns_p99: AtomicU64::new(0),
            failures: Mutex::default(),
            dropped_sessions: Mutex::default(),
            incidents: Arc::default(),
            known: (0..workload.readers).map(|_| Mutex::default()).collect(),
            workload,
            fan_out: fan_out.into_iter().map(AtomicI32::new).collect(),
        }
    }

    /// Has clients keep ids and keys in tags as bytes, which takes the plan's events once more.
    pub fn keep_bytes(&mut self) {
        self.kept = Some(self.workload.events.iter().cloned().map(ByteEvent::from).collect());
    }

    /// The plan's events with keys as bytes; `None` where clients keep text.
    pub fn kept(&self) -> Option<&[ByteEvent<'static>]> {
        self.kept.as_deref()
    }

    /// Sets the start of the run, from which the plan's times count.
    ///
    /// # Panics
    /// When called twice: a run starts once.
    pub fn set_start(&self, start: Instant) {
        self.start.set(start).expect("a run starts once");
    }

    /// The start of the run, from which the plan's times count.
    ///
    /// # Panics
    /// Before [`Shared::set_start`]: nothing is timed before the start.
    pub fn start(&self) -> Instant {
        self.begun().expect("nothing is timed before the start")
    }

    /// The start of the run, once it is set.
    pub fn begun(&self) -> Option<Instant> {
        self.start.get().copied()
    }

    /// Whether this process has the connection.
    pub fn carries(&self, connection: usize) -> bool {
        self.carried.as_ref().is_none_or(|carried| carried[connection])
    }

    /// Whether other agents play a part of the plan.
    pub fn is_share(&self) -> bool {
        self.carried.is_some()
    }

    /// How many connections this process has.
    pub fn connections(&self) -> usize {
        (0..self.workload.roles.len()).filter(|connection| self.carries(*connection)).count()
    }

    /// Notes that a worker begins.
    pub fn worker_begins(&self) {
        self.started_late_ns.fetch_max(nanos(self.start().elapsed()), Ordering::Relaxed);
    }

    /// How long after the start the last worker began, in nanoseconds.
    pub fn started_late_ns(&self) -> u64 {
        self.started_late_ns.load(Ordering::Relaxed)
    }

    /// Notes how long the handshake of a connection took, in nanoseconds.
    pub fn connected_in(&self, ns: u64) {
        self.handshake_ns_min.fetch_min(ns, Ordering::Relaxed);
    }

    /// The shortest handshake so far, in nanoseconds.
    pub fn handshake_ns_min(&self) -> Option<u64> {
        Some(self.handshake_ns_min.load(Ordering::Relaxed)).filter(|ns| *ns < u64::MAX)
    }

    /// Counts deliveries, for progress.
    pub fn delivered(&self, count: u64) {
        self.deliveries.fetch_add(count, Ordering::Relaxed);
    }

    /// Deliveries so far.
    pub fn deliveries(&self) -> u64 {
        self.deliveries.load(Ordering::Relaxed)
    }

    /// Adds a worker's latencies of a second.
    pub fn add_live(&self, latency: &LiveLatency) {
        self.live.lock().unwrap_or_else(PoisonError::into_inner).add_up(latency);
    }

    /// Latencies of all workers until the last second.
    pub fn live_latency(&self) -> LiveLatency {
        *self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts so far.
    pub fn live(&self) -> LiveCounts {
        LiveCounts {
            connections: self.connections() as u64,
            sent: self.sent_count(),
            deliveries: self.deliveries(),
            latency: self.live_latency(),
        }
    }

    /// Publications sent so far. Counted when asked: it costs clients nothing.
    pub fn sent_count(&self) -> u64 {
        self.sent_ns.iter().filter(|sent| sent.load(Ordering::Relaxed) > 0).count() as u64
    }

    /// Subtracts `count` pieces of work; notifies [`Shared::changed`] with the last.
    pub fn done(&self, count: i64) {
        if self.outstanding.fetch_sub(count, Ordering::AcqRel) <= count {
            self.changed.notify_one();
        }
    }

    /// Whether loops have ended, where time ends them.
    pub fn is_over(&self, now_ns: u64) -> bool {
        self.workload.until.is_some_and(|until| now_ns >= nanos(until))
    }

    /// Whether so much is undelivered that loops wait before they publish more: a relay cuts off
    /// readers that lag far behind.
    pub fn has_enough(&self) -> bool {
        self.workload.until.is_some() && self.outstanding.load(Ordering::Acquire) > self.enough
    }

    /// Whether a publication and its deliveries are part of the outstanding work.
    fn counts(&self, publication: usize) -> bool {
        self.workload.until.is_none() || self.was_sent(publication)
    }

    /// Whether no subscriber gets a publication.
    pub fn is_undelivered(&self, publication: usize) -> bool {
        self.fate(publication).is_undelivered() || !self.counts(publication)
    }

    /// Pieces of work left: publications without a fate, open sessions, missing deliveries, slow
    /// readers behind.
    pub fn outstanding(&self) -> i64 {
        self.outstanding.load(Ordering::Acquire) + self.behind.load(Ordering::Acquire)
    }

    /// Counts a slow reader that has everything, or was cut off.
    pub fn caught_up(&self) {
        self.behind.fetch_sub(1, Ordering::AcqRel);
        self.changed.notify_one();
    }

    /// Whether only slow readers have work left.
    pub fn waits_for_slow_readers(&self) -> bool {
        self.outstanding.load(Ordering::Acquire) <= 0
    }

    /// Whether no work is left.
    pub fn is_done(&self) -> bool {
        self.waits_for_slow_readers() && self.behind.load(Ordering::Acquire) <= 0
    }

    /// Sets the fate of a publication. One that the relay did not accept is delivered to nobody.
    pub fn settle(&self, publication: usize, fate: Fate) {
        self.fates[publication].store(fate as u8, Ordering::Release);
        let undelivered =
            if fate == Fate::Acked { 0 } else { self.fan_out[publication].swap(0, Ordering::AcqRel) };
        if self.counts(publication) {
            self.done(1 + i64::from(undelivered.max(0)));
        }
    }

    /// Takes one delivery of a publication off the outstanding work, because it came or the relay
    /// ended the subscription. One that was refused and comes all the same is no work.
    pub fn no_longer_owed(&self, publication: usize) {
        if self.fan_out[publication].fetch_sub(1, Ordering::AcqRel) > 0 && self.counts(publication) {
            self.done(1);
        }
    }

    /// Settles a session that did not fit into a queue, and those that follow it: they do not
    /// begin.
    pub fn drop_session(&self, session: u32) {
        if self.workload.until.is_some() {
            self.note_dropped_session(session);
            return self.done(1);
        }
        let next = |session: &u32| self.workload.sessions[*session as usize].next;
        for session in std::iter::successors(Some(session), next) {
            self.note_dropped_session(session);
            self.done(1);
        }
    }

    /// Notes a session that the generator did not begin.
    pub fn note_dropped_session(&self, session: u32) {
        self.dropped_sessions.lock().unwrap_or_else(PoisonError::into_inner).insert(session);
    }

    /// The sessions that the generator did not begin: nothing is owed to them.
    pub fn dropped_sessions(&self) -> HashSet<u32> {
        self.dropped_sessions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The fate of a publication.
    pub fn fate(&self, publication: usize) -> Fate {
        match self.fates[publication].load(Ordering::Acquire) {
            f if f == Fate::Acked as u8 => Fate::Acked,
            f if f == Fate::Rejected as u8 => Fate::Rejected,
            f if f == Fate::Duplicate as u8 => Fate::Duplicate,
            f if f == Fate::Dropped as u8 => Fate::Dropped,
            f if f == Fate::NotSent as u8 => Fate::NotSent,
            f if f == Fate::Elsewhere as u8 => Fate::Elsewhere,
            _ => Fate::Planned,
        }
    }

    /// Records when a publication was given to its connection, in nanoseconds from the start.
    pub fn note_sent(&self, publication: usize, now_ns: u64) {
        self.sent_ns[publication].store(now_ns.max(1), Ordering::Relaxed);
        if self.workload.until.is_some() {
            let deliveries = self.fan_out[publication].load(Ordering::Acquire);
            self.outstanding.fetch_add(1 + i64::from(deliveries.max(0)), Ordering::AcqRel);
        }
    }

    /// When a publication was sent, in nanoseconds from the start; 0 before that.
    pub fn sent_ns(&self, publication: usize) -> u64 {
        self.sent_ns[publication].load(Ordering::Relaxed)
    }

    /// Whether a publication was given to its connection.
    pub fn was_sent(&self, publication: usize) -> bool {
        self.sent_ns(publication) > 0
    }

    /// When a publication was due, in nanoseconds from the start; in a closed loop, when it was
    /// sent.
    pub fn due_ns(&self, publication: usize) -> u64 {
        let planned = &self.workload.publications[publication];
        if planned.closed { self.sent_ns(publication) } else { nanos(planned.at) }
    }

    /// Whether another agent publishes it. Only the plan then says when it is sent.
    pub fn is_elsewhere(&self, publication: usize) -> bool {
        // Without other agents no fate need be read.
        self.is_share() && self.fate(publication) == Fate::Elsewhere
    }

    /// The publications that were sent by now, as far as this process can tell: of other agents
    /// those that are due. A closed loop's are never known to be sent.
    pub fn sent(&self, now_ns: u64) -> FixedBitSet {
        let is_due = |planned: &Publication| !planned.closed && nanos(planned.at) <= now_ns;
        self.publications_that(
            |n, planned| if self.is_elsewhere(n) { is_due(planned) } else { self.was_sent(n) },
        )
    }

    /// The publications that may have been sent by now.
    pub fn perhaps_sent(&self, now_ns: u64) -> FixedBitSet {
        let soon_ns = now_ns + nanos(CLOCKS_APART);
        let may_be_due = |planned: &Publication| planned.closed || nanos(planned.at) <= soon_ns;
        self.publications_that(
            |n, planned| if self.is_elsewhere(n) { may_be_due(planned) } else { self.was_sent(n) },
        )
    }

    fn publications_that(&self, is_one: impl Fn(usize, &Publication) -> bool) -> FixedBitSet {
        let all = self.workload.publications.iter().enumerate();
        all.filter(|(n, planned)| is_one(*n, planned)).map(|(n, _)| n).collect()
    }

    /// When the last publication was sent, in nanoseconds from the start; 0 when none was.
    pub fn last_sent_ns(&self) -> u64 {
        self.sent_ns.iter().map(|sent| sent.load(Ordering::Relaxed)).max().unwrap_or(0)
    }

    /// Whether a client that reads from several relays has this event.
    pub fn knows(&self, reader: usize, id: &[u8; 32]) -> bool {
        self.known[reader].lock().unwrap_or_else(PoisonError::into_inner).contains(id)
    }

    /// Adds an event to those of a client with several relays; true when the client did not have
    /// it.
    pub fn learns(&self, reader: usize, id: &[u8; 32]) -> bool {
        self.known[reader].lock().unwrap_or_else(PoisonError::into_inner).insert(*id)
    }

    /// The publications that the relay has accepted by now.
    pub fn accepted(&self) -> FixedBitSet {
        (0..self.fates.len()).filter(|publication| self.fate(*publication) == Fate::Acked).collect()
    }

    /// Reports that a connection ended early.
    pub fn report_failure(&self, failure: &str) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(failure.to_owned());
        self.changed.notify_one();
    }

    /// Waits until a connection ends early, and returns why.
    pub async fn failed(&self) -> String {
        loop {
            if let Some(failure) = self.first_failure() {
                return failure;
            }
            self.changed.notified().await;
        }
    }

    /// Why the first connection that ended early did so.
    pub fn first_failure(&self) -> Option<String> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).first().cloned()
    }
}

#[cfg(test)]
mod tests {
    use codecs::Filter;

    use super::*;
    use workload::{Live, Role, Speaks};

    const MS: u64 = 1_000_000;

    /// Two publishers and a subscriber to all that they publish; the second publisher and its three
    /// events are another agent's.
    fn share() -> Shared {
        let role = |task| Role::new(None, Speaks::default(), task);
        let publisher = || role(Task::Publisher { window: 1 });
        let publication = |ms, connection, closed| Publication {
            at: Duration::from_millis(ms),
            connection,
            event: 0,
            closed,
        };
        let workload = Workload {
            roles: vec![
                publisher(),
                publisher(),
                role(Task::Subscriber { filters: vec![0], read_bytes_per_s: None }),
            ],
            publications: vec![
                publication(0, 1, true),
                publication(100, 0, false),
                publication(100, 1, false),
                publication(500, 1, false),
            ],
            live: vec![Live { filter: Filter::default(), matches: (0..4).collect() }],
            ..Workload::default()
        };
        Shared::of_share(workload, Some(vec![true, false, true]))
    }

    #[test]
    fn a_share_waits_for_its_own_work_and_for_what_others_owe_its_subscribers() {
        let shared = share();
        assert_eq!((shared.connections(), shared.outstanding()), (2, 1 + 4));
        shared.settle(1, Fate::Rejected);
        assert_eq!(shared.outstanding(), 3, "what was refused comes to nobody");
        shared.done(3);
        assert!(shared.is_done());
    }

    #[test]
    fn what_another_agent_sent_is_known_by_plan_and_only_so_far_as_clocks_agree() {
        let shared = share();
        let sent = |ms: u64| shared.sent(ms * MS).ones().collect::<Vec<_>>();
        let perhaps = |ms: u64| shared.perhaps_sent(ms * MS).ones().collect::<Vec<_>>();
        assert_eq!((sent(99), perhaps(0)), (vec![], vec![0, 2]), "within 100 ms clocks may differ");
        assert_eq!((sent(100), perhaps(399)), (vec![2], vec![0, 2]));
        assert_eq!((sent(500), perhaps(400)), (vec![2, 3], vec![0, 2, 3]), "a closed loop has no instants");
        shared.note_sent(1, 150 * MS);
        assert_eq!((sent(0), perhaps(0)), (vec![1], vec![0, 1, 2]), "its own it knows");
    }
}
