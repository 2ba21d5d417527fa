//! From a result to tables and verdicts: pure functions, the same text from the same file for ever.

mod comparison;
mod diff;
mod export;
mod figures;
mod html;
mod limits;
mod logs;
mod merged;
mod number;
mod steady;
mod summary;
mod table;
mod view;

pub use comparison::{BAND, Comparison, Verdict};
pub use diff::{Change, Diff, diff, unlike};
pub use export::github_action_benchmark;
pub use html::html;
pub use logs::write_logs;
pub use merged::{Merged, Metric};
pub use steady::Steadiness;
pub use summary::{summary, terminal};
pub use table::Table;

pub(crate) use view::{LoadView, latency_of, views};

use crate::{
    Block, ResultFile, Role,
    slo::{Measured, Slo, SloResult},
};

/// What became of an SLO in every cell of the matrix; the floor and the control are none.
pub fn slo_results(slo: &Slo, result: &ResultFile) -> Vec<SloResult> {
    let mut found = Vec::new();
    for load in views(result) {
        for view in load.cells.iter().filter(|view| matches!(view.cell.role, Role::Cell | Role::Anchor)) {
            let usable: Vec<_> = view.cell.blocks.iter().filter_map(Block::usable).collect();
            // Blocks that lost something are in no table, but that is just what is asked.
            let records = view.cell.blocks.iter().filter_map(|block| block.record.as_ref());
            let lost = records.map(|record| record.counts.deliveries_lost).sum();
            let measured = Measured::of(&usable, result.config.seconds).with_lost(lost);
            found.extend(slo.judge(&view.cell.id, &measured, load.latency.0));
        }
    }
    found
}

/// What became of the bounds on latencies that scenarios set, in every cell of the matrix whose samples can tell.
pub fn scenario_slos(result: &ResultFile) -> Vec<SloResult> {
    let mut found = Vec::new();
    for load in views(result) {
        for view in load.cells.iter().filter(|view| matches!(view.cell.role, Role::Cell | Role::Anchor)) {
            let mut usable = view.cell.blocks.iter().filter_map(Block::usable);
            for bound in usable.next().iter().flat_map(|record| &record.latency_bounds) {
                let Some(ns) = view.merged.quantile(&bound.metric, bound.quantile).ns() else { continue };
                found.push(SloResult {
                    cell: view.cell.id.clone(),
                    bound: bound.to_string(),
                    value: Some(ns as f64),
                    met: bound.is_met(ns),
                });
            }
        }
    }
    found
}

/// Each cell of a result against its reference, for every judged metric.
pub fn comparisons(result: &ResultFile) -> Vec<Comparison> {
    views(result).iter().flat_map(LoadView::comparisons).collect()
}
