//! `compare run --agents` and `compare agent` as processes, over a real NATS server.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use agents::{Block, Commanded, Play, Player};
use compare::ResultFile;
use corpus::Corpus;
use futures::future::{join_all, try_join_all};
use measure::{ClockRecord, LiveCounts, RunRecord, Status};
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot, watch};

/// A process that ends with the test.
struct Process(Child);

impl Process {
    fn end(&mut self, within: Duration) -> Option<i32> {
        let since = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(since.elapsed() < within, "it goes on after {within:?}");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server and a relay of this test's own, and a folder.
struct Site {
    nats: String,
    relay: String,
    folder: TempDir,
    _processes: [Process; 2],
}

fn site() -> Site {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("nats-server");
    command.args(["-js", "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir"]).arg(folder.path());
    command.arg("-sd").arg(folder.path().join("store")).stderr(Stdio::null());
    let nats = Process(command.spawn().expect("needs nats-server"));
    let (relay_process, relay) = relay();
    let ports = folder.path().join(format!("nats-server_{}.ports", nats.0.id()));
    let since = Instant::now();
    let ports: Value = loop {
        let read = fs::read_to_string(&ports).ok().and_then(|text| serde_json::from_str(&text).ok());
        if let Some(ports) = read {
            break ports;
        }
        assert!(since.elapsed() < Duration::from_secs(10), "nats-server does not start");
        thread::sleep(Duration::from_millis(20));
    };
    Site {
        nats: ports["nats"][0].as_str().unwrap().to_owned(),
        relay,
        folder,
        _processes: [nats, relay_process],
    }
}

/// A relay, and its URL.
fn relay() -> (Process, String) {
    let mut command = compare();
    command.args(["role:relay", "--listen", "127.0.0.1:0", "--announce"]);
    let mut relay = Process(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(relay.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let announced: Value = serde_json::from_str(&line).unwrap();
    (relay, announced["listening"].as_str().unwrap().to_owned())
}

fn compare() -> Command {
    Command::new(env!("CARGO_BIN_EXE_compare"))
}

impl Site {
    fn agent(&self, index: u16, of: u16, flags: &[&str]) -> Process {
        self.player(index, of, &[&["--allow-target", &self.relay], flags].concat())
    }

    fn player(&self, index: u16, of: u16, flags: &[&str]) -> Process {
        self.attend(of, &[&["--index", &index.to_string()], flags].concat())
    }

    fn attend(&self, of: u16, flags: &[&str]) -> Process {
        let mut command = compare();
        command.args(["agent", "--nats", &self.nats, "--of", &of.to_string()]).args(flags);
        Process(command.current_dir(self.folder.path()).spawn().unwrap())
    }

    fn run(&self, of: u16, seconds: u32) -> Command {
        self.run_with(of, seconds, &["--url", &self.relay])
    }

    fn run_with(&self, of: u16, seconds: u32, relay: &[&str]) -> Command {
        let mut command = compare();
        command.args(["run", "--nats", &self.nats, "--agents", &of.to_string()]).args(relay);
        command.args([
            "--scenario",
            "note-stream",
            "--formats",
            "json,cbor-packed",
            "--compressions",
            "none",
        ]);
        command.args(["--rounds", "1", "--seconds", &seconds.to_string(), "--rates", "50", "--quiet"]);
        command.arg("--out").arg(self.folder.path().join("results")).stdout(Stdio::null());
        command.stderr(Stdio::piped());
        command
    }

    /// Waits until the run is in this state, as the server's bucket tells by NATS's own protocol.
    fn reaches(&self, state: &str) {
        let ask = "CONNECT {\"headers\":true}\r\nSUB told 1\r\n\
            PUB $JS.API.DIRECT.GET.KV_nsim.$KV.nsim.run.state told 0\r\n\r\n";
        let since = Instant::now();
        loop {
            let mut server = TcpStream::connect(self.nats.strip_prefix("nats://").unwrap()).unwrap();
            server.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            server.write_all(ask.as_bytes()).unwrap();
            let mut told = Vec::new();
            // Ends with the time, because the server says nothing more.
            let _ = server.read_to_end(&mut told);
            if String::from_utf8_lossy(&told).contains(&format!("{state:?}")) {
                return;
            }
            assert!(since.elapsed() < Duration::from_secs(60), "the run is never {state}");
        }
    }

    /// Each cell of the result with the record of its first block.
    fn records(&self) -> Vec<(Value, RunRecord)> {
        let text = fs::read_to_string(self.result_folder().join("result.json")).unwrap();
        let result: Value = serde_json::from_str(&text).unwrap();
        let cells = result["cells"].as_array().unwrap().iter();
        let record = |cell: &Value| serde_json::from_value(cell["blocks"][0]["record"].clone());
        cells
            .map(|cell| (cell.clone(), record(cell).unwrap_or_else(|why| panic!("{why}: {cell:#}"))))
            .collect()
    }

    fn result_folder(&self) -> PathBuf {
        fs::read_dir(self.folder.path().join("results")).unwrap().next().unwrap().unwrap().path()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// An address that was free a moment ago.
fn free() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// The relay that listens there.
fn relay_at(address: &str) -> nix::unistd::Pid {
    let is_it = |pid: &i32| {
        let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<_> = command.split(|byte| *byte == 0).collect();
        words.get(1) == Some(&b"role:relay".as_slice()) && words.contains(&address.as_bytes())
    };
    let pids = fs::read_dir("/proc").unwrap();
    let mut pids = pids.filter_map(|entry| entry.unwrap().file_name().to_string_lossy().parse().ok());
    nix::unistd::Pid::from_raw(pids.find(is_it).expect("a relay listens"))
}

/// What a coordinator tells a player of `compare agent`.
fn batched_block(url: String) -> Block {
    let word = |word: &str| word.to_owned();
    let play = Play {
        url,
        relay: None,
        scenario: word("note-stream"),
        scenario_toml: None,
        answers: word("{}"),
        format: word("cbor-packed"),
        compression: word("zstd"),
        comparable_with: vec![word("json"), word("cbor-packed")],
        implementation: word("library"),
        client_verify: word("none"),
        batched: true,
        live: true,
        rate_per_s: Some(50),
        seed: 1,
        seconds: 2,
        block_id: word("7e"),
    };
    Block { round: 0, position: 0, play }
}

#[tokio::test]
async fn players_take_every_flag_of_a_block_and_their_records_make_one() {
    let (_relay, url) = relay();
    let block = batched_block(url);
    let program = env!("CARGO_BIN_EXE_compare").into();
    let process = agents::Process { program, arguments: vec!["role:client".into()] };
    let (mut tell, mut prepared, mut plays) = (Vec::new(), Vec::new(), Vec::new());
    let mut counting = Vec::new();
    for index in 0..2 {
        let (commands, told) = mpsc::channel(4);
        let (says, said) = oneshot::channel();
        let (counts, counted) = watch::channel(LiveCounts::default());
        plays.push(process.play(Box::new(block.clone()), index, 2, told, says, counts));
        counting.push(counted);
        tell.push(commands);
        prepared.push(said);
    }
    let conduct = async {
        let facts = try_join_all(prepared).await.expect("both are prepared");
        assert_eq!(facts[0], facts[1]);
        let at_ns = agents::now_ns() + 800_000_000;
        for commands in &tell {
            commands.send(Commanded::Start { at_ns }).await.unwrap();
        }
    };
    let (endings, ()) = tokio::join!(join_all(plays), conduct);
    let records = endings.into_iter().map(|ending| {
        let ending = ending.unwrap();
        // Allows 3: a busy machine may make the timing of a short run invalid, but never its
        // ledger.
        assert!(matches!(ending.exit_code, Some(0 | 3)), "{:?}", ending.exit_code);
        serde_json::from_slice::<RunRecord>(&ending.record).unwrap()
    });
    let records: Vec<RunRecord> = records.collect();
    let merged = RunRecord::merge(records.iter().cloned()).unwrap();
    let of_block = |record: &RunRecord| record.share.as_ref().unwrap().block_id.as_deref() == Some("7e");
    assert!(records.iter().all(of_block));
    for (record, counted) in records.iter().zip(&counting) {
        let last = *counted.borrow();
        assert_eq!((last.connections, last.deliveries), (0, record.counts.deliveries), "told to the end");
    }
    assert_eq!(merged.cell.batching, "by the relay");
    assert_eq!((merged.agents.len(), merged.counts.balanced()), (2, Ok(())));
    assert!(merged.counts.acked >= 50, "{:?}", merged.counts);
}

#[test]
#[ignore = "needs nats-server"]
fn agents_play_a_matrix_whose_records_are_merged_over_nats() {
    let site = site();
    let mut agents = [site.agent(0, 2, &["--max-rate", "50"]), site.agent(1, 2, &[])];
    let output = site.run(2, 2).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 3)), "{:?}: {}", output.status, said(&output));
    let text = fs::read_to_string(site.result_folder().join("result.json")).unwrap();
    let result: Value = serde_json::from_str(&text).unwrap();
    let cells = result["cells"].as_array().unwrap();
    assert!(cells.len() >= 2);
    for cell in cells {
        let block = &cell["blocks"][0];
        let record = &block["record"];
        let agents = record["agents"].as_array().unwrap();
        assert_eq!(agents.len(), 2, "{block:#}");
        for agent in agents {
            let clock: ClockRecord = serde_json::from_value(agent["clock"].clone()).unwrap();
            // All are one clock.
            assert!(clock.start_bound_ns <= 5_000_000, "{clock:?}");
            assert!(clock.drift_ns.unsigned_abs() <= clock.drift_bound_ns, "{clock:?}");
        }
        assert_eq!(record["status"]["state"], "complete");
        let published = record["counts"]["acked"].as_u64();
        assert!(published.is_some_and(|events| events >= 50), "{:#}", record["counts"]);
    }
    for agent in &mut agents {
        assert_eq!(agent.end(Duration::from_secs(5)), Some(0));
    }
    assert!(!site.result_folder().join("running").exists(), "no record is left over");
}

#[test]
#[ignore = "needs nats-server and script of util-linux"]
fn a_terminal_shows_the_sums_of_all_agents_over_nats() {
    let site = site();
    let _agents = [site.agent(0, 2, &[]), site.agent(1, 2, &[])];
    let run = site.run(2, 3);
    let words = [run.get_program()].into_iter().chain(run.get_args()).filter(|word| *word != "--quiet");
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let command = format!("stty rows 50 cols 250; {}", words.join(" "));
    let shown = Command::new("script").args(["-qec", &command, "/dev/null"]).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout);
    for part in [
        "waits for 2 agents of run run",
        " claimed",
        " armed",
        " running: ",
        "/s, p50 ",
        " sent, ",
        " delivered, ",
        " connections",
    ] {
        assert!(shown.contains(part), "{part:?} in {shown:?}");
    }
}

/// The ports on which a process listens.
fn listening(pid: u32) -> Vec<u16> {
    // A process that has ended has none.
    let open: Vec<String> = (fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten())
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .map(|target| target.to_string_lossy().into_owned())
        .collect();
    let tables = ["tcp", "tcp6"]
        .map(|table| fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default());
    let port = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, port) = fields.get(1)?.rsplit_once(':')?;
        // 0A is LISTEN (proc_net_tcp of the kernel's documentation).
        let is_own = fields.get(3) == Some(&"0A") && open.contains(&format!("socket:[{}]", fields.get(9)?));
        is_own.then(|| u16::from_str_radix(port, 16).unwrap())
    };
    tables.iter().flat_map(|table| table.lines()).filter_map(port).collect()
}

/// The metrics at an address; `None` once nobody listens.
fn scrape(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n").ok()?;
    let mut answer = String::new();
    // The process may end meanwhile.
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text"), "{head}");
    body.ends_with("# EOF\n").then(|| body.to_owned())
}

/// The value of a sample, named as it is written.
fn value(metrics: &str, sample: &str) -> u64 {
    let named = metrics.lines().filter_map(|line| line.split_once(' ')).find(|(name, _)| *name == sample);
    let (_, value) = named.unwrap_or_else(|| panic!("no {sample} in\n{metrics}"));
    value.parse().unwrap()
}

/// Has the parser of the Prometheus project read metrics, by the grammar of OpenMetrics.
fn foreign_families(metrics: &str, folder: &Path) -> String {
    let file = folder.join("metrics.txt");
    fs::write(&file, metrics).unwrap();
    let parse =
        "import sys; from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
print(' '.join(f'{f.name}:{f.type}:{f.unit}' for f in parse(open(sys.argv[1]).read())))";
    let output = Command::new("python3").args(["-c", parse]).arg(file).output().unwrap();
    assert!(output.status.success(), "{}\n{metrics}", said(&output));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
#[ignore = "needs nats-server and python3 with prometheus-client"]
fn metrics_that_a_foreign_parser_reads_agree_with_the_ledger_over_nats() {
    let site = site();
    let _agents = [site.agent(0, 2, &[]), site.agent(1, 2, &[])];
    let mut run = Process(site.run(2, 3).args(["--metrics-listen", "127.0.0.1:0"]).spawn().unwrap());
    let mut lines = BufReader::new(run.0.stderr.take().unwrap()).lines();
    let address = lines.find_map(|line| {
        line.unwrap()
            .strip_prefix("metrics at http://")
            .and_then(|line| line.strip_suffix("/metrics"))
            .map(str::to_owned)
    });
    let address = address.unwrap();
    assert!(address.ends_with(&format!(":{}", listening(run.0.id())[0])));
    assert_eq!(listening(run.0.id()).len(), 1, "no other port");
    let mut scrapes: Vec<String> = Vec::new();
    while let Some(metrics) = scrape(&address) {
        if scrapes.last() != Some(&metrics) {
            scrapes.push(metrics);
        }
        thread::sleep(Duration::from_millis(10));
    }
    let code = run.end(Duration::from_secs(10));
    assert!(matches!(code, Some(0 | 3)), "{code:?}");
    let families = "nsim_run_state:gauge: nsim_agents:gauge: nsim_connections:gauge: nsim_events_sent:counter: \
         nsim_deliveries:counter: nsim_blocks_merged:counter: nsim_counts_refused:counter: \
         nsim_delivery_latency_seconds:histogram:seconds";
    let (first, last) = (scrapes.first().unwrap(), scrapes.last().unwrap());
    for metrics in [first, &scrapes[scrapes.len() / 2], last] {
        assert_eq!(foreign_families(metrics, site.folder.path()), families);
    }
    for sample in ["nsim_events_sent_total", "nsim_deliveries_total", "nsim_delivery_latency_seconds_count"] {
        let values: Vec<u64> = scrapes.iter().map(|metrics| value(metrics, sample)).collect();
        assert!(values.is_sorted(), "{sample} falls: {values:?}");
        let grew = values.windows(2).filter(|pair| pair[0] < pair[1]).count();
        assert!(grew >= 4, "{sample} grows within blocks: {values:?}");
    }
    let was = |sample: &str, wanted| scrapes.iter().any(|metrics| value(metrics, sample) == wanted);
    assert!(was("nsim_agents{state=\"running\"}", 2) && was("nsim_run_state{state=\"running\"}", 1));
    let text = fs::read_to_string(site.result_folder().join("result.json")).unwrap();
    let result: Value = serde_json::from_str(&text).unwrap();
    let blocks =
        || result["cells"].as_array().unwrap().iter().flat_map(|cell| cell["blocks"].as_array().unwrap());
    let ledger =
        |count: &str| blocks().map(|block| block["record"]["counts"][count].as_u64().unwrap()).sum::<u64>();
    assert_eq!(value(last, "nsim_deliveries_total"), ledger("deliveries"));
    assert_eq!(value(last, "nsim_events_sent_total"), ledger("planned"));
    assert_eq!(value(last, "nsim_blocks_merged_total"), blocks().count() as u64);
    assert_eq!(value(last, "nsim_counts_refused_total"), 0);
}

#[test]
#[ignore = "needs nats-server"]
fn without_being_asked_a_coordinator_listens_nowhere_over_nats() {
    let site = site();
    let _agents = [site.agent(0, 2, &[]), site.agent(1, 2, &[])];
    let mut run = Process(site.run(2, 1).spawn().unwrap());
    while run.0.try_wait().unwrap().is_none() {
        assert_eq!(listening(run.0.id()), [0_u16; 0]);
        thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn metrics_are_refused_beside_what_is_published_and_without_agents() {
    let nats = ["--nats", "nats://127.0.0.1:1", "--agents", "1", "--url", "ws://127.0.0.1:1"];
    let listen = ["--metrics-listen", "127.0.0.1:0"];
    for (args, says) in [
        (
            [&nats[..], &listen, &["--profile", "publish"]].concat(),
            "--metrics-listen has agents count while they measure",
        ),
        (listen.to_vec(), "--nats"),
    ] {
        let output = compare().arg("run").args(&args).output().unwrap();
        assert!(
            output.status.code() == Some(2) && said(&output).contains(says),
            "{args:?}: {}",
            said(&output)
        );
    }
}

#[test]
#[ignore = "needs nats-server"]
fn agents_fetch_the_events_that_the_run_has_instead_of_the_bundled_ones_over_nats() {
    let site = site();
    let file = site.folder.path().join("mine.jsonl.gz");
    let mut events = Corpus::bundled().events;
    events.retain(|event| event.kind == 1);
    events.truncate(400);
    corpus::write(&file, &events).unwrap();
    let fingerprint = Corpus::read(&file).unwrap().fingerprint.to_string();
    let mut agents = [site.agent(0, 2, &[]), site.agent(1, 2, &[])];
    let output = site.run(2, 1).arg("--corpus").arg(&file).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 3)), "{:?}: {}", output.status, said(&output));
    for agent in &mut agents {
        assert_eq!(agent.end(Duration::from_secs(5)), Some(0));
    }
    let text = fs::read_to_string(site.result_folder().join("result.json")).unwrap();
    let result: Value = serde_json::from_str(&text).unwrap();
    let played = &result["cells"][0]["blocks"][0]["record"]["corpus"];
    assert_eq!(played["sha256"], fingerprint);
    assert_eq!(played["name"], "mine.jsonl.gz", "as the coordinator has it");
    let files = fs::read_dir(site.folder.path()).unwrap().map(|entry| entry.unwrap().path());
    let is_fetched = |path: &PathBuf| path.to_string_lossy().ends_with(".jsonl.gz") && *path != file;
    let fetched: Vec<PathBuf> = files.filter(is_fetched).collect();
    let [fetched] = &fetched[..] else { panic!("kept once: {fetched:?}") };
    assert_eq!(fs::read(fetched).unwrap(), fs::read(&file).unwrap());
}

/// Adds up each metric of each block over the agents' own records, and prints of the sum: count,
/// percentiles, maximum, and whether every bucket is that of the result.
const PYTHON: &str = r#"
import json, sys
from importlib.metadata import version
from pathlib import Path
from hdrh.histogram import HdrHistogram
if version("hdrhistogram") != "0.10.8": raise ImportError("expected hdrhistogram 0.10.8")
folder = Path(sys.argv[1])
def buckets(one):
    return [(b.value_iterated_to, b.count_added_in_this_iter_step) for b in one.get_recorded_iterator()]
for cell in json.loads((folder / "result.json").read_text())["cells"]:
    for block in cell["blocks"]:
        name = f"{block['round']:03}-{block['position']:03}-{cell['id']}.agent-*.json"
        own = [json.loads(file.read_text())["latency"] for file in (folder / "running").glob(name)]
        for metric, stated in block["record"]["latency"].items():
            sum = HdrHistogram(1, 60_000_000_000, 3)
            for one in own:
                if metric in one:
                    sum.add(HdrHistogram.decode(one[metric]["v2_deflate"]))
            figures = [sum.get_value_at_percentile(p) for p in (50.0, 90.0, 99.0, 100.0)]
            same = buckets(sum) == buckets(HdrHistogram.decode(stated["v2_deflate"]))
            place = (cell["id"], block["round"], block["position"])
            print(json.dumps([*place, metric, len(own), same, sum.get_total_count(), *figures]))
"#;

/// What Python found of a metric of a block.
#[derive(serde::Deserialize)]
struct Recomputed(String, u32, u32, String, usize, bool, u64, u64, u64, u64, u64);

#[test]
#[ignore = "needs nats-server, and python3 with hdrhistogram 0.10.8"]
fn python_adds_up_the_records_of_agents_to_what_the_result_states_over_nats() {
    let site = site();
    let mut agents = [0, 1, 2].map(|index| site.agent(index, 3, &[]));
    let output = site.run(3, 3).arg("--keep-agent-records").output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 3)), "{:?}: {}", output.status, said(&output));
    agents.iter_mut().for_each(|agent| assert_eq!(agent.end(Duration::from_secs(5)), Some(0)));
    let folder = site.result_folder();
    let result = ResultFile::read(&folder).unwrap();
    let output = Command::new("python3").args(["-c", PYTHON]).arg(&folder).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let found: Vec<Recomputed> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let metrics = |record: &RunRecord| record.latency.len();
    let blocks = || result.cells.iter().flat_map(|cell| &cell.blocks);
    assert_eq!(found.len(), blocks().map(|block| metrics(block.record.as_ref().unwrap())).sum::<usize>());
    let mut medians = 0;
    for Recomputed(id, round, position, metric, agents, same, count, p50, p90, p99, max) in found {
        let what = format!("{id}, round {round}, position {position}: {metric}");
        let cell = result.cells.iter().find(|cell| cell.id == id).unwrap();
        let mut blocks = cell.blocks.iter();
        let block = blocks.find(|block| (block.round, block.position) == (round, position)).unwrap();
        let stated = &block.record.as_ref().unwrap().latency[&metric];
        assert_eq!((agents, same), (3, true), "{what}");
        assert_eq!((count, max), (stated.len(), stated.max_ns()), "{what}");
        for (q, value) in [(0.5, p50), (0.9, p90), (0.99, p99)] {
            // Too few samples have no quantile here.
            if let Some(ns) = stated.quantile_ns(q).ns() {
                assert_eq!(value, ns, "{what} at {q}");
                medians += u32::from(q == 0.5 && metric == "response");
            }
        }
    }
    assert!(medians > 0, "no block has a median");
}

#[test]
#[ignore = "needs nats-server"]
fn a_lost_agent_ends_the_run_and_keeps_what_the_others_have_over_nats() {
    let site = site();
    let (mut first, mut second) = (site.agent(0, 2, &[]), site.agent(1, 2, &[]));
    let coordinator = Process(site.run(2, 60).spawn().unwrap());
    site.reaches("running");
    second.0.kill().unwrap();
    assert_eq!(first.end(Duration::from_millis(2_500)), Some(5));
    let mut coordinator = coordinator;
    assert_eq!(coordinator.end(Duration::from_secs(8)), Some(5));
    let running = site.result_folder().join("running");
    let kept: Vec<_> = fs::read_dir(running).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let kept: Vec<String> = kept.into_iter().map(|name| name.to_string_lossy().into_owned()).collect();
    assert!(matches!(&kept[..], [one] if one.ends_with(".agent-0.partial.json")), "{kept:?}");
    let text = fs::read_to_string(site.result_folder().join("running").join(&kept[0])).unwrap();
    let record: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(record["status"]["state"], "incomplete");
    assert_eq!(second.end(Duration::from_secs(1)), None, "killed");
}

#[test]
#[ignore = "needs nats-server"]
fn a_killed_coordinator_leaves_nothing_that_looks_whole_over_nats() {
    let site = site();
    let mut agents = [site.agent(0, 2, &[]), site.agent(1, 2, &[])];
    let mut coordinator = Process(site.run(2, 60).spawn().unwrap());
    site.reaches("running");
    coordinator.0.kill().unwrap();
    assert_eq!(coordinator.end(Duration::from_secs(1)), None, "killed");
    for agent in &mut agents {
        assert_eq!(agent.end(Duration::from_millis(2_500)), Some(5));
    }
    for index in 0..2 {
        let own = site.folder.path().join(format!("run-000-000.agent-{index}.partial.json"));
        let own = RunRecord::read(&own).unwrap();
        assert!(matches!(own.status, Status::Incomplete { .. }) && own.share.is_some(), "{:?}", own.status);
    }
    assert!(!site.result_folder().join("result.json").exists());
    assert_eq!(fs::read_dir(site.result_folder().join("running")).unwrap().count(), 0);
    let again = site.run(2, 1).output().unwrap();
    assert_eq!(again.status.code(), Some(1));
    assert!(
        said(&again).contains("its coordinator was killed") && said(&again).contains("take another --run")
    );
}

#[test]
#[ignore = "needs nats-server"]
fn an_interrupted_wait_for_agents_leaves_the_runs_name_free_over_nats() {
    let site = site();
    for _ in 0..2 {
        let child = site.run(1, 1).spawn().unwrap();
        let pid = nix::unistd::Pid::from_raw(child.id().try_into().unwrap());
        let mut coordinator = Process(child);
        site.reaches("open");
        assert!(
            coordinator.0.try_wait().unwrap().is_none(),
            "it waits, and does not say that the run is taken"
        );
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
        assert_eq!(coordinator.end(Duration::from_secs(5)), Some(1));
    }
}

#[test]
#[ignore = "needs nats-server"]
fn an_agent_refuses_what_its_command_line_does_not_allow_over_nats() {
    let site = site();
    // A population that does not keep to --rates, beside one that does.
    let bursts = "[[publish]]\nconnections = 5\narrival = { shape = \"burst\", period_ms = 1000 }\n";
    let stream = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/note-stream.toml");
    let file = site.folder.path().join("bursts.toml");
    fs::write(&file, fs::read_to_string(stream).unwrap() + bursts).unwrap();
    for (most, scenario) in [("49", "note-stream".as_ref()), ("50", file.as_os_str())] {
        let mut agent = site.agent(0, 1, &["--max-rate", most]);
        let run = site.run(1, 1);
        let words = run.get_args().map(|word| if word == "note-stream" { scenario } else { word });
        let output = compare().args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(5), "{}", said(&output));
        let results = fs::read_dir(site.folder.path().join("results")).unwrap();
        assert_eq!(results.count(), 0, "nothing was measured");
        assert_eq!(agent.end(Duration::from_secs(5)), Some(5));
    }
}

#[test]
#[ignore = "needs nats-server"]
fn without_a_relay_the_coordinator_starts_one_for_each_block_over_nats() {
    let (site, address) = (site(), free());
    let target = format!("ws://{address}");
    let mut agents =
        [0, 1].map(|index| site.player(index, 2, &["--allow-target", &target, "--max-rate", "50"]));
    let flags = ["--relay-listen", &address, "--batching", "off,on:ms=2:n=9", "--verify", "id"];
    let output = site.run_with(2, 2, &flags).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 3)), "{:?}: {}", output.status, said(&output));
    let records = site.records();
    let roles: Vec<&str> = records.iter().map(|(cell, _)| cell["role"].as_str().unwrap()).collect();
    assert!(["anchor", "control", "floor", "cell"].iter().all(|role| roles.contains(role)), "{roles:?}");
    for (cell, record) in &records {
        assert_eq!((record.agents.len(), record.counts.balanced()), (2, Ok(())), "{cell:#}");
        assert!(record.counts.acked >= 50, "{:?}", record.counts);
        assert!(record.relay_cpu.is_some_and(|cpu| cpu.total_ns > 0), "{:?}", record.relay_cpu);
        assert_eq!(record.usable_cores.unwrap().relay, Some(1), "without it no cell is saturated");
        assert!(record.memory.unwrap().relay_peak_bytes.is_some());
        let relay = record.relay.as_ref().unwrap();
        let is_floor = cell["role"] == "floor";
        assert_eq!((relay.own, relay.software.ends_with("--floor")), (true, is_floor));
        assert_eq!((record.encodings.is_none(), record.cell.verify.as_str()), (is_floor, "id"));
        let batching =
            if cell["id"].as_str().unwrap().contains(".batched") { "ms=2 n=9 bytes=65536" } else { "none" };
        assert_eq!(record.cell.batching, batching);
    }
    let pids: Vec<_> = records.iter().map(|(_, record)| record.relay.as_ref().unwrap().pid).collect();
    assert!(pids.iter().all(|pid| pids.iter().filter(|one| *one == pid).count() == 1), "a relay a block");
    let text = fs::read_to_string(site.result_folder().join("derived.json")).unwrap();
    let derived: Value = serde_json::from_str(&text).unwrap();
    for cell in derived["cells"].as_array().unwrap() {
        // A busy machine may leave no block to tell times from.
        let is_known = cell["usable_blocks"] == 0 || cell["utilisation"]["relay"].is_number();
        assert!(is_known, "{cell:#}");
    }
    for agent in &mut agents {
        assert_eq!(agent.end(Duration::from_secs(5)), Some(0));
    }
    assert!(!site.result_folder().join("running").exists(), "no record is left over");
}

#[test]
#[ignore = "needs nats-server"]
fn an_agent_starts_the_relay_on_a_machine_of_its_own_over_nats() {
    let (site, address) = (site(), free());
    let (_, port) = address.rsplit_once(':').unwrap();
    // Another name for the address, as where it is behind a service.
    let url = format!("ws://localhost:{port}");
    let mut agents = [
        site.attend(2, &["--relay-listen", &address, "--relay-url", &url]),
        site.player(0, 2, &["--allow-target", &url]),
        site.player(1, 2, &["--allow-target", &url]),
    ];
    let output = site.run_with(2, 1, &["--relay-agents", "1"]).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 3)), "{:?}: {}", output.status, said(&output));
    for (cell, record) in site.records() {
        assert_eq!((record.agents.len(), record.counts.balanced()), (2, Ok(())), "{cell:#}");
        assert!(record.relay_cpu.is_some_and(|cpu| cpu.total_ns > 0) && record.relay.unwrap().own);
    }
    for agent in &mut agents {
        assert_eq!(agent.end(Duration::from_secs(5)), Some(0));
    }
}

#[test]
#[ignore = "needs nats-server"]
fn a_relay_that_is_killed_ends_the_run_without_a_result_over_nats() {
    let (site, address) = (site(), free());
    let target = format!("ws://{address}");
    let mut agents = [0, 1].map(|index| site.player(index, 2, &["--allow-target", &target]));
    let mut coordinator = Process(site.run_with(2, 60, &["--relay-listen", &address]).spawn().unwrap());
    site.reaches("running");
    nix::sys::signal::kill(relay_at(&address), nix::sys::signal::Signal::SIGKILL).unwrap();
    for agent in &mut agents {
        assert_eq!(agent.end(Duration::from_secs(3)), Some(5));
    }
    assert_eq!(coordinator.end(Duration::from_secs(8)), Some(5));
    let results = fs::read_dir(site.folder.path().join("results")).unwrap();
    let whole = results.filter(|folder| folder.as_ref().unwrap().path().join("result.json").exists());
    assert_eq!(whole.count(), 0, "nothing looks whole");
    let mut text = String::new();
    coordinator.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(
        text.contains("the run over agents was aborted") && text.contains("the relay was lost"),
        "{text}"
    );
    TcpListener::bind(&address).expect("nothing of it is left");
}

#[test]
#[ignore = "needs nats-server"]
fn agents_play_against_no_relay_that_they_do_not_allow_over_nats() {
    let (site, address) = (site(), free());
    let mut agent = site.agent(0, 1, &[]);
    let output = site.run_with(1, 1, &["--relay-listen", &address]).output().unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", said(&output));
    let refusal = format!("does not allow the target ws://{address}");
    assert!(said(&output).contains(&refusal), "{}", said(&output));
    assert_eq!(fs::read_dir(site.folder.path().join("results")).unwrap().count(), 0, "nothing was measured");
    assert_eq!(agent.end(Duration::from_secs(5)), Some(5));
}

#[test]
fn an_address_that_agents_cannot_reach_is_refused_before_anything_is_measured() {
    let cases: [(&[&str], &str); 6] = [
        (&["run", "--agents", "1", "--relay-listen", "0.0.0.0:7777"], "--relay-url"),
        (&["run", "--agents", "1", "--relay-listen", "127.0.0.1:0"], "port 0"),
        (&["run", "--agents", "1", "--relay-listen", "127.0.0.1:1", "--url", "ws://127.0.0.1:1"], "--url"),
        (&["run", "--agents", "1", "--relay-agents", "1", "--relay-listen", "127.0.0.1:1"], "--relay-agents"),
        (&["run", "--agents", "1", "--rates", "auto"], "--rates"),
        (&["agent", "--of", "1", "--relay-listen", "0.0.0.0:7777"], "--relay-url"),
    ];
    for (flags, says) in cases {
        let output = compare().args(flags).args(["--nats", "nats://127.0.0.1:1"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {}", said(&output));
        assert!(said(&output).contains(says), "{flags:?}: {}", said(&output));
    }
    let output =
        compare().args(["run", "--agents", "1", "--nats", "nats://192.0.2.1:4222"]).output().unwrap();
    assert!(said(&output).contains("--relay-listen ADDRESS:PORT"), "{}", said(&output));
}
