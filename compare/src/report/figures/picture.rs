//! Bytes against CPU in one picture that stands by itself, every cell named.

use super::{
    cells::{packing, packings},
    draw::{escape, ticks},
    svg::{Box, CHARACTER, COLOURS, LINE, PLOT, Svg},
};
use crate::{
    merged::Metric,
    report::{
        number,
        view::{CellView, LoadView},
    },
    result::Role,
};

/// Half the size of a mark with the room around it.
const MARK: f64 = 7.0;

/// Room between the outermost marks and the edge of the plot, as a factor.
const ROOM: f64 = 1.15;

/// A ratio to JSON without compression, with its interval.
type Ratio = (f64, Option<(f64, f64)>);

/// A cell.
struct Point {
    name: String,
    packing: usize,
    is_base: bool,
    bytes: Ratio,
    cpu: Ratio,
}

/// Wire bytes against CPU of relay and clients together, each ÷ JSON without compression, one named
/// mark a cell with its intervals; those of JSON itself are the resolution of the run. `None`
/// without cells to compare.
pub(in crate::report) fn picture(load: &LoadView<'_>) -> Option<String> {
    let packings = packings(load);
    let points = points(load, &packings);
    if points.len() < 2 {
        return None;
    }
    let ends = |of: fn(&Point) -> Ratio| {
        let all = points.iter().flat_map(move |point| {
            let (ratio, interval) = of(point);
            let (low, high) = interval.unwrap_or((ratio, ratio));
            [low, ratio, high]
        });
        let (low, high) =
            all.fold((f64::INFINITY, 0.0_f64), |(low, high), one| (low.min(one), high.max(one)));
        low / ROOM..high * ROOM
    };
    let (x, y) = (ends(|point| point.bytes), ends(|point| point.cpu));
    let share = |value: f64, range: &std::ops::Range<f64>| {
        (value / range.start).ln() / (range.end / range.start).ln()
    };
    let across = |value: f64| PLOT.left + (PLOT.right - PLOT.left) * share(value, &x);
    let up = |value: f64| PLOT.bottom - (PLOT.bottom - PLOT.top) * share(value, &y);

    let name = format!("{}: wire bytes against CPU, each divided by JSON without compression", load.name());
    let (bottom, left) = ("wire bytes per envelope, × JSON", "relay + client CPU per envelope, × JSON");
    let mut svg = Svg::begin(&name, bottom, left);
    svg.axes(ticks(x.start, x.end, 8).iter().map(|tick| (across(*tick), *tick)), true, Some(1.0));
    svg.axes(ticks(y.start, y.end, 8).iter().map(|tick| (up(*tick), *tick)), false, Some(1.0));
    svg.legend(&packings);
    for point in &points {
        let (at_x, at_y) = (across(point.bytes.0), up(point.cpu.0));
        let colour = COLOURS[point.packing % COLOURS.len()];
        if let Some((low, high)) = point.bytes.1 {
            svg.whisker((across(low), at_y), (across(high), at_y), colour);
        }
        if let Some((low, high)) = point.cpu.1 {
            svg.whisker((at_x, up(low)), (at_x, up(high)), colour);
        }
    }
    let places: Vec<(f64, f64)> =
        points.iter().map(|point| (across(point.bytes.0), up(point.cpu.0))).collect();
    let names: Vec<&str> = points.iter().map(|point| point.name.as_str()).collect();
    let labels = labels(&places, &names);
    for ((point, at), label) in points.iter().zip(&places).zip(&labels) {
        svg.label(point, *at, *label);
    }
    for (point, at) in points.iter().zip(&places) {
        svg.mark(point, &packings[point.packing], *at);
    }
    Some(svg.end())
}

fn points(load: &LoadView<'_>, packings: &[String]) -> Vec<Point> {
    let resolution = |metric| load.to_anchor(load.control()?, metric)?.1;
    let point = |view: &CellView<'_>| {
        let packed = packing(load, view);
        let labels = load.labels(view.cell);
        // The packing has a colour and a shape.
        let also = labels.iter().skip(2).filter(|label| !packed.contains(label.as_str()) && *label != "none");
        let name = std::iter::once(&labels[0]).chain(also).cloned().collect::<Vec<_>>().join(" ");
        let is_base = view.cell.role == Role::Anchor;
        let of = |metric| match is_base {
            true => Some((1.0, resolution(metric))),
            false => load.to_anchor(view, metric),
        };
        Some(Point {
            name,
            packing: packings.iter().position(|one| *one == packed)?,
            is_base,
            bytes: of(Metric::WireBytes)?,
            cpu: of(Metric::BothCpu)?,
        })
    };
    let shown = load.cells.iter().filter(|view| matches!(view.cell.role, Role::Anchor | Role::Cell));
    shown.filter_map(point).collect()
}

/// For each mark the free place nearest to it that takes its name, the most crowded first; `None`
/// where the plot is full.
fn labels(places: &[(f64, f64)], names: &[&str]) -> Vec<Option<Box>> {
    let around = |(x, y): (f64, f64), half: f64| Box {
        left: x - half,
        top: y - half,
        right: x + half,
        bottom: y + half,
    };
    let mut taken: Vec<Box> = places.iter().map(|at| around(*at, MARK)).collect();
    let crowd = |at: usize| {
        let near = around(places[at], 60.0);
        places.iter().filter(|other| near.overlaps(&around(**other, 1.0))).count()
    };
    let mut order: Vec<usize> = (0..places.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(crowd(*at)));
    let mut found = vec![None; places.len()];
    for at in order {
        let width = CHARACTER * names[at].chars().count() as f64;
        let place = nearest_free(places[at], width, &taken);
        taken.extend(place);
        found[at] = place;
    }
    found
}

/// The free box of this width nearest to a mark; right of it before left of it, and beside it
/// before above or below.
fn nearest_free((x, y): (f64, f64), width: f64, taken: &[Box]) -> Option<Box> {
    const STEP: f64 = 5.0;
    let steps = |room: f64| -> i32 {
        #[expect(clippy::cast_possible_truncation, reason = "steps of a picture")]
        let steps = (room / STEP) as i32;
        steps
    };
    let (rows, columns) = (steps(PLOT.bottom - PLOT.top), steps(PLOT.right - PLOT.left));
    let mut best: Option<(f64, Box)> = None;
    for row in -rows..=rows {
        let top = y - LINE / 2.0 + STEP * f64::from(row);
        if top < PLOT.top || top + LINE > PLOT.bottom {
            continue;
        }
        for column in -columns..=columns {
            let left = match column {
                0.. => x + MARK + 1.0 + STEP * f64::from(column),
                _ => x - MARK - 1.0 - width + STEP * f64::from(column + 1),
            };
            let place = Box { left, top, right: left + width, bottom: top + LINE };
            let near = place.nearest((x, y));
            let slant = f64::from(row.abs()) * 0.5 + if column < 0 { 1.0 } else { 0.0 };
            let cost = (near.0 - x).hypot(near.1 - y) + slant;
            let better = best.is_none_or(|(least, _)| cost < least);
            if better && PLOT.holds(&place) && !taken.iter().any(|other| place.overlaps(other)) {
                best = Some((cost, place));
            }
        }
    }
    best.map(|(_, place)| place)
}

/// What this picture has beside the axes.
impl Svg {
    fn legend(&mut self, packings: &[String]) {
        let mut x = PLOT.left + 8.0;
        for (place, packing) in packings.iter().enumerate() {
            self.shape(place, (x, 22.0), false);
            self.add(format_args!(
                "<text class=\"bc-ink\" x=\"{:.1}\" y=\"26\">{}</text>",
                x + 11.0,
                escape(packing)
            ));
            x += 34.0 + CHARACTER * packing.chars().count() as f64;
        }
    }

    /// The name, and a line to its mark where it stands away from it.
    fn label(&mut self, point: &Point, at: (f64, f64), place: Option<Box>) {
        let Some(place) = place else { return };
        let near = place.nearest(at);
        if (near.0 - at.0).hypot(near.1 - at.1) > MARK + 3.0 {
            self.add(format_args!(
                "<line class=\"bc-axis\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke-opacity=\"0.4\" \
                 stroke-width=\"0.7\"/>",
                at.0, at.1, near.0, near.1
            ));
        }
        let weight = if point.is_base { " font-weight=\"bold\"" } else { "" };
        // Towards the mark, so that a narrower font leaves no gap.
        let (x, anchor) = if place.right <= at.0 { (place.right, "end") } else { (place.left, "start") };
        self.add(format_args!(
            "<text class=\"bc-ink bc-halo\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\"{weight}>{}</text>",
            place.bottom - 3.0,
            escape(&point.name)
        ));
    }

    fn mark(&mut self, point: &Point, packing: &str, at: (f64, f64)) {
        let shown = |(ratio, interval): Ratio| match interval {
            Some((low, high)) => format!("{} [{low:.2}, {high:.2}]", number::ratio(ratio)),
            None => number::ratio(ratio),
        };
        let says =
            format!("{} {packing}: wire bytes {}, CPU {}", point.name, shown(point.bytes), shown(point.cpu));
        self.add(format_args!("<g><title>{}</title>", escape(&says)));
        self.shape(point.packing, at, point.is_base);
        self.add(format_args!("</g>"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_covers_another_or_a_mark_however_crowded() {
        // Four knots of twelve marks each, as formats under one compression are.
        let places: Vec<(f64, f64)> = (0..48)
            .map(|i| {
                let (knot, at) = (f64::from(i / 12), f64::from(i % 12));
                (150.0 + 170.0 * knot + 3.0 * at, 90.0 + 100.0 * knot + (at * 7.0) % 11.0)
            })
            .collect();
        let names: Vec<&str> =
            (0..48).map(|i| ["json", "dannypack tuned", "cbor-schemaless"][i % 3]).collect();
        let found: Vec<Box> = labels(&places, &names).into_iter().map(Option::unwrap).collect();
        for (i, label) in found.iter().enumerate() {
            assert!(PLOT.holds(label), "{label:?}");
            assert!(found[i + 1..].iter().all(|other| !label.overlaps(other)), "{i}: {label:?}");
            for (x, y) in &places {
                let mark = Box { left: x - 5.0, top: y - 5.0, right: x + 5.0, bottom: y + 5.0 };
                assert!(!label.overlaps(&mark), "{i}: {label:?} covers {mark:?}");
            }
        }
        // A mark with room has its name right beside it.
        let alone = labels(&[(300.0, 300.0)], &["json"])[0].unwrap();
        assert!((alone.left - 308.0).abs() < 0.1 && (alone.top - 293.0).abs() < 0.1, "{alone:?}");
    }
}
