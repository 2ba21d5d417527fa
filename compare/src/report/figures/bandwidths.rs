//! Time against bandwidth, a line for each cell and round trip, and where two lines cross.

use std::{collections::BTreeMap, ops::Range};

use super::{
    draw::{escape, ticks},
    svg::{CHARACTER, COLOURS, PLOT, Svg},
};
use crate::{
    crossing::{self, Crossing, Versus},
    report::number,
    result::BreakEven,
};

/// Dashes by round trip.
const DASHES: [&str; 4] = ["", "8 4", "3 3", "12 3 3 3"];

/// The most labels of the bandwidths.
const MOST_LABELS: usize = 12;

/// Room between the outermost points and the edge of the plot, as a factor.
const ROOM: f64 = 1.15;

/// The median over rounds of a cell's time at each bandwidth.
struct Line {
    cell: usize,
    rtt: usize,
    /// Milliseconds by bits per second.
    points: BTreeMap<u64, f64>,
}

/// Where values lie in the plot.
struct Scales {
    bandwidth: Range<f64>,
    ms: Range<f64>,
}

impl Scales {
    fn at(&self, bits_per_s: f64, ms: f64) -> (f64, f64) {
        let share =
            |value: f64, range: &Range<f64>| (value / range.start).ln() / (range.end / range.start).ln();
        (
            PLOT.left + (PLOT.right - PLOT.left) * share(bits_per_s / 1e6, &self.bandwidth),
            PLOT.bottom - (PLOT.bottom - PLOT.top) * share(ms, &self.ms),
        )
    }
}

/// Time against bandwidth; a ring with its interval is a break-even. `None` where nothing counts.
pub(in crate::report) fn time_against_bandwidth(found: &BreakEven) -> Option<String> {
    let lines = lines(found);
    let all = || lines.iter().flat_map(|line| line.points.values().copied());
    let (low, high) = all().fold((f64::INFINITY, 0.0_f64), |(low, high), ms| (low.min(ms), high.max(ms)));
    let grid = &found.config.down_bits_per_s;
    let (first, last) = (*grid.first()? as f64 / 1e6, *grid.last()? as f64 / 1e6);
    if !low.is_finite() || low <= 0.0 {
        return None;
    }
    let scales = Scales { bandwidth: first / ROOM..last * ROOM, ms: low / ROOM..high * ROOM };
    let name = format!("{}: {} p50 against the downlink's bandwidth", found.config.scenario, found.latency);
    let mut svg = Svg::begin(&name, "downlink, Mbit/s", &format!("{} p50, ms", found.latency));
    let labelled = grid.iter().step_by(grid.len().div_ceil(MOST_LABELS));
    svg.axes(labelled.map(|down| (scales.at(*down as f64, low).0, *down as f64 / 1e6)), true, None);
    let up = ticks(scales.ms.start, scales.ms.end, 8);
    svg.axes(up.iter().map(|ms| (scales.at(first * 1e6, *ms).1, *ms)), false, None);
    legend(&mut svg, found);
    for line in &lines {
        draw(&mut svg, &scales, line, &found.cells[line.cell].cell, found.config.rtts_ns[line.rtt]);
    }
    for pair in crossing::versus(found) {
        for crossing in &pair.crossings {
            ring(&mut svg, &scales, found, &pair, crossing);
        }
    }
    Some(svg.end())
}

fn lines(found: &BreakEven) -> Vec<Line> {
    let mut lines = Vec::new();
    for (rtt, rtt_ns) in found.config.rtts_ns.iter().enumerate() {
        for (cell, times) in found.cells.iter().enumerate() {
            let points = crossing::medians(times, *rtt_ns);
            lines.push(Line {
                cell,
                rtt,
                points: points.into_iter().map(|(down, ns)| (down, ns / 1e6)).collect(),
            });
        }
    }
    lines
}

/// What colours and dashes mean: cells in the first row, round trips in the second.
fn legend(svg: &mut Svg, found: &BreakEven) {
    let mut x = PLOT.left + 8.0;
    for (place, cell) in found.cells.iter().enumerate() {
        let colour = COLOURS[place % COLOURS.len()];
        svg.add(format_args!("<rect x=\"{x:.1}\" y=\"8\" width=\"10\" height=\"10\" fill=\"{colour}\"/>"));
        svg.add(format_args!(
            "<text class=\"bc-ink\" x=\"{:.1}\" y=\"17\">{}</text>",
            x + 15.0,
            escape(&cell.cell)
        ));
        x += 36.0 + CHARACTER * cell.cell.chars().count() as f64;
    }
    let mut x = PLOT.left + 8.0;
    for (place, rtt_ns) in found.config.rtts_ns.iter().enumerate() {
        let text = format!("{} ms round trip", number::short(*rtt_ns as f64 / 1e6));
        svg.add(format_args!(
            "<line class=\"bc-axis\" x1=\"{x:.1}\" y1=\"34\" x2=\"{:.1}\" y2=\"34\" stroke-width=\"1.5\" \
             stroke-dasharray=\"{}\"/>",
            x + 34.0,
            DASHES[place % DASHES.len()]
        ));
        svg.add(format_args!("<text class=\"bc-ink\" x=\"{:.1}\" y=\"38\">{text}</text>", x + 40.0));
        x += 60.0 + CHARACTER * text.chars().count() as f64;
    }
}

fn draw(svg: &mut Svg, scales: &Scales, line: &Line, cell: &str, rtt_ns: u64) {
    let colour = COLOURS[line.cell % COLOURS.len()];
    let places: Vec<String> = (line.points.iter())
        .map(|(down, ms)| {
            let (x, y) = scales.at(*down as f64, *ms);
            format!("{x:.1},{y:.1}")
        })
        .collect();
    svg.add(format_args!(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{}\"/>",
        places.join(" "),
        DASHES[line.rtt % DASHES.len()]
    ));
    for (down, ms) in &line.points {
        let (x, y) = scales.at(*down as f64, *ms);
        let says = format!(
            "{cell}: {} ms at {} Mbit/s and {} ms round trip",
            number::three(*ms),
            number::short(*down as f64 / 1e6),
            number::short(rtt_ns as f64 / 1e6)
        );
        svg.add(format_args!(
            "<g><title>{}</title><circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/></g>",
            escape(&says)
        ));
    }
}

/// A break-even on the line of the pair's second cell, where both are.
fn ring(svg: &mut Svg, scales: &Scales, found: &BreakEven, pair: &Versus, crossing: &Crossing) {
    let Some(bits_per_s) = crossing.bits_per_s else { return };
    let Some(cell) = found.cells.iter().find(|cell| cell.cell == pair.cell) else { return };
    let points = crossing::medians(cell, pair.rtt_ns);
    let below = points.iter().rev().find(|(down, _)| **down as f64 <= bits_per_s);
    let above = points.iter().find(|(down, _)| **down as f64 >= bits_per_s);
    let Some(((low, slow), (high, quick))) = below.zip(above) else { return };
    // On the line as it is drawn, between two points.
    let share = (bits_per_s / *low as f64).ln() / (*high as f64 / *low as f64).ln();
    let ms = (slow.ln() + if high > low { share } else { 0.0 } * (quick / slow).ln()).exp() / 1e6;
    let (x, y) = scales.at(bits_per_s, ms);
    if let Some((from, to)) = crossing.interval_bits_per_s {
        let ((from, _), (to, _)) = (scales.at(from, ms), scales.at(to, ms));
        svg.add(format_args!(
            "<line class=\"bc-axis\" x1=\"{from:.1}\" y1=\"{y:.1}\" x2=\"{to:.1}\" y2=\"{y:.1}\" stroke-width=\"2\"/>"
        ));
    }
    let says = format!(
        "{} and {} take equally long at {} Mbit/s",
        pair.cell,
        pair.other,
        number::three(bits_per_s / 1e6)
    );
    svg.add(format_args!(
        "<g><title>{}</title><circle class=\"bc-axis\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"7\" stroke-width=\"2\" \
         pointer-events=\"all\"/></g>",
        escape(&says)
    ));
}
