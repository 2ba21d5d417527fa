//! The question and the probes of a search: of `compare search`, and of the pilots of `compare run`.

use cell::MOST_LOAD;
use measure::{Counts, RunRecord};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A search: its question and its probes. Capacities follow from them, see
/// [`Limit`](crate::statistics::bracket::Limit).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Search {
    /// The search as asked for.
    pub config: SearchConfig,
    /// The probes of each cell, in the order of every table.
    pub cells: Vec<CellProbes>,
}

/// The setting that a search varies. What it seeks there follows: the highest rate or load that
/// keeps an SLO, or the bandwidth at which two cells take equally long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// Events published per second.
    Rate,
    /// The load, in deliveries per second.
    Load,
    /// The downlink of users, in kbit per second.
    Bandwidth,
}

/// The links of a search for bandwidths.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SearchedLinks {
    /// Uplink ÷ downlink.
    pub uplink_share: f64,
    /// Round trips without queues, ascending.
    pub rtts_ns: Vec<u64>,
}

/// The question of a search. Scenario, seconds of a probe and arguments of clients are in [`Config`].
///
/// [`Config`]: super::Config
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SearchConfig {
    /// The condition that must hold; empty where two cells are to take equally long.
    pub slo: String,
    /// The links of users, where bandwidths are searched: a rate is then a downlink's in kbit per
    /// second.
    pub links: Option<SearchedLinks>,
    /// The share of its cores that a cell is to use, where that is sought.
    pub utilisation: Option<f64>,
    /// Demand of the scenario at load 1, if the search varies the load: a rate is then deliveries per
    /// second, and a probe plays the load with that demand. Absent if it varies the rate of publishing.
    pub at_load_1: Option<AtLoad1>,
    /// The first rate: deliveries per second where loads are searched, otherwise events published;
    /// the lowest downlink where bandwidths are.
    pub start_per_s: u32,
    /// No probe goes beyond this.
    pub limit_per_s: u32,
    /// Two searches shall differ by at most this share.
    pub precision: f64,
    /// Whether p99 is measured at shares of the lowest limit.
    pub curve: bool,
}

/// Demand of a scenario's plan at load 1.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AtLoad1 {
    /// Deliveries, or publications where nothing is delivered.
    pub deliveries_per_s: f64,
}

impl AtLoad1 {
    /// The deliveries that a load asks for.
    pub fn deliveries_per_s_at(self, load: f64) -> u32 {
        measure::whole((self.deliveries_per_s * load).round().max(1.0))
    }

    /// The load that asks for so many.
    pub fn load(self, deliveries_per_s: u32) -> f64 {
        /// Digits of a load in names and records.
        const STEPS: f64 = 1e4;
        let load = f64::from(deliveries_per_s) / self.deliveries_per_s;
        ((load * STEPS).round().max(1.0) / STEPS).min(MOST_LOAD)
    }
}

/// Settings of a probe, and its outcome.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Played {
    /// The load of the scenario.
    pub load: f64,
    /// Clients connected at one time.
    pub connections: u64,
    /// Accepted publications, over the time until the last answer.
    pub publishes_per_s: f64,
    /// Deliveries, over the time until the last answer.
    pub deliveries_per_s: f64,
}

impl Played {
    /// As a record counted it.
    pub fn from_record(record: &RunRecord) -> Played {
        let elapsed_s = record.elapsed_ns.max(1) as f64 / 1e9;
        Played {
            load: record.cell.load.parse().unwrap_or(1.0),
            connections: record.connections,
            publishes_per_s: record.counts.acked as f64 / elapsed_s,
            deliveries_per_s: record.counts.deliveries as f64 / elapsed_s,
        }
    }

    /// Deliveries, or publications where nothing is delivered.
    pub fn envelopes_per_s(self) -> f64 {
        if self.deliveries_per_s > 0.0 { self.deliveries_per_s } else { self.publishes_per_s }
    }
}

/// The probes of one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellProbes {
    /// The cell's name; of two cells `one ÷ other, round trip`.
    pub cell: String,
    /// In the order they ran, repetitions and points of the curve included.
    pub probes: Vec<Probe>,
}

impl Search {
    /// A search before its first probe.
    pub fn begun<'c>(config: SearchConfig, cells: impl Iterator<Item = &'c str>) -> Search {
        let cells = cells.map(|cell| CellProbes { cell: cell.to_owned(), probes: Vec::new() });
        Search { config, cells: cells.collect() }
    }
}

/// One run at one rate, or two over the same link.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Probe {
    /// The rate that was asked for: deliveries per second where loads are searched, kbit per second
    /// where bandwidths are, otherwise events published.
    pub rate_per_s: u32,
    /// Its settings; absent in older results, and without a record.
    pub played: Option<Played>,
    /// Seconds in which work started; 0 in older results.
    #[serde(default)]
    pub seconds: u32,
    /// Its purpose in the search.
    pub purpose: Purpose,
    /// Its outcome.
    pub outcome: ProbeOutcome,
    /// Which bounds were missed, and what tells whose miss it is.
    pub why: Vec<String>,
    /// p99 of the latency in nanoseconds; absent with too few samples.
    pub p99_ns: Option<u64>,
    /// The block's seconds ÷ the time until the last answer.
    pub achieved: Option<f64>,
    /// Time of the first cell ÷ time of the second, or a cell's used share of cores ÷ the searched share.
    pub quotient: Option<f64>,
    /// The ledger of a probe that did not pass.
    pub counts: Option<Counts>,
    /// The last words of its client and relay.
    pub said: Option<String>,
}

/// The purpose of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// Finding the capacity.
    Search,
    /// p99 against rate.
    Curve,
}

/// The outcome of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProbeOutcome {
    /// The SLO held, or the first cell was faster, or less than the sought share was used.
    Pass,
    /// The SLO did not hold, and it was the relay: its cores were full, its queue grew, events were
    /// lost, or the bounds were missed by more than the generator was late. Or the second cell was
    /// faster, or more than the sought share was used.
    Fail,
    /// The SLO did not hold, and it was the generator; or the client had not ended in its time,
    /// with its events to sign and to send, and was stopped.
    GeneratorLimit,
    /// The host was busy or the run failed in another way: nothing is said about the rate, which is
    /// probed again.
    Disturbed,
    /// So few answers came that a quantile of the SLO is not known.
    TooFewAnswers,
}

impl Probe {
    /// One line for the terminal.
    pub fn line(&self, axis: Axis) -> String {
        let why = self.why.join("; ");
        let outcome = match self.outcome {
            ProbeOutcome::Pass if axis == Axis::Bandwidth => "the first is faster".to_owned(),
            ProbeOutcome::Fail if axis == Axis::Bandwidth => "the second is faster".to_owned(),
            ProbeOutcome::Pass if why.is_empty() => "passes".to_owned(),
            ProbeOutcome::Pass => format!("passes, although {why}"),
            ProbeOutcome::Fail => format!("fails: {why}"),
            ProbeOutcome::GeneratorLimit => format!("generator limit: {why}"),
            ProbeOutcome::Disturbed => format!("says nothing: {why}"),
            ProbeOutcome::TooFewAnswers => format!("has too few answers: {why}"),
        };
        let p99 = self.p99_ns.map_or_else(String::new, |ns| format!(", p99 {:.3} ms", ns as f64 / 1e6));
        let quotient = self.quotient.map_or_else(String::new, |quotient| format!(", ×{quotient:.2}"));
        let unit = if axis == Axis::Bandwidth { " kbit/s" } else { "/s" };
        format!("{}{unit} for {} s{p99}{quotient}, {outcome}", self.rate_per_s, self.seconds)
    }
}

impl SearchConfig {
    /// The setting that is varied.
    pub fn axis(&self) -> Axis {
        match (&self.links, self.at_load_1) {
            (Some(_), _) => Axis::Bandwidth,
            (None, Some(_)) => Axis::Load,
            (None, None) => Axis::Rate,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client refuses more than [`MOST_LOAD`].
    #[test]
    fn a_rate_beyond_the_highest_load_asks_for_that_load() {
        let one = AtLoad1 { deliveries_per_s: 10.0 };
        let loads = [1, 10, 163_840, u32::MAX].map(|rate| one.load(rate));
        assert_eq!(loads, [0.1, 1.0, MOST_LOAD, MOST_LOAD]);
        assert_eq!(one.load(one.deliveries_per_s_at(MOST_LOAD)), MOST_LOAD);
    }
}
