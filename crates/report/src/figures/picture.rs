//! Bytes against CPU in one picture that stands by itself, every cell named.

use cell::Factor;

use super::{
    labels::labels,
    svg::{At, Axis, Figure, Sheet, padded},
};
use crate::{
    metric::Metric,
    number,
    result::Role,
    view::{CellView, LoadView},
};

/// Room between the outermost marks and the edge of the plot, as a factor.
const ROOM: f64 = 1.15;

/// Colours of packings, readable on white and on near black.
const COLOURS: [&str; 6] = ["#2f7fd0", "#d96b0b", "#c44e9b", "#1f9e77", "#8e6fd8", "#b88a00"];

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
pub(crate) fn picture(load: &LoadView<'_>) -> Option<String> {
    let packings = packings(load);
    let points = points(load, &packings);
    if points.len() < 2 {
        return None;
    }
    let axis = |name: &str, of: fn(&Point) -> Ratio| {
        let ends = points.iter().flat_map(|point| {
            let (ratio, interval) = of(point);
            let (low, high) = interval.unwrap_or((ratio, ratio));
            [low, ratio, high]
        });
        Axis::logarithmic(name, padded(ends, ROOM), 8).with_own(1.0)
    };
    let x = axis("wire bytes per envelope, × JSON", |point| point.bytes);
    let y = axis("relay + client CPU per envelope, × JSON", |point| point.cpu);
    let name = format!("{}: wire bytes against CPU, each divided by JSON without compression", load.name());
    let mut svg = Figure::begin(Sheet::PICTURE, &name, x, y);
    legend(&mut svg, &packings);
    for point in &points {
        let ((bytes, across), (cpu, up)) = (point.bytes, point.cpu);
        let style = format!(
            "stroke=\"{}\" stroke-opacity=\"0.45\" stroke-width=\"1.5\"",
            COLOURS[point.packing % COLOURS.len()]
        );
        if let Some((low, high)) = across {
            svg.segment(svg.at(low, cpu), svg.at(high, cpu), &style);
        }
        if let Some((low, high)) = up {
            svg.segment(svg.at(bytes, low), svg.at(bytes, high), &style);
        }
    }
    let places: Vec<At> = points.iter().map(|point| svg.at(point.bytes.0, point.cpu.0)).collect();
    let names: Vec<&str> = points.iter().map(|point| point.name.as_str()).collect();
    for ((point, at), place) in points.iter().zip(&places).zip(labels(&Sheet::PICTURE, &places, &names)) {
        let weight = if point.is_base { " font-weight=\"bold\"" } else { "" };
        place.into_iter().for_each(|place| svg.name(*at, place, weight, &point.name));
    }
    for (point, at) in points.iter().zip(&places) {
        named_shape(&mut svg, point, &packings[point.packing], *at);
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
        let of =
            |metric| if is_base { Some((1.0, resolution(metric))) } else { load.to_anchor(view, metric) };
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

fn legend(svg: &mut Figure, packings: &[String]) {
    let mut x = Sheet::PICTURE.plot.left + 8.0;
    for (place, packing) in packings.iter().enumerate() {
        shape(svg, place, (x, 22.0), 4.5);
        svg.text((x + 11.0, 26.0), "", packing);
        x += 34.0 + Sheet::PICTURE.text_width(packing);
    }
}

/// How messages of a load are packed, in order: the compressions, each with and without batches
/// where both were measured.
fn packings(load: &LoadView<'_>) -> Vec<String> {
    let mut names = Vec::new();
    for name in load.cells.iter().map(|view| packing(load, view)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn packing(load: &LoadView<'_>, view: &CellView<'_>) -> String {
    let cell = &view.cell.cell;
    match cell.batching.as_str() {
        batching if batching != "none" && load.varies(Factor::Batching) => {
            format!("{}, batches {batching}", cell.compression)
        }
        _ => cell.compression.clone(),
    }
}

/// The shape of a cell, with its numbers as a title.
fn named_shape(svg: &mut Figure, point: &Point, packing: &str, at: At) {
    let shown = |(ratio, interval): Ratio| number::with_interval(ratio, interval);
    let says =
        format!("{} {packing}: wire bytes {}, CPU {}", point.name, shown(point.bytes), shown(point.cpu));
    svg.titled(&says, |svg| shape(svg, point.packing, at, if point.is_base { 6.0 } else { 4.5 }));
}

/// ●, ▲, ■ or ◆ of radius `r`.
fn shape(svg: &mut Figure, place: usize, (x, y): At, r: f64) {
    let colour = COLOURS[place % COLOURS.len()];
    let path = match place % 4 {
        0 => format!("M{:.1} {y:.1}a{r} {r} 0 1 0 {} 0a{r} {r} 0 1 0 -{} 0z", x - r, 2.0 * r, 2.0 * r),
        1 => format!("M{x:.1} {:.1}l{r} {}h-{}z", y - r, 1.8 * r, 2.0 * r),
        2 => format!("M{:.1} {:.1}h{d}v{d}h-{d}z", x - 0.85 * r, y - 0.85 * r, d = 1.7 * r),
        _ => format!("M{x:.1} {:.1}l{r} {r}l-{r} {r}l-{r} -{r}z", y - r),
    };
    svg.add(format_args!("<path d=\"{path}\" fill=\"{colour}\"/>"));
}
