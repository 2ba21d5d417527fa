//! Lines of cells: latency by percentile, throughput by share of intervals, both over a block.

use measure::Slice;

use super::{
    cells::{colour, packing},
    svg::{Axis, Curve, DASHES, Figure, Sheet, padded},
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
    draw(load, packed, curve, linear("% of intervals that are slower", "envelope throughput, /s"), says)
}

/// Envelopes of each second of a block, the median over rounds, of the cells with one packing.
pub(crate) fn course(load: &LoadView<'_>, packed: &str) -> Option<String> {
    let says = |(x, y): (f64, f64)| format!("{} envelopes in second {x:.0}", number::three(y));
    let axes = linear("second of a block", "envelope throughput, /s");
    draw(load, packed, |view| by_seconds(view, |slice| Some(slice.samples as f64)), axes, says)
}

/// The median latency of each second of a block, the median over rounds, of the cells with one
/// packing.
pub(crate) fn latency_course(load: &LoadView<'_>, packed: &str) -> Option<String> {
    let ms = |slice: &Slice| Some(slice.latency_ns_p50? as f64 / 1e6);
    let says = |(x, y): (f64, f64)| format!("p50 {} ms in second {x:.0}", number::three(y));
    draw(load, packed, |view| by_seconds(view, ms), linear("second of a block", "p50, ms"), says)
}

/// Latency by percentile of the cells with one packing; both axes logarithmic.
pub(crate) fn percentiles(load: &LoadView<'_>, packed: &str) -> Option<String> {
    let curve = |view: &CellView<'_>| -> Curve {
        // Evenly spaced in the logarithm of 1/(1-q), as far as the samples support a number.
        let steps = (0..=48).map(|step| 2.0_f64 * 10.0_f64.powf(f64::from(step) / 8.0));
        let shown = steps.map_while(|inverse| {
            let ns = view.merged.quantile(load.latency.0, 1.0 - 1.0 / inverse).ns()?;
            Some((inverse, ns as f64 / 1e6))
        });
        shown.filter(|(_, ms)| *ms > 0.0).collect()
    };
    let axes = |points: &Curve| {
        let far = points.iter().map(|p| p.0).fold(4.0, f64::max);
        let high = padded(points.iter().map(|p| p.1), 1.35);
        let x = Axis::logarithmic("slowest 1 in N (10: p90, 100: p99)", 2.0..far, 5);
        (x, Axis::logarithmic(&format!("{} ms", load.latency.0), high, 6))
    };
    let says = |(x, y): (f64, f64)| {
        format!("the slowest 1 in {} took {} ms or more", number::short(x), number::three(y))
    };
    draw(load, packed, curve, axes, says)
}

/// Linear axes from zero.
fn linear(x: &'static str, y: &'static str) -> impl Fn(&Curve) -> (Axis, Axis) {
    move |points| {
        let most = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).fold(0.0, f64::max);
        (Axis::linear(x, 0.0..most(|p| p.0), 5), Axis::linear(y, 0.0..most(|p| p.1) * 1.05, 6))
    }
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

/// A line for each cell with one packing.
fn draw(
    load: &LoadView<'_>,
    packed: &str,
    curve: impl Fn(&CellView<'_>) -> Curve,
    axes: impl Fn(&Curve) -> (Axis, Axis),
    says: impl Fn((f64, f64)) -> String,
) -> Option<String> {
    let shown = |view: &&CellView<'_>| {
        !matches!(view.cell.role, Role::Control | Role::Floor) && packing(load, view) == packed
    };
    let curves: Vec<(&CellView<'_>, Curve)> = (load.cells.iter().filter(shown))
        .map(|view| (view, curve(view)))
        .filter(|(_, curve)| curve.len() > 1)
        .collect();
    let points: Curve = curves.iter().flat_map(|(_, curve)| curve.iter().copied()).collect();
    if !points.iter().any(|point| point.1 > 0.0) {
        return None;
    }
    let (x, y) = axes(&points);
    let name = format!("{y} by {x}, {packed}");
    let mut svg = Figure::begin(Sheet::phone(270.0), &name, x, y);
    for (index, (view, curve)) in curves.iter().enumerate() {
        let colour = colour(load, &view.cell.cell.format);
        svg.curve(curve.iter().copied(), colour, DASHES[index % DASHES.len()]);
        for point in curve.iter().step_by(curve.len().div_ceil(MARKS)).chain(curve.last()) {
            let says = format!("{}: {}", view.cell.id, says(*point));
            svg.mark(svg.at(point.0, point.1), &view.cell.id, &says);
        }
    }
    Some(svg.end())
}
