//! Time against bandwidth, a line for each cell and round trip, and where two lines cross.

use std::collections::BTreeMap;

use super::{
    picture::COLOURS,
    svg::{Axis, DASHES, Figure, INK, Sheet, padded},
};
use crate::{
    number,
    result::BreakEven,
    statistics::crossing::{self, Crossing, Versus},
};

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

/// Time against bandwidth; a ring with its interval is a break-even. `None` where nothing counts.
pub(crate) fn time_against_bandwidth(found: &BreakEven) -> Option<String> {
    let lines = lines(found);
    let grid: Vec<f64> = found.config.down_bits_per_s.iter().map(|down| *down as f64 / 1e6).collect();
    let mut ms = lines.iter().flat_map(|line| line.points.values().copied()).peekable();
    if grid.is_empty() || ms.peek().is_none_or(|ms| *ms <= 0.0) {
        return None;
    }
    let labelled = grid.iter().copied().step_by(grid.len().div_ceil(MOST_LABELS)).collect();
    let x = padded(grid.iter().copied(), ROOM);
    let x = Axis::logarithmic("downlink, Mbit/s", x, MOST_LABELS).with_ticks(labelled);
    let y = Axis::logarithmic(&format!("{} p50, ms", found.latency), padded(ms, ROOM), 8);
    let name = format!("{}: {} p50 against the downlink's bandwidth", found.config.scenario, found.latency);
    let mut svg = Figure::begin(Sheet::PICTURE, &name, x, y);
    legend(&mut svg, found);
    for line in &lines {
        draw(&mut svg, line, &found.cells[line.cell].cell, found.config.rtts_ns[line.rtt]);
    }
    for pair in crossing::versus(found) {
        for crossing in &pair.crossings {
            ring(&mut svg, found, &pair, crossing);
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

/// The meaning of colours and dashes: cells in the first row, round trips in the second.
fn legend(svg: &mut Figure, found: &BreakEven) {
    let left = Sheet::PICTURE.plot.left + 8.0;
    let mut x = left;
    for (place, cell) in found.cells.iter().enumerate() {
        let colour = COLOURS[place % COLOURS.len()];
        svg.add(format_args!("<rect x=\"{x:.1}\" y=\"8\" width=\"10\" height=\"10\" fill=\"{colour}\"/>"));
        svg.text((x + 15.0, 17.0), "", &cell.cell);
        x += 36.0 + Sheet::PICTURE.text_width(&cell.cell);
    }
    let mut x = left;
    for (place, rtt_ns) in found.config.rtts_ns.iter().enumerate() {
        let text = format!("{} ms round trip", number::short(*rtt_ns as f64 / 1e6));
        let dash = DASHES[place % DASHES.len()];
        let style = format!("{INK} stroke-width=\"1.5\" stroke-dasharray=\"{dash}\"");
        svg.segment((x, 34.0), (x + 34.0, 34.0), &style);
        svg.text((x + 40.0, 38.0), "", &text);
        x += 60.0 + Sheet::PICTURE.text_width(&text);
    }
}

fn draw(svg: &mut Figure, line: &Line, cell: &str, rtt_ns: u64) {
    let colour = COLOURS[line.cell % COLOURS.len()];
    let points = line.points.iter().map(|(down, ms)| (*down as f64 / 1e6, *ms));
    svg.curve(points.clone(), colour, DASHES[line.rtt % DASHES.len()]);
    for (down, ms) in points {
        let says = format!(
            "{cell}: {} ms at {} Mbit/s and {} ms round trip",
            number::three(ms),
            number::short(down),
            number::short(rtt_ns as f64 / 1e6)
        );
        svg.titled(&says, |svg| svg.dot(svg.at(down, ms), 3.5, colour));
    }
}

/// A break-even on the line of the pair's second cell, where both are.
fn ring(svg: &mut Figure, found: &BreakEven, pair: &Versus, crossing: &Crossing) {
    let Some(bits_per_s) = crossing.bits_per_s else { return };
    let Some(cell) = found.cells.iter().find(|cell| cell.cell == pair.cell) else { return };
    let points = crossing::medians(cell, pair.rtt_ns);
    let below = points.iter().rev().find(|(down, _)| **down as f64 <= bits_per_s);
    let above = points.iter().find(|(down, _)| **down as f64 >= bits_per_s);
    let Some(((low, slow), (high, quick))) = below.zip(above) else { return };
    // On the line as it is drawn, between two points.
    let share = (bits_per_s / *low as f64).ln() / (*high as f64 / *low as f64).ln();
    let ms = (slow.ln() + if high > low { share } else { 0.0 } * (quick / slow).ln()).exp() / 1e6;
    if let Some((from, to)) = crossing.interval_bits_per_s {
        svg.segment(svg.at(from / 1e6, ms), svg.at(to / 1e6, ms), &format!("{INK} stroke-width=\"2\""));
    }
    let says = format!(
        "{} and {} take equally long at {} Mbit/s",
        pair.cell,
        pair.other,
        number::three(bits_per_s / 1e6)
    );
    svg.titled(&says, |svg| svg.ring(svg.at(bits_per_s / 1e6, ms)));
}
