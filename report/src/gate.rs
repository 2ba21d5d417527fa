//! Whether a relay is worse than the one it is compared with: what a run of several relays ends
//! with exit code 100 for.

use std::{fmt, str::FromStr};

use super::{comparison::Comparison, judge::Verdict, number};
use crate::{
    merged::Metric,
    result::{CellResult, ResultFile},
};

/// Metrics that bounds are for.
const METRICS: [Metric; 6] = Metric::JUDGED_OF_RELAYS;

/// By how much more a metric may be: `relay CPU>3%, p99>10%`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FailOn(Vec<(Metric, f64)>);

impl FromStr for FailOn {
    type Err = String;

    fn from_str(text: &str) -> Result<FailOn, String> {
        text.split(',').map(bound).collect::<Result<_, _>>().map(FailOn)
    }
}

impl FailOn {
    /// The bounds of several flags as one; `None` where there was no flag.
    pub fn together(all: &[FailOn]) -> Option<FailOn> {
        let bounds: Vec<_> = all.iter().flat_map(|FailOn(bounds)| bounds.iter().copied()).collect();
        (!all.is_empty()).then_some(FailOn(bounds))
    }
}

impl fmt::Display for FailOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |(metric, share): &(Metric, f64)| format!("{}>{}%", metric.short(), share * 100.0);
        f.write_str(&self.0.iter().map(text).collect::<Vec<_>>().join(", "))
    }
}

fn bound(text: &str) -> Result<(Metric, f64), String> {
    let known = || METRICS.map(Metric::short).join(", ");
    let (name, share) = text
        .split_once('>')
        .ok_or_else(|| format!("{:?} is no bound: expected one as in relay CPU>3%", text.trim()))?;
    let named = |metric: &Metric| metric.short().eq_ignore_ascii_case(name.trim());
    let metric = METRICS.into_iter().find(named);
    let metric = metric.ok_or_else(|| format!("{:?} is no metric; known: {}", name.trim(), known()))?;
    let percent = share.trim().strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    let percent = percent.filter(|percent| (0.0..=1_000.0).contains(percent));
    let percent = percent.ok_or_else(|| format!("{:?} is no share: expected one as in 3%", share.trim()))?;
    Ok((metric, percent / 100.0))
}

/// A comparison of two relays, and whether it fails the run.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// The cell of the one relay beside that of the first.
    pub comparison: Comparison,
    /// Whether it is decided to cost more, by more than is allowed.
    pub fails: bool,
}

impl fmt::Display for Judged {
    /// `relay CPU of json+none+new is ×1.06 [1.04, 1.08] of json+none+old`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Comparison { cell, reference, metric, ratio, interval, .. } = &self.comparison;
        write!(f, "{} of {cell} is {}", metric.short(), number::ratio(*ratio))?;
        if let Some((low, high)) = interval {
            write!(f, " [{low:.2}, {high:.2}]")?;
        }
        write!(f, " of {reference}")
    }
}

/// Every comparison of a relay with the first. Without bounds whatever is decided to cost more
/// fails the run; with bounds, what exceeds its own.
pub fn between_relays(
    result: &ResultFile,
    comparisons: &[Comparison],
    fail_on: Option<&FailOn>,
) -> Vec<Judged> {
    let relay = |id: &str| {
        let found: Option<&CellResult> = result.cells.iter().find(|cell| cell.id == id);
        found.map(|cell| &*cell.cell.relay)
    };
    let is_between = |one: &&Comparison| relay(&one.cell) != relay(&one.reference);
    let exceeds = |one: &Comparison| {
        let Some(FailOn(bounds)) = fail_on else { return true };
        bounds.iter().any(|(metric, share)| *metric == one.metric && one.ratio > 1.0 + share)
    };
    let judge = |one: &Comparison| Judged {
        comparison: one.clone(),
        fails: one.verdict == Verdict::Worse && exceeds(one),
    };
    comparisons.iter().filter(is_between).map(judge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read_and_what_is_none_is_named() {
        let bounds: FailOn = "relay CPU>3%, P99 > 12.5 %".parse().unwrap();
        assert_eq!(bounds, FailOn(vec![(Metric::RelayCpu, 0.03), (Metric::LatencyP99, 0.125)]));
        assert_eq!(bounds.to_string(), "relay CPU>3%, p99>12.5%");
        for (text, says) in [
            ("relay CPU", "expected one as in relay CPU>3%"),
            ("memory>3%", "\"memory\" is no metric; known: relay CPU, relay memory, p50"),
            ("p99>3", "\"3\" is no share"),
            ("p99>-1%", "is no share"),
            ("p99>NaN%", "is no share"),
            ("p99>3%,", "is no bound"),
        ] {
            let error = text.parse::<FailOn>().unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
