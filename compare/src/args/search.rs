//! The command line of `compare search`.

use anyhow::Result;
use cell::{Factor, MOST_LOAD};
use clap::{Args, ValueEnum};
use link::Link;

use super::{PlayFlags, share};
use crate::{
    matrix::{Matrix, Values},
    search::SEARCH,
};
use report::{
    reference::BASE_COMPRESSION,
    result::{AtLoad1, Config, SearchConfig, SearchedLinks},
    slo::Slo,
};

/// The setting that a search varies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// The load: clients, sessions and publications together; rates are deliveries per second
    Load,
    /// The rate at which events are published, by clients as many as ever
    Rate,
    /// The downlink of users' access links, in kbit/s: where two cells take equally long (p50 of
    /// sessions, or of the latency of the tables; docs/links.md)
    Bandwidth,
}

/// Seconds beyond which no probe is made longer.
const LONGEST_SECONDS: u32 = 60;

/// One for each group of flags.
const EXAMPLES: &str = "\
Examples:
  Load        compare search --scenario note-stream
  Wire        compare search --format json,dannypack --compression none,deflate
  Relay       compare search --url ws://127.0.0.1:8080
              compare search --relay 'old=./old {port}' --relay 'new=./new {port}'
  Capacity    compare search --slo 'p99<10ms, lost=0' --start 1000
  Break-even  compare search --by bandwidth --format json,dannypack --rtts 60ms
  Output      compare search --out results";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SearchFlags {
    /// Scenario, by name or TOML file
    ///
    /// For --by rate one that publishes at a rate.
    #[arg(long, help_heading = "Load", default_value = "note-stream", value_name = "NAME|FILE")]
    pub(crate) scenario: String,
    /// The setting that is varied
    #[arg(long, help_heading = "Load", value_enum, default_value = "load")]
    pub(crate) by: By,
    #[command(flatten)]
    pub(crate) values: Values<false>,
    /// Seconds of each probe [default: 10, for a break-even 5]
    #[arg(
        long, help_heading = "Load", value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=i64::from(LONGEST_SECONDS))
    )]
    pub(crate) probe_seconds: Option<u32>,
    #[command(flatten)]
    pub(crate) play: PlayFlags,
    /// First value of the axis [default: the rate of load 1; 250 for rates and downlinks]
    ///
    /// In deliveries per second, with --by rate in events published per second, with --by bandwidth
    /// in kbit/s, of which none lower is tried.
    #[arg(long, help_heading = "Load", value_name = "RATE", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) start: Option<u32>,
    /// No probe goes beyond this [default: 1000000, of downlinks 100000]
    #[arg(
        long, help_heading = "Load", value_name = "RATE", value_parser = clap::value_parser!(u32).range(1..=10_000_000)
    )]
    pub(crate) limit: Option<u32>,
    /// How far apart two searches may be, as a share [default: 0.05]
    #[arg(long, help_heading = "Load", hide_short_help = true, value_name = "SHARE", value_parser = precision)]
    pub(crate) precision: Option<f64>,
    /// Bounds that must hold [default: p99<10ms, lost=0, achieved>=0.99]
    ///
    /// Separated by commas, on p50, p90, p99, p99.9, lost, rejected, achieved, relay_cpu,
    /// wire_bytes.
    #[arg(long, help_heading = "Capacity")]
    slo: Option<Slo>,
    /// Do not measure p99 at 10 to 95 % of the lowest capacity
    #[arg(long, help_heading = "Capacity", hide_short_help = true)]
    no_curve: bool,
    /// Round trips without queues, separated by commas [default: 30ms,150ms]
    #[arg(long, help_heading = "Break-even", value_delimiter = ',', value_name = "TIMES", value_parser = rtt_ns)]
    rtts: Option<Vec<u64>>,
}

/// Round trips of a break-even: of a fast access link (`wifi`) and of a slow one (`slow-4g`).
const RTTS_NS: [u64; 2] = [30_000_000, 150_000_000];

/// Its uplink ÷ downlink: that of `wifi`. Of the other asymmetric profiles it is 0.2 to 0.83.
const UPLINK_SHARE: f64 = 0.25;

/// Its seconds of a block in which work starts.
const BREAK_EVEN_SECONDS: u32 = 5;

/// Its patience with a relay that is silent: a megabyte and a half over 250 kbit/s take 48 s, in
/// which no session ends.
const DRAIN: [&str; 2] = ["--drain-seconds", "90"];

/// The SLO of a capacity unless told otherwise.
const SLO: &str = "p99<10ms, lost=0, achieved>=0.99";

impl SearchFlags {
    /// Why the flags do not go with each other.
    pub(crate) fn refusal(&self) -> Option<String> {
        let is_link = self.by == By::Bandwidth;
        if let (Some(start), Some(limit)) = (self.start, self.limit)
            && start > limit
        {
            return Some(format!("--start {start} is beyond --limit {limit}; begin below it"));
        }
        let of_links = [
            ("--rtts", true, self.rtts.is_some()),
            ("--slo", false, self.slo.is_some()),
            ("--no-curve", false, self.no_curve),
            ("--url", false, self.play.url.is_some()),
            ("--relay", false, !self.play.relay.is_empty()),
        ];
        if let Some((flag, ..)) = of_links.iter().find(|(_, of_links, given)| *given && *of_links != is_link)
        {
            let other = if is_link { "load or rate" } else { "bandwidth" };
            return Some(format!("{flag} is only for --by {other}"));
        }
        self.slo().contradiction(self.probe_seconds(), LONGEST_SECONDS).filter(|_| !is_link)
    }

    pub(crate) fn matrix(&self) -> Result<Matrix> {
        let is_foreign = self.play.has_relays_of_others();
        let standing = if is_foreign { Matrix::of_a_foreign_relay() } else { Values::<false>::standing() };
        let standing =
            standing.with(Factor::Scenario, [&self.scenario]).with(Factor::Compression, [BASE_COMPRESSION]);
        self.play.matrix(standing, &self.values)
    }

    /// The bounds of a capacity.
    pub(crate) fn slo(&self) -> Slo {
        let standing = || SLO.parse().expect("the bounds are a constant that was tried");
        self.slo.clone().unwrap_or_else(standing)
    }

    /// Seconds of a probe.
    pub(crate) fn probe_seconds(&self) -> u32 {
        let standing = if self.by == By::Bandwidth { BREAK_EVEN_SECONDS } else { 10 };
        self.probe_seconds.unwrap_or(standing)
    }

    /// The configuration of every probe.
    pub(crate) fn config(&self) -> Config {
        let config = Config {
            scenarios: vec![self.scenario.clone()],
            profile: SEARCH.to_owned(),
            rounds: 1,
            seconds: self.probe_seconds(),
            ..self.play.config()
        };
        match self.by {
            By::Bandwidth => Config { client_args: patient(&config.client_args), ..config },
            By::Load | By::Rate => config,
        }
    }

    /// The question; `at_load_1` where loads are searched.
    pub(crate) fn question(&self, at_load_1: Option<AtLoad1>) -> SearchConfig {
        let links = self.links();
        let standing = at_load_1.map_or(250, |one| one.deliveries_per_s_at(1.0));
        let most = at_load_1.map_or(u32::MAX, |one| one.deliveries_per_s_at(MOST_LOAD));
        SearchConfig {
            slo: if links.is_some() { String::new() } else { self.slo().to_string() },
            utilisation: None,
            at_load_1,
            start_per_s: self.start.unwrap_or(standing).min(most),
            limit_per_s: self.limit.unwrap_or(if links.is_some() { 100_000 } else { 1_000_000 }).min(most),
            precision: self.precision.unwrap_or(0.05),
            curve: !self.no_curve && links.is_none(),
            links,
        }
    }

    /// The links of users, where bandwidths are searched.
    fn links(&self) -> Option<SearchedLinks> {
        let mut rtts_ns = self.rtts.clone().unwrap_or_else(|| RTTS_NS.to_vec());
        rtts_ns.sort_unstable();
        rtts_ns.dedup();
        (self.by == By::Bandwidth).then_some(SearchedLinks { uplink_share: UPLINK_SHARE, rtts_ns })
    }
}

/// Arguments of every client, which waits for slow links unless they say for how long.
fn patient(client_args: &[String]) -> Vec<String> {
    let own = client_args.iter().any(|arg| arg.starts_with(DRAIN[0]));
    let drain = DRAIN.iter().filter(|_| !own).map(|word| (*word).to_owned());
    drain.chain(client_args.iter().cloned()).collect()
}

/// A round trip as in a link: `30ms`.
fn rtt_ns(text: &str) -> Result<u64, String> {
    if text.contains([':', '=']) {
        return Err("expected a single value, as in 30ms".to_owned());
    }
    // The link's own parser reads it.
    let link: Link = format!("down=1mbit:up=1mbit:rtt={text}")
        .parse()
        .map_err(|error: link::LinkError| error.why().to_owned())?;
    Ok(link.down.delay_ns + link.up.delay_ns)
}

fn precision(text: &str) -> Result<f64, String> {
    share(text, 0.001..=1.0).ok_or_else(|| "expected a share from 0.001 to 1, as in 0.05".to_owned())
}
