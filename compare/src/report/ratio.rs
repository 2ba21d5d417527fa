//! One cell as a multiple of another, paired by round, with an interval and a verdict.

use std::fmt;

use measure::RunRecord;

use super::{Merged, Metric, merged::Measured};
use crate::CellResult;

/// Differences within ±2 % are "same": two runs of one identical workload stayed within that in random order.
const BAND: f64 = 0.02;

/// How often the interval must contain the true median.
const CONFIDENCE: f64 = 0.95;

/// A cell divided by another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// The median over rounds, or the ratio of the merged blocks.
    pub value: f64,
    /// Contains the true median in at least 95 % of repetitions; `None` below six paired rounds.
    pub interval: Option<(f64, f64)>,
    /// Rounds in which both cells were measured, 0 when the ratio is of the merged blocks.
    pub rounds: usize,
}

/// What a [`Ratio`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The interval lies below the band.
    Lower,
    /// The interval lies above the band.
    Higher,
    /// The interval lies within ±2 %.
    Same,
    /// The interval allows for more than one of these.
    Inconclusive,
    /// There is no interval.
    TooFewRounds,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Lower => "lower",
            Verdict::Higher => "higher",
            Verdict::Same => "same",
            Verdict::Inconclusive => "inconclusive",
            Verdict::TooFewRounds => "too few rounds to tell",
        })
    }
}

impl Ratio {
    /// Compares two cells: the median over those rounds in which both have a usable block, when the metric is known in
    /// all of them; the ratio of the merged blocks otherwise; `None` when a cell does not have the metric at all.
    pub(crate) fn of(
        (cell, cell_merged): &(&CellResult, Merged),
        (base, base_merged): &(&CellResult, Merged),
        metric: Metric,
        latency: &str,
    ) -> Option<Ratio> {
        let value = |measured: &Measured<'_>| metric.value(measured).filter(|value| *value > 0.0);
        let of_block = |record| value(&Measured::block(record, latency));
        let of_cell = |merged| value(&Measured::merged(merged, latency));
        let ratios: Option<Vec<f64>> =
            paired_rounds(cell, base).map(|(cell, base)| Some(of_block(cell)? / of_block(base)?)).collect();
        match ratios {
            Some(ratios) if !ratios.is_empty() => Some(Ratio::of_rounds(ratios)),
            _ => Some(Ratio {
                value: of_cell(cell_merged)? / of_cell(base_merged)?,
                interval: None,
                rounds: 0,
            }),
        }
    }

    fn of_rounds(mut ratios: Vec<f64>) -> Ratio {
        ratios.sort_by(f64::total_cmp);
        let rounds = ratios.len();
        // In logarithms, so that a cell twice as fast and one half as fast are equally far from 1.
        let value = (ratios[(rounds - 1) / 2] * ratios[rounds / 2]).sqrt();
        let interval = outer_rank(rounds).map(|rank| (ratios[rank], ratios[rounds - 1 - rank]));
        Ratio { value, interval, rounds }
    }

    /// What the ratio says.
    pub fn verdict(&self) -> Verdict {
        let Some((low, high)) = self.interval else { return Verdict::TooFewRounds };
        let (below, above) = (1.0 - BAND, 1.0 + BAND);
        if high < below {
            Verdict::Lower
        } else if low > above {
            Verdict::Higher
        } else if low >= below && high <= above {
            Verdict::Same
        } else {
            Verdict::Inconclusive
        }
    }
}

/// The records of those rounds in which both cells have a usable block.
fn paired_rounds<'a>(
    cell: &'a CellResult,
    base: &'a CellResult,
) -> impl Iterator<Item = (&'a RunRecord, &'a RunRecord)> {
    let in_base = |round: u32| base.blocks.iter().find(|block| block.round == round)?.usable();
    cell.blocks.iter().filter_map(move |block| Some((block.usable()?, in_base(block.round)?)))
}

/// How many of the sorted values may be left off at each end so that the rest still spans an exact interval for the
/// median: the rank k with P(fewer than k+1 of n fair coins show heads) ≤ 2.5 %. No distribution is assumed. (Order
/// statistics; see Hahn & Meeker, Statistical Intervals, §5.2.)
fn outer_rank(n: usize) -> Option<usize> {
    let mut tail = 0.0;
    let mut probability = 0.5_f64.powi(i32::try_from(n).ok()?);
    let mut rank = None;
    for k in 0..n / 2 {
        tail += probability;
        if 2.0 * tail > 1.0 - CONFIDENCE {
            break;
        }
        rank = Some(k);
        probability *= (n - k) as f64 / (k + 1) as f64;
    }
    rank
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_for_a_median_needs_six_rounds() {
        // The classical table for 95 %: n = 6 spans all, n = 9 leaves one off, n = 12 two, n = 20 five.
        for (n, rank) in
            [(1, None), (5, None), (6, Some(0)), (8, Some(0)), (9, Some(1)), (12, Some(2)), (20, Some(5))]
        {
            assert_eq!(outer_rank(n), rank, "{n} rounds");
        }
    }

    #[test]
    fn the_verdict_follows_the_interval_not_the_median() {
        for (spread, verdict) in [
            ([0.5, 0.6, 0.6, 0.7, 0.7, 0.97], Verdict::Lower),
            ([0.5, 0.6, 0.6, 0.7, 0.7, 0.99], Verdict::Inconclusive),
            ([0.98, 0.99, 1.0, 1.0, 1.01, 1.02], Verdict::Same),
            ([1.03, 1.1, 1.1, 1.2, 1.2, 1.3], Verdict::Higher),
            ([0.9, 1.0, 1.0, 1.0, 1.0, 1.1], Verdict::Inconclusive),
        ] {
            assert_eq!(Ratio::of_rounds(spread.to_vec()).verdict(), verdict, "{spread:?}");
        }
        assert_eq!(Ratio::of_rounds(vec![0.1; 5]).verdict(), Verdict::TooFewRounds);
    }

    #[test]
    fn the_median_is_taken_in_logarithms() {
        assert_eq!(Ratio::of_rounds(vec![2.0, 0.5]).value, 1.0);
        assert_eq!(Ratio::of_rounds(vec![9.0, 0.5, 0.7]).value, 0.7);
    }
}
