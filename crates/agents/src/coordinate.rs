//! The coordinator of a run: one request after the other, and heartbeats in a thread of their own,
//! so that they go on whatever its caller does.

use std::{ops::Range, path::PathBuf, sync::Arc, sync::mpsc, time::Duration};

use async_nats::{Client, Message, Request, RequestError, RequestErrorKind, Subscriber};
use futures::{
    StreamExt,
    future::{self, try_join_all},
    stream::{self, FuturesUnordered},
};
use measure::ClockRecord;
use serde::de::DeserializeOwned;
use tokio::{
    runtime::{Builder, Runtime},
    sync::watch,
    time::{self, Instant, timeout},
};

use crate::{
    board::{Board, Member, Overview},
    clock::RoundTrip,
    events,
    message::{Ask, Claim, Opened, Phase, RECORD_BYTES, RunState, Status, decode, encode},
    player::{Ending, now_ns},
    server::{NatsConnection, NatsError, Server, reach},
    spec::{Block, BlockKey, Spec},
    times::{
        ANSWER, BLOCK_EXTRA, CLAIMS, CLOCK_PING, COMPARE, FIRST_PING, LEAVE, PING, PONG, PREPARE, SILENCE,
        START_AHEAD, ns,
    },
};

/// The block of a record, as `ROUND.POSITION`.
pub(crate) const BLOCK_HEADER: &str = "Nsim-Block";

/// Exit code of the player whose record a message is; absent when a signal ended it.
pub(crate) const EXIT_HEADER: &str = "Nsim-Exit";

/// A block that was not played to its end, and with it the run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Aborted {
    /// Why.
    pub reason: String,
}

/// A record of a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// The agent.
    pub index: u16,
    /// How its player ended, with the record.
    pub ending: Ending,
    /// Whether the block was aborted, so that there may be none of others.
    pub is_partial: bool,
}

/// A run that is open. When it is dropped the run ends.
#[derive(Debug)]
pub struct Run {
    desk: Arc<Desk>,
    thread: Thread,
    unstored: Option<NatsError>,
}

/// A runtime whose end waits for nothing.
#[derive(Debug)]
struct Thread(Option<Runtime>);

impl Drop for Thread {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Opens a run: stores the file of its events, if there is one, and answers its agents.
///
/// # Errors
/// When the server cannot be reached, or has a run of this name.
pub async fn coordinate(server: Server, spec: Spec, events: Option<PathBuf>) -> Result<Run, NatsError> {
    let runtime =
        Builder::new_multi_thread().worker_threads(1).thread_name("coordinator").enable_all().build();
    let runtime = runtime.map_err(|error| NatsError::server("start", &error))?;
    let opening = runtime.spawn(async move { Desk::open(&server, spec, events).await });
    let thread = Thread(Some(runtime));
    let (desk, unstored) = opening.await.unwrap_or(Err(NatsError::Lost))?;
    Ok(Run { desk, thread, unstored })
}

impl Run {
    /// Why agents cannot fetch the run's events.
    pub fn unstored(&self) -> Option<&NatsError> {
        self.unstored.as_ref()
    }

    /// Waits until every slot is claimed.
    ///
    /// # Errors
    /// When agents are missing, or one is lost.
    pub async fn ready(&self) -> Result<(), Aborted> {
        let gathering = async {
            let all = 0..self.desk.slots();
            self.desk.until(CLAIMS, "claim their slots", all, |member| member.is_there).await?;
            self.desk.enter(RunState::Claimed);
            Ok(())
        };
        self.unless_aborted(gathering).await.map_err(|reason| Aborted { reason })
    }

    /// Has the agents play a block together. Their records go to `take` one by one, and are not
    /// held here: those of all agents in order, of which that of the relay's is the last, then the
    /// agents' clocks are returned; or, of a block that was aborted, those that agents have
    /// nevertheless.
    ///
    /// # Errors
    /// When the run ends before the block does. Every later block fails, too.
    pub async fn play(
        &self,
        block: Block,
        mut take: impl FnMut(Arrival),
    ) -> Result<Vec<ClockRecord>, Aborted> {
        let played = self.unless_aborted(self.desk.play(block, &mut take)).await;
        if played.is_err() {
            self.desk.partial().await.into_iter().for_each(take);
        }
        played.map_err(|reason| Aborted { reason })
    }

    /// The run as it is now, for who watches.
    pub fn overview(&self) -> Overview {
        self.desk.board.borrow().overview()
    }

    /// Ends the run early; a block under way fails.
    pub fn abort(&self, reason: String) {
        self.desk.abort(reason);
    }

    /// Completes with the reason when the run ends early; a failure of `doing` ends it.
    async fn unless_aborted<T>(&self, doing: impl Future<Output = Result<T, String>>) -> Result<T, String> {
        tokio::select! {
            biased;
            reason = self.desk.aborted() => Err(reason),
            done = doing => match done {
                Ok(done) => Ok(done),
                Err(reason) => {
                    self.desk.abort(reason);
                    Err(self.desk.aborted().await)
                }
            }
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let Some(runtime) = &self.thread.0 else { return };
        let (ended, ends) = mpsc::channel();
        let desk = Arc::clone(&self.desk);
        runtime.spawn(async move {
            desk.end().await;
            // Without a receiver it took too long.
            let _ = ended.send(());
        });
        // An agent that does not hear it misses the pings.
        let _ = ends.recv_timeout(LEAVE + Duration::from_secs(1));
    }
}

#[derive(Debug)]
struct Desk {
    client: Client,
    spec: Spec,
    board: watch::Sender<Board>,
}

impl Desk {
    async fn open(
        server: &Server,
        spec: Spec,
        events: Option<PathBuf>,
    ) -> Result<(Arc<Desk>, Option<NatsError>), NatsError> {
        let connection = reach(server, &format!("coordinator, run {}", spec.run)).await?;
        let ends = connection.ends();
        let opened = tokio::select! {
            opened = Desk::open_over(connection, spec, events) => opened?,
            error = ends => return Err(error),
        };
        Ok(opened)
    }

    async fn open_over(
        connection: NatsConnection,
        mut spec: Spec,
        events: Option<PathBuf>,
    ) -> Result<(Arc<Desk>, Option<NatsError>), NatsError> {
        let client = connection.client.clone();
        match client.request(spec.run.look(), "".into()).await {
            Err(error) if error.kind() == RequestErrorKind::NoResponders => {}
            Err(error) if error.kind() != RequestErrorKind::TimedOut => {
                return Err(NatsError::server("look for another run of this name", &error));
            }
            _ => return Err(NatsError::Taken(spec.run)),
        }
        // Before the spec: who reads that finds the events.
        let mut unstored = None;
        if let Some(file) = events
            && let Err(error) = events::store(&client, &spec, &file).await
        {
            (unstored, spec.corpus_file) = (Some(error), None);
        }
        let looks = connection.subscribe(spec.run.look()).await?;
        let claims = connection.subscribe(spec.claim("*")).await?;
        client.flush().await.map_err(|error| NatsError::server("take subscriptions", &error))?;
        let board = watch::Sender::new(Board::new(spec.clone()));
        let desk = Arc::new(Desk { client, spec, board });
        tokio::spawn(Arc::clone(&desk).answer(looks, claims));
        tokio::spawn(Arc::clone(&desk).dismiss());
        let watching = Arc::clone(&desk);
        tokio::spawn(async move { watching.abort(connection.ends().await.to_string()) });
        Ok((desk, unstored))
    }

    fn slots(&self) -> u16 {
        self.spec.slots()
    }

    /// Tells whoever asks how the run is, and gives slots to agents.
    async fn answer(self: Arc<Self>, looks: Subscriber, claims: Subscriber) {
        let mut asked = stream::select(looks, claims);
        while let Some(message) = asked.next().await {
            let Some(reply) = message.reply else { continue };
            let answer = match decode::<Claim>(&message.payload) {
                Some(claim) => encode(&self.claimed(&message.subject, claim)),
                None => encode(&Opened { state: self.board.borrow().state, spec: self.spec.clone() }),
            };
            // A connection that does not take it is lost, which ends the run.
            let _ = self.client.publish(reply, answer.into()).await;
        }
    }

    fn claimed(self: &Arc<Self>, subject: &str, claim: Claim) -> Result<(), String> {
        let index = subject.rsplit('.').next().and_then(|index| index.parse().ok());
        let index = index.ok_or("no number of a slot")?;
        let mut given = Ok(false);
        self.board.send_modify(|board| given = board.claim(index, claim));
        if given? {
            tokio::spawn(Arc::clone(self).beat(index));
        }
        Ok(())
    }

    /// Pings an agent until the run ends or the agent is lost.
    async fn beat(self: Arc<Self>, index: u16) {
        let claimed = Instant::now();
        loop {
            let sent = Instant::now();
            let ponged = self.ping(index).await;
            let (state, was_there, sends_record) = {
                let board = self.board.borrow();
                let member = &board.members[usize::from(index)];
                (board.state, member.is_there, member.sends_record)
            };
            let lost = match ponged {
                _ if state == RunState::Aborted => return,
                Ok(()) => None,
                // Behind a record of up to a megabyte on the same connection, which has its own time.
                Err(_) if sends_record => None,
                // Between its claim and its subscription nobody listens.
                Err(_) if !was_there && claimed.elapsed() < FIRST_PING => None,
                Err(_) if !was_there => Some("silent since its claim"),
                Err(why) => Some(why),
            };
            if let Some(why) = lost {
                return self.abort(format!("{} is lost: {why}", self.who(index)));
            }
            let is_urgent = state == RunState::Prepared || !was_there;
            time::sleep_until(sent + if is_urgent { CLOCK_PING } else { PING }).await;
        }
    }

    async fn ping(&self, index: u16) -> Result<(), &'static str> {
        let sent_ns = now_ns();
        let status: Status = self
            .ask(index, &Ask::Ping, PONG)
            .await
            .map_err(|nobody| if nobody { "nobody answers for it" } else { "silent for 600 ms" })?;
        let (arrived_there_ns, left_there_ns) = (status.arrived_ns, status.left_ns);
        let trip = RoundTrip { sent_ns, arrived_there_ns, left_there_ns, received_ns: now_ns() };
        self.board.send_modify(|board| {
            board.heard(index, status);
            match trip.offset() {
                Some(offset) => board.members[usize::from(index)].offsets.add(offset),
                None => board.abort(format!("the clock of {} contradicts itself", board.who(index))),
            }
        });
        Ok(())
    }

    /// An agent's answer; the error is whether nobody listens.
    async fn ask<T: DeserializeOwned>(&self, index: u16, ask: &Ask, within: Duration) -> Result<T, bool> {
        let answer = self.request(index, ask, within).await;
        let answer = answer.map_err(|error| error.kind() == RequestErrorKind::NoResponders)?;
        decode(&answer.payload).ok_or(false)
    }

    async fn request(&self, index: u16, ask: &Ask, within: Duration) -> Result<Message, RequestError> {
        let request = Request::new().payload(encode(ask).into()).timeout(Some(within));
        self.client.send_request(self.spec.agent(index), request).await
    }

    fn who(&self, index: u16) -> String {
        self.board.borrow().who(index)
    }

    fn abort(&self, reason: String) {
        self.board.send_modify(|board| board.abort(reason));
    }

    /// Completes with the reason when the run ends early.
    async fn aborted(&self) -> String {
        let mut board = self.board.subscribe();
        let aborted = board.wait_for(|board| board.aborted.is_some()).await;
        aborted.ok().and_then(|board| board.aborted.clone()).unwrap_or_default()
    }

    fn enter(&self, state: RunState) {
        self.board.send_if_modified(|board| {
            // What ended early does not go on.
            let goes_on = board.aborted.is_none();
            if goes_on {
                board.state = state;
            }
            goes_on
        });
    }

    /// Waits for these agents, and names those that are late.
    async fn until(
        &self,
        within: Duration,
        what: &str,
        slots: Range<u16>,
        is_done: impl Fn(&Member) -> bool,
    ) -> Result<(), String> {
        let mut board = self.board.subscribe();
        let places = usize::from(slots.start)..usize::from(slots.end);
        let all = board.wait_for(|board| board.members[places.clone()].iter().all(&is_done));
        if timeout(within, all).await.is_ok() {
            return Ok(());
        }
        let board = self.board.borrow();
        let late = slots.filter(|index| !is_done(&board.members[usize::from(*index)]));
        let late: Vec<String> = late.take(10).map(|index| board.who(index)).collect();
        Err(format!("agents did not {what} in time: {}", late.join(", ")))
    }

    async fn until_in(&self, phase: Phase, within: Duration, slots: Range<u16>) -> Result<(), String> {
        let what = if phase == Phase::Prepared { "prepare" } else { "end" };
        self.until(within, what, slots, |member| member.phase >= Some(phase)).await
    }

    /// Has these agents do something, each by its own words.
    async fn tell(&self, slots: Range<u16>, word: impl Fn(u16) -> Ask) -> Result<(), String> {
        try_join_all(slots.map(|index| {
            let ask = word(index);
            async move {
                let status: Result<Status, _> = self.ask(index, &ask, SILENCE).await;
                let late = |_| format!("{} did not answer a command", self.who(index));
                let status = status.map_err(late)?;
                self.board.send_modify(|board| board.heard(index, status));
                Ok(())
            }
        }))
        .await
        .map(|_: Vec<()>| ())
    }

    async fn play(
        &self,
        mut block: Block,
        take: &mut impl FnMut(Arrival),
    ) -> Result<Vec<ClockRecord>, String> {
        block.play.check().map_err(|error| error.to_string())?;
        if block.play.starts_relay != self.spec.has_relay {
            return Err("the block and its run disagree on who starts the relay".to_owned());
        }
        let (key, of, slots) = (block.key(), self.spec.of, self.slots());
        let mut begun = Ok(());
        self.board.send_modify(|board| begun = board.begin(key));
        begun?;
        if self.spec.has_relay {
            self.tell(of..slots, |_| Ask::Prepare(Box::new(block.clone()))).await?;
            self.until_in(Phase::Prepared, PREPARE, of..slots).await?;
            let url = self.board.borrow().members[usize::from(of)].facts.clone().and_then(|facts| facts.url);
            block.play.url = url.unwrap_or_default();
            if block.play.url.is_empty() || block.play.check().is_err() {
                return Err("the relay's agent does not say where the relay is reached".to_owned());
            }
        }
        self.tell(0..of, |_| Ask::Prepare(Box::new(block.clone()))).await?;
        self.until_in(Phase::Prepared, PREPARE, 0..of).await?;
        self.board.borrow().agree()?;
        self.board.send_modify(|board| board.members.iter_mut().for_each(|member| member.offsets.clear()));
        self.enter(RunState::Prepared);
        self.until(COMPARE, "compare clocks", 0..slots, |member| member.offsets.is_full()).await?;
        self.start(slots).await?;
        let longest = Duration::from_secs(3 * u64::from(block.play.seconds)) + BLOCK_EXTRA;
        self.until_in(Phase::Drained, longest, 0..of).await?;
        if self.spec.has_relay {
            if self.board.borrow().members[usize::from(of)].phase >= Some(Phase::Drained) {
                return Err("the relay's agent ended before the players did".to_owned());
            }
            self.tell(of..slots, |_| Ask::StopRelay).await?;
            self.until_in(Phase::Drained, BLOCK_EXTRA, of..slots).await?;
        }
        self.enter(RunState::Drained);
        for index in 0..slots {
            let found = self.record(index, Ask::Record, ANSWER, key).await;
            let none = |why: &str| format!("the record of {}: {why}", self.who(index));
            let ending = found.map_err(|why| none(&why))?.ok_or_else(|| none("there is none"))?;
            take(Arrival { index, ending, is_partial: false });
        }
        self.enter(RunState::Merged);
        Ok(self.board.borrow().clocks())
    }

    /// Has all agents start at one instant, and waits for it.
    async fn start(&self, slots: u16) -> Result<(), String> {
        let start_ns = now_ns() + ns(START_AHEAD);
        let mut starts = Ok(Vec::new());
        self.board.send_modify(|board| starts = board.starts(start_ns));
        let starts = starts?;
        self.tell(0..slots, |index| Ask::Start { at_ns: starts[usize::from(index)] }).await?;
        self.enter(RunState::Armed);
        let wait = start_ns.checked_sub(now_ns()).ok_or("agents did not confirm the start in time")?;
        time::sleep(Duration::from_nanos(wait)).await;
        self.enter(RunState::Running);
        Ok(())
    }

    /// What an agent has of a record of this block.
    async fn record(
        &self,
        index: u16,
        ask: Ask,
        within: Duration,
        key: BlockKey,
    ) -> Result<Option<Ending>, String> {
        let sends = |is: bool| {
            self.board.send_modify(|board| board.members[usize::from(index)].sends_record = is);
        };
        sends(true);
        let answer = self.request(index, &ask, within).await;
        sends(false);
        let Message { headers, payload, .. } = answer.map_err(|error| error.to_string())?;
        let header = |name| headers.as_ref().and_then(|headers| headers.get(name));
        if header(BLOCK_HEADER).is_none_or(|block| block.as_str() != key.to_string()) {
            return Ok(None);
        }
        if payload.len() > RECORD_BYTES {
            return Err(format!("it has {} bytes, over {RECORD_BYTES}", payload.len()));
        }
        let code = header(EXIT_HEADER).map(|code| code.as_str().parse()).transpose();
        let exit_code = code.map_err(|_| format!("its {EXIT_HEADER} is no number"))?;
        Ok(Some(Ending { exit_code, record: payload.to_vec() }))
    }

    /// Lets all agents go once the run ends early, and keeps what they have of records.
    async fn dismiss(self: Arc<Self>) {
        let reason = self.aborted().await;
        let partial = self.leave(Some(reason)).await;
        self.board.send_modify(|board| board.partial = Some(partial));
    }

    async fn partial(&self) -> Vec<Arrival> {
        let mut board = self.board.subscribe();
        // The sender is this desk's.
        let _ = board.wait_for(|board| board.partial.is_some()).await;
        let mut partial = None;
        self.board.send_modify(|board| partial = board.partial.replace(Vec::new()));
        partial.unwrap_or_default()
    }

    async fn leave(&self, aborted: Option<String>) -> Vec<Arrival> {
        let (there, key) = {
            let board = self.board.borrow();
            let there: Vec<bool> = board.members.iter().map(|member| member.is_there).collect();
            (there, board.block.unwrap_or_default())
        };
        let there = (0..).zip(there).filter_map(|(index, is_there)| is_there.then_some(index));
        let leaving: FuturesUnordered<_> = there
            .map(|index| {
                let ask = Ask::Leave { aborted: aborted.clone() };
                async move {
                    // Who does not answer has no record for the others, either.
                    let ending = self.record(index, ask, LEAVE, key).await.ok().flatten()?;
                    Some(Arrival { index, ending, is_partial: true })
                }
            })
            .collect();
        leaving.filter_map(future::ready).collect().await
    }

    /// Lets the agents go and forgets the run.
    async fn end(&self) {
        if matches!(self.board.borrow().state, RunState::Claimed | RunState::Merged) {
            self.leave(None).await;
        } else {
            self.abort("the coordinator was stopped".to_owned());
            let mut board = self.board.subscribe();
            let _ = board.wait_for(|board| board.partial.is_some()).await;
        }
        if self.spec.corpus_file.is_some() {
            events::forget(&self.client, &self.spec).await;
        }
        // Answers on their way.
        let _ = self.client.flush().await;
    }
}
