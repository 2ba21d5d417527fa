//! Verdicts on the cells of a load: an interval, a test, a correction over the cells, and a control
//! that may withhold them.

use std::fmt;

use derive_more::Display;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    metric::Metric,
    number::Ratio,
    result::Role,
    statistics::stats::{self, BAND},
};

/// A cell divided by its reference in one metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// The cell's name.
    pub cell: String,
    /// The name of the cell it is divided by.
    pub reference: String,
    pub metric: Metric,
    /// The Hodges–Lehmann estimate over rounds of the ratio, taken in logarithms.
    pub ratio: f64,
    /// Its 95 % interval, by inverting the signed-rank test; absent below six rounds.
    pub interval: Option<(f64, f64)>,
    /// Rounds in which both were measured.
    pub rounds: u32,
    /// Wilcoxon's signed-rank test, two-sided, corrected as [`Comparison::corrected`] says.
    pub p: f64,
    /// True when Holm's correction over all cells of the family was applied. With fewer rounds than
    /// it needs to find anything at all it is left out, and each verdict stands alone.
    pub corrected: bool,
    /// The family of the correction; absent where all cells of the load are one.
    pub family: Option<Family>,
    /// The interval of JSON against itself in this metric: the resolution that the run reached.
    pub aa_interval: Option<(f64, f64)>,
    pub verdict: Verdict,
}

/// The family that a cell's verdicts are corrected with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// Named before the run (`config.primary` of the result).
    Primary,
    /// All other cells of the load.
    Secondary,
}

impl Family {
    /// Every family; `None` is that of all cells of a load without a primary one.
    pub(crate) const ALL: [Option<Family>; 3] = [None, Some(Family::Primary), Some(Family::Secondary)];

    /// The word before "cells" and "verdicts".
    pub(crate) fn of_cells(family: Option<Family>) -> &'static str {
        match family {
            None => "",
            Some(Family::Primary) => "primary ",
            Some(Family::Secondary) => "secondary ",
        }
    }
}

/// The verdict of a [`Comparison`].
#[derive(Debug, Display, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[display(rename_all = "snake_case")]
pub enum Verdict {
    /// Costs less: the interval lies wholly below the band, the test agrees, and JSON does not differ
    /// as much from itself.
    Better,
    /// Costs more: the same above the band.
    Worse,
    /// The interval lies within the band.
    Same,
    /// Anything else.
    Inconclusive,
    /// The cell or its reference was not the same from the beginning of a block to its end, so its
    /// latency depends on how long was measured. Only of latencies.
    Unsteady,
    /// A process of the cell or of its reference used more than 90 % of its cores, so the latency
    /// is the length of a queue. Only of latencies.
    Saturated,
}

impl Verdict {
    /// What an interval of a ratio says where less is better: it lies within the band around 1, wholly
    /// beyond it, or neither.
    pub(crate) fn of_interval((low, high): (f64, f64), band: f64) -> Verdict {
        let (below, above) = (1.0 - band, 1.0 + band);
        match () {
            () if low >= below && high <= above => Verdict::Same,
            () if high < below => Verdict::Better,
            () if low > above => Verdict::Worse,
            () => Verdict::Inconclusive,
        }
    }

    /// Whether latencies have no other verdict: they depend on the block's length.
    pub(crate) fn is_withheld(self) -> bool {
        matches!(self, Verdict::Unsteady | Verdict::Saturated)
    }
}

impl Comparison {
    /// Whether it says nothing: by its own verdict, or because JSON differs from itself.
    pub(crate) fn is_withheld(&self) -> bool {
        self.verdict.is_withheld() || control_of(self.aa_interval) == Control::Broken
    }

    pub(crate) fn as_ratio(&self) -> Ratio {
        Ratio { value: self.ratio, interval: self.interval }
    }
}

impl fmt::Display for Comparison {
    /// `×0.46 [0.44, 0.48] better`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.as_ratio(), self.verdict)
    }
}

/// The control cell's finding about a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    /// Its interval contains 1, or there is none.
    Calm,
    /// Its interval excludes 1.
    Suspect,
    /// Its interval lies wholly outside the band: the metric's verdicts are withheld.
    Broken,
}

fn verdict(interval: Option<(f64, f64)>, p: f64) -> Verdict {
    match interval.map(|interval| Verdict::of_interval(interval, BAND)) {
        Some(Verdict::Better | Verdict::Worse) if p > stats::SIGNIFICANT => Verdict::Inconclusive,
        found => found.unwrap_or(Verdict::Inconclusive),
    }
}

/// The rounds of one cell in one metric.
#[derive(Debug, Clone)]
pub(crate) struct Sample<'a> {
    /// The cell's name.
    pub(crate) cell: &'a str,
    /// The name of the cell it is divided by.
    pub(crate) reference: &'a str,
    pub(crate) role: Role,
    pub(crate) family: Option<Family>,
    /// Whether verdicts of its family are corrected: [`is_corrected`].
    pub(crate) is_corrected: bool,
    /// Logarithms of cell ÷ reference, one a round.
    pub(crate) logs: Vec<f64>,
    /// Stands for the verdict where there is reason to.
    pub(crate) withheld: Option<Verdict>,
}

/// Whether verdicts of a family of this many cells are corrected. Holm's correction is left out if the
/// rounds are too few for it to find anything.
pub(crate) fn is_corrected(rounds: u32, cells: usize) -> bool {
    stats::wilcoxon_smallest(rounds as usize) * cells as f64 <= stats::SIGNIFICANT
}

/// Judges the cells of a load in one metric; `None` of a cell that has no round.
pub(crate) fn judge(metric: Metric, samples: &[Sample<'_>]) -> Vec<Option<Comparison>> {
    let plain = |sample: &Sample<'_>| {
        let Ratio { value, interval } = Ratio::over_rounds(&sample.logs)?;
        Some(Comparison {
            cell: sample.cell.to_owned(),
            reference: sample.reference.to_owned(),
            metric,
            ratio: value,
            interval,
            rounds: u32::try_from(sample.logs.len()).expect("a round number is a u32"),
            p: stats::wilcoxon(&sample.logs),
            corrected: false,
            family: sample.family,
            aa_interval: None,
            verdict: Verdict::Inconclusive,
        })
    };
    let mut judged: Vec<Option<Comparison>> = samples.iter().map(plain).collect();
    for family in Family::ALL {
        correct(samples, &mut judged, family);
    }
    let mut controls = samples.iter().zip(&judged).filter(|(sample, _)| sample.role == Role::Control);
    let aa_interval = controls.find_map(|(_, one)| one.as_ref()?.interval);
    let broken = control_of(aa_interval) == Control::Broken;
    for (sample, one) in samples.iter().zip(&mut judged) {
        let Some(one) = one else { continue };
        one.aa_interval = aa_interval;
        let found = match verdict(one.interval, one.p) {
            _ if broken && sample.role == Role::Cell => Verdict::Inconclusive,
            Verdict::Better | Verdict::Worse if is_noise(one.ratio, aa_interval) => Verdict::Inconclusive,
            verdict => verdict,
        };
        one.verdict = sample.withheld.unwrap_or(found);
    }
    judged
}

/// Whether JSON differs as much from itself.
fn is_noise(ratio: f64, aa_interval: Option<(f64, f64)>) -> bool {
    aa_interval.is_some_and(|(low, high)| (low..=high).contains(&ratio))
}

/// Corrects the cells of one family for their number.
fn correct(samples: &[Sample<'_>], judged: &mut [Option<Comparison>], family: Option<Family>) {
    let is_of =
        |sample: &Sample<'_>| sample.role == Role::Cell && sample.family == family && sample.is_corrected;
    let all = samples.iter().zip(judged).filter(|(sample, _)| is_of(sample));
    let mut members: Vec<&mut Comparison> = all.filter_map(|(_, one)| one.as_mut()).collect();
    let corrected = stats::holm(&members.iter().map(|one| one.p).collect::<Vec<_>>());
    for (one, p) in members.iter_mut().zip(corrected) {
        (one.p, one.corrected) = (p, true);
    }
}

/// The finding of the control's interval.
pub(crate) fn control_of(interval: Option<(f64, f64)>) -> Control {
    match interval {
        Some((low, high)) if high < 1.0 - BAND || low > 1.0 + BAND => Control::Broken,
        Some((low, high)) if high < 1.0 || low > 1.0 => Control::Suspect,
        _ => Control::Calm,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_needs_interval_and_test() {
        for (low, high, p, expected) in [
            (0.50, 0.97, 0.01, Verdict::Better),
            (0.50, 0.97, 0.06, Verdict::Inconclusive),
            (0.50, 0.99, 0.01, Verdict::Inconclusive),
            (1.03, 1.30, 0.05, Verdict::Worse),
            (1.01, 1.30, 0.01, Verdict::Inconclusive),
            (0.98, 1.02, 0.01, Verdict::Same),
            (0.98, 1.02, 1.00, Verdict::Same),
            (0.90, 1.10, 0.50, Verdict::Inconclusive),
        ] {
            assert_eq!(verdict(Some((low, high)), p), expected, "[{low}, {high}], p {p}");
        }
        assert_eq!(verdict(None, 0.0), Verdict::Inconclusive);
    }

    #[test]
    fn rounds_bound_the_cells_of_a_corrected_family() {
        assert!(is_corrected(6, 1) && !is_corrected(6, 2));
        assert!(is_corrected(12, 102) && !is_corrected(12, 103));
    }
}
