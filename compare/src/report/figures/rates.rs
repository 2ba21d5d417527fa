//! p99 against rate: of a run at several rates, and of a search.

use std::fmt::Write as _;

use anyhow::Result;
use plotters::{element::DashedPathElement, prelude::*};

use super::{
    cells::colour,
    draw::{Curve, Mark, PALETTE, WIDTH, escape, finish, log_axis, mesh, padded, shape},
};
use crate::{
    bracket::Limit,
    report::{limits, number, view::LoadView},
    result::{Role, Search},
};

/// p99 against rate, a line for each cell, where several rates of one scenario were measured.
pub(in crate::report) fn p99_against_rate(loads: &[LoadView<'_>], scenario: &str) -> Result<Option<String>> {
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
    let Some(load) = loads.first().filter(|_| !lines.is_empty()) else { return Ok(None) };
    let all = || lines.iter().flat_map(|(.., points)| points.iter().copied());
    let (mut svg, mut marks) = (String::new(), Vec::new());
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, 280)).into_drawing_area();
        let (x, y) = (log_axis(padded(all().map(|p| p.0)), 5), log_axis(padded(all().map(|p| p.1)), 6));
        let mut chart = ChartBuilder::on(&root)
            .margin(6)
            .x_label_area_size(36)
            .y_label_area_size(48)
            .build_cartesian_2d(x, y)?;
        mesh(&mut chart, "published events per second", "p99 ms")?;
        for (name, format, points) in &mut lines {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            chart
                .draw_series(LineSeries::new(points.iter().copied(), colour(load, format).stroke_width(2)))?;
            for (x, y) in points {
                let says = format!("{name}: p99 {} ms at {x} events/s", number::three(*y));
                marks.push(Mark { at: chart.backend_coord(&(*x, *y)), cell: name.clone(), says });
            }
        }
        root.present()?;
    }
    Ok(Some(finish(svg, "p99 against rate", &marks)))
}

/// p99 against rate of a search, a line for each cell, with both ends of its bracket; and what the
/// colours mean, as HTML.
pub(in crate::report) fn search_curve(search: &Search) -> Result<Option<(String, String)>> {
    let lines: Vec<(Limit, Curve)> = (search.cells.iter())
        .map(|cell| (Limit::of(&search.config, cell), limits::points(cell)))
        .filter(|(_, points)| !points.is_empty())
        .collect();
    if lines.is_empty() {
        return Ok(None);
    }
    let all = || lines.iter().flat_map(|(_, points)| points.iter().copied());
    let (mut svg, mut marks, mut legend) = (String::new(), Vec::new(), "<p class=\"legend\">".to_owned());
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, 340)).into_drawing_area();
        let (x, y) = (log_axis(padded(all().map(|p| p.0)), 5), log_axis(padded(all().map(|p| p.1)), 6));
        let mut chart = ChartBuilder::on(&root)
            .margin(6)
            .x_label_area_size(36)
            .y_label_area_size(48)
            .build_cartesian_2d(x, y)?;
        let (counted, unit) = (limits::counted(&search.config), limits::unit(&search.config));
        mesh(&mut chart, &format!("{counted} per second"), "p99 ms")?;
        for (index, (cell, points)) in lines.iter().enumerate() {
            let colour = PALETTE[index % PALETTE.len()];
            let RGBColor(r, g, b) = colour;
            write!(
                legend,
                "<span><b style=\"color:#{r:02x}{g:02x}{b:02x}\">■</b> {}</span> ",
                escape(&cell.cell)
            )?;
            let dash = [(1000, 0), (8, 4), (3, 3)][index / PALETTE.len() % 3];
            chart.draw_series([DashedPathElement::new(
                points.clone(),
                dash.0,
                dash.1,
                colour.stroke_width(2),
            )])?;
            for (rate, p99) in points {
                let at = chart.backend_coord(&(*rate, *p99));
                let is = |end: Option<u32>| end.is_some_and(|end| f64::from(end).total_cmp(rate).is_eq());
                let what = match (is(cell.last_pass_per_s), is(cell.first_fail_per_s)) {
                    (true, _) => {
                        shape(0, at, colour, &root)?;
                        ", the highest that passed"
                    }
                    (_, true) => {
                        shape(2, at, colour, &root)?;
                        ", the lowest that did not"
                    }
                    _ => "",
                };
                let says = format!("{}: p99 {} ms at {rate} {unit}{what}", cell.cell, number::three(*p99));
                marks.push(Mark { at, cell: cell.cell.clone(), says });
            }
        }
        root.present()?;
    }
    Ok(Some((finish(svg, "p99 against rate", &marks), legend + "</p>")))
}
