//! Bytes against CPU in one picture that stands by itself: light or dark as its reader prefers, and
//! every cell named.
//!
//! Written as text, because plotters knows neither classes nor styles, by which one file is both
//! light and dark.

use std::fmt::Write as _;

use super::{
    cells::{packing, packings},
    draw::{escape, ticks},
};
use crate::{
    merged::Metric,
    report::{
        number,
        view::{CellView, LoadView},
    },
    result::Role,
};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 560.0;

/// Left, top, right and bottom of the plot.
const PLOT: Box = Box { left: 62.0, top: 46.0, right: WIDTH - 16.0, bottom: HEIGHT - 52.0 };

/// Height of a label, and width of one of its characters at 12 px; most sans-serif fonts are
/// narrower.
const LINE: f64 = 14.0;
const CHARACTER: f64 = 6.9;

/// Half the size of a mark with the room around it.
const MARK: f64 = 7.0;

/// Room between the outermost marks and the edge of the plot, as a factor.
const ROOM: f64 = 1.15;

/// Colours that read on white and on near black, by packing.
const COLOURS: [&str; 6] = ["#2f7fd0", "#d96b0b", "#c44e9b", "#1f9e77", "#8e6fd8", "#b88a00"];

const STYLE: &str = "\
.bc-paper{fill:#fff}.bc-ink{fill:#1a1a19}.bc-axis{stroke:#1a1a19;fill:none}.bc-grid{stroke:#ddddda}\
.bc-halo{stroke:#fff;stroke-width:3px;paint-order:stroke}\
@media (prefers-color-scheme:dark){.bc-paper{fill:#161615}.bc-ink{fill:#e9e9e4}.bc-axis{stroke:#e9e9e4}\
.bc-grid{stroke:#3b3b38}.bc-halo{stroke:#161615}}";

#[derive(Debug, Clone, Copy, PartialEq)]
struct Box {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

impl Box {
    fn overlaps(&self, other: &Box) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    fn holds(&self, other: &Box) -> bool {
        self.left <= other.left
            && other.right <= self.right
            && self.top <= other.top
            && other.bottom <= self.bottom
    }

    /// The nearest point of the box.
    fn nearest(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (x.clamp(self.left, self.right), y.clamp(self.top, self.bottom))
    }
}

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
    let mut svg = Svg::begin(&name);
    svg.axes(ticks(x.start, x.end, 8).iter().map(|tick| (across(*tick), *tick)), true);
    svg.axes(ticks(y.start, y.end, 8).iter().map(|tick| (up(*tick), *tick)), false);
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

/// The picture under way.
struct Svg(String);

impl Svg {
    fn begin(name: &str) -> Svg {
        let name = escape(name);
        let mut svg = Svg(String::new());
        svg.add(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             class=\"picture\" role=\"img\" aria-label=\"{name}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <style>{STYLE}</style>\n<rect class=\"bc-paper\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>"
        ));
        svg.add(format_args!(
            "<text class=\"bc-ink\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">wire bytes per envelope, × JSON</text>",
            f64::midpoint(PLOT.left, PLOT.right),
            HEIGHT - 14.0
        ));
        svg.add(format_args!(
            "<text class=\"bc-ink\" transform=\"translate(16 {}) rotate(-90)\" text-anchor=\"middle\">relay + client CPU per \
             envelope, × JSON</text>",
            f64::midpoint(PLOT.top, PLOT.bottom)
        ));
        svg
    }

    fn add(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("writing to a string does not fail");
    }

    /// Ticks with their lines, along the bottom or the left; JSON's own is drawn as the axis.
    fn axes(&mut self, ticks: impl Iterator<Item = (f64, f64)>, bottom: bool) {
        for (at, value) in ticks {
            let (from, to) = match bottom {
                true => ((at, PLOT.top), (at, PLOT.bottom)),
                false => ((PLOT.left, at), (PLOT.right, at)),
            };
            let class = if (value - 1.0).abs() < 1e-9 { "bc-axis" } else { "bc-grid" };
            self.add(format_args!(
                "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke-width=\"0.8\"/>",
                from.0, from.1, to.0, to.1
            ));
            let (x, y, anchor) = match bottom {
                true => (at, PLOT.bottom + 16.0, "middle"),
                false => (PLOT.left - 6.0, at + 4.0, "end"),
            };
            self.add(format_args!(
                "<text class=\"bc-ink\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
                number::short(value)
            ));
        }
    }

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

    fn whisker(&mut self, from: (f64, f64), to: (f64, f64), colour: &str) {
        self.add(format_args!(
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-opacity=\"0.45\" \
             stroke-width=\"1.5\"/>",
            from.0, from.1, to.0, to.1
        ));
    }

    fn shape(&mut self, place: usize, (x, y): (f64, f64), large: bool) {
        let colour = COLOURS[place % COLOURS.len()];
        let r = if large { 6.0 } else { 4.5 };
        let path = match place % 4 {
            0 => format!("M{:.1} {y:.1}a{r} {r} 0 1 0 {} 0a{r} {r} 0 1 0 -{} 0z", x - r, 2.0 * r, 2.0 * r),
            1 => format!("M{x:.1} {:.1}l{r} {}h-{}z", y - r, 1.8 * r, 2.0 * r),
            2 => format!("M{:.1} {:.1}h{d}v{d}h-{d}z", x - 0.85 * r, y - 0.85 * r, d = 1.7 * r),
            _ => format!("M{x:.1} {:.1}l{r} {r}l-{r} {r}l-{r} -{r}z", y - r),
        };
        self.add(format_args!("<path d=\"{path}\" fill=\"{colour}\"/>"));
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

    fn end(mut self) -> String {
        self.add(format_args!("</svg>"));
        self.0
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
