//! Several processes play shares of one plan against one relay, and their records make one.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Read, Write},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Stdio},
    time::{Duration, Instant},
};

use codecs::{ClientMessage, Filter, Format, Implementation, RelayMessage};
use measure::{Counts, Latency, LiveCounts, RunRecord, Status, ValidityClass};
use nix::time::{ClockId, clock_gettime};
use tempfile::TempDir;
use wire::{Compression, Offer, WireLimits};

use crate::{
    common::{Relay, program},
    events::write_few,
};

/// Deliveries here do not depend on time: no stays, no reconciliations.
const TIMELESS: &str = r#"
question = "Do shares make the whole?"
learn = "Whether they do."
seconds = 2

[[publish]]
connections = 9
arrival = { shape = "poisson", rate_per_s = 100 }

[[subscribe]]
name = "readers"
connections = 8

[[subscribe.filter]]
kinds = [1, 7, 3]

[[request]]
connections = 10
arrival = { shape = "burst", period_ms = 500 }

[[request.step]]
kinds = [3]
authors = 1

[[request.step]]
kinds = [1, 3]
authors = 20
known = 5
chunk = 10

[expect]
connections = { min = 27, max = 27 }
published = { min = 150 }
"#;

/// Deliveries here follow from instants, which other agents know by plan alone.
const TIMED: &str = r#"
question = "Is what another agent publishes owed to a stay, a slow reader, a reconciliation?"
learn = "Whether it is."
seconds = 2

[[publish]]
connections = 4
arrival = { shape = "poisson", rate_per_s = 60 }
kinds = [1]

[[subscribe]]
connections = 3
read_bytes_per_s = 20000

[[subscribe.filter]]
kinds = [1]

[[request]]
connections = 6
arrival = { shape = "poisson", rate_per_s = 8 }
connect = "per-session"
stay_ms = 400

[[request.step]]
kinds = [1]
authors = 1

[[request.live]]
kinds = [1]
"#;

/// No agent knows when another's is done.
const CLOSED_LOOP: &str = r#"
[[publish]]
connections = 2
arrival = { shape = "closed", rounds = 20 }
window = 4
kinds = [1]
"#;

/// All is due at time zero, but for one population.
const AT_ONCE: &str = r#"
question = "Does a share miss what comes early, or leave what comes late?"
learn = "Whether it does."
seconds = 2

[[publish]]
connections = 2
arrival = { shape = "burst", period_ms = 5000 }
kinds = [1]

[[subscribe]]
connections = 2

[[subscribe.filter]]
kinds = [1]

[[publish]]
connections = 1
arrival = { shape = "constant", rate_per_s = 50 }
kinds = [7]
"#;

/// Clients find what other agents' clients published before.
const SYNCED: &str = r#"
question = "May a relay name what another agent published?"
learn = "Whether it may."
seconds = 2

[[publish]]
connections = 3
arrival = { shape = "poisson", rate_per_s = 60 }

[[reconcile]]
connections = 3
arrival = { shape = "burst", period_ms = 1000 }
have = 0.9
extra = 4
frame_bytes = 64000
"#;

struct Setup {
    folder: TempDir,
}

impl Setup {
    fn new(scenario: &str) -> Setup {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("plan.toml"), scenario).unwrap();
        // A relay of our own refuses nothing.
        fs::write(folder.path().join("unasked.json"), "{}").unwrap();
        write_few(&folder.path().join("corpus.jsonl"));
        Setup { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a process with a record of its own.
    fn start(&self, url: &str, name: &str, extra: &[&str]) -> Child {
        let mut command = program();
        command.arg("--scenario").arg(self.path("plan.toml")).arg("--corpus").arg(self.path("corpus.jsonl"));
        command.args(["--url", url, "--doctor"]).arg(self.path("unasked.json"));
        command.arg("--record").arg(self.path(name)).args(extra);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn share(&self, url: &str, share: &str, extra: &[&str]) -> Agent {
        let name = share.replace('/', "-");
        let extra = [&["--share", share, "--progress-json"], extra].concat();
        let mut child = self.start(url, &name, &extra);
        Agent {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            record: self.path(&name),
        }
    }

    /// Plays the plan over so many agents, and returns their records.
    fn play(&self, relay: &Relay, of: u16, seed: &str) -> Vec<RunRecord> {
        self.play_told(relay, of, seed).into_iter().map(|(record, _)| record).collect()
    }

    /// The same with what each agent told while it played.
    fn play_told(&self, relay: &Relay, of: u16, seed: &str) -> Vec<(RunRecord, Vec<LiveCounts>)> {
        let mut agents: Vec<Agent> = (0..of)
            .map(|index| {
                let flags = ["--seed", seed, "--block-id", "a"];
                self.share(&relay.url, &format!("{index}/{of}"), &flags)
            })
            .collect();
        let prepared: BTreeSet<String> = agents.iter_mut().map(Agent::prepared).collect();
        assert_eq!(prepared.len(), 1, "all play one plan over one corpus: {prepared:?}");
        let start_ns = monotonic_ns() + 700_000_000;
        agents.iter_mut().for_each(|agent| agent.say(&format!("start {start_ns}\n")));
        let records = agents.into_iter().map(|agent| {
            let ended = agent.end();
            // Allows 3: a busy machine may make the timing of a short run invalid, but never its
            // ledger.
            assert!(matches!(ended.code, Some(0 | 3)), "{:?}: {}", ended.code, ended.text);
            (RunRecord::read(&ended.record).unwrap(), ended.told)
        });
        records.collect()
    }
}

/// A process that plays a share.
struct Agent {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    record: PathBuf,
}

struct Ended {
    code: Option<i32>,
    text: String,
    record: PathBuf,
    /// Counts so far, line by line.
    told: Vec<LiveCounts>,
}

impl Agent {
    /// The line with which it says that it is prepared.
    fn prepared(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let said: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        let is_hash = |name: &str| said["prepared"][name].as_str().is_some_and(|hash| hash.len() == 64);
        if !(is_hash("plan_sha256") && is_hash("corpus_sha256")) {
            let mut text = String::new();
            self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
            panic!("{line:?} {text}");
        }
        line
    }

    fn say(&mut self, line: &str) {
        self.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }

    /// Waits for its end, with standard input open until then.
    fn end(mut self) -> Ended {
        let told = (&mut self.stdout).lines().filter_map(|line| {
            let line: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
            Some(serde_json::from_value(line.get("so_far")?.clone()).unwrap())
        });
        let told = told.collect();
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        Ended { code: self.child.wait().unwrap().code(), text, record: self.record, told }
    }
}

fn monotonic_ns() -> u64 {
    let now = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap());
    u64::try_from(now.as_nanos()).unwrap()
}

fn relay() -> Relay {
    Relay::start(&["--keep-expired", "--default-limit", "100000", "--max-limit", "100000"])
}

/// The ids of all events that a relay holds.
fn held(relay: &Relay) -> BTreeSet<[u8; 32]> {
    let offer = Offer { formats: vec![Format::JSON], batched: false, compression: Compression::None };
    let codec = Format::JSON.codec(Implementation::Library).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut peer = wire::connect(&relay.url, &offer, &WireLimits::default()).await.unwrap();
        let mut request = Vec::new();
        let all = ClientMessage::Req { subscription: "all".into(), filters: vec![Filter::default()] };
        codec.encode_client(&all, &mut request).unwrap();
        peer.feed(request.into()).await.unwrap();
        peer.flush().await.unwrap();
        let mut ids = BTreeSet::new();
        loop {
            let message = peer.next().await.unwrap().unwrap();
            match codec.decode_relay(&message.payload).unwrap() {
                RelayMessage::Event { event, .. } => assert!(ids.insert(event.id)),
                RelayMessage::Eose { .. } => return ids,
                other => panic!("{other:?}"),
            }
        }
    })
}

/// The ledger without what depends on the moment: a live event that comes between EOSE and CLOSE.
fn timeless(counts: Counts) -> Counts {
    Counts { deliveries_after_close: 0, ..counts }
}

/// How many samples a metric has; none where it is absent.
fn samples(record: &RunRecord, metric: &str) -> u64 {
    record.latency.get(metric).map_or(0, Latency::len)
}

#[test]
fn any_number_of_agents_sends_the_same_events_with_the_same_ledger() {
    let setup = Setup::new(TIMELESS);
    let alone = relay();
    let output = setup.start(&alone.url, "alone", &["--seed", "7"]).wait_with_output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", String::from_utf8_lossy(&output.stderr));
    let whole = RunRecord::read(&setup.path("alone")).unwrap();
    whole.counts.balanced().unwrap();
    let ids = held(&alone);
    assert!(ids.len() as u64 > whole.counts.planned && whole.counts.deliveries > whole.counts.planned);
    for of in [1, 2, 7] {
        let relay = relay();
        let (records, told): (Vec<_>, Vec<_>) = setup.play_told(&relay, of, "7").into_iter().unzip();
        for (record, told) in records.iter().zip(&told) {
            record.counts.balanced().unwrap();
            assert!(told.len() >= 2 && told.is_sorted_by(|one, next| next.follows(one)), "{told:?}");
            assert!(told.iter().rev().skip(1).all(|counts| counts.connections == record.connections));
            let last = told.last().unwrap();
            assert_eq!((last.connections, last.sent), (0, record.counts.planned));
            assert_eq!(last.deliveries, record.counts.deliveries, "the last line has all");
            assert_eq!(last.latency.samples(), samples(record, "response"));
            assert_eq!((&record.status, record.relay.is_none()), (&Status::Complete, true));
            let share = record.share.as_ref().unwrap();
            assert!(share.started_late_ns < 500_000_000, "{share:?}");
            assert!(share.handshake_ns_min.is_some_and(|ns| ns > 0 && ns < 5_000_000_000), "{share:?}");
        }
        let merged = RunRecord::merge(records.iter().cloned()).unwrap();
        assert_eq!(timeless(merged.counts), timeless(whole.counts), "{of} agents");
        assert_eq!(held(&relay), ids, "{of} agents");
        assert_eq!((merged.connections, merged.agents.len()), (whole.connections, usize::from(of)));
        assert_eq!(merged.validity.counts, ValidityClass::Valid, "{:?}", merged.validity.reasons);
        // Expectations that agents of 27 users are too few for are judged over all of them.
        assert!(!merged.validity.to_string().contains("expected at"));
        let publications = merged.traffic.to_relay.messages;
        assert_eq!(publications, whole.traffic.to_relay.messages, "{of} agents");
        for (metric, latency) in &merged.latency {
            let each = records.iter().map(|record| samples(record, metric));
            assert_eq!(latency.len(), each.sum::<u64>(), "{metric}, {of} agents");
        }
        assert_eq!(samples(&merged, "publish_ok"), whole.counts.acked);
        assert_eq!(samples(&merged, "eose"), whole.counts.requests_completed);
        // One clock times both ends of a delivery, or nobody does.
        let (timed, all) = (samples(&merged, "response"), samples(&whole, "response"));
        assert!(if of == 1 { timed == all } else { 0 < timed && timed < all }, "{timed} of {all}");
        let rates = &merged.throughput.as_ref().unwrap().envelopes_per_s;
        let longest =
            records.iter().filter_map(|record| Some(record.throughput.as_ref()?.envelopes_per_s.max_ns()));
        assert!(rates.len() > 3 && rates.max_ns() >= longest.max().unwrap(), "envelopes add up by interval");
    }
}

/// The ledger of three agents together, each of which balances.
fn ledger_of_three(scenario: &str) -> Counts {
    let records = Setup::new(scenario).play(&relay(), 3, "7");
    for record in &records {
        record.counts.balanced().unwrap();
    }
    let merged = RunRecord::merge(records).unwrap();
    let counts = merged.counts;
    assert_eq!((counts.balanced(), merged.status), (Ok(()), Status::Complete));
    assert_eq!(counts.acked, counts.planned);
    counts
}

#[test]
fn what_other_agents_publish_is_owed_to_stays_and_to_subscribers() {
    let closed = TIMED.replace("read_bytes_per_s = 20000", "") + CLOSED_LOOP;
    for scenario in [TIMED, &closed] {
        let counts = ledger_of_three(scenario);
        // Three subscribers, slow or not, get everything. A stay of 0.4 s has some 24 events in it,
        // of which its own agent publishes a third.
        assert_eq!(counts.readers_cut_off, 0);
        assert!(counts.deliveries > 3 * counts.planned + 14 * counts.requests, "{counts:?}");
    }
}

#[test]
fn slow_readers_beside_a_closed_loop_are_refused() {
    let setup = Setup::new(&format!("{TIMED}{CLOSED_LOOP}"));
    let flags = ["--seed", "7", "--share", "0/2"];
    let output = setup.start("ws://127.0.0.1:1", "none", &flags).wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("slow readers (read_bytes_per_s) beside a closed loop"), "{text}");
}

#[test]
fn a_share_is_refused_whose_plan_publishes_or_connects_more_than_allowed() {
    // Due in the second from 0.2 s on are 40, in the plan's first second 32.
    let ramped = r#"
question = "Does load count?"
learn = "Whether it does."

[[phase]]
name = "calm"
seconds = 0.7
load = [1, 1]

[[phase]]
name = "rush"
seconds = 0.5
load = [3, 3]

[[publish]]
connections = 2
arrival = { shape = "constant", rate_per_s = 20 }
"#;
    let looped = format!("{AT_ONCE}{CLOSED_LOOP}");
    let in_a_loop = "the plan publishes in a closed loop";
    let (rate, connections) = ("--max-rate", "--max-connections");
    // Users go to the agents in turn: of AT_ONCE three to the first and two to the second; of TIMED
    // six to the second, of which three connect anew for each of their sessions.
    for (scenario, share, flag, most, refusal) in [
        (AT_ONCE, "0/2", rate, "52", None),
        (AT_ONCE, "0/2", rate, "51", Some("up to 52 events in a second")),
        (ramped, "0/2", rate, "40", None),
        (ramped, "0/2", rate, "39", Some("up to 40 events in a second")),
        (&looped, "0/2", rate, "1000", Some(in_a_loop)),
        (SYNCED, "0/2", rate, "1000", Some(in_a_loop)),
        (AT_ONCE, "0/2", connections, "3", None),
        (AT_ONCE, "0/2", connections, "2", Some("this share of the plan makes 3 connections")),
        (AT_ONCE, "1/2", connections, "2", None),
        (TIMED, "1/2", connections, "4", Some("this share of the plan makes ")),
        (TIMED, "1/2", connections, "100", None),
    ] {
        let flags = ["--seed", "7", "--share", share, flag, most];
        let output =
            Setup::new(scenario).start("ws://127.0.0.1:1", "none", &flags).wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        match refusal {
            Some(says) => assert!(output.status.code() == Some(2) && text.contains(says), "{text}"),
            // Nobody is there to play against.
            None => assert!(output.status.code() == Some(1) && !text.contains(flag), "{text}"),
        }
    }
}

#[test]
fn a_share_hears_what_comes_before_its_start_and_stays_to_the_end_of_the_plan() {
    let setup = Setup::new(AT_ONCE);
    let relay = relay();
    // Agents 0 and 1 publish at time zero, agent 2 all the time; agents 3 and 4 subscribe.
    let mut agents: Vec<Agent> =
        (0..5).map(|index| setup.share(&relay.url, &format!("{index}/5"), &["--seed", "7"])).collect();
    agents.iter_mut().for_each(|agent| drop(agent.prepared()));
    let start_ns = monotonic_ns() + 700_000_000;
    // Another machine's clock.
    let late_ns = |index| if index == 3 { 30_000_000 } else { 0 };
    for (index, agent) in agents.iter_mut().enumerate() {
        agent.say(&format!("start {}\n", start_ns + late_ns(index)));
    }
    let ends = agents.into_iter().map(|agent| {
        let ended = agent.end();
        let record = RunRecord::read(&ended.record).unwrap();
        assert!(matches!(ended.code, Some(0 | 3)), "{:?}: {}", ended.code, ended.text);
        (record.counts.deliveries, monotonic_ns() - start_ns)
    });
    let ends: Vec<(u64, u64)> = ends.collect();
    let deliveries: Vec<u64> = ends.iter().map(|(deliveries, _)| *deliveries).collect();
    assert_eq!(deliveries, [0, 0, 0, 2, 2]);
    assert!(ends[0].1 > 1_900_000_000, "its own work was done at once, the last event is due at 1.98 s");
}

#[test]
fn a_reconciliation_may_name_what_other_agents_published() {
    let counts = ledger_of_three(SYNCED);
    assert_eq!(counts.reconciliations, 6);
    let extra = 6 * 4;
    assert!(counts.deliveries > extra && counts.planned > extra, "{counts:?}");
}

#[test]
fn a_share_whose_agent_goes_falls_silent_or_says_stop_sends_nothing_more_and_keeps_what_it_measured() {
    type Stop = fn(&mut Agent);
    let setup = Setup::new(TIMELESS);
    let stops: [(Stop, &str); 4] = [
        (|agent| agent.stdin = None, "standard input ended"),
        (|agent| agent.say("stop\n"), "the coordinator said stop"),
        (|agent| agent.say("go on\n"), "no order: \"go on\""),
        (|_| {}, "the agent is silent"),
    ];
    for (stop, says) in stops {
        let relay = relay();
        let mut agent = setup.share(&relay.url, "0/1", &["--seed", "7", "--seconds", "30"]);
        agent.prepared();
        agent.say(&format!("start {}\n", monotonic_ns() + 600_000_000));
        // Longer than the silence that it bears.
        for _ in 0..8 {
            agent.say("on\n");
            std::thread::sleep(Duration::from_millis(200));
        }
        assert!(agent.child.try_wait().unwrap().is_none(), "it plays while it hears of its agent");
        let (stopped, before) = (Instant::now(), held(&relay).len());
        stop(&mut agent);
        let ended = agent.end();
        assert!(stopped.elapsed() < Duration::from_secs(2), "{says}: {:?}", stopped.elapsed());
        assert_eq!(ended.code, Some(5), "{}", ended.text);
        assert!(ended.text.contains(says), "{}", ended.text);
        let record = RunRecord::read(&ended.record).unwrap();
        assert!(matches!(&record.status, Status::Incomplete { reason } if reason.contains(says)));
        let counts = record.counts;
        assert!(counts.acked > 20 && counts.unknown + counts.not_sent > counts.acked, "{counts:?}");
        let after = held(&relay);
        assert!(after.len() - before < 200, "100 events a second were due");
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(held(&relay), after);
    }
}

#[test]
fn what_another_agent_does_not_send_is_lost_here() {
    let setup = Setup::new(TIMELESS);
    let relay = relay();
    let flags = ["--seed", "7", "--drain-seconds", "1"];
    let [mut plays, mut leaves] = ["0/2", "1/2"].map(|share| setup.share(&relay.url, share, &flags));
    assert_eq!(plays.prepared(), leaves.prepared());
    plays.say(&format!("start {}\n", monotonic_ns() + 700_000_000));
    leaves.stdin = None;
    let [left, played] = [leaves, plays].map(Agent::end);
    assert_eq!((left.code, played.code), (Some(5), Some(4)), "{} {}", left.text, played.text);
    let [left, played] = [left, played].map(|ended| RunRecord::read(&ended.record).unwrap());
    assert_eq!(played.status, Status::Complete);
    assert!(played.counts.acked == played.counts.planned && played.counts.deliveries_lost > 0);
    let merged = RunRecord::merge([left, played]).unwrap();
    let reason = "agent 1: standard input ended".to_owned();
    assert_eq!(merged.status, Status::Incomplete { reason });
    assert_eq!(merged.validity.counts, ValidityClass::Invalid);
}

#[test]
fn nothing_is_published_before_the_start_nor_without_one() {
    let setup = Setup::new(TIMELESS);
    let relay = relay();
    let mut agent = setup.share(&relay.url, "0/1", &["--seed", "7"]);
    agent.prepared();
    let stored = held(&relay);
    agent.say(&format!("start {}\n", monotonic_ns() - 1_000_000_000));
    let ended = agent.end();
    assert_eq!(ended.code, Some(1), "{}", ended.text);
    assert!(ended.text.contains("ms ahead, and must be 500 ms ahead or more"), "{}", ended.text);
    assert!(!ended.record.exists());

    let mut agent = setup.share(&relay.url, "0/1", &["--seed", "7"]);
    agent.prepared();
    agent.stdin = None;
    let ended = agent.end();
    assert_eq!(ended.code, Some(5), "{}", ended.text);
    let record = RunRecord::read(&ended.record).unwrap();
    assert!(record.counts.not_sent == record.counts.planned && record.counts.planned > 0);
    assert_eq!(held(&relay), stored);

    let mut agent = setup.share(&relay.url, "1/2", &["--seed", "8"]);
    agent.say(&"stop".repeat(1_000));
    let ended = agent.end();
    assert_eq!(ended.code, Some(1), "{}", ended.text);
    assert!(ended.text.contains("a line beyond 1 KiB") && !ended.record.exists(), "{}", ended.text);
}

#[test]
fn a_share_needs_a_relay_that_others_share_a_seed_and_an_index_below_its_number() {
    let setup = Setup::new(TIMELESS);
    let url = ["--url", "ws://127.0.0.1:1"];
    let cases: [(&[&str], &str); 5] = [
        (&["--share", "0/2", "--seed", "1"], "--url"),
        (&["--share", "0/2", "--url", url[1]], "--seed"),
        (&["--share", "2/2", "--seed", "1", "--url", url[1]], "expected I/N"),
        (&["--share", "0/65536", "--seed", "1", "--url", url[1]], "expected I/N"),
        (&["--share", "0/2", "--seed", "1", "--url", url[1], "--relay-pid", "1"], "--relay-pid"),
    ];
    for (flags, says) in cases {
        let output = program().arg("--scenario").arg(setup.path("plan.toml")).args(flags).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(says), "{text}");
    }
}
