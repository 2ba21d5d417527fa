//! Ratios as bars below each other, as wide as a phone's screen.

use super::svg::{Axis, Figure, PALETTE, Sheet};
use crate::number;

/// Height of a row with the room around it.
const ROW_PX: f64 = 22.0;

/// Rows that a title takes with the room above the next one.
const TITLE_ROWS: f64 = 1.5;

/// The bars of one metric.
#[derive(Debug)]
pub struct Bars<'a> {
    pub title: &'a str,
    pub rows: Vec<Bar<'a>>,
}

/// A ratio to a reference.
#[derive(Debug)]
pub struct Bar<'a> {
    pub name: &'a str,
    pub ratio: f64,
    /// Whether it has a verdict; one without is pale and has a question mark.
    pub is_decided: bool,
}

/// A picture that stands by itself; the longest bar of each metric is as wide as the plot. `name`
/// is what a screen reader says.
pub fn bars(name: &str, metrics: &[Bars<'_>]) -> String {
    let rows: f64 = metrics.iter().map(|metric| metric.rows.len() as f64 + TITLE_ROWS).sum();
    let axis = |end: f64| Axis::linear("", 0.0..end, 1).with_ticks(Vec::new());
    let mut svg = Figure::begin(Sheet::bars(rows * ROW_PX), name, axis(1.0), axis(rows));
    let mut above = rows;
    for metric in metrics {
        let (left, top) = svg.at(0.0, above);
        svg.text((8.0, top + 20.0), "font-weight=\"bold\"", metric.title);
        let longest = metric.rows.iter().map(|bar| bar.ratio).fold(f64::MIN_POSITIVE, f64::max);
        above -= TITLE_ROWS;
        for bar in &metric.rows {
            let width = bar.ratio / longest;
            let (opacity, note) = if bar.is_decided { ("1", "") } else { ("0.35", " ?") };
            let style = format!("fill=\"{}\" fill-opacity=\"{opacity}\"", PALETTE[1]);
            svg.rectangle((0.0, above - 0.75), (width, above), &style);
            let (end, top) = svg.at(width, above);
            svg.text((left - 8.0, top + 13.0), "text-anchor=\"end\"", bar.name);
            svg.text((end + 6.0, top + 13.0), "", &format!("{}{note}", number::ratio(bar.ratio)));
            above -= 1.0;
        }
    }
    if metrics.iter().flat_map(|metric| &metric.rows).any(|bar| !bar.is_decided) {
        let bottom = svg.at(0.0, 0.0).1;
        svg.text((8.0, bottom + 16.0), "", "? not decided");
    }
    svg.end()
}
