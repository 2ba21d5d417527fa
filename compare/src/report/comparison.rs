//! One cell as a multiple of another, with an interval, a test and a verdict.

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    number,
    view::{CellView, LoadView, views},
};
use crate::{
    merged::Metric,
    precision,
    result::{ResultFile, Role},
    stats::{self, BAND},
};

/// A cell divided by its reference in one metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Comparison {
    /// The cell's name.
    pub cell: String,
    /// The name of the cell it is divided by.
    pub reference: String,
    /// What is compared.
    pub metric: Metric,
    /// The Hodges–Lehmann estimate over rounds of the ratio, taken in logarithms.
    pub ratio: f64,
    /// Its 95 % interval, by inverting the signed-rank test; absent below six rounds.
    pub interval: Option<(f64, f64)>,
    /// Rounds in which both were measured.
    pub rounds: u32,
    /// Wilcoxon's signed-rank test, two-sided, corrected as [`Comparison::corrected`] says.
    pub p: f64,
    /// True when Holm's correction over all cells was applied. With fewer rounds than it needs to
    /// find anything at all it is left out, and each verdict stands alone.
    pub corrected: bool,
    /// The interval of JSON against itself in this metric: the resolution that the run reached.
    pub aa_interval: Option<(f64, f64)>,
    /// What it says.
    pub verdict: Verdict,
}

/// What a [`Comparison`] says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Costs less: the interval lies wholly below the band, and the test agrees.
    Better,
    /// Costs more: the interval lies wholly above the band, and the test agrees.
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
    /// What the marks of [`Verdict::mark`] mean.
    pub(crate) const MARKS: &str = "< better, > worse, = same, ? inconclusive, ~ unsteady, ! saturated; --wide has words and more columns";

    /// One character for narrow tables.
    pub(crate) fn mark(self) -> char {
        match self {
            Verdict::Better => '<',
            Verdict::Worse => '>',
            Verdict::Same => '=',
            Verdict::Inconclusive => '?',
            Verdict::Unsteady => '~',
            Verdict::Saturated => '!',
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Same => "same",
            Verdict::Inconclusive => "inconclusive",
            Verdict::Unsteady => "unsteady",
            Verdict::Saturated => "saturated",
        })
    }
}

impl Comparison {
    /// `×0.46 0.44–0.48 <`.
    pub(crate) fn short(&self) -> String {
        let (ratio, mark) = (number::ratio(self.ratio), self.verdict.mark());
        match self.interval {
            Some((low, high)) => format!("{ratio} {low:.2}–{high:.2} {mark}"),
            None => format!("{ratio} {mark}"),
        }
    }
}

impl fmt::Display for Comparison {
    /// `×0.46 [0.44, 0.48] better`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ratio = number::ratio(self.ratio);
        match self.interval {
            Some((low, high)) => write!(f, "{ratio} [{low:.2}, {high:.2}] {}", self.verdict),
            None => write!(f, "{ratio} {}", self.verdict),
        }
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
    let Some((low, high)) = interval else { return Verdict::Inconclusive };
    let (below, above) = (1.0 - BAND, 1.0 + BAND);
    if low >= below && high <= above {
        Verdict::Same
    } else if p > stats::SIGNIFICANT {
        Verdict::Inconclusive
    } else if high < below {
        Verdict::Better
    } else if low > above {
        Verdict::Worse
    } else {
        Verdict::Inconclusive
    }
}

/// Why latencies of a cell and its reference have no other verdict.
fn withheld(views: [&CellView<'_>; 2]) -> Option<Verdict> {
    if views.iter().any(|view| view.utilisation().is_saturated()) {
        return Some(Verdict::Saturated);
    }
    views.iter().any(|view| view.is_unsteady()).then_some(Verdict::Unsteady)
}

impl LoadView<'_> {
    /// Every cell against its reference in every judged metric.
    pub(crate) fn comparisons(&self) -> Vec<Comparison> {
        self.judged().iter().flat_map(|metric| self.compare(*metric)).collect()
    }

    /// Cells of the plan that have verdicts: the family of the correction.
    pub(crate) fn family(&self) -> usize {
        self.cells.iter().filter(|view| view.cell.role == Role::Cell).count()
    }

    /// Whether verdicts are corrected: by the plan's rounds and cells, independent of the data.
    pub(crate) fn is_corrected(&self) -> bool {
        let rounds = self.result.config.rounds as usize;
        stats::wilcoxon_smallest(rounds) * self.family() as f64 <= stats::SIGNIFICANT
    }

    fn compare(&self, metric: Metric) -> Vec<Comparison> {
        let mut found = Vec::new();
        for view in &self.cells {
            let Some(reference) = self.reference(view) else { continue };
            let log_ratios: Vec<f64> = self.log_ratios(view, reference, metric).into_values().collect();
            let Some(ratio) = stats::hodges_lehmann(&log_ratios) else { continue };
            let interval = stats::signed_rank_interval(&log_ratios);
            let comparison = Comparison {
                cell: view.cell.id.clone(),
                reference: reference.cell.id.clone(),
                metric,
                ratio: ratio.exp(),
                interval: interval.map(|(low, high)| (low.exp(), high.exp())),
                rounds: u32::try_from(log_ratios.len()).expect("a round number is a u32"),
                p: stats::wilcoxon(&log_ratios),
                corrected: false,
                aa_interval: None,
                verdict: Verdict::Inconclusive,
            };
            let withheld = metric.quantile().and_then(|_| withheld([view, reference]));
            found.push((view.cell.role, withheld, comparison));
        }
        let family: Vec<f64> = found
            .iter()
            .filter(|(role, ..)| *role == Role::Cell)
            .map(|(.., comparison)| comparison.p)
            .collect();
        let possible = self.is_corrected();
        let mut corrected = stats::holm(&family).into_iter();
        for (role, _, comparison) in &mut found {
            if *role == Role::Cell {
                let p = corrected.next().expect("one for each cell");
                if possible {
                    (comparison.p, comparison.corrected) = (p, true);
                }
            }
            comparison.verdict = verdict(comparison.interval, comparison.p);
        }
        let control = found.iter().find(|(role, ..)| *role == Role::Control).map(|(.., control)| control);
        let aa_interval = control.and_then(|control| control.interval);
        let broken = control_of(aa_interval) == Control::Broken;
        let comparisons = found.into_iter().map(|(role, withheld, mut comparison)| {
            comparison.aa_interval = aa_interval;
            if broken && role == Role::Cell {
                comparison.verdict = Verdict::Inconclusive;
            }
            if let Some(verdict) = withheld {
                comparison.verdict = verdict;
            }
            comparison
        });
        comparisons.collect()
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

/// For every judged metric the standard deviation between rounds of cell ÷ reference, in
/// logarithms, pooled over the cells of a load; of several loads the largest.
pub(crate) fn deviations(result: &ResultFile) -> BTreeMap<Metric, f64> {
    let mut deviations = BTreeMap::new();
    for load in views(result) {
        for metric in load.judged() {
            let compared = load.cells.iter().filter_map(|view| Some((view, load.reference(view)?)));
            let samples: Vec<Vec<f64>> = compared
                .map(|(view, reference)| load.log_ratios(view, reference, *metric).into_values().collect())
                .collect();
            if let Some(deviation) = precision::pooled_deviation(samples.iter().map(Vec::as_slice)) {
                let largest: &mut f64 = deviations.entry(*metric).or_insert(deviation);
                *largest = largest.max(deviation);
            }
        }
    }
    deviations
}

/// Each cell of a result against its reference, for every judged metric.
pub fn comparisons(result: &ResultFile) -> Vec<Comparison> {
    views(result).iter().flat_map(LoadView::comparisons).collect()
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
}
