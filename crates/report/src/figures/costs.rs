//! Bytes against CPU, and ratios with their intervals.

use super::{
    cells::{colour, place_of},
    labels::labels,
    svg::{At, Axis, Figure, INK, Sheet, padded},
};
use crate::{
    merged::Metric,
    number,
    result::Role,
    statistics::stats::BAND,
    verdicts::comparison::{Comparison, Verdict},
    view::{CellView, LoadView},
};

/// Wire bytes against a CPU cost, one mark a cell; the Pareto frontier is drawn and labelled.
pub(crate) fn pareto(load: &LoadView<'_>, cpu: Metric) -> String {
    let value =
        |view: &CellView<'_>, metric: Metric| Some(view.value(metric, load.latency.0)? / metric.unit());
    let points: Vec<(f64, f64, &CellView<'_>)> = (load.cells.iter())
        .filter(|view| !matches!(view.cell.role, Role::Control | Role::Floor))
        .filter_map(|view| Some((value(view, Metric::WireBytes)?, value(view, cpu)?, view)))
        .filter(|(x, y, _)| *x > 0.0 && *y > 0.0)
        .collect();
    let mut frontier: Vec<&(f64, f64, &CellView<'_>)> = (points.iter())
        .filter(|p| !points.iter().any(|q| q.0 <= p.0 && q.1 <= p.1 && (q.0 < p.0 || q.1 < p.1)))
        .collect();
    frontier.sort_by(|a, b| a.0.total_cmp(&b.0));
    let x = Axis::logarithmic("wire bytes per event", padded(points.iter().map(|p| p.0), 1.35), 5);
    let y = Axis::logarithmic(cpu.heading(), padded(points.iter().map(|p| p.1), 1.35), 6);
    let sheet = Sheet::phone(340.0);
    let mut svg = Figure::begin(sheet, "wire bytes against CPU per event", x, y);
    let ink = format!("{INK} stroke-width=\"1\"");
    for pair in frontier.windows(2) {
        svg.segment(svg.at(pair[0].0, pair[0].1), svg.at(pair[1].0, pair[1].1), &ink);
    }
    let is_named = |view: &CellView<'_>| {
        view.cell.role == Role::Anchor || frontier.iter().any(|p| p.2.cell.id == view.cell.id)
    };
    let places: Vec<At> = points.iter().map(|p| svg.at(p.0, p.1)).collect();
    let names: Vec<Option<&str>> =
        points.iter().map(|(.., view)| is_named(view).then_some(view.cell.id.as_str())).collect();
    for ((at, (x, y, view)), place) in places.iter().zip(&points).zip(labels(&sheet, &places, &names)) {
        let id = &view.cell.id;
        svg.shape(place_of(load, view), *at, colour(load, &view.cell.cell.format));
        place.into_iter().for_each(|place| svg.name(*at, place, "", id));
        let (bytes, cost) = (number::three(*x), number::three(*y));
        svg.mark(*at, id, &format!("{id}: {bytes} B on the wire, {cost} {}", cpu.heading()));
    }
    svg.end()
}

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
