//! A NATS server of a test's own, and the agents of its runs.

use std::{path::PathBuf, time::Duration};

use agents::{
    Aborted, Attendance, Commanded, Ending, Facts, Identity, Left, NatsError, Overview, Play, Player, Policy,
    Run, Said, Server, Spec, attend, coordinate, now_ns,
};
use measure::{ClockRecord, LiveCounts};
use tempfile::TempDir;
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};

use crate::nats::{Process, nats_server};

const TARGET: &str = "ws://127.0.0.1:1";

/// A server of this test's own.
pub(crate) struct Nats {
    pub(crate) process: Process,
    pub(crate) url: String,
    _folder: TempDir,
}

/// Starts a server with a configuration, on a free port.
pub(crate) fn nats(config: &str) -> Nats {
    nats_at("-1", config)
}

pub(crate) fn nats_at(port: &str, config: &str) -> Nats {
    let (process, url, _folder) = nats_server(port, config);
    Nats { process, url, _folder }
}

pub(crate) fn server(url: &str) -> Server {
    Server { url: url.to_owned(), credentials: None, ca: None }
}

pub(crate) fn identity() -> Identity {
    let idle = || "idle".to_owned();
    Identity { program_sha256: idle(), corpus_sha256: idle(), dictionary_sha256: idle() }
}

pub(crate) fn spec(name: &str, of: u16) -> Spec {
    let (has_relay, corpus_file) = (false, None);
    Spec { run: name.parse().unwrap(), nonce: now_ns(), of, has_relay, identity: identity(), corpus_file }
}

pub(crate) async fn open(url: &str, name: &str, of: u16) -> Result<Run, NatsError> {
    coordinate(server(url), spec(name, of), None).await
}

/// A run with an agent that starts the relay.
pub(crate) async fn open_with_relay(url: &str, name: &str, of: u16) -> Run {
    coordinate(server(url), Spec { has_relay: true, ..spec(name, of) }, None).await.unwrap()
}

/// Opens a run of one agent, whose events no agent has.
pub(crate) async fn open_with_events(url: &str, name: &str, file: PathBuf) -> Result<Run, NatsError> {
    let identity = Identity { corpus_sha256: "mine".to_owned(), ..identity() };
    let spec = Spec { identity, corpus_file: Some(name.to_owned()), ..spec("run", 1) };
    coordinate(server(url), spec, Some(file)).await
}

/// A block against a relay that runs, or one of the relay's agent.
pub(crate) fn block(seconds: u32) -> Play {
    let scenario = "idle".to_owned();
    Play { url: TARGET.parse().ok(), scenario, live: true, seconds, ..Play::default() }
}

/// Waits for its start and writes down when that was. A second of a block lasts [`SECOND`]. Says at
/// the start and at the end what it counts.
struct Waits;

/// Stands for a second, so that blocks are short.
const SECOND: Duration = Duration::from_millis(100);

impl Player for Waits {
    async fn play(
        &self,
        play: Box<Play>,
        index: u16,
        of: u16,
        mut commands: mpsc::Receiver<Commanded>,
        says: watch::Sender<Said>,
    ) -> Result<Ending, String> {
        // The relay's agent is behind all others.
        let url = (index == of).then(|| TARGET.parse().unwrap());
        let (plan_sha256, corpus_sha256) = ("plan".to_owned(), "idle".to_owned());
        says.send_modify(|said| said.facts = Some(Facts { plan_sha256, corpus_sha256, url }));
        let Some(Commanded::Start { at_ns }) = commands.recv().await else {
            return Err("stopped before its start".to_owned());
        };
        sleep(Duration::from_nanos(at_ns - now_ns())).await;
        let counts = |connections, sent| {
            says.send_modify(|said| {
                said.counts = LiveCounts { connections, sent, ..LiveCounts::default() };
            });
        };
        counts(3, 10);
        let exit_code = tokio::select! {
            () = sleep(SECOND * play.seconds), if index < of => 0,
            _ = commands.recv() => if index < of { 5 } else { 0 },
        };
        counts(0, 100);
        let record = serde_json::json!({ "index": index, "at_ns": at_ns, "url": play.url });
        Ok(Ending { exit_code: Some(exit_code), record: record.to_string().into_bytes() })
    }
}

pub(crate) fn attendance(url: &str, name: &str, index: u16, of: u16) -> Attendance {
    let targets = vec![TARGET.parse().expect("an address")];
    let policy = Policy { targets, starts_relays: index == of, identity: identity() };
    Attendance { server: server(url), run: name.parse().unwrap(), index, of, policy }
}

pub(crate) type Agent = JoinHandle<Result<Left, NatsError>>;

pub(crate) fn agent(attendance: Attendance) -> Agent {
    tokio::spawn(async move { attend(&attendance, &Waits, std::future::pending()).await })
}

pub(crate) fn agents(url: &str, name: &str, of: u16) -> Vec<Agent> {
    (0..of).map(|index| agent(attendance(url, name, index, of))).collect()
}

/// Ends a run. Waits until it is over for all agents.
pub(crate) async fn finish(run: Run, agents: Vec<Agent>) {
    drop(run);
    for agent in agents {
        assert_eq!(timeout(Duration::from_secs(5), agent).await.unwrap().unwrap().unwrap(), Left::Finished);
    }
}

/// Waits until a run is so.
pub(crate) async fn reaches(run: &Run, is_so: impl Fn(&Overview) -> bool) {
    let looking = async {
        while !is_so(&run.overview()) {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(30), looking).await.unwrap();
}

/// Outcome of a block: the clocks, or why there are none, and the records that arrived.
pub(crate) async fn play(run: &Run, block: Play) -> (Result<Vec<ClockRecord>, Aborted>, Vec<Ending>) {
    let mut arrived = Vec::new();
    let clocks = run.play(block, |_, ending| arrived.push(ending)).await;
    (clocks, arrived)
}

/// The records of a block, which are complete and in order, and the clocks.
pub(crate) async fn records(run: &Run, block: Play) -> (Vec<serde_json::Value>, Vec<ClockRecord>) {
    let (clocks, arrived) = play(run, block).await;
    let clocks = clocks.unwrap();
    assert!(arrived.iter().all(|ending| ending.exit_code == Some(0)));
    let read = |ending: &Ending| serde_json::from_slice(&ending.record).unwrap();
    let records: Vec<serde_json::Value> = arrived.iter().map(read).collect();
    assert!(records.iter().enumerate().all(|(index, record)| record["index"] == index), "{records:?}");
    assert_eq!(records.len(), clocks.len());
    (records, clocks)
}
