//! Whether a relay is worse than the one it is compared with: what a run of several relays ends
//! with exit code 100 for.

use std::{collections::BTreeSet, fmt, str::FromStr};

use crate::{
    metric::{Metric, ShownIn},
    result::{CellResult, MAX_ROUNDS, ResultFile},
    statistics::stats::{self, BAND},
    verdicts::comparison::Comparison,
};

/// The chance of a run of equal relays to fail, at most. A check that stops changes for nothing is
/// soon turned off, so it is less than that of a verdict in a table.
const FALSE_ALARM: f64 = 0.01;

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

    fn bounds(&self, metric: Metric) -> bool {
        self.0.iter().any(|(bounded, _)| *bounded == metric)
    }
}

/// The fewest rounds in which one of so many cells of other relays can fail a run.
pub fn rounds_to_fail(cells: usize, fail_on: Option<&FailOn>) -> u32 {
    let bounded = Metric::shown_in(ShownIn::VerdictsOfRelays).into_iter();
    let metrics: BTreeSet<Metric> = bounded.filter(|metric| is_bounded(fail_on, *metric)).collect();
    let fewest = metrics.iter().map(|metric| parts_of_level(&metrics, *metric)).min().unwrap_or(1);
    let parts = fewest as f64 * cells as f64;
    let suffice = |rounds: &u32| stats::wilcoxon_smallest(*rounds as usize) / 2.0 * parts <= FALSE_ALARM;
    (1..MAX_ROUNDS).find(suffice).unwrap_or(MAX_ROUNDS)
}

/// The divisor of the test's level, [`FALSE_ALARM`], for this one of the metrics, by a weighted Bonferroni
/// correction. The relay's CPU gets half of the level, because short runs find differences there. The
/// others share the other half. Without one side the other gets all.
fn parts_of_level(metrics: &BTreeSet<Metric>, metric: Metric) -> usize {
    let has_cpu = metrics.contains(&Metric::RelayCpu);
    let others = metrics.len() - usize::from(has_cpu);
    match metric {
        Metric::RelayCpu if others == 0 => 1,
        Metric::RelayCpu => 2,
        _ if has_cpu => 2 * others,
        _ => others,
    }
}

/// Whether a metric may fail the run: without bounds, each.
fn is_bounded(fail_on: Option<&FailOn>, metric: Metric) -> bool {
    fail_on.is_none_or(|bounds| bounds.bounds(metric))
}

impl fmt::Display for FailOn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |(metric, share): &(Metric, f64)| format!("{}>{}%", metric.short(), share * 100.0);
        f.write_str(&self.0.iter().map(text).collect::<Vec<_>>().join(", "))
    }
}

fn bound(text: &str) -> Result<(Metric, f64), String> {
    let bounded = Metric::shown_in(ShownIn::VerdictsOfRelays);
    let known = || bounded.iter().map(|metric| metric.short()).collect::<Vec<_>>().join(", ");
    let (name, share) = text
        .split_once('>')
        .ok_or_else(|| format!("{:?} is no bound: expected one as in relay CPU>3%", text.trim()))?;
    let named = |metric: &&Metric| metric.short().eq_ignore_ascii_case(name.trim());
    let metric = bounded.iter().find(named).copied();
    let metric = metric.ok_or_else(|| format!("{:?} is no metric; known: {}", name.trim(), known()))?;
    let percent = share.trim().strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    let percent = percent.filter(|percent| (0.0..=1_000.0).contains(percent));
    let percent = percent.ok_or_else(|| format!("{:?} is no share: expected one as in 3%", share.trim()))?;
    Ok((metric, percent / 100.0))
}

/// A comparison of two relays, and whether it fails the run.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// A relay's cell, and the first relay's.
    pub comparison: Comparison,
    /// Whether it costs more, for certain, and by more than is allowed.
    pub fails: bool,
}

impl fmt::Display for Judged {
    /// `relay CPU of json+none+new is ×1.06 [1.04, 1.08] of json+none+old`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Comparison { cell, reference, metric, .. } = &self.comparison;
        write!(f, "{} of {cell} is {} of {reference}", metric.short(), self.comparison.as_ratio())
    }
}

/// Every comparison of a relay with the first. A metric fails if the test shows a higher cost, at a level
/// of 1 % over all metrics that may fail, and if the estimate exceeds its bound or the band of verdicts.
/// A verdict asks for an interval beyond the band, which takes several times as many rounds.
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
    let between: Vec<&Comparison> = comparisons.iter().filter(is_between).collect();
    let tested = || between.iter().filter(|one| is_bounded(fail_on, one.metric));
    let metrics: BTreeSet<Metric> = tested().map(|one| one.metric).collect();
    // Holm's correction is over the cells of one metric, in one load and one family.
    let family = |one: &Comparison| {
        let load = result.cells.iter().find(|cell| cell.id == one.cell).map(CellResult::load);
        (format!("{load:?}"), one.family.map(|family| format!("{family:?}")))
    };
    let cells = |one: &Comparison| {
        let alike = tested().filter(|other| other.metric == one.metric);
        if one.corrected {
            alike.map(|one| family(one)).collect::<BTreeSet<_>>().len()
        } else {
            alike.count()
        }
    };
    // `p` is of a difference in either direction; one alone fails a run.
    let is_certain = |one: &Comparison| {
        one.p / 2.0 * (parts_of_level(&metrics, one.metric) * cells(one)) as f64 <= FALSE_ALARM
    };
    let exceeds = |one: &Comparison| {
        let Some(FailOn(bounds)) = fail_on else { return one.ratio > 1.0 + BAND };
        bounds.iter().any(|(metric, share)| *metric == one.metric && one.ratio > 1.0 + share)
    };
    let judge = |one: &Comparison| Judged {
        comparison: one.clone(),
        fails: exceeds(one) && is_certain(one) && !one.is_withheld(),
    };
    between.iter().copied().map(judge).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_that_may_fail_takes_more_rounds() {
        let alone = "relay CPU>3%".parse().unwrap();
        assert_eq!(rounds_to_fail(1, Some(&alone)), 7, "1 ÷ 2⁷ is less than 1 %");
        assert_eq!((rounds_to_fail(1, None), rounds_to_fail(2, None)), (8, 9));
        let others = "p99>3%, relay memory>3%".parse().unwrap();
        assert_eq!(rounds_to_fail(1, Some(&others)), 8, "two share the level");
        assert_eq!(rounds_to_fail(usize::MAX, None), 72, "2 × 2⁶⁴ ÷ 2⁷² is less than 1 %");
    }

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
