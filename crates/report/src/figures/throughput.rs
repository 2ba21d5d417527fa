//! Envelope throughput over intervals, and the course of throughput and latency over a block.

use measure::Slice;

use super::{
    cells::{colour, packing},
    svg::{Axis, Curve, Figure, Sheet},
};
use crate::{
    number,
    result::{Block, Role},
    statistics::steady::by_second,
    view::{CellView, LoadView},
};

/// About the most marks of a line that a pointer asks.
const MARKS: usize = 12;

/// Fewest seconds of a block whose course is drawn.
const SECONDS: usize = 3;

/// Envelopes a second by the share of intervals that are slower, of the cells with one packing.
pub(crate) fn throughput(load: &LoadView<'_>, packed: &str) -> Option<String> {
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
    draw(load, packed, curve, ("% of intervals that are slower", "envelope throughput, /s"), says)
}

/// Envelopes of each second of a block, the median over rounds, of the cells with one packing.
pub(crate) fn course(load: &LoadView<'_>, packed: &str) -> Option<String> {
    let says = |(x, y): (f64, f64)| format!("{} envelopes in second {x:.0}", number::three(y));
    let axes = ("second of a block", "envelope throughput, /s");
    draw(load, packed, |view| by_seconds(view, |slice| Some(slice.samples as f64)), axes, says)
}

/// The median latency of each second of a block, the median over rounds, of the cells with one
/// packing.
pub(crate) fn latency_course(load: &LoadView<'_>, packed: &str) -> Option<String> {
    let ms = |slice: &Slice| Some(slice.latency_ns_p50? as f64 / 1e6);
    let says = |(x, y): (f64, f64)| format!("p50 {} ms in second {x:.0}", number::three(y));
    draw(load, packed, |view| by_seconds(view, ms), ("second of a block", "p50, ms"), says)
}

/// The median over rounds of each second of a cell's blocks; nothing of too few seconds.
fn by_seconds(view: &CellView<'_>, value: impl Fn(&Slice) -> Option<f64>) -> Curve {
    let usable = view.cell.blocks.iter().filter_map(Block::usable);
    let blocks: Vec<&[Slice]> =
        usable.filter_map(|record| Some(record.slices.as_ref()?.seconds.as_slice())).collect();
    let seconds = by_second(&blocks, |block| block.iter().map(&value).collect());
    let curve: Curve = (1..).map(f64::from).zip(seconds).collect();
    if curve.len() < SECONDS { Curve::new() } else { curve }
}

/// A line for each cell, on linear axes from zero.
fn draw(
    load: &LoadView<'_>,
    packed: &str,
    curve: impl Fn(&CellView<'_>) -> Curve,
    (x, y): (&str, &str),
    says: impl Fn((f64, f64)) -> String,
) -> Option<String> {
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
        return None;
    }
    let name = format!("{y} by {x}, {packed}");
    let y = Axis::linear(y, 0.0..high * 1.05, 6);
    let mut svg = Figure::begin(Sheet::phone(260.0), &name, Axis::linear(x, 0.0..far, 5), y);
    for (view, curve) in &curves {
        svg.curve(curve.iter().copied(), colour(load, &view.cell.cell.format), "");
        for point in curve.iter().step_by(curve.len().div_ceil(MARKS)).chain(curve.last()) {
            let says = format!("{}: {}", view.cell.id, says(*point));
            svg.mark(svg.at(point.0, point.1), &view.cell.id, &says);
        }
    }
    Some(svg.end())
}
