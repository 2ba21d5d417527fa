//! Relay CPU above the floor: what remains of it without sockets and wake-ups, which no format
//! changes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    metric::Metric,
    number::{self, Ratio},
    result::Role,
    tables::table::or_nothing,
    view::{CellView, LoadView, LogRatios},
};

/// The relay's CPU less that of the floor relay at the same load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AboveFloor {
    /// Nanoseconds for each envelope, over all usable blocks; negative where the floor took more.
    pub cpu_ns: f64,
    /// This divided by the reference's: the Hodges–Lehmann estimate over rounds, in logarithms.
    /// Over all usable blocks where one of both is not above the floor in every round; absent where
    /// one is not above it at all, and of a cell without a reference.
    pub ratio: Option<f64>,
    /// Its 95 % interval, by inverting the signed-rank test; absent below six rounds, and where the
    /// ratio is over all blocks.
    pub interval: Option<(f64, f64)>,
}

impl AboveFloor {
    /// `×0.84 [0.80, 0.88]`.
    pub(crate) fn quotient(&self) -> String {
        or_nothing(self.ratio.map(|value| Ratio { value, interval: self.interval }.to_string()))
    }

    /// `3.96 ×0.84`: microseconds, and the ratio where there is one.
    pub(crate) fn cost(&self) -> String {
        let micros = self.cpu_ns / 1e3;
        // Three digits are of a magnitude.
        let sign = if micros < 0.0 { "-" } else { "" };
        let ratio = self.ratio.map_or_else(String::new, |ratio| format!(" {}", number::ratio(ratio)));
        format!("{sign}{}{ratio}", number::three(micros.abs()))
    }
}

impl LoadView<'_> {
    /// The floor relay, where its CPU is evidence.
    pub(crate) fn floor(&self) -> Option<&CellView<'_>> {
        let floor = self.cells.iter().find(|view| view.cell.role == Role::Floor)?;
        (!self.counts_allocations() && self.relay_cpu(floor).is_some()).then_some(floor)
    }

    /// A cell's relay CPU above the floor, divided by that of `reference`.
    pub(crate) fn above_floor(
        &self,
        view: &CellView<'_>,
        reference: Option<&CellView<'_>>,
    ) -> Option<AboveFloor> {
        let floor = self.floor().filter(|_| view.cell.role != Role::Floor)?;
        let floor_ns = self.relay_cpu(floor)?;
        let above = |view: &CellView<'_>| Some(self.relay_cpu(view)? - floor_ns);
        let cpu_ns = above(view)?;
        let whole = || {
            let of_reference = above(reference?)?;
            (cpu_ns > 0.0 && of_reference > 0.0).then(|| cpu_ns / of_reference)
        };
        let logs = reference.and_then(|reference| self.logs_above_floor(view, reference, floor));
        let over_rounds = logs.as_deref().and_then(Ratio::over_rounds);
        let ratio = over_rounds.map(|ratio| ratio.value).or_else(whole);
        Some(AboveFloor { cpu_ns, ratio, interval: over_rounds.and_then(|ratio| ratio.interval) })
    }

    fn relay_cpu(&self, view: &CellView<'_>) -> Option<f64> {
        view.value(Metric::RelayCpu, self.latency.0)
    }

    /// The logarithm of the quotient in each round. `None` where one of both is not above the floor
    /// in every round: to leave such rounds out would favour the others.
    fn logs_above_floor(
        &self,
        view: &CellView<'_>,
        reference: &CellView<'_>,
        floor: &CellView<'_>,
    ) -> Option<Vec<f64>> {
        let (own, floor) = (self.to_anchors(view), self.to_anchors(floor));
        // The anchor is one times itself in every round.
        let base = (reference.cell.role != Role::Anchor).then(|| self.to_anchors(reference));
        let quotients = own.iter().filter_map(|(round, own)| {
            let floor = floor.get(round)?.exp();
            let base = base.as_ref().map_or(Some(1.0), |base| Some(base.get(round)?.exp()))?;
            Some((own.exp() - floor, base - floor))
        });
        let logs = quotients.map(|(own, base)| (own > 0.0 && base > 0.0).then(|| (own / base).ln()));
        logs.collect::<Option<Vec<f64>>>().filter(|logs| !logs.is_empty())
    }

    /// Relay CPU of each round divided by the anchors next to it, in logarithms.
    fn to_anchors(&self, view: &CellView<'_>) -> LogRatios {
        self.anchor().map(|anchor| self.log_ratios(view, anchor, Metric::RelayCpu)).unwrap_or_default()
    }
}
