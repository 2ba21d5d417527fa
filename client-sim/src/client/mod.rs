//! One simulated client: a task that owns its connection and does what the plan says, when it says so.

mod connect;
mod live;
mod publish;
mod reconcile;
mod report;
mod session;

use std::{
    cell::RefCell,
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use bytes::Bytes;
use codecs::{ClientMessage, Codec, Event, Filter, RelayMessage};
use futures::FutureExt;
use tokio::{
    sync::{mpsc, watch},
    time::sleep_until,
};
use wire::{Connection, Message, Traffic, WireError};

pub(crate) use self::report::ClientReport;
use self::{
    live::{live_index, live_name, visit_index},
    publish::OpenFlood,
    reconcile::{OpenReconciliation, fetch_index, round_index},
    session::{OpenRequest, OpenSession},
};
use crate::{
    bits::Bits,
    dial::Dialer,
    recorder::{Metric, Recorder},
    shared::Shared,
    workload::{Reading, Task},
};

/// Messages written between two flushes at most. Reading in between keeps a relay that waits for us to read from
/// blocking us for ever.
const BATCH: usize = 64;

/// What the kernel holds for a client that reads slowly; otherwise megabytes would wait there unseen.
const SLOW_RECEIVE_BUFFER_BYTES: u32 = 16 << 10;

/// Something that is due now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Publish `publications[n]`.
    Publication(u32),
    /// Begin `floods[n]`.
    Flood(u32),
    /// Start `sessions[n]`.
    Session(u32),
    /// Read on as fast as possible.
    CatchUp,
}

/// What a client wants to be woken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wake {
    /// Start `sessions[n]`, due at so many nanoseconds.
    Start(u32, u64),
    /// Stop wanting more of `sessions[n]`.
    Leave(u32),
    /// End `sessions[n]` as soon as everything owed to it is there.
    LeaveWhenAllIsThere(u32),
    /// Read on.
    Read,
    /// End a slow reader as soon as everything owed to it is there.
    CaughtUp,
}

/// A client that reads slowly.
#[derive(Debug)]
struct Reader {
    bytes_per_s: u64,
    /// When everything that it read so far is paid for, at its speed.
    free_at: Instant,
    /// Set until it may read on.
    pausing: bool,
    /// Set once it reads as fast as it can.
    catching_up: bool,
}

/// A connected client, ready to start.
#[derive(Debug)]
pub(crate) struct Client {
    shared: Arc<Shared>,
    recorder: Rc<RefCell<Recorder>>,
    dialer: Arc<Dialer>,
    link: Option<Connection>,
    /// Counts of the connection before the clock started.
    before: Traffic,
    codec: &'static dyn Codec,
    id: usize,
    label: Option<usize>,
    buffer: Vec<u8>,
    unflushed: bool,
    report: ClientReport,
    in_flight: HashMap<[u8; 32], u32>,
    flood: Option<OpenFlood>,
    requests: HashMap<String, OpenRequest>,
    sessions: HashMap<u32, OpenSession>,
    reconciliations: HashMap<u32, OpenReconciliation>,
    reader: Option<Reader>,
    wakes: BinaryHeap<Reverse<(Instant, Wake)>>,
}

impl Client {
    /// Makes a client and, where its role has one before the start, its connection; a subscriber opens its live
    /// subscriptions and waits for their EOSE.
    ///
    /// # Errors
    /// When the relay cannot be reached, refuses a subscription or answers in another format.
    pub(crate) async fn open(
        shared: Arc<Shared>,
        recorder: Rc<RefCell<Recorder>>,
        dialer: Arc<Dialer>,
        id: usize,
    ) -> anyhow::Result<Client> {
        let role = &shared.workload.roles[id];
        let reader = match role.task {
            Task::Subscriber { read_bytes_per_s: Some(bytes_per_s), .. } => {
                let pausing = bytes_per_s == 0;
                Some(Reader { bytes_per_s, free_at: Instant::now(), pausing, catching_up: false })
            }
            _ => None,
        };
        let format = *dialer.target().offer.formats.first().context("a target has a format to offer")?;
        let mut client = Client {
            label: role.label,
            codec: format.codec(dialer.target().implementation)?,
            shared: Arc::clone(&shared),
            recorder,
            dialer,
            link: None,
            before: Traffic::default(),
            id,
            buffer: Vec::new(),
            unflushed: false,
            report: ClientReport::default(),
            in_flight: HashMap::new(),
            flood: None,
            requests: HashMap::new(),
            sessions: HashMap::new(),
            reconciliations: HashMap::new(),
            reader,
            wakes: BinaryHeap::new(),
        };
        if role.connects_before() {
            client.connect().await?;
            client.subscribe(role.filters()).await?;
            client.before = client.link.as_ref().map(Connection::traffic).unwrap_or_default();
        }
        Ok(client)
    }

    async fn subscribe(&mut self, filters: &[u32]) -> anyhow::Result<()> {
        let shared = Arc::clone(&self.shared);
        self.report.seen = vec![Bits::of_len(shared.workload.publications.len()); filters.len()];
        for (n, live) in filters.iter().enumerate() {
            self.feed_request(&live_name(n), &shared.workload.live[*live as usize].filter).await?;
        }
        self.flush().await?;
        let mut waiting_for = filters.len();
        while waiting_for > 0 {
            let message = self.next_answer().await?;
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
        if let Err(error) = self.work(&mut due, &mut stop).await {
            let failure = format!("connection {}: {error:#}", self.id);
            self.shared.report_failure(&failure);
            self.report.failure = Some(failure);
        }
        let open: Vec<_> = self.sessions.drain().filter_map(|(_, session)| session.visit).collect();
        open.into_iter().for_each(|visit| self.keep_visit(visit));
        self.close_link().await;
        self.report
    }

    async fn work(
        &mut self,
        due: &mut mpsc::Receiver<Due>,
        stop: &mut watch::Receiver<bool>,
    ) -> anyhow::Result<()> {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let wake = self.wakes.peek().map(|Reverse((at, _))| *at);
            // What is due goes first: a sender never waits for replies.
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return Ok(()),
                received = due.recv_many(&mut batch, BATCH), if !due.is_closed() => {
                    if received > 0 {
                        self.start(&mut batch).await?;
                    }
                    self.read_what_is_there().await?;
                }
                () = sleep_until(wake.unwrap_or_else(Instant::now).into()), if wake.is_some() => {
                    self.wake().await?;
                }
                message = next(self.link.as_mut()), if self.may_read() => {
                    self.take(message).await?;
                    self.read_what_is_there().await?;
                }
            }
            self.flush().await?;
        }
    }

    fn may_read(&self) -> bool {
        self.link.is_some() && self.reader.as_ref().is_none_or(|reader| !reader.pausing)
    }

    /// Takes messages that wait already, a batch at most.
    async fn read_what_is_there(&mut self) -> anyhow::Result<()> {
        for _ in 0..BATCH {
            if !self.may_read() {
                break;
            }
            let Some(message) = next(self.link.as_mut()).now_or_never() else { break };
            self.take(message).await?;
        }
        Ok(())
    }

    /// A message, or the end of the connection.
    async fn take(&mut self, message: Option<Result<Message, WireError>>) -> anyhow::Result<()> {
        let ended = match message {
            Some(Ok(message)) => {
                self.pause_after(message.payload.len());
                return self.receive(message).await;
            }
            Some(Err(error)) => anyhow::Error::from(error),
            None => anyhow::anyhow!("the relay closed the connection"),
        };
        // Relays may, and should, end a connection that is read too slowly.
        if self.reader.is_none() {
            return Err(ended);
        }
        self.report.cut_off = Some(format!("{ended:#}"));
        self.drop_link();
        self.wakes.clear();
        self.shared.caught_up();
        Ok(())
    }

    async fn start(&mut self, batch: &mut Vec<Due>) -> anyhow::Result<()> {
        for due in batch.drain(..) {
            match due {
                Due::Publication(n) => self.publish_due(n).await?,
                Due::Flood(n) => self.start_flood(n).await?,
                Due::Session(n) => {
                    let due_ns = nanos(self.shared.workload.sessions[n as usize].at);
                    self.start_session(n, due_ns).await?;
                }
                Due::CatchUp => self.catch_up(),
            }
        }
        Ok(())
    }

    /// Does what it wanted to be woken for.
    async fn wake(&mut self) -> anyhow::Result<()> {
        let Some(Reverse((_, wake))) = self.wakes.pop() else { return Ok(()) };
        match wake {
            Wake::Start(n, due_ns) => self.start_session(n, due_ns).await,
            Wake::Leave(n) => {
                self.want_to_leave(n);
                self.leave(n).await
            }
            Wake::LeaveWhenAllIsThere(n) => self.leave(n).await,
            Wake::Read => {
                if let Some(reader) = &mut self.reader {
                    reader.pausing = false;
                }
                Ok(())
            }
            Wake::CaughtUp => {
                self.end_when_caught_up();
                Ok(())
            }
        }
    }

    fn wake_after(&mut self, wait: Duration, wake: Wake) {
        self.wakes.push(Reverse((Instant::now() + wait, wake)));
    }

    async fn receive(&mut self, message: Message) -> anyhow::Result<()> {
        let now_ns = self.now_ns();
        if self.passes_over(&message.payload, now_ns) {
            return Ok(());
        }
        let decoded = match self.codec.decode_relay(&message.payload) {
            Ok(decoded) => decoded,
            Err(error) => {
                self.report.decode_errors += 1;
                self.complain(|| format!("a message that does not decode: {error}"));
                return Ok(());
            }
        };
        match decoded {
            RelayMessage::Event { subscription, event } => self.delivery(&subscription, &event, now_ns),
            RelayMessage::Events { subscription, events } => {
                events.iter().for_each(|event| self.delivery(&subscription, event, now_ns));
            }
            RelayMessage::Ok { id, accepted, text } => {
                self.report.last_ns = now_ns;
                self.acknowledged(id, accepted, &text, now_ns);
                self.go_on_flooding().await?;
                self.end_reconciliations(now_ns).await?;
            }
            RelayMessage::Eose { subscription, .. } => self.end_of_stored(&subscription, now_ns).await?,
            RelayMessage::Closed { subscription, text } => {
                self.complain(|| format!("CLOSED {subscription}: {text}"));
                if let Some(session) = fetch_index(&subscription) {
                    return self.give_up_reconciling(session).await;
                }
                let visit = visit_index(&subscription).map(|(session, _)| session);
                let request = self.requests.remove(&*subscription).map(|request| request.session);
                if let Some(session) = request.or(visit).filter(|session| self.sessions.contains_key(session))
                {
                    self.end_session(session).await?;
                }
            }
            RelayMessage::Notice { text } => self.complain(|| format!("NOTICE {text}")),
            RelayMessage::NegMsg { subscription, message } => {
                self.report.last_ns = now_ns;
                match round_index(&subscription) {
                    Some(session) => self.go_on_reconciling(session, &message, now_ns).await?,
                    None => self.report.unexpected += 1,
                }
            }
            RelayMessage::NegErr { subscription, text } => {
                self.complain(|| format!("NEG-ERR {subscription}: {text}"));
                if let Some(session) = round_index(&subscription) {
                    self.give_up_reconciling(session).await?;
                }
            }
            RelayMessage::Auth { .. } | RelayMessage::Count { .. } => {}
        }
        Ok(())
    }

    fn delivery(&mut self, subscription: &str, event: &Event<'_>, now_ns: u64) {
        self.report.last_ns = now_ns;
        if let Some(n) = live_index(subscription) {
            self.live_delivery(n, event, now_ns);
        } else if let Some(visit) = visit_index(subscription) {
            self.visit_delivery(visit, event, now_ns);
        } else if let Some(session) = fetch_index(subscription) {
            self.fetched(session, event, now_ns);
        } else {
            self.learns(&event.id);
            self.stored_delivery(subscription, &event.id, Some(event), now_ns);
        }
    }

    /// Counts an event of another relay of this client's as soon as its id is seen; whether it was one. Clients that do
    /// so save the work of decoding.
    fn passes_over(&mut self, payload: &[u8], now_ns: u64) -> bool {
        let Task::Reader(Reading { reader, peeks: true }) = self.shared.workload.roles[self.id].task else {
            return false;
        };
        let Some((subscription, head)) = self.codec.peek_relay(payload) else { return false };
        if !self.shared.knows(reader, &head.id) {
            return false;
        }
        self.report.last_ns = now_ns;
        self.report.repeats += 1;
        self.report.repeats_peeked += 1;
        self.stored_delivery(&subscription, &head.id, None, now_ns);
        true
    }

    /// Notes an event that was decoded, and whether another relay of this client's was first.
    fn learns(&mut self, id: &[u8; 32]) {
        if let Task::Reader(Reading { reader, .. }) = self.shared.workload.roles[self.id].task {
            self.report.repeats += u64::from(!self.shared.learns(reader, id));
        }
    }

    async fn feed_request(&mut self, subscription: &str, filter: &Filter) -> anyhow::Result<()> {
        let filters = vec![filter.clone()];
        self.feed(&ClientMessage::Req { subscription: subscription.into(), filters }).await
    }

    async fn feed(&mut self, message: &ClientMessage<'_>) -> anyhow::Result<()> {
        self.buffer.clear();
        self.codec.encode_client(message, &mut self.buffer)?;
        let link = self.link.as_mut().context("a client connects before it sends")?;
        link.feed(Bytes::copy_from_slice(&self.buffer)).await?;
        self.unflushed = true;
        Ok(())
    }

    async fn flush(&mut self) -> anyhow::Result<()> {
        if let Some(link) = self.link.as_mut().filter(|_| self.unflushed) {
            link.flush().await?;
        }
        self.unflushed = false;
        Ok(())
    }

    /// Records from when something was due to now, unless that was in a warm-up.
    fn record(&self, metric: Metric, since_ns: u64, now_ns: u64) {
        if self.shared.workload.is_measured(since_ns) {
            self.recorder.borrow_mut().record_from(self.label, metric, since_ns, now_ns);
        }
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

/// The next message of a connection; for ever where there is none.
async fn next(link: Option<&mut Connection>) -> Option<Result<Message, WireError>> {
    match link {
        Some(link) => link.next().await,
        None => std::future::pending().await,
    }
}

/// Nanoseconds; a `u64` holds 584 years of them.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
