//! Sessions: steps of requests for stored events, one after the other; in a closed loop, session
//! after session.

use std::{sync::Arc, time::Duration};

use codecs::Filter;

use super::{Action, Client, RequestId, Subscription, Wake, live::Visit};
use crate::{
    bits::Bits,
    recorder::Timing,
    scenario::Connect,
    schedule::nanos,
    workload::{PlannedRequest, Task, Workload},
};

/// How many events fill a first screen.
const FIRST_SCREEN: usize = 50;

/// How often a session whose stay has ended checks whether it has everything.
const LEAVE_POLL: Duration = Duration::from_millis(20);

/// An open session.
#[derive(Debug)]
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
    pub(super) seen: Bits,
}

/// What a request or a fetch asked for.
struct Asked<'a> {
    /// The events that must come, in ascending order.
    expected: &'a [u32],
    /// The filter; `None` when it names exactly these events.
    filter: Option<&'a Filter>,
}

impl Client {
    /// Starts a session that is due.
    pub(super) fn start_session(&mut self, n: u32, due_ns: u64, now_ns: u64) {
        self.record(Timing::SendLag, due_ns, now_ns);
        self.try_session(n, due_ns, now_ns);
    }

    /// Starts a session, or sets a timer when an earlier one needs the connection.
    pub(super) fn try_session(&mut self, n: u32, due_ns: u64, now_ns: u64) {
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
        let session = OpenSession {
            started_ns: due_ns,
            due_ns,
            step: 0,
            waiting_for: 0,
            events_of_step: 0,
            visit: None,
        };
        self.sessions.insert(n, session);
        if self.link.is_up() {
            self.begin_session(n, now_ns);
        } else {
            self.waiting.push(n);
        }
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
            let seen = Bits::of_len(expected.len());
            self.requests.insert(subscription, OpenRequest { due_ns, sent_ns: now_ns, seen });
        }
    }

    /// Takes a delivery that answers a request or a fetch; true when it was owed and had not come.
    pub(super) fn stored_delivery(&mut self, subscription: Subscription, found: u32, now_ns: u64) -> bool {
        let Some(asked) = self.asked(subscription) else {
            self.report.counts.deliveries_misrouted += 1;
            return false;
        };
        let Ok(position) = asked.expected.binary_search(&found) else {
            let workload = &self.shared.workload;
            // Between EOSE and CLOSE a live event may come, a stored one may not.
            let is_live = found as usize >= workload.stored;
            let matches = asked.filter.is_some_and(|filter| filter.matches(&workload.events[found as usize]));
            self.count_stray(matches, is_live);
            return false;
        };
        let Some(request) = self.requests.get_mut(&subscription) else {
            self.count_late(subscription, position);
            return false;
        };
        if !request.seen.insert(position) {
            self.report.counts.deliveries_duplicated += 1;
            return false;
        }
        let (due_ns, sent_ns) = (request.due_ns, request.sent_ns);
        self.report.counts.deliveries += 1;
        self.shared.delivered(1);
        self.record(Timing::Response, due_ns, now_ns);
        let Subscription::Request(id) = subscription else { return true };
        self.record(Timing::Service, sent_ns, now_ns);
        let Some(session) = self.sessions.get_mut(&id.session) else { return true };
        session.events_of_step += 1;
        match session.events_of_step {
            1 => self.record(Timing::FirstEvent, due_ns, now_ns),
            FIRST_SCREEN => self.record(Timing::FiftiethEvent, due_ns, now_ns),
            _ => {}
        }
        true
    }

    /// What a request or a fetch asked for; `None` for one that was not sent.
    fn asked(&self, subscription: Subscription) -> Option<Asked<'_>> {
        match subscription {
            Subscription::Request(id) => {
                let PlannedRequest { expected, filter } = planned(&self.shared.workload, self.id, id)?;
                // The requests of a step are sent together.
                let was_asked = self.ended.contains(&id.session)
                    || self.sessions.get(&id.session).is_some_and(|session| id.step <= session.step);
                was_asked.then_some(Asked { expected, filter: Some(filter) })
            }
            Subscription::Fetch { session, chunk } => {
                let expected = self.fetches.get(&(session, chunk))?;
                Some(Asked { expected, filter: None })
            }
            _ => None,
        }
    }

    /// Counts a stored event that came after its EOSE or CLOSED: a double, or one that these had
    /// ruled out.
    fn count_late(&mut self, subscription: Subscription, position: usize) {
        let is_first = self.torn.get_mut(&subscription).is_some_and(|seen| seen.insert(position));
        let counts = &mut self.report.counts;
        if is_first {
            counts.deliveries_unexpected += 1;
        } else {
            counts.deliveries_duplicated += 1;
        }
    }

    /// Takes the EOSE of a request or a fetch, or the CLOSED that refuses it; false when it was
    /// over.
    pub(super) fn end_of_request(&mut self, subscription: Subscription, is_eose: bool, now_ns: u64) -> bool {
        let expected = self.asked(subscription).map_or(0, |asked| asked.expected.len());
        let Some(request) = self.requests.remove(&subscription) else { return false };
        if request.seen.count() < expected {
            self.torn.insert(subscription, request.seen);
        }
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
        self.report.busy_ns.push((started_ns, now_ns));
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
            self.keep_visit(visit);
        }
        self.ended.insert(n);
        let ended = &self.shared.workload.sessions[n as usize];
        let think_ns = nanos(ended.think);
        if let Some(next) = ended.next {
            self.wake_at(now_ns + think_ns, Wake::Start(next, now_ns + think_ns));
        }
        let role = &self.shared.workload.roles[self.id];
        if matches!(role.task, Task::Requester { connect: Connect::PerSession }) && self.sessions.is_empty() {
            self.go_down();
            self.actions.push_back(Action::Close);
        }
        self.shared.done(1);
    }
}

/// The planned request of an id, if it belongs to this connection.
fn planned(workload: &Workload, connection: usize, id: RequestId) -> Option<&PlannedRequest> {
    let session = workload.sessions.get(id.session as usize).filter(|s| s.connection == connection)?;
    session.steps.get(id.step as usize)?.get(id.request as usize)
}
