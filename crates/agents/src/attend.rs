//! An agent's part in a run.

use std::pin::Pin;

use async_nats::{HeaderMap, Message, RequestErrorKind, Subject, Subscriber};
use futures::StreamExt;
use tokio::{
    sync::mpsc,
    time::{self, timeout},
};

use crate::{
    coordinate::{BLOCK_HEADER, EXIT_HEADER},
    message::{Ask, Claim, Facts, Opened, Phase, Status, bounded, decode, encode},
    player::{Commanded, Ending, Player, Said, now_ns},
    policy::Policy,
    server::{NatsConnection, NatsError, Server, reach},
    spec::{Block, BlockKey, RunId},
    times::{FETCH, FIRST_PING, FURTHEST_START, LEAST_WAIT, LOOK, SILENCE, STOP, ns},
};
use measure::LiveCounts;

/// What a player says that its agent has not read yet.
const WAITING: usize = 16;

/// Which slot of which run.
#[derive(Debug)]
pub struct Attendance {
    /// Where coordinator and agents meet.
    pub server: Server,
    /// The run.
    pub run: RunId,
    /// The slot, from 0; that of the agent that starts relays is `of`.
    pub index: u16,
    /// How many agents this agent expects the run to have.
    pub of: u16,
    /// Bounds on what the agent does.
    pub policy: Policy,
}

/// How an agent's part in a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Left {
    /// The run is over.
    Finished,
    /// The run ended early.
    Stopped {
        /// Why.
        reason: String,
        /// A record that the coordinator did not fetch, and its block.
        unpublished: Option<(BlockKey, Ending)>,
    },
}

/// Waits for the run, claims the slot, and plays its blocks until the run ends. Stops the load when
/// the server or the coordinator is lost, or when `interrupt` completes.
///
/// # Errors
/// When the server cannot be reached or the run does not take this agent.
pub async fn attend<P: Player>(
    attendance: &Attendance,
    player: &P,
    interrupt: impl Future<Output = ()>,
) -> Result<Left, NatsError> {
    tokio::pin!(interrupt);
    let (connection, mut asks) = tokio::select! {
        joined = join(attendance) => joined?,
        () = interrupt.as_mut() => return Err(NatsError::Interrupted),
    };
    let ends = connection.ends();
    tokio::pin!(ends);
    let mut agent = Agent {
        attendance,
        player,
        connection: &connection,
        phase: Phase::Claimed,
        block: None,
        facts: None,
        counts: None,
        start_ns: 0,
        playing: None,
        record: None,
        heard_ns: now_ns(),
        deaf_after_ns: ns(FIRST_PING),
        stopping: None,
    };
    let mut is_alone = false;
    loop {
        let wakes_ns = agent.wakes_ns();
        tokio::select! {
            biased;
            error = ends.as_mut(), if !is_alone => {
                is_alone = true;
                agent.lost(error.to_string());
            }
            () = interrupt.as_mut(), if !is_alone => {
                is_alone = true;
                agent.lost("interrupted".to_owned());
            }
            Some(message) = asks.next(), if !is_alone => agent.asked(message).await,
            said = said(&mut agent.playing) => match said {
                Heard::Said(said) => agent.hears(said),
                Heard::Ended(ending) => agent.ended(ending),
            },
            () = sleep_until(wakes_ns) => {}
        }
        if let Some(left) = agent.settle().await {
            // The last answer. A server that is lost takes none.
            let _ = timeout(FETCH, connection.client.flush()).await;
            return Ok(left);
        }
    }
}

/// Sleeps until this machine's monotonic clock shows `at_ns`.
async fn sleep_until(at_ns: u64) {
    time::sleep(time::Duration::from_nanos(at_ns.saturating_sub(now_ns()))).await;
}

/// Reaches the server, waits for the run and claims the slot.
async fn join(attendance: &Attendance) -> Result<(NatsConnection, Subscriber), NatsError> {
    let Attendance { server, run, index, of, policy } = attendance;
    let is_slot = if policy.starts_relays { index == of } else { index < of };
    if !is_slot {
        return Err(NatsError::Refused(format!("there is no agent {index} of {of}: the first is 0")));
    }
    let connection = reach(server, &format!("agent {index} of {of}, run {run}")).await?;
    let ends = connection.ends();
    let asks = tokio::select! {
        claimed = claim(&connection, attendance) => claimed?,
        error = ends => return Err(error),
    };
    Ok((connection, asks))
}

async fn claim(connection: &NatsConnection, attendance: &Attendance) -> Result<Subscriber, NatsError> {
    let Attendance { run, index, of, policy, .. } = attendance;
    let Opened { spec, .. } = find(connection, run).await?;
    if let Some(reason) = policy.refuses_run(&spec, *of) {
        return Err(NatsError::Refused(reason));
    }
    let claim = encode(&Claim { nonce: rand::random() });
    let answer = connection.client.request(spec.claim(index), claim.into()).await;
    let answer = answer.map_err(|error| NatsError::server("claim a slot", &error))?;
    let given: Option<Result<(), String>> = decode(&answer.payload);
    given.unwrap_or_else(|| Err("no answer to a claim".to_owned())).map_err(NatsError::Refused)?;
    connection.subscribe(spec.agent(*index)).await
}

/// Looks until the run is there.
pub(crate) async fn find(connection: &NatsConnection, run: &RunId) -> Result<Opened, NatsError> {
    loop {
        match connection.client.request(run.look(), "".into()).await {
            Ok(answer) => {
                let none = || NatsError::Refused("the run's spec is none of this program".to_owned());
                return decode(&answer.payload).ok_or_else(none);
            }
            Err(error)
                if matches!(error.kind(), RequestErrorKind::NoResponders | RequestErrorKind::TimedOut) => {}
            Err(error) => return Err(NatsError::server("look for the run", &error)),
        }
        time::sleep(LOOK).await;
    }
}

/// A block's player.
struct Playing<'a> {
    ending: Pin<Box<dyn Future<Output = Result<Ending, String>> + Send + 'a>>,
    says: mpsc::Receiver<Said>,
    tell: mpsc::Sender<Commanded>,
}

enum Heard {
    Said(Said),
    Ended(Result<Ending, String>),
}

async fn said(playing: &mut Option<Playing<'_>>) -> Heard {
    let Some(Playing { ending, says, .. }) = playing else { return std::future::pending().await };
    tokio::select! {
        biased;
        Some(said) = says.recv() => Heard::Said(said),
        ending = ending.as_mut() => Heard::Ended(ending),
    }
}

/// What a player has left of a block.
struct Record {
    key: BlockKey,
    ending: Ending,
    is_fetched: bool,
}

struct Stopping {
    reason: String,
    /// Whether no coordinator is left to fetch a record.
    is_alone: bool,
    /// Where the coordinator waits for the record.
    reply: Option<Subject>,
    by_ns: u64,
}

struct Agent<'a, P> {
    attendance: &'a Attendance,
    player: &'a P,
    connection: &'a NatsConnection,
    phase: Phase,
    block: Option<BlockKey>,
    facts: Option<Facts>,
    /// Counts of the player that are still to be told.
    counts: Option<Box<LiveCounts>>,
    start_ns: u64,
    playing: Option<Playing<'a>>,
    record: Option<Record>,
    heard_ns: u64,
    deaf_after_ns: u64,
    stopping: Option<Stopping>,
}

impl<P: Player> Agent<'_, P> {
    /// Answers the coordinator, who asks one thing after the other.
    async fn asked(&mut self, message: Message) {
        let arrived_ns = now_ns();
        let (Some(reply), Some(ask)) = (message.reply, decode::<Ask>(&message.payload)) else { return };
        (self.heard_ns, self.deaf_after_ns) = (arrived_ns, ns(SILENCE));
        self.tick(arrived_ns);
        let refusal = match ask {
            Ask::Ping => None,
            _ if self.stopping.is_some() && !matches!(ask, Ask::Leave { .. }) => None,
            Ask::Prepare(block) => self.prepare(block),
            Ask::Start { at_ns } => self.start(arrived_ns, at_ns),
            Ask::StopRelay if self.phase == Phase::Running && self.attendance.policy.starts_relays => {
                self.tell(Commanded::Stop);
                None
            }
            Ask::StopRelay => Some("no relay of this agent is played against".to_owned()),
            Ask::Record => return self.send_record(reply).await,
            Ask::Leave { aborted } => {
                self.stop(aborted.unwrap_or_default(), false);
                self.stopping.iter_mut().for_each(|stopping| stopping.reply = Some(reply.clone()));
                return;
            }
        };
        if let Some(reason) = refusal {
            self.stop(reason, false);
        }
        let status = Status {
            arrived_ns,
            left_ns: now_ns(),
            block: self.block,
            phase: self.phase,
            facts: self.facts.clone(),
            failure: self.stopping.as_ref().map(|stopping| stopping.reason.clone()),
            counts: self.counts.take(),
        };
        self.send(reply, HeaderMap::new(), encode(&status)).await;
    }

    async fn send(&mut self, reply: Subject, headers: HeaderMap, answer: Vec<u8>) {
        // A connection that does not take it is lost, which ends the agent.
        let _ = self.connection.client.publish_with_headers(reply, headers, answer.into()).await;
    }

    /// Sends the record, or that there is none.
    async fn send_record(&mut self, reply: Subject) {
        let mut headers = HeaderMap::new();
        let mut answer = Vec::new();
        if let Some(Record { key, ending, is_fetched }) = &mut self.record {
            headers.insert(BLOCK_HEADER, key.to_string().as_str());
            if let Some(code) = ending.exit_code {
                headers.insert(EXIT_HEADER, code.to_string().as_str());
            }
            answer.clone_from(&ending.record);
            *is_fetched = true;
        }
        self.send(reply, headers, answer).await;
    }

    fn prepare(&mut self, block: Box<Block>) -> Option<String> {
        if self.playing.is_some() || !matches!(self.phase, Phase::Claimed | Phase::Drained) {
            return Some("a block is under way".to_owned());
        }
        let key = block.key();
        if Some(key) <= self.block {
            return Some("the block was played before".to_owned());
        }
        if let Some(reason) = self.attendance.policy.refuses(&block) {
            return Some(reason);
        }
        let Attendance { index, of, .. } = *self.attendance;
        let (tell, told) = mpsc::channel(4);
        let (says, said) = mpsc::channel(WAITING);
        let ending = Box::pin(self.player.play(block, index, of, told, says));
        self.playing = Some(Playing { ending, says: said, tell });
        (self.phase, self.block, self.facts) = (Phase::Preparing, Some(key), None);
        (self.counts, self.record) = (None, None);
        None
    }

    fn start(&mut self, now_ns: u64, at_ns: u64) -> Option<String> {
        if self.phase != Phase::Prepared {
            return Some("no block is prepared".to_owned());
        }
        let wait_ns = at_ns.saturating_sub(now_ns);
        if !(ns(LEAST_WAIT)..=ns(FURTHEST_START)).contains(&wait_ns) {
            return Some(format!("the start is {} ms ahead: too late, or too far", wait_ns / 1_000_000));
        }
        (self.phase, self.start_ns) = (Phase::Armed, at_ns);
        self.tell(Commanded::Start { at_ns });
        None
    }

    fn tell(&self, commanded: Commanded) {
        if let Some(playing) = &self.playing {
            // A block has one start and few stops; a player that ended hears none.
            let _ = playing.tell.try_send(commanded);
        }
    }

    fn hears(&mut self, said: Said) {
        match said {
            Said::Prepared(facts) if self.phase == Phase::Preparing => {
                (self.phase, self.facts) = (Phase::Prepared, Some(facts));
            }
            Said::Prepared(_) => {}
            Said::Counts(counts) => self.counts = Some(Box::new(counts)),
        }
    }

    /// The player has ended, with a record or a reason why it has none.
    fn ended(&mut self, ending: Result<Ending, String>) {
        self.tick(now_ns());
        if let Some(mut playing) = self.playing.take() {
            // Its last words.
            while let Ok(said) = playing.says.try_recv() {
                self.hears(said);
            }
        }
        if let Some(stopping) = &mut self.stopping {
            stopping.by_ns = now_ns().saturating_add(ns(FETCH));
        }
        match (ending, self.block) {
            (Ok(ending), Some(key)) if self.stopping.is_some() || self.phase == Phase::Running => {
                self.record = Some(Record { key, ending, is_fetched: false });
                if self.stopping.is_none() {
                    self.phase = Phase::Drained;
                }
            }
            (Ok(Ending { exit_code, .. }), _) => {
                self.stop(format!("the player ended with {exit_code:?} before its start"), false);
            }
            (Err(reason), _) => self.stop(reason, false),
        }
    }

    /// Server or coordinator are lost, or the agent itself was interrupted.
    fn lost(&mut self, reason: String) {
        self.stop(reason, true);
    }

    fn stop(&mut self, reason: String, is_alone: bool) {
        if let Some(stopping) = &mut self.stopping {
            stopping.is_alone |= is_alone;
            return;
        }
        self.phase = Phase::Stopped;
        self.tell(Commanded::Stop);
        let by_ns = now_ns().saturating_add(ns(if self.playing.is_some() { STOP } else { FETCH }));
        self.stopping = Some(Stopping { reason: bounded(reason), is_alone, reply: None, by_ns });
    }

    fn tick(&mut self, now_ns: u64) {
        if self.phase == Phase::Armed && now_ns >= self.start_ns {
            self.phase = Phase::Running;
        }
    }

    fn deaf_ns(&self) -> u64 {
        self.heard_ns.saturating_add(self.deaf_after_ns)
    }

    /// When [`Agent::settle`] has something to do next.
    fn wakes_ns(&self) -> u64 {
        match &self.stopping {
            Some(stopping) => stopping.by_ns,
            None if self.phase == Phase::Armed => self.deaf_ns().min(self.start_ns),
            None => self.deaf_ns(),
        }
    }

    /// Does what is due. Returns how the agent leaves, once the player has ended and the coordinator
    /// has its record, or there is nothing left to wait for.
    async fn settle(&mut self) -> Option<Left> {
        let now_ns = now_ns();
        self.tick(now_ns);
        if self.stopping.is_none() && now_ns >= self.deaf_ns() {
            let ms = self.deaf_after_ns / 1_000_000;
            self.lost(format!("no ping for {ms} ms: no coordinator is there"));
        }
        let stopping = self.stopping.as_mut()?;
        let is_late = now_ns >= stopping.by_ns;
        let knows = stopping.is_alone || stopping.reply.is_some();
        if !is_late && (self.playing.is_some() || !knows) {
            return None;
        }
        // A player that does not stop is left.
        self.playing = None;
        let reason = std::mem::take(&mut stopping.reason);
        if let Some(reply) = stopping.reply.take() {
            self.send_record(reply).await;
        }
        if reason.is_empty() {
            return Some(Left::Finished);
        }
        let unpublished = self.record.take().filter(|record| !record.is_fetched);
        let unpublished = unpublished.map(|Record { key, ending, .. }| (key, ending));
        Some(Left::Stopped { reason, unpublished })
    }
}
