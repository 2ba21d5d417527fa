//! One simulated client as a state machine, without a socket, a runtime or a clock of its own.
//!
//! Inputs (`on_due`, `on_connected`, `on_message`, `on_disconnected`, `on_timer`) change the state
//! and leave [`Action`]s, which the owner of the connection takes with [`Client::next_action`] and
//! carries out in order. Times are nanoseconds on one clock; with [`Client::start`] that clock
//! begins anew at the start of the run. client-sim runs the machine over a socket, `rehearsals`
//! over a simulated network.
//!
//! State that all clients of a run have in common stands in [`shared`]; the [`ledger`] proves that
//! every planned event and every expected delivery is accounted for.

mod action;
pub mod auth;
mod connect;
mod hear;
pub mod incidents;
pub mod ledger;
mod light;
mod live;
pub mod meaning;
mod publish;
mod received;
mod reconcile;
pub mod recorder;
mod report;
mod session;
pub mod shared;
mod subscription;
#[cfg(test)]
mod tests;
mod turns;

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
    sync::Arc,
};

use ahash::{HashMap, HashSet};
use bytes::Bytes;
use codecs::{ClientMessage, Codec, Filter, hex, quoted};
use fixedbitset::FixedBitSet;

pub use self::{
    action::Action,
    live::Following,
    report::{Report, Stay, Words},
    subscription::Subscription,
};
use self::{
    auth::Proof,
    connect::{ConnectionState, Reader},
    light::Light,
    publish::Backlog,
    received::Received,
    reconcile::OpenReconciliation,
    session::{OpenRequest, OpenSession, lacked, planned, planned_from},
    turns::Replay,
};
use crate::{
    incidents::Wrong,
    meaning::{Interpreter, Meaning},
    recorder::Sample,
    shared::Shared,
};
use workload::{Due, Reading, Task, Timing};

/// Work that a timer wakes a client for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wake {
    /// Start `sessions[n]`; the second number is the instant at which it was due, in nanoseconds.
    Start(u32, u64),
    /// Try again to start `sessions[n]`, which an earlier session kept from it.
    Retry(u32, u64),
    /// End the stay of `sessions[n]`.
    Leave(u32),
    /// End `sessions[n]` if everything owed to it has come.
    LeaveWhenAllIsThere(u32),
    /// Read on, as a slow reader.
    Read,
    /// Publish on, in a loop that waited until less is undelivered.
    GoOn,
    /// Take the turns of a recorded client that have waited long enough.
    TakeTurns,
    /// Read at full speed, as a slow reader, once all other work is done. Report that everything owed
    /// to it has come.
    CatchUp,
}

/// One simulated client.
#[derive(Debug)]
pub struct Client {
    id: usize,
    shared: Arc<Shared>,
    codec: &'static dyn Codec,
    interpreter: Interpreter,
    /// The relay's URL in AUTH events.
    url: String,
    /// The wall clock at instant zero, in seconds since 1970.
    unix_s: u64,
    /// Whether the run has started; nothing is recorded before.
    started: bool,
    connection: ConnectionState,
    /// When the client gives up a relay that has not set up its connection.
    gives_up_ns: Option<u64>,
    proof: Proof,
    /// Sessions that wait for the connection.
    waiting: Vec<u32>,
    /// Sessions that wait for subscriptions of earlier ones, each with the instant at which it was due.
    held: VecDeque<(u32, u64)>,
    actions: VecDeque<Action>,
    wakes: BinaryHeap<Reverse<(u64, Wake)>>,
    buffer: Vec<u8>,
    report: Report,
    /// Publications whose OK is missing, by event id.
    in_flight: HashMap<[u8; 32], u32>,
    backlog: Backlog,
    /// Requests and fetches that wait for their EOSE.
    requests: HashMap<Subscription, OpenRequest>,
    /// For each request or fetch that ended before everything had come, the events that had come.
    torn: HashMap<Subscription, FixedBitSet>,
    /// For each request or fetch, the events that came after it had ended.
    late: HashMap<Subscription, FixedBitSet>,
    /// For each fetch, by session and chunk, the events that it asked for, in ascending order.
    fetches: HashMap<(u32, u32), Vec<u32>>,
    sessions: HashMap<u32, OpenSession>,
    ended: HashSet<u32>,
    reconciliations: HashMap<u32, OpenReconciliation>,
    replay: Replay,
    reader: Option<Reader>,
    light: Option<Light>,
}

impl Client {
    /// Makes the client of `workload.roles[id]`. `url` is the relay's URL in AUTH events (NIP-42),
    /// `unix_s` the wall clock at instant zero of the machine's clock, in seconds since 1970.
    pub fn new(
        shared: Arc<Shared>,
        codec: &'static dyn Codec,
        id: usize,
        (url, unix_s): (&str, u64),
    ) -> Client {
        let role = &shared.workload.roles[id];
        let reader = match role.task {
            Task::Subscriber { read_bytes_per_s: Some(bytes_per_s), .. } => Some(Reader::new(bytes_per_s)),
            _ => None,
        };
        Client {
            reader,
            light: role.decode_every.map(|every| Light::new(every, id)),
            id,
            codec,
            interpreter: Interpreter::new(codec),
            url: url.to_owned(),
            unix_s,
            started: false,
            connection: ConnectionState::Down,
            gives_up_ns: None,
            proof: Proof::default(),
            waiting: Vec::new(),
            held: VecDeque::new(),
            actions: VecDeque::new(),
            wakes: BinaryHeap::new(),
            buffer: Vec::new(),
            report: Report::default(),
            in_flight: HashMap::default(),
            backlog: Backlog::default(),
            requests: HashMap::default(),
            torn: HashMap::default(),
            late: HashMap::default(),
            fetches: HashMap::default(),
            sessions: HashMap::default(),
            ended: HashSet::default(),
            reconciliations: HashMap::default(),
            replay: Replay::default(),
            shared,
        }
    }

    // --- inputs ---

    /// Connects and subscribes, where the role does so before the start.
    pub fn open(&mut self, now_ns: u64) {
        if self.shared.workload.roles[self.id].connects_before() {
            self.connect(now_ns);
        }
    }

    /// Starts the run: later times count from its start, at which the wall clock reads `unix_s`.
    pub fn start(&mut self, unix_s: u64) {
        self.unix_s = unix_s;
        self.started = true;
        if self.reader.is_some() {
            self.wake_at(self.shared.last_due_ns, Wake::CatchUp);
        }
    }

    /// Does one thing that is due by plan.
    pub fn on_due(&mut self, due: Due, now_ns: u64) {
        match due {
            Due::Publication(n) => self.publish_due(n, now_ns),
            Due::Flood(n) => self.start_flood(n),
            Due::Session(n) => {
                let due_ns = workload::schedule::nanos(self.shared.workload.sessions[n as usize].at);
                self.start_session(n, due_ns, now_ns);
            }
            Due::Turn(n) => self.turn_due(n, now_ns),
        }
    }

    /// Handles every timer that is due.
    pub fn on_timer(&mut self, now_ns: u64) {
        if self.gives_up_ns.take_if(|at_ns| *at_ns <= now_ns).is_some() {
            self.give_up();
        }
        self.end_greeting(now_ns);
        while let Some(Reverse((_, wake))) =
            self.wakes.peek().filter(|Reverse((at, _))| *at <= now_ns).copied()
        {
            self.wakes.pop();
            match wake {
                Wake::Start(n, due_ns) => self.start_session(n, due_ns, now_ns),
                Wake::Retry(n, due_ns) => self.try_session(n, due_ns, now_ns),
                Wake::Leave(n) => {
                    self.want_to_leave(n, now_ns);
                    self.leave(n, now_ns);
                }
                Wake::LeaveWhenAllIsThere(n) => self.leave(n, now_ns),
                Wake::Read => self.reader.iter_mut().for_each(|reader| reader.pausing = false),
                Wake::GoOn => self.backlog.pauses = false,
                Wake::TakeTurns => self.take_turns(now_ns),
                Wake::CatchUp => self.catch_up(now_ns),
            }
        }
    }

    /// Handles one message of the relay.
    pub fn on_message(&mut self, payload: &[u8], now_ns: u64) {
        self.pause_after(payload.len(), now_ns);
        if self.passes_over(payload, now_ns) {
            return;
        }
        // An extended message does not decode here, and is read as text below.
        if self.shared.kept().is_some()
            && let Ok(message) = self.codec.decode_relay_keeping_bytes(payload)
        {
            return self.answer_keeping_bytes(message, payload, now_ns);
        }
        let interpreter = self.interpreter;
        match interpreter.read(payload) {
            Meaning::Message(message) => self.answer(message, payload, now_ns),
            Meaning::Extended(message) => {
                self.pass_over(payload);
                self.answer(message, payload, now_ns);
            }
            Meaning::Foreign => self.pass_over(payload),
            Meaning::Undecodable(error) => {
                self.report.counts.decode_errors += 1;
                self.complain(|| format!("a message that does not decode: {error}"));
                if !self.started {
                    self.fail(format!("a message of the relay does not decode: {error}"));
                }
            }
        }
    }

    /// Publishes the next event, or begins the next session, of a closed loop. Call it while
    /// [`Client::has_backlog`], each time with a new reading of the clock, because such work is timed
    /// from its send.
    pub fn on_room(&mut self, now_ns: u64) {
        if let Some(proof) = self.proof.event.take() {
            self.send_proof(&proof, now_ns);
        } else {
            self.go_on(now_ns);
        }
    }

    // --- outputs ---

    /// The next thing to do, if any.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The next sample to record, unless something else is to be done before it.
    pub fn next_sample(&mut self) -> Option<Sample> {
        let Some(Action::Record(sample)) = self.actions.front() else { return None };
        let sample = *sample;
        self.actions.pop_front();
        Some(sample)
    }

    /// Whether [`Client::next_action`] or [`Client::on_room`] has something to do.
    pub fn has_work(&self) -> bool {
        !self.actions.is_empty() || self.has_backlog()
    }

    /// When to call [`Client::on_timer`].
    pub fn next_wake_ns(&self) -> Option<u64> {
        let wake = self.wakes.peek().map(|Reverse((at, _))| *at);
        wake.into_iter().chain(self.gives_up_ns).chain(self.greeting_ends_ns()).min()
    }

    /// Whether [`Client::on_room`] has something to do.
    pub fn has_backlog(&self) -> bool {
        self.proof.event.is_some() || self.backlog.has_next(self.in_flight.len())
    }

    /// Whether the run may start.
    pub fn is_ready(&self) -> bool {
        match self.connection {
            ConnectionState::Down => !self.shared.workload.roles[self.id].connects_before(),
            ConnectionState::Up => self.is_set_up(),
            _ => false,
        }
    }

    /// The place of its population's name among the labels of the plan.
    pub fn label(&self) -> Option<usize> {
        self.shared.workload.roles[self.id].label
    }

    /// The client's report so far.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Ends the client and returns its report, with what its open sessions saw.
    pub fn finish(mut self) -> Report {
        if matches!(self.connection, ConnectionState::Connecting { .. }) {
            self.leave_unconnected();
        }
        if self.reads_lightly() {
            // Which events came unread is not known, so none can be named as lost.
            self.end_unread();
        } else {
            self.name_lost();
        }
        // Sorts, so that the same run gives the same report.
        let mut open: Vec<_> = std::mem::take(&mut self.sessions).into_iter().collect();
        open.sort_unstable_by_key(|(n, _)| *n);
        for (n, session) in open {
            if let Some(visit) = session.visit {
                self.keep_visit(n, &visit);
            }
        }
        self.report
    }

    // --- messages ---

    fn delivery(&mut self, subscription: &str, event: &impl Received, now_ns: u64) {
        // Relays that ignore `limit: 0` send stored events while live subscriptions open.
        if !self.started {
            return;
        }
        self.light.iter_mut().for_each(Light::decoded);
        self.report.last_ns = now_ns;
        let Some(found) = self.recognise(subscription, event) else { return };
        if self.is_recorded() {
            return self.turn_delivery(subscription, found, now_ns);
        }
        match subscription.parse() {
            Ok(subscription @ (Subscription::Live(_) | Subscription::Stay { .. })) => {
                self.live_delivery(subscription, found, now_ns);
            }
            Ok(subscription @ (Subscription::Fetch { .. } | Subscription::Request(_))) => {
                if self.stored_delivery(subscription, found, now_ns) {
                    self.learns(event.id());
                }
            }
            Ok(Subscription::Reconciliation(_)) | Err(_) => {
                self.wrong(Wrong::Misrouted, &subscription, found);
            }
        }
    }

    /// The place of an event in the plan. Counts an event that is not in the plan, was altered, or
    /// fails the client's own check.
    fn recognise(&mut self, subscription: &str, event: &impl Received) -> Option<u32> {
        if let Err(error) = event.verify(self.shared.verify) {
            self.complain(|| format!("event {}: {error}", hex::encode(event.id())));
            self.count_wrong(Wrong::Altered, subscription, (event.id(), Some(event.kind())));
            return None;
        }
        let found = self.shared.workload.find(event.id());
        let wrong = match found {
            None => Wrong::Invented,
            Some(n) if event.is_planned(&self.shared, n) => return found,
            Some(_) => Wrong::Altered,
        };
        self.count_wrong(wrong, subscription, (event.id(), Some(event.kind())));
        None
    }

    /// Counts an event that was not owed to its subscription.
    fn count_stray(&mut self, subscription: Subscription, found: u32, matches: bool, after_close: bool) {
        match (matches, after_close) {
            (false, _) => self.wrong(Wrong::Misrouted, &subscription, found),
            (true, true) => self.report.counts.deliveries_after_close += 1,
            (true, false) => self.wrong(Wrong::Unexpected, &subscription, found),
        }
    }

    /// Counts and names a wrong or missing delivery of a planned event.
    fn wrong(&mut self, wrong: Wrong, subscription: &impl ToString, found: u32) {
        let shared = Arc::clone(&self.shared);
        let event = &shared.workload.events[found as usize];
        self.count_wrong(wrong, &subscription.to_string(), (&event.id, Some(event.kind)));
    }

    fn count_wrong(&mut self, wrong: Wrong, subscription: &str, (id, kind): (&[u8; 32], Option<u16>)) {
        let counts = &mut self.report.counts;
        *match wrong {
            Wrong::Lost => &mut counts.deliveries_lost,
            Wrong::Duplicated => &mut counts.deliveries_duplicated,
            Wrong::Altered => &mut counts.deliveries_altered,
            Wrong::Misrouted => &mut counts.deliveries_misrouted,
            Wrong::Invented => &mut counts.deliveries_invented,
            Wrong::Unexpected => &mut counts.deliveries_unexpected,
        } += 1;
        let filter = || self.filter_of(subscription.parse().ok()?);
        self.shared.incidents.add(wrong, (id, kind), (self.id, subscription), filter);
    }

    /// The filter of a subscription that this client has opened, or of a request of its plan.
    fn filter_of(&self, subscription: Subscription) -> Option<Cow<'_, Filter>> {
        let workload = &self.shared.workload;
        let filter = match subscription {
            Subscription::Live(_) | Subscription::Stay { .. } => {
                &workload.live[self.followed(subscription)? as usize].filter
            }
            Subscription::Reconciliation(n) => {
                &workload.sessions.get(n as usize)?.reconciliation.as_ref()?.filter
            }
            Subscription::Request(id) => &planned(workload, self.id, id)?.filter,
            Subscription::Fetch { .. } => {
                let events = self.asked(subscription)?.expected;
                let ids = events.iter().map(|event| workload.events[*event as usize].id).collect();
                return Some(Cow::Owned(Filter { ids: Some(ids), ..Filter::default() }));
            }
        };
        Some(Cow::Borrowed(filter))
    }

    /// Recognises an event that another relay of the same client brought before, by its id, and
    /// counts it without decoding the rest; false when the message must be decoded.
    fn passes_over(&mut self, payload: &[u8], now_ns: u64) -> bool {
        let Task::Reader(Reading { reader, peeks: true }) = self.shared.workload.roles[self.id].task else {
            return false;
        };
        let Some((subscription, head)) = self.codec.peek_relay(payload) else { return false };
        if !self.shared.knows(reader, &head.id) {
            return false;
        }
        let (Some(found), Ok(request @ Subscription::Request(_))) =
            (self.shared.workload.find(&head.id), subscription.parse())
        else {
            return false;
        };
        self.report.last_ns = now_ns;
        if self.stored_delivery(request, found, now_ns) {
            self.report.counts.repeats += 1;
            self.report.counts.repeats_peeked += 1;
        }
        true
    }

    /// Adds a delivered event to those that the client has; counts a repeat when another relay
    /// brought it before.
    fn learns(&mut self, id: &[u8; 32]) {
        if let Task::Reader(Reading { reader, .. }) = self.shared.workload.roles[self.id].task {
            self.report.counts.repeats += u64::from(!self.shared.learns(reader, id));
        }
    }

    // --- helpers ---

    fn request(&mut self, subscription: Subscription, filter: &Filter) {
        let (subscription, filters) = (subscription.to_string().into(), vec![filter.clone()]);
        self.send(&ClientMessage::Req { subscription, filters });
    }

    fn close_subscription(&mut self, subscription: Subscription) {
        self.send(&ClientMessage::Close { subscription: subscription.to_string().into() });
    }

    fn send(&mut self, message: &ClientMessage<'_>) {
        self.buffer.clear();
        match self.codec.encode_client(message, &mut self.buffer) {
            Ok(()) => self.actions.push_back(Action::Send(Bytes::copy_from_slice(&self.buffer))),
            Err(error) => self.fail(format!("a message does not encode: {error}")),
        }
    }

    /// Records the time since something was due, unless that was in a warm-up.
    fn record(&mut self, timing: Timing, since_ns: u64, now_ns: u64) {
        if self.shared.workload.is_measured(since_ns) {
            self.record_always(timing, since_ns, now_ns);
        }
    }

    fn record_always(&mut self, timing: Timing, since_ns: u64, now_ns: u64) {
        if self.started {
            let apart = self.reader.is_some();
            self.actions.push_back(Action::Record(Sample { timing, since_ns, now_ns, apart }));
        }
    }

    fn fail(&mut self, why: String) {
        self.actions.push_back(Action::Fail(why));
    }

    fn complain(&mut self, text: impl FnOnce() -> String) {
        self.report.tell(Words::Complaint, || quoted(&text()));
    }

    fn wake_at(&mut self, at_ns: u64, wake: Wake) {
        self.wakes.push(Reverse((at_ns, wake)));
    }
}
