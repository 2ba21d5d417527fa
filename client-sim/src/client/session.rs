//! Sessions: steps of requests for stored events, one after the other; in a closed loop, session
//! after session.

use std::{collections::HashMap, sync::Arc, time::Duration};

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

/// A request that waits for its EOSE.
#[derive(Debug)]
pub(super) struct OpenRequest {
    due_ns: u64,
    sent_ns: u64,
    seen: Bits,
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
            let id = RequestId { session: n, step, request };
            self.request(Subscription::Request(id), filter);
            let seen = Bits::of_len(expected.len());
            self.requests.insert(id, OpenRequest { due_ns, sent_ns: now_ns, seen });
        }
    }

    /// Takes a delivery that answers a request.
    pub(super) fn stored_delivery(&mut self, id: RequestId, found: u32, now_ns: u64) {
        let workload = &self.shared.workload;
        let planned = planned(workload, self.id, id);
        let request = self.requests.get_mut(&id);
        let was_asked = request.is_some() || was_asked(&self.sessions, &self.ended, id);
        let Some(planned) = planned.filter(|_| was_asked) else {
            self.report.counts.deliveries_misrouted += 1;
            return;
        };
        let Ok(position) = planned.expected.binary_search(&found) else {
            // Between EOSE and CLOSE a live event may come, a stored one may not.
            let is_live = found as usize >= workload.stored;
            let matches = planned.filter.matches(&workload.events[found as usize]);
            return self.count_stray(matches, is_live);
        };
        let Some(request) = request else { return self.count_late(id, position) };
        if !request.seen.insert(position) {
            self.report.counts.deliveries_duplicated += 1;
            return;
        }
        let (due_ns, sent_ns) = (request.due_ns, request.sent_ns);
        self.report.counts.deliveries += 1;
        self.shared.delivered(1);
        self.record(Timing::Response, due_ns, now_ns);
        self.record(Timing::Service, sent_ns, now_ns);
        let Some(session) = self.sessions.get_mut(&id.session) else { return };
        session.events_of_step += 1;
        match session.events_of_step {
            1 => self.record(Timing::FirstEvent, due_ns, now_ns),
            FIRST_SCREEN => self.record(Timing::FiftiethEvent, due_ns, now_ns),
            _ => {}
        }
    }

    /// Counts a stored event that came after its EOSE: a double, or one that EOSE had ruled out.
    fn count_late(&mut self, id: RequestId, position: usize) {
        let is_first = self.torn.get_mut(&id).is_some_and(|seen| seen.insert(position));
        let counts = &mut self.report.counts;
        if is_first {
            counts.deliveries_unexpected += 1;
        } else {
            counts.deliveries_duplicated += 1;
        }
    }

    /// Takes the EOSE of a request; false when none was owed.
    pub(super) fn end_of_request(&mut self, id: RequestId, now_ns: u64) -> bool {
        let Some(request) = self.requests.remove(&id) else {
            // Requests of a session that was cut short may still be answered.
            return self.ended.get(&id.session) == Some(&false);
        };
        let expected =
            planned(&self.shared.workload, self.id, id).map_or(0, |planned| planned.expected.len());
        if request.seen.count() < expected {
            self.torn.insert(id, request.seen);
        }
        self.report.counts.requests_completed += 1;
        self.report.last_ns = now_ns;
        self.record(Timing::Eose, request.due_ns, now_ns);
        self.close_subscription(Subscription::Request(id));
        let Some(session) = self.sessions.get_mut(&id.session) else { return true };
        session.waiting_for -= 1;
        if session.waiting_for == 0 {
            session.step += 1;
            session.due_ns = now_ns;
            self.start_step(id.session, now_ns);
        }
        true
    }

    /// Ends the steps of a session: its stay begins, or the session ends.
    fn end_steps(&mut self, n: u32, now_ns: u64) {
        self.note_session(n, now_ns);
        if self.shared.workload.sessions[n as usize].live.is_empty() {
            self.end_session(n, true, now_ns);
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
            return; // cut short
        }
        if !self.has_everything(n) {
            return self.wake_at(now_ns + nanos(LEAVE_POLL), Wake::LeaveWhenAllIsThere(n));
        }
        for filter in (0..).take(self.shared.workload.sessions[n as usize].live.len()) {
            self.close_subscription(Subscription::Stay { session: n, filter });
        }
        self.end_session(n, true, now_ns);
    }

    /// Ends a session that the relay refused to answer.
    pub(super) fn cut_short(&mut self, n: u32, now_ns: u64) {
        if self.sessions.contains_key(&n) {
            self.end_session(n, false, now_ns);
        }
    }

    /// Ends a session: closes its connection if it has one of its own, and schedules the session
    /// that follows.
    pub(super) fn end_session(&mut self, n: u32, as_planned: bool, now_ns: u64) {
        if let Some(visit) = self.sessions.remove(&n).and_then(|session| session.visit) {
            self.keep_visit(visit);
        }
        self.ended.insert(n, as_planned);
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

/// Whether a request that is not open has been sent. The requests of a step are sent together.
fn was_asked(sessions: &HashMap<u32, OpenSession>, ended: &HashMap<u32, bool>, id: RequestId) -> bool {
    ended.contains_key(&id.session)
        || sessions.get(&id.session).is_some_and(|session| id.step <= session.step)
}

/// The planned request of an id, if it belongs to this connection.
fn planned(workload: &Workload, connection: usize, id: RequestId) -> Option<&PlannedRequest> {
    let session = workload.sessions.get(id.session as usize).filter(|s| s.connection == connection)?;
    session.steps.get(id.step as usize)?.get(id.request as usize)
}
