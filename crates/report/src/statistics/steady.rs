//! Is a cell steady? The latency of an unsteady cell depends on the length of its blocks.
//!
//! Every block starts a fresh relay and a fresh swarm, so warming up and piling up happen at the
//! same second of each. The test therefore takes the median over rounds of each second. Seconds of
//! one block are autocorrelated through the machine, which a trend test would report.

use measure::Slice;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    result::{Block, CellResult},
    statistics::stats::{self, BAND},
};

/// The test's approximation is meant for ten values or more.
const SLICES: usize = 10;

/// Largest difference between the medians of a steady cell's halves.
const HALVES: f64 = 0.05;

/// A cell's blocks second by second, judged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Steadiness {
    /// Seconds looked at, in each block.
    pub seconds: u32,
    /// Median latency at the end of a block ÷ at its beginning, by the trend (Theil–Sen).
    pub trend: f64,
    /// The probability of such a trend by chance (Mann–Kendall, two-sided).
    pub trend_p: f64,
    /// Median latency of the second half ÷ of the first.
    pub halves: f64,
    /// Answers due and missing, median over the seconds of the first half and of the second.
    pub in_flight: (f64, f64),
    /// The probability that what is in flight rises or falls so by chance.
    pub in_flight_p: f64,
    /// Why the cell is unsteady; empty when it is steady.
    pub reasons: Vec<String>,
}

impl Steadiness {
    /// Of the usable blocks of a cell; `None` when they have fewer than ten whole seconds, or none
    /// that are known.
    pub fn from_cell(cell: &CellResult) -> Option<Steadiness> {
        let blocks: Vec<&[Slice]> = (cell.blocks.iter().filter_map(Block::usable))
            .filter_map(|record| Some(record.slices.as_ref()?.seconds.as_slice()))
            .collect();
        let latency: Vec<f64> = by_second(&blocks, |block| {
            let logs: Vec<Option<f64>> =
                block.iter().map(|slice| Some((slice.latency_ns_p50? as f64).ln())).collect();
            let known: Vec<f64> = logs.iter().copied().flatten().collect();
            let middle = stats::median(&known).unwrap_or(0.0);
            logs.into_iter().map(|log| log.map(|log| log - middle)).collect()
        });
        if latency.len() < SLICES {
            return None;
        }
        let in_flight =
            by_second(&blocks, |block| block.iter().map(|slice| Some(slice.in_flight as f64)).collect());
        let (first, second) = stats::halves(&latency)?;
        let mut found = Steadiness {
            seconds: u32::try_from(latency.len()).ok()?,
            trend: (stats::theil_sen(&latency)? * (latency.len() - 1) as f64).exp(),
            trend_p: stats::mann_kendall(&latency),
            halves: (second - first).exp(),
            in_flight: stats::halves(&in_flight)?,
            in_flight_p: stats::mann_kendall(&in_flight),
            reasons: Vec::new(),
        };
        found.reasons = found.judge();
        Some(found)
    }

    fn judge(&self) -> Vec<String> {
        let mut reasons = Vec::new();
        let percent = |ratio: f64| format!("{:+.0} %", (ratio - 1.0) * 100.0);
        // With many blocks even an irrelevant trend is significant.
        if self.trend_p <= stats::SIGNIFICANT && self.trend.ln().abs() > BAND {
            let (trend, p) = (percent(self.trend), self.trend_p);
            reasons
                .push(format!("latency has a trend, {trend} from the first second to the last (p {p:.3})"));
        }
        if self.halves.ln().abs() >= HALVES {
            reasons.push(format!("the halves of a block differ by {}", percent(self.halves)));
        }
        let (first, second) = self.in_flight;
        if stats::grows(self.in_flight, self.in_flight_p) {
            reasons.push(format!("what is in flight grows from {first:.0} to {second:.0}"));
        }
        reasons
    }

    /// Whether no reason was found against it.
    pub fn is_steady(&self) -> bool {
        self.reasons.is_empty()
    }
}

/// The median over blocks of each second, for the seconds that most blocks know.
pub(crate) fn by_second(blocks: &[&[Slice]], values: impl Fn(&[Slice]) -> Vec<Option<f64>>) -> Vec<f64> {
    let rows: Vec<Vec<Option<f64>>> = blocks.iter().map(|block| values(block)).collect();
    let longest = rows.iter().map(Vec::len).max().unwrap_or(0);
    let of_second = |second: usize| {
        let known: Vec<f64> = rows.iter().filter_map(|row| *row.get(second)?).collect();
        (2 * known.len() > rows.len()).then(|| stats::median(&known)).flatten()
    };
    (0..longest).filter_map(of_second).collect()
}
