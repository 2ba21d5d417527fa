//! Runs the state machine of a client over a real connection. All I/O and waiting of a client is
//! here.

use std::{
    cell::RefCell,
    convert::Infallible,
    future::poll_fn,
    pin::pin,
    rc::Rc,
    sync::Arc,
    task::Poll,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, anyhow};
use tokio::{
    sync::{mpsc, watch},
    time::sleep_until,
};
use wire::{
    Agreement, CloseCode, CompressionMemory, Connection, Message, Offer, RelayUrl, Traffic, WireError,
};

use crate::sockets::{dial::Dialer, resources};
use client::{Action, Client, Report, recorder::Recorder, shared::Shared};
use workload::{Due, schedule::nanos};

/// Most messages written between two flushes, and read in a row. The client reads between batches,
/// so that a relay that stops reading until its own messages are read cannot deadlock with the
/// client.
const BATCH: usize = 64;

/// Receive buffer of a client that reads slowly: with the default size the kernel would take
/// megabytes for it.
const SLOW_RECEIVE_BUFFER_BYTES: u32 = 16 << 10;

/// The result of one client.
#[derive(Debug, Default)]
pub struct ClientOutcome {
    /// The client's report.
    pub report: Report,
    /// Bytes and messages since the start of the run, over all connections of the client.
    pub traffic: Traffic,
    /// Connections that ended.
    pub connections: u64,
    /// Memory of compression when the connections ended: the sum of what each held, and the most of
    /// what they share.
    pub compression_memory: CompressionMemory,
    /// Why the client ended early.
    pub failure: Option<String>,
}

/// A client and its connection.
#[derive(Debug)]
pub(crate) struct Driver {
    client: Client,
    shared: Arc<Shared>,
    recorder: Rc<RefCell<Recorder>>,
    dialer: Arc<Dialer>,
    id: usize,
    /// The format and compression of this client.
    offer: Offer,
    link: Option<Connection>,
    /// Traffic of the connection before the start of the run.
    before: Traffic,
    /// Wire bytes received on the connection when the last message came; `None` before the start.
    heard_bytes: Option<u64>,
    /// The instant zero of the client's clock.
    epoch: Instant,
    unflushed: bool,
    /// When the client pings next, where it does.
    ping_at: Option<Instant>,
    /// Whether the client counts most deliveries unread.
    reads_lightly: bool,
    outcome: ClientOutcome,
}

/// Reasons for the end of a client's wait.
enum Ready {
    Timer,
    Message(Option<Result<Message, WireError>>),
}

impl Driver {
    /// Makes a client. Where its role connects before the start, also connects and opens its live
    /// subscriptions.
    ///
    /// # Errors
    /// When the relay cannot be reached, refuses a subscription or agrees on another format or
    /// compression.
    pub(crate) async fn open(
        shared: Arc<Shared>,
        recorder: Rc<RefCell<Recorder>>,
        dialer: Arc<Dialer>,
        id: usize,
    ) -> anyhow::Result<Driver> {
        let target = dialer.target();
        let offer = target.offer_of(shared.workload.roles[id].speaks);
        let format = *offer.formats.first().context("a target has a format to offer")?;
        let codec = format.codec(target.implementation)?;
        let client = Client::new(Arc::clone(&shared), codec, id, (&target.relay.url().to_string(), unix_s()));
        let mut driver = Driver {
            reads_lightly: client.reads_lightly(),
            client,
            shared,
            recorder,
            dialer,
            id,
            offer,
            link: None,
            before: Traffic::default(),
            heard_bytes: None,
            epoch: Instant::now(),
            unflushed: false,
            ping_at: None,
            outcome: ClientOutcome::default(),
        };
        driver.client.open(driver.now_ns());
        driver.perform().await?;
        driver.flush().await?;
        while !driver.client.is_ready() {
            driver.turn().await?;
        }
        Ok(driver)
    }

    /// Sets the instant at which the run starts, unless what came since has set it.
    pub(crate) fn start(&mut self, start: Instant) {
        if !self.has_started() {
            self.before = self.traffic();
            self.begin(start);
        }
    }

    fn begin(&mut self, start: Instant) {
        self.epoch = start;
        self.heard_bytes = Some(self.before.received.wire_bytes);
        self.client.start(unix_s());
    }

    fn has_started(&self) -> bool {
        self.heard_bytes.is_some()
    }

    fn traffic(&self) -> Traffic {
        self.link.as_ref().map(Connection::traffic).unwrap_or_default()
    }

    /// Answers pings and drops what the relay sends, until the run starts. Cancel-safe.
    ///
    /// # Errors
    /// When the connection ends.
    pub(crate) async fn idle(&mut self) -> anyhow::Result<Infallible> {
        loop {
            if !self.has_started() {
                self.before = self.traffic();
            }
            self.turn().await?;
        }
    }

    /// Does what is due and reads what comes, from the start of the run until `stop`.
    ///
    /// # Errors
    /// When the connection ends early, or the relay refuses AUTH or a live subscription.
    pub(crate) async fn run(
        &mut self,
        start: Instant,
        mut due: mpsc::Receiver<Due>,
        mut stop: watch::Receiver<bool>,
    ) -> anyhow::Result<()> {
        self.start(start);
        self.work(&mut due, &mut stop).await
    }

    /// Closes the connection and returns the result.
    pub(crate) async fn finish(mut self) -> ClientOutcome {
        self.close().await;
        self.outcome.report = self.client.finish();
        self.outcome
    }

    /// The client's report so far.
    pub(crate) fn report(&self) -> &Report {
        self.client.report()
    }

    /// The relay.
    pub(crate) fn relay(&self) -> &RelayUrl {
        self.dialer.target().relay.url()
    }

    /// The agreement of the current connection.
    pub(crate) fn agreement(&self) -> Option<&Agreement> {
        self.link.as_ref().map(Connection::agreement)
    }

    /// Does one thing that is due by plan.
    pub(crate) async fn on_due(&mut self, due: Due) -> anyhow::Result<()> {
        self.client.on_due(due, self.now_ns());
        self.perform().await
    }

    /// Waits for one timer or message, and handles it.
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
        // Once for all steps: a wait enters a list behind a lock, and leaves it when dropped.
        let mut stopped = pin!(stop.wait_for(|stop| *stop));
        loop {
            // A relay that reads nothing blocks a step for ever, and must not block the end of the
            // run.
            tokio::select! {
                biased;
                _ = &mut stopped => return Ok(()),
                done = self.step(due, &mut batch) => done?,
            }
        }
    }

    /// Waits for what is due, a timer or a message, and handles it.
    async fn step(&mut self, due: &mut mpsc::Receiver<Due>, batch: &mut Vec<Due>) -> anyhow::Result<()> {
        // Due work comes before reading: an open schedule never waits for replies.
        let ready = tokio::select! {
            biased;
            _ = due.recv_many(batch, BATCH), if !due.is_closed() => None,
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
        self.flush().await
    }

    /// Waits for a timer or a message; cancel-safe.
    async fn ready(&mut self) -> Ready {
        let wake = self.client.next_wake_ns().map(|at| self.epoch + Duration::from_nanos(at));
        let wake = wake.into_iter().chain(self.ping_at.filter(|_| self.link.is_some())).min();
        let reads = self.client.may_read();
        self.choose_what_to_read();
        let link = self.link.as_mut().filter(|_| reads);
        // Most readers have no timer, and a timer that never fires costs a wait as much as another.
        let Some(wake) = wake else { return Ready::Message(next(link).await) };
        tokio::select! {
            biased;
            () = sleep_until(wake.into()) => Ready::Timer,
            message = next(link) => Ready::Message(message),
        }
    }

    async fn handle(&mut self, ready: Ready) -> anyhow::Result<()> {
        match ready {
            Ready::Timer => {
                if self.ping_at.is_some_and(|at| at <= Instant::now()) {
                    self.ping().await?;
                }
                self.client.on_timer(self.now_ns());
                self.perform().await
            }
            Ready::Message(message) => {
                self.take(message);
                if self.client.has_work() {
                    self.perform().await?;
                }
                self.read_what_is_there().await
            }
        }
    }

    /// Handles the messages that have arrived, at most a batch.
    async fn read_what_is_there(&mut self) -> anyhow::Result<()> {
        for _ in 0..BATCH {
            if !self.client.may_read() {
                break;
            }
            self.choose_what_to_read();
            // With the task's waker: another would be exchanged for it, and back, in every batch.
            let polled = poll_fn(|cx| Poll::Ready(pin!(next(self.link.as_mut())).poll(cx))).await;
            let Poll::Ready(message) = polled else { break };
            self.take(message);
            // Of most deliveries nothing is left to do.
            if self.client.has_work() {
                self.perform().await?;
            }
        }
        Ok(())
    }

    /// Hands over, undecoded, the messages that a light reader skips.
    fn choose_what_to_read(&mut self) {
        if let Some(link) = self.link.as_mut().filter(|_| self.reads_lightly) {
            link.leave_unread(self.client.counts_from());
        }
    }

    /// Whether the last message is one that a light reader counts unread.
    fn is_unread(&self) -> bool {
        self.reads_lightly && self.link.as_ref().is_some_and(Connection::is_unread)
    }

    /// Handles a message, or the end of the connection, and records what it timed.
    fn take(&mut self, message: Option<Result<Message, WireError>>) {
        // Clients are told of the start one after the other, and one may be told of it only after
        // what another one published has come.
        if !self.has_started()
            && let Some(start) = self.shared.begun()
        {
            self.begin(start);
        }
        match message {
            Some(Ok(message)) => {
                let now_ns = self.now_ns();
                self.count_heard(now_ns);
                if self.is_unread() {
                    self.client.on_unread(now_ns);
                } else {
                    self.client.on_message(&message.payload, now_ns);
                }
            }
            Some(Err(error)) => self.lose(&format!("{:#}", anyhow!(error))),
            None => self.lose("the relay closed the connection"),
        }
        let mut recorder = self.recorder.borrow_mut();
        while let Some(sample) = self.client.next_sample() {
            recorder.add(self.client.label(), &sample);
        }
    }

    /// Counts the wire bytes that came since the last message.
    fn count_heard(&mut self, now_ns: u64) {
        let (Some(link), Some(heard_bytes)) = (&self.link, self.heard_bytes.as_mut()) else { return };
        let received = link.traffic().received.wire_bytes;
        let bytes = received.saturating_sub(std::mem::replace(heard_bytes, received));
        // One read may bring many messages.
        if bytes > 0 && !self.client.reads_slowly() {
            self.recorder.borrow_mut().throughput.wire_bytes(now_ns, bytes);
        }
    }

    /// Pings the relay, and sets the next time.
    async fn ping(&mut self) -> anyhow::Result<()> {
        self.ping_at = self.dialer.ping_every.map(|every| Instant::now() + every);
        match &mut self.link {
            Some(link) => Ok(link.ping().await?),
            None => Ok(()),
        }
    }

    fn lose(&mut self, why: &str) {
        /// A relay that says nothing for so long may have been cut off by a proxy.
        const SILENCE: Duration = Duration::from_secs(1);
        let heard = self.link.as_ref().map(|link| link.last_heard().elapsed());
        let silence = heard.filter(|silence| *silence >= SILENCE).map(|silence| {
            format!(
                ", after {:.1} s of silence: a proxy may cut what is idle, and --ping-every keeps connections busy",
                silence.as_secs_f64()
            )
        });
        self.abort();
        self.client.on_disconnected(&format!("{why}{}", silence.unwrap_or_default()));
    }

    /// Carries out the actions of the state machine.
    async fn perform(&mut self) -> anyhow::Result<()> {
        let mut fed = 0;
        loop {
            while let Some(action) = self.client.next_action() {
                match action {
                    Action::Record(sample) => self.recorder.borrow_mut().add(self.client.label(), &sample),
                    Action::Count { now_ns } => self.recorder.borrow_mut().throughput.delivery(now_ns),
                    Action::Send(payload) => {
                        let link = self.link.as_mut().context("a client connects before it sends")?;
                        link.feed(payload).await?;
                        self.unflushed = true;
                        fed += 1;
                        if fed % BATCH == 0 {
                            self.flush().await?;
                        }
                    }
                    // Boxed: they are rare, and each step would have room for a handshake.
                    Action::Connect => Box::pin(self.connect()).await?,
                    Action::Close => Box::pin(self.close()).await,
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
        let connection = self.dialer.dial(self.id, &self.offer, receive_buffer_bytes).await;
        let has_started = self.has_started();
        if let Err(WireError::Io(error)) = &connection
            && has_started
            && resources::ran_out(error)
        {
            self.client.on_no_connection(&error.to_string(), self.now_ns());
            return Ok(());
        }
        let connection = connection.with_context(|| format!("cannot connect to {}", target.relay.url()))?;
        target.check(&self.offer, connection.agreement())?;
        self.link = Some(connection);
        self.ping_at = self.dialer.ping_every.map(|every| Instant::now() + every);
        self.before = Traffic::default();
        self.heard_bytes = self.heard_bytes.map(|_| 0);
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

    /// Adds the traffic of a connection since the start of the run. Its handshake always counts.
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

/// The next message of a connection; pends for ever without one.
async fn next(link: Option<&mut Connection>) -> Option<Result<Message, WireError>> {
    match link {
        Some(link) => link.next().await,
        None => std::future::pending().await,
    }
}

/// Seconds since 1970.
pub(crate) fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use codecs::Format;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
        time::timeout,
    };

    use super::*;
    use crate::sockets::dial::Target;
    use client::shared::Fate;
    use workload::{inputs::plan_over, scenario::Scenario};

    /// Passes connections on to a relay, and ends one on which the relay is silent for so long.
    async fn impatient_proxy(listener: TcpListener, relay: SocketAddr, patience: Duration) {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let mut relay = TcpStream::connect(relay).await.unwrap();
            tokio::spawn(async move {
                let ((mut from_client, mut to_client), (mut from_relay, mut to_relay)) =
                    (client.split(), relay.split());
                let down = async {
                    let mut bytes = [0; 4096];
                    while let Ok(Ok(count @ 1..)) = timeout(patience, from_relay.read(&mut bytes)).await {
                        to_client.write_all(&bytes[..count]).await.unwrap();
                    }
                };
                tokio::select! {
                    _ = tokio::io::copy(&mut from_client, &mut to_relay) => {}
                    () = down => {}
                }
            });
        }
    }

    #[tokio::test]
    async fn a_connection_that_a_proxy_cuts_names_the_silence_and_pings_keep_it() {
        let [relay, proxy] = [TcpListener::bind("127.0.0.1:0").await, TcpListener::bind("127.0.0.1:0").await];
        let (relay, proxy) = (relay.unwrap(), proxy.unwrap());
        let target = Target::plain(&proxy);
        let scenario = Scenario::load("note-stream").unwrap();
        let workload = plan_over(&scenario, &corpus::Corpus::bundled(), 1, &[Format::JSON]).unwrap();
        let reads = workload.roles.iter().position(|role| !role.filters().is_empty()).unwrap();
        let shared = Arc::new(Shared::new(workload));
        let idle = async |ping_every: Option<Duration>| {
            let mut dialer = Dialer::new(target.clone(), 1);
            dialer.ping_every = ping_every;
            let opened = Driver::open(Arc::clone(&shared), Rc::default(), Arc::new(dialer), reads).await;
            let mut client = opened.unwrap();
            timeout(Duration::from_secs(3), client.idle()).await.map(Result::unwrap_err)
        };
        let relay_at = relay.local_addr().unwrap();
        let passing = impatient_proxy(proxy, relay_at, Duration::from_millis(1_200));
        let serving = relay_sim::serve(relay, relay_sim::Config::default(), std::future::pending());
        let (cut, kept) = tokio::select! {
            both = async { tokio::join!(idle(None), idle(Some(Duration::from_millis(300)))) } => both,
            () = passing => unreachable!("it passes on for ever"),
            _ = serving => unreachable!("it serves for ever"),
        };
        let why = format!("{:#}", cut.expect("the proxy cuts it"));
        assert!(why.contains(" s of silence: a proxy may cut what is idle"), "{why}");
        assert!(kept.is_err(), "a Pong is no silence");
    }

    #[tokio::test]
    async fn what_comes_after_the_start_counts_before_a_client_is_told_of_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target::plain(&listener);
        let scenario = Scenario::load("note-stream").unwrap();
        let workload = plan_over(&scenario, &corpus::Corpus::bundled(), 1, &[Format::JSON]).unwrap();
        let publishes = workload.publications[0].connection;
        let reads = workload.roles.iter().position(|role| !role.filters().is_empty()).unwrap();
        let (shared, dialer) = (Arc::new(Shared::new(workload)), Arc::new(Dialer::new(target, 2)));
        let open = |id| Driver::open(Arc::clone(&shared), Rc::default(), Arc::clone(&dialer), id);
        let play = async {
            let (mut publisher, mut reader) = (open(publishes).await.unwrap(), open(reads).await.unwrap());
            shared.set_start(Instant::now());
            publisher.start(shared.start());
            publisher.on_due(Due::Publication(0)).await.unwrap();
            while shared.fate(0) != Fate::Acked {
                publisher.turn().await.unwrap();
            }
            while shared.deliveries() == 0 {
                timeout(Duration::from_millis(20), reader.idle()).await.unwrap_err();
            }
            reader.start(shared.start());
            reader.finish().await
        };
        let relay = relay_sim::serve(listener, relay_sim::Config::default(), std::future::pending());
        let outcome = tokio::select! {
            played = timeout(Duration::from_secs(30), play) => played.expect("the event comes and counts"),
            _ = relay => unreachable!("it serves for ever"),
        };
        assert!(outcome.report.live[0].seen.contains(0));
        assert_eq!(outcome.traffic.received.messages, 1);
    }
}
