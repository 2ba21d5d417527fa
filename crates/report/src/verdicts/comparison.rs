//! Each cell as a multiple of its reference, with a verdict.

use std::collections::BTreeMap;

pub use crate::statistics::judge::{Comparison, Family, Verdict};
pub(crate) use crate::statistics::judge::{Control, control_of};
use crate::{
    metric::Metric,
    result::ResultFile,
    statistics::{
        judge::{Sample, judge},
        precision,
    },
    view::{CellView, LoadView, views},
};

/// Why latencies of a cell and its reference have no other verdict.
fn withheld(views: [&CellView<'_>; 2]) -> Option<Verdict> {
    if views.iter().any(|view| !view.saturated().is_empty()) {
        return Some(Verdict::Saturated);
    }
    views.iter().any(|view| view.is_unsteady()).then_some(Verdict::Unsteady)
}

impl LoadView<'_> {
    /// Every cell against its reference in every judged metric.
    pub(crate) fn comparisons(&self) -> Vec<Comparison> {
        self.judged().into_iter().flat_map(|metric| self.compare(metric)).collect()
    }

    fn compare(&self, metric: Metric) -> Vec<Comparison> {
        let pairs = self.cells.iter().filter_map(|view| Some((view, self.reference(view)?)));
        let samples = pairs.map(|(view, reference)| {
            let family = self.family(view);
            Sample {
                cell: &view.cell.id,
                reference: &reference.cell.id,
                role: view.cell.role,
                family,
                is_corrected: self.is_corrected(family),
                logs: self.log_ratios(view, reference, metric).into_values().collect(),
                withheld: withheld([view, reference]).filter(|_| metric.is_latency()),
            }
        });
        judge(metric, &samples.collect::<Vec<_>>()).into_iter().flatten().collect()
    }
}

/// For every judged metric the standard deviation between rounds of log(cell ÷ reference), pooled over
/// the cells of a load; the largest of several loads.
pub fn deviations(result: &ResultFile) -> BTreeMap<Metric, f64> {
    let mut deviations = BTreeMap::new();
    for load in views(result) {
        for metric in load.judged() {
            let compared = load.cells.iter().filter_map(|view| Some((view, load.reference(view)?)));
            let samples: Vec<Vec<f64>> = compared
                .map(|(view, reference)| load.log_ratios(view, reference, metric).into_values().collect())
                .collect();
            if let Some(deviation) = precision::pooled_deviation(samples.iter().map(Vec::as_slice)) {
                let largest: &mut f64 = deviations.entry(metric).or_insert(deviation);
                *largest = largest.max(deviation);
            }
        }
    }
    deviations
}
