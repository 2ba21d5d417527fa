//! Bytes against CPU, and ratios with their intervals.

use anyhow::Result;
use plotters::{
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{
    cells::{colour, place_of},
    draw::{FONT, GRID, INK, Labels, Mark, WIDTH, finish, log_axis, mesh, padded, shape},
};
use crate::{
    merged::Metric,
    report::{
        comparison::{Comparison, Verdict},
        number,
        view::{CellView, LoadView},
    },
    result::Role,
    stats::BAND,
};

/// Wire bytes against a CPU cost, one mark a cell; the Pareto frontier is drawn and labelled.
pub(in crate::report) fn pareto(load: &LoadView<'_>, cpu: Metric) -> Result<String> {
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
    let (mut svg, mut marks) = (String::new(), Vec::new());
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, 340)).into_drawing_area();
        let x = log_axis(padded(points.iter().map(|p| p.0)), 5);
        let y = log_axis(padded(points.iter().map(|p| p.1)), 6);
        let mut chart = ChartBuilder::on(&root)
            .margin(6)
            .x_label_area_size(36)
            .y_label_area_size(48)
            .build_cartesian_2d(x, y)?;
        mesh(&mut chart, "wire bytes per event", cpu.heading())?;
        chart.draw_series(LineSeries::new(frontier.iter().map(|p| (p.0, p.1)), INK.stroke_width(1)))?;
        let mut labels = Labels::default();
        let on_frontier = |view: &CellView<'_>| frontier.iter().any(|p| p.2.cell.id == view.cell.id);
        let order =
            points.iter().filter(|p| on_frontier(p.2)).chain(points.iter().filter(|p| !on_frontier(p.2)));
        for (x, y, view) in order {
            let at = chart.backend_coord(&(*x, *y));
            shape(place_of(load, view), at, colour(load, &view.cell.cell.format), &root)?;
            let base = view.cell.role == Role::Anchor;
            if let Some(at) = (base || on_frontier(view)).then(|| labels.place(at, &view.cell.id)).flatten() {
                root.draw(&Text::new(view.cell.id.clone(), at, FONT.into_font().color(&INK)))?;
            }
            let says = format!(
                "{}: {} B on the wire, {} {}",
                view.cell.id,
                number::three(*x),
                number::three(*y),
                cpu.heading()
            );
            marks.push(Mark { at, cell: view.cell.id.clone(), says });
        }
        root.present()?;
    }
    Ok(finish(svg, "wire bytes against CPU per event", &marks))
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
pub(in crate::report) fn forest(
    load: &LoadView<'_>,
    comparisons: &[Comparison],
    metric: Metric,
) -> Result<String> {
    let rows: Vec<&Comparison> = comparisons.iter().filter(|c| c.metric == metric).collect();
    let height = 62 + 18 * u32::try_from(rows.len())?;
    let (mut svg, mut marks) = (String::new(), Vec::new());
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        let y = -0.5..rows.len() as f64 - 0.5;
        let mut chart = ChartBuilder::on(&root)
            .margin(6)
            .x_label_area_size(36)
            .y_label_area_size(150)
            .build_cartesian_2d(log_axis(reach(&rows), 4), y)?;
        chart
            .configure_mesh()
            .disable_y_axis()
            .disable_y_mesh()
            .x_labels(4)
            .x_desc(format!("{}, × reference (log)", metric.short()))
            .x_label_formatter(&|value| number::short(*value))
            .label_style(FONT.into_font().color(&INK))
            .axis_desc_style(FONT.into_font().color(&INK))
            .axis_style(INK)
            .bold_line_style(GRID)
            .light_line_style(TRANSPARENT)
            .draw()?;
        let (bottom, top) = (-0.5, rows.len() as f64 - 0.5);
        let band = [(1.0 - BAND, bottom), (1.0 + BAND, top)];
        chart.draw_series([Rectangle::new(band, GRID.filled())])?;
        chart.draw_series([PathElement::new([(1.0, bottom), (1.0, top)], INK.stroke_width(1))])?;
        for (row, c) in rows.iter().enumerate() {
            let y = (rows.len() - 1 - row) as f64;
            let (from, to) = span(c);
            let style = match c.verdict {
                Verdict::Inconclusive | Verdict::Unsteady | Verdict::Saturated => INK.stroke_width(1),
                _ => INK.stroke_width(3),
            };
            chart.draw_series([PathElement::new([(from, y), (to, y)], style)])?;
            let at = chart.backend_coord(&(c.ratio, y));
            let view = load.cells.iter().find(|view| view.cell.id == c.cell);
            let (colour, place) =
                view.map_or((INK, 0), |view| (colour(load, &view.cell.cell.format), place_of(load, view)));
            shape(place, at, colour, &root)?;
            let style = FONT.into_font().color(&INK).pos(Pos::new(HPos::Right, VPos::Center));
            root.draw(&Text::new(c.cell.clone(), (150, at.1), style))?;
            marks.push(Mark {
                at,
                cell: c.cell.clone(),
                says: format!("{} against {}: {} {c}", c.cell, c.reference, metric.short()),
            });
        }
        root.present()?;
    }
    Ok(finish(svg, &format!("{} with intervals", metric.short()), &marks))
}
