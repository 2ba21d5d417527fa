//! The report's figures: static SVG that reads without JavaScript, each mark with its numbers as a title.
//!
//! Every figure is as wide as a phone's screen, so that a page lays out one or several beside each other and no text
//! shrinks. Colours are the constants below; the page's style sheet replaces those of ink and paper in dark mode.

use std::fmt::Write as _;

use anyhow::Result;
use plotters::{
    coord::{
        combinators::BindKeyPoints,
        ranged1d::{AsRangedCoord, ValueFormatter},
    },
    element::DashedPathElement,
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::{Comparison, LoadView, Metric, Verdict, limits, number, view::CellView};
use crate::{matrix::Role, search::CellSearch};

const WIDTH: u32 = 358;
const INK: RGBColor = RGBColor(0x1A, 0x1A, 0x19);
const GRID: RGBColor = RGBColor(0xDD, 0xDD, 0xDA);
const INVALID: RGBColor = RGBColor(0xD5, 0x3E, 0x3E);
const FONT: (&str, u32) = ("sans-serif", 11);

/// Readable on white and on near black; in the order of the formats.
const PALETTE: [RGBColor; 10] = [
    RGBColor(0x7A, 0x7A, 0x78),
    RGBColor(0x2F, 0x7F, 0xD0),
    RGBColor(0xD9, 0x6B, 0x0B),
    RGBColor(0x1F, 0x9E, 0x77),
    RGBColor(0xC4, 0x4E, 0x9B),
    RGBColor(0x8E, 0x6F, 0xD8),
    RGBColor(0xB8, 0x8A, 0x00),
    RGBColor(0xCC, 0x44, 0x44),
    RGBColor(0x1D, 0x9C, 0xB5),
    RGBColor(0x6F, 0x9A, 0x2B),
];

/// Points of a line.
type Curve = Vec<(f64, f64)>;

/// Something a reader can point at: where it is, which cell it belongs to, what it says.
struct Mark {
    at: (i32, i32),
    cell: String,
    says: String,
}

/// Adds the marks to a finished drawing: circles that are larger than what they cover, so that a finger finds them.
fn finish(mut svg: String, name: &str, marks: &[Mark]) -> String {
    let end = svg.rfind("</svg>").unwrap_or(svg.len());
    svg.truncate(end);
    for Mark { at: (x, y), cell, says } in marks {
        let (cell, says) = (escape(cell), escape(says));
        write!(
            svg,
            "<circle class=\"mark\" data-cell=\"{cell}\" cx=\"{x}\" cy=\"{y}\" r=\"9\" fill=\"transparent\">\
             <title>{says}</title></circle>"
        )
        .expect("writing to a string does not fail");
    }
    svg.push_str("</svg>\n");
    svg.replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{}\" ", escape(name)), 1)
}

/// Text for HTML and SVG; names come from files that anyone may have written.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The formats of a load in order; a format's place decides its colour.
fn formats<'a>(load: &LoadView<'a>) -> Vec<&'a str> {
    distinct(load, |view| view.cell.cell.format.as_str())
}

/// How messages of a load are packed, in order: the compressions, each with and without batches where both were measured.
/// The place decides a cell's shape.
pub(crate) fn packings(load: &LoadView<'_>) -> Vec<String> {
    distinct(load, |view| packing(load, view))
}

fn packing(load: &LoadView<'_>, view: &CellView<'_>) -> String {
    let cell = &view.cell.cell;
    match cell.batching.as_str() {
        batching if batching != "none" && load.varies(|cell| &cell.cell.batching) => {
            format!("{}, batches {batching}", cell.compression)
        }
        _ => cell.compression.clone(),
    }
}

fn place_of(load: &LoadView<'_>, view: &CellView<'_>) -> usize {
    let packing = packing(load, view);
    packings(load).iter().position(|one| *one == packing).unwrap_or(0)
}

fn distinct<'a, T: PartialEq>(load: &LoadView<'a>, of: impl Fn(&CellView<'a>) -> T) -> Vec<T> {
    let mut names = Vec::new();
    for name in load.cells.iter().map(of) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn colour(load: &LoadView<'_>, format: &str) -> RGBColor {
    let place = formats(load).iter().position(|name| *name == format).unwrap_or(0);
    PALETTE[place % PALETTE.len()]
}

/// What the colours and shapes mean, as HTML.
pub(crate) fn legend(load: &LoadView<'_>) -> String {
    let mut html = "<p class=\"legend\">".to_owned();
    for format in formats(load) {
        let RGBColor(r, g, b) = colour(load, format);
        write!(html, "<span><b style=\"color:#{r:02x}{g:02x}{b:02x}\">■</b> {}</span> ", escape(format))
            .expect("writing to a string does not fail");
    }
    for (place, packing) in packings(load).into_iter().enumerate() {
        let shape = ["●", "▲", "✕", "＋"][place % 4];
        write!(html, "<span>{shape} {}</span> ", escape(&packing))
            .expect("writing to a string does not fail");
    }
    html + "</p>"
}

fn padded(values: impl Iterator<Item = f64> + Clone) -> std::ops::Range<f64> {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = values.fold(0.0_f64, f64::max);
    if low.is_finite() && low > 0.0 { low / 1.35..high * 1.35 } else { 0.5..2.0 }
}

/// A logarithmic axis with at most so many ticks, where a reader expects them: 1, 2, 5 and their tenfolds, finer ones in a narrow range.
fn log_axis(
    range: std::ops::Range<f64>,
    most: usize,
) -> impl AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>> {
    let (low, high) = (range.start, range.end);
    let ticks = |steps: &[f64]| -> Vec<f64> {
        let tenfolds = (-6..=12).map(|exponent| 10.0_f64.powi(exponent));
        let all = tenfolds.flat_map(|tenfold| steps.iter().map(move |step| step * tenfold));
        all.filter(|tick| *tick > low * 1.02 && *tick < high / 1.02).collect()
    };
    let fine: Vec<f64> = (20..200).map(|step| f64::from(step) / 20.0).collect();
    let medium: Vec<f64> = (10..100).map(|step| f64::from(step) / 10.0).collect();
    let candidates =
        [&[1.0][..], &[1.0, 3.0], &[1.0, 2.0, 5.0], &[1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0], &medium, &fine];
    let enough = candidates.into_iter().map(ticks).find(|ticks| ticks.len() >= 3);
    let mut ticks = enough.unwrap_or_default();
    let every = ticks.len().div_ceil(most).max(1);
    ticks = ticks.into_iter().step_by(every).collect();
    range.log_scale().with_key_points(ticks)
}

/// Which label boxes are taken, so that no two overlap.
#[derive(Default)]
struct Labels(Vec<(i32, i32, i32, i32)>);

impl Labels {
    /// A free place for the text near a mark, or none: a label that covers another is worse than a title.
    fn place(&mut self, (x, y): (i32, i32), text: &str) -> Option<(i32, i32)> {
        let width = 7 * i32::try_from(text.chars().count()).ok()?;
        let boxes = [
            (x + 8, y - 6),
            (x + 8, y - 18),
            (x + 8, y + 6),
            (x - 8 - width, y - 6),
            (x - 8 - width, y - 18),
            (x - 8 - width, y + 6),
        ];
        let right = i32::try_from(WIDTH).ok()? - 4;
        let free = boxes.into_iter().find(|(left, top)| {
            let taken = |other: &(i32, i32, i32, i32)| {
                *left < other.2 && other.0 < left + width && *top < other.3 && other.1 < top + 13
            };
            *left >= 50 && left + width <= right && *top >= 4 && !self.0.iter().any(taken)
        })?;
        self.0.push((free.0, free.1, free.0 + width, free.1 + 13));
        Some(free)
    }
}

fn shape<DB: DrawingBackend>(
    place: usize,
    at: (i32, i32),
    colour: RGBColor,
    area: &DrawingArea<DB, plotters::coord::Shift>,
) -> Result<()>
where
    DB::ErrorType: 'static,
{
    match place % 4 {
        0 => area.draw(&Circle::new(at, 4, colour.filled()))?,
        1 => area.draw(&TriangleMarker::new(at, 6, colour.filled()))?,
        2 => area.draw(&Cross::new(at, 4, colour.stroke_width(2)))?,
        _ => {
            area.draw(&PathElement::new([(at.0 - 5, at.1), (at.0 + 5, at.1)], colour.stroke_width(2)))?;
            area.draw(&PathElement::new([(at.0, at.1 - 5), (at.0, at.1 + 5)], colour.stroke_width(2)))?;
        }
    }
    Ok(())
}

/// Wire bytes against a CPU cost, one mark a cell, the frontier of those that no other beats in both drawn and named.
pub(crate) fn pareto(load: &LoadView<'_>, cpu: Metric) -> Result<String> {
    let value = |view: &CellView<'_>, metric: Metric| {
        Some(metric.value(&view.merged, load.latency.0)? / metric.unit())
    };
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

type Cartesian<'a, 'b, X, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>;

fn mesh<X, Y>(chart: &mut Cartesian<'_, '_, X, Y>, x: &str, y: &str) -> Result<()>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .x_desc(x)
        .y_desc(y)
        .x_labels(5)
        .y_labels(6)
        .x_label_formatter(&|value| number::short(*value))
        .y_label_formatter(&|value| number::short(*value))
        .label_style(FONT.into_font().color(&INK))
        .axis_desc_style(FONT.into_font().color(&INK))
        .axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .draw()?;
    Ok(())
}

/// The ratios of one metric with their intervals, one row a cell, the ±2 % band behind them.
pub(crate) fn forest(load: &LoadView<'_>, comparisons: &[Comparison], metric: Metric) -> Result<String> {
    let rows: Vec<&Comparison> = comparisons.iter().filter(|c| c.metric == metric).collect();
    let span = |c: &&Comparison| c.interval.unwrap_or((c.ratio, c.ratio));
    let low = rows.iter().map(|c| span(c).0.min(c.ratio)).fold(0.9_f64, f64::min) / 1.1;
    let high = rows.iter().map(|c| span(c).1.max(c.ratio)).fold(1.1_f64, f64::max) * 1.1;
    let height = 62 + 18 * u32::try_from(rows.len())?;
    let (mut svg, mut marks) = (String::new(), Vec::new());
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        let y = -0.5..rows.len() as f64 - 0.5;
        let mut chart = ChartBuilder::on(&root)
            .margin(6)
            .x_label_area_size(36)
            .y_label_area_size(150)
            .build_cartesian_2d(log_axis(low..high, 4), y)?;
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
        let band = [(1.0 - super::BAND, bottom), (1.0 + super::BAND, top)];
        chart.draw_series([Rectangle::new(band, GRID.filled())])?;
        chart.draw_series([PathElement::new([(1.0, bottom), (1.0, top)], INK.stroke_width(1))])?;
        for (row, c) in rows.iter().enumerate() {
            let y = (rows.len() - 1 - row) as f64;
            let (from, to) = span(c);
            let style = match c.verdict {
                Verdict::Inconclusive | Verdict::Unsteady => INK.stroke_width(1),
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

/// Latency by percentile of the cells with one of the packings; both axes logarithmic.
pub(crate) fn percentiles(load: &LoadView<'_>, packed: &str) -> Result<Option<String>> {
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

/// p99 against rate, a line for each cell, where several rates of one scenario were measured.
pub(crate) fn p99_against_rate(loads: &[LoadView<'_>], scenario: &str) -> Result<Option<String>> {
    // Name, format, points.
    let mut lines: Vec<(String, String, Curve)> = Vec::new();
    let loads: Vec<&LoadView<'_>> =
        loads.iter().filter(|load| load.cells[0].cell.cell.scenario == scenario).collect();
    for (load, view) in loads.iter().flat_map(|load| load.cells.iter().map(move |view| (load, view))) {
        let Some(rate) = view.cell.rate_per_s.filter(|_| view.cell.role != Role::Control) else { continue };
        let Some(ns) = view.merged.quantile(load.latency.0, 0.99).ns() else { continue };
        let name = load.labels(view.cell).join("+");
        let point = (f64::from(rate), ns as f64 / 1e6);
        match lines.iter_mut().find(|(line, ..)| *line == name) {
            Some((.., points)) => points.push(point),
            None => lines.push((name, view.cell.cell.format.clone(), vec![point])),
        }
    }
    lines.retain(|(.., points)| points.len() > 1);
    let Some(load) = loads.first().filter(|_| !lines.is_empty()) else { return Ok(None) };
    let all = || lines.iter().flat_map(|(.., points)| points.iter().copied());
    let (mut svg, mut marks) = (String::new(), Vec::new());
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, 280)).into_drawing_area();
        let (x, y) = (log_axis(padded(all().map(|p| p.0)), 5), log_axis(padded(all().map(|p| p.1)), 6));
        let mut chart = ChartBuilder::on(&root)
            .margin(6)
            .x_label_area_size(36)
            .y_label_area_size(48)
            .build_cartesian_2d(x, y)?;
        mesh(&mut chart, "published events per second", "p99 ms")?;
        for (name, format, points) in &mut lines {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            chart
                .draw_series(LineSeries::new(points.iter().copied(), colour(load, format).stroke_width(2)))?;
            for (x, y) in points {
                let says = format!("{name}: p99 {} ms at {x} events/s", number::three(*y));
                marks.push(Mark { at: chart.backend_coord(&(*x, *y)), cell: name.clone(), says });
            }
        }
        root.present()?;
    }
    Ok(Some(finish(svg, "p99 against rate", &marks)))
}

/// p99 against rate of a search, a line for each cell, with both ends of its bracket; and what the colours mean, as HTML.
pub(crate) fn search_curve(cells: &[CellSearch]) -> Result<Option<(String, String)>> {
    let lines: Vec<(&CellSearch, Curve)> = (cells.iter().map(|cell| (cell, limits::points(cell))))
        .filter(|(_, points)| !points.is_empty())
        .collect();
    if lines.is_empty() {
        return Ok(None);
    }
    let all = || lines.iter().flat_map(|(_, points)| points.iter().copied());
    let (mut svg, mut marks, mut legend) = (String::new(), Vec::new(), "<p class=\"legend\">".to_owned());
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, 340)).into_drawing_area();
        let (x, y) = (log_axis(padded(all().map(|p| p.0)), 5), log_axis(padded(all().map(|p| p.1)), 6));
        let mut chart = ChartBuilder::on(&root)
            .margin(6)
            .x_label_area_size(36)
            .y_label_area_size(48)
            .build_cartesian_2d(x, y)?;
        mesh(&mut chart, "published events per second", "p99 ms")?;
        for (index, (cell, points)) in lines.iter().enumerate() {
            let colour = PALETTE[index % PALETTE.len()];
            let RGBColor(r, g, b) = colour;
            write!(
                legend,
                "<span><b style=\"color:#{r:02x}{g:02x}{b:02x}\">■</b> {}</span> ",
                escape(&cell.cell)
            )?;
            let dash = [(1000, 0), (8, 4), (3, 3)][index / PALETTE.len() % 3];
            chart.draw_series([DashedPathElement::new(
                points.clone(),
                dash.0,
                dash.1,
                colour.stroke_width(2),
            )])?;
            for (rate, p99) in points {
                let at = chart.backend_coord(&(*rate, *p99));
                let is = |end: Option<u32>| end.is_some_and(|end| f64::from(end).total_cmp(rate).is_eq());
                let what = match (is(cell.last_pass_per_s), is(cell.first_fail_per_s)) {
                    (true, _) => {
                        shape(0, at, colour, &root)?;
                        ", the highest that passed"
                    }
                    (_, true) => {
                        shape(2, at, colour, &root)?;
                        ", the lowest that did not"
                    }
                    _ => "",
                };
                let says = format!("{}: p99 {} ms at {rate} events/s{what}", cell.cell, number::three(*p99));
                marks.push(Mark { at, cell: cell.cell.clone(), says });
            }
        }
        root.present()?;
    }
    Ok(Some((finish(svg, "p99 against rate", &marks), legend + "</p>")))
}

/// Relay CPU of every block over the run, as a multiple of its cell's median, so that what the machine did to all of
/// them shows. Spans of invalid blocks are shaded and crossed.
pub(crate) fn time_series(load: &LoadView<'_>) -> Result<Option<String>> {
    let mut points = Vec::new();
    let mut invalid = Vec::new();
    for view in &load.cells {
        let of_block = |block: &crate::Block| {
            let own = super::Merged::of([block.record.as_ref()?]);
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
