//! Latency by percentile, and the relay's CPU over the run.

use super::{
    cells::{colour, packing},
    svg::{Axis, Curve, DASHES, Figure, Sheet, padded},
};
use crate::{
    merged::{Merged, Metric},
    number,
    result::{Block, Role},
    view::{CellView, LoadView},
};

/// Latency by percentile of the cells with one of the packings; both axes logarithmic.
pub(crate) fn percentiles(load: &LoadView<'_>, packed: &str) -> Option<String> {
    let views: Vec<&CellView<'_>> = (load.cells.iter())
        .filter(|view| {
            !matches!(view.cell.role, Role::Control | Role::Floor) && packing(load, view) == packed
        })
        .collect();
    let curve = |view: &CellView<'_>| -> Curve {
        // Evenly spaced in the logarithm of 1/(1-q), as far as the samples support a number.
        let steps = (0..=48).map(|step| 2.0_f64 * 10.0_f64.powf(f64::from(step) / 8.0));
        let shown = steps.map_while(|inverse| {
            let ns = view.merged.quantile(load.latency.0, 1.0 - 1.0 / inverse).ns()?;
            Some((inverse, ns as f64 / 1e6))
        });
        shown.filter(|(_, ms)| *ms > 0.0).collect()
    };
    let curves: Vec<(&CellView<'_>, Curve)> =
        views.into_iter().map(|view| (view, curve(view))).filter(|(_, curve)| curve.len() > 1).collect();
    if curves.is_empty() {
        return None;
    }
    let all = || curves.iter().flat_map(|(_, curve)| curve.iter().copied());
    let far = all().map(|p| p.0).fold(4.0, f64::max);
    let x = Axis::logarithmic("slowest 1 in N (10: p90, 100: p99)", 2.0..far, 5);
    let y = Axis::logarithmic(&format!("{} ms", load.latency.0), padded(all().map(|p| p.1), 1.35), 6);
    let mut svg = Figure::begin(Sheet::phone(280.0), &format!("latency by percentile, {packed}"), x, y);
    for (index, (view, curve)) in curves.iter().enumerate() {
        let id = &view.cell.id;
        svg.curve(curve.iter().copied(), colour(load, &view.cell.cell.format), DASHES[index % DASHES.len()]);
        for (x, y) in curve.iter().step_by(4).chain(curve.last()) {
            let (one_in, ms) = (number::short(*x), number::three(*y));
            svg.mark(svg.at(*x, *y), id, &format!("{id}: the slowest 1 in {one_in} took {ms} ms or more"));
        }
    }
    Some(svg.end())
}

/// Relay CPU of every block over the run ÷ its cell's total, which shows drift of the machine.
/// Spans of invalid blocks are shaded and crossed.
pub(crate) fn time_series(load: &LoadView<'_>) -> Option<String> {
    let mut points = Vec::new();
    let mut invalid = Vec::new();
    for view in &load.cells {
        let of_block = |block: &Block| {
            let own = Merged::from_records([block.record.as_ref()?]);
            Metric::RelayCpu.value(&own, load.latency.0)
        };
        let minutes = |ns: u64| ns as f64 / 60e9;
        for block in &view.cell.blocks {
            let begin = minutes(block.started_after_ns);
            match (block.usable(), Metric::RelayCpu.value(&view.merged, load.latency.0)) {
                (Some(_), Some(whole)) => {
                    points.extend(of_block(block).map(|own| (begin, own / whole, view)));
                }
                (Some(_), None) => {}
                (None, _) => invalid.push((begin, begin + minutes(block.process_ns), view.cell.id.clone())),
            }
        }
    }
    let far = points.iter().map(|p| p.0).chain(invalid.iter().map(|span| span.1)).fold(0.0_f64, f64::max);
    if points.is_empty() || far <= 0.0 {
        return None;
    }
    let low = points.iter().map(|p| p.1).fold(0.9, f64::min) * 0.98;
    let high = points.iter().map(|p| p.1).fold(1.1, f64::max) * 1.02;
    let x = Axis::linear("minutes since the start", 0.0..far * 1.02, 5);
    let y = Axis::linear("relay CPU ÷ cell's whole", low..high, 6);
    let mut svg = Figure::begin(Sheet::phone(260.0), "relay CPU over time", x, y);
    for (from, to, cell) in invalid {
        svg.rectangle((from, low), (to, high), "fill=\"#d53e3e\" fill-opacity=\"0.25\"");
        svg.segment(svg.at(from, low), svg.at(to, high), "stroke=\"#d53e3e\" stroke-width=\"1\"");
        let at = svg.at(f64::midpoint(from, to), high);
        svg.mark(at, &cell, &format!("{cell}: left out"));
    }
    for (x, y, view) in points {
        let at = svg.at(x, y);
        svg.dot(at, 2.0, colour(load, &view.cell.cell.format));
        svg.mark(at, &view.cell.id, &format!("{}: ×{y:.2} at {x:.1} min", view.cell.id));
    }
    Some(svg.end())
}
