//! An agent's part in a run.

use std::pin::Pin;

use async_nats::{HeaderMap, Message, RequestErrorKind, Subscriber};
use futures::StreamExt;
use tokio::{
    sync::{mpsc, watch},
    time::{self, Instant, timeout},
};

use crate::{
    message::{Ask, EXIT_HEADER, Opened, Phase, Said, Status, bounded, decode, encode},
    player::{Commanded, Ending, Player, now_ns},
    policy::Policy,
    server::{NatsConnection, NatsError, Server, reach},
    spec::{Play, RunId},
    times::{LOOK, SILENCE, STOP},
};

/// Which slot of which run.
#[derive(Debug)]
pub struct Attendance {
    /// Where coordinator and agents meet.
    pub server: Server,
    /// The run.
    pub run: RunId,
    /// The slot, from 0; `of` for the agent that starts relays.
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
    /// The run ended early; why.
    Stopped(String),
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
    let mut agent = Agent::new(attendance, player, &connection);
    let mut heard = Instant::now();
    let left = loop {
        tokio::select! {
            biased;
            error = ends.as_mut() => break Left::Stopped(error.to_string()),
            () = interrupt.as_mut() => break Left::Stopped("interrupted".to_owned()),
            Some(message) = asks.next() => {
                heard = Instant::now();
                if let Some(left) = agent.asked(message).await {
                    break left;
                }
            }
            ending = ended(&mut agent.playing) => agent.ended(ending),
            () = time::sleep_until(heard + SILENCE) => {
                let ms = SILENCE.as_millis();
                break Left::Stopped(format!("no ping for {ms} ms: no coordinator is there"));
            }
        }
    };
    agent.stop().await;
    // The last answer. A lost server takes none.
    let _ = timeout(STOP, connection.client.flush()).await;
    Ok(left)
}

/// Reaches the server, waits for the run and claims the slot.
async fn join(attendance: &Attendance) -> Result<(NatsConnection, Subscriber), NatsError> {
    let Attendance { server, run, index, of, policy } = attendance;
    let is_slot = if policy.starts_relays { index == of } else { index < of };
    if !is_slot {
        return Err(NatsError::Refused(format!("there is no agent {index} of {of}: the first is 0")));
    }
    let connection = reach(server, &format!("agent {index} of {of}, run {run}")).await?;
    let asks = connection.during(claim(&connection, attendance)).await?;
    Ok((connection, asks))
}

async fn claim(connection: &NatsConnection, attendance: &Attendance) -> Result<Subscriber, NatsError> {
    let Attendance { run, index, of, policy, .. } = attendance;
    let Opened { spec, .. } = find(connection, run).await?;
    if let Some(reason) = policy.refuses_run(&spec, *of) {
        return Err(NatsError::Refused(reason));
    }
    // Before the claim, so that the first ping finds somebody.
    let asks = connection.subscribe(spec.agent(*index)).await?;
    let answer = connection.client.request(spec.claim(index), "".into()).await;
    let answer = answer.map_err(|error| NatsError::server("claim a slot", &error))?;
    let given: Option<Result<(), String>> = decode(&answer.payload);
    let given = given.unwrap_or_else(|| Err("no answer to a claim".to_owned()));
    given.map_err(|reason| NatsError::Refused(bounded(reason)))?;
    Ok(asks)
}

/// Looks until the run is open.
pub(crate) async fn find(connection: &NatsConnection, run: &RunId) -> Result<Opened, NatsError> {
    loop {
        match connection.client.request(run.look(), "".into()).await {
            Ok(answer) => {
                let none = || NatsError::Refused("the run's spec is none of this program".to_owned());
                let opened: Opened = decode(&answer.payload).ok_or_else(none)?;
                if opened.state != Phase::Storing {
                    return Ok(opened);
                }
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
    tell: mpsc::Sender<Commanded>,
}

/// Waits for the player's end.
async fn ended(playing: &mut Option<Playing<'_>>) -> Result<Ending, String> {
    match playing {
        Some(Playing { ending, .. }) => ending.as_mut().await,
        None => std::future::pending().await,
    }
}

struct Agent<'a, P> {
    attendance: &'a Attendance,
    player: &'a P,
    connection: &'a NatsConnection,
    phase: Phase,
    block: u32,
    /// What the player of the block says, or said last.
    said: watch::Receiver<Said>,
    start_ns: u64,
    playing: Option<Playing<'a>>,
    record: Option<Ending>,
    /// Why the agent leaves with its next answer.
    failure: Option<String>,
}

impl<'a, P: Player> Agent<'a, P> {
    fn new(attendance: &'a Attendance, player: &'a P, connection: &'a NatsConnection) -> Self {
        Agent {
            attendance,
            player,
            connection,
            phase: Phase::Claimed,
            block: 0,
            said: watch::channel(Said::default()).1,
            start_ns: 0,
            playing: None,
            record: None,
            failure: None,
        }
    }

    /// Answers the coordinator, which asks one thing after the other. Returns how the agent leaves.
    async fn asked(&mut self, message: Message) -> Option<Left> {
        let arrived_ns = now_ns();
        let mut headers = HeaderMap::new();
        let answer = match decode::<Ask>(&message.payload)? {
            Ask::Leave { aborted } => {
                return Some(aborted.map_or(Left::Finished, |reason| Left::Stopped(bounded(reason))));
            }
            Ask::Record => {
                let Ending { exit_code, record } = self.record.take()?;
                if let Some(code) = exit_code {
                    headers.insert(EXIT_HEADER, code.to_string().as_str());
                }
                record
            }
            ask => {
                self.follow(ask);
                encode(&self.status(arrived_ns))
            }
        };
        if let Some(reply) = message.reply {
            // A connection that does not take it is lost, which ends the agent.
            let _ = self.connection.client.publish_with_headers(reply, headers, answer.into()).await;
        }
        self.failure.take().map(Left::Stopped)
    }

    fn follow(&mut self, ask: Ask) {
        match ask {
            Ask::Prepare { block, play } => self.prepare(block, play),
            Ask::Start { at_ns } => {
                (self.phase, self.start_ns) = (Phase::Armed, at_ns);
                self.tell(Commanded::Start { at_ns });
            }
            Ask::StopRelay => self.tell(Commanded::Stop),
            Ask::Ping | Ask::Record | Ask::Leave { .. } => {}
        }
    }

    fn prepare(&mut self, block: u32, play: Box<Play>) {
        if let Some(reason) = self.attendance.policy.refuses(&play) {
            return self.fail(reason);
        }
        let Attendance { index, of, .. } = *self.attendance;
        let (tell, told) = mpsc::channel(4);
        let (says, said) = watch::channel(Said::default());
        let ending = Box::pin(self.player.play(play, index, of, told, says));
        self.playing = Some(Playing { ending, tell });
        (self.phase, self.block, self.said, self.record) = (Phase::Preparing, block, said, None);
    }

    fn status(&mut self, arrived_ns: u64) -> Status {
        self.tick();
        Status {
            arrived_ns,
            left_ns: now_ns(),
            block: self.block,
            phase: self.phase,
            said: self.said.borrow().clone(),
            failure: self.failure.clone(),
        }
    }

    fn tick(&mut self) {
        match self.phase {
            Phase::Preparing if self.said.borrow().facts.is_some() => self.phase = Phase::Prepared,
            Phase::Armed if now_ns() >= self.start_ns => self.phase = Phase::Running,
            _ => {}
        }
    }

    fn tell(&self, commanded: Commanded) {
        if let Some(playing) = &self.playing {
            // A block has one start and few stops; a player that ended hears none.
            let _ = playing.tell.try_send(commanded);
        }
    }

    fn fail(&mut self, reason: String) {
        self.failure.get_or_insert(bounded(reason));
    }

    /// The player has ended, with a record or a reason why it has none.
    fn ended(&mut self, ending: Result<Ending, String>) {
        self.tick();
        self.playing = None;
        match ending {
            Ok(ending) if self.phase == Phase::Running => {
                (self.phase, self.record) = (Phase::Drained, Some(ending));
            }
            Ok(Ending { exit_code, .. }) => {
                self.fail(format!("the player ended with {exit_code:?} before its start"));
            }
            Err(reason) => self.fail(reason),
        }
    }

    /// Has the player stop; one that does not is killed.
    async fn stop(self) {
        if let Some(Playing { ending, tell }) = self.playing {
            drop(tell);
            let _ = timeout(STOP, ending).await;
        }
    }
}
