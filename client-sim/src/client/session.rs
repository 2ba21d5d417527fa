//! Sessions: step after step of requests for stored events, in a closed loop session after session.

use std::{sync::Arc, time::Duration};

use codecs::{ClientMessage, Event};

use super::{Client, Wake, live::Visit, nanos};
use crate::{
    bits::Bits,
    recorder::Metric,
    scenario::Connect,
    workload::{PlannedRequest, Task},
};

/// The event that fills a first screen.
const FIRST_SCREEN: usize = 50;

/// How often a client that wants to leave looks whether it has everything.
const LEAVE_POLL: Duration = Duration::from_millis(20);

/// A session under way.
#[derive(Debug)]
pub(super) struct OpenSession {
    pub(super) started_ns: u64,
    due_ns: u64,
    step: usize,
    waiting_for: usize,
    events_of_step: usize,
    pub(super) visit: Option<Visit>,
}

/// A request that waits for its EOSE.
#[derive(Debug)]
pub(super) struct OpenRequest {
    pub(super) session: u32,
    step: usize,
    request: usize,
    due_ns: u64,
    sent_ns: u64,
    seen: Bits,
}

impl Client {
    /// Starts a session that is due.
    pub(super) async fn start_session(&mut self, n: u32, due_ns: u64) -> anyhow::Result<()> {
        self.record(Metric::SendLag, due_ns, self.now_ns());
        if let Task::Requester { connect } = self.shared.workload.roles[self.id].task {
            match connect {
                Connect::Before => {}
                Connect::Again if !self.sessions.is_empty() => {
                    // Dropping the connection now would cut the earlier session off.
                    self.wake_after(LEAVE_POLL, Wake::Start(n, due_ns));
                    return Ok(());
                }
                Connect::Again => {
                    self.drop_link();
                    self.connect().await?;
                }
                Connect::PerSession => self.connect().await?,
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
        if self.shared.workload.sessions[n as usize].reconciliation.is_some() {
            return self.start_reconciling(n, due_ns).await;
        }
        self.start_step(n).await
    }

    /// Sends the requests of the session's step; after the last step come its live subscriptions.
    async fn start_step(&mut self, n: u32) -> anyhow::Result<()> {
        let shared = Arc::clone(&self.shared);
        let planned = &shared.workload.sessions[n as usize];
        let Some(session) = self.sessions.get_mut(&n) else { return Ok(()) };
        let Some(requests) = planned.steps.get(session.step) else {
            return self.end_steps(n).await;
        };
        session.waiting_for = requests.len();
        session.events_of_step = 0;
        let (step, due_ns) = (session.step, session.due_ns);
        let sent_ns = self.now_ns();
        for (i, PlannedRequest { filter, expected }) in requests.iter().enumerate() {
            let subscription = format!("s{n}-{step}-{i}");
            self.feed_request(&subscription, filter).await?;
            let seen = Bits::of_len(expected.len());
            self.requests
                .insert(subscription, OpenRequest { session: n, step, request: i, due_ns, sent_ns, seen });
        }
        Ok(())
    }

    /// A delivery that answers a request; where only its id was read, its content is not compared.
    pub(super) fn stored_delivery(
        &mut self,
        subscription: &str,
        id: &[u8; 32],
        event: Option<&Event<'_>>,
        now_ns: u64,
    ) {
        let workload = &self.shared.workload;
        let Some(found) = workload.find(id) else {
            self.report.unexpected += 1;
            return;
        };
        // A live event may overtake our CLOSE; a stored one may not.
        let is_stored = u64::from((found as usize) < workload.stored);
        let Some(request) = self.requests.get_mut(subscription) else {
            self.report.unexpected += is_stored;
            return;
        };
        let session = &workload.sessions[request.session as usize];
        let expected = &session.steps[request.step][request.request].expected;
        let Ok(position) = expected.binary_search(&found) else {
            self.report.unexpected += is_stored;
            return;
        };
        if event.is_some_and(|event| workload.events[found as usize] != *event) {
            self.report.altered += 1;
        } else if request.seen.insert(position) {
            let (due_ns, sent_ns, n) = (request.due_ns, request.sent_ns, request.session);
            self.report.deliveries += 1;
            self.shared.delivered(1);
            self.record(Metric::Response, due_ns, now_ns);
            self.record(Metric::Service, sent_ns, now_ns);
            let Some(session) = self.sessions.get_mut(&n) else { return };
            session.events_of_step += 1;
            match session.events_of_step {
                1 => self.record(Metric::FirstEvent, due_ns, now_ns),
                FIRST_SCREEN => self.record(Metric::FiftiethEvent, due_ns, now_ns),
                _ => {}
            }
        } else {
            self.report.duplicated += 1;
        }
    }

    pub(super) async fn end_of_stored(&mut self, subscription: &str, now_ns: u64) -> anyhow::Result<()> {
        if let Some((session, _)) = super::live::visit_index(subscription) {
            self.visit_eose(session);
            return Ok(());
        }
        if let Some(session) = super::reconcile::fetch_index(subscription) {
            return self.end_of_fetch(session, subscription, now_ns).await;
        }
        let Some(request) = self.requests.remove(subscription) else {
            self.report.unexpected += 1;
            return Ok(());
        };
        self.report.requests_completed += 1;
        self.report.last_ns = now_ns;
        self.record(Metric::Eose, request.due_ns, now_ns);
        self.feed(&ClientMessage::Close { subscription: subscription.into() }).await?;
        let Some(session) = self.sessions.get_mut(&request.session) else { return Ok(()) };
        session.waiting_for -= 1;
        if session.waiting_for == 0 {
            session.step += 1;
            session.due_ns = now_ns;
            self.start_step(request.session).await?;
        }
        Ok(())
    }

    /// All stored events are there.
    async fn end_steps(&mut self, n: u32) -> anyhow::Result<()> {
        let now_ns = self.now_ns();
        if let Some(session) = self.sessions.get(&n) {
            self.report.busy_ns.push((session.started_ns, now_ns));
            self.record(Metric::Session, session.started_ns, now_ns);
        }
        if self.shared.workload.sessions[n as usize].live.is_empty() {
            return self.end_session(n).await;
        }
        self.start_visit(n).await
    }

    /// Leaves at once when everything owed is there, and looks again soon otherwise.
    pub(super) async fn leave(&mut self, n: u32) -> anyhow::Result<()> {
        if !self.has_everything(n) {
            self.wake_after(LEAVE_POLL, Wake::LeaveWhenAllIsThere(n));
            return Ok(());
        }
        for subscription in 0..self.shared.workload.sessions[n as usize].live.len() {
            let subscription = super::live::visit_name(n, subscription).into();
            self.feed(&ClientMessage::Close { subscription }).await?;
        }
        self.end_session(n).await
    }

    /// Forgets a session, closes its connection if it has one of its own, and starts the session that follows.
    pub(super) async fn end_session(&mut self, n: u32) -> anyhow::Result<()> {
        if let Some(visit) = self.sessions.remove(&n).and_then(|session| session.visit) {
            self.keep_visit(visit);
        }
        let ended = &self.shared.workload.sessions[n as usize];
        let think = ended.think;
        if let Some(next) = ended.next {
            self.wake_after(think, Wake::Start(next, self.now_ns() + nanos(think)));
        }
        let role = &self.shared.workload.roles[self.id];
        if matches!(role.task, Task::Requester { connect: Connect::PerSession }) && self.sessions.is_empty() {
            self.close_link().await;
        }
        self.shared.done(1);
        Ok(())
    }
}
