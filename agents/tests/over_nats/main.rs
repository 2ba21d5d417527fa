//! Runs over a real NATS server: what is played together, what a loss does, who is refused.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod coordinator;
mod files;
mod secure;

use std::{
    fs,
    io::Read,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use agents::{
    Block, Commanded, Ending, Facts, Identity, Left, Overview, Phase, Play, Player, Policy, RelayPlay, RunId,
    RunState, Seen, Spec,
    nats::{Aborted, Arrival, Attendance, NatsError, Run, Server, attend, coordinate},
    now_ns,
};
use async_nats::{HeaderMap, jetstream};
use measure::{ClockRecord, LiveCounts};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tempfile::TempDir;
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
    time::{sleep, timeout},
};

const TARGET: &str = "ws://127.0.0.1:1";

/// A process that ends with the test.
struct Process(Child);

impl Process {
    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().try_into().unwrap()), signal).unwrap();
    }

    /// Exit code and output, once it ends.
    fn end(mut self, within: Duration) -> (Option<i32>, String) {
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
struct Nats {
    process: Process,
    url: String,
    _folder: TempDir,
}

fn nats(config: Option<&Path>) -> Nats {
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

fn server(url: &str) -> Server {
    Server { url: url.to_owned(), credentials: None, ca: None }
}

fn identity() -> Identity {
    let idle = || "idle".to_owned();
    Identity { program_sha256: idle(), corpus_sha256: idle(), dictionary_sha256: idle() }
}

fn run_id(name: &str) -> RunId {
    name.parse().unwrap()
}

async fn open(url: &str, name: &str, of: u16) -> Result<Run, NatsError> {
    let (has_relay, corpus_file) = (false, None);
    let spec = Spec { run: run_id(name), nonce: now_ns(), of, has_relay, identity: identity(), corpus_file };
    coordinate(server(url), spec, None).await
}

/// A run with an agent that starts the relay.
async fn open_with_relay(url: &str, name: &str, of: u16) -> Result<Run, NatsError> {
    let (has_relay, corpus_file) = (true, None);
    let spec = Spec { run: run_id(name), nonce: now_ns(), of, has_relay, identity: identity(), corpus_file };
    coordinate(server(url), spec, None).await
}

/// A block of a second whose relay an agent starts.
fn relay_block(position: u32) -> Block {
    let mut block = block(position, 1);
    block.play.url = String::new();
    block.play.relay = Some(RelayPlay {
        verify: "full".to_owned(),
        reencode: "always".to_owned(),
        batch_ms: None,
        batch_n: None,
        batch_bytes: None,
        floor: false,
    });
    block
}

fn block(position: u32, seconds: u32) -> Block {
    let word = |word: &str| word.to_owned();
    let play = Play {
        url: word(TARGET),
        relay: None,
        scenario: word("idle"),
        scenario_toml: None,
        answers: String::new(),
        format: word("json"),
        compression: word("none"),
        comparable_with: vec![word("json")],
        implementation: word("library"),
        client_verify: word("none"),
        batched: false,
        live: true,
        rate_per_s: None,
        seed: 1,
        seconds,
        block_id: word("1"),
    };
    Block { round: 0, position, play }
}

/// Waits for its start and writes down when that was. Says at the start and at the end that it
/// counts.
struct Waits;

/// What [`Waits`] counts of a block until its start, or in all.
fn counted(index: u16, is_over: bool) -> LiveCounts {
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
            () = sleep(Duration::from_secs(block.play.seconds.into())), if index < of => 0,
            _ = commands.recv() => if index < of { 5 } else { 0 },
        };
        counts.send_replace(counted(index, true));
        let record = serde_json::json!({
            "position": block.position, "index": index, "of": of, "at_ns": at_ns, "url": block.play.url,
        });
        Ok(Ending { exit_code: Some(exit_code), record: record.to_string().into_bytes() })
    }
}

fn attendance(url: &str, name: &str, index: u16, of: u16) -> Attendance {
    let policy = Policy {
        targets: vec![TARGET.to_owned()],
        max_rate_per_s: None,
        starts_relays: index == of,
        identity: identity(),
    };
    Attendance { server: server(url), run: run_id(name), index, of, policy }
}

fn agent(attendance: Attendance) -> JoinHandle<Result<Left, NatsError>> {
    tokio::spawn(async move { attend(&attendance, &Waits, std::future::pending()).await })
}

fn agents(url: &str, name: &str, of: u16) -> Vec<JoinHandle<Result<Left, NatsError>>> {
    (0..of).map(|index| agent(attendance(url, name, index, of))).collect()
}

async fn finished(agents: Vec<JoinHandle<Result<Left, NatsError>>>) {
    for agent in agents {
        let left = timeout(Duration::from_secs(5), agent).await.unwrap().unwrap().unwrap();
        assert_eq!(left, Left::Finished);
    }
}

/// What came of a block: the clocks, or why there are none, and the records that arrived.
async fn play(run: &Run, block: Block) -> (Result<Vec<ClockRecord>, Aborted>, Vec<Arrival>) {
    let mut arrived = Vec::new();
    let clocks = run.play(block, |arrival| arrived.push(arrival)).await;
    (clocks, arrived)
}

/// The records of a block, which are complete and in order, and the clocks.
async fn records(run: &Run, block: Block, of: u16) -> (Vec<serde_json::Value>, Vec<ClockRecord>) {
    let position = block.position;
    let slots = usize::from(of) + usize::from(block.play.relay.is_some());
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
fn process(url: &str, name: &str, index: u16, of: u16, before: &[&str]) -> Process {
    let words = before.iter().map(|word| (*word).to_owned());
    let mut words = words.chain([env!("CARGO_BIN_EXE_idle").to_owned()]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args(["agents", url, name, &index.to_string(), "1", &of.to_string()]);
    Process(command.stdout(Stdio::piped()).spawn().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn blocks_start_together_and_every_record_comes_once_over_nats() {
    let nats = nats(None);
    let jetstream = jetstream::new(async_nats::connect(&nats.url).await.unwrap());
    for of in [1, 2, 7] {
        // The name is free again when a run has ended.
        let agents = agents(&nats.url, "run", of);
        let run = open(&nats.url, "run", of).await.unwrap();
        run.ready().await.unwrap();
        for position in 0..2 {
            let (records, clocks) = records(&run, block(position, 1), of).await;
            // All of them have this machine's clock, whose offset from itself is 0.
            let starts: Vec<u64> = records.iter().map(|record| record["at_ns"].as_u64().unwrap()).collect();
            let bound_ns = clocks.iter().map(|clock| clock.start_bound_ns).max().unwrap();
            let spread_ns = starts.iter().max().unwrap() - starts.iter().min().unwrap();
            assert!(spread_ns <= 2 * bound_ns && bound_ns <= 5_000_000, "{spread_ns} {bound_ns}");
        }
        let stream = jetstream.get_stream("NSIM").await.unwrap();
        assert_eq!(stream.cached_info().state.messages, u64::from(of), "those of the block before are forgotten");
        assert_eq!(run.finish(), 0);
        finished(agents).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn who_watches_sees_the_run_and_the_sums_of_all_agents_over_nats() {
    let nats = nats(None);
    let of = 3;
    let run = open(&nats.url, "run", of).await.unwrap();
    let mut overview = run.overview();
    let mut agents = vec![agent(attendance(&nats.url, "run", 1, of))];
    let one = overview.wait_for(|run| run.agents[1] == Seen::In(Phase::Claimed));
    let seen = timeout(Duration::from_secs(5), one).await.unwrap().unwrap().clone();
    assert_eq!(
        (seen.state.clone(), seen.agents_in(Seen::Missing).collect::<Vec<_>>()),
        (RunState::Open, vec![0, 2])
    );
    agents.extend([0, 2].map(|index| agent(attendance(&nats.url, "run", index, of))));
    run.ready().await.unwrap();
    let sum = |is_over| {
        let mut sum = LiveCounts::default();
        (0..of).for_each(|index| sum.add(&counted(index, is_over)));
        (sum.sent, sum.deliveries)
    };
    for position in 0..2 {
        let running = async {
            let all = |run: &Overview| run.state == RunState::Running && run.block.connections == 9;
            overview.wait_for(all).await.unwrap().clone()
        };
        let (_, seen) = tokio::join!(records(&run, block(position, 2), of), running);
        assert_eq!((seen.block.sent, seen.block.deliveries), sum(false));
        assert_eq!(seen.agents_in(Seen::In(Phase::Running)).count(), 3);
        // The last counts are there before the block is.
        let seen = overview.borrow_and_update().clone();
        assert_eq!((seen.state, seen.blocks_merged), (RunState::Merged, u64::from(position) + 1));
        assert_eq!((seen.block.sent, seen.block.deliveries), sum(true));
        assert_eq!((seen.block.connections, seen.counts_refused), (0, 0));
        assert_eq!(seen.run.sent, sum(true).0 * (u64::from(position) + 1), "blocks add up");
    }
    run.finish();
    finished(agents).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn an_agent_that_starts_the_relay_says_where_and_is_stopped_last_over_nats() {
    let nats = nats(None);
    let refused = agent(attendance(&nats.url, "run", 2, 2));
    let run = open(&nats.url, "run", 2).await.unwrap();
    let reason = refused.await.unwrap().unwrap_err().to_string();
    assert!(reason.contains("started by no agent"), "{reason}");
    drop(run);
    let mut all = agents(&nats.url, "run", 2);
    all.push(agent(attendance(&nats.url, "run", 2, 2)));
    let run = open_with_relay(&nats.url, "run", 2).await.unwrap();
    run.ready().await.unwrap();
    for position in 0..2 {
        let (records, _) = records(&run, relay_block(position), 2).await;
        let urls: Vec<_> = records.iter().map(|record| record["url"].clone()).collect();
        assert_eq!(urls, [TARGET, TARGET, ""]);
    }
    run.finish();
    finished(all).await;
}

/// Plays a block of 20 s with agents in processes, loses something after its start, and returns
/// how many partial records were kept.
async fn loses(signal: Signal, agent: Option<u16>) -> usize {
    let nats = nats(None);
    let mut agents: Vec<_> = (0..3).map(|index| process(&nats.url, "run", index, 3, &[])).collect();
    let run = open(&nats.url, "run", 3).await.unwrap();
    run.ready().await.unwrap();
    let losing = async {
        sleep(Duration::from_secs(5)).await;
        match agent {
            Some(index) => agents[usize::from(index)].signal(signal),
            None => nats.process.signal(signal),
        }
        let lost = Instant::now();
        // The lost agent is the last of them.
        let others = if agent.is_some() { 2 } else { 3 };
        for agent in agents.drain(..others) {
            let (exit_code, reason) = agent.end(Duration::from_millis(1_200));
            assert_eq!(exit_code, Some(5), "{reason}");
        }
        assert!(lost.elapsed() <= Duration::from_millis(1_200), "all stopped after {:?}", lost.elapsed());
        lost
    };
    let playing = async {
        let (clocks, arrived) = play(&run, block(0, 20)).await;
        (clocks.unwrap_err(), arrived, Instant::now())
    };
    let (lost, (aborted, arrived, known)) = tokio::join!(tokio::task::unconstrained(losing), playing);
    // With the time that partial records are waited for.
    assert!(known - lost <= Duration::from_millis(1_000 + 2_800), "{aborted:?} after {:?}", known - lost);
    for Arrival { index, ending, is_partial } in &arrived {
        assert!(ending.exit_code == Some(5) && *is_partial, "agent {index} says that it was stopped");
    }
    arrived.len()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn a_killed_agent_stops_all_within_a_second_over_nats() {
    assert_eq!(loses(Signal::SIGKILL, Some(2)).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn a_stopped_agent_stops_all_within_a_second_over_nats() {
    assert_eq!(loses(Signal::SIGSTOP, Some(2)).await, 2);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn a_killed_server_stops_all_within_a_second_over_nats() {
    assert_eq!(loses(Signal::SIGKILL, None).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn a_stopped_server_stops_all_within_a_second_over_nats() {
    assert_eq!(loses(Signal::SIGSTOP, None).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn a_coordinator_that_is_gone_stops_its_agents_over_nats() {
    let nats = nats(None);
    let agents = agents(&nats.url, "run", 2);
    let run = open(&nats.url, "run", 2).await.unwrap();
    run.ready().await.unwrap();
    drop(run);
    finished(agents).await;
    let waiting = agent(attendance(&nats.url, "run", 0, 2));
    let run = open(&nats.url, "run", 2).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    drop(run);
    let left = waiting.await.unwrap().unwrap();
    assert!(
        matches!(&left, Left::Stopped { reason, .. } if reason == "the coordinator was stopped"),
        "{left:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn who_does_not_belong_to_the_run_is_refused_over_nats() {
    let nats = nats(None);
    let refused = async |attendance| match agent(attendance).await.unwrap() {
        Err(NatsError::Refused(reason)) => reason,
        other => panic!("{other:?}"),
    };
    assert!(refused(attendance(&nats.url, "run", 3, 2)).await.contains("no agent 3 of 2"));
    let run = open(&nats.url, "run", 2).await.unwrap();
    let first = agent(attendance(&nats.url, "run", 0, 2));
    sleep(Duration::from_millis(700)).await;
    assert!(refused(attendance(&nats.url, "run", 0, 2)).await.contains("holds the slot"));
    assert!(refused(attendance(&nats.url, "run", 1, 3)).await.contains("2 agents"));
    let mut other = attendance(&nats.url, "run", 1, 2);
    other.policy.identity.program_sha256 = "other".to_owned();
    assert!(refused(other).await.contains("program_sha256"));
    let mut elsewhere = attendance(&nats.url, "run", 1, 2);
    elsewhere.policy.targets = vec!["wss://relay.example".to_owned()];
    let second = agent(elsewhere);
    run.ready().await.unwrap();
    assert!(refused(attendance(&nats.url, "run", 1, 2)).await.contains("no longer open"));
    let again = open(&nats.url, "run", 2).await.unwrap_err();
    assert!(matches!(again, NatsError::Taken(_)), "a coordinator started twice: {again}");
    // The target that the second agent does not allow.
    let aborted = play(&run, block(0, 1)).await.0.unwrap_err();
    assert!(aborted.reason.contains("does not allow the target"), "{}", aborted.reason);
    for agent in [first, second] {
        assert!(matches!(agent.await.unwrap().unwrap(), Left::Stopped { .. }));
    }
    assert!(matches!(open("nats://127.0.0.1:1", "run", 1).await.unwrap_err(), NatsError::Connect { .. }));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn a_record_that_is_published_again_is_refused_over_nats() {
    let nats = nats(None);
    let agents = agents(&nats.url, "run", 1);
    let run = open(&nats.url, "run", 1).await.unwrap();
    run.ready().await.unwrap();
    records(&run, block(0, 1), 1).await;
    let subject = "nsim.v1.run.result.0.0.0";
    let jetstream = jetstream::new(async_nats::connect(&nats.url).await.unwrap());
    let stream = jetstream.get_stream("NSIM").await.unwrap();
    let stored = stream.get_last_raw_message_by_subject(subject).await.unwrap();
    let publish = async |headers: HeaderMap| {
        let sent = jetstream.publish_with_headers(subject, headers, "{}".into()).await.unwrap();
        sent.await.map(|acknowledged| acknowledged.duplicate)
    };
    // The message id is known; after the server has forgotten it, the subject is taken; and without
    // the expected sequence, too.
    assert!(publish(stored.headers.clone()).await.unwrap(), "known as a duplicate");
    let mut later = stored.headers.clone();
    later.insert("Nats-Msg-Id", "another");
    let error = publish(later).await.unwrap_err();
    assert!(error.to_string().contains("wrong last sequence"), "{error}");
    let error = publish(HeaderMap::new()).await.unwrap_err();
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("10077"), "{error:?}");
    let after = stream.get_last_raw_message_by_subject(subject).await.unwrap();
    assert_eq!((after.sequence, after.payload), (stored.sequence, stored.payload));
    records(&run, block(1, 1), 1).await;
    run.finish();
    finished(agents).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn two_runs_at_once_do_not_hear_each_other_over_nats() {
    let nats = nats(None);
    let client = async_nats::connect(&nats.url).await.unwrap();
    let play = async |name: &'static str, of| {
        let agents = agents(&nats.url, name, of);
        let run = open(&nats.url, name, of).await.unwrap();
        run.ready().await.unwrap();
        let playing = records(&run, block(0, 2), of);
        let disturbing = async {
            sleep(Duration::from_secs(3)).await;
            let mut headers = HeaderMap::new();
            headers.insert("Nsim-Run", "other:0");
            let abort = r#"{"reason":"from elsewhere"}"#;
            client
                .publish_with_headers(format!("nsim.v1.{name}.abort"), headers.clone(), abort.into())
                .await
                .unwrap();
            let ping = async_nats::Request::new().payload(r#"{"seq":1}"#.into()).headers(headers);
            let ping = ping.timeout(Some(Duration::from_millis(300)));
            let answer = client.send_request(format!("nsim.v1.{name}.agent.0.ping"), ping).await;
            assert_eq!(answer.unwrap_err().kind(), async_nats::RequestErrorKind::TimedOut);
            for garbage in ["", "{", "[]", &"x".repeat(500_000)] {
                client
                    .publish(format!("nsim.v1.{name}.agent.0.cmd"), garbage.to_owned().into())
                    .await
                    .unwrap();
            }
        };
        tokio::join!(playing, disturbing);
        run.finish();
        finished(agents).await;
    };
    tokio::join!(play("one", 2), play("two", 3));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn clocks_seconds_apart_start_within_the_bound_over_nats() {
    let nats = nats(None);
    let of = 3;
    let apart = ["unshare", "--user", "--map-root-user", "--time", "--fork"];
    let seconds = [0, 4, -4];
    let processes = [0, 1, 2].map(|index| {
        let monotonic = format!("--monotonic={}", seconds[usize::from(index)]);
        process(&nats.url, "run", index, of, &[&apart[..], &[monotonic.as_str()]].concat())
    });
    let run = open(&nats.url, "run", of).await.unwrap();
    run.ready().await.unwrap();
    let (clocks, arrived) = play(&run, block(0, 1)).await;
    let stated = |arrival: &Arrival, name: &str| {
        let record: serde_json::Value = serde_json::from_slice(&arrival.ending.record).unwrap();
        record[name].as_i64().unwrap()
    };
    let clocks = clocks.unwrap();
    let first_ns = stated(&arrived[0], "at_ns");
    for ((clock, arrival), seconds) in clocks.iter().zip(&arrived).zip(seconds) {
        // The instant that each was told, but for what its clock shows more than the first one's.
        let at_ns = stated(arrival, "at_ns");
        let off_ns = (at_ns - first_ns - seconds * 1_000_000_000).unsigned_abs();
        let bound_ns = clock.start_bound_ns + clocks[0].start_bound_ns;
        assert!(off_ns <= bound_ns && bound_ns <= 10_000_000, "{off_ns} ns off, bound {bound_ns}");
        // A timer of 1 ms may be late on a busy host.
        assert!((0..20_000_000).contains(&(stated(arrival, "started_ns") - at_ns)));
        // All are one clock, which does not drift from itself.
        assert!(clock.drift_ns.unsigned_abs() <= clock.drift_bound_ns, "{clock:?}");
    }
    run.finish();
    for process in processes {
        assert_eq!(process.end(Duration::from_secs(5)).0, Some(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn an_agent_needs_no_more_than_the_rights_in_the_example_over_nats() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("nats-server.conf");
    let nats = nats(Some(&config));
    let url = |user: &str| nats.url.replace("nats://", &format!("nats://{user}:{user}-secret@"));
    let agents = vec![
        agent(attendance(&url("agent-0"), "run", 0, 2)),
        agent(attendance(&url("agent-1"), "run", 1, 2)),
        // As a coordinator that starts the relay on its own machine.
        agent(attendance(&url("coordinator"), "run", 2, 2)),
    ];
    let run = open_with_relay(&url("coordinator"), "run", 2).await.unwrap();
    run.ready().await.unwrap();
    records(&run, relay_block(0), 2).await;
    // An agent cannot command another, nor publish in its name.
    let options =
        async_nats::ConnectOptions::with_user_and_password("agent-1".into(), "agent-1-secret".into());
    let client = options.connect(&nats.url).await.unwrap();
    let request = async_nats::Request::new().payload("{}".into()).timeout(Some(Duration::from_millis(500)));
    client.send_request("nsim.v1.run.agent.0.cmd", request).await.unwrap_err();
    let jetstream = jetstream::new(client);
    let sent = jetstream.publish("nsim.v1.run.result.0.1.0", "{}".into()).await.unwrap();
    timeout(Duration::from_secs(6), sent.into_future()).await.unwrap().unwrap_err();
    assert!(open(&nats.url, "other", 1).await.is_err(), "without a name");
    run.finish();
    finished(agents).await;
}
