//! Names of the figures that `[expect]` of a scenario may bound.

use anyhow::ensure;
use codecs::UnknownName;

use crate::timing::Timing;

/// A count or size of a run; a latency is named by its timing and quantile instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Figure {
    Connections,
    Published,
    Requests,
    Deliveries,
    DeliveriesPerPublished,
    DeliveriesPerRequest,
    EventJsonBytes,
    RequestJsonBytes,
    Rejected,
    ReadersCutOff,
    RepeatsShare,
    Reconciliations,
    RoundsPerReconciliation,
    WireBytesPerDelivery,
}

impl Figure {
    /// Each figure with its name and its meaning, in the order of `scenarios/README.md`.
    pub(crate) const ALL: [(Figure, &str, &str); 14] = [
        (Figure::Connections, "connections", "clients at one time"),
        (Figure::Published, "published", "events published"),
        (Figure::Requests, "requests", "requests for stored events"),
        (Figure::Deliveries, "deliveries", "events delivered"),
        (
            Figure::DeliveriesPerPublished,
            "deliveries_per_published",
            "copies of a published event that reached a live subscription",
        ),
        (
            Figure::DeliveriesPerRequest,
            "deliveries_per_request",
            "events that answered a request, on average",
        ),
        (
            Figure::EventJsonBytes,
            "event_json_bytes",
            "mean size in JSON of what was to be delivered, or of what was published where nothing was",
        ),
        (Figure::RequestJsonBytes, "request_json_bytes", "mean size in JSON of a request"),
        (Figure::Rejected, "rejected", "events the relay refused"),
        (Figure::ReadersCutOff, "readers_cut_off", "slow readers the relay disconnected"),
        (Figure::RepeatsShare, "repeats_share", "deliveries that brought a client an event it had, of all"),
        (
            Figure::Reconciliations,
            "reconciliations",
            "reconciliations that ended with both sides knowing the difference",
        ),
        (
            Figure::RoundsPerReconciliation,
            "rounds_per_reconciliation",
            "messages that a client sent in a reconciliation, on average",
        ),
        (
            Figure::WireBytesPerDelivery,
            "wire_bytes_per_delivery",
            "bytes at the socket, both ways, for each delivery",
        ),
    ];

    /// The figure of this name.
    pub(crate) fn find(name: &str) -> Option<Figure> {
        Figure::ALL.iter().find(|(_, known, _)| *known == name).map(|(figure, ..)| *figure)
    }
}

/// Endings of the names of latency figures, with the quantiles that they stand for.
const QUANTILES: [(&str, f64); 3] = [("_ms_p50", 0.5), ("_ms_p90", 0.9), ("_ms_p99", 0.99)];

/// Whether `[expect]` may name this figure.
///
/// # Errors
/// Lists the known figures.
pub(crate) fn check_name(name: &str) -> anyhow::Result<()> {
    let known = Figure::find(name).is_some() || latency(name).is_some();
    let names = Figure::ALL.map(|(_, name, _)| name);
    let timings = Timing::ALL.map(Timing::name);
    ensure!(
        known,
        "{}, and METRIC_ms_p50, _p90, _p99 with METRIC one of {}, or \
         \"METRIC.population_ms_p99\"",
        UnknownName::new("figure", name, names),
        timings.join(" ")
    );
    Ok(())
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
