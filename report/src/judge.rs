//! Verdicts on the cells of a load: an interval, a test, a correction over the cells, and a control
//! that may withhold them.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::number;
use crate::{
    merged::Metric,
    result::Role,
    stats::{self, BAND},
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
    /// True when Holm's correction over all cells was applied. With fewer rounds than it needs to
    /// find anything at all it is left out, and each verdict stands alone.
    pub corrected: bool,
    /// The interval of JSON against itself in this metric: the resolution that the run reached.
    pub aa_interval: Option<(f64, f64)>,
    pub verdict: Verdict,
}

/// The verdict of a [`Comparison`].
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
    /// The meaning of the marks of [`Verdict::mark`].
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

/// The rounds of one cell, judged by one metric.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Judged {
    ratio: f64,
    interval: Option<(f64, f64)>,
    rounds: u32,
    p: f64,
    corrected: bool,
    aa_interval: Option<(f64, f64)>,
    verdict: Verdict,
}

impl Judged {
    /// The same with its names. `withheld` stands for the verdict where there is reason to.
    pub(crate) fn of(
        self,
        cell: &str,
        reference: &str,
        metric: Metric,
        withheld: Option<Verdict>,
    ) -> Comparison {
        let Judged { ratio, interval, rounds, p, corrected, aa_interval, verdict } = self;
        let verdict = withheld.unwrap_or(verdict);
        let (cell, reference) = (cell.to_owned(), reference.to_owned());
        Comparison { cell, reference, metric, ratio, interval, rounds, p, corrected, aa_interval, verdict }
    }
}

/// Whether verdicts on so many cells are corrected: with fewer rounds than Holm's correction needs
/// to find anything at all, it is left out.
pub(crate) fn is_corrected(rounds: u32, cells: usize) -> bool {
    stats::wilcoxon_smallest(rounds as usize) * cells as f64 <= stats::SIGNIFICANT
}

/// Judges the cells of a load in one metric by the logarithms of cell ÷ reference, one a round;
/// `None` of a cell that has none.
pub(crate) fn judge(samples: &[(Role, Vec<f64>)], is_corrected: bool) -> Vec<Option<Judged>> {
    let plain = |(_, logs): &(Role, Vec<f64>)| {
        let interval = stats::signed_rank_interval(logs);
        Some(Judged {
            ratio: stats::hodges_lehmann(logs)?.exp(),
            interval: interval.map(|(low, high)| (low.exp(), high.exp())),
            rounds: u32::try_from(logs.len()).expect("a round number is a u32"),
            p: stats::wilcoxon(logs),
            corrected: false,
            aa_interval: None,
            verdict: Verdict::Inconclusive,
        })
    };
    let mut judged: Vec<Option<Judged>> = samples.iter().map(plain).collect();
    let of_role = |wanted: Role, judged: &[Option<Judged>]| -> Vec<Judged> {
        let all = samples.iter().zip(judged).filter(|((role, _), _)| *role == wanted);
        all.filter_map(|(_, one)| *one).collect()
    };
    let family: Vec<f64> = of_role(Role::Cell, &judged).iter().map(|one| one.p).collect();
    let aa_interval = of_role(Role::Control, &judged).first().and_then(|control| control.interval);
    let broken = control_of(aa_interval) == Control::Broken;
    let mut corrected = stats::holm(&family).into_iter();
    for ((role, _), one) in samples.iter().zip(&mut judged) {
        let Some(one) = one else { continue };
        if *role == Role::Cell {
            let p = corrected.next().expect("one for each cell");
            if is_corrected {
                (one.p, one.corrected) = (p, true);
            }
        }
        one.aa_interval = aa_interval;
        one.verdict = match broken && *role == Role::Cell {
            true => Verdict::Inconclusive,
            false => verdict(one.interval, one.p),
        };
    }
    judged
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
}
