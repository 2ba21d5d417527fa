//! Savings and costs of formats at rest.
//!
//! `cargo bench -p relay-sim --bench at-rest` fills a store on disk in each format and prints a
//! table: bytes on disk, time to fill and to start, and what a REQ takes on the thread that answers
//! it, cold and warm, with the format of rest on the wire and with JSON. docs/store.md says how to
//! read it.

use std::{
    fs::File,
    os::unix::fs::MetadataExt,
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use clap::Parser;
use codecs::{ClientMessage, Event, Filter, Format};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use rand::{Rng, SeedableRng, rngs::StdRng};
use relay_sim::{
    Config, StoreConfig,
    machine::{Opening, Relay, Time},
};
use tempfile::TempDir;

/// Bytes on disk, and the time of a REQ, for each format at rest.
#[derive(Debug, Parser)]
#[command(name = "at-rest")]
struct Args {
    /// Events in each store, generated
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1_000..))]
    events: u32,

    /// How often the formats are measured one after the other; the table has medians
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,

    /// Formats at rest; without it the nine core formats
    #[arg(long, value_delimiter = ',')]
    formats: Vec<Format>,

    /// REQs of a measurement
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..))]
    requests: u16,

    /// Passed by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

/// Events that a REQ asks for by id, drawn at random: the worst case for a disk.
const IDS: usize = 100;

/// The clock that the relay is shown: nothing expires.
const UNIX_SECONDS: u64 = 0;

fn main() -> ExitCode {
    match bench(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// One format at rest, measured once.
struct Measured {
    fill: Duration,
    stored: u64,
    file_bytes: u64,
    start: Duration,
    /// Per event: cold, warm, cold with JSON on the wire, warm with JSON.
    request_ns: [f64; 4],
}

fn bench(args: &Args) -> anyhow::Result<()> {
    let mut formats = args.formats.clone();
    if formats.is_empty() {
        formats = Format::core().collect();
    }
    eprintln!("generating {} events", args.events);
    let events = corpus::generate::events(args.events as usize, 1, |_| ());
    let events = storable(events, &formats)?;
    let mut rounds: Vec<Vec<Measured>> = formats.iter().map(|_| Vec::new()).collect();
    for round in 0..args.rounds {
        // Every other round goes backwards, so that a drift of the host meets all alike.
        let mut order: Vec<_> = (0..formats.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for n in order {
            eprintln!("round {}: {}", round + 1, formats[n]);
            rounds[n].push(measure(formats[n], &events, args, round.into())?);
        }
    }
    print(&formats, &rounds, &events);
    Ok(())
}

/// The events that every format can hold: all stores hold the same.
fn storable(events: Vec<Event<'static>>, formats: &[Format]) -> anyhow::Result<Vec<Event<'static>>> {
    let offered = events.len();
    let holds = |event: &Event<'_>, format: &Format| {
        format.spec().library.encode_event(event, &mut Vec::new()).is_ok()
    };
    let kept: Vec<_> =
        events.into_iter().filter(|event| formats.iter().all(|format| holds(event, format))).collect();
    eprintln!("{} of {offered} events can be held by all formats", kept.len());
    ensure!(kept.len() >= IDS, "too few events for a REQ of {IDS}");
    Ok(kept)
}

fn measure(at_rest: Format, events: &[Event<'static>], args: &Args, seed: u64) -> anyhow::Result<Measured> {
    let directory = TempDir::new()?;
    let started = Instant::now();
    let relay = open(directory.path(), at_rest)?;
    relay.preload(events);
    relay.close();
    let fill = started.elapsed();
    let stored = relay.totals().events_stored;
    ensure!(stored > 0, "nothing was stored");
    drop(relay);
    let file = directory.path().join("events.redb");
    let file_bytes = file.metadata()?.blocks() * 512;

    let mut request_ns = [0.0; 4];
    let mut start = Duration::ZERO;
    for (n, wire) in [at_rest, Format::JSON].into_iter().enumerate() {
        let begun = Instant::now();
        let relay = open(directory.path(), at_rest)?;
        start = begun.elapsed();
        // The start has read the whole file.
        forget(&file)?;
        for warm in 0..2 {
            let mut random = StdRng::seed_from_u64(seed);
            request_ns[2 * n + warm] = request(&relay, wire, events, args.requests.into(), &mut random)?;
        }
        relay.close();
    }
    Ok(Measured { fill, stored, file_bytes, start, request_ns })
}

fn open(directory: &Path, at_rest: Format) -> anyhow::Result<Arc<Relay>> {
    let mut config = Config::default();
    config.keep_expired = true;
    config.store = Some(StoreConfig { directory: directory.to_owned(), at_rest: Some(at_rest) });
    Relay::open(config, UNIX_SECONDS)
}

/// Drops the file's pages from the kernel's cache.
fn forget(file: &Path) -> anyhow::Result<()> {
    let file = File::open(file)?;
    file.sync_all()?; // only clean pages can be dropped
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)
        .context("cannot drop the file's pages")
}

/// Time for each event that a REQ returns, from the request's bytes to the answer's.
fn request(
    relay: &Arc<Relay>,
    wire: Format,
    events: &[Event<'static>],
    requests: usize,
    random: &mut StdRng,
) -> anyhow::Result<f64> {
    let codec = wire.spec().library;
    let mut client = relay.connect(&Opening::new(wire));
    let (mut spent, mut returned) = (Duration::ZERO, 0);
    for _ in 0..requests {
        let ids = (0..IDS).map(|_| events[random.random_range(0..events.len())].id).collect();
        let filters = vec![Filter { ids: Some(ids), ..Filter::default() }];
        let mut payload = Vec::new();
        codec.encode_client(&ClientMessage::Req { subscription: "a".into(), filters }, &mut payload)?;
        let began = Instant::now();
        let time = Time { instant: began, unix_seconds: UNIX_SECONDS };
        client.receive(&payload, wire.spec().opcode, time).map_err(|close| anyhow::anyhow!("{close:?}"))?;
        let mut messages = 0;
        loop {
            let some = client.poll_transmit(time);
            if some.is_empty() {
                break;
            }
            messages += some.len();
        }
        spent += began.elapsed();
        returned += messages.checked_sub(1).context("no EOSE")?;
    }
    ensure!(returned > 0, "no REQ returned an event");
    Ok(spent.as_nanos() as f64 / returned as f64)
}

#[expect(clippy::print_stdout, reason = "a bench's result")]
fn print(formats: &[Format], rounds: &[Vec<Measured>], events: &[Event<'_>]) {
    println!(
        "{} events, medians of {} rounds; a REQ asks for {IDS} events by id",
        events.len(),
        rounds[0].len()
    );
    println!(
        "| at rest | MB of rows a million | MB on disk a million | fill s | start s | cold µs an event | warm | cold, JSON on the wire | warm, JSON |"
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for (format, rounds) in formats.iter().zip(rounds) {
        let median_of = |of: &dyn Fn(&Measured) -> f64| median(rounds.iter().map(of).collect());
        let mut rows = Vec::new();
        for event in events {
            // Every format holds every event here.
            let _ = format.spec().library.encode_event(event, &mut rows);
        }
        let request = |n: usize| median_of(&|measured| measured.request_ns[n] / 1e3);
        println!(
            "| {format} | {:.0} | {:.0} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} |",
            rows.len() as f64 / events.len() as f64, // bytes an event are megabytes a million
            median_of(&|measured| measured.file_bytes as f64 / measured.stored as f64),
            median_of(&|measured| measured.fill.as_secs_f64()),
            median_of(&|measured| measured.start.as_secs_f64()),
            request(0),
            request(1),
            request(2),
            request(3),
        );
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}
