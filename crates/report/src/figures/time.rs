//! The relay's CPU over the run.

use super::{
    cells::colour,
    svg::{Axis, Figure, Sheet},
};
use crate::{merged::Merged, metric::Metric, result::Block, view::LoadView};

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
