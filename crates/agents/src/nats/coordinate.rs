//! The coordinator of a run, in a thread of its own, so that pings go on whatever its caller does.

use std::{io, path::PathBuf, pin::Pin, thread, time::Duration};

use async_nats::{
    HeaderMap, Request,
    client::RequestErrorKind,
    jetstream::{
        self,
        kv::{self, CreateErrorKind, Store, Watch},
        stream::{self, DiscardPolicy, StorageType, Stream},
    },
};
use futures::{StreamExt, stream::FuturesUnordered};
use measure::ClockRecord;
use tokio::{
    runtime,
    sync::{mpsc, oneshot, watch},
    task, time,
};

use super::{
    ANSWERS_WITHIN, BUCKET, EXIT_HEADER, KEPT, Names, NatsConnection, NatsError, RESULT_BYTES, RESULTS,
    STREAM, Server, files::EventsFile, sleep_until, spec_key, state_key,
};
use crate::{
    agent::Ending,
    coordinator::{Coordinator, Order},
    message::{Abort, Command, MESSAGE_BYTES, Ping, Pong, RECORD_BYTES, Reply, RunState, decode, encode},
    overview::Overview,
    player::now_ns,
    spec::{Block, BlockKey, Spec},
    times::{PARTIAL_NS, SILENCE_NS},
};

/// Time for the run's last messages to leave.
const LEAVES_WITHIN: Duration = Duration::from_secs(2);

/// Between two overviews of one state.
const SHOWS_EVERY_NS: u64 = 250_000_000;

/// For a record of a block that was aborted: it is there, or it never comes.
const PARTIAL_WITHIN: Duration = Duration::from_millis(500);

/// The wait for a bucket or a stream that another process is making.
const MADE_MEANWHILE: Duration = Duration::from_millis(100);

/// A block that was not played to its end, and with it the run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Aborted {
    /// Why.
    pub reason: String,
}

/// A record of a block that an agent published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// The agent.
    pub index: u16,
    /// How its player ended, with the record.
    pub ending: Ending,
    /// Whether the block was aborted, so that there may be none of others.
    pub is_partial: bool,
}

enum Ask {
    Ready(oneshot::Sender<Result<(), Aborted>>),
    Play(Box<Block>, BlockAnswer),
    Abort(String),
    Finish,
}

/// Who waits for a block: for its records, and for its end.
struct BlockAnswer {
    records: mpsc::Sender<Arrival>,
    end: oneshot::Sender<Result<Vec<ClockRecord>, Aborted>>,
}

/// A run that is open. When it is dropped the run ends.
#[derive(Debug)]
pub struct Run {
    asks: mpsc::UnboundedSender<Ask>,
    overview: watch::Sender<Overview>,
    thread: Option<thread::JoinHandle<u64>>,
}

impl Run {
    /// Waits until every slot is claimed.
    ///
    /// # Errors
    /// When agents are missing, or one is lost.
    pub async fn ready(&self) -> Result<(), Aborted> {
        self.ask(Ask::Ready).await
    }

    /// Has the agents play a block together. Their records go to `take` one by one, and are not
    /// held here: those of all agents in order, of which that of the relay's is the last, then the
    /// agents' clocks are returned; or, of a block that was aborted, those that agents published
    /// nevertheless.
    ///
    /// # Errors
    /// When the run ends before the block does. Every later block fails, too.
    pub async fn play(
        &self,
        block: Block,
        mut take: impl FnMut(Arrival),
    ) -> Result<Vec<ClockRecord>, Aborted> {
        let (records, mut arriving) = mpsc::channel(1);
        let playing = self.ask(|end| Ask::Play(Box::new(block), BlockAnswer { records, end }));
        tokio::pin!(playing);
        let ended = loop {
            tokio::select! {
                Some(arrival) = arriving.recv() => take(arrival),
                ended = playing.as_mut() => break ended,
            }
        };
        while let Some(arrival) = arriving.recv().await {
            take(arrival);
        }
        ended
    }

    /// The run as it is at any time, for who watches. Costs nothing while nobody does.
    pub fn overview(&self) -> watch::Receiver<Overview> {
        self.overview.subscribe()
    }

    /// Ends the run early; a block under way fails.
    pub fn abort(&self, reason: String) {
        // A thread that has ended has ended the run.
        let _ = self.asks.send(Ask::Abort(reason));
    }

    /// Ends the run and lets the agents go. Returns how many messages of other runs were dropped.
    pub fn finish(mut self) -> u64 {
        self.end()
    }

    fn end(&mut self) -> u64 {
        let _ = self.asks.send(Ask::Finish);
        self.thread.take().map_or(0, |thread| thread.join().unwrap_or(0))
    }

    async fn ask<T>(
        &self,
        ask: impl FnOnce(oneshot::Sender<Result<T, Aborted>>) -> Ask,
    ) -> Result<T, Aborted> {
        let (answer, answered) = oneshot::channel();
        let ended = || Aborted { reason: "the coordinator has ended".to_owned() };
        self.asks.send(ask(answer)).map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.end();
    }
}

/// Opens a run: stores the file of its events, if there is one, writes its spec and waits for its
/// agents, in a thread of its own.
///
/// # Errors
/// When the server cannot be reached, has no JetStream, or knows a run of this name.
pub async fn coordinate(server: Server, spec: Spec, events: Option<PathBuf>) -> Result<Run, NatsError> {
    let (asks, asked) = mpsc::unbounded_channel();
    let (opened, opens) = oneshot::channel();
    let (overview, _) = watch::channel(Overview::open(spec.of));
    let shows = overview.clone();
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error: io::Error| NatsError::server("start")(error.into()))?;
    let thread = thread::Builder::new().name("coordinator".to_owned()).spawn(move || {
        runtime.block_on(async move {
            match Desk::open(&server, spec, events, shows).await {
                Ok(desk) => {
                    // Without a receiver nobody waits for the run, and `asked` is closed.
                    let _ = opened.send(Ok(()));
                    desk.serve(asked).await
                }
                Err(error) => {
                    let _ = opened.send(Err(error));
                    0
                }
            }
        })
    });
    let thread = thread.map_err(|error| NatsError::server("start")(error.into()))?;
    opens.await.unwrap_or(Err(NatsError::Lost))?;
    Ok(Run { asks, overview, thread: Some(thread) })
}

/// Outcome of a request.
enum Answer {
    Pong { index: u16, sent_ns: u64, received_ns: u64, pong: Pong },
    Reply { index: u16, command: Command, reply: Reply },
    Unanswered { index: u16, why: Unanswered },
    Record { index: u16, record: Result<(), String> },
    UnansweredCommand { index: u16, why: Unanswered },
    Forgotten,
}

/// Why a request has no answer of its agent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unanswered {
    /// Nobody listens, as the server says.
    Unheard,
    /// An answer of another run.
    Mismatched,
    /// Nothing came, or nothing that can be read.
    Silence,
}

type PendingAnswer = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// Who waits for what.
#[derive(Default)]
struct Waiting {
    ready: Option<oneshot::Sender<Result<(), Aborted>>>,
    play: Option<BlockAnswer>,
}

struct Desk {
    connection: NatsConnection,
    names: Names,
    bucket: Store,
    stream: Stream,
    events: Option<EventsFile>,
    claims: Watch,
    coordinator: Coordinator,
    requests: FuturesUnordered<PendingAnswer>,
    states: mpsc::UnboundedSender<RunState>,
    writer: task::JoinHandle<()>,
    waiting: Waiting,
    slots: u16,
    /// The block under way or last played.
    block: Option<BlockKey>,
    overview: watch::Sender<Overview>,
    shown_ns: u64,
    mismatched: u64,
}

impl Desk {
    async fn open(
        server: &Server,
        spec: Spec,
        events: Option<PathBuf>,
        overview: watch::Sender<Overview>,
    ) -> Result<Desk, NatsError> {
        let connection = server.connect(&format!("coordinator, run {}", spec.run)).await?;
        let ends = connection.ends();
        tokio::select! {
            desk = Desk::open_over(connection, spec, events, overview) => desk,
            error = ends => Err(error),
        }
    }

    async fn open_over(
        connection: NatsConnection,
        spec: Spec,
        events: Option<PathBuf>,
        overview: watch::Sender<Overview>,
    ) -> Result<Desk, NatsError> {
        let jetstream = connection.jetstream();
        let bucket = bucket(&jetstream).await?;
        let stream = records(&jetstream).await?;
        let names = Names::new(&spec);
        // Before the spec: who finds that finds the events.
        let events = match events {
            Some(file) => Some(EventsFile::put(&jetstream, &names, &file).await?),
            None => None,
        };
        if let Err(error) = bucket.create(spec_key(&spec.run), encode(&spec).into()).await {
            if let Some(events) = events {
                events.remove().await;
            }
            return Err(match error.kind() {
                CreateErrorKind::AlreadyExists => NatsError::Taken(spec.run),
                _ => NatsError::server("write the run's spec")(error.into()),
            });
        }
        // Records that a late agent of an earlier start published.
        forget_records(&stream, names.results(None)).await?;
        let claims = bucket.watch_with_history(format!("{}.slot.*", spec.run)).await;
        let claims = claims.map_err(|error| NatsError::server("watch claims")(error.into()))?;
        let (states, writer) = write_states(bucket.clone(), state_key(&spec.run));
        Ok(Desk {
            connection,
            names,
            bucket,
            stream,
            events,
            claims,
            slots: spec.slots(),
            coordinator: Coordinator::new(spec, now_ns()),
            requests: FuturesUnordered::new(),
            states,
            writer,
            waiting: Waiting::default(),
            block: None,
            overview,
            shown_ns: 0,
            mismatched: 0,
        })
    }

    /// Coordinates until the caller is done with the run. Returns how many messages of other runs
    /// were dropped.
    async fn serve(mut self, mut asks: mpsc::UnboundedReceiver<Ask>) -> u64 {
        let ends = self.connection.ends();
        tokio::pin!(ends);
        let (mut has_ended, mut is_lost) = (false, false);
        loop {
            self.obey().await;
            self.show();
            self.answer(is_lost).await;
            let is_over = self.coordinator.aborted().is_some();
            tokio::select! {
                error = ends.as_mut(), if !has_ended => {
                    has_ended = true;
                    is_lost = matches!(error, NatsError::Lost);
                    self.coordinator.abort(error.to_string());
                }
                ask = asks.recv() => match ask {
                    Some(Ask::Ready(answer)) => self.waiting.ready = Some(answer),
                    Some(Ask::Play(block, answer)) => self.play(&block, answer),
                    Some(Ask::Abort(reason)) => self.coordinator.abort(reason),
                    Some(Ask::Finish) | None => break,
                },
                Some(entry) = self.claims.next(), if !is_over => self.claimed(entry),
                Some(answer) = self.requests.next() => self.answered(answer),
                () = sleep_until(self.coordinator.wakes_ns()), if !is_over => self.coordinator.tick(now_ns()),
            }
        }
        self.end(is_lost).await
    }

    /// Shows who watches how the run is.
    fn show(&mut self) {
        let now_ns = now_ns();
        let is_new = self.overview.borrow().state != *self.coordinator.state();
        let is_due = now_ns >= self.shown_ns.saturating_add(SHOWS_EVERY_NS);
        if self.overview.receiver_count() > 0 && (is_new || is_due) {
            self.overview.send_replace(self.coordinator.overview(now_ns));
            self.shown_ns = now_ns;
        }
    }

    fn play(&mut self, block: &Block, answer: BlockAnswer) {
        if self.coordinator.aborted().is_none() {
            match self.coordinator.play(now_ns(), block) {
                Ok(()) => {
                    let last = self.block.replace(block.key()).map(|last| self.forget(last));
                    self.requests.extend(last);
                }
                Err(error) => self.coordinator.abort(error.to_string()),
            }
        }
        self.waiting.play = Some(answer);
    }

    fn claimed(&mut self, entry: Result<kv::Entry, kv::WatcherError>) {
        let Ok(entry) = entry else { return };
        let index = entry.key.rsplit('.').next().and_then(|index| index.parse().ok());
        let claim = (entry.operation == kv::Operation::Put).then(|| decode(&entry.value));
        if let (Some(index), Some(Ok(claim))) = (index, claim)
            && let Err(reason) = self.coordinator.claimed(now_ns(), index, &claim)
        {
            tracing::warn!("{reason}");
        }
    }

    fn answered(&mut self, answer: Answer) {
        let coordinator = &mut self.coordinator;
        match answer {
            Answer::Pong { index, sent_ns, received_ns, pong } => {
                coordinator.ponged(sent_ns, received_ns, index, pong);
            }
            Answer::Reply { index, command, reply } => coordinator.replied(now_ns(), index, &command, reply),
            Answer::Unanswered { index, why } => {
                self.mismatched += u64::from(why == Unanswered::Mismatched);
                coordinator.unanswered(now_ns(), index, why == Unanswered::Unheard);
            }
            Answer::Record { index, record } => coordinator.fetched(now_ns(), index, record),
            Answer::UnansweredCommand { index, why } => {
                self.mismatched += u64::from(why == Unanswered::Mismatched);
                coordinator.unanswered_command(index);
            }
            Answer::Forgotten => {}
        }
    }

    /// Does what the machine orders.
    async fn obey(&mut self) {
        while let Some(order) = self.coordinator.next_order() {
            match order {
                Order::State(state) => {
                    tracing::debug!("run {}: {state:?}", self.names.run);
                    // The writer lives as long as this sender.
                    let _ = self.states.send(state);
                }
                Order::Ping { index, seq } => self.requests.push(self.ping(index, seq)),
                Order::Command { index, command } => self.requests.push(self.command(index, command)),
                Order::Fetch { index, key } => {
                    let (stream, names) = (self.stream.clone(), self.names.clone());
                    let records = self.waiting.play.as_ref().map(|answer| answer.records.clone());
                    self.requests.push(Box::pin(async move {
                        let fetched = fetch(&stream, &names, key, index).await;
                        let record = match fetched {
                            Ok(ending) => {
                                pass_on(records.as_ref(), Arrival { index, ending, is_partial: false }).await;
                                Ok(())
                            }
                            Err(reason) => Err(reason),
                        };
                        Answer::Record { index, record }
                    }));
                }
                Order::Abort { reason } => {
                    self.requests.clear();
                    let abort = encode(&Abort { reason }).into();
                    let sent = self.connection.client.publish_with_headers(
                        self.names.abort(),
                        self.names.headers(),
                        abort,
                    );
                    // Agents that do not hear it miss the pings.
                    let _ = time::timeout(LEAVES_WITHIN, sent).await;
                }
            }
        }
    }

    fn ping(&self, index: u16, seq: u64) -> PendingAnswer {
        let (client, names) = (self.connection.client.clone(), self.names.clone());
        let subject = names.ping(index);
        Box::pin(async move {
            let sent_ns = now_ns();
            let answer = client.send_request(subject, request(&names, &Ping { seq })).await;
            let received_ns = now_ns();
            told(&names, index, answer, |pong| Answer::Pong { index, sent_ns, received_ns, pong })
        })
    }

    fn command(&self, index: u16, command: Command) -> PendingAnswer {
        let (client, names) = (self.connection.client.clone(), self.names.clone());
        let subject = names.command(index);
        Box::pin(async move {
            let answer = client.send_request(subject, request(&names, &command)).await;
            match told(&names, index, answer, |reply| Answer::Reply { index, command, reply }) {
                Answer::Unanswered { why, .. } => Answer::UnansweredCommand { index, why },
                answer => answer,
            }
        })
    }

    /// Has the server forget the records of a block that was played: it holds them in memory.
    fn forget(&self, key: BlockKey) -> PendingAnswer {
        let (stream, subjects) = (self.stream.clone(), self.names.results(Some(key)));
        Box::pin(async move {
            if let Err(error) = forget_records(&stream, subjects).await {
                tracing::warn!("{error}");
            }
            Answer::Forgotten
        })
    }

    /// Answers who waits for what has come.
    async fn answer(&mut self, is_lost: bool) {
        if let Some(reason) = self.coordinator.aborted().map(str::to_owned) {
            if let Some(ready) = self.waiting.ready.take() {
                let _ = ready.send(Err(Aborted { reason: reason.clone() }));
            }
            if let Some(answer) = self.waiting.play.take() {
                if !is_lost {
                    self.partial(&answer.records).await;
                }
                let _ = answer.end.send(Err(Aborted { reason }));
            }
        } else if self.coordinator.is_ready() {
            if let Some(ready) = self.waiting.ready.take() {
                let _ = ready.send(Ok(()));
            }
            if self.waiting.play.is_some()
                && let Some(clocks) = self.coordinator.clocks()
                && let Some(answer) = self.waiting.play.take()
            {
                let _ = answer.end.send(Ok(clocks));
            }
        }
    }

    /// Passes on what agents published of the block that was aborted, once they have had their time
    /// to stop and to publish.
    async fn partial(&self, records: &mpsc::Sender<Arrival>) {
        let Some(key) = self.block else { return };
        time::sleep(Duration::from_nanos(PARTIAL_NS)).await;
        for index in 0..self.slots {
            let record = fetch(&self.stream, &self.names, key, index);
            match time::timeout(PARTIAL_WITHIN, record).await {
                Ok(Ok(ending)) => pass_on(Some(records), Arrival { index, ending, is_partial: true }).await,
                Ok(Err(_)) => {}
                // A server that does not answer has no record of the others, either.
                Err(_) => break,
            }
        }
    }

    /// Lets the agents go and forgets the run. Returns how many messages of other runs were
    /// dropped.
    async fn end(mut self, is_lost: bool) -> u64 {
        if is_lost {
            return self.mismatched;
        }
        if self.coordinator.is_ready() {
            self.coordinator.finish();
        } else {
            self.coordinator.abort("the coordinator was stopped".to_owned());
        }
        self.obey().await;
        let leave = async { while self.requests.next().await.is_some() {} };
        // An agent that does not hear it misses the pings.
        let _ = time::timeout(LEAVES_WITHIN, leave).await;
        drop(self.states);
        let _ = time::timeout(LEAVES_WITHIN, self.writer).await;
        let keys = format!("{}{}.>", self.bucket.prefix, self.names.run);
        let _ = time::timeout(LEAVES_WITHIN, self.bucket.stream.purge().filter(keys)).await;
        let _ = time::timeout(LEAVES_WITHIN, forget_records(&self.stream, self.names.results(None))).await;
        if let Some(events) = self.events {
            let _ = time::timeout(LEAVES_WITHIN, events.remove()).await;
        }
        let _ = time::timeout(LEAVES_WITHIN, self.connection.client.flush()).await;
        self.mismatched
    }
}

/// Waits until there is room for a record.
async fn pass_on(records: Option<&mpsc::Sender<Arrival>>, arrival: Arrival) {
    if let Some(records) = records {
        // Who no longer waits for the block needs no record of it.
        let _ = records.send(arrival).await;
    }
}

fn request(names: &Names, message: &impl serde::Serialize) -> Request {
    let timeout = Duration::from_nanos(SILENCE_NS);
    Request::new().payload(encode(message).into()).headers(names.headers()).timeout(Some(timeout))
}

/// Reads an answer of this run.
fn told<T: serde::de::DeserializeOwned>(
    names: &Names,
    index: u16,
    answer: Result<async_nats::Message, async_nats::RequestError>,
    is: impl FnOnce(T) -> Answer,
) -> Answer {
    let why = match answer {
        Ok(message) if !names.own(message.headers.as_ref()) => Unanswered::Mismatched,
        Ok(message) => match decode(&message.payload) {
            Ok(told) => return is(told),
            Err(_) => Unanswered::Silence,
        },
        Err(error) if error.kind() == RequestErrorKind::NoResponders => Unanswered::Unheard,
        Err(_) => Unanswered::Silence,
    };
    Answer::Unanswered { index, why }
}

/// Opens the bucket, and makes it first on a server that has none.
async fn bucket(jetstream: &jetstream::Context) -> Result<Store, NatsError> {
    if let Ok(bucket) = jetstream.get_key_value(BUCKET).await {
        return Ok(bucket);
    }
    // A bucket is a stream of this shape (ADR-8 of NATS). `create_key_value` of async-nats 0.51
    // asks for the account first, and does not read what a server before 2.10 answers.
    let config = stream::Config {
        name: format!("KV_{BUCKET}"),
        description: Some("Specs, claims and states of runs".to_owned()),
        subjects: vec![format!("$KV.{BUCKET}.>")],
        max_messages_per_subject: 1,
        max_message_size: i32::try_from(MESSAGE_BYTES).expect("256 KiB"),
        max_age: KEPT,
        storage: StorageType::Memory,
        discard: DiscardPolicy::New,
        allow_rollup: true,
        deny_delete: true,
        allow_direct: true,
        num_replicas: 1,
        ..stream::Config::default()
    };
    let Err(unmade) = jetstream.create_stream(config).await else {
        let bucket = jetstream.get_key_value(BUCKET).await;
        return bucket.map_err(|error| NatsError::server("open the bucket")(error.into()));
    };
    // Of those who make it at once, the server may tell all but one that its subjects overlap.
    time::sleep(MADE_MEANWHILE).await;
    let bucket = jetstream.get_key_value(BUCKET).await;
    bucket.map_err(|_| NatsError::server("make a bucket (does it run with -js?)")(unmade.into()))
}

async fn records(jetstream: &jetstream::Context) -> Result<Stream, NatsError> {
    let config = stream::Config {
        name: STREAM.to_owned(),
        description: Some("Records of runs, one for each block and agent".to_owned()),
        subjects: vec![RESULTS.to_owned()],
        max_messages_per_subject: 1,
        discard: DiscardPolicy::New,
        discard_new_per_subject: true,
        max_message_size: i32::try_from(RESULT_BYTES).expect("below 1 MiB"),
        max_age: KEPT,
        storage: StorageType::Memory,
        num_replicas: 1,
        ..stream::Config::default()
    };
    let unmade = match jetstream.get_or_create_stream(config).await {
        Ok(made) => return Ok(made),
        Err(error) => error,
    };
    // Another process may have made it meanwhile, as a bucket.
    time::sleep(MADE_MEANWHILE).await;
    let made = jetstream.get_stream(STREAM).await;
    made.map_err(|_| NatsError::server("make a stream")(unmade.into()))
}

async fn forget_records(stream: &Stream, subjects: String) -> Result<(), NatsError> {
    let purged = time::timeout(ANSWERS_WITHIN, stream.purge().filter(subjects)).await;
    let failed = NatsError::server("forget old records");
    match purged {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(failed(error.into())),
        Err(late) => Err(failed(late.into())),
    }
}

/// Writes states in order, beside everything else.
fn write_states(bucket: Store, key: String) -> (mpsc::UnboundedSender<RunState>, task::JoinHandle<()>) {
    let (states, mut written) = mpsc::unbounded_channel();
    let writer = tokio::spawn(async move {
        while let Some(state) = written.recv().await {
            if let Err(error) = bucket.put(&key, encode(&state).into()).await {
                tracing::debug!("the run's state: {error}");
            }
        }
    });
    (states, writer)
}

/// The record of a block at an agent.
async fn fetch(stream: &Stream, names: &Names, key: BlockKey, index: u16) -> Result<Ending, String> {
    let found = stream.get_last_raw_message_by_subject(&names.result(key, index)).await;
    let message = found.map_err(|error| error.to_string())?;
    if !names.own(Some(&message.headers)) {
        return Err("it is of another start of this run".to_owned());
    }
    if message.payload.len() > RECORD_BYTES {
        return Err(format!("it has {} bytes, over {RECORD_BYTES}", message.payload.len()));
    }
    Ok(Ending { exit_code: exit_code(&message.headers)?, record: message.payload.to_vec() })
}

fn exit_code(headers: &HeaderMap) -> Result<Option<i32>, String> {
    let code = headers.get(EXIT_HEADER).map(|code| code.as_str().parse());
    code.transpose().map_err(|_| format!("its {EXIT_HEADER} is no number"))
}
