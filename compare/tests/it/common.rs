//! The program, and records and results made by hand.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::Result;
use cell::Factor;
use compare::{
    BlockOrder, CellSpec, Matrix, assemble, cells,
    generator::{Generator, Interrupt, Played, Task},
    progress::Progress,
    rounds::{Measured, Rounds},
};
use futures::{FutureExt, future::LocalBoxFuture};
use measure::{
    Cell, Counts, CpuTime, EncodingsRecord, Environment, FirstDeliveryRecord, FlowRecord, Latency, RunRecord,
    SCHEMA_VERSION, Throughput, ThroughputRecorder, TrafficRecord, UsableCores,
};
use report::{Block, Config, Git, ResultFile, Role};

pub(crate) fn compare() -> Command {
    Command::new(env!("CARGO_BIN_EXE_compare"))
}

/// The folder of the one result.
pub(crate) fn only_folder(results: &Path) -> PathBuf {
    fs::read_dir(results).unwrap().next().unwrap().unwrap().path()
}

/// The relay that a run, or who plays for it, has started.
pub(crate) fn relay_of(run: u32) -> u32 {
    let is_relay = |pid: &u32| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split('\0').nth(1) == Some("role:relay")
    };
    measure::started_by(run).into_iter().find(is_relay).expect("a relay runs")
}

/// Figures that distinguish the runs of these tests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) deliveries: u64,
    pub(crate) wire_bytes_per_event: u64,
    pub(crate) relay_us_per_event: u64,
    pub(crate) client_us_per_event: u64,
    pub(crate) latency_us: u64,
}

pub(crate) const PLAIN: Run = Run {
    deliveries: 4_000,
    wire_bytes_per_event: 900,
    relay_us_per_event: 60,
    client_us_per_event: 30,
    latency_us: 1_000,
};

/// The cells with these ids, the anchor and its control in front.
pub(crate) fn matrix(ids: &[&str]) -> Vec<CellSpec> {
    let matrix = Matrix::default()
        .with(Factor::Format, ["json", "cbor-schemaless", "cbor-packed", "proto-binary"])
        .with(Factor::Compression, ["none", "deflate"])
        .with(Factor::Batching, ["off", "on"]);
    let mut cells = cells(&matrix).unwrap();
    for cell in &mut cells {
        // Short names keep tables readable.
        cell.id = cell.id.replace("cbor-schemaless", "cbor").replace("proto-binary", "proto");
    }
    cells.retain(|cell| matches!(cell.role, Role::Anchor | Role::Control) || ids.contains(&cell.id.as_str()));
    cells
}

pub(crate) fn config(profile: &str, rounds: u32) -> Config {
    Config {
        scenarios: vec!["mixed-day".to_owned()],
        profile: profile.to_owned(),
        rounds,
        seconds: 2,
        seed: 1,
        ..Config::default()
    }
}

/// 16 intervals of 100 ms in which so many deliveries came.
fn throughput(deliveries: u64) -> Throughput {
    const MS: u64 = 1_000_000;
    let mut recorder = ThroughputRecorder::default();
    for n in 0..deliveries {
        let now_ns = n * 1_600 * MS / deliveries;
        recorder.delivery(now_ns);
        recorder.wire_bytes(now_ns, 100);
    }
    recorder.within(&[(0, 1_600 * MS)], 100 * MS).unwrap_or_default()
}

pub(crate) fn record(id: &str, seed: u64, run: Run) -> RunRecord {
    let id = if id == "json-control" { "json+none" } else { id };
    let (format, compression) = id.split_once('+').map(|(f, c)| (f.to_owned(), c.to_owned())).unwrap();
    let single = format.strip_suffix(".batched").map(str::to_owned);
    let batching = if single.is_some() { "ms=5 n=64 bytes=65536" } else { "none" };
    let format = single.unwrap_or(format);
    let parameters = if compression == "deflate" { "level=6 window_bits=15 takeover=true" } else { "" };
    let Run { deliveries, .. } = run;
    let cpu = |us: u64| CpuTime { total_ns: us * 1_000 * deliveries, user_ns: None, system_ns: None };
    let mut response = Latency::new();
    // A ramp from half to one and a half times the latency.
    (0..deliveries).for_each(|i| response.record(run.latency_us * (500 + i * 1_000 / deliveries)));
    let flow = |bytes| FlowRecord { messages: deliveries, payload_bytes: bytes, wire_bytes: bytes };
    let base: RunRecord =
        serde_json::from_str(include_str!("../../../crates/measure/tests/record.json")).unwrap();
    let relay = serde_json::json!({"pid": 1, "software": "relay-sim", "version": "0.1.0", "own": true});
    RunRecord {
        schema_version: SCHEMA_VERSION.to_owned(),
        environment: host(),
        cell: Cell {
            format,
            code: "serde_json".to_owned(),
            compression,
            compression_parameters: parameters.to_owned(),
            batching: batching.to_owned(),
            scenario: "mixed-day".to_owned(),
            ..cell::Cell::default().recorded()
        },
        seed,
        relay: serde_json::from_value(relay).unwrap(),
        connections: 20,
        elapsed_ns: 2_000_000_000,
        active_ns: 1_600_000_000,
        counts: Counts {
            planned: deliveries / 4,
            acked: deliveries / 4,
            deliveries_expected: deliveries,
            deliveries,
            ..Counts::default()
        },
        traffic: TrafficRecord {
            to_relay: flow(run.wire_bytes_per_event * deliveries / 4),
            to_client: flow(run.wire_bytes_per_event * deliveries * 3 / 4),
            ..base.traffic
        },
        client_cpu: cpu(run.client_us_per_event),
        relay_cpu: Some(cpu(run.relay_us_per_event)),
        usable_cores: Some(UsableCores { relay: Some(1), clients: 1, ..UsableCores::default() }),
        throughput: Some(throughput(deliveries)),
        encodings: Some(EncodingsRecord {
            cold: deliveries / 20,
            cached: deliveries - deliveries / 20,
            spliced: 0,
        }),
        first_delivery: Some(FirstDeliveryRecord {
            events: 100,
            cold_ns: 100 * (run.relay_us_per_event + 2) * 1_000,
            warm_ns: [0, 10, 20].map(|more| 100 * (run.relay_us_per_event * 1_000 + more)).to_vec(),
        }),
        latency: BTreeMap::from([
            ("session.home".to_owned(), response.clone()),
            ("response".to_owned(), response),
        ]),
        ..base
    }
}

pub(crate) fn host() -> Environment {
    Environment {
        cpu: Some("Example CPU".to_owned()),
        cores: 2,
        virtual_machine: Some(true),
        memory_bytes: Some(8 << 30),
        os: Some("Example Linux 1".to_owned()),
        kernel: Some("6.18.0".to_owned()),
        rustc: Some("rustc 1.95.0".to_owned()),
        optimised: true,
        ..Environment::default()
    }
}

/// A whole result of the program without arguments.
pub(crate) fn header(config: Config) -> ResultFile {
    let command = vec!["compare".to_owned()];
    ResultFile::begun(command, None, host(), "2026-11-21T08:05:00Z".to_owned(), config)
}

/// Plays rounds in this folder.
pub(crate) fn play(
    folder: &Path,
    generator: &dyn Generator,
    cells: &[CellSpec],
    config: Config,
    precision: Option<f64>,
    max_time: Option<Duration>,
) -> Result<Measured> {
    let running = &*folder.join("running");
    fs::create_dir(running).unwrap();
    let rounds = Rounds { generator, cells, running, folder, quiet: true, metrics: None };
    rounds.play(header(config), precision, max_time)
}

/// A result with the blocks of a plan; `measure` makes the record of (cell id, round, position).
pub(crate) fn result(
    profile: &str,
    rounds: u32,
    ids: &[&str],
    mut measure: impl FnMut(&str, u32, u32) -> RunRecord,
) -> ResultFile {
    let cells = matrix(ids);
    let plan = BlockOrder::new(&cells, rounds, 1);
    let mut blocks = Vec::new();
    for (round, order) in (0..).zip(&plan.rounds) {
        for (position, cell) in (0..).zip(order) {
            blocks.push((
                *cell,
                Block {
                    round,
                    position,
                    seed: 1 + u64::from(round),
                    started_after_ns: u64::from(round * 10 + position) * 1_000_000_000,
                    process_ns: 2_500_000_000,
                    exit_code: Some(0),
                    record: Some(measure(&cells[*cell].id, round, position)),
                    ..Block::default()
                },
            ));
        }
    }
    let header = ResultFile {
        command: ["compare", "run", "--formats", "json,cbor packed"].map(str::to_owned).to_vec(),
        git: Some(Git { commit: "0123456789abcdef0123456789abcdef01234567".to_owned(), dirty: true }),
        ..header(config(profile, rounds))
    };
    assemble(header, &cells, &plan, blocks)
}

/// A link that carried so many bytes each way.
pub(crate) fn link(forwarded_bytes: u64) -> measure::LinkRecord {
    let flow = || measure::LinkFlow {
        packets: 1_000,
        forwarded: 1_000,
        forwarded_bytes,
        ..measure::LinkFlow::default()
    };
    measure::LinkRecord {
        parameters: "down 1.6mbit, 75ms one way, queue 30000 bytes".to_owned(),
        congestion: "cubic".to_owned(),
        tcp: "no_metrics_save=1".to_owned(),
        down: flow(),
        up: flow(),
        ..measure::LinkRecord::default()
    }
}

/// Starts no process: a function says what a block leaves and how it ends.
pub(crate) struct Scripted<F>(RefCell<F>);

/// Record and outcome of a scripted block.
pub(crate) type Left = (Option<RunRecord>, Played);

impl<F: FnMut(&Task<'_>) -> Left> Scripted<F> {
    pub(crate) fn new(script: F) -> Scripted<F> {
        Scripted(RefCell::new(script))
    }

    /// Writes the record as one of this block: with its names and its seed.
    fn leave(&self, task: &Task<'_>) -> Result<Played> {
        let (record, played) = (self.0.borrow_mut())(task);
        if let Some(mut record) = record {
            let code = record.cell.code;
            (record.seed, record.cell) = (task.seed, Cell { code, ..task.cell.cell.recorded() });
            if let (Role::Floor, Some(relay)) = (task.cell.role, &mut record.relay) {
                relay.is_floor = true;
            }
            // Not `RunRecord::write`, which waits for the disk.
            fs::write(task.record, serde_json::to_vec(&record)?)?;
        }
        Ok(played)
    }
}

impl<F: FnMut(&Task<'_>) -> Left> Generator for Scripted<F> {
    fn play<'a>(
        &'a self,
        task: Task<'a>,
        _: &'a mut Progress,
        _: Interrupt<'a>,
    ) -> LocalBoxFuture<'a, Result<Played>> {
        async move { self.leave(&task) }.boxed_local()
    }
}

/// A block that was measured as asked.
pub(crate) fn measured(record: RunRecord) -> Left {
    (Some(record), Played { exit_code: Some(0), ..Played::default() })
}

/// A block that left nothing, ended by the user.
pub(crate) fn interrupted() -> Left {
    (None, Played { interrupted: true, ..Played::default() }.with_words())
}
