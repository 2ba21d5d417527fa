//! `[expect]`: figures that a run must reach to count as evidence. A scenario about large follow lists that streamed
//! small ones, or about slow readers that nobody was slow for, has answered another question.

use std::collections::BTreeMap;

use anyhow::ensure;
use measure::{LatencyBound, Quantile, RunRecord, Validity, ValidityClass};

use crate::{
    plan_facts::PlanFacts,
    recorder::Timing,
    scenario::{Bound, Scenario},
};

/// A figure by name, what it means, and where it comes from.
struct Figure {
    name: &'static str,
    meaning: &'static str,
    value: fn(&RunRecord, &PlanFacts) -> Option<f64>,
}

/// In the order of `scenarios/README.md`.
static FIGURES: &[Figure] = &[
    Figure {
        name: "connections",
        meaning: "clients at one time",
        value: |_, plan| Some(plan.connections as f64),
    },
    Figure { name: "published", meaning: "events published", value: |r, _| Some(r.counts.planned as f64) },
    Figure {
        name: "requests",
        meaning: "requests for stored events",
        value: |r, _| Some(r.counts.requests as f64),
    },
    Figure {
        name: "deliveries",
        meaning: "events delivered",
        value: |r, _| Some(r.counts.deliveries as f64),
    },
    Figure {
        name: "deliveries_per_published",
        meaning: "copies of a published event that reached a live subscription",
        value: |r, plan| ratio(r.counts.deliveries.saturating_sub(plan.stored_deliveries), r.counts.planned),
    },
    Figure {
        name: "deliveries_per_request",
        meaning: "events that answered a request, on average",
        value: |r, plan| ratio(plan.stored_deliveries, r.counts.requests),
    },
    Figure {
        name: "event_json_bytes",
        meaning: "mean size in JSON of what was to be delivered, or of what was published where nothing was",
        value: |_, plan| plan.event_json_bytes(),
    },
    Figure {
        name: "request_json_bytes",
        meaning: "mean size in JSON of a request",
        value: |_, plan| ratio(plan.request_json_bytes, plan.requests),
    },
    Figure {
        name: "rejected",
        meaning: "events the relay refused",
        value: |r, _| Some(r.counts.rejected as f64),
    },
    Figure {
        name: "readers_cut_off",
        meaning: "slow readers the relay disconnected",
        value: |r, _| Some(r.counts.readers_cut_off as f64),
    },
    Figure {
        name: "repeats_share",
        meaning: "deliveries that brought a client an event it had, of all",
        value: |r, _| ratio(r.counts.repeats, r.counts.deliveries),
    },
    Figure {
        name: "reconciliations",
        meaning: "reconciliations that ended with both sides knowing the difference",
        value: |r, _| Some(r.counts.reconciliations as f64),
    },
    Figure {
        name: "rounds_per_reconciliation",
        meaning: "messages that a client sent in a reconciliation, on average",
        value: |r, _| ratio(r.counts.negentropy_rounds, r.counts.reconciliations),
    },
    Figure {
        name: "wire_bytes_per_delivery",
        meaning: "bytes at the socket, both ways, for each delivery",
        value: |r, _| ratio(r.traffic.wire_bytes(), r.counts.deliveries),
    },
];

/// The part of a latency figure behind its timing, with the quantile it stands for.
const QUANTILES: [(&str, f64); 3] = [("_ms_p50", 0.5), ("_ms_p90", 0.9), ("_ms_p99", 0.99)];

fn ratio(of: u64, by: u64) -> Option<f64> {
    (by > 0).then(|| of as f64 / by as f64)
}

/// The figures and their meanings, for the reference; latencies apart.
pub fn figures() -> impl Iterator<Item = (&'static str, &'static str)> {
    FIGURES.iter().map(|figure| (figure.name, figure.meaning))
}

/// Whether `[expect]` may name this figure.
///
/// # Errors
/// Lists the known ones.
pub(crate) fn check_name(name: &str) -> anyhow::Result<()> {
    let known = FIGURES.iter().any(|figure| figure.name == name) || latency(name).is_some();
    let names: Vec<_> = figures().map(|(name, _)| name).collect();
    let timings: Vec<_> = Timing::ALL.map(Timing::name).to_vec();
    ensure!(
        known,
        "unknown figure {name:?}; known: {}, and METRIC_ms_p50, _p90, _p99 with METRIC one of {}, or \
         \"METRIC.population_ms_p99\"",
        names.join(" "),
        timings.join(" ")
    );
    Ok(())
}

/// The name of the timing in results and the quantile that a latency figure stands for.
fn latency(name: &str) -> Option<(&str, f64)> {
    let (timing, quantile) =
        QUANTILES.iter().find_map(|(ending, quantile)| Some((name.strip_suffix(ending)?, *quantile)))?;
    let known = |timing: &str| Timing::ALL.iter().any(|known| known.name() == timing);
    known(timing.split('.').next()?).then_some((timing, quantile))
}

/// The bounds on latencies: they are demands on the relay, not on the run.
pub(crate) fn latency_bounds(scenario: &Scenario) -> Vec<LatencyBound> {
    let bound = |(name, bound): (&String, &Bound)| {
        let (timing, quantile) = latency(name)?;
        Some(LatencyBound { metric: timing.to_owned(), quantile, min_ms: bound.min, max_ms: bound.max })
    };
    scenario.expect.iter().filter_map(bound).collect()
}

/// Judges a run by what its scenario expects. What was not reached makes it invalid; what cannot be told, suspect. A latency
/// beyond its bound is [`latency_bounds`]' business.
pub(crate) fn judge(scenario: &Scenario, record: &RunRecord, plan: &PlanFacts) -> Validity {
    let mut validity = record.validity.clone();
    judge_each(&scenario.expect, |name| value(name, record, plan), &mut validity);
    validity
}

fn judge_each(
    expect: &BTreeMap<String, Bound>,
    value: impl Fn(&str) -> Option<f64>,
    validity: &mut Validity,
) {
    for (name, Bound { min, max }) in expect {
        let Some(value) = value(name) else {
            validity.add(
                ValidityClass::Suspect,
                format!("{name} is expected, but there are too few values to tell"),
            );
            continue;
        };
        if latency(name).is_some() {
            continue;
        }
        if let Some(min) = min.filter(|min| value < *min) {
            validity.add(ValidityClass::Invalid, format!("{name} is {value:.1}, expected at least {min}"));
        }
        if let Some(max) = max.filter(|max| value > *max) {
            validity.add(ValidityClass::Invalid, format!("{name} is {value:.1}, expected at most {max}"));
        }
    }
}

fn value(name: &str, record: &RunRecord, plan: &PlanFacts) -> Option<f64> {
    if let Some(figure) = FIGURES.iter().find(|figure| figure.name == name) {
        return (figure.value)(record, plan);
    }
    let (timing, quantile) = latency(name)?;
    match record.latency.get(timing)?.quantile_ns(quantile) {
        Quantile::Exact(ns) | Quantile::Bracketed(ns) => Some(ns as f64 / 1e6),
        Quantile::Missing => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_reached_invalidates_and_what_cannot_be_told_is_said() {
        let bound = |min, max| Bound { min, max };
        let expect = BTreeMap::from([
            ("deliveries".to_owned(), bound(Some(10.0), None)),
            ("rejected".to_owned(), bound(None, Some(0.0))),
            ("response_ms_p99".to_owned(), bound(None, Some(5.0))),
        ]);
        let judged = |values: [Option<f64>; 3]| {
            let mut validity = Validity::default();
            let names = ["deliveries", "rejected", "response_ms_p99"];
            let value = |name: &str| names.iter().position(|n| *n == name).and_then(|n| values[n]);
            judge_each(&expect, value, &mut validity);
            validity
        };
        assert_eq!(judged([Some(10.0), Some(0.0), Some(5.0)]), Validity::default());
        let bad = judged([Some(9.0), Some(1.0), None]);
        assert_eq!((bad.class, bad.reasons.len()), (ValidityClass::Invalid, 3));
        assert_eq!(judged([Some(10.0), Some(0.0), Some(6.0)]), Validity::default(), "the relay's failure");
        assert_eq!(bad.reasons[0], "deliveries is 9.0, expected at least 10");
        assert_eq!(judged([Some(10.0), Some(0.0), None]).class, ValidityClass::Suspect);
    }

    #[test]
    fn unknown_figures_are_answered_with_the_known_ones() {
        for name in ["deliveries", "eose_ms_p99", "first_event.home_ms_p50"] {
            check_name(name).unwrap();
        }
        for name in ["delivery", "eose_ms_p95", "latency_ms_p99", "eose"] {
            let text = check_name(name).unwrap_err().to_string();
            assert!(text.contains("deliveries_per_request") && text.contains("fiftieth_event"), "{text}");
        }
    }
}
