//! p99 against rate: of a run at several rates, and of a search.

use super::{
    cells::{colour, swatch},
    svg::{Axis, Curve, Figure, PALETTE, Sheet, padded},
};
use crate::{
    bracket::Limit,
    limits, number,
    result::{Role, Search},
    view::LoadView,
};

/// p99 against rate, a line for each cell, where several rates of one scenario were measured.
pub(crate) fn p99_against_rate(loads: &[LoadView<'_>], scenario: &str) -> Option<String> {
    // Name, format, points.
    let mut lines: Vec<(String, String, Curve)> = Vec::new();
    let loads: Vec<&LoadView<'_>> =
        loads.iter().filter(|load| load.cells[0].cell.cell.scenario == scenario).collect();
    for (load, view) in loads.iter().flat_map(|load| load.cells.iter().map(move |view| (load, view))) {
        let Some(rate) = view.cell.rate_per_s.filter(|_| view.cell.role != Role::Control) else { continue };
        let Some(ns) = view.merged.quantile(load.latency.0, 0.99).ns() else { continue };
        let name = load.labels(view.cell).join("+");
        let point = (f64::from(rate), ns as f64 / 1e6);
        match lines.iter_mut().find(|(line, ..)| *line == name) {
            Some((.., points)) => points.push(point),
            None => lines.push((name, view.cell.cell.format.clone(), vec![point])),
        }
    }
    lines.retain(|(.., points)| points.len() > 1);
    let load = loads.first().filter(|_| !lines.is_empty())?;
    let mut svg = begin(
        280.0,
        "published events per second",
        lines.iter().flat_map(|(.., points)| points.iter().copied()),
    );
    for (name, format, points) in &mut lines {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        svg.curve(points.iter().copied(), colour(load, format), "");
        for (x, y) in points {
            let says = format!("{name}: p99 {} ms at {x} events/s", number::three(*y));
            svg.mark(svg.at(*x, *y), name, &says);
        }
    }
    Some(svg.end())
}

fn begin(height: f64, rate: &str, points: impl Iterator<Item = (f64, f64)> + Clone) -> Figure {
    let x = padded(points.clone().map(|p| p.0), 1.35);
    let x = Axis::logarithmic(rate, x, 5);
    let y = Axis::logarithmic("p99 ms", padded(points.map(|p| p.1), 1.35), 6);
    Figure::begin(Sheet::phone(height), "p99 against rate", x, y)
}

/// p99 against rate of a search, a line for each cell, with both ends of its bracket; and what the
/// colours mean, as HTML.
pub(crate) fn search_curve(search: &Search) -> Option<(String, String)> {
    let lines: Vec<(Limit, Curve)> = (search.cells.iter())
        .map(|cell| (Limit::of(&search.config, cell), limits::points(cell)))
        .filter(|(_, points)| !points.is_empty())
        .collect();
    if lines.is_empty() {
        return None;
    }
    let mut legend = "<p class=\"legend\">".to_owned();
    let (counted, unit) = (limits::counted(&search.config), limits::unit(&search.config));
    let all = lines.iter().flat_map(|(_, points)| points.iter().copied());
    let mut svg = begin(340.0, &format!("{counted} per second"), all);
    for (index, (cell, points)) in lines.iter().enumerate() {
        let colour = PALETTE[index % PALETTE.len()];
        legend += &swatch(colour, &cell.cell);
        svg.curve(points.iter().copied(), colour, ["", "8 4", "3 3"][index / PALETTE.len() % 3]);
        for (rate, p99) in points {
            let at = svg.at(*rate, *p99);
            let is = |end: Option<u32>| end.is_some_and(|end| f64::from(end).total_cmp(rate).is_eq());
            let what = if is(cell.last_pass_per_s) {
                svg.shape(0, at, colour);
                ", the highest that passed"
            } else if is(cell.first_fail_per_s) {
                svg.shape(2, at, colour);
                ", the lowest that did not"
            } else {
                ""
            };
            let says = format!("{}: p99 {} ms at {rate} {unit}{what}", cell.cell, number::three(*p99));
            svg.mark(at, &cell.cell, &says);
        }
    }
    Some((svg.end(), legend + "</p>"))
}
