//! Latency by percentile, and the relay's CPU over the run.

use anyhow::Result;
use plotters::{element::DashedPathElement, prelude::*};

use super::{
    cells::{colour, packing},
    draw::{Curve, INVALID, Mark, WIDTH, finish, log_axis, mesh, padded},
};
use crate::{
    merged::{Merged, Metric},
    report::{
        number,
        view::{CellView, LoadView},
    },
    result::{Block, Role},
};

/// Latency by percentile of the cells with one of the packings; both axes logarithmic.
pub(in crate::report) fn percentiles(load: &LoadView<'_>, packed: &str) -> Result<Option<String>> {
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
        return Ok(None);
    }
    let all = || curves.iter().flat_map(|(_, curve)| curve.iter().copied());
    let far = all().map(|p| p.0).fold(4.0, f64::max);
    let (mut svg, mut marks) = (String::new(), Vec::new());
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, 280)).into_drawing_area();
        let y = log_axis(padded(all().map(|p| p.1)), 6);
        let mut chart = ChartBuilder::on(&root)
            .margin(6)
            .margin_right(16)
            .x_label_area_size(36)
            .y_label_area_size(48)
            .build_cartesian_2d(log_axis(2.0..far, 5), y)?;
        mesh(&mut chart, "slowest 1 in N (10: p90, 100: p99)", &format!("{} ms", load.latency.0))?;
        for (index, (view, curve)) in curves.iter().enumerate() {
            let style = colour(load, &view.cell.cell.format).stroke_width(2);
            let dash = [(1000, 0), (8, 4), (3, 3), (12, 3)][index % 4];
            chart.draw_series([DashedPathElement::new(curve.clone(), dash.0, dash.1, style)])?;
            for (x, y) in curve.iter().step_by(4).chain(curve.last()) {
                let says = format!(
                    "{}: the slowest 1 in {} took {} ms or more",
                    view.cell.id,
                    number::short(*x),
                    number::three(*y)
                );
                marks.push(Mark { at: chart.backend_coord(&(*x, *y)), cell: view.cell.id.clone(), says });
            }
        }
        root.present()?;
    }
    Ok(Some(finish(svg, &format!("latency by percentile, {packed}"), &marks)))
}

/// Relay CPU of every block over the run ÷ its cell's total, which shows drift of the machine.
/// Spans of invalid blocks are shaded and crossed.
pub(in crate::report) fn time_series(load: &LoadView<'_>) -> Result<Option<String>> {
    let mut points = Vec::new();
    let mut invalid = Vec::new();
    for view in &load.cells {
        let of_block = |block: &Block| {
            let own = Merged::of([block.record.as_ref()?]);
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
        return Ok(None);
    }
    let low = points.iter().map(|p| p.1).fold(0.9, f64::min) * 0.98;
    let high = points.iter().map(|p| p.1).fold(1.1, f64::max) * 1.02;
    let (mut svg, mut marks) = (String::new(), Vec::new());
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, 260)).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin(6)
            .x_label_area_size(36)
            .y_label_area_size(48)
            .build_cartesian_2d(0.0..far * 1.02, low..high)?;
        mesh(&mut chart, "minutes since the start", "relay CPU ÷ cell's whole")?;
        for (from, to, cell) in invalid {
            chart.draw_series([Rectangle::new([(from, low), (to, high)], INVALID.mix(0.25).filled())])?;
            chart.draw_series([PathElement::new([(from, low), (to, high)], INVALID.stroke_width(1))])?;
            let at = chart.backend_coord(&(f64::midpoint(from, to), high));
            marks.push(Mark { at, says: format!("{cell}: left out"), cell });
        }
        for (x, y, view) in points {
            let at = chart.backend_coord(&(x, y));
            root.draw(&Circle::new(at, 2, colour(load, &view.cell.cell.format).filled()))?;
            let says = format!("{}: ×{y:.2} at {x:.1} min", view.cell.id);
            marks.push(Mark { at, cell: view.cell.id.clone(), says });
        }
        root.present()?;
    }
    Ok(Some(finish(svg, "relay CPU over time", &marks)))
}
