//! A NATS server of a test's own, and the agents of its runs.

use std::{
    fs,
    io::Read,
    net,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use agents::{
    Block, Commanded, Ending, Facts, Identity, Left, Play, Player, Policy, RunId, Spec,
    nats::{Aborted, Arrival, Attendance, Attended, NatsError, Run, Server, attend, coordinate},
    now_ns,
};
use async_nats::{Client, jetstream};
use measure::{ClockRecord, LiveCounts};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    runtime::Builder,
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};

pub(crate) const TARGET: &str = "ws://127.0.0.1:1";

/// A process that ends with the test.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().try_into().unwrap()), signal).unwrap();
    }

    /// Exit code and output, once it ends.
    pub(crate) fn end(mut self, within: Duration) -> (Option<i32>, String) {
        let since = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                let mut said = String::new();
                self.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
                return (status.code(), said);
            }
            assert!(since.elapsed() < within, "it goes on after {within:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server of this test's own, on a free port.
pub(crate) struct Nats {
    pub(crate) process: Process,
    pub(crate) url: String,
    _folder: TempDir,
}

pub(crate) fn nats(config: Option<&Path>) -> Nats {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("nats-server");
    command.args(["-js", "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir"]).arg(folder.path());
    command.arg("-sd").arg(folder.path().join("store"));
    if let Some(config) = config {
        command.arg("-c").arg(config);
    }
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("needs nats-server");
    let file = folder.path().join(format!("nats-server_{}.ports", child.id()));
    let process = Process(child);
    let since = Instant::now();
    let url = loop {
        let ports = fs::read_to_string(&file).ok().and_then(|text| serde_json::from_str(&text).ok());
        if let Some::<serde_json::Value>(ports) = ports {
            break ports["nats"][0].as_str().unwrap().to_owned();
        }
        assert!(since.elapsed() < Duration::from_secs(10), "nats-server does not start");
        thread::sleep(Duration::from_millis(20));
    };
    Nats { process, url, _folder: folder }
}

pub(crate) fn server(url: &str) -> Server {
    Server { url: url.to_owned(), credentials: None, ca: None }
}

/// A way to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// It carries what comes.
    Open,
    /// Its connections are closed, and later ones at once.
    Closed,
    /// Its connections stay, and nothing passes any more.
    Cut,
}

/// Opens a way to a server, on a thread of its own, whatever the test waits for. Returns its URL,
/// and what closes or cuts it.
pub(crate) fn way_to(url: &str) -> (String, watch::Sender<Way>) {
    let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let through = format!("nats://{}", listener.local_addr().unwrap());
    let server = url.strip_prefix("nats://").unwrap().to_owned();
    let (way, is) = watch::channel(Way::Open);
    let carries = async move {
        let listener = TcpListener::from_std(listener).unwrap();
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&server).await.unwrap();
            tokio::spawn(carry(client, server, is.clone()));
        }
    };
    thread::spawn(move || Builder::new_current_thread().enable_all().build().unwrap().block_on(carries));
    (through, way)
}

async fn carry(mut client: TcpStream, mut server: TcpStream, mut way: watch::Receiver<Way>) {
    let is_cut = tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => false,
        way = way.wait_for(|way| *way != Way::Open) => way.is_ok_and(|way| *way == Way::Cut),
    };
    if is_cut {
        // Holds both sockets open until the test ends.
        std::future::pending::<()>().await;
    }
}

/// Waits 1 s instead of 5 s for a server that refuses by silence.
pub(crate) fn hasty(client: Client) -> jetstream::Context {
    let mut jetstream = jetstream::new(client);
    jetstream.set_timeout(Duration::from_secs(1));
    jetstream
}

pub(crate) fn identity() -> Identity {
    let idle = || "idle".to_owned();
    Identity { program_sha256: idle(), corpus_sha256: idle(), dictionary_sha256: idle() }
}

pub(crate) fn run_id(name: &str) -> RunId {
    name.parse().unwrap()
}

pub(crate) async fn open(url: &str, name: &str, of: u16) -> Result<Run, NatsError> {
    let (has_relay, corpus_file) = (false, None);
    let spec = Spec { run: run_id(name), nonce: now_ns(), of, has_relay, identity: identity(), corpus_file };
    coordinate(server(url), spec, None).await
}

/// A run with an agent that starts the relay.
pub(crate) async fn open_with_relay(url: &str, name: &str, of: u16) -> Result<Run, NatsError> {
    let (has_relay, corpus_file) = (true, None);
    let spec = Spec { run: run_id(name), nonce: now_ns(), of, has_relay, identity: identity(), corpus_file };
    coordinate(server(url), spec, None).await
}

/// A block whose relay an agent starts.
pub(crate) fn relay_block(position: u32) -> Block {
    let mut block = block(position, 1);
    block.play.url = String::new();
    block.play.starts_relay = true;
    block
}

pub(crate) fn block(position: u32, seconds: u32) -> Block {
    let word = |word: &str| word.to_owned();
    let play = Play {
        url: word(TARGET),
        scenario: word("idle"),
        cell: [("format".to_owned(), "json".to_owned())].into(),
        comparable_with: vec![word("json")],
        live: true,
        seed: 1,
        seconds,
        block_id: word("1"),
        ..Play::default()
    };
    Block { round: 0, position, play }
}

/// Waits for its start and writes down when that was. A second of a block lasts [`SECOND`]. Says at
/// the start and at the end that it counts.
struct Waits;

/// Stands for a second, so that blocks are short.
const SECOND: Duration = Duration::from_millis(100);

/// Counts of a block that [`Waits`] makes until its start, or in all.
pub(crate) fn counted(index: u16, is_over: bool) -> LiveCounts {
    let sent = u64::from(index) + if is_over { 100 } else { 10 };
    LiveCounts {
        connections: if is_over { 0 } else { 3 },
        sent,
        deliveries: 7 * sent,
        ..LiveCounts::default()
    }
}

impl Player for Waits {
    async fn play(
        &self,
        block: Box<Block>,
        index: u16,
        of: u16,
        mut commands: mpsc::Receiver<Commanded>,
        prepared: oneshot::Sender<Facts>,
        counts: watch::Sender<LiveCounts>,
    ) -> Result<Ending, String> {
        // The relay's agent is behind all others.
        let url = (index == of).then(|| TARGET.to_owned());
        let (plan_sha256, corpus_sha256) = ("plan".to_owned(), "idle".to_owned());
        prepared.send(Facts { plan_sha256, corpus_sha256, url }).unwrap();
        let Some(Commanded::Start { at_ns }) = commands.recv().await else {
            return Err("stopped before its start".to_owned());
        };
        sleep(Duration::from_nanos(at_ns - now_ns())).await;
        counts.send_replace(counted(index, false));
        let exit_code = tokio::select! {
            () = sleep(SECOND * block.play.seconds), if index < of => 0,
            _ = commands.recv() => if index < of { 5 } else { 0 },
        };
        counts.send_replace(counted(index, true));
        let record = serde_json::json!({
            "position": block.position, "index": index, "of": of, "at_ns": at_ns, "url": block.play.url,
        });
        Ok(Ending { exit_code: Some(exit_code), record: record.to_string().into_bytes() })
    }
}

pub(crate) fn attendance(url: &str, name: &str, index: u16, of: u16) -> Attendance {
    let policy = Policy {
        targets: vec![TARGET.parse().expect("an address")],
        max_rate_per_s: None,
        starts_relays: index == of,
        identity: identity(),
    };
    Attendance { server: server(url), run: run_id(name), index, of, policy }
}

pub(crate) fn agent(attendance: Attendance) -> JoinHandle<Result<Attended, NatsError>> {
    tokio::spawn(async move { attend(&attendance, &Waits, std::future::pending()).await })
}

pub(crate) fn agents(url: &str, name: &str, of: u16) -> Vec<JoinHandle<Result<Attended, NatsError>>> {
    (0..of).map(|index| agent(attendance(url, name, index, of))).collect()
}

/// Waits until the run is over for all of them. Returns how many messages each dropped.
pub(crate) async fn finished(agents: Vec<JoinHandle<Result<Attended, NatsError>>>) -> Vec<u64> {
    let mut dropped = Vec::new();
    for agent in agents {
        let attended = timeout(Duration::from_secs(5), agent).await.unwrap().unwrap().unwrap();
        assert_eq!(attended.left, Left::Finished);
        dropped.push(attended.mismatched);
    }
    dropped
}

/// Outcome of a block: the clocks, or why there are none, and the records that arrived.
pub(crate) async fn play(run: &Run, block: Block) -> (Result<Vec<ClockRecord>, Aborted>, Vec<Arrival>) {
    let mut arrived = Vec::new();
    let clocks = run.play(block, |arrival| arrived.push(arrival)).await;
    (clocks, arrived)
}

/// The records of a block, which are complete and in order, and the clocks.
pub(crate) async fn records(run: &Run, block: Block, of: u16) -> (Vec<serde_json::Value>, Vec<ClockRecord>) {
    let position = block.position;
    let slots = usize::from(of) + usize::from(block.play.starts_relay);
    let (clocks, arrived) = play(run, block).await;
    let read = |arrival: &Arrival| serde_json::from_slice(&arrival.ending.record).unwrap();
    let records: Vec<serde_json::Value> = arrived.iter().map(read).collect();
    assert_eq!(records.len(), slots);
    for (index, record) in records.iter().enumerate() {
        assert_eq!(record["index"], index);
        assert_eq!(record["position"], position);
        assert_eq!(record["of"], of);
    }
    assert!(arrived.iter().all(|arrival| arrival.ending.exit_code == Some(0) && !arrival.is_partial));
    (records, clocks.unwrap())
}

/// An agent in a process of its own.
pub(crate) fn process(url: &str, name: &str, index: u16, of: u16, before: &[&str]) -> Process {
    let words = before.iter().map(|word| (*word).to_owned());
    let mut words = words.chain([env!("CARGO_BIN_EXE_idle").to_owned()]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args(["agents", url, name, &index.to_string(), "1", &of.to_string()]);
    Process(command.stdout(Stdio::piped()).spawn().unwrap())
}
