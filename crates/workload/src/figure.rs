//! Names of the figures that `[expect]` of a scenario may bound.

use anyhow::bail;

use crate::timing::Timing;

/// A count or size of a run; a latency is named by its timing and quantile instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Figure {
    /// Clients at one time.
    Connections,
    /// Events published.
    Published,
    /// Requests for stored events.
    Requests,
    /// Events delivered.
    Deliveries,
    /// Copies of a published event that reached a live subscription.
    DeliveriesPerPublished,
    /// Events that answered a request, on average.
    DeliveriesPerRequest,
    /// Mean size in JSON of what was to be delivered, or of what was published where nothing was.
    EventJsonBytes,
    /// Mean size in JSON of a request.
    RequestJsonBytes,
    /// Events the relay refused.
    Rejected,
    /// Slow readers the relay disconnected.
    ReadersCutOff,
    /// Deliveries that brought a client an event it had, of all.
    RepeatsShare,
    /// Reconciliations that ended with both sides knowing the difference.
    Reconciliations,
    /// Messages that a client sent in a reconciliation, on average.
    RoundsPerReconciliation,
}

// In the order of `scenarios/README.md`.
codecs::names! {
    Figure, "figure":
    Connections = "connections",
    Published = "published",
    Requests = "requests",
    Deliveries = "deliveries",
    DeliveriesPerPublished = "deliveries_per_published",
    DeliveriesPerRequest = "deliveries_per_request",
    EventJsonBytes = "event_json_bytes",
    RequestJsonBytes = "request_json_bytes",
    Rejected = "rejected",
    ReadersCutOff = "readers_cut_off",
    RepeatsShare = "repeats_share",
    Reconciliations = "reconciliations",
    RoundsPerReconciliation = "rounds_per_reconciliation",
}

/// Endings of the names of latency figures, with the quantiles that they stand for.
const QUANTILES: [(&str, f64); 3] = [("_ms_p50", 0.5), ("_ms_p90", 0.9), ("_ms_p99", 0.99)];

/// Whether `[expect]` may name this figure.
///
/// # Errors
/// Lists the known figures.
pub(crate) fn check_name(name: &str) -> anyhow::Result<()> {
    let unknown = match name.parse::<Figure>() {
        Err(unknown) if latency(name).is_none() => unknown,
        _ => return Ok(()),
    };
    let timings = Timing::ALL.map(Timing::name).join(" ");
    bail!(
        "{unknown}, and METRIC_ms_p50, _p90, _p99 with METRIC one of {timings}, or \"METRIC.population_ms_p99\""
    )
}

/// The name of the timing in results and the quantile that a latency figure stands for.
pub(crate) fn latency(name: &str) -> Option<(&str, f64)> {
    let (timing, quantile) =
        QUANTILES.iter().find_map(|(ending, quantile)| Some((name.strip_suffix(ending)?, *quantile)))?;
    timing.split('.').next()?.parse::<Timing>().ok().map(|_| (timing, quantile))
}

#[cfg(test)]
mod tests {
    use super::*;

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
