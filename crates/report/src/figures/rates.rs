//! The probes of a search against its axis.

use super::{
    cells::swatch,
    svg::{Axis, Curve, DASHES, Figure, PALETTE, Sheet, padded},
};
use crate::{number, result::Search, statistics::bracket::Limit, tables::limits};

/// p99 against rate, or time ÷ time against bandwidth, a line for each cell, with both ends of its
/// bracket; and what the colours mean, as HTML.
pub(crate) fn search_curve(search: &Search) -> Option<(String, String)> {
    let axis = search.config.axis();
    let lines: Vec<(Limit, Curve)> = (search.cells.iter())
        .map(|cell| (Limit::from_probes(&search.config, cell), limits::points(cell, axis)))
        .filter(|(_, points)| !points.is_empty())
        .collect();
    if lines.is_empty() {
        return None;
    }
    let mut legend = "<p class=\"legend\">".to_owned();
    let (name, value) = (limits::axis_name(axis), limits::value_name(axis));
    let all = lines.iter().flat_map(|(_, points)| points.iter().copied());
    let x = padded(all.clone().map(|p| p.0), 1.35);
    let x = Axis::logarithmic(name, x, 5);
    let y = Axis::logarithmic(value, padded(all.map(|p| p.1), 1.35), 6);
    let mut svg = Figure::begin(Sheet::phone(340.0), &format!("{value} against {name}"), x, y);
    for (index, (cell, points)) in lines.iter().enumerate() {
        let colour = PALETTE[index % PALETTE.len()];
        legend += &swatch(colour, &cell.cell);
        svg.curve(points.iter().copied(), colour, DASHES[index / PALETTE.len() % DASHES.len()]);
        for (rate, y) in points {
            let at = svg.at(*rate, *y);
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
            let says = format!("{}: {value} {} at {rate} {name}{what}", cell.cell, number::three(*y));
            svg.mark(at, &cell.cell, &says);
        }
    }
    Some((svg.end(), legend + "</p>"))
}
