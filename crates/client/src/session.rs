//! Sessions: steps of requests for stored events, one after the other; in a closed loop, session
//! after session.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use codecs::{Filter, hex};
use fixedbitset::FixedBitSet;

use super::{Action, Client, Subscription, Wake, Words, live::Visit, subscription::RequestId};
use crate::incidents::Wrong;
use workload::{PlannedRequest, Session, Task, Timing, Workload, scenario::Connect, schedule::nanos};

/// How many events fill a first screen.
const FIRST_SCREEN: usize = 50;

/// How often a session whose stay has ended checks whether it has everything.
const LEAVE_POLL: Duration = Duration::from_millis(20);

/// An open session.
#[derive(Debug, Default)]
pub(super) struct OpenSession {
    pub(super) started_ns: u64,
    due_ns: u64,
    /// The current step, as a place in `Session::steps`; the number of steps when all are done.
    step: u32,
    waiting_for: usize,
    events_of_step: usize,
    pub(super) visit: Option<Visit>,
}

/// A request or a fetch that waits for its EOSE.
#[derive(Debug)]
pub(super) struct OpenRequest {
    pub(super) due_ns: u64,
    pub(super) sent_ns: u64,
    pub(super) seen: FixedBitSet,
    /// The event that came last.
    pub(super) last: Option<u32>,
}

/// The filter and events of a request or a fetch.
pub(super) struct ExpectedAnswer<'a> {
    /// The events that must come, in ascending order.
    pub(super) expected: &'a [u32],
    /// The filter; `None` when it names exactly these events.
    pub(super) filter: Option<&'a Filter>,
}

impl Client {
    /// Starts a session that is due, behind those that wait.
    pub(super) fn start_session(&mut self, n: u32, due_ns: u64, now_ns: u64) {
        self.record(Timing::SendLag, due_ns, now_ns);
        if self.held.is_empty() {
            self.try_session(n, due_ns, now_ns);
        } else {
            self.held.push_back((n, due_ns));
        }
    }

    /// Starts a session, or holds it when earlier ones need the connection or the relay's subscriptions.
    pub(super) fn try_session(&mut self, n: u32, due_ns: u64, now_ns: u64) {
        if !self.has_room(n) {
            return self.held.push_back((n, due_ns));
        }
        if let Task::Requester { connect } = self.shared.workload.roles[self.id].task {
            match connect {
                Connect::Before => {}
                Connect::Again if !self.sessions.is_empty() => {
                    // A new connection now would cut off the earlier session.
                    return self.wake_at(now_ns + nanos(LEAVE_POLL), Wake::Retry(n, due_ns));
                }
                Connect::Again => {
                    self.actions.push_back(Action::Abort);
                    self.go_down();
                    self.connect(now_ns);
                }
                Connect::PerSession => self.connect(now_ns),
            }
        }
        self.sessions.insert(n, OpenSession { started_ns: due_ns, due_ns, ..OpenSession::default() });
        self.report.began.push(n);
        if self.connection.is_up() {
            self.begin_session(n, now_ns);
        } else {
            self.waiting.push(n);
        }
    }

    /// Whether the relay's limit leaves room for the subscriptions of a session, next to the open sessions.
    fn has_room(&self, n: u32) -> bool {
        let workload = &self.shared.workload;
        let width = |n: u32| workload.sessions[n as usize].subscriptions();
        let open = || self.sessions.keys().map(|open| width(*open)).sum::<usize>();
        let fits = |most| self.sessions.is_empty() || open() + width(n) <= most;
        workload.most_subscriptions.is_none_or(fits)
    }

    /// Sends the first messages of a session.
    pub(super) fn begin_session(&mut self, n: u32, now_ns: u64) {
        if self.shared.workload.sessions[n as usize].reconciliation.is_some() {
            self.start_reconciling(n);
        } else {
            self.start_step(n, now_ns);
        }
    }

    /// Sends the requests of the session's step, or ends the steps after the last one.
    fn start_step(&mut self, n: u32, now_ns: u64) {
        let shared = Arc::clone(&self.shared);
        let planned = &shared.workload.sessions[n as usize];
        let Some(session) = self.sessions.get_mut(&n) else { return };
        let Some(requests) = planned.steps.get(session.step as usize) else {
            return self.end_steps(n, now_ns);
        };
        session.waiting_for = requests.len();
        session.events_of_step = 0;
        let (step, due_ns) = (session.step, session.due_ns);
        for (request, PlannedRequest { filter, expected }) in (0..).zip(requests) {
            let subscription = Subscription::Request(RequestId { session: n, step, request });
            self.request(subscription, filter);
            let seen = FixedBitSet::with_capacity(expected.len());
            self.requests.insert(subscription, OpenRequest { due_ns, sent_ns: now_ns, seen, last: None });
        }
    }

    /// Takes a delivery that answers a request or a fetch; true when it was owed and had not come.
    pub(super) fn stored_delivery(&mut self, subscription: Subscription, found: u32, now_ns: u64) -> bool {
        let Some(asked) = self.asked(subscription) else {
            self.wrong(Wrong::Misrouted, &subscription, found);
            return false;
        };
        let Ok(position) = asked.expected.binary_search(&found) else {
            let workload = &self.shared.workload;
            // Between EOSE and CLOSE a live event may come, a stored one may not.
            let is_live = found as usize >= workload.stored;
            let matches = asked.filter.is_some_and(|filter| filter.matches(&workload.events[found as usize]));
            self.count_stray(subscription, found, matches, is_live);
            return false;
        };
        let has_limit = asked.filter.is_some_and(|filter| filter.limit.is_some());
        let Some(request) = self.requests.get_mut(&subscription) else {
            self.count_late(subscription, (position, found));
            return false;
        };
        if request.seen.put(position) {
            self.wrong(Wrong::Duplicated, &subscription, found);
            return false;
        }
        let (due_ns, sent_ns) = (request.due_ns, request.sent_ns);
        let last = request.last.replace(found);
        if let Some(last) = last.filter(|_| has_limit) {
            self.judge_order(last, found);
        }
        self.report.counts.deliveries += 1;
        self.shared.delivered(1);
        self.record(Timing::Response, due_ns, now_ns);
        let Subscription::Request(id) = subscription else { return true };
        self.record(Timing::Service, sent_ns, now_ns);
        // A light reader does not know which delivery of a step it decoded.
        let Some(session) = self.sessions.get_mut(&id.session).filter(|_| self.light.is_none()) else {
            return true;
        };
        session.events_of_step += 1;
        match session.events_of_step {
            1 => self.record(Timing::FirstEvent, due_ns, now_ns),
            FIRST_SCREEN => self.record(Timing::FiftiethEvent, due_ns, now_ns),
            _ => {}
        }
        true
    }

    /// Counts the stored event `found` if it should have come before `last`. NIP-01 asks for the newest
    /// first if a filter has a limit, and for the lowest id first among events of one second.
    fn judge_order(&mut self, last: u32, found: u32) {
        let events = &self.shared.workload.events;
        let (last, found) = (&events[last as usize], &events[found as usize]);
        if (Reverse(last.created_at), last.id) < (Reverse(found.created_at), found.id) {
            return;
        }
        self.report.counts.deliveries_out_of_order += 1;
        self.report.tell(Words::OutOfOrder, || {
            let name =
                |event: &codecs::Event<'_>| format!("{} of {}", hex::encode(&event.id), event.created_at);
            format!("event {} behind {}", name(found), name(last))
        });
    }

    /// The filter and events of a request or a fetch; `None` for one that was not sent.
    pub(super) fn asked(&self, subscription: Subscription) -> Option<ExpectedAnswer<'_>> {
        match subscription {
            Subscription::Request(id) => {
                let PlannedRequest { expected, filter } = planned(&self.shared.workload, self.id, id)?;
                // The requests of a step are sent together.
                let was_asked = self.ended.contains(&id.session)
                    || self.sessions.get(&id.session).is_some_and(|session| id.step <= session.step);
                was_asked.then_some(ExpectedAnswer { expected, filter: Some(filter) })
            }
            Subscription::Fetch { session, chunk } => {
                let expected = self.fetches.get(&(session, chunk))?;
                Some(ExpectedAnswer { expected, filter: None })
            }
            _ => None,
        }
    }

    /// Counts a stored event that came after its EOSE or CLOSED: a copy, or an event that these had
    /// ruled out.
    fn count_late(&mut self, subscription: Subscription, (position, found): (usize, u32)) {
        let expected = self.asked(subscription).map_or(0, |asked| asked.expected.len());
        let came_before = self.torn.get(&subscription).is_none_or(|seen| seen.contains(position));
        let late = self.late.entry(subscription).or_insert_with(|| FixedBitSet::with_capacity(expected));
        match (came_before, late.put(position)) {
            (true, false) if self.shared.workload.tolerates_seam => {
                self.report.counts.deliveries_duplicated_at_seam += 1;
            }
            (false, false) => self.wrong(Wrong::Unexpected, &subscription, found),
            _ => self.wrong(Wrong::Duplicated, &subscription, found),
        }
    }

    /// Takes the EOSE of a request or a fetch, or the CLOSED that refuses it. Returns false if it had already
    /// ended.
    pub(super) fn end_of_request(&mut self, subscription: Subscription, is_eose: bool, now_ns: u64) -> bool {
        let expected = self.asked(subscription).map_or(0, |asked| asked.expected.len());
        let Some(request) = self.requests.remove(&subscription) else { return false };
        let missing = expected.saturating_sub(request.seen.count_ones(..));
        if missing > 0 {
            // What comes late is judged by what had come.
            self.torn.insert(subscription, request.seen);
        }
        // Deliveries that a light reader counted without decoding may be the missing ones.
        self.set_off_unread(missing);
        self.report.last_ns = now_ns;
        if is_eose {
            self.close_subscription(subscription);
        }
        match subscription {
            Subscription::Request(id) => {
                if is_eose {
                    self.report.counts.requests_completed += 1;
                    self.record(Timing::Eose, request.due_ns, now_ns);
                }
                self.end_of_step(id.session, now_ns);
            }
            Subscription::Fetch { session, .. } => self.end_of_fetch(session, is_eose, now_ns),
            _ => {}
        }
        true
    }

    /// Sends the next step once every request of this one is over.
    fn end_of_step(&mut self, n: u32, now_ns: u64) {
        let Some(session) = self.sessions.get_mut(&n) else { return };
        session.waiting_for -= 1;
        if session.waiting_for == 0 {
            session.step += 1;
            session.due_ns = now_ns;
            self.start_step(n, now_ns);
        }
    }

    /// Ends the steps of a session: its stay begins, or the session ends.
    fn end_steps(&mut self, n: u32, now_ns: u64) {
        self.note_session(n, now_ns);
        if self.shared.workload.sessions[n as usize].live.is_empty() {
            self.end_session(n, now_ns);
        } else {
            self.start_visit(n);
        }
    }

    /// Records the time of a session from its start to the end of its steps.
    pub(super) fn note_session(&mut self, n: u32, now_ns: u64) {
        let Some(started_ns) = self.sessions.get(&n).map(|session| session.started_ns) else { return };
        match self.report.busy_ns.last_mut().filter(|last| last.1 == started_ns) {
            Some(last) => last.1 = now_ns,
            None => self.report.busy_ns.push((started_ns, now_ns)),
        }
        self.record(Timing::Session, started_ns, now_ns);
    }

    /// Ends a session whose stay is over if everything owed to it has come; otherwise sets a timer
    /// to check again.
    pub(super) fn leave(&mut self, n: u32, now_ns: u64) {
        if !self.sessions.contains_key(&n) {
            return;
        }
        if !self.has_everything(n) {
            return self.wake_at(now_ns + nanos(LEAVE_POLL), Wake::LeaveWhenAllIsThere(n));
        }
        for filter in (0..).take(self.shared.workload.sessions[n as usize].live.len()) {
            self.close_subscription(Subscription::Stay { session: n, filter });
        }
        self.end_session(n, now_ns);
    }

    /// Ends a session: closes its connection if it has one of its own, and schedules the session
    /// that follows.
    pub(super) fn end_session(&mut self, n: u32, now_ns: u64) {
        if let Some(visit) = self.sessions.remove(&n).and_then(|session| session.visit) {
            self.keep_visit(n, &visit);
        }
        self.ended.insert(n);
        if let Some((held, due_ns)) = self.held.pop_front() {
            self.wake_at(now_ns, Wake::Retry(held, due_ns));
        }
        let ended = &self.shared.workload.sessions[n as usize];
        let think_ns = nanos(ended.think);
        // The loop stays one piece of work until time ends it.
        let loops_on = self.shared.workload.until.is_some() && ended.next.is_some();
        match ended.next {
            Some(next) if loops_on => self.backlog.session = Some(next),
            Some(next) => self.wake_at(now_ns + think_ns, Wake::Start(next, now_ns + think_ns)),
            None => {}
        }
        let role = &self.shared.workload.roles[self.id];
        if matches!(role.task, Task::Requester { connect: Connect::PerSession }) && self.sessions.is_empty() {
            self.go_down();
            self.actions.push_back(Action::Close);
        }
        if !loops_on {
            self.shared.done(1);
        }
    }
}

impl Client {
    /// Names the stored events that were owed and did not come, in the order of the plan.
    pub(super) fn name_lost(&mut self) {
        let shared = Arc::clone(&self.shared);
        let sessions = &shared.workload.sessions;
        let mut unseen: Vec<(Subscription, u32)> = Vec::new();
        let open = self.requests.iter().map(|(subscription, request)| (subscription, &request.seen));
        for (subscription, seen) in self.torn.iter().chain(open) {
            let expected = self.asked(*subscription).map_or(&[][..], |asked| asked.expected);
            let missing = expected.iter().enumerate().filter(|(position, _)| !seen.contains(*position));
            unseen.extend(missing.map(|(_, event)| (*subscription, *event)));
        }
        for (n, session) in &self.sessions {
            let waits = self.waiting.contains(n);
            let not_sent = if waits { 0 } else { session.step as usize + 1 };
            unseen.extend(planned_from(&sessions[*n as usize], *n, not_sent));
            if waits || self.reconciliations.get(n).is_some_and(|open| !open.is_known()) {
                unseen.extend(lacked(&sessions[*n as usize], *n));
            }
        }
        unseen.sort_unstable();
        for (subscription, event) in unseen {
            self.wrong(Wrong::Lost, &subscription, event);
        }
    }
}

/// The stored events that a session requests from a step on.
pub(crate) fn planned_from(
    session: &Session,
    n: u32,
    from: usize,
) -> impl Iterator<Item = (Subscription, u32)> {
    (0..).zip(&session.steps).skip(from).flat_map(move |(step, requests)| {
        (0..).zip(requests).flat_map(move |(request, planned)| {
            let subscription = Subscription::Request(RequestId { session: n, step, request });
            planned.expected.iter().map(move |event| (subscription, *event))
        })
    })
}

/// The stored events that a session lacks before its reconciliation.
pub(crate) fn lacked(session: &Session, n: u32) -> impl Iterator<Item = (Subscription, u32)> {
    let lacks = session.reconciliation.iter().flat_map(|reconciliation| &reconciliation.lacks);
    lacks.map(move |event| (Subscription::Reconciliation(n), *event))
}

/// The planned request of an id, if it belongs to this connection.
pub(crate) fn planned(workload: &Workload, connection: usize, id: RequestId) -> Option<&PlannedRequest> {
    let session = workload.sessions.get(id.session as usize).filter(|s| s.connection == connection)?;
    session.steps.get(id.step as usize)?.get(id.request as usize)
}
