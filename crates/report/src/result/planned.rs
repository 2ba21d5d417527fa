//! Decisions of a pilot before the counted rounds: how many there are, and at which rate or load.

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

/// How the rate of all cells of a scenario was chosen, or the load of one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Chosen {
    /// The cell's name; of a rate that of the weakest.
    pub cell: String,
    /// The share of their cores that its relay and the generator may use, or that its relay is to
    /// use.
    pub utilisation: f64,
    /// The rate, in events published per second.
    pub rate_per_s: Option<u32>,
    /// The load.
    pub load: Option<f64>,
    /// Its probes in the pilot, which are not counted.
    pub probes: Vec<Probe>,
}

/// A share in per cent, as it was written: 0.07 is 7, although a hundred times that is not.
pub fn percent(share: f64) -> f64 {
    (share * 1e4).round() / 100.0
}

impl Chosen {
    /// What was chosen, and with `reached` the share that the rounds came to.
    pub fn line(&self, reached: Option<f64>) -> String {
        let Chosen { cell, utilisation, rate_per_s, load, probes } = self;
        let probe = |one: &Probe| {
            let share = one.quotient? * utilisation * 100.0;
            Some(match load.and(one.played) {
                Some(played) => format!("{share:.1} % at load {}", played.load),
                None => format!("{share:.1} % at {}/s", one.rate_per_s),
            })
        };
        let reached = reached.map_or_else(String::new, |share| format!(", reached {:.1} %", share * 100.0));
        let probes = probes.iter().filter_map(probe).collect::<Vec<_>>().join(", ");
        let share = utilisation * 100.0;
        match (load, rate_per_s) {
            (Some(load), _) => {
                format!(
                    "{cell}: load {load} for {share:.1} % of its relay's cores{reached} (probes: {probes})"
                )
            }
            (None, rate) => format!(
                "{} events/s, at which each cell uses at most {share:.0} % of its cores; the weakest is {cell} (probes: \
                 {probes})",
                rate.unwrap_or(0)
            ),
        }
    }
}
