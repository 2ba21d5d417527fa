//! Figures of `[expect]`, which a run must reach to count as evidence. A scenario about large
//! follow lists that streamed small ones has answered another question.

use measure::{Expectation, LatencyBound, NOT_SATURATED, RunRecord};

use crate::{
    figure::{Figure, latency},
    plan_facts::PlanFacts,
    scenario::{Bound, Scenario},
};

/// The bounds on latencies, which are demands on the relay, not on the run.
pub fn latency_bounds(scenario: &Scenario) -> Vec<LatencyBound> {
    let bound = |(name, bound): (&String, &Bound)| {
        let (timing, quantile) = latency(name)?;
        Some(LatencyBound { metric: timing.to_owned(), quantile, min_ms: bound.min, max_ms: bound.max })
    };
    scenario.expect.iter().filter_map(bound).collect()
}

/// The figures that the scenario expects, as the run came out; for a share of a plan, the share's
/// part of each. `plan` is of the same share; `delivers` says whether the whole plan has
/// deliveries.
pub fn expectations(
    scenario: &Scenario,
    record: &RunRecord,
    plan: &PlanFacts,
    delivers: bool,
) -> Vec<Expectation> {
    let expectation = |(name, bound): (&String, &Bound)| {
        let (sum, per) = sums(name.parse().ok()?, record, plan, delivers);
        Some(Expectation { figure: name.clone(), sum, per, min: bound.min, max: bound.max })
    };
    scenario.expect.iter().filter_map(expectation).collect()
}

/// A figure as a sum, or as a sum and what it is divided by.
fn sums(figure: Figure, record: &RunRecord, plan: &PlanFacts, delivers: bool) -> (u64, Option<u64>) {
    let counts = &record.counts;
    // Time decides how much of a saturated plan is played, and not what it is made of.
    let is_looped = record.cell.saturate != NOT_SATURATED;
    match figure {
        Figure::Published if is_looped => (counts.planned - counts.not_begun.min(counts.planned), None),
        Figure::DeliveriesPerPublished if is_looped => (plan.live_deliveries, Some(plan.published)),
        Figure::DeliveriesPerRequest if is_looped => (plan.stored_deliveries, Some(plan.requests)),
        Figure::Connections => (plan.connections, None),
        Figure::Published => (counts.planned, None),
        Figure::Requests => (counts.requests, None),
        Figure::Deliveries => (counts.deliveries, None),
        Figure::DeliveriesPerPublished => {
            (counts.deliveries.saturating_sub(plan.stored_deliveries), Some(counts.planned))
        }
        Figure::DeliveriesPerRequest => (plan.stored_deliveries, Some(counts.requests)),
        Figure::EventJsonBytes => {
            let (bytes, events) = plan.event_json_sums(delivers);
            (bytes, Some(events))
        }
        Figure::RequestJsonBytes => (plan.request_json_bytes, Some(plan.requests)),
        Figure::Rejected => (counts.rejected, None),
        Figure::ReadersCutOff => (counts.readers_cut_off, None),
        Figure::RepeatsShare => (counts.repeats, Some(counts.deliveries)),
        Figure::Reconciliations => (counts.reconciliations, None),
        Figure::RoundsPerReconciliation => (counts.negentropy_rounds, Some(counts.reconciliations)),
    }
}
