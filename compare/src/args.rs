//! The command line and its help.

mod agents;
mod browser;
mod plan;
mod play;
mod search;

use std::{ops::RangeInclusive, path::PathBuf, str::FromStr, time::Duration};

use anyhow::Result;
use cell::{Factor, Saturate};
use clap::{
    Args, Parser, Subcommand,
    builder::{PossibleValuesParser, TypedValueParser},
};
use codecs::Format;
use wire::Compression;

pub(crate) use self::{
    agents::{AgentFlags, OverAgents},
    browser::BrowserFlags,
    plan::PlanFlags,
    play::{EventFlags, PlayFlags},
    search::{By, SearchFlags},
};
use crate::{
    matrix::{CellSpec, FACTORS, Matrix, ONCE_FOR_ALL, Values},
    plan::{Profile, is_quick},
    selftest,
};
use report::{
    FailOn,
    result::{Config, MAX_ROUNDS, MeasuredBy, RelayCommand, Role},
    slo::Slo,
};

const EXAMPLES: &str = "\
Examples:
  compare run --scenario follow-list-burst          # what a core sends and reads in each format
  compare run --url ws://127.0.0.1:8080             # another relay: JSON with and without deflate
  compare run --relay 'old=./old {port}' --relay 'new=./new {port}'   # two builds of a relay
  compare search --url ws://127.0.0.1:8080          # its most deliveries/s under p99 < 10 ms
  compare report results/20261121T080509Z-1a2b3c4d-1";

const MORE: &str = "\
Examples:
  compare run --scenario follow-list-burst          # what a core sends and reads in each format
  compare run --saturate none                       # the scenario's own pace: latencies, nine formats
  compare run --profile standard                    # 12 rounds of 10 s
  compare run --seconds 10 --rates auto --precision 3% --max-time 2h
  compare run --format json,capnp --compression none --verify full,none
  compare run --scenario note-stream --compression none,deflate --batching off,on
  compare run --url ws://127.0.0.1:8080             # another relay: JSON with and without deflate
  compare search --url ws://127.0.0.1:8080          # its most deliveries/s under p99 < 10 ms
  compare plan results/A --connections 2000 --publishes-per-second 20 --fan-out 50
  compare selftest --quick                          # is the instrument right?
  compare report results/20261121T080509Z-1a2b3c4d-1
  compare site out                                  # one page over all of results/

Exit codes:
  0    fine
  1    error
  2    usage
  3    a cell has no valid block, a test of the instrument failed, or a sum of a result does not hold
  4    events lost or altered
  5    relay or an agent lost
  6    this host cannot emulate the links
  99   an SLO was missed
  100  diff or --check found a regression, or a relay is worse than the first
  101  diff --strict is inconclusive, or diff or --check compares nothing
  130  interrupted (what was measured is kept)";

/// One for each group of flags.
const RUN_EXAMPLES: &str = "\
Examples:
  Load    compare run --scenario note-stream --rates auto
  Wire    compare run --format json,dannypack --compression none,deflate --implementation tuned
  Relay   compare run --relay 'old=./relay-old {address}' --relay 'new=./relay-new {address}'
  Links   compare run --scenario home-feed-cold-start --link none,slow-4g
  Rounds  compare run --profile standard --rounds 20
  Agents  compare run --scenario note-stream --nats nats://127.0.0.1:4222 --agents 4
  Output  compare run --out results --slo 'p99<10ms, lost=0'";

/// The examples and names of what is measured.
fn run_lists() -> String {
    let formats: Vec<_> = Format::all().map(Format::name).collect();
    let compressions = Compression::NAMES.join(" ");
    format!("{RUN_EXAMPLES}\n\nFormats: {}\nCompressions: {compressions}", formats.join(" "))
}

/// One for each group of flags.
const INSTRUCTION_EXAMPLES: &str = "\
Examples:
  Load       compare instructions --scenario mixed-day --seconds 2
  Wire       compare instructions --format json,dannypack --implementation tuned
  Relay      compare instructions --verify none
  Hot paths  compare instructions --hot-paths --only 'codec json'
  Output     compare instructions --out counts.json";

#[derive(Debug, Parser)]
#[command(
    name = "compare",
    version,
    about = "Which wire format, with which compression, should Nostr clients and relays speak?",
    long_about = "Which wire format, with which compression, should Nostr clients and relays speak?\n\n\
        Measures formats with compressions in fresh client and relay processes, in random order within rounds: \
        latency, envelope throughput, wire bytes and CPU, each against JSON. An envelope is one event delivered to one \
        subscriber.",
    after_help = EXAMPLES,
    after_long_help = MORE
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure, write a result folder, show the table
    ///
    /// Without flags of load (other than --scenario), rounds, relays or agents the table is what one
    /// relay core sends and one client core reads at their limit, in about five minutes. With
    /// --saturate none the scenario keeps its own pace, and latencies are measured.
    Run(Box<Run>),
    /// Show the table of a result folder again and rewrite its renderings
    ///
    /// They are summary.md, report.html, observations.csv and derived.json, from result.json alone.
    Report {
        /// The folder that `compare run` wrote
        #[arg(required_unless_present = "splice")]
        dir: Option<PathBuf>,
        /// Make the generated blocks of a Markdown file anew instead
        ///
        /// A block stands between a comment `generated: DIR` and a comment `end of generated`. It
        /// has the lines that a terminal shows of the result, or with `generated: DIR CELL …` a
        /// table of these cells.
        #[arg(long, value_name = "FILE", conflicts_with_all = ["dir", "wide"])]
        splice: Option<PathBuf>,
        /// Show every column that the terminal has room for, also beyond 120
        #[arg(long)]
        wide: bool,
        /// Write the tables of throughput as CSV, with the sums behind each figure
        #[arg(long, value_name = "FILE", conflicts_with = "splice")]
        csv: Option<PathBuf>,
    },
    /// Write one page over all results, which needs no server
    ///
    /// Formats and compressions as a heat map, with selectors for scenario, corpus, side, implementation,
    /// relay and link, charts, and the blocks behind each cell. Results of another machine, commit or corpus
    /// are not shown beside each other. report.html of a result is the same page.
    Site {
        /// The folder to write index.html to
        dir: PathBuf,
        /// A folder of results, several times for several [default: results, results/published and
        /// results/contributed]
        #[arg(long, value_name = "FOLDER")]
        results: Vec<PathBuf>,
    },
    /// Play this machine's share of a `compare run --agents` (docs/scale-out.md)
    Agent(Box<AgentFlags>),
    /// Test the instrument itself with faults of known size
    ///
    /// Makes the relay, the host or the plan misbehave by a known amount and looks for it in the
    /// result.
    Selftest(selftest::Options),
    /// Find the highest rate at which each cell keeps an SLO, or a break-even bandwidth
    ///
    /// A cell is a format with a compression. The break-even bandwidth (--by bandwidth) is that of
    /// an access link at which two cells take equally long.
    Search(Box<SearchFlags>),
    /// Plan memory, cores, traffic and money of your relay in each cell of a result
    ///
    /// Today, and at 10^5 and 10^6 connections. Every assumption is printed with it.
    Plan(Box<PlanFlags>),
    /// Measure the cost of events in each format to a page in Chromium
    ///
    /// Decoding, receiving over a WebSocket, verifying and rendering (docs/browsers.md).
    Browser(Box<BrowserFlags>),
    /// Count the instructions of relay and clients in user space by Valgrind
    ///
    /// Counts repeat from run to run, but they are no CPU time.
    Instructions(Box<InstructionFlags>),
    /// Check a result folder, and say how to add it to results/contributed
    ///
    /// A result needs records that add up, a commit, and a self-test that passed. Writes into result.json
    /// who measured it.
    Contribute {
        /// The folder that `compare run` wrote
        dir: PathBuf,
        /// Your part in what was measured
        #[arg(long, value_name = "WHO", value_parser = measured_by())]
        provenance: MeasuredBy,
        /// Who paid for machines or work, if anybody did
        #[arg(long, value_name = "WHO")]
        paid_by: Option<String>,
    },
    /// Compare two results of one kind
    ///
    /// Each cell is first divided by JSON of its own run. Searches are compared by capacity, or by time
    /// at each bandwidth.
    Diff {
        /// The folder of the earlier result
        before: PathBuf,
        /// The folder of the later result
        after: PathBuf,
        /// Compare even if corpus, scenarios or host differ
        #[arg(long)]
        force: bool,
        /// Exit with 101 when anything is inconclusive
        #[arg(long)]
        strict: bool,
    },
}

#[derive(Debug, Args)]
#[command(after_help = INSTRUCTION_EXAMPLES, next_help_heading = "Hot paths")]
pub(crate) struct InstructionFlags {
    /// The scenario, by name or TOML file
    #[arg(long, help_heading = "Load", default_value = "note-stream")]
    pub(crate) scenario: String,
    #[command(flatten)]
    pub(crate) values: Values<false>,
    /// Seconds of the plan, of which the second half is counted as steady
    #[arg(long, help_heading = "Load", default_value_t = 1.0)]
    pub(crate) seconds: f64,
    /// Decides everything random in the load
    #[arg(long, help_heading = "Load", default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) events: EventFlags,
    /// Count codecs, compressions, relay and client one by one instead of a scenario
    #[arg(long, conflicts_with_all = ["scenario", FACTORS, "seconds", "seed", "corpus", "skip_invalid"])]
    pub(crate) hot_paths: bool,
    /// Only the hot paths whose names contain this, as in 'codec json'
    #[arg(long, requires = "hot_paths", value_name = "TEXT")]
    pub(crate) only: Option<String>,
    /// Compare with these counts; exit with 100 when a path costs over 3 % more
    ///
    /// With 101 when another compiler, Valgrind, C library or processor made these counts.
    #[arg(long, requires = "hot_paths", value_name = "FILE")]
    pub(crate) check: Option<PathBuf>,
    /// Write what was counted to the file of --check instead
    #[arg(long, requires = "check", conflicts_with = "only")]
    pub(crate) accept: bool,
    /// Write what was counted, as JSON
    #[arg(long, help_heading = "Output", value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Count this program, built like this one and from the same source
    ///
    /// Client-sim alone builds sooner.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) program: Option<PathBuf>,
    /// Plant a cost, to test the count
    ///
    /// The format encodes one event in so many twice, as in json=50.
    #[arg(long, value_name = "FORMAT=N", requires = "hot_paths", hide_short_help = true)]
    pub(crate) plant: Option<String>,
}

impl InstructionFlags {
    pub(crate) fn matrix(&self) -> Matrix {
        self.values.over(Values::<false>::standing().with(Factor::Scenario, [&self.scenario]))
    }
}

/// The parts of who measures, by name.
fn measured_by() -> impl TypedValueParser<Value = MeasuredBy> {
    let names = MeasuredBy::ALL.map(|(name, _)| name);
    PossibleValuesParser::new(names).map(|name| {
        let found = MeasuredBy::ALL.into_iter().find(|(one, _)| *one == name);
        found.expect("it is one of these names").1
    })
}

/// The rate that a pilot chooses.
const AUTO: &str = "auto";

/// Events published per second, or [`AUTO`].
fn rate(text: &str) -> Result<String, String> {
    let is_rate = text == AUTO || text.parse::<u32>().is_ok_and(|rate| rate > 0);
    is_rate.then(|| text.to_owned()).ok_or_else(|| "expected a whole number above 0, or auto".to_owned())
}

/// `3%` or `0.03`.
fn half_width(text: &str) -> Result<f64, String> {
    share(text, 0.001..=0.5).ok_or_else(|| "expected a share from 0.1% to 50%, as in 3%".to_owned())
}

/// `30%` or `0.3`.
fn of_cores(text: &str) -> Result<f64, String> {
    share(text, 0.01..=0.9).ok_or_else(|| "expected a share from 1% to 90%, as in 30%".to_owned())
}

fn share(text: &str, range: RangeInclusive<f64>) -> Option<f64> {
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().ok()? / 100.0,
        None => text.parse().ok()?,
    };
    range.contains(&share).then_some(share)
}

/// Default rounds of several relays: more than two relays need to be able to fail the run
/// ([`report::rounds_to_fail`]).
const ROUNDS_OF_RELAYS: u32 = 12;

/// Rounds of the first table, so that it ends within five minutes; three have an interval.
const ROUNDS_AT_THE_LIMIT: u32 = 3;

/// The longest block that is chosen for its bursts, in seconds: beyond it somebody has to say so.
const LONGEST_OF_BURSTS: u32 = 60;

/// The fewest seconds, from these on, of a block that holds enough bursts of a scenario.
fn enough_seconds(scenario: &str, from: u32) -> u32 {
    let enough = |seconds: &u32| workload::too_few_bursts(scenario, *seconds).is_none();
    (from..=LONGEST_OF_BURSTS).find(enough).unwrap_or(from)
}

/// `90s`, `30m` or `2h`.
fn time(text: &str) -> Result<Duration, String> {
    let units = [("s", 1), ("m", 60), ("h", 3_600)];
    let found = units.iter().find_map(|(unit, seconds)| {
        let count: u64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        Some(Duration::from_secs(count.checked_mul(*seconds)?))
    });
    found.ok_or_else(|| "expected a whole number of s, m or h, as in 30m".to_owned())
}

#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES, after_long_help = run_lists())]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) values: Values<true>,
    /// Events published per second, or auto
    ///
    /// Separated by commas, instead of the scenario's rate; several draw curves. With auto a pilot
    /// finds a rate that every cell keeps with at most 60 % of its cores, so that no latency is the
    /// length of a queue.
    #[arg(long, help_heading = "Load", value_delimiter = ',', value_name = "PER_SECOND", value_parser = rate)]
    pub(crate) rates: Option<Vec<String>>,
    /// Shares of each relay's own cores, as in 10%,30%: each cell has the load that uses as much
    ///
    /// Two probes of each cell, which are not counted, choose its load; the report has the share
    /// that was reached beside the wanted one.
    #[arg(
        long, help_heading = "Load", value_delimiter = ',', value_name = "SHARES", value_parser = of_cores,
        conflicts_with_all = ["load", "saturate", "link", "rates", "url", "relay", "nats"], hide_short_help = true
    )]
    pub(crate) utilisation: Vec<f64>,
    #[command(flatten)]
    pub(crate) play: PlayFlags,
    /// Seconds that such a relay may take until it answers a handshake [default: 30]
    #[arg(
        long, help_heading = "Relay", value_name = "SECONDS", requires = "relay",
        value_parser = program::units::whole_seconds, hide_short_help = true
    )]
    pub(crate) listen_within: Option<u32>,
    /// Extent
    ///
    /// Without --format and --compression, quick compresses JSON and DannyPack alone. If the
    /// scenario has bursts, it measures these two alone, without compression and by deflate.
    #[arg(long, help_heading = "Rounds", value_enum, default_value = "quick")]
    pub(crate) profile: Profile,
    /// Rounds, instead of the profile's; intervals need 6 or more
    ///
    /// Up to half as many further rounds replace blocks with invalid times. A comparison of relays
    /// plays at least 12 by default.
    #[arg(
        long, help_heading = "Rounds", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ROUNDS))
    )]
    pub(crate) rounds: Option<u32>,
    /// Seconds a block, instead of the profile's
    ///
    /// A scenario with bursts needs at least five bursts per block.
    #[arg(
        long, help_heading = "Rounds", value_parser = program::units::whole_seconds, allow_negative_numbers = true
    )]
    pub(crate) seconds: Option<u32>,
    /// As many rounds as give CPU times an interval of ± this share, as in 3%
    ///
    /// Planned from a pilot of five rounds that are not counted.
    #[arg(long, help_heading = "Rounds", value_name = "SHARE", value_parser = half_width, conflicts_with = "rounds", hide_short_help = true)]
    pub(crate) precision: Option<f64>,
    /// No more rounds than end within this time (90s, 30m, 2h), the pilot included
    #[arg(
        long, help_heading = "Rounds", value_name = "TIME", value_parser = time, requires = "precision",
        hide_short_help = true
    )]
    pub(crate) max_time: Option<Duration>,
    /// Cells whose verdicts are corrected for their number by themselves, or all
    ///
    /// By name, as in json+deflate, separated by commas; all makes one family of all cells. The
    /// default: at most eight per load that differ from JSON without compression in format or
    /// compression alone, taken by turns in the order of the lists below. With several relays: the
    /// cells of all but the first. The other cells are secondary, corrected apart.
    #[arg(
        long,
        help_heading = "Rounds",
        value_delimiter = ',',
        value_name = "CELLS",
        hide_short_help = true
    )]
    pub(crate) primary: Vec<String>,
    /// Print cells, time and what the rounds find, and measure nothing
    #[arg(long, help_heading = "Rounds", conflicts_with = "precision")]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) over: OverAgents,
    /// Bounds that every cell must keep, or exit code 99: 'p99<10ms, lost=0'
    ///
    /// Separated by commas, on p50, p90, p99, p99.9, lost, rejected, achieved>=0.99,
    /// relay_cpu<50us and wire_bytes<900 (of an envelope).
    #[arg(long, help_heading = "Output")]
    pub(crate) slo: Option<Slo>,
    /// What a relay may cost more than the first, or exit code 100: 'p99>10%'
    ///
    /// As in 'relay CPU>3%, p99>10%', also one a flag. A relay fails if a one-sided test at 1 % finds
    /// that it costs more, and the estimate exceeds the bound (2 % without one). It takes 8 rounds,
    /// or 7 for one bound.
    #[arg(
        long, help_heading = "Output", value_name = "BOUNDS", requires = "relay", value_parser = FailOn::from_str
    )]
    pub(crate) fail_on: Vec<FailOn>,
    /// Write the verdicts on relays, and their ledgers, as JUnit's XML
    #[arg(long, help_heading = "Output", value_name = "FILE", requires = "relay", hide_short_help = true)]
    pub(crate) junit: Option<PathBuf>,
    /// Put the result of `compare selftest --out FILE` into the report
    ///
    /// The publish profile runs a quick self-test itself.
    #[arg(long, help_heading = "Output", value_name = "FILE", hide_short_help = true)]
    pub(crate) selftest: Option<PathBuf>,
    /// Show every column that the terminal has room for, also beyond 120
    #[arg(long, help_heading = "Output", hide_short_help = true)]
    pub(crate) wide: bool,
    /// Serve what is seen of the run to Prometheus at http://HOST:PORT/metrics
    ///
    /// While it lasts; a PORT alone is on 127.0.0.1. Not with --profile publish.
    #[arg(long, help_heading = "Output", value_name = "[HOST:]PORT", hide_short_help = true)]
    pub(crate) metrics_listen: Option<String>,
    /// Show no progress
    #[arg(long, help_heading = "Output", hide_short_help = true)]
    pub(crate) quiet: bool,
}

impl Run {
    /// Why metrics are not served.
    pub(crate) fn refuses_metrics(&self) -> Option<&'static str> {
        (self.metrics_listen.is_some() && self.profile == Profile::Publish).then_some(
            "--metrics-listen has clients count while they measure, and what is published is measured with nothing \
             beside it: leave it out, or take --profile standard",
        )
    }

    pub(crate) fn matrix(&self) -> Result<Matrix> {
        let standing = match () {
            () if self.play.url.is_some() => Matrix::of_a_foreign_relay(),
            () if !self.play.relay.is_empty() => Matrix::of_relays(),
            () if self.is_at_the_limit() => Matrix::at_the_limit(),
            () => Matrix::default(),
        };
        let matrix = self.play.matrix(standing, &self.values)?;
        let Some(rates) = &self.rates else { return Ok(matrix) };
        Ok(matrix.with(Factor::Rate, rates.iter().filter(|rate| *rate != AUTO)))
    }

    /// Whether a pilot chooses the rate.
    ///
    /// # Errors
    /// When a rate is given beside it, or another relay, whose store a pilot would fill, or agents.
    pub(crate) fn chooses_rate(&self) -> Result<bool, &'static str> {
        let rates = self.rates.as_deref().unwrap_or_default();
        if !rates.iter().any(|rate| rate == AUTO) {
            return Ok(false);
        }
        if rates.len() > 1 {
            return Err("--rates auto chooses one rate; leave out the others");
        }
        if self.play.has_relays_of_others() {
            return Err("--rates auto starts relays of its own; with --url or --relay give --rates a number");
        }
        if self.over.nats.is_some() {
            return Err("--rates auto finds what one machine sustains; with --nats give --rates a number");
        }
        if self.values.has(Factor::Saturate) {
            return Err(
                "--rates auto finds a rate that all cells keep; --saturate needs none: leave one of them out",
            );
        }
        Ok(true)
    }

    /// Whether nothing is asked for but the first table: what relay and clients do at their limit.
    pub(crate) fn is_at_the_limit(&self) -> bool {
        let asks_for_load = self.rates.is_some() || !self.utilisation.is_empty() || self.values.sets_load();
        let asks_for_rounds = self.profile != Profile::Quick
            || self.rounds.is_some()
            || self.seconds.is_some()
            || self.precision.is_some()
            || !self.primary.is_empty();
        let is_other_plan = self.play.has_relays_of_others() || self.over.nats.is_some();
        let is_other_test = self.slo.is_some() || !self.play.client_args.is_empty();
        !(asks_for_load || asks_for_rounds || is_other_plan || is_other_test)
    }

    /// Seconds a block: as given, or the profile's. Quick blocks hold enough bursts of each
    /// scenario.
    pub(crate) fn block_seconds(&self, scenarios: &[String]) -> u32 {
        let (_, standing) = self.profile.size();
        match self.seconds {
            Some(seconds) => seconds,
            None if self.profile != Profile::Quick => standing,
            None => scenarios.iter().fold(standing, |seconds, name| enough_seconds(name, seconds)),
        }
    }

    /// Whether a cell of the matrix is measured in blocks of so many seconds. Next to external relays a
    /// floor is measured only if it is named. The quick profile compresses few formats unless told
    /// otherwise.
    pub(crate) fn measures(&self, cell: &CellSpec, seconds: u32) -> bool {
        let chosen = self.values.has(Factor::Format) || self.values.has(Factor::Compression);
        if cell.cell.saturate.is_some() {
            // Nothing is compared with the floor at the limit.
            let is_asked = self.values.has(Factor::Compression) || !self.is_at_the_limit();
            let is_sent_once = cell.cell.compression.label() == ONCE_FOR_ALL;
            let is_read = cell.cell.saturate == Some(Saturate::Clients);
            return cell.role != Role::Floor && (is_asked || !(is_sent_once && is_read));
        }
        let all = chosen || self.profile != Profile::Quick;
        if self.play.has_relays_of_others() {
            cell.role != Role::Floor || self.play.relay.iter().any(RelayCommand::is_floor)
        } else {
            all || is_quick(cell, self.is_longer(seconds))
        }
    }

    /// Whether blocks of this length are longer than the profile's, although no flag asks for that.
    pub(crate) fn is_longer(&self, seconds: u32) -> bool {
        self.seconds.is_none() && seconds > self.profile.size().1
    }

    /// The run as asked for, with the profile's rounds where no flag replaces them.
    pub(crate) fn config(&self, scenarios: Vec<String>, seconds: u32) -> Config {
        let (rounds, _) = self.profile.size();
        let rounds = if self.is_at_the_limit() { ROUNDS_AT_THE_LIMIT } else { rounds };
        let fewest = if self.play.relay.len() > 1 { ROUNDS_OF_RELAYS } else { 1 };
        let mut config = Config {
            scenarios,
            profile: self.profile.name().to_owned(),
            rounds: self.rounds.unwrap_or(rounds.max(fewest)),
            seconds,
            slo: self.slo.as_ref().map(Slo::to_string),
            ..self.play.config()
        };
        config.relays.iter_mut().for_each(|relay| relay.listen_within_s = self.listen_within);
        config
    }
}
