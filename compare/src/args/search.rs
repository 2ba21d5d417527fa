//! The command line of `compare search`.

use std::path::PathBuf;

use anyhow::Result;
use cell::{Factor, MOST_LOAD};
use clap::{Args, ValueEnum};
use link::{Capacity, Link};
use program::Unechoed;
use wire::RelayUrl;

use super::{UrlFlags, seed};
use crate::{
    matrix::{Matrix, Values},
    probe::LONGEST_SECONDS,
    relays,
};
use report::{
    reference::BASE_COMPRESSION,
    result::{AtLoad1, BreakEvenConfig, MAX_ROUNDS, RelayCommand, SearchConfig},
    slo::Slo,
};

/// The aim of `compare search`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SearchMetric {
    /// The most deliveries a second that each cell sustains under an SLO
    Capacity,
    /// The downlink of the users' access links at which two cells take equally long: p50 of
    /// sessions, or of the latency of the tables where there are none. Takes cells over emulated
    /// links of every bandwidth and round trip (docs/links.md)
    BreakEvenBandwidth,
}

/// The setting that a search for capacities varies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// The load: clients, sessions and publications together; rates are deliveries per second
    Load,
    /// The rate at which events are published, by clients as many as ever
    Rate,
}

/// One for each group of flags.
const EXAMPLES: &str = "\
Examples:
  Load        compare search --scenario note-stream
  Wire        compare search --format json,dannypack --compression none,deflate
  Relay       compare search --url ws://127.0.0.1:8080
              compare search --relay 'old=./old {port}' --relay 'new=./new {port}'
  Capacity    compare search --slo 'p99<10ms, lost=0' --start 1000
  Break-even  compare search --metric break-even-bandwidth --format json,dannypack --rtts 60ms
  Output      compare search --out results";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SearchFlags {
    /// Scenario, by name or TOML file
    ///
    /// For --by rate one that publishes at a rate.
    #[arg(long, help_heading = "Load", default_value = "note-stream", value_name = "NAME|FILE")]
    pub(crate) scenario: String,
    /// The aim of the search
    #[arg(long, help_heading = "Load", value_enum, default_value = "capacity")]
    pub(crate) metric: SearchMetric,
    #[command(flatten)]
    pub(crate) values: Values<false>,
    /// Least seconds of a probe [default: 10, for a break-even 5]
    ///
    /// Up to 60 where the SLO's quantile needs more answers.
    #[arg(
        long, help_heading = "Load", value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=i64::from(LONGEST_SECONDS))
    )]
    pub(crate) probe_seconds: Option<u32>,
    /// Events to send [default: the bundled sample]
    #[arg(long, help_heading = "Load", value_name = "FILE")]
    pub(crate) corpus: Option<String>,
    /// Leave out what in --corpus is no valid event, and count it
    ///
    /// Each event is then verified.
    #[arg(long, help_heading = "Load", requires = "corpus", hide_short_help = true)]
    pub(crate) skip_invalid: bool,
    /// Decides the order of the probes and everything random in the load
    ///
    /// [default: 1, with --url one drawn at random]
    #[arg(long, help_heading = "Load", hide_short_help = true)]
    pub(crate) seed: Option<u64>,
    /// Arguments for every client, after --
    #[arg(last = true, help_heading = "Load", hide_short_help = true)]
    pub(crate) client_args: Vec<String>,
    #[command(flatten)]
    pub(crate) capacity: CapacityFlags,
    #[command(flatten)]
    pub(crate) break_even: BreakEvenFlags,
    /// Where the result folder is made
    #[arg(long, help_heading = "Output", default_value = "results", value_name = "FOLDER")]
    pub(crate) out: PathBuf,
}

/// Flags of a search for capacities alone.
#[derive(Debug, Args)]
#[command(next_help_heading = "Capacity")]
pub(crate) struct CapacityFlags {
    /// A relay (ws:// or wss://) instead of fresh ones of our own
    ///
    /// Formats then default to json. Published events stay in the relay.
    #[arg(
        long, help_heading = "Relay", conflicts_with_all = ["verify", "reencode"],
        value_parser = Unechoed::<RelayUrl>::NEW
    )]
    pub(crate) url: Option<RelayUrl>,
    #[command(flatten)]
    pub(crate) behind_url: UrlFlags,
    /// A relay that is started for each probe, as in compare run
    ///
    /// May be repeated: each has a capacity of its own.
    #[arg(
        long, help_heading = "Relay", value_name = "NAME=COMMAND", value_parser = relays::read,
        conflicts_with_all = ["url", "verify", "reencode"]
    )]
    pub(crate) relay: Vec<RelayCommand>,
    /// Bounds that must hold [default: p99<10ms, lost=0, achieved>=0.99]
    ///
    /// Separated by commas, on p50, p90, p99, p99.9, lost, rejected, achieved, relay_cpu,
    /// wire_bytes.
    #[arg(long)]
    pub(crate) slo: Option<Slo>,
    /// The setting that is varied [default: load]
    #[arg(long, value_enum)]
    pub(crate) by: Option<By>,
    /// First rate, in deliveries per second [default: those of load 1]
    ///
    /// With --by rate in events published per second [default: 250].
    #[arg(long, value_name = "RATE", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) start: Option<u32>,
    /// No probe goes beyond this rate [default: 1000000]
    #[arg(long, value_name = "RATE", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) limit: Option<u32>,
    /// How far apart two searches may be, as a share [default: 0.05]
    #[arg(long, hide_short_help = true, value_name = "SHARE", value_parser = precision)]
    pub(crate) precision: Option<f64>,
    /// Do not measure p99 at 10 to 95 % of the lowest capacity
    #[arg(long, hide_short_help = true)]
    pub(crate) no_curve: bool,
}

/// Flags of a search for break-even bandwidths alone.
#[derive(Debug, Args)]
#[command(next_help_heading = "Break-even")]
pub(crate) struct BreakEvenFlags {
    /// Downlinks of the grid [default: nine, from 250kbit to 100mbit]
    ///
    /// Separated by commas [default:
    /// 250kbit,500kbit,1mbit,2.5mbit,5mbit,10mbit,25mbit,50mbit,100mbit].
    #[arg(long, value_delimiter = ',', value_name = "RATES", value_parser = rate_bits_per_s)]
    pub(crate) bandwidths: Option<Vec<u64>>,
    /// Round trips without queues, separated by commas [default: 30ms,150ms]
    #[arg(long, value_delimiter = ',', value_name = "TIMES", value_parser = rtt_ns)]
    pub(crate) rtts: Option<Vec<u64>>,
    /// Uplink as a share of the downlink, up to 1 [default: 0.25]
    ///
    /// That of the profile wifi.
    #[arg(long, value_name = "SHARE", value_parser = uplink)]
    pub(crate) uplink: Option<f64>,
    /// Rounds; in each, every cell runs once over every link [default: 9]
    ///
    /// Intervals need 6 or more; Holm's correction over 9 bandwidths needs 9.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ROUNDS)))]
    pub(crate) rounds: Option<u32>,
}

/// The grid of a search for break-even bandwidths: a decade in three steps, 0.25 to 100 Mbit/s.
const BANDWIDTHS: [u64; 9] =
    [250_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000, 25_000_000, 50_000_000, 100_000_000];

/// Its round trips: of a fast access link (`wifi`) and of a slow one (`slow-4g`).
const RTTS_NS: [u64; 2] = [30_000_000, 150_000_000];

/// Its uplink ÷ downlink: that of `wifi`. Of the other asymmetric profiles it is 0.2 to 0.83.
const UPLINK_SHARE: f64 = 0.25;

/// Its rounds: the fewest with which Holm's correction over nine bandwidths can find anything.
const BREAK_EVEN_ROUNDS: u32 = 9;

/// Its seconds of a block in which work starts.
const BREAK_EVEN_SECONDS: u32 = 5;

/// Its patience with a relay that is silent: a megabyte and a half over 250 kbit/s take 48 s, in
/// which no session ends.
const DRAIN: [&str; 2] = ["--drain-seconds", "90"];

/// The SLO of a capacity unless told otherwise.
const SLO: &str = "p99<10ms, lost=0, achieved>=0.99";

impl SearchFlags {
    /// Why the flags do not go with the metric.
    pub(crate) fn refusal(&self) -> Option<String> {
        let CapacityFlags { slo, by, start, limit, precision, no_curve, url, relay, .. } = &self.capacity;
        if let (Some(start), Some(limit)) = (start, limit)
            && start > limit
        {
            return Some(format!("--start {start} is beyond --limit {limit}; begin below it"));
        }
        if self.metric == SearchMetric::Capacity
            && let Some(contradiction) = self.slo().contradiction(self.probe_seconds(), LONGEST_SECONDS)
        {
            return Some(contradiction);
        }
        let BreakEvenFlags { bandwidths, rtts, uplink, rounds } = &self.break_even;
        let first =
            |given: &[(&'static str, bool)]| given.iter().find(|(_, given)| *given).map(|(name, _)| *name);
        let (name, metric) = match self.metric {
            SearchMetric::Capacity => (
                first(&[
                    ("--bandwidths", bandwidths.is_some()),
                    ("--rtts", rtts.is_some()),
                    ("--uplink", uplink.is_some()),
                    ("--rounds", rounds.is_some()),
                ])?,
                "break-even-bandwidth",
            ),
            SearchMetric::BreakEvenBandwidth => (
                first(&[
                    ("--slo", slo.is_some()),
                    ("--by", by.is_some()),
                    ("--start", start.is_some()),
                    ("--limit", limit.is_some()),
                    ("--precision", precision.is_some()),
                    ("--no-curve", *no_curve),
                    ("--url", url.is_some()),
                    ("--relay", !relay.is_empty()),
                ])?,
                "capacity",
            ),
        };
        Some(format!("{name} is only for --metric {metric}"))
    }

    pub(crate) fn matrix(&self) -> Result<Matrix> {
        let relays = &self.capacity.relay;
        let is_foreign = self.capacity.url.is_some() || !relays.is_empty();
        let standing = if is_foreign { Matrix::of_a_foreign_relay() } else { Values::<false>::standing() };
        let standing =
            standing.with(Factor::Scenario, [&self.scenario]).with(Factor::Compression, [BASE_COMPRESSION]);
        let matrix = self.values.over(standing);
        let matrix = if is_foreign { matrix.of_anothers_relay(&self.values)? } else { matrix };
        Ok(if relays.is_empty() { matrix } else { matrix.with_relays(relays) })
    }

    /// The bounds of a capacity.
    pub(crate) fn slo(&self) -> Slo {
        let standing = || SLO.parse().expect("the bounds are a constant that was tried");
        self.capacity.slo.clone().unwrap_or_else(standing)
    }

    /// Seconds of a probe at least.
    pub(crate) fn probe_seconds(&self) -> u32 {
        self.probe_seconds.unwrap_or(10)
    }

    /// The question of a search for capacities; `at_load_1` where loads are searched.
    pub(crate) fn config(&self, at_load_1: Option<AtLoad1>) -> SearchConfig {
        let CapacityFlags { start, limit, precision, no_curve, url, behind_url, .. } = &self.capacity;
        let standing = at_load_1.map_or(250, |one| one.deliveries_per_s_at(1.0));
        let most = at_load_1.map_or(u32::MAX, |one| one.deliveries_per_s_at(MOST_LOAD));
        SearchConfig {
            scenario: self.scenario.clone(),
            slo: self.slo().to_string(),
            at_load_1,
            start_per_s: start.unwrap_or(standing).min(most),
            limit_per_s: limit.unwrap_or(1_000_000).min(most),
            probe_seconds: self.probe_seconds(),
            precision: precision.unwrap_or(0.05),
            curve: !no_curve,
            seed: self.seed.unwrap_or_else(|| seed(url.is_some())),
            corpus: self.corpus.clone(),
            url: url.clone(),
            relays: self.capacity.relay.clone(),
            headers: behind_url.header.clone(),
            client_args: behind_url.client_args(self.skip_invalid, &self.client_args),
        }
    }

    /// The question of a search for break-even bandwidths.
    pub(crate) fn break_even(&self) -> BreakEvenConfig {
        let BreakEvenFlags { bandwidths, rtts, uplink, rounds } = &self.break_even;
        let ascending = |given: &Option<Vec<u64>>, standing: &[u64]| {
            let mut all = given.clone().unwrap_or_else(|| standing.to_vec());
            all.sort_unstable();
            all.dedup();
            all
        };
        BreakEvenConfig {
            scenario: self.scenario.clone(),
            down_bits_per_s: ascending(bandwidths, &BANDWIDTHS),
            uplink_share: uplink.unwrap_or(UPLINK_SHARE),
            rtts_ns: ascending(rtts, &RTTS_NS),
            rounds: rounds.unwrap_or(BREAK_EVEN_ROUNDS),
            seconds: self.probe_seconds.unwrap_or(BREAK_EVEN_SECONDS),
            seed: self.seed.unwrap_or_else(|| seed(false)),
            corpus: self.corpus.clone(),
            client_args: patient(&self.capacity.behind_url.client_args(self.skip_invalid, &self.client_args)),
        }
    }
}

/// Arguments of every client, which waits for slow links unless they say for how long.
fn patient(client_args: &[String]) -> Vec<String> {
    let own = client_args.iter().any(|arg| arg.starts_with(DRAIN[0]));
    let drain = DRAIN.iter().filter(|_| !own).map(|word| (*word).to_owned());
    drain.chain(client_args.iter().cloned()).collect()
}

/// A rate as in a link: `1.6mbit`.
fn rate_bits_per_s(text: &str) -> Result<u64, String> {
    match part_of_a_link("down", text)?.down.capacity {
        Capacity::BitsPerSecond(rate) => Ok(rate),
        _ => Err("expected a constant rate, as in 1.6mbit".to_owned()),
    }
}

/// A round trip as in a link: `30ms`.
fn rtt_ns(text: &str) -> Result<u64, String> {
    let link = part_of_a_link("rtt", text)?;
    Ok(link.down.delay_ns + link.up.delay_ns)
}

/// A link with this one value, which the link's own parser reads; other keys have any valid one.
fn part_of_a_link(key: &str, value: &str) -> Result<Link, String> {
    if value.contains([':', '=']) {
        return Err("expected a single value, as in 1.6mbit or 30ms".to_owned());
    }
    let others = [("down", "1mbit"), ("up", "1mbit"), ("rtt", "10ms")];
    let parts =
        others.map(|(other, standing)| format!("{other}={}", if other == key { value } else { standing }));
    parts.join(":").parse().map_err(|error: link::LinkError| error.why().to_owned())
}

fn uplink(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.01..=1.0).contains(share));
    share.ok_or_else(|| "expected a share from 0.01 to 1, as in 0.25".to_owned())
}

fn precision(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.001..=1.0).contains(share));
    share.ok_or_else(|| "expected a share from 0.001 to 1, as in 0.05".to_owned())
}
