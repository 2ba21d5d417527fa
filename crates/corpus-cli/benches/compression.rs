//! Costs and savings of a compression's level, window and context.
//!
//! `cargo bench -p corpus-cli --bench compression` sends the same EVENT messages, in JSON and in
//! DannyPack, over connections in memory to eight subscribers by each setting, and prints bytes,
//! CPU and memory of a delivery. Settings that no other of the format beats in both bytes and the
//! relay's CPU are the Pareto front. docs/transport.md has the table and what follows from it.

#![allow(clippy::print_stdout, reason = "the report is what this program is for")]
#![allow(clippy::cast_precision_loss, reason = "sizes and times here are far below 2^52")]

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, ensure};
use bytes::Bytes;
use clap::Parser;
use codecs::{Event, Format, Implementation};
use corpus::Corpus;
use futures::FutureExt;
use nix::time::{ClockId, clock_gettime};
use wire::{Compression, Connection, Offer, Shared, Support, WireLimits};

/// Bytes, CPU and memory of a delivery by each setting of each compression.
#[derive(Debug, Parser)]
#[command(name = "compression")]
struct Args {
    /// How often every setting is timed; times are medians. 0: bytes and memory only, which do not
    /// depend on the machine.
    #[arg(long, default_value_t = 5)]
    rounds: u16,

    /// Only settings whose names contain this.
    #[arg(long)]
    only: Option<String>,

    /// All events of this file, in place of some of the bundled ones. Relative paths are from the
    /// workspace's root.
    #[arg(long, value_name = "FILE")]
    corpus: Option<PathBuf>,

    /// A dictionary for zstd-dict, in place of each format's bundled one.
    #[arg(long, value_name = "FILE")]
    dictionary: Option<PathBuf>,

    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Events of each kind in the share that the corpus has of it.
const EVENTS: usize = 300;

/// Bundled events before those that count.
const FIRST_EVENTS: usize = 100;

const SUBSCRIBERS: usize = 8;

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Everything that relay-sim can be asked for, as far as it differs.
fn settings() -> Vec<String> {
    let mut all = vec!["none".to_owned()];
    for level in [1, 2, 4, 6, 9] {
        for window_bits in [10, 12, 15] {
            all.push(format!("deflate:level={level}:window_bits={window_bits}"));
        }
    }
    for name in ["deflate-no-takeover", "deflate-shared"] {
        for (level, window_bits) in [(1, 12), (1, 15), (4, 15), (6, 12), (6, 15), (9, 15)] {
            all.push(format!("{name}:level={level}:window_bits={window_bits}"));
        }
    }
    all.extend([-5, 1, 3, 6, 9].map(|level| format!("zstd:level={level}")));
    for level in [-5, 1, 3, 6] {
        all.extend([12, 15, 17].map(|bits| format!("zstd-stream:level={level}:window_bits={bits}")));
    }
    for name in ["zstd-shared", "zstd-dict"] {
        all.extend([-5, 1, 3, 6, 9].map(|level| format!("{name}:level={level}")));
    }
    all
}

/// A setting in one format.
struct Row {
    setting: String,
    compression: Compression,
    messages: Messages,
    figures: Option<Figures>,
    /// By round: nanoseconds of relay and client for each delivery.
    times: Vec<[f64; 2]>,
}

/// The messages that are sent, by subscriber.
struct Messages {
    format: Format,
    events: Vec<Vec<u8>>,
    /// How many events pass before those that count, so that windows are as full as they get.
    first: usize,
}

/// Figures that do not depend on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Figures {
    wire_bytes: u64,
    deliveries: u64,
    /// Of the relay's compressor: of each connection, and of the thread.
    own_bytes: usize,
    shared_bytes: usize,
}

fn run(args: &Args) -> anyhow::Result<()> {
    // cargo starts benches in the folder of their package.
    let from_root = |path: &PathBuf| Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    let (corpus, wanted, first) = match &args.corpus {
        None => (Corpus::bundled(), EVENTS + FIRST_EVENTS, FIRST_EVENTS),
        Some(path) => (Corpus::read(&from_root(path))?, usize::MAX, 0),
    };
    // From all over the corpus.
    let step = (corpus.events.len() / wanted).max(1);
    let events: Vec<_> = corpus.events.iter().step_by(step).take(wanted).collect();
    let dictionary = args.dictionary.as_ref().map(|path| wire::dictionary::read(&from_root(path)));
    let dictionary = dictionary.transpose()?;
    let wanted = |setting: &String| args.only.as_ref().is_none_or(|only| setting.contains(only.as_str()));
    let settings: Vec<_> = settings().into_iter().filter(wanted).collect();
    ensure!(!settings.is_empty(), "no setting contains {:?}", args.only.as_deref().unwrap_or_default());
    let count = events.len() - first;
    println!("{SUBSCRIBERS} subscribers, {count} events of {}, {} rounds\n", corpus.name, args.rounds);
    for format in [Format::JSON, "dannypack".parse()?] {
        let events = encoded(&events, format)?;
        let row = |setting: &String| -> anyhow::Result<Row> {
            let mut compression: Compression = setting.parse()?;
            if let Some(dictionary) = dictionary {
                compression = compression.with_dictionary(dictionary);
            }
            let messages = Messages { format, events: events.clone(), first };
            Ok(Row { setting: setting.clone(), compression, messages, figures: None, times: Vec::new() })
        };
        let mut rows = settings.iter().map(row).collect::<anyhow::Result<Vec<_>>>()?;
        for round in 0..args.rounds.max(1) {
            for row in &mut rows {
                play(row).with_context(|| format!("{format} {}, round {round}", row.setting))?;
            }
        }
        print(format, &rows, args.rounds > 0);
    }
    Ok(())
}

/// Events as the format's encoder writes them.
fn encoded(events: &[&Event<'_>], format: Format) -> anyhow::Result<Vec<Vec<u8>>> {
    let codec = format.codec(Implementation::Tuned)?;
    let encode = |event: &&Event<'_>| {
        let mut bytes = Vec::new();
        codec.encode_event(event, &mut bytes)?;
        Ok(bytes)
    };
    events.iter().map(encode).collect()
}

/// The ends of a client and of a relay in memory, driven by one thread that never waits.
fn pair(format: Format, compression: Compression) -> anyhow::Result<(Connection, Connection)> {
    let offer = Offer { formats: vec![format], batched: false, compression };
    let support = Support { formats: vec![format], compressions: vec![compression], batched: false };
    let limits = WireLimits::default();
    Ok(at_once(wire::in_memory(&offer, &support, [&limits, &limits]))??)
}

fn at_once<T>(work: impl Future<Output = T>) -> anyhow::Result<T> {
    work.now_or_never().context("a connection in memory waited")
}

/// Sends the events to every subscriber, and notes what that took.
fn play(row: &mut Row) -> anyhow::Result<()> {
    let Messages { format, events, first } = &row.messages;
    let codec = format.codec(Implementation::Tuned)?;
    let pairs = (0..SUBSCRIBERS).map(|_| pair(*format, row.compression));
    let mut pairs = pairs.collect::<anyhow::Result<Vec<_>>>()?;
    let mut spent_ns = [0; 2];
    let mut before_bytes = 0;
    for (n, event) in events.iter().enumerate() {
        if n == *first {
            spent_ns = [0; 2];
            before_bytes = wire_bytes(&pairs);
        }
        let mut prefix_bytes = 0;
        let payloads: Vec<Bytes> = (0..SUBSCRIBERS)
            .map(|subscriber| {
                let mut payload = Vec::new();
                prefix_bytes = codec.wrap_event(&format!("sub-{subscriber}"), event, &mut payload);
                payload.into()
            })
            .collect();
        let shared = Shared::default();
        let started = cpu_ns()?;
        for ((_, relay), payload) in pairs.iter_mut().zip(&payloads) {
            let (prefix, common) = payload.split_at(prefix_bytes);
            at_once(relay.feed_shared(prefix, [common, b""], &shared))??;
            at_once(relay.flush())??;
        }
        let sent = cpu_ns()?;
        for ((client, _), payload) in pairs.iter_mut().zip(&payloads) {
            let message = at_once(client.next())?.context("the connection ended")??;
            ensure!(message.payload == *payload, "what arrived is what was sent");
        }
        spent_ns[0] += sent - started;
        spent_ns[1] += cpu_ns()? - sent;
    }
    let deliveries = ((events.len() - first) * SUBSCRIBERS) as u64;
    let memory = pairs.iter().map(|(_, relay)| relay.compression_memory());
    let figures = Figures {
        wire_bytes: wire_bytes(&pairs) - before_bytes,
        deliveries,
        own_bytes: memory.clone().map(|memory| memory.own_bytes).max().unwrap_or(0),
        shared_bytes: memory.map(|memory| memory.shared_bytes).max().unwrap_or(0),
    };
    // Memory of the thread: that of settings played before is no part of this.
    ensure!(
        row.figures.is_none_or(|earlier| earlier.wire_bytes == figures.wire_bytes),
        "{} bytes now and {:?} before",
        figures.wire_bytes,
        row.figures
    );
    row.figures.get_or_insert(figures);
    row.times.push(spent_ns.map(|ns| ns as f64 / deliveries as f64));
    Ok(())
}

fn wire_bytes(pairs: &[(Connection, Connection)]) -> u64 {
    pairs.iter().map(|(_, relay)| relay.traffic().sent.wire_bytes).sum()
}

/// CPU time of the calling thread.
fn cpu_ns() -> anyhow::Result<u64> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(u64::try_from(time.tv_sec())? * 1_000_000_000 + u64::try_from(time.tv_nsec())?)
}

/// Prints the rows as Markdown, those of the front marked.
fn print(format: Format, rows: &[Row], timed: bool) {
    println!("| {format} | bytes | relay CPU µs | client CPU µs | relay memory KiB | front |");
    println!("| --- | ---: | ---: | ---: | ---: | --- |");
    let time = |row: &Row, end: usize| median(row.times.iter().map(|times| times[end] / 1e3));
    let bytes = |row: &Row| row.figures.map_or(0.0, |f| f.wire_bytes as f64 / f.deliveries as f64);
    for row in rows {
        let Some(Figures { own_bytes, shared_bytes, .. }) = row.figures else { continue };
        let is_beaten = rows.iter().any(|other| {
            let no_worse = bytes(other) <= bytes(row) && time(other, 0) <= time(row, 0);
            no_worse && (bytes(other) < bytes(row) || time(other, 0) < time(row, 0))
        });
        let shown = |us: f64| if timed { format!("{us:.2}") } else { "–".to_owned() };
        let memory = match (own_bytes, shared_bytes) {
            (0, 0) => "–".to_owned(),
            (0, shared) => format!("{} in all", shared >> 10),
            (own, _) => format!("{} each", own >> 10),
        };
        println!(
            "| {} | {:.0} | {} | {} | {memory} | {} |",
            row.setting,
            bytes(row),
            shown(time(row, 0)),
            shown(time(row, 1)),
            if timed && !is_beaten { "yes" } else { "" }
        );
    }
    println!();
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}
