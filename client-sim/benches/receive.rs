//! Cost of an event that client-sim receives, beside a reader that does nothing with it.
//!
//! `cargo bench -p client-sim --bench receive` plays `note-stream` against the floor relay, by
//! client-sim and by bare tungstenite readers in turn, each with the relay on the one core and the
//! clients on the other. CPU is all that the clients' process or thread spends, publishing
//! included. docs/relay-cost.md has the figures.

#[path = "../src/sockets/pacer.rs"]
#[cfg_attr(test, allow(unused_imports, reason = "its tests are left out where there is no harness"))]
mod pacer;

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use clap::Parser;
use client_sim::own_relay::RELAY_ROLE;
use codecs::{ClientMessage, Event, Format, Implementation, hex};
use corpus::Corpus;
use futures::{SinkExt, Stream, StreamExt};
use measure::RunRecord;
use nix::{
    sched::{CpuSet, sched_setaffinity},
    time::{ClockId, clock_gettime},
    unistd::Pid,
};
use relay_sim::{Announcement, floor::Script};
use tempfile::NamedTempFile;
use tokio::{
    net::TcpStream,
    task::{JoinSet, LocalSet},
    time::timeout,
};
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async_with_config,
    tungstenite::{Error, Message, protocol::WebSocketConfig},
};

use pacer::Pacer;

/// Client CPU for each event received, beside a bare reader's.
#[derive(Debug, Parser)]
#[command(name = "receive")]
struct Args {
    /// How often both play; the ratio is the median of ratios within a round.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,

    /// Notes published per second.
    #[arg(long, default_value_t = 12_000, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,

    /// Seconds of each.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,

    /// Whose JSON code client-sim runs.
    #[arg(long, default_value_t = Implementation::Library)]
    implementation: Implementation,

    #[arg(long, hide = true)]
    bench: bool,
}

const CLIENT_ROLE: &str = "role:client";

/// Those of the scenario.
const SUBSCRIBERS: usize = 8;

/// The request of client-sim, which a floor relay knows by its text.
const FILTER: &str = r#"{"kinds":[1],"limit":0}"#;

const RELAY_CORE: usize = 0;
const CLIENT_CORE: usize = 1;

/// Far beyond what a round takes.
const PATIENCE: Duration = Duration::from_secs(60);

type WebSocket = WebSocketStream<MaybeTlsStream<TcpStream>>;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1).peekable();
    if args.next_if(|role| role == RELAY_ROLE).is_some() {
        return relay_sim::main(args);
    }
    if args.next_if(|role| role == CLIENT_ROLE).is_some() {
        return client_sim::main(args);
    }
    match bench(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "a bench's result")]
fn say(line: &str) {
    println!("{line}");
}

fn bench(args: &Args) -> anyhow::Result<()> {
    let bundled = Corpus::bundled();
    let templates: Vec<_> = bundled.events.iter().filter(|event| event.kind == 1).collect();
    let notes = corpus::fresh::events(&templates, (args.rate * args.seconds) as usize, 1);
    let (frames, script) = (messages(&notes), script(&notes)?);
    let mut rounds = Vec::new();
    for _ in 0..args.rounds {
        rounds.push((bare(args, &frames, script.path())?, simulated(args)?));
    }
    let median = |of: fn(&(f64, f64)) -> f64| median(rounds.iter().map(of));
    say(&format!(
        "receive, {} notes/s to {SUBSCRIBERS}, JSON ({}), {} rounds, client CPU µs a delivery: bare reader {:.2}, \
         client-sim {:.2}: {:.2} x",
        args.rate,
        args.implementation,
        args.rounds,
        median(|round| round.0),
        median(|round| round.1),
        median(|round| round.1 / round.0),
    ));
    Ok(())
}

/// CPU of client-sim, in µs a delivery.
fn simulated(args: &Args) -> anyhow::Result<f64> {
    let record = NamedTempFile::new()?;
    pin(&[RELAY_CORE, CLIENT_CORE])?; // the child keeps itself and its relay apart
    let status = Command::new(std::env::current_exe()?)
        .args([CLIENT_ROLE, "--scenario", "note-stream", "--format", "json", "--floor", "--quiet"])
        .args(["--rate", &args.rate.to_string(), "--seconds", &args.seconds.to_string()])
        .args(["--implementation", args.implementation.name(), "--record"])
        .arg(record.path())
        .status()
        .context("cannot start client-sim")?;
    ensure!(status.success(), "client-sim ended with {status}");
    let record: RunRecord = serde_json::from_slice(&std::fs::read(record.path())?)?;
    let deliveries = record.counts.envelopes();
    let planned = u64::from(args.rate * args.seconds) * SUBSCRIBERS as u64;
    ensure!(deliveries == planned, "client-sim received {deliveries} of {planned} events");
    Ok(record.client_cpu.total_ns as f64 / deliveries as f64 / 1e3)
}

/// CPU of readers that count messages, and of their publisher, in µs a delivery.
fn bare(args: &Args, notes: &[String], script: &Path) -> anyhow::Result<f64> {
    pin(&[RELAY_CORE])?; // the child inherits it
    let child = Command::new(std::env::current_exe()?)
        .args([RELAY_ROLE, "--announce", "--listen", "127.0.0.1:0", "--floor"])
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    pin(&[CLIENT_CORE])?;
    let mut relay = Relay(child.context("cannot start the floor relay")?);
    let mut line = String::new();
    BufReader::new(relay.0.stdout.take().context("the relay's output was asked for")?)
        .read_line(&mut line)?;
    let announcement: Announcement = serde_json::from_str(&line).context("not an announcement")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let spent_ns = LocalSet::new()
        .block_on(&runtime, async {
            timeout(PATIENCE, read(&announcement.listening, notes, args.rate)).await
        })
        .context("the floor relay did not deliver everything")??;
    Ok(spent_ns as f64 / (notes.len() * SUBSCRIBERS) as f64 / 1e3)
}

/// Publishes at the rate and reads all deliveries. Returns the CPU time of this thread.
async fn read(url: &str, notes: &[String], rate: u32) -> anyhow::Result<u64> {
    let mut readers = Vec::new();
    for n in 0..SUBSCRIBERS {
        let mut reader = connect(url).await?;
        reader.send(Message::text(format!(r#"["REQ","live-{n}",{FILTER}]"#))).await?;
        reader.next().await.context("EOSE is missing")??;
        readers.push(reader);
    }
    let (mut publisher, answers) = connect(url).await?.split();
    let before = cpu_ns()?;
    let mut reading = JoinSet::new();
    for reader in readers {
        reading.spawn_local(count(reader, notes.len()));
    }
    reading.spawn_local(count(answers, notes.len()));
    let (pacer, started) = (Pacer::new()?, Instant::now());
    for (n, note) in (0..).zip(notes) {
        pacer.until(started + Duration::from_nanos(n * 1_000_000_000 / u64::from(rate))).await?;
        publisher.send(Message::text(note.as_str())).await?;
        // Yields to the readers when the publisher is late, as client-sim does.
        tokio::task::consume_budget().await;
    }
    while let Some(read) = reading.join_next().await {
        read??;
    }
    Ok(cpu_ns()? - before)
}

async fn connect(url: &str) -> anyhow::Result<WebSocket> {
    let config = WebSocketConfig::default().read_buffer_size(16 << 10).write_buffer_size(32 << 10);
    Ok(connect_async_with_config(url, Some(config), true).await?.0)
}

async fn count(
    mut messages: impl Stream<Item = Result<Message, Error>> + Unpin,
    expected: usize,
) -> anyhow::Result<()> {
    for n in 0..expected {
        let message = messages.next().await.with_context(|| format!("the relay left after {n}"))??;
        ensure!(message.is_text(), "not a text message: {message:?}");
    }
    Ok(())
}

/// EVENT messages.
fn messages(notes: &[Event<'static>]) -> Vec<String> {
    let json = Format::JSON.spec().library;
    let encoded = notes.iter().map(|note| {
        let mut message = Vec::new();
        json.encode_client(&ClientMessage::Event(std::borrow::Cow::Borrowed(note)), &mut message)
            .expect("JSON holds every event");
        String::from_utf8(message).expect("JSON is text")
    });
    encoded.collect()
}

/// The floor relay's script: every note goes to every subscriber.
fn script(notes: &[Event<'_>]) -> anyhow::Result<NamedTempFile> {
    let ids = notes.iter().map(|note| hex::encode(&note.id)).collect();
    let script = Script { live: [(FILTER.to_owned(), ids)].into(), ..Script::default() };
    let file = NamedTempFile::new()?;
    serde_json::to_writer(&file, &script)?;
    Ok(file)
}

/// A relay's process; killed when it is dropped.
struct Relay(Child);

impl Drop for Relay {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// CPU time of the calling thread.
fn cpu_ns() -> anyhow::Result<u64> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(u64::try_from(time.tv_sec())? * 1_000_000_000 + u64::try_from(time.tv_nsec())?)
}

fn pin(cores: &[usize]) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    cores.iter().try_for_each(|&core| set.set(core))?;
    sched_setaffinity(Pid::from_raw(0), &set)
        .context("this bench needs two cores: one for the relay, one for the clients")
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}
