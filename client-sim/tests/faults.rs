//! Faults between relay and clients, and the limits of both: what docs/faults.md promises.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod common;

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use common::{Relay, program};
use corpus::Corpus;
use measure::{RunRecord, Status, ValidityClass};
use serde_json::{Value, json};

/// A fault of the network, as toxiproxy has it.
struct Toxic {
    kind: &'static str,
    /// `downstream` is what the relay sends, `upstream` what clients send.
    stream: &'static str,
    attributes: Value,
}

impl Toxic {
    fn of_the_relays_words(kind: &'static str, attributes: Value) -> Toxic {
        Toxic { kind, stream: "downstream", attributes }
    }

    /// Swallows what one end says, and leaves its connections open for ever.
    fn half_open(stream: &'static str) -> Toxic {
        Toxic { kind: "timeout", stream, attributes: json!({ "timeout": 0 }) }
    }
}

/// A proxy that spoils the network on request (toxiproxy,
/// <https://github.com/Shopify/toxiproxy>).
struct Proxy {
    child: Child,
    api: SocketAddr,
    url: String,
}

impl Proxy {
    fn before(relay: &str) -> Proxy {
        // A port that was bound and released.
        let api = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let child = Command::new("toxiproxy-server")
            .args(["-host", "127.0.0.1", "-port", &api.port().to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("toxiproxy-server is on PATH");
        let mut proxy = Proxy { child, api, url: String::new() };
        let upstream = relay.strip_prefix("ws://").unwrap();
        let wanted =
            json!({ "name": "relay", "listen": "127.0.0.1:0", "upstream": upstream, "enabled": true });
        let made = proxy.post("/proxies", &wanted);
        proxy.url = format!("ws://{}", made["listen"].as_str().unwrap());
        proxy
    }

    /// From now on the network has this fault, for open connections, too.
    fn spoil(&self, toxic: &Toxic) {
        let Toxic { kind, stream, attributes } = toxic;
        let toxic = json!({
            "name": "fault", "type": kind, "stream": stream, "toxicity": 1.0, "attributes": attributes,
        });
        self.post("/proxies/relay/toxics", &toxic);
    }

    /// Asks over HTTP, and returns the answer's JSON.
    fn post(&self, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let mut stream = self.connect();
        let length = body.len();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}",
            self.api
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 20"), "{answer}");
        serde_json::from_str(body).unwrap()
    }

    fn connect(&self) -> TcpStream {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            match TcpStream::connect(self.api) {
                Ok(stream) => return stream,
                Err(error) => assert!(Instant::now() < deadline, "toxiproxy-server does not listen: {error}"),
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Notes that a run plans, at 100 a second.
const NOTES: u64 = 200;

/// How a run ended whose network was spoilt after its first second.
struct Played {
    code: Option<i32>,
    record: RunRecord,
    said: String,
    /// Lines of `--ledger`.
    named: u64,
}

fn play(relay: &str, toxic: &Toxic, drain_seconds: u32) -> Played {
    let proxy = Proxy::before(relay);
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    // To plan with the whole sample would cost more than the run.
    let mut notes = Corpus::bundled().events;
    notes.retain(|event| event.kind == 1);
    notes.truncate(400);
    corpus::write(&file("notes.jsonl"), &notes).unwrap();
    let mut command = program();
    command.args(["--scenario", "note-stream", "--seconds", "2", "--rate", "100", "--quiet", "--corpus"]);
    command.arg(file("notes.jsonl"));
    command.args(["--progress-json", "--drain-seconds", &drain_seconds.to_string(), "--url", &proxy.url]);
    command.args(["--format", "json", "--compression", "none"]);
    command.arg("--record").arg(file("record.json")).arg("--ledger").arg(file("ledger.jsonl"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut seconds = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(seconds.next().unwrap().unwrap().contains("\"samples\""), "the load has begun");
    proxy.spoil(toxic);
    let rest = thread::spawn(move || seconds.count());
    let output = child.wait_with_output().unwrap();
    rest.join().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let record = RunRecord::read(&file("record.json")).unwrap_or_else(|error| panic!("{error}: {said}"));
    let named = fs::read_to_string(file("ledger.jsonl")).unwrap().lines().count() as u64;
    assert_eq!(record.counts.planned, NOTES);

    assert_served(relay);
    Played { code: output.status.code(), record, said, named }
}

/// Whatever befell some clients is nothing to the relay, which tells the next one of itself
/// (NIP-11).
fn assert_served(relay: &str) {
    let mut stream = TcpStream::connect(relay.strip_prefix("ws://").unwrap()).unwrap();
    let request =
        "GET / HTTP/1.1\r\nHost: relay\r\nAccept: application/nostr+json\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("supported_nips"), "{answer}");
}

/// Plays each at the same time, with a relay and a proxy of its own: most of it is waiting.
fn play_all(toxics: &[Toxic]) -> Vec<Played> {
    let one = |toxic| play(&Relay::start(&[]).url, toxic, 3);
    thread::scope(|scope| {
        let plays: Vec<_> = toxics.iter().map(|toxic| scope.spawn(move || one(toxic))).collect();
        plays.into_iter().map(|play| play.join().unwrap()).collect()
    })
}

#[test]
#[ignore = "needs toxiproxy-server"]
fn toxiproxy_that_slows_the_network_loses_nothing_and_is_latency() {
    let toxics = [
        Toxic::of_the_relays_words("latency", json!({ "latency": 100, "jitter": 50 })),
        Toxic::of_the_relays_words("bandwidth", json!({ "rate": 30 })),
        Toxic::of_the_relays_words(
            "slicer",
            json!({ "average_size": 64, "size_variation": 32, "delay": 100 }),
        ),
        Toxic::of_the_relays_words("slow_close", json!({ "delay": 1_000 })),
    ];
    let least_p99_ms = [50, 300, 0, 0];
    for ((toxic, played), p99_ms) in toxics.iter().zip(play_all(&toxics)).zip(least_p99_ms) {
        let Played { code, record, said, named } = played;
        let kind = toxic.kind;
        // Allows 3: late answers on a busy machine make a run invalid.
        assert!(matches!(code, Some(0 | 3)), "{kind}: {said}");
        let found = (record.counts.balanced(), &record.status, named);
        assert_eq!(found, (Ok(()), &Status::Complete, 0), "{kind}");
        assert_eq!(record.counts.deliveries, 8 * NOTES, "{kind}");
        let p99_ns = record.latency["response"].quantile_ns(0.99).ns().unwrap();
        assert!(p99_ns >= p99_ms * 1_000_000, "{kind}: p99 {p99_ns} ns: the fault was there");
    }
}

#[test]
#[ignore = "needs toxiproxy-server"]
fn toxiproxy_that_ends_connections_ends_the_run_and_what_was_measured_is_kept() {
    let toxics = [
        Toxic::of_the_relays_words("reset_peer", json!({ "timeout": 0 })),
        Toxic::of_the_relays_words("limit_data", json!({ "bytes": 20_000 })),
        Toxic::of_the_relays_words("timeout", json!({ "timeout": 500 })),
    ];
    for (toxic, played) in toxics.iter().zip(play_all(&toxics)) {
        let Played { code, record, said, named } = played;
        let kind = toxic.kind;
        assert_eq!(code, Some(5), "{kind}: {said}");
        assert!(matches!(record.status, Status::Incomplete { .. }), "{kind}: {:?}", record.status);
        let counts = record.counts;
        assert!(counts.deliveries > 0, "{kind}: {counts:?}");
        assert!(counts.unknown + counts.not_sent > 0, "what was not answered is said: {kind}: {counts:?}");
        assert_eq!(named, counts.deliveries_lost, "{kind}: one line a lost delivery");
    }
}

/// Nothing but silence tells clients of such a relay: `--drain-seconds` after the last answer, or
/// after the last publication was due, the run is over.
#[test]
#[ignore = "needs toxiproxy-server"]
fn toxiproxy_that_swallows_what_the_relay_says_ends_the_run_after_its_patience() {
    let relay = Relay::start(&[]);
    let Played { code, record, said, named } = play(&relay.url, &Toxic::half_open("downstream"), 2);
    // 3: the scenario expects more deliveries; 4: some OK came and their deliveries did not.
    assert!(matches!(code, Some(3 | 4)), "{code:?}: {said}");
    assert_eq!(record.status, Status::Complete, "the relay had its time to answer");
    let counts = record.counts;
    assert!(counts.deliveries > 0 && counts.timed_out > 0, "{counts:?}");
    assert_eq!(counts.acked + counts.timed_out, NOTES, "every note has its fate: {counts:?}");
    assert_eq!(named, counts.deliveries_lost, "one line a lost delivery");
}

/// The relay hears neither notes nor pongs. Had it not closed the connections, the clients would
/// have waited for a minute, and the run would be complete.
#[test]
#[ignore = "needs toxiproxy-server"]
fn toxiproxy_that_swallows_what_clients_say_is_noticed_by_the_relay() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let relay = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let mut config = relay_sim::Config::default();
            config.verify = codecs::VerifyLevel::None;
            config.ping_interval = Duration::from_secs(1);
            let stopped = async { drop(stopped.await) };
            relay_sim::serve(listener, config, stopped).await.unwrap()
        })
    });
    let Played { code, record, said, named } = play(&url, &Toxic::half_open("upstream"), 60);
    stop.send(()).unwrap();
    let totals = relay.join().unwrap();
    assert!(totals.silent_peers > 0, "{totals:?}");
    assert_eq!(code, Some(5), "{said}");
    assert!(matches!(record.status, Status::Incomplete { .. }), "{:?}", record.status);
    let counts = record.counts;
    assert!(counts.deliveries > 0 && counts.unknown + counts.not_sent > 0, "{counts:?}");
    assert_eq!(counts.acked + counts.unknown + counts.not_sent, NOTES, "every note has its fate: {counts:?}");
    assert_eq!(named, counts.deliveries_lost, "one line a lost delivery");
}

/// Reads half a kilobyte a second each, where every note is nearly a kilobyte: the rest waits in
/// the relay and the kernel.
#[test]
#[ignore = "needs 10,200 descriptors a process, and minutes"]
fn campaign_of_ten_thousand_slow_readers_who_lose_nothing_and_delay_no_quick_one() {
    const SLOW: u64 = 10_000;
    const NOTES: u64 = 20;
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("slow.toml");
    let text = format!(
        r#"
        question = "Who waits for whom?"
        learn = "That the quick one waits for nobody."
        seconds = 1
        publish = [{{ connections = 1, arrival = {{ shape = "closed", rounds = {NOTES} }}, window = 1, kinds = [1] }}]

        [[subscribe]]
        name = "slow"
        connections = {SLOW}
        read_bytes_per_s = 500
        filter = [{{ kinds = [1] }}]

        [[subscribe]]
        name = "quick"
        connections = 1
        filter = [{{ kinds = [1] }}]
        "#
    );
    fs::write(&scenario, text).unwrap();
    let record = folder.path().join("record.json");
    let mut command = program();
    command.args(["--drain-seconds", "120", "--verify", "none", "--quiet", "--scenario"]).arg(scenario);
    let output = command.arg("--record").arg(&record).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{said}");
    let record = RunRecord::read(&record).unwrap();
    let counts = record.counts;
    assert_eq!((counts.balanced(), record.connections), (Ok(()), SLOW + 2), "{said}");
    assert_eq!((counts.deliveries, counts.readers_cut_off), (NOTES * (SLOW + 1), 0), "{counts:?}");
    assert_eq!(record.latency["response.quick"].len(), NOTES);
}

#[test]
fn a_plan_that_does_not_fit_into_memory_is_refused_before_it_is_made() {
    let rate = ["--rate", "10000000", "--max-rate", "20000000"];
    for extra in [&rate[..2], &rate[..], &["--load", "5000"]] {
        let output = Command::new("sh")
            .args(["-c", "ulimit -v 8000000 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_client-sim")])
            .args(["--scenario", "note-stream", "--seconds", "4"])
            .args(extra)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("about 40000000 publications") && said.contains("may have 3.8 GiB"), "{said}");
        assert!(said.contains("publications would fit: lower --load, --rate or --seconds"), "{said}");
    }
}

#[test]
fn too_few_descriptors_for_the_plan_are_named_before_it_begins() {
    for (extra, connections, needed) in [
        (["--scenario=note-stream", "--set=subscribe.connections=200"], 201, 265),
        (["--scenario=follow-list-burst", "--load=4"], 220, 284),
    ] {
        let output = Command::new("sh")
            .args(["-c", "ulimit -n 100 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_client-sim")])
            .args(extra)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains(&format!("{connections} connections need {needed} descriptors"))
                && said.contains("may open 100 here"),
            "{said}"
        );
    }
}

#[test]
fn a_run_that_logs_every_message_is_suspect_by_client_and_relay() {
    let folder = tempfile::tempdir().unwrap();
    let play = |level: Option<&str>| {
        let file = folder.path().join("record.json");
        let mut client = program();
        client.args(["--scenario", "note-stream", "--rate", "20", "--seconds", "1", "--quiet", "--record"]);
        client.arg(&file).env_remove("RUST_LOG");
        client.envs(level.map(|level| ("RUST_LOG", level))).output().unwrap();
        RunRecord::read(&file).unwrap()
    };
    for (level, shown, count) in [
        (Some("trace"), "trace", 2),
        (Some("relay_sim=debug"), "debug", 2),
        (Some("warn,tungstenite=trace"), "trace", 2),
        (Some("info"), "info", 0),
        (Some("no level, =at all"), "warn", 0),
        (None, "warn", 0),
    ] {
        let record = play(level);
        let of_relay = record.relay.as_ref().unwrap().log_level.as_deref();
        assert_eq!((record.log_level.as_deref(), of_relay), (Some(shown), Some(shown)), "{level:?}");
        let said = record.validity.to_string();
        assert_eq!(said.matches("log level of").count(), count, "{level:?}: {:?}", record.validity);
        assert!(count == 0 || record.validity.class >= ValidityClass::Suspect, "{level:?}");
    }
}

#[test]
fn a_limit_of_file_sizes_costs_the_record_and_not_the_summary() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("sh")
        .args(["-c", "ulimit -f 16 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_client-sim")])
        .args(["--scenario", "note-stream", "--seconds", "1", "--record", "record.json"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code().is_some_and(|code| code != 0), "{:?}: {said}", output.status);
    assert!(said.contains("record.json") && said.contains("File too large"), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("publications accepted"), "{output:?}");
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "no torn file");
}
