//! Judges a run by `[expect]`, the figures that it must reach to count as evidence. A scenario
//! about large follow lists that streamed small ones has answered another question.

use std::collections::BTreeMap;

use measure::{LatencyBound, Quantile, RunRecord, Validity, ValidityClass};

use crate::{
    figure::{Figure, latency},
    plan_facts::PlanFacts,
    scenario::{Bound, Scenario},
};

/// The bounds on latencies, which are demands on the relay, not on the run.
pub(crate) fn latency_bounds(scenario: &Scenario) -> Vec<LatencyBound> {
    let bound = |(name, bound): (&String, &Bound)| {
        let (timing, quantile) = latency(name)?;
        Some(LatencyBound { metric: timing.to_owned(), quantile, min_ms: bound.min, max_ms: bound.max })
    };
    scenario.expect.iter().filter_map(bound).collect()
}

/// Judges a run by the figures that its scenario expects. A figure out of bounds makes it invalid,
/// a figure without a value suspect. Latencies out of bounds are left to [`latency_bounds`].
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

/// The value of a figure, where the run has one.
fn value(name: &str, record: &RunRecord, plan: &PlanFacts) -> Option<f64> {
    if let Some(figure) = Figure::find(name) {
        return value_of(figure, record, plan);
    }
    let (timing, quantile) = latency(name)?;
    match record.latency.get(timing)?.quantile_ns(quantile) {
        Quantile::Exact(ns) | Quantile::Bracketed(ns) => Some(ns as f64 / 1e6),
        Quantile::Missing => None,
    }
}

fn value_of(figure: Figure, record: &RunRecord, plan: &PlanFacts) -> Option<f64> {
    let counts = &record.counts;
    match figure {
        Figure::Connections => Some(plan.connections as f64),
        Figure::Published => Some(counts.planned as f64),
        Figure::Requests => Some(counts.requests as f64),
        Figure::Deliveries => Some(counts.deliveries as f64),
        Figure::DeliveriesPerPublished => {
            ratio(counts.deliveries.saturating_sub(plan.stored_deliveries), counts.planned)
        }
        Figure::DeliveriesPerRequest => ratio(plan.stored_deliveries, counts.requests),
        Figure::EventJsonBytes => plan.event_json_bytes(),
        Figure::RequestJsonBytes => ratio(plan.request_json_bytes, plan.requests),
        Figure::Rejected => Some(counts.rejected as f64),
        Figure::ReadersCutOff => Some(counts.readers_cut_off as f64),
        Figure::RepeatsShare => ratio(counts.repeats, counts.deliveries),
        Figure::Reconciliations => Some(counts.reconciliations as f64),
        Figure::RoundsPerReconciliation => ratio(counts.negentropy_rounds, counts.reconciliations),
        Figure::WireBytesPerDelivery => ratio(record.traffic.wire_bytes(), counts.deliveries),
    }
}

fn ratio(of: u64, by: u64) -> Option<f64> {
    (by > 0).then(|| of as f64 / by as f64)
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
}
