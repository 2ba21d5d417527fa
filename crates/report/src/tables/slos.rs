//! Judges the demands on cells: those of `--slo` and those of the scenario.
use crate::{
    number,
    result::{Block, ResultFile, Role},
    slo::{Measured, Slo, SloResult},
    tables::table::{NOTHING, Table},
    view::LoadView,
};

/// Every demand judged in every cell of the matrix, without floor and control.
pub(crate) fn slos(result: &ResultFile, loads: &[LoadView<'_>]) -> Vec<SloResult> {
    let mut found = result.config.slo.as_ref().map_or_else(Vec::new, |slo| given(slo, result, loads));
    found.extend(of_scenarios(loads));
    found
}

/// Verdicts on the SLO of the command line. No cell meets an SLO that cannot be read.
fn given(text: &str, result: &ResultFile, loads: &[LoadView<'_>]) -> Vec<SloResult> {
    let slo = text.parse::<Slo>();
    let mut found = Vec::new();
    for load in loads {
        for view in load.cells.iter().filter(|view| matches!(view.cell.role, Role::Cell | Role::Anchor)) {
            let usable: Vec<_> = view.cell.blocks.iter().filter_map(Block::usable).collect();
            // Blocks with lost deliveries are in no table but count here.
            let records = view.cell.blocks.iter().filter_map(|block| block.record.as_ref());
            let lost = records.map(|record| record.counts.deliveries_lost).sum();
            let measured = Measured::from_records(&usable, result.config.seconds).with_lost(lost);
            found.extend(match &slo {
                Ok(slo) => slo.judge(&view.cell.id, &measured, load.latency.0),
                Err(_) => {
                    let (cell, bound) = (view.cell.id.clone(), text.to_owned());
                    vec![SloResult { cell, bound, value: None, met: false }]
                }
            });
        }
    }
    found
}

/// The bounds on latencies that scenarios set, in every cell of the matrix whose samples can tell.
fn of_scenarios(loads: &[LoadView<'_>]) -> Vec<SloResult> {
    let mut found = Vec::new();
    for load in loads {
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

/// Whether each cell meets what was demanded.
pub(crate) fn slo_table(slos: &[SloResult]) -> Option<Table> {
    if slos.is_empty() {
        return None;
    }
    let headings = ["cell", "bound", "measured", "verdict"].map(str::to_owned).to_vec();
    let row = |one: &SloResult| {
        let times = ["p", "relay_cpu"];
        let time = times.iter().any(|time| one.bound.starts_with(time)) || one.bound.contains("_ms_p");
        let value = one.value.map_or_else(
            || NOTHING.to_owned(),
            |value| if time { format!("{} ms", number::three(value / 1e6)) } else { number::three(value) },
        );
        vec![
            one.cell.clone(),
            one.bound.clone(),
            value,
            if one.met { "met" } else { "**missed**" }.to_owned(),
        ]
    };
    Some(Table { names: 2, headings, rows: slos.iter().map(row).collect() })
}
