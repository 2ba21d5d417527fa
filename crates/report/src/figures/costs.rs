//! Ratios with their intervals.

use super::{
    cells::{colour, place_of},
    svg::{Axis, Figure, INK, Sheet},
};
use crate::{
    metric::Metric,
    statistics::stats::BAND,
    verdicts::comparison::{Comparison, Verdict},
    view::LoadView,
};

/// A comparison's interval, or its ratio twice where it has none.
fn span(c: &Comparison) -> (f64, f64) {
    c.interval.unwrap_or((c.ratio, c.ratio))
}

/// The axis that holds every interval and 1.
fn reach(rows: &[&Comparison]) -> std::ops::Range<f64> {
    let low = rows.iter().map(|c| span(c).0.min(c.ratio)).fold(0.9_f64, f64::min) / 1.1;
    let high = rows.iter().map(|c| span(c).1.max(c.ratio)).fold(1.1_f64, f64::max) * 1.1;
    low..high
}

/// The ratios of one metric with their intervals, one row a cell, the ±2 % band behind them.
pub(crate) fn forest(load: &LoadView<'_>, comparisons: &[Comparison], metric: Metric) -> String {
    let rows: Vec<&Comparison> = comparisons.iter().filter(|c| c.metric == metric).collect();
    let names = 150.0;
    let (bottom, top) = (-0.5, rows.len() as f64 - 0.5);
    let x = Axis::logarithmic(&format!("{}, × reference (log)", metric.short()), reach(&rows), 4);
    let y = Axis::linear("", bottom..top, 1).with_ticks(Vec::new());
    let sheet = Sheet::phone(62.0 + 18.0 * rows.len() as f64).with_left(names + 6.0);
    let mut svg = Figure::begin(sheet, &format!("{} with intervals", metric.short()), x, y);
    svg.rectangle((1.0 - BAND, bottom), (1.0 + BAND, top), "class=\"bc-band\"");
    svg.segment(svg.at(1.0, bottom), svg.at(1.0, top), &format!("{INK} stroke-width=\"1\""));
    for (row, c) in rows.iter().enumerate() {
        let y = (rows.len() - 1 - row) as f64;
        let (from, to) = span(c);
        let width = match c.verdict {
            Verdict::Inconclusive | Verdict::Unsteady | Verdict::Saturated => 1,
            _ => 3,
        };
        svg.segment(svg.at(from, y), svg.at(to, y), &format!("{INK} stroke-width=\"{width}\""));
        let at = svg.at(c.ratio, y);
        if let Some(view) = load.cells.iter().find(|view| view.cell.id == c.cell) {
            svg.shape(place_of(load, view), at, colour(load, &view.cell.cell.format));
        }
        svg.text((names, at.1 + 3.0), "text-anchor=\"end\"", &c.cell);
        svg.mark(at, &c.cell, &format!("{} against {}: {} {c}", c.cell, c.reference, metric.short()));
    }
    svg.end()
}
