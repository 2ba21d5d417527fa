//! What every figure is drawn with: colours, axes, marks and labels.

use std::fmt::Write as _;

use anyhow::Result;
use plotters::{
    coord::{
        combinators::BindKeyPoints,
        ranged1d::{AsRangedCoord, ValueFormatter},
    },
    prelude::*,
};

use crate::report::number;

pub(super) const WIDTH: u32 = 358;
pub(super) const INK: RGBColor = RGBColor(0x1A, 0x1A, 0x19);
pub(super) const GRID: RGBColor = RGBColor(0xDD, 0xDD, 0xDA);
pub(super) const INVALID: RGBColor = RGBColor(0xD5, 0x3E, 0x3E);
pub(super) const FONT: (&str, u32) = ("sans-serif", 11);

/// Readable on white and on near black; in the order of the formats.
pub(super) const PALETTE: [RGBColor; 10] = [
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
pub(super) type Curve = Vec<(f64, f64)>;

/// A tooltip: its place, its cell, its text.
pub(super) struct Mark {
    pub(super) at: (i32, i32),
    pub(super) cell: String,
    pub(super) says: String,
}

/// Adds the marks to a finished drawing, as circles large enough for a finger.
pub(super) fn finish(mut svg: String, name: &str, marks: &[Mark]) -> String {
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
pub(in crate::report) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

pub(super) fn padded(values: impl Iterator<Item = f64> + Clone) -> std::ops::Range<f64> {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = values.fold(0.0_f64, f64::max);
    if low.is_finite() && low > 0.0 { low / 1.35..high * 1.35 } else { 0.5..2.0 }
}

/// At most `most` ticks of a logarithmic axis: 1, 2, 5 and their tenfolds, finer ones in a narrow
/// range.
pub(super) fn ticks(low: f64, high: f64, most: usize) -> Vec<f64> {
    let ticks = |steps: &[f64]| -> Vec<f64> {
        let tenfolds = (-6..=12).map(|exponent| 10.0_f64.powi(exponent));
        let all = tenfolds.flat_map(|tenfold| steps.iter().map(move |step| step * tenfold));
        all.filter(|tick| *tick > low * 1.02 && *tick < high / 1.02).collect()
    };
    let fine: Vec<f64> = (20..200).map(|step| f64::from(step) / 20.0).collect();
    let medium: Vec<f64> = (10..100).map(|step| f64::from(step) / 10.0).collect();
    let candidates =
        [&[1.0][..], &[1.0, 3.0], &[1.0, 2.0, 5.0], &[1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0], &medium, &fine];
    let enough = candidates.into_iter().map(ticks).find(|ticks| ticks.len() >= 3).unwrap_or_default();
    let every = enough.len().div_ceil(most).max(1);
    enough.into_iter().step_by(every).collect()
}

/// A logarithmic axis with these [`ticks`].
pub(super) fn log_axis(
    range: std::ops::Range<f64>,
    most: usize,
) -> impl AsRangedCoord<Value = f64, CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>> {
    let ticks = ticks(range.start, range.end, most);
    range.log_scale().with_key_points(ticks)
}

/// Boxes of the labels so far; no two overlap.
#[derive(Default)]
pub(super) struct Labels(Vec<(i32, i32, i32, i32)>);

impl Labels {
    /// A free place for the text near a mark, if there is one; the tooltip has the text, too.
    pub(super) fn place(&mut self, (x, y): (i32, i32), text: &str) -> Option<(i32, i32)> {
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

pub(super) fn shape<DB: DrawingBackend>(
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

pub(super) type Cartesian<'a, 'b, X, Y> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>;

pub(super) fn mesh<X, Y>(chart: &mut Cartesian<'_, '_, X, Y>, x: &str, y: &str) -> Result<()>
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
