//! The cost of relay-sim beside a relay that does no Nostr work.
//!
//! `cargo bench -p relay-sim --bench floor` plays the same events against both, each in a process
//! of its own on one core with the clients on another, in alternation, and prints relay CPU as
//! ratios of the same run. docs/relay-cost.md says how to read it.

mod beside;
mod driver;

use std::{
    borrow::Cow,
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, Command, ExitCode, Stdio},
};

use anyhow::{Context, ensure};
use beside::Other;
use clap::{Parser, ValueEnum};
use codecs::{ClientMessage, Event, Format, Implementation, hex};
use corpus::Corpus;
use driver::{Load, Outcome, masked};
use measure::{CpuClock, CpuTime};
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};
use relay_sim::{Announcement, Reencode, floor::Script};
use secp256k1::{SECP256K1, XOnlyPublicKey, schnorr::Signature};
use tempfile::NamedTempFile;

/// The part that is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// One event to many subscribers, and the floor's
    FanOut,
    /// Publications without a subscriber, and the floor's
    Publish,
    /// Publications to relays of several threads
    Threads,
    /// The fan-outs of external relays, started by --beside
    Beside,
}

/// Events of the bundled corpus that are published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sample {
    /// Text notes
    Notes,
    /// All kinds, as in mixed-day
    Mixed,
}

/// Relay CPU for each delivery and each OK, beside a relay that does no Nostr work.
#[derive(Debug, Parser)]
#[command(name = "floor")]
struct Args {
    /// How often everything is played; ratios are medians over the rounds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,

    /// Events that a publisher leaves unanswered at most: fewer, and every flush carries less.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..))]
    window: u16,

    /// Formats that relay-sim speaks in the fan-outs; the floor speaks JSON.
    #[arg(long, value_delimiter = ',', default_values_t = [Format::JSON])]
    formats: Vec<Format>,

    /// Events of the fan-outs.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Sample::Notes, Sample::Mixed])]
    samples: Vec<Sample>,

    /// Whose code of the formats relay-sim runs.
    #[arg(long, default_value_t = Implementation::Library)]
    implementation: Implementation,

    /// The part that is played.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::FanOut, Part::Publish, Part::Threads])]
    parts: Vec<Part>,

    /// When relay-sim encodes an event of its publisher's format anew.
    #[arg(long, value_enum, default_value_t = Reencode::Always)]
    reencode: Reencode,

    /// Threads of relay-sim in the part threads, each beside one.
    #[arg(long, value_delimiter = ',', default_values_t = [2, 4, 8], value_parser = clap::value_parser!(u16).range(2..=64))]
    threads: Vec<u16>,

    /// Subscribers of the fan-outs.
    #[arg(long, value_delimiter = ',', default_values_t = [8, 16, 500], value_parser = clap::value_parser!(u16).range(1..=1_000))]
    subscribers: Vec<u16>,

    /// An external relay that plays the fan-outs beside relay-sim in the part beside; {address} in
    /// its command stands for what it is to listen on. May be repeated.
    #[arg(long, value_name = "NAME=COMMAND")]
    beside: Vec<Other>,

    /// Passed by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Deliveries of one fan-out: a third of a second of a relay at the floor.
const DELIVERIES: usize = 400_000;

const RELAY_ROLE: &str = "role:relay";

/// Where relays run, and where clients do.
const RELAY_CORE: usize = 0;
const CLIENT_CORE: usize = 1;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    match args.first().and_then(|role| role.to_str()) {
        Some(RELAY_ROLE) => relay_sim::main(args.into_iter().skip(1)),
        _ => match bench(&Args::parse()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error:#}");
                ExitCode::FAILURE
            }
        },
    }
}

#[expect(clippy::print_stdout, reason = "a bench's result")]
fn say(line: &impl std::fmt::Display) {
    println!("{line}");
}

fn bench(args: &Args) -> anyhow::Result<()> {
    let cores = cores()?;
    pin(&[CLIENT_CORE])?;
    let wants = |part| args.parts.contains(&part);
    let Args { rounds, window, implementation, reencode, .. } = args;
    let reencode = name(reencode);
    say(&format!("{rounds} rounds, window {window}, {implementation}, --reencode {reencode}"));
    if wants(Part::FanOut) {
        for (sample, subscribers) in
            args.samples.iter().flat_map(|s| args.subscribers.iter().map(move |n| (*s, *n)))
        {
            fan_out(args, sample, subscribers.into())?;
        }
    }
    if wants(Part::Publish) {
        publish(args)?;
    }
    if wants(Part::Threads) {
        threads(args, &cores)?;
    }
    if wants(Part::Beside) {
        ensure!(!args.beside.is_empty(), "--parts beside needs a relay: --beside 'NAME=COMMAND {{address}}'");
        args.subscribers.iter().try_for_each(|&subscribers| beside::fan_out(args, subscribers.into()))?;
    }
    Ok(())
}

// --- the parts ---

fn fan_out(args: &Args, sample: Sample, subscribers: usize) -> anyhow::Result<()> {
    let count = DELIVERIES.div_ceil(subscribers);
    let events = fresh(sample, count);
    let script = script(&events)?;
    let loads: Vec<_> = args.formats.iter().map(|format| (*format, frames(*format, &events))).collect();
    let json = frames(Format::JSON, &events);
    let of = |format, frames| Load { format, frames, publishers: 1, subscribers, window: args.window.into() };
    let mut rounds = Vec::new();
    for _ in 0..args.rounds {
        let floor = play(&floor(&script), &[RELAY_CORE], &of(Format::JSON, &json))?;
        let mut round = vec![floor];
        for (format, frames) in &loads {
            let ours = play(&relay_sim(args, *format, "none", 1), &[RELAY_CORE], &of(*format, frames))?;
            ensure!(
                *format != Format::JSON || floor.delivered_bytes == ours.delivered_bytes,
                "the floor relay delivered {} bytes and relay-sim {}: not the same work",
                floor.delivered_bytes,
                ours.delivered_bytes
            );
            round.push(ours);
        }
        rounds.push(round);
    }
    let deliveries = (count * subscribers) as f64;
    let each = |outcome: &Outcome| outcome.relay_cpu_ns as f64 / deliveries / 1e3;
    let column =
        |value: &dyn Fn(&[Outcome]) -> f64| median(rounds.iter().map(|round: &Vec<Outcome>| value(round)));
    for (n, format) in (1..).zip(&args.formats) {
        say(&format!(
            "fan-out 1 -> {subscribers}, {}, {format}: floor {:.2} µs CPU a delivery, relay-sim {:.2} µs: {:.2} x  \
             ({:.0} and {:.0} deliveries/s)",
            name(&sample),
            column(&|round| each(&round[0])),
            column(&|round| each(&round[n])),
            column(&|round| each(&round[n]) / each(&round[0])),
            column(&|round| deliveries / round[0].elapsed.as_secs_f64()),
            column(&|round| deliveries / round[n].elapsed.as_secs_f64()),
        ));
    }
    Ok(())
}

fn publish(args: &Args) -> anyhow::Result<()> {
    let events = fresh(Sample::Notes, 20_000);
    let (frames, script) = (frames(Format::JSON, &events), script(&events)?);
    let load = Load {
        format: Format::JSON,
        frames: &frames,
        publishers: 8,
        subscribers: 0,
        window: args.window.into(),
    };
    let mut rounds = Vec::new();
    for _ in 0..args.rounds {
        let check = signature_checks(&events)?.total_ns;
        let floor = play(&floor(&script), &[RELAY_CORE], &load)?.relay_cpu_ns;
        let unverified = play(&relay_sim(args, Format::JSON, "none", 1), &[RELAY_CORE], &load)?.relay_cpu_ns;
        let verified = play(&relay_sim(args, Format::JSON, "full", 1), &[RELAY_CORE], &load)?.relay_cpu_ns;
        rounds.push([check, floor, unverified, verified].map(|ns| ns as f64 / events.len() as f64 / 1e3));
    }
    let column = |n: usize| median(rounds.iter().map(|round| round[n]));
    say(&format!(
        "publish: BIP-340 check alone {:.2} µs, floor {:.2} µs CPU an OK, relay-sim {:.2} µs unverified and {:.2} µs with \
         --verify full: {:.2} x the check",
        column(0),
        column(1),
        column(2),
        column(3),
        median(rounds.iter().map(|round| round[3] / round[0])),
    ));
    Ok(())
}

/// Gain of more threads, and their cost to each other: without locks and shared caches between
/// them, an OK takes as much CPU by many as by one.
fn threads(args: &Args, cores: &[usize]) -> anyhow::Result<()> {
    let frames = frames(Format::JSON, &fresh(Sample::Notes, 20_000));
    let load = Load {
        format: Format::JSON,
        frames: &frames,
        publishers: 8,
        subscribers: 0,
        window: args.window.into(),
    };
    let oks = frames.len() as f64;
    let mut relay_cores = cores.to_vec();
    // Where there are two, a second thread has only the one of the clients.
    if cores.len() > 2 {
        relay_cores.retain(|core| *core != CLIENT_CORE);
    }
    let counts: Vec<u16> = std::iter::once(1).chain(args.threads.iter().copied()).collect();
    let mut rounds = Vec::new();
    for _ in 0..args.rounds {
        let play = |threads: &u16| {
            play(&relay_sim(args, Format::JSON, "full", (*threads).into()), &relay_cores, &load)
        };
        rounds.push(counts.iter().map(play).collect::<anyhow::Result<Vec<Outcome>>>()?);
    }
    let rate = |outcome: &Outcome| oks / outcome.elapsed.as_secs_f64();
    let each = |outcome: &Outcome| outcome.relay_cpu_ns as f64 / oks / 1e3;
    let shared = if cores.len() > 2 { "" } else { ", which the clients share" };
    say(&format!("threads, --verify full, on {} cores{shared}:", relay_cores.len()));
    for (n, count) in counts.iter().enumerate() {
        let column = |value: &dyn Fn(&[Outcome]) -> f64| median(rounds.iter().map(|round| value(round)));
        say(&format!(
            "  {count:>2}: {:.0} OK/s, {:.2} x one; {:.1} µs CPU an OK, {:.2} x one",
            column(&|round| rate(&round[n])),
            column(&|round| rate(&round[n]) / rate(&round[0])),
            column(&|round| each(&round[n])),
            column(&|round| each(&round[n]) / each(&round[0])),
        ));
    }
    Ok(())
}

/// CPU time of libsecp256k1 alone for the signatures, on the core of the relays.
fn signature_checks(events: &[Event<'_>]) -> anyhow::Result<CpuTime> {
    pin(&[RELAY_CORE])?;
    let clock = CpuClock::this_process();
    let before = clock.read()?;
    for event in events {
        let key = XOnlyPublicKey::from_byte_array(event.pubkey)?;
        SECP256K1.verify_schnorr(&Signature::from_byte_array(event.sig), &event.id, &key)?;
    }
    let spent = clock.read()?.since(before);
    pin(&[CLIENT_CORE])?;
    Ok(spent)
}

// --- events ---

/// Events like those of the bundled sample, each with an id and a signature of its own.
fn fresh(sample: Sample, count: usize) -> Vec<Event<'static>> {
    let bundled = Corpus::bundled();
    let templates: Vec<_> =
        bundled.events.iter().filter(|event| sample == Sample::Mixed || event.kind == 1).collect();
    corpus::fresh::events(&templates, count, 1)
}

fn frames(format: Format, events: &[Event<'static>]) -> Vec<Vec<u8>> {
    let frame = |event| masked(format, &ClientMessage::Event(Cow::Borrowed(event)));
    events.iter().map(frame).collect()
}

/// Writes the floor relay's script: every event goes to every subscriber.
fn script(events: &[Event<'_>]) -> anyhow::Result<NamedTempFile> {
    let ids = events.iter().map(|event| hex::encode(&event.id)).collect();
    let script = Script { live: [(driver::FILTER_TEXT.to_owned(), ids)].into(), ..Script::default() };
    let file = NamedTempFile::new()?;
    serde_json::to_writer(&file, &script)?;
    Ok(file)
}

// --- processes ---

fn floor(script: &NamedTempFile) -> Vec<String> {
    let script = script.path().display().to_string();
    [RELAY_ROLE, "--announce", "--listen", "127.0.0.1:0", "--floor", &script].map(str::to_owned).to_vec()
}

fn relay_sim(args: &Args, format: Format, verify: &str, threads: usize) -> Vec<String> {
    let implementation = args.implementation.to_string();
    let threads = threads.to_string();
    let reencode = name(&args.reencode);
    let flags = [
        RELAY_ROLE,
        "--announce",
        "--listen",
        "127.0.0.1:0",
        "--format",
        format.name(),
        "--compression",
        "none",
        "--implementation",
        &implementation,
        "--verify",
        verify,
        "--threads",
        &threads,
        "--reencode",
        &reencode,
    ];
    flags.map(str::to_owned).to_vec()
}

/// A value as the command line has it.
fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
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

fn play(relay: &[String], cores: &[usize], load: &Load<'_>) -> anyhow::Result<Outcome> {
    let program = std::env::current_exe()?;
    pin(cores)?; // the child inherits it
    let child = Command::new(program).args(relay).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    pin(&[CLIENT_CORE])?;
    let mut relay = Relay(child.context("cannot start a relay")?);
    let mut line = String::new();
    BufReader::new(relay.0.stdout.take().context("the relay's output was asked for")?)
        .read_line(&mut line)?;
    let announcement: Announcement =
        serde_json::from_str(&line).context("the relay did not say where it listens")?;
    let address = announcement.listening.strip_prefix("ws://").context("the relay does not speak ws")?;
    let address: SocketAddr = address.parse()?;
    driver::play(address, &CpuClock::of_process(relay.0.id())?, load)
}

/// The cores that this process may use.
fn cores() -> anyhow::Result<Vec<usize>> {
    let allowed = sched_getaffinity(Pid::from_raw(0)).context("cannot see which cores there are")?;
    Ok((0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap_or(false)).collect())
}

fn pin(cores: &[usize]) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    cores.iter().try_for_each(|&core| set.set(core))?;
    sched_setaffinity(Pid::from_raw(0), &set)
        .context("this bench needs two cores: one for relays, one for clients")
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
}
