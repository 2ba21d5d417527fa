//! Judges the demands on cells: those of `--slo` and those of the scenario.
use crate::{
    number,
    result::{Block, ResultFile, Role},
    slo::{Measured, Slo, SloResult},
    tables::table::{Table, or_nothing},
    view::{CellView, LoadView},
};

/// Every demand judged in every cell of the matrix, without floor and control: first those of `--slo`.
pub(crate) fn slos(result: &ResultFile, loads: &[LoadView<'_>]) -> Vec<SloResult> {
    let cells = || {
        let all = loads.iter().flat_map(|load| load.cells.iter().map(move |view| (load.latency.0, view)));
        all.filter(|(_, view)| matches!(view.cell.role, Role::Cell | Role::Anchor))
    };
    let given = result.config.slo.iter().flat_map(|slo| {
        cells().flat_map(move |(latency, view)| given(slo, result.config.seconds, latency, view))
    });
    given.chain(cells().flat_map(|(_, view)| of_scenario(view))).collect()
}

/// Verdicts on the SLO of the command line. No cell meets an SLO that cannot be read.
fn given(text: &str, seconds: u32, latency: &str, view: &CellView<'_>) -> Vec<SloResult> {
    let Ok(slo) = text.parse::<Slo>() else {
        let (cell, bound) = (view.cell.id.clone(), text.to_owned());
        return vec![SloResult { cell, bound, value: None, met: false }];
    };
    let usable: Vec<_> = view.cell.blocks.iter().filter_map(Block::usable).collect();
    // Blocks with lost deliveries are in no table but count here.
    let records = view.cell.blocks.iter().filter_map(|block| block.record.as_ref());
    let lost = records.map(|record| record.counts.deliveries_lost).sum();
    slo.judge(&view.cell.id, &Measured::from_records(&usable, seconds).with_lost(lost), latency)
}

/// The bounds on latencies that a scenario sets, where samples can tell.
fn of_scenario(view: &CellView<'_>) -> Vec<SloResult> {
    let first = view.cell.blocks.iter().find_map(Block::usable);
    let judged = first.iter().flat_map(|record| &record.latency_bounds).filter_map(|bound| {
        let ns = view.merged.quantile(&bound.metric, bound.quantile).ns()?;
        Some(SloResult {
            cell: view.cell.id.clone(),
            bound: bound.to_string(),
            value: Some(ns as f64),
            met: bound.is_met(ns),
        })
    });
    judged.collect()
}

/// Whether each cell meets what was demanded.
pub(crate) fn slo_table(slos: &[SloResult]) -> Option<Table> {
    if slos.is_empty() {
        return None;
    }
    let mut table = Table::new(2, &["cell", "bound", "measured", "verdict"]);
    for SloResult { cell, bound, value, met } in slos {
        let is_time = bound.starts_with('p') || bound.starts_with("relay_cpu") || bound.contains("_ms_p");
        let shown = |value: f64| match is_time {
            true => format!("{} ms", number::three(value / 1e6)),
            false => number::three(value),
        };
        let verdict = if *met { "met" } else { "**missed**" }.to_owned();
        table.rows.push(vec![cell.clone(), bound.clone(), or_nothing(value.map(shown)), verdict]);
    }
    Some(table)
}
