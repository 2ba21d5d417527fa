//! An agent's part in a run.

use std::{error::Error, pin::Pin, time::Duration};

use async_nats::{
    Subscriber,
    jetstream::{
        self,
        context::PublishErrorKind,
        kv::{CreateErrorKind, Store},
        message::PublishMessage,
    },
};
use bytes::Bytes;
use futures::StreamExt;
use measure::LiveCounts;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{self, timeout},
};

use super::{
    EXIT_HEADER, Names, NatsConnection, NatsError, Server, sleep_until, slot_key, spec_key, state_key,
};
use crate::{
    agent::{Agent, Ending, Left, Output, Policy},
    message::{Abort, Claim, Command, Facts, Ping, RunState, decode, encode},
    player::{Commanded, Player, now_ns},
    spec::{RunId, Spec},
};

/// Agents may be started before the server.
const SERVER_STARTS_WITHIN: Duration = Duration::from_secs(60);

/// Between two looks for a server or a run.
const LOOKS_EVERY: Duration = Duration::from_millis(250);

/// For the last answers when the agent leaves.
const FLUSHES_WITHIN: Duration = Duration::from_secs(1);

/// How often a record is published before the agent gives up; the stream keeps one.
const ATTEMPTS: u32 = 3;

/// The stream has a record under this subject: JetStream's error for `discard_new_per_subject`.
const SUBJECT_IS_FULL: u64 = 10_077;

/// Which slot of which run.
#[derive(Debug)]
pub struct Attendance {
    /// Where coordinator and agents meet.
    pub server: Server,
    /// The run; a spec of another is never read.
    pub run: RunId,
    /// The slot, from 0; that of the agent that starts relays is `of`.
    pub index: u16,
    /// How many agents this agent expects the run to have.
    pub of: u16,
    /// Bounds on what the agent does.
    pub policy: Policy,
}

/// An agent's part in a run, once it is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attended {
    /// How it ended.
    pub left: Left,
    /// How many messages of other runs, or of earlier starts of this one, were dropped.
    pub mismatched: u64,
}

type Playing<'a> = Pin<Box<dyn Future<Output = Result<Ending, String>> + Send + 'a>>;
type Publishing = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Waits for the run, claims the slot, and plays its blocks until the run ends. Stops the load when
/// the server or the coordinator is lost, or when `interrupt` completes.
///
/// # Errors
/// When the server cannot be reached or the run does not take this agent.
pub async fn attend<P: Player>(
    attendance: &Attendance,
    player: &P,
    interrupt: impl Future<Output = ()>,
) -> Result<Attended, NatsError> {
    let mut interrupt = Box::pin(interrupt);
    let (connection, names, claim) = tokio::select! {
        joined = join(attendance) => joined?,
        () = interrupt.as_mut() => return Err(NatsError::Interrupted),
    };
    let mut pings = subscribe(&connection, names.ping(attendance.index)).await?;
    let mut commands = subscribe(&connection, names.command(attendance.index)).await?;
    let mut aborts = subscribe(&connection, names.abort()).await?;
    let agent = Agent::new(&claim, attendance.policy.clone(), now_ns());
    let mut attendee = Attendee {
        attendance,
        player,
        connection: &connection,
        names,
        agent,
        playing: None,
        publishing: None,
        prepared: None,
        counts: None,
        tell: None,
        mismatched: 0,
    };
    let ends = connection.ends();
    tokio::pin!(ends);
    let (mut is_lost, mut is_interrupted) = (false, false);
    loop {
        tokio::select! {
            biased;
            error = ends.as_mut(), if !is_lost => {
                is_lost = true;
                attendee.agent.lost(now_ns(), error.to_string());
            }
            () = interrupt.as_mut(), if !is_interrupted => {
                is_interrupted = true;
                attendee.agent.lost(now_ns(), "interrupted".to_owned());
            }
            Some(message) = aborts.next(), if !is_lost => attendee.aborted(message),
            Some(message) = pings.next(), if !is_lost => attendee.pinged(message).await,
            Some(message) = commands.next(), if !is_lost => attendee.commanded(message).await,
            counts = next(&mut attendee.counts) => attendee.agent.counted(counts),
            ending = completed(&mut attendee.playing) => {
                attendee.playing = None;
                // The player's last counts are told with its end.
                if let Some(counts) = attendee.counts.take()
                    && counts.borrow().has_changed()
                {
                    attendee.agent.counted(*counts.borrow());
                }
                attendee.agent.ended(now_ns(), ending);
            }
            published = completed(&mut attendee.publishing) => {
                attendee.publishing = None;
                match published {
                    Ok(()) => attendee.agent.published(),
                    Err(reason) => attendee.agent.lost(now_ns(), reason),
                }
            }
            facts = completed(&mut attendee.prepared) => {
                attendee.prepared = None;
                // A player that goes without facts has ended, which says why.
                if let Ok(facts) = facts {
                    attendee.agent.prepared(facts);
                }
            }
            () = sleep_until(attendee.agent.wakes_ns()) => attendee.agent.tick(now_ns()),
        }
        if let Some(left) = attendee.obey().await {
            return Ok(Attended { left, mismatched: attendee.mismatched });
        }
    }
}

/// Completes when the future is there and completes.
async fn completed<F: Future + Unpin>(future: &mut Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// Waits for what the player counts next.
async fn next(counts: &mut Option<watch::Receiver<LiveCounts>>) -> LiveCounts {
    if let Some(counts) = counts
        && counts.changed().await.is_ok()
    {
        return *counts.borrow_and_update();
    }
    std::future::pending().await
}

async fn subscribe(connection: &NatsConnection, subject: String) -> Result<Subscriber, NatsError> {
    connection.client.subscribe(subject).await.map_err(|error| NatsError::server("subscribe")(error.into()))
}

/// Reaches the server, waits for the run and claims the slot.
async fn join(attendance: &Attendance) -> Result<(NatsConnection, Names, Claim), NatsError> {
    let Attendance { server, run, index, of, policy } = attendance;
    let is_slot = if policy.starts_relays { index == of } else { index < of };
    if !is_slot {
        return Err(NatsError::Refused(format!("there is no agent {index} of {of}: the first is 0")));
    }
    let connection = reach(server, &format!("agent {index} of {of}, run {run}")).await?;
    tracing::info!("waits for run {run}");
    let (names, claim) = tokio::select! {
        claimed = claim(&connection, attendance) => claimed?,
        error = connection.ends() => return Err(error),
    };
    Ok((connection, names, claim))
}

/// Waits for the run and claims the slot.
async fn claim(
    connection: &NatsConnection,
    Attendance { run, index, of, policy, .. }: &Attendance,
) -> Result<(Names, Claim), NatsError> {
    let (bucket, spec) = find(&connection.jetstream(), run).await?;
    if let Some(reason) = policy.refuses_run(&spec, *of) {
        return Err(NatsError::Refused(reason));
    }
    if spec.run != *run || !is_open(&bucket, run).await? {
        return Err(NatsError::Refused(format!("run {run} is no longer open: this agent is late")));
    }
    let claim = Claim { nonce: rand::random(), spec_sha256: spec.sha256() };
    let created = bucket.create(slot_key(run, *index), encode(&claim).into()).await;
    created.map_err(|error| match error.kind() {
        CreateErrorKind::AlreadyExists => {
            NatsError::Refused(format!("another agent {index} of run {run} holds the slot"))
        }
        _ => NatsError::server("claim a slot")(error.into()),
    })?;
    Ok((Names::new(&spec), claim))
}

/// Connects, and waits for a server that starts later.
pub(super) async fn reach(server: &Server, name: &str) -> Result<NatsConnection, NatsError> {
    let since = time::Instant::now();
    loop {
        match server.connect(name).await {
            Ok(connection) => return Ok(connection),
            Err(error @ NatsError::Connect { is_final: true, .. }) => return Err(error),
            Err(error) if since.elapsed() > SERVER_STARTS_WITHIN => return Err(error),
            Err(error) => tracing::debug!("{error}"),
        }
        time::sleep(LOOKS_EVERY).await;
    }
}

/// Looks until the bucket has the run's spec.
pub(super) async fn find(jetstream: &jetstream::Context, run: &RunId) -> Result<(Store, Spec), NatsError> {
    loop {
        if let Ok(bucket) = jetstream.get_key_value(super::BUCKET).await
            && let Ok(Some(bytes)) = bucket.get(spec_key(run)).await
        {
            let spec =
                decode(&bytes).map_err(|error| NatsError::Refused(format!("the run's spec: {error}")))?;
            return Ok((bucket, spec));
        }
        time::sleep(LOOKS_EVERY).await;
    }
}

async fn is_open(bucket: &Store, run: &RunId) -> Result<bool, NatsError> {
    let state = bucket.get(state_key(run)).await;
    let state = state.map_err(|error| NatsError::server("read the run's state")(error.into()))?;
    // Between spec and state the run opens.
    Ok(state.is_none_or(|bytes| matches!(decode(&bytes), Ok(RunState::Open))))
}

struct Attendee<'a, P> {
    attendance: &'a Attendance,
    player: &'a P,
    connection: &'a NatsConnection,
    names: Names,
    agent: Agent,
    playing: Option<Playing<'a>>,
    publishing: Option<Publishing>,
    prepared: Option<oneshot::Receiver<Facts>>,
    counts: Option<watch::Receiver<LiveCounts>>,
    tell: Option<mpsc::Sender<Commanded>>,
    mismatched: u64,
}

impl<P: Player> Attendee<'_, P> {
    async fn pinged(&mut self, message: async_nats::Message) {
        let arrived_ns = now_ns();
        let Some(message) = self.names.kept(message, &mut self.mismatched) else { return };
        if let Some(reply) = message.reply
            && let Ok(ping) = decode::<Ping>(&message.payload)
        {
            let mut pong = self.agent.ping(arrived_ns, ping);
            pong.left_ns = now_ns();
            self.answer(reply, encode(&pong)).await;
        }
    }

    async fn commanded(&mut self, message: async_nats::Message) {
        let Some(message) = self.names.kept(message, &mut self.mismatched) else { return };
        if let Some(reply) = message.reply
            && let Ok(command) = decode::<Command>(&message.payload)
        {
            let said = self.agent.command(now_ns(), command);
            self.answer(reply, encode(&said)).await;
        }
    }

    fn aborted(&mut self, message: async_nats::Message) {
        if let Some(message) = self.names.kept(message, &mut self.mismatched)
            && let Ok(Abort { reason }) = decode(&message.payload)
        {
            self.agent.aborted(now_ns(), reason);
        }
    }

    async fn answer(&mut self, reply: async_nats::Subject, answer: Vec<u8>) {
        // A connection that does not take it is lost, which ends the agent.
        let _ = self.connection.client.publish_with_headers(reply, self.names.headers(), answer.into()).await;
    }

    /// Does what the machine asks for.
    async fn obey(&mut self) -> Option<Left> {
        while let Some(output) = self.agent.next_output() {
            match output {
                Output::Prepare(block) => {
                    let (tell, told) = mpsc::channel(4);
                    let (says, prepared) = oneshot::channel();
                    let (counts, counted) = watch::channel(LiveCounts::default());
                    (self.tell, self.prepared, self.counts) = (Some(tell), Some(prepared), Some(counted));
                    let Attendance { index, of, .. } = *self.attendance;
                    self.playing = Some(Box::pin(self.player.play(block, index, of, told, says, counts)));
                }
                Output::Start { at_ns } => self.tell(Commanded::Start { at_ns }),
                Output::Stop => self.tell(Commanded::Stop),
                Output::Publish(key, ending) => {
                    let subject = self.names.result(key, self.attendance.index);
                    let publishing =
                        publish(self.connection.jetstream(), self.names.clone(), subject, ending);
                    self.publishing = Some(Box::pin(publishing));
                }
                Output::Leave(left) => {
                    // The answer to the last command.
                    let _ = timeout(FLUSHES_WITHIN, self.connection.client.flush()).await;
                    return Some(left);
                }
            }
        }
        None
    }

    fn tell(&self, commanded: Commanded) {
        if let Some(tell) = &self.tell {
            // A block has one start and one stop; a player that ended hears neither.
            let _ = tell.try_send(commanded);
        }
    }
}

/// Publishes a record until the stream has it, once.
async fn publish(
    jetstream: jetstream::Context,
    names: Names,
    subject: String,
    ending: Ending,
) -> Result<(), String> {
    let mut headers = names.headers();
    if let Some(code) = ending.exit_code {
        headers.insert(EXIT_HEADER, code.to_string().as_str());
    }
    let record = Bytes::from(ending.record);
    let id = format!("{}:{subject}", names.header);
    let mut reason = String::new();
    for _ in 0..ATTEMPTS {
        let message = PublishMessage::build().payload(record.clone()).headers(headers.clone());
        let message = message.message_id(&id).expected_last_subject_sequence(0);
        let sent = match jetstream.send_publish(subject.clone(), message).await {
            Ok(sent) => sent.await,
            Err(error) => Err(error),
        };
        match sent {
            Ok(_) => return Ok(()),
            // It has the record of an attempt whose acknowledgement was lost.
            Err(error) if error.kind() == PublishErrorKind::WrongLastSequence || is_full(&error) => {
                return Ok(());
            }
            Err(error) => reason = error.to_string(),
        }
    }
    Err(format!("the stream does not take the record: {reason}"))
}

fn is_full(error: &(dyn Error + 'static)) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref::<jetstream::Error>());
    source.is_some_and(|error| error.error_code().0 == SUBJECT_IS_FULL)
}
