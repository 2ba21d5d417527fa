//! The coordinator of a run: one request after the other, and heartbeats in a thread of their own,
//! so that they go on whatever its caller does.

use std::{ops::Range, path::PathBuf, sync::Arc, sync::mpsc, time::Duration};

use async_nats::{Client, Message, Request, RequestErrorKind, Subscriber};
use futures::{StreamExt, future::try_join_all, stream};
use measure::ClockRecord;
use tokio::{
    runtime::{Builder, Runtime},
    sync::watch,
    task::JoinHandle,
    time::{self, Instant, timeout},
};

use crate::{
    attend::{Attendance, attend},
    board::{Board, Member, Overview},
    clock::RoundTrip,
    events,
    message::{Ask, EXIT_HEADER, Opened, Phase, RECORD_BYTES, Status, decode, encode},
    player::{Ending, Player, now_ns},
    server::{NatsConnection, NatsError, Server, reach},
    spec::{Play, Spec},
    times::{
        ANSWER, BLOCK_EXTRA, CLAIMS, CLOCK_PING, COMPARE, PING, PONG, PREPARE, SILENCE, START_AHEAD, STOP, ns,
    },
};

/// A block that was not played to its end, and with it the run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Aborted {
    /// Why.
    pub reason: String,
}

/// A run that is open. When it is dropped the run ends.
#[derive(Debug)]
pub struct Run {
    desk: Arc<Desk>,
    thread: Thread,
    /// Why agents cannot fetch the run's events.
    pub unstored: Option<NatsError>,
    /// This machine's agent, which starts the relays, if it attends.
    own: Option<JoinHandle<()>>,
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

/// Opens a run: takes its name, stores the file of its events, if there is one, and answers its agents.
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
    Ok(Run { desk, thread, unstored, own: None })
}

impl Run {
    /// Has the coordinator's own thread attend the run, as the agent that starts relays.
    #[must_use]
    pub fn attended(mut self, attendance: Attendance, player: impl Player + 'static) -> Run {
        let desk = Arc::clone(&self.desk);
        let attends = async move {
            if let Err(error) = attend(&attendance, &player, std::future::pending()).await {
                desk.abort(format!("the relay's agent on this machine: {error}"));
            }
        };
        self.own = self.thread.0.as_ref().map(|runtime| runtime.spawn(attends));
        self
    }

    /// Waits until every slot is claimed.
    ///
    /// # Errors
    /// When agents are missing, or one is lost.
    pub async fn ready(&self) -> Result<(), Aborted> {
        let gathering = async {
            let all = 0..self.desk.spec.slots();
            self.desk.until(CLAIMS, "claim their slots", all, |member| member.phase.is_some()).await?;
            self.desk.enter(Phase::Claimed);
            Ok(())
        };
        self.unless_aborted(gathering).await
    }

    /// Has the agents play a block together. `take` gets each agent's number and record, one by one and in
    /// order; none is held here, and the relay's agent is the last. Returns the agents' clocks.
    ///
    /// # Errors
    /// When the run ends before the block does. Every later block fails, too.
    pub async fn play(&self, play: Play, take: impl FnMut(u16, Ending)) -> Result<Vec<ClockRecord>, Aborted> {
        self.unless_aborted(self.desk.play(play, take)).await
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
    async fn unless_aborted<T>(&self, doing: impl Future<Output = Result<T, String>>) -> Result<T, Aborted> {
        tokio::select! {
            biased;
            reason = self.desk.aborted() => Err(Aborted { reason }),
            done = doing => match done {
                Ok(done) => Ok(done),
                Err(reason) => {
                    self.desk.abort(reason);
                    Err(Aborted { reason: self.desk.aborted().await })
                }
            }
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let Some(runtime) = &self.thread.0 else { return };
        let (ended, ends) = mpsc::channel();
        let (desk, own) = (Arc::clone(&self.desk), self.own.take());
        runtime.spawn(async move {
            desk.end().await;
            if let Some(own) = own {
                let _ = own.await;
            }
            // Without a receiver it took too long.
            let _ = ended.send(());
        });
        // An agent that does not hear it misses the pings.
        let _ = ends.recv_timeout(3 * STOP);
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
        connection.during(Desk::open_over(&connection, spec, events)).await
    }

    async fn open_over(
        connection: &NatsConnection,
        spec: Spec,
        events: Option<PathBuf>,
    ) -> Result<(Arc<Desk>, Option<NatsError>), NatsError> {
        let client = connection.client.clone();
        // Answers before it looks itself: of two coordinators at once each hears the other.
        let looks = connection.subscribe(spec.run.look()).await?;
        let claims = connection.subscribe(spec.claim("*")).await?;
        let board = watch::Sender::new(Board::new(spec.clone()));
        let desk = Arc::new(Desk { client: client.clone(), spec, board });
        tokio::spawn(Arc::clone(&desk).answer(looks, claims));
        match client.request(desk.spec.run.look(), "".into()).await {
            Err(error) if error.kind() == RequestErrorKind::NoResponders => {}
            Err(error) if error.kind() != RequestErrorKind::TimedOut => {
                return Err(NatsError::server("look for another run of this name", &error));
            }
            _ => return Err(NatsError::Taken(desk.spec.run.clone())),
        }
        tokio::spawn(Arc::clone(&desk).dismiss());
        let watching = Arc::clone(&desk);
        let ends = connection.ends();
        tokio::spawn(async move { watching.abort(ends.await.to_string()) });
        let unstored = match events {
            Some(file) => events::store(&client, &desk.spec, &file).await.err(),
            None => None,
        };
        desk.enter(Phase::Open);
        Ok((desk, unstored))
    }

    /// Tells whoever asks how the run is, and gives slots to agents.
    async fn answer(self: Arc<Self>, looks: Subscriber, claims: Subscriber) {
        let mut asked = stream::select(looks.map(|look| (look, false)), claims.map(|claim| (claim, true)));
        while let Some((message, is_claim)) = asked.next().await {
            let Some(reply) = message.reply else { continue };
            let answer = if is_claim {
                encode(&self.claimed(&message.subject))
            } else {
                encode(&Opened { state: self.board.borrow().state, spec: self.spec.clone() })
            };
            // A connection that does not take it is lost, which ends the run.
            let _ = self.client.publish(reply, answer.into()).await;
        }
    }

    fn claimed(self: &Arc<Self>, subject: &str) -> Result<(), String> {
        let index = subject.rsplit('.').next().and_then(|index| index.parse().ok());
        let index = index.ok_or("no number of a slot")?;
        let mut given = Ok(());
        self.board.send_modify(|board| given = board.claim(index));
        given?;
        tokio::spawn(Arc::clone(self).beat(index));
        Ok(())
    }

    /// Pings an agent until the run ends or the agent is lost.
    async fn beat(self: Arc<Self>, index: u16) {
        loop {
            let sent = Instant::now();
            let ponged = self.command(index, &Ask::Ping, PONG).await;
            let (state, sends_record) = {
                let board = self.board.borrow();
                (board.state, board.members[usize::from(index)].sends_record)
            };
            match ponged {
                _ if state == Phase::Aborted => return,
                // A pong behind a record of up to a megabyte on the same connection comes later.
                Err(why) if !sends_record => return self.abort(why),
                _ => {}
            }
            time::sleep_until(sent + if state == Phase::Prepared { CLOCK_PING } else { PING }).await;
        }
    }

    /// Has an agent do something. Its answer says how it is, and what its clock shows.
    async fn command(&self, index: u16, ask: &Ask, within: Duration) -> Result<(), String> {
        let sent_ns = now_ns();
        let answer = self.request(index, ask, within).await?;
        let status: Option<Status> = decode(&answer.payload);
        let status = status.ok_or_else(|| format!("{} sent an invalid answer", self.who(index)))?;
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

    async fn request(&self, index: u16, ask: &Ask, within: Duration) -> Result<Message, String> {
        let request = Request::new().payload(encode(ask).into()).timeout(Some(within));
        self.client.send_request(self.spec.agent(index), request).await.map_err(|error| {
            let why = match error.kind() {
                RequestErrorKind::NoResponders => "nobody answers for it".to_owned(),
                RequestErrorKind::TimedOut => format!("silent for {} ms", within.max(SILENCE).as_millis()),
                _ => error.to_string(),
            };
            format!("{} is lost: {why}", self.who(index))
        })
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

    fn enter(&self, state: Phase) {
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

    /// Has these agents do something, each by its own words.
    async fn tell(&self, slots: Range<u16>, word: impl Fn(u16) -> Ask) -> Result<(), String> {
        let told = slots.map(|index| {
            let ask = word(index);
            async move { self.command(index, &ask, SILENCE).await }
        });
        try_join_all(told).await.map(|_: Vec<()>| ())
    }

    async fn prepare(&self, slots: Range<u16>, block: u32, play: &Play) -> Result<(), String> {
        self.tell(slots.clone(), |_| Ask::Prepare { block, play: Box::new(play.clone()) }).await?;
        self.until(PREPARE, "prepare", slots, |member| member.phase >= Some(Phase::Prepared)).await
    }

    async fn play(
        &self,
        mut play: Play,
        mut take: impl FnMut(u16, Ending),
    ) -> Result<Vec<ClockRecord>, String> {
        let (of, slots) = (self.spec.of, self.spec.slots());
        let mut block = 0;
        self.board.send_modify(|board| block = board.begin());
        if self.spec.has_relay {
            self.prepare(of..slots, block, &play).await?;
            let url = self.board.borrow().relay_url();
            play.url = Some(url.ok_or("the relay's agent does not say where the relay is reached")?);
        }
        self.prepare(0..of, block, &play).await?;
        self.board.borrow().agree()?;
        self.board.send_modify(|board| board.members.iter_mut().for_each(|member| member.offsets.clear()));
        self.enter(Phase::Prepared);
        self.until(COMPARE, "compare clocks", 0..slots, |member| member.offsets.is_full()).await?;
        self.start(slots).await?;
        let longest = Duration::from_secs(3 * u64::from(play.seconds)) + BLOCK_EXTRA;
        let has_ended = |member: &Member| member.phase >= Some(Phase::Drained);
        self.until(longest, "end", 0..of, has_ended).await?;
        if self.spec.has_relay {
            if has_ended(&self.board.borrow().members[usize::from(of)]) {
                return Err("the relay's agent ended before the players did".to_owned());
            }
            self.tell(of..slots, |_| Ask::StopRelay).await?;
            self.until(BLOCK_EXTRA, "end", of..slots, has_ended).await?;
        }
        self.enter(Phase::Drained);
        for index in 0..slots {
            take(index, self.record(index).await?);
        }
        self.enter(Phase::Merged);
        Ok(self.board.borrow().clocks())
    }

    /// Has all agents start at one instant, and waits for it.
    async fn start(&self, slots: u16) -> Result<(), String> {
        let start_ns = now_ns() + ns(START_AHEAD);
        let mut starts = Ok(Vec::new());
        self.board.send_modify(|board| starts = board.starts(start_ns));
        let starts = starts?;
        self.tell(0..slots, |index| Ask::Start { at_ns: starts[usize::from(index)] }).await?;
        self.enter(Phase::Armed);
        let wait = start_ns.checked_sub(now_ns()).ok_or("agents did not confirm the start in time")?;
        time::sleep(Duration::from_nanos(wait)).await;
        self.enter(Phase::Running);
        Ok(())
    }

    /// An agent's record of the block that has ended.
    async fn record(&self, index: u16) -> Result<Ending, String> {
        let sends = |is: bool| {
            self.board.send_modify(|board| board.members[usize::from(index)].sends_record = is);
        };
        sends(true);
        let answer = self.request(index, &Ask::Record, ANSWER).await;
        sends(false);
        let Message { headers, payload, .. } = answer?;
        if payload.len() > RECORD_BYTES {
            let bytes = payload.len();
            return Err(format!("the record of {} has {bytes} bytes, over {RECORD_BYTES}", self.who(index)));
        }
        let exit_code = headers.and_then(|headers| headers.get(EXIT_HEADER)?.as_str().parse().ok());
        Ok(Ending { exit_code, record: payload.to_vec() })
    }

    /// Lets all agents go once the run ends early.
    async fn dismiss(self: Arc<Self>) {
        let reason = self.aborted().await;
        self.leave(Some(reason)).await;
    }

    async fn leave(&self, aborted: Option<String>) {
        let leave = encode(&Ask::Leave { aborted });
        for index in 0..self.spec.slots() {
            // An agent that does not hear it misses the pings.
            let _ = self.client.publish(self.spec.agent(index), leave.clone().into()).await;
        }
        let _ = timeout(STOP, self.client.flush()).await;
    }

    /// Lets the agents go and forgets the run.
    async fn end(&self) {
        let (state, aborted) = {
            let board = self.board.borrow();
            (board.state, board.aborted.clone())
        };
        let is_over = matches!(state, Phase::Claimed | Phase::Merged);
        let stopped = || (!is_over).then(|| "the coordinator was stopped".to_owned());
        self.leave(aborted.or_else(stopped)).await;
        if self.spec.corpus_file.is_some() {
            events::forget(&self.client, &self.spec).await;
        }
    }
}
