//! What pictures are drawn with that stand by themselves: light or dark as their reader prefers.
//!
//! Written as text, because plotters knows neither classes nor styles, by which one file is both
//! light and dark.

use std::fmt::Write as _;

use super::draw::escape;
use crate::report::number;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 560.0;

/// Left, top, right and bottom of the plot.
pub(super) const PLOT: Box = Box { left: 62.0, top: 46.0, right: WIDTH - 16.0, bottom: HEIGHT - 52.0 };

/// Height of a label, and width of one of its characters at 12 px; most sans-serif fonts are
/// narrower.
pub(super) const LINE: f64 = 14.0;
pub(super) const CHARACTER: f64 = 6.9;

/// Colours that read on white and on near black.
pub(super) const COLOURS: [&str; 6] = ["#2f7fd0", "#d96b0b", "#c44e9b", "#1f9e77", "#8e6fd8", "#b88a00"];

const STYLE: &str = "\
.bc-paper{fill:#fff}.bc-ink{fill:#1a1a19}.bc-axis{stroke:#1a1a19;fill:none}.bc-grid{stroke:#ddddda}\
.bc-halo{stroke:#fff;stroke-width:3px;paint-order:stroke}\
@media (prefers-color-scheme:dark){.bc-paper{fill:#161615}.bc-ink{fill:#e9e9e4}.bc-axis{stroke:#e9e9e4}\
.bc-grid{stroke:#3b3b38}.bc-halo{stroke:#161615}}";

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Box {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

impl Box {
    pub(super) fn overlaps(&self, other: &Box) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    pub(super) fn holds(&self, other: &Box) -> bool {
        self.left <= other.left
            && other.right <= self.right
            && self.top <= other.top
            && other.bottom <= self.bottom
    }

    /// The nearest point of the box.
    pub(super) fn nearest(&self, (x, y): (f64, f64)) -> (f64, f64) {
        (x.clamp(self.left, self.right), y.clamp(self.top, self.bottom))
    }
}

/// The picture under way.
pub(super) struct Svg(String);

impl Svg {
    /// Paper, style and the names of both axes.
    pub(super) fn begin(name: &str, bottom: &str, left: &str) -> Svg {
        let name = escape(name);
        let mut svg = Svg(String::new());
        svg.add(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             class=\"picture\" role=\"img\" aria-label=\"{name}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <style>{STYLE}</style>\n<rect class=\"bc-paper\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>"
        ));
        svg.add(format_args!(
            "<text class=\"bc-ink\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            f64::midpoint(PLOT.left, PLOT.right),
            HEIGHT - 14.0,
            escape(bottom)
        ));
        svg.add(format_args!(
            "<text class=\"bc-ink\" transform=\"translate(16 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            f64::midpoint(PLOT.top, PLOT.bottom),
            escape(left)
        ));
        svg
    }

    pub(super) fn add(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("writing to a string does not fail");
    }

    /// Ticks with their lines, along the bottom or the left; the one at `own` is drawn as the axis.
    pub(super) fn axes(&mut self, ticks: impl Iterator<Item = (f64, f64)>, bottom: bool, own: Option<f64>) {
        for (at, value) in ticks {
            let (from, to) = match bottom {
                true => ((at, PLOT.top), (at, PLOT.bottom)),
                false => ((PLOT.left, at), (PLOT.right, at)),
            };
            let is_own = own.is_some_and(|own| (value - own).abs() < 1e-9);
            let class = if is_own { "bc-axis" } else { "bc-grid" };
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

    pub(super) fn whisker(&mut self, from: (f64, f64), to: (f64, f64), colour: &str) {
        self.add(format_args!(
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-opacity=\"0.45\" \
             stroke-width=\"1.5\"/>",
            from.0, from.1, to.0, to.1
        ));
    }

    pub(super) fn shape(&mut self, place: usize, (x, y): (f64, f64), large: bool) {
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

    pub(super) fn end(mut self) -> String {
        self.add(format_args!("</svg>"));
        self.0
    }
}
