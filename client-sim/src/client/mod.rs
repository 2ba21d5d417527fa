//! One simulated client: a task that owns its connection and does what the plan says, when it says so.

mod report;

use std::{
    borrow::Cow,
    cell::RefCell,
    collections::HashMap,
    rc::Rc,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use anyhow::{Context, bail};
use bytes::Bytes;
use codecs::{ClientMessage, Codec, Event, Filter, RelayMessage};
use futures::FutureExt;
use tokio::sync::{mpsc, watch};
use wire::{CloseCode, Connection, Message, Traffic};

pub(crate) use self::report::{Bits, ClientReport};
use crate::{
    recorder::Recorder,
    shared::{Fate, Shared},
    workload::{PlannedRequest, Role},
};

/// Messages written between two flushes at most. Reading in between keeps a relay that waits for us to read from
/// blocking us for ever.
const BATCH: usize = 64;

/// Something that is due now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Publish `publications[n]`.
    Publication(u32),
    /// Start `sessions[n]`.
    Session(u32),
}

/// A connected client, ready to start.
#[derive(Debug)]
pub(crate) struct Client {
    shared: Arc<Shared>,
    recorder: Rc<RefCell<Recorder>>,
    connection: Connection,
    codec: &'static dyn Codec,
    id: usize,
    buffer: Vec<u8>,
    report: ClientReport,
    in_flight: HashMap<[u8; 32], u32>,
    requests: HashMap<String, OpenRequest>,
    sessions: HashMap<u32, OpenSession>,
}

/// A session that waits for the last EOSE of its step.
#[derive(Debug)]
struct OpenSession {
    due_ns: u64,
    step: usize,
    waiting_for: usize,
}

/// A request that waits for its EOSE.
#[derive(Debug)]
struct OpenRequest {
    session: u32,
    step: usize,
    request: usize,
    due_ns: u64,
    sent_ns: u64,
    seen: Bits,
}

impl Client {
    /// Takes a connection; a subscriber opens its live subscriptions and waits for their EOSE.
    ///
    /// # Errors
    /// When the relay refuses a subscription or answers in another format.
    pub(crate) async fn open(
        shared: Arc<Shared>,
        recorder: Rc<RefCell<Recorder>>,
        connection: Connection,
        id: usize,
    ) -> anyhow::Result<Client> {
        let codec = connection.agreement().format.codec(shared.target.implementation)?;
        let mut client = Client {
            shared: Arc::clone(&shared),
            recorder,
            connection,
            codec,
            id,
            buffer: Vec::new(),
            report: ClientReport::default(),
            in_flight: HashMap::new(),
            requests: HashMap::new(),
            sessions: HashMap::new(),
        };
        if let Role::Subscriber(filters) = &shared.workload.roles[id] {
            client.report.seen = vec![Bits::of_len(shared.workload.publications.len()); filters.len()];
            client.subscribe(filters).await?;
        }
        client.report.traffic = client.connection.traffic();
        Ok(client)
    }

    async fn subscribe(&mut self, filters: &[Filter]) -> anyhow::Result<()> {
        for (n, filter) in filters.iter().enumerate() {
            self.feed_request(&live_subscription(n), filter).await?;
        }
        self.connection.flush().await?;
        let mut waiting_for = filters.len();
        while waiting_for > 0 {
            let message = self.connection.next().await.context("the relay closed the connection")??;
            match self.codec.decode_relay(&message.payload)? {
                RelayMessage::Eose { .. } => waiting_for -= 1,
                RelayMessage::Closed { text, .. } | RelayMessage::Notice { text } => {
                    bail!("the relay refused a live subscription: {text}")
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Works until told to stop or until the connection ends, then closes it.
    pub(crate) async fn run(
        mut self,
        mut due: mpsc::Receiver<Due>,
        mut stop: watch::Receiver<bool>,
    ) -> ClientReport {
        let before = self.report.traffic;
        if let Err(error) = self.work(&mut due, &mut stop).await {
            let failure = format!("connection {}: {error:#}", self.id);
            self.shared.report_failure(&failure);
            self.report.failure = Some(failure);
        }
        let traffic = self.connection.traffic();
        self.report.traffic = Traffic {
            sent: traffic.sent - before.sent,
            received: traffic.received - before.received,
            ..traffic
        };
        self.connection.close(CloseCode::Normal, "").await;
        self.report
    }

    async fn work(
        &mut self,
        due: &mut mpsc::Receiver<Due>,
        stop: &mut watch::Receiver<bool>,
    ) -> anyhow::Result<()> {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            // What is due goes first: a sender never waits for replies.
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return Ok(()),
                received = due.recv_many(&mut batch, BATCH), if !due.is_closed() => {
                    if received > 0 {
                        self.start(&mut batch).await?;
                    }
                    while let Some(message) = self.connection.next().now_or_never() {
                        self.receive(message.context("the relay closed the connection")??).await?;
                    }
                }
                message = self.connection.next() => {
                    self.receive(message.context("the relay closed the connection")??).await?;
                }
            }
        }
    }

    async fn start(&mut self, batch: &mut Vec<Due>) -> anyhow::Result<()> {
        for due in batch.drain(..) {
            match due {
                Due::Publication(n) => self.publish(n).await?,
                Due::Session(n) => {
                    let due_ns = nanos(self.shared.workload.sessions[n as usize].at);
                    let session = OpenSession { due_ns, step: 0, waiting_for: 0 };
                    self.recorder.borrow_mut().send_lag.record(self.now_ns().saturating_sub(due_ns));
                    self.start_step(n, session).await?;
                }
            }
        }
        self.connection.flush().await?;
        Ok(())
    }

    async fn publish(&mut self, n: u32) -> anyhow::Result<()> {
        let shared = Arc::clone(&self.shared);
        let publication = &shared.workload.publications[n as usize];
        let event = &shared.workload.events[publication.event as usize];
        let sent_ns = self.now_ns();
        shared.sent_ns[n as usize].store(sent_ns, Ordering::Relaxed);
        self.recorder.borrow_mut().send_lag.record(sent_ns.saturating_sub(nanos(publication.at)));
        self.in_flight.insert(event.id, n);
        self.feed(&ClientMessage::Event(Cow::Borrowed(event))).await
    }

    /// Sends the requests of a step.
    async fn start_step(&mut self, n: u32, mut session: OpenSession) -> anyhow::Result<()> {
        let shared = Arc::clone(&self.shared);
        let requests = &shared.workload.sessions[n as usize].steps[session.step];
        session.waiting_for = requests.len();
        let sent_ns = self.now_ns();
        for (i, PlannedRequest { filter, expected }) in requests.iter().enumerate() {
            let subscription = format!("s{n}-{}-{i}", session.step);
            self.feed_request(&subscription, filter).await?;
            let open = OpenRequest {
                session: n,
                step: session.step,
                request: i,
                due_ns: session.due_ns,
                sent_ns,
                seen: Bits::of_len(expected.len()),
            };
            self.requests.insert(subscription, open);
        }
        self.sessions.insert(n, session);
        Ok(())
    }

    async fn receive(&mut self, message: Message) -> anyhow::Result<()> {
        let now_ns = self.now_ns();
        let decoded = match self.codec.decode_relay(&message.payload) {
            Ok(decoded) => decoded,
            Err(error) => {
                self.report.decode_errors += 1;
                self.complain(|| format!("a message that does not decode: {error}"));
                return Ok(());
            }
        };
        match decoded {
            RelayMessage::Event { subscription, event } => {
                self.report.last_ns = now_ns;
                match live_index(&subscription) {
                    Some(n) => self.live_delivery(n, &event, now_ns),
                    None => self.stored_delivery(&subscription, &event, now_ns),
                }
            }
            RelayMessage::Ok { id, accepted, text } => {
                self.report.last_ns = now_ns;
                self.acknowledged(id, accepted, &text, now_ns);
            }
            RelayMessage::Eose { subscription, .. } => self.end_of_stored(&subscription, now_ns).await?,
            RelayMessage::Closed { subscription, text } => {
                self.complain(|| format!("CLOSED {subscription}: {text}"));
                if let Some(request) = self.requests.remove(&*subscription) {
                    self.sessions.remove(&request.session);
                    self.shared.done(1);
                }
            }
            RelayMessage::Notice { text } => self.complain(|| format!("NOTICE {text}")),
            RelayMessage::Auth { .. } | RelayMessage::Count { .. } => {}
        }
        Ok(())
    }

    fn live_delivery(&mut self, subscription: usize, event: &Event<'_>, now_ns: u64) {
        let shared = &*self.shared;
        let Some((publication, seen)) =
            shared.publication_of(&event.id).zip(self.report.seen.get_mut(subscription))
        else {
            self.report.unexpected += 1;
            return;
        };
        let planned = &shared.workload.publications[publication];
        if shared.workload.events[planned.event as usize] != *event {
            self.report.altered += 1;
        } else if seen.insert(publication) {
            let sent_ns = shared.sent_ns[publication].load(Ordering::Relaxed);
            let mut recorder = self.recorder.borrow_mut();
            recorder.response.record(now_ns.saturating_sub(nanos(planned.at)));
            recorder.service.record(now_ns.saturating_sub(sent_ns));
            shared.delivered(1);
            shared.done(1);
        } else {
            self.report.duplicated += 1;
        }
    }

    fn stored_delivery(&mut self, subscription: &str, event: &Event<'_>, now_ns: u64) {
        let workload = &self.shared.workload;
        let Some(found) = workload.find(&event.id) else {
            self.report.unexpected += 1;
            return;
        };
        let Some(request) = self.requests.get_mut(subscription) else {
            // A live event may overtake our CLOSE; a stored one may not.
            self.report.unexpected += u64::from((found as usize) < workload.stored);
            return;
        };
        let session = &workload.sessions[request.session as usize];
        let expected = &session.steps[request.step][request.request].expected;
        let Ok(position) = expected.binary_search(&found) else {
            self.report.unexpected += u64::from((found as usize) < workload.stored);
            return;
        };
        if workload.events[found as usize] != *event {
            self.report.altered += 1;
        } else if request.seen.insert(position) {
            self.report.deliveries += 1;
            let mut recorder = self.recorder.borrow_mut();
            recorder.response.record(now_ns.saturating_sub(request.due_ns));
            recorder.service.record(now_ns.saturating_sub(request.sent_ns));
            self.shared.delivered(1);
        } else {
            self.report.duplicated += 1;
        }
    }

    fn acknowledged(&mut self, id: [u8; 32], accepted: bool, text: &str, now_ns: u64) {
        let Some(n) = self.in_flight.remove(&id) else {
            self.complain(|| format!("OK for an event that was not in flight: {text}"));
            return;
        };
        let planned = &self.shared.workload.publications[n as usize];
        self.recorder.borrow_mut().publish_ok.record(now_ns.saturating_sub(nanos(planned.at)));
        // A relay that had the event already says true and delivers nothing.
        let duplicate = text.starts_with("duplicate:");
        if accepted && !duplicate {
            self.shared.settle(n as usize, Fate::Acked);
        } else {
            self.shared.settle(n as usize, Fate::Rejected);
            self.complain(|| format!("OK {accepted}: {text}"));
        }
    }

    async fn end_of_stored(&mut self, subscription: &str, now_ns: u64) -> anyhow::Result<()> {
        let Some(request) = self.requests.remove(subscription) else {
            self.report.unexpected += 1;
            return Ok(());
        };
        self.report.requests_completed += 1;
        self.report.last_ns = now_ns;
        self.recorder.borrow_mut().eose.record(now_ns.saturating_sub(request.due_ns));
        self.feed(&ClientMessage::Close { subscription: subscription.into() }).await?;
        if let Some(mut session) = self.sessions.remove(&request.session) {
            session.waiting_for -= 1;
            let planned = &self.shared.workload.sessions[request.session as usize];
            if session.waiting_for > 0 {
                self.sessions.insert(request.session, session);
            } else if session.step + 1 < planned.steps.len() {
                session.step += 1;
                session.due_ns = now_ns;
                self.start_step(request.session, session).await?;
            } else {
                self.report.busy_ns.push((nanos(planned.at), now_ns));
                self.shared.done(1);
            }
        }
        self.connection.flush().await?;
        Ok(())
    }

    async fn feed_request(&mut self, subscription: &str, filter: &Filter) -> anyhow::Result<()> {
        let filters = vec![filter.clone()];
        self.feed(&ClientMessage::Req { subscription: subscription.into(), filters }).await
    }

    async fn feed(&mut self, message: &ClientMessage<'_>) -> anyhow::Result<()> {
        self.buffer.clear();
        self.codec.encode_client(message, &mut self.buffer)?;
        self.connection.feed(Bytes::copy_from_slice(&self.buffer)).await?;
        Ok(())
    }

    fn complain(&mut self, text: impl FnOnce() -> String) {
        if self.report.complaint.is_none() {
            self.report.complaint = Some(text());
        }
    }

    fn now_ns(&self) -> u64 {
        nanos(Instant::now().saturating_duration_since(self.shared.start()))
    }
}

/// The id of a live subscription.
fn live_subscription(n: usize) -> String {
    format!("live-{n}")
}

fn live_index(subscription: &str) -> Option<usize> {
    subscription.strip_prefix("live-")?.parse().ok()
}

/// Nanoseconds; a `u64` holds 584 years of them.
pub(crate) fn nanos(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
