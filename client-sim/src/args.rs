//! The command line.

pub(crate) mod stated;

use std::{net::SocketAddr, num::NonZeroU16, path::PathBuf};

use anyhow::Context;
use cell::{Cell, Factor};
use clap::{ArgGroup, Parser, Subcommand};
use codecs::Format;
use corpus::{Keys, MOST_WORK_BITS, Signing};
use program::{Unechoed, report};
use relay_sim::Fault;
use wire::{Compression, Header};

use self::stated::{LocalRelay, Stated};
use workload::{Share, scenario::Scenario};

/// A swarm of simulated Nostr clients.
///
/// Plays a scenario against a relay. Reports how long users wait, how many bytes cross the wire and
/// the CPU of both ends. Events are due by plan, whether or not an end is ready. Every planned event
/// and every expected delivery is accounted for.
#[derive(Debug, Parser)]
#[command(
    name = "client-sim",
    version,
    after_help = EXAMPLES,
    after_long_help = lists(),
    subcommand_negates_reqs = true,
    args_conflicts_with_subcommands = true,
    group = ArgGroup::new("relay_of_others").args(["url", "relay_at"]),
    group = ArgGroup::new("part_of_a_block").args(["share", "serve"]),
    group = ArgGroup::new("plan_for_others").args(["url", "floor"])
)]
pub struct Args {
    /// A command other than a run.
    #[command(subcommand)]
    pub command: Option<Command>,

    #[command(flatten)]
    pub cell: Cell,

    #[command(flatten)]
    pub stated: Stated,

    /// Change a key of the scenario, as in publish.arrival.rate_per_s=500.
    ///
    /// May be repeated.
    #[arg(long, help_heading = "Load", value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// Seconds in which new work starts, instead of the scenario's own.
    #[arg(
        long, help_heading = "Load", value_parser = program::units::seconds, allow_negative_numbers = true
    )]
    pub seconds: Option<f64>,

    /// Events to stream, instead of the bundled, generated sample.
    ///
    /// Formats: .jsonl, .jsonl.gz, .jsonl.zst or .pb.gz.
    #[arg(long, help_heading = "Load", value_name = "FILE")]
    pub corpus: Option<PathBuf>,

    /// Leave out invalid events of --corpus, and count them.
    ///
    /// Each event is then verified.
    #[arg(long, help_heading = "Load", requires = "corpus", hide_short_help = true)]
    pub skip_invalid: bool,

    /// Seed of everything random [default: 1, with --url a new one].
    ///
    /// With --url it is a new one each time, because a relay does not deliver an event again.
    #[arg(long, help_heading = "Load")]
    pub seed: Option<u64>,

    /// Seconds that the relay may be silent after the last event was due.
    ///
    /// Missing deliveries then count as lost.
    #[arg(
        long, help_heading = "Load", default_value_t = 10, value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..=3600), hide_short_help = true
    )]
    pub drain_seconds: u64,

    /// How often each client pings the relay (RFC 6455), as in 20s [default: never].
    ///
    /// A proxy between them may cut what is silent for long.
    #[arg(
        long, help_heading = "Load", value_name = "SECONDS", value_parser = program::units::pause_seconds,
        hide_short_help = true
    )]
    pub ping_every: Option<f64>,

    /// Threads that carry the connections.
    #[arg(
        long, help_heading = "Load", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=256), hide_short_help = true
    )]
    pub workers: u16,

    /// Formats that this run will be compared with, separated by commas.
    ///
    /// An event that one of them cannot hold is left out, so that all stream the same events. The
    /// core formats (json to notepack) always count.
    #[arg(long, help_heading = "Load", value_name = "FORMATS", value_delimiter = ',', hide = true)]
    pub comparable_with: Vec<Format>,

    /// The dictionary of zstd-dict, instead of the bundled one of the format.
    ///
    /// A relay at --url must have it, too. corpus train-dictionary makes one; train it on other
    /// events than are streamed.
    #[arg(long, help_heading = "Wire", value_name = "FILE", hide_short_help = true)]
    pub dictionary: Option<PathBuf>,

    /// The relay (ws:// or wss://), instead of a relay-sim.
    ///
    /// As in ws://host:port or wss://host:port. Without --format or --compression clients offer
    /// everything, and the relay chooses. Flags insist.
    #[arg(long, help_heading = "Relay")]
    pub url: Option<String>,

    /// Play against the relay-sim that listens there; without one, or with none, start one.
    ///
    /// A loopback address. Any other program there is left alone. A run with flags for its own relay
    /// (--verify, --link, --floor, --no-pin and others) starts one.
    #[arg(
        long, help_heading = "Relay", value_name = "ADDRESS", default_value = relay_sim::DEFAULT_ADDRESS,
        value_parser = stated::local_relay, conflicts_with = "relay_of_others", hide_short_help = true
    )]
    pub local_relay: LocalRelay,

    /// Process ids of the relay at --url, for its CPU time.
    ///
    /// For a relay on this machine, separated by commas. Includes their children. A relay-sim needs
    /// no ids.
    #[arg(long, help_heading = "Relay", requires = "url", value_name = "PIDS", value_delimiter = ',')]
    pub relay_pid: Vec<u32>,

    /// The folder in which the relay at --url keeps its events, for its size at the end.
    #[arg(
        long, help_heading = "Relay", requires = "relay_pid", value_name = "FOLDER", value_parser = folder,
        hide_short_help = true
    )]
    pub relay_dir: Option<PathBuf>,

    /// Root certificates (PEM) to trust for wss:// instead of the platform's.
    #[arg(
        long,
        help_heading = "Relay",
        requires = "relay_of_others",
        value_name = "FILE",
        hide_short_help = true
    )]
    pub ca: Option<PathBuf>,

    /// A header field of every request to the relay at --url, for a proxy.
    ///
    /// May be repeated. Records have only its name.
    #[arg(
        long, help_heading = "Relay", requires = "relay_of_others", value_name = "NAME=VALUE",
        value_parser = Unechoed::<Header>::NEW, hide_short_help = true
    )]
    pub header: Vec<Header>,

    #[command(flatten)]
    pub signing: Signs,

    /// Answers of `client-sim doctor --json` about the relay at --url.
    ///
    /// The relay is then not probed again, and clients insist on format and compression. With --floor
    /// the plan fits such a relay.
    #[arg(
        long,
        help_heading = "Relay",
        requires = "plan_for_others",
        value_name = "FILE",
        hide_short_help = true
    )]
    pub doctor: Option<PathBuf>,

    /// Count an event that comes before EOSE and again after it as duplicated.
    ///
    /// Without it such events are tolerated and counted apart. Without --url they always count as
    /// duplicated.
    #[arg(long, help_heading = "Relay", requires = "url", hide_short_help = true)]
    pub strict_seam: bool,

    /// Let the kernel place relay and clients.
    ///
    /// Without this, each process is pinned to its half of the cores. Only without --url.
    #[arg(long, help_heading = "Relay", conflicts_with = "url", hide_short_help = true)]
    pub no_pin: bool,

    /// Let the relay keep its events on disk in this format, instead of in memory.
    ///
    /// In a new directory in TMPDIR, removed after the run. Only without --url.
    #[arg(
        long, help_heading = "Relay", value_name = "FORMAT",
        conflicts_with_all = ["url", "relay_at", "serve", "floor"], hide_short_help = true
    )]
    pub at_rest: Option<Format>,

    /// Measure the floor: a relay that does no Nostr work and sends prepared answers.
    ///
    /// The cost of generator and sockets remains. JSON without compression. Only without
    /// --url.
    #[arg(
        long, help_heading = "Relay", conflicts_with_all = ["url", "relay_fault"], hide_short_help = true
    )]
    pub floor: bool,

    /// Plant a fault in the relay, to test the measurement.
    ///
    /// As in stall=500ms@3s, burn=20us, delay=50ms (see relay-sim --help); may be repeated. The
    /// record names the faults and is suspect. Only without --url.
    #[arg(
        long,
        help_heading = "Relay",
        value_name = "FAULT",
        conflicts_with = "url",
        hide_short_help = true
    )]
    pub relay_fault: Vec<Fault>,

    /// TCP's congestion control on links, as the kernel names it: cubic, bbr, reno.
    #[arg(
        long, help_heading = "Links", default_value = link::DEFAULT_CONGESTION, value_name = "NAME",
        hide_short_help = true
    )]
    pub congestion: String,

    /// Packets a second that this host emulates on time, as client-sim links --capacity prints.
    ///
    /// Without this, a run over links that needs many packets measures it first, in some seconds.
    #[arg(long, help_heading = "Links", value_name = "PACKETS_PER_S", hide_short_help = true)]
    pub link_capacity: Option<u32>,

    /// Print the full result as JSON on standard output, instead of the summary.
    ///
    /// The same as --record writes. Progress, messages and logs go to standard error.
    #[arg(long, help_heading = "Output", hide_short_help = true)]
    pub json: bool,

    /// Print every figure of the run instead of 20 lines.
    #[arg(long, help_heading = "Output", hide_short_help = true)]
    pub wide: bool,

    /// Write the full result, histograms included, as JSON.
    #[arg(long, help_heading = "Output", value_name = "FILE")]
    pub record: Option<PathBuf>,

    /// Write a page of the run, as one HTML file.
    ///
    /// Latency, throughput, fates of events, CPU and validity. It loads nothing.
    #[arg(long, help_heading = "Output", value_name = "FILE", conflicts_with = "part_of_a_block")]
    pub html: Option<PathBuf>,

    /// Write every delivery that was lost, doubled, altered or not owed.
    ///
    /// One line of JSON each: the fault, connection, event id and kind, subscription, filter, and the
    /// relay's answers. Standard error names the first five of each kind.
    #[arg(long, help_heading = "Output", value_name = "FILE", hide_short_help = true)]
    pub ledger: Option<PathBuf>,

    /// Serve the run's progress to Prometheus at http://HOST:PORT/metrics.
    ///
    /// Connections, events sent, deliveries, their p99, CPU time. A PORT alone is on 127.0.0.1.
    #[arg(
        long,
        help_heading = "Output",
        value_name = "[HOST:]PORT",
        conflicts_with = "serve",
        hide_short_help = true
    )]
    pub metrics_listen: Option<String>,

    /// Print errors only, no progress and no summary.
    #[arg(long, help_heading = "Output", hide_short_help = true)]
    pub quiet: bool,

    // Flags from here on are for programs that play a block together, and not in help.
    /// Print a line of JSON on standard output each second instead of the summary.
    ///
    /// For programs that show progress: second, of, samples, latency_ns_p50, latency_ns_p99, and
    /// so_far, what is counted; with --share so_far once more at the end.
    #[arg(long, hide = true, conflicts_with = "json")]
    pub progress_json: bool,

    /// Play agent I's share of a plan of N agents, I from 0.
    ///
    /// A coordinator on standard input says when: print a line {"prepared": …} on standard output
    /// when ready, begin at the instant of the line "start NANOSECONDS" (CLOCK_MONOTONIC, half a
    /// second ahead or more), and stop at the line "stop", at the end of the input, or at a second
    /// of silence after the first line "on". Agent 0 stores the events that sessions ask for.
    #[arg(
        long, value_name = "I/N", requires_all = ["relay_of_others", "seed"],
        conflicts_with_all = ["relay_pid", "json"], hide = true
    )]
    pub share: Option<Share>,

    /// Start the relay of the plan at this address, for players of shares, and play nothing.
    ///
    /// Print a line {"prepared": …} with its URL when it listens, measure the relay's cost from the
    /// instant of the line "start NANOSECONDS" on, stop it as --share stops, and write the cost to
    /// --record. Nothing is written when the start is missing or the relay is lost.
    #[arg(
        long, value_name = "ADDRESS:PORT", requires_all = ["seed", "record"],
        conflicts_with_all = ["url", "relay_fault", "json"], hide = true
    )]
    pub serve: Option<SocketAddr>,

    /// Play against the relay that --serve started on another machine.
    ///
    /// With the same scenario, events, seed and settings of the relay. With --serve: the URL at
    /// which players reach the relay, where it differs from the address of --serve.
    #[arg(long, value_name = "WS_URL", hide = true)]
    pub relay_at: Option<String>,

    /// Identify this play of a block in the record.
    ///
    /// The coordinator gives all agents the same. Records of different plays do not merge.
    #[arg(long, value_name = "ID", requires = "part_of_a_block", hide = true)]
    pub block_id: Option<String>,

    /// Refuse a plan of which all shares together publish more events in any second, or that
    /// publishes in a closed loop.
    #[arg(long, value_name = "PER_SECOND", hide = true)]
    pub max_rate: Option<u32>,

    /// Refuse a plan of which this share makes more connections over the whole run.
    #[arg(long, value_name = "NUMBER", hide = true)]
    pub max_connections: Option<u32>,
}

impl Args {
    /// Says something on standard error, unless only errors are asked for.
    pub(crate) fn tell(&self, line: &str) {
        if !self.quiet {
            report(line);
        }
    }
}

/// Commands other than a run.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the built-in scenarios with their questions.
    Scenarios,
    /// List the wire formats. The core ones are compared by default.
    Formats,
    /// List the access links with their sources; test whether this host can emulate them.
    Links {
        /// Compare transfer times over a link with its rates and delays, and lost packets with its
        /// loss: fifteen seconds, on an otherwise quiet host. Exit code 1 when one is off, 3 when
        /// the host was too busy.
        #[arg(long)]
        check: bool,
        /// Also check this many users of 1.6 Mbit/s at once.
        #[arg(long, value_name = "USERS", requires = "check", value_parser = clap::value_parser!(u16).range(1..=2_000))]
        links: Option<u16>,
        /// Print how many packets a second this host emulates on time: some seconds, on an otherwise
        /// quiet host. Exit code 3 when the host was too busy.
        #[arg(long, conflicts_with = "check")]
        capacity: bool,
    },
    /// Print the plan of a scenario without a run.
    ///
    /// Numbers of clients, events, bytes and deliveries.
    Explain(Explain),
    /// Probe a relay: scenarios that it can play, settings to change.
    #[command(long_about = DOCTOR)]
    Doctor(Doctor),
}

const DOCTOR: &str = "\
Probe a relay, and print which scenarios it can play and which settings to change.

Reads the relay's NIP-11 document and rehearses the scenarios: publishes an event of each kind that they write, one \
of the largest size, most tags, longest tag value and earliest and latest date, and sends their widest requests, on as \
many connections as they make (256 at most). It asks back what it published, also on other connections, tries AUTH, \
and offers formats, compressions and batches. What is refused or not given back is named in the relay's words.

Publishes some 40 events with throw-away keys (or --keys) and an expiration (NIP-40), deleted at the end (NIP-09). Ends after three \
minutes at most, longer with proof of work. Every run with --url begins with the rehearsal of its scenario.";

/// Options of `client-sim doctor`.
#[derive(Debug, clap::Args)]
pub struct Doctor {
    /// The relay (ws://host:port or wss://host:port).
    #[arg(long)]
    pub url: String,

    /// Root certificates (PEM) to trust for wss:// instead of the platform's.
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,

    /// A header field of every request to the relay, for a proxy; may be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = Unechoed::<Header>::NEW)]
    pub header: Vec<Header>,

    #[command(flatten)]
    pub signing: Signs,

    /// A scenario to check, may be repeated; all built-in ones without it.
    #[arg(long, value_name = "NAME|FILE")]
    pub scenario: Vec<String>,

    /// The events that a run would stream; the bundled sample without it.
    #[arg(long, value_name = "FILE")]
    pub corpus: Option<PathBuf>,

    /// Leave out invalid events of --corpus, and count them; each event is then verified.
    #[arg(long, requires = "corpus")]
    pub skip_invalid: bool,

    /// Formats to offer, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "json")]
    pub formats: Vec<Format>,

    /// Compressions to offer with each format, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "none,deflate,deflate-no-takeover")]
    pub compressions: Vec<Compression>,

    /// Print JSON, which --doctor of a run reads.
    #[arg(long)]
    pub json: bool,
}

/// Who signs events for an external relay, and with how much work.
#[derive(Debug, Clone, clap::Args)]
pub struct Signs {
    /// Secret keys that sign the events, one a line, in hex or as nsec.
    ///
    /// For a relay that lets only some authors write. Each author takes a key of its own; a run with
    /// too few says how many it takes. Give keys of which the relay has no events: it would keep a
    /// newer profile or list. Without a file the keys follow from the seed (client-sim explain
    /// --pubkeys).
    #[arg(long, help_heading = "Relay", requires = "url", value_name = "FILE", hide_short_help = true)]
    pub keys: Option<PathBuf>,

    /// Bits of proof of work of each event (NIP-13), at most 20 [default: what NIP-11 asks for].
    ///
    /// Made before the clock starts.
    #[arg(
        long, help_heading = "Relay", requires = "url", value_name = "BITS", value_parser = work_bits,
        hide_short_help = true
    )]
    pub pow: Option<u8>,
}

impl Signs {
    /// Reads the keys.
    ///
    /// # Errors
    /// When the file is no list of keys.
    pub(crate) fn read(&self) -> anyhow::Result<Signing> {
        let keys = self.keys.as_deref().map(Keys::read).transpose().context("--keys")?;
        Ok(Signing { keys, work_bits: self.pow.unwrap_or(0), ..Signing::default() })
    }
}

/// Reads `--pow`.
///
/// # Errors
/// When the bits are no number, or more than are made.
pub fn work_bits(text: &str) -> Result<u8, String> {
    let bits: u8 = text.parse().map_err(|_| format!("expected bits from 0 to {MOST_WORK_BITS}"))?;
    (bits <= MOST_WORK_BITS).then_some(bits).ok_or_else(|| {
        format!(
            "each bit doubles the work: {MOST_WORK_BITS} take about a second an event, and more is not made"
        )
    })
}

/// Options of `client-sim explain`.
#[derive(Debug, clap::Args)]
pub struct Explain {
    /// A built-in scenario, or the path of a .toml file.
    #[arg(value_name = "NAME|FILE", required_unless_present = "scenario")]
    pub name: Option<String>,

    /// The same, as in a run.
    #[arg(long, value_name = "NAME|FILE", conflicts_with = "name")]
    pub scenario: Option<String>,

    /// Change the scenario, as in a run.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,

    /// Events to stream, as in a run.
    #[arg(long, value_name = "FILE")]
    pub corpus: Option<PathBuf>,

    /// Leave out invalid events of --corpus, and count them; each event is then verified.
    #[arg(long, requires = "corpus")]
    pub skip_invalid: bool,

    /// Seed of everything random, as in a run.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// Seconds in which new work starts, instead of the scenario's own.
    #[arg(long, value_parser = program::units::seconds, allow_negative_numbers = true)]
    pub seconds: Option<f64>,

    /// Loads, separated by commas. One explains the plan at that load, several print the demand of
    /// each per second.
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "1", value_parser = load)]
    pub load: Vec<f64>,

    /// Split the plan between this many agents (processes that play it together), and print the
    /// share of each and the hash of the plan. --share plays one agent's share.
    #[arg(long, value_name = "N")]
    pub agents: Option<NonZeroU16>,

    /// Print the public keys that sign the events of a run with --url and this seed, one a line.
    ///
    /// In hex, those of its rehearsal and of AUTH included, so that a relay can let them write. A relay
    /// that refuses some events of the corpus is sent others: sign with --keys there.
    #[arg(long, conflicts_with_all = ["json", "agents"])]
    pub pubkeys: bool,

    /// Print JSON: the plan, its hash, its payload bytes by format, and with --agents the share of
    /// each agent.
    #[arg(long)]
    pub json: bool,
}

/// A folder that is there.
fn folder(text: &str) -> Result<PathBuf, String> {
    let folder = PathBuf::from(text);
    if folder.is_dir() { Ok(folder) } else { Err("there is no such folder".to_owned()) }
}

/// A load, as in a cell.
fn load(text: &str) -> Result<f64, String> {
    Cell::from_words([(Factor::Load.row().name, text)]).map(|cell| cell.load)
}

impl Args {
    /// Threads of a relay of our own.
    pub(crate) fn relay_threads(&self) -> u16 {
        self.cell.own_relay().threads
    }

    /// Whether the plan is for an external relay, which stores events of earlier runs.
    pub fn plays_for_others(&self) -> bool {
        self.url.is_some() || self.doctor.is_some()
    }

    /// Whether this run starts a relay of its own.
    pub fn starts_relay(&self) -> bool {
        self.serve.is_some() || (self.url.is_none() && self.relay_at.is_none())
    }
}

/// One for each group of flags.
const EXAMPLES: &str = "\
Examples:
  Load    client-sim publish-flood --set publish.flood.window=16
  Wire    client-sim follow-list-burst --format dannypack --compression zstd
  Relay   client-sim note-stream --url ws://127.0.0.1:8080
  Links   client-sim home-feed-cold-start --link slow-4g
  Output  client-sim note-stream --record run.json --html run.html";

/// Lists that only `--help` shows, after the examples.
fn lists() -> String {
    let formats: Vec<_> =
        Format::all().map(|format| format!("  {:<16} {}", format.name(), format.spec().layout)).collect();
    let scenarios: Vec<_> = Scenario::names()
        .into_iter()
        .filter_map(|name| Scenario::load(name).ok())
        .map(|scenario| format!("  {:<22} {}", scenario.name, scenario.question))
        .collect();
    format!(
        "\
Scenarios:
{}

Formats:
{}

{EXAMPLES}
          client-sim explain mixed-day --load 1,4,16
          client-sim explain reconnect-storm --agents 32
          client-sim note-stream --url ws://127.0.0.1:7777 --relay-pid 4711

The summary goes to standard output, everything else to standard error.

Exit codes:
  0    fine
  1    failed before the start
  2    usage
  3    invalid measurement
  4    events lost or altered
  5    relay lost or a share stopped
  6    not possible with --floor or over links here
  99   a latency beyond the scenario's bound
  130  interrupted
After 3, 4, 5, 99 and 130 what was measured is kept, and the result names the fault.",
        scenarios.join("\n"),
        formats.join("\n")
    )
}
