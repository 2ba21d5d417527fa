//! Decisions of a pilot before the counted rounds: how many there are, and at which rate.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Probe;
use crate::metric::Metric;

/// How a number of rounds was planned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlannedRounds {
    /// The half-width of an interval that was asked for, as a share of the ratio.
    pub precision: f64,
    /// The time that was allowed for all rounds and the pilot.
    pub max_time_s: Option<u64>,
    /// Rounds of the pilot, which are not counted.
    pub pilot_rounds: u32,
    /// Time of a round of the pilot.
    pub round_ns: u64,
    /// For each metric the standard deviation between rounds of the logarithm of cell ÷ reference,
    /// pooled over the cells.
    pub deviations: BTreeMap<Metric, f64>,
    /// Rounds that the precision takes in CPU time of relay and clients.
    pub rounds_needed: u32,
    /// Rounds that were planned: those needed, unless the time or the most rounds allowed are
    /// fewer.
    pub rounds: u32,
}

/// How a rate was chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChosenRate {
    /// The scenario.
    pub scenario: String,
    /// The rate of all its cells, in events published per second.
    pub rate_per_s: u32,
    /// The cell that keeps the least.
    pub weakest: String,
    /// The rate that it keeps.
    pub capacity_per_s: u32,
    /// The share of their cores that its relay and the generator used at most while it kept that;
    /// absent where it was 0.9, and 60 % of the rate were chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation_max: Option<f64>,
    /// The probes of the pilot, which are not counted, each with its cell.
    pub probes: Vec<(String, Probe)>,
}

/// How the load of a cell was chosen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChosenLoad {
    /// The cell's name.
    pub cell: String,
    /// The share of its own relay's cores that was asked for.
    pub utilisation: f64,
    /// The load that the last probe makes likely.
    pub load: f64,
    /// The probes, which are not counted.
    pub probes: Vec<Calibration>,
}

/// How busy a relay was in a probe.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Calibration {
    /// The load of the scenario.
    pub load: f64,
    /// The share of its cores that the relay used.
    pub utilisation: f64,
    /// Deliveries, or publications where nothing is delivered, over the time until the last answer.
    pub deliveries_per_s: f64,
}

/// A share in per cent, as it was written: 0.07 is 7, although a hundred times that is not.
pub fn percent(share: f64) -> f64 {
    (share * 1e4).round() / 100.0
}

impl ChosenLoad {
    /// The utilisation as asked for, and with `reached` that of the rounds.
    pub fn line(&self, reached: Option<f64>) -> String {
        let ChosenLoad { cell, utilisation, load, probes } = self;
        let probe = |one: &Calibration| format!("{:.1} % at load {}", one.utilisation * 100.0, one.load);
        let reached = reached.map_or_else(String::new, |share| format!(", reached {:.1} %", share * 100.0));
        format!(
            "{cell}: load {load} for {:.1} % of its relay's cores{reached} (probes: {})",
            utilisation * 100.0,
            probes.iter().map(probe).collect::<Vec<_>>().join(", ")
        )
    }
}

impl ChosenRate {
    /// A sentence.
    pub fn line(&self) -> String {
        let ChosenRate { scenario, rate_per_s, weakest, capacity_per_s, .. } = self;
        let why = match self.utilisation_max.map(|share| share * 100.0) {
            Some(most) => format!(
                "which each cell keeps with at most {most:.0} % of its cores, {weakest} up to {capacity_per_s}/s"
            ),
            None => format!("60 % of what {weakest} sustains ({capacity_per_s}/s) with 90 % of its cores"),
        };
        let probes = self.probes.len();
        format!(
            "{scenario}: {rate_per_s} events/s, {why}, by a pilot of {probes} probes that are not counted"
        )
    }
}
