//! Envelope throughput: its distribution over intervals, and its course over a block.

use anyhow::Result;
use measure::Slice;
use plotters::prelude::*;

use super::{
    cells::{colour, packing},
    draw::{Curve, Mark, WIDTH, finish, mesh},
};
use crate::{
    report::{
        number,
        steady::by_second,
        view::{CellView, LoadView},
    },
    result::{Block, Role},
};

/// Fewest seconds of a block whose course is drawn.
const SECONDS: usize = 3;

/// Envelopes a second by the share of intervals that are slower, of the cells with one packing.
pub(in crate::report) fn throughput(load: &LoadView<'_>, packed: &str) -> Result<Option<String>> {
    let curve = |view: &CellView<'_>| -> Curve {
        let Some(throughput) = &view.merged.throughput else { return Curve::new() };
        let rates = &throughput.envelopes_per_s;
        let at = |percent: u32| {
            let q = f64::from(percent) / 100.0;
            let rate = if q < 0.5 { rates.low_quantile_ns(q) } else { rates.quantile_ns(q) };
            Some((f64::from(percent), rate.ns()? as f64))
        };
        (1..=99).filter_map(at).collect()
    };
    let says = |(x, y): (f64, f64)| {
        format!("{x:.0} % of intervals were slower than {} envelopes/s", number::three(y))
    };
    draw(load, packed, curve, ("% of intervals that are slower", "envelope throughput"), says)
}

/// Envelopes of each second of a block, the median over rounds, of the cells with one packing.
pub(in crate::report) fn course(load: &LoadView<'_>, packed: &str) -> Result<Option<String>> {
    let curve = |view: &CellView<'_>| -> Curve {
        let usable = view.cell.blocks.iter().filter_map(Block::usable);
        let blocks: Vec<&[Slice]> =
            usable.filter_map(|record| Some(record.slices.as_ref()?.seconds.as_slice())).collect();
        let samples = |block: &[Slice]| block.iter().map(|slice| Some(slice.samples as f64)).collect();
        let seconds = by_second(&blocks, samples);
        let curve: Curve = (1..).map(f64::from).zip(seconds).collect();
        if curve.len() < SECONDS { Curve::new() } else { curve }
    };
    let says = |(x, y): (f64, f64)| format!("{} envelopes in second {x:.0}", number::three(y));
    draw(load, packed, curve, ("second of a block", "envelope throughput"), says)
}

/// A line for each cell, on linear axes from zero.
fn draw(
    load: &LoadView<'_>,
    packed: &str,
    curve: impl Fn(&CellView<'_>) -> Curve,
    (x, y): (&str, &str),
    says: impl Fn((f64, f64)) -> String,
) -> Result<Option<String>> {
    let shown = |view: &&CellView<'_>| {
        !matches!(view.cell.role, Role::Control | Role::Floor) && packing(load, view) == packed
    };
    let curves: Vec<(&CellView<'_>, Curve)> = (load.cells.iter().filter(shown))
        .map(|view| (view, curve(view)))
        .filter(|(_, curve)| curve.len() > 1)
        .collect();
    let points = || curves.iter().flat_map(|(_, curve)| curve.iter().copied());
    let (far, high) =
        points().fold((0.0_f64, 0.0_f64), |most, point| (most.0.max(point.0), most.1.max(point.1)));
    if curves.is_empty() || high <= 0.0 {
        return Ok(None);
    }
    let (mut svg, mut marks) = (String::new(), Vec::new());
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, 260)).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .margin(6)
            .margin_right(16)
            .x_label_area_size(36)
            .y_label_area_size(48)
            .build_cartesian_2d(0.0..far, 0.0..high * 1.05)?;
        mesh(&mut chart, x, &format!("{y}, /s"))?;
        for (view, curve) in &curves {
            let style = colour(load, &view.cell.cell.format).stroke_width(2);
            chart.draw_series(LineSeries::new(curve.iter().copied(), style))?;
            for point in curve.iter().step_by(8).chain(curve.last()) {
                let says = format!("{}: {}", view.cell.id, says(*point));
                marks.push(Mark { at: chart.backend_coord(point), cell: view.cell.id.clone(), says });
            }
        }
        root.present()?;
    }
    Ok(Some(finish(svg, &format!("{y} by {x}, {packed}"), &marks)))
}
