//! Runs the state machine of a client over a real connection: the only place where a client reads, writes and waits.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, anyhow};
use futures::FutureExt;
use tokio::{
    sync::{mpsc, watch},
    time::sleep_until,
};
use wire::{Agreement, CloseCode, CompressionMemory, Connection, Message, Traffic, WireError};

use crate::{
    client::{Action, Client, Report},
    dial::Dialer,
    recorder::Recorder,
    schedule::nanos,
    shared::Shared,
    workload::Due,
};

/// Messages written between two flushes at most. Reading in between keeps a relay that waits for us to read from
/// blocking us for ever.
const BATCH: usize = 64;

/// What the kernel holds for a client that reads slowly; otherwise megabytes would wait there unseen.
const SLOW_RECEIVE_BUFFER_BYTES: u32 = 16 << 10;

/// What one client brings back.
#[derive(Debug, Default)]
pub struct ClientOutcome {
    /// What it saw.
    pub report: Report,
    /// Bytes and messages since the start, over all its connections.
    pub traffic: Traffic,
    /// Connections that ended.
    pub connections: u64,
    /// What compression took when they ended: their own bytes added up, the thread's as the last found them.
    pub compression_memory: CompressionMemory,
    /// Why the client ended early.
    pub failure: Option<String>,
}

/// A client and its connection.
#[derive(Debug)]
pub(crate) struct Driver {
    client: Client,
    recorder: Rc<RefCell<Recorder>>,
    dialer: Arc<Dialer>,
    link: Option<Connection>,
    /// Counts of the connection before the clock started.
    before: Traffic,
    /// When the client's clock stood at zero.
    epoch: Instant,
    unflushed: bool,
    outcome: ClientOutcome,
}

/// What a client waited for.
enum Ready {
    Timer,
    Message(Option<Result<Message, WireError>>),
}

impl Driver {
    /// Makes a client and, where its role has one before the start, its connection, with its live subscriptions open.
    ///
    /// # Errors
    /// When the relay cannot be reached, refuses a subscription or agrees on something else than asked.
    pub(crate) async fn open(
        shared: Arc<Shared>,
        recorder: Rc<RefCell<Recorder>>,
        dialer: Arc<Dialer>,
        id: usize,
    ) -> anyhow::Result<Driver> {
        let target = dialer.target();
        let format = *target.offer.formats.first().context("a target has a format to offer")?;
        let codec = format.codec(target.implementation)?;
        let client = Client::new(shared, codec, id, (&target.url, unix_s()));
        let mut driver = Driver {
            client,
            recorder,
            dialer,
            link: None,
            before: Traffic::default(),
            epoch: Instant::now(),
            unflushed: false,
            outcome: ClientOutcome::default(),
        };
        driver.client.open(driver.now_ns());
        driver.perform().await?;
        driver.flush().await?;
        while !driver.client.is_ready() {
            driver.turn().await?;
        }
        driver.before = driver.link.as_ref().map(Connection::traffic).unwrap_or_default();
        Ok(driver)
    }

    /// The run starts at this instant.
    pub(crate) fn start(&mut self, start: Instant) {
        self.epoch = start;
        self.client.start(unix_s());
    }

    /// Works from the start of the run until told to stop.
    ///
    /// # Errors
    /// When the connection ends early, or the relay refuses what the plan cannot do without.
    pub(crate) async fn run(
        &mut self,
        start: Instant,
        mut due: mpsc::Receiver<Due>,
        mut stop: watch::Receiver<bool>,
    ) -> anyhow::Result<()> {
        self.start(start);
        self.work(&mut due, &mut stop).await
    }

    /// Closes the connection and returns what came of it.
    pub(crate) async fn finish(mut self) -> ClientOutcome {
        self.close().await;
        self.outcome.report = self.client.finish();
        self.outcome
    }

    /// What the client has seen so far.
    pub(crate) fn report(&self) -> &Report {
        self.client.report()
    }

    /// What the connection agreed on.
    pub(crate) fn agreement(&self) -> Option<&Agreement> {
        self.link.as_ref().map(Connection::agreement)
    }

    /// Does what is due.
    pub(crate) async fn on_due(&mut self, due: Due) -> anyhow::Result<()> {
        self.client.on_due(due, self.now_ns());
        self.perform().await
    }

    /// Waits for one thing that happens by itself, and does it.
    pub(crate) async fn turn(&mut self) -> anyhow::Result<()> {
        self.flush().await?;
        let ready = self.ready().await;
        self.handle(ready).await?;
        self.flush().await
    }

    async fn work(
        &mut self,
        due: &mut mpsc::Receiver<Due>,
        stop: &mut watch::Receiver<bool>,
    ) -> anyhow::Result<()> {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            // What is due goes first: a sender never waits for replies.
            let ready = tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return Ok(()),
                _ = due.recv_many(&mut batch, BATCH), if !due.is_closed() => None,
                ready = self.ready() => Some(ready),
            };
            match ready {
                Some(ready) => self.handle(ready).await?,
                None => {
                    for due in batch.drain(..) {
                        self.on_due(due).await?;
                    }
                    self.read_what_is_there().await?;
                }
            }
            self.flush().await?;
        }
    }

    /// Waits for a timer or a message; cancel-safe.
    async fn ready(&mut self) -> Ready {
        let wake = self.client.next_wake_ns().map(|at| self.epoch + Duration::from_nanos(at));
        let reads = self.client.may_read();
        tokio::select! {
            biased;
            () = sleep_until(wake.unwrap_or(self.epoch).into()), if wake.is_some() => Ready::Timer,
            message = next(self.link.as_mut()), if reads => Ready::Message(message),
            else => std::future::pending().await,
        }
    }

    async fn handle(&mut self, ready: Ready) -> anyhow::Result<()> {
        match ready {
            Ready::Timer => {
                self.client.on_timer(self.now_ns());
                self.perform().await
            }
            Ready::Message(message) => {
                self.take(message).await?;
                self.read_what_is_there().await
            }
        }
    }

    /// Takes messages that wait already, a batch at most.
    async fn read_what_is_there(&mut self) -> anyhow::Result<()> {
        for _ in 0..BATCH {
            if !self.client.may_read() {
                break;
            }
            let Some(message) = next(self.link.as_mut()).now_or_never() else { break };
            self.take(message).await?;
        }
        Ok(())
    }

    /// Takes a message, or the end of the connection.
    async fn take(&mut self, message: Option<Result<Message, WireError>>) -> anyhow::Result<()> {
        match message {
            Some(Ok(message)) => self.client.on_message(&message.payload, self.now_ns()),
            Some(Err(error)) => self.lose(&format!("{:#}", anyhow!(error))),
            None => self.lose("the relay closed the connection"),
        }
        self.perform().await
    }

    fn lose(&mut self, why: &str) {
        self.abort();
        self.client.on_disconnected(why);
    }

    /// Carries out what the client wants done.
    async fn perform(&mut self) -> anyhow::Result<()> {
        let mut fed = 0;
        loop {
            while let Some(action) = self.client.next_action() {
                match action {
                    Action::Record(sample) => self.recorder.borrow_mut().add(self.client.label(), &sample),
                    Action::Send(payload) => {
                        let link = self.link.as_mut().context("a client connects before it sends")?;
                        link.feed(payload).await?;
                        self.unflushed = true;
                        fed += 1;
                        if fed % BATCH == 0 {
                            self.flush().await?;
                        }
                    }
                    Action::Connect => self.connect().await?,
                    Action::Close => self.close().await,
                    Action::Abort => self.abort(),
                    Action::Fail(why) => return Err(anyhow!(why)),
                }
            }
            if !self.client.has_backlog() {
                return Ok(());
            }
            self.client.on_room(self.now_ns());
        }
    }

    async fn connect(&mut self) -> anyhow::Result<()> {
        let receive_buffer_bytes = self.client.reads_slowly().then_some(SLOW_RECEIVE_BUFFER_BYTES);
        let target = self.dialer.target();
        let connection = self.dialer.dial(receive_buffer_bytes).await;
        let connection = connection.with_context(|| format!("cannot connect to {}", target.url))?;
        target.check(connection.agreement())?;
        self.link = Some(connection);
        self.before = Traffic::default();
        self.client.on_connected(self.now_ns());
        Ok(())
    }

    async fn flush(&mut self) -> anyhow::Result<()> {
        if let Some(link) = self.link.as_mut().filter(|_| self.unflushed) {
            link.flush().await?;
        }
        self.unflushed = false;
        Ok(())
    }

    /// Ends TCP without a Close frame and keeps the connection's counts.
    fn abort(&mut self) {
        if let Some(link) = self.link.take() {
            self.keep_counts(&link);
        }
    }

    /// Closes the connection (RFC 6455 §7.1.1) and keeps its counts.
    async fn close(&mut self) {
        if let Some(mut link) = self.link.take() {
            self.keep_counts(&link);
            link.close(CloseCode::Normal, "").await;
        }
    }

    /// Of a connection from before the start, only what came after it; but its handshake.
    fn keep_counts(&mut self, link: &Connection) {
        let traffic = link.traffic();
        let before = std::mem::take(&mut self.before);
        let memory = link.compression_memory();
        let outcome = &mut self.outcome;
        outcome.connections += 1;
        outcome.compression_memory.own_bytes += memory.own_bytes;
        outcome.compression_memory.shared_bytes =
            memory.shared_bytes.max(outcome.compression_memory.shared_bytes);
        outcome.traffic += Traffic {
            sent: traffic.sent - before.sent,
            received: traffic.received - before.received,
            ..traffic
        };
        self.unflushed = false;
    }

    fn now_ns(&self) -> u64 {
        nanos(Instant::now().saturating_duration_since(self.epoch))
    }
}

/// The next message of a connection; for ever where there is none.
async fn next(link: Option<&mut Connection>) -> Option<Result<Message, WireError>> {
    match link {
        Some(link) => link.next().await,
        None => std::future::pending().await,
    }
}

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
