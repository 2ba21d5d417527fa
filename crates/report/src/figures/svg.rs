//! The means of the picture: sheet, axes, marks and labels, as text.
//!
//! Written by hand, because no library of charts knows classes, by which one file is light or dark
//! as its reader prefers.

use std::{fmt, fmt::Write as _, ops::Range};

use crate::number;

/// Attributes of lines of ink, which are dark on white and light on near black.
const INK: &str = "class=\"bc-axis\"";

/// The style of ink and paper.
const STYLE: &str = "\
.bc-paper{fill:#fff}.bc-ink{fill:#1a1a19}.bc-axis{stroke:#1a1a19;fill:none}.bc-grid{stroke:#ddddda}\
.bc-halo{stroke:#fff;stroke-width:3px;paint-order:stroke}\
@media (prefers-color-scheme:dark){.bc-paper{fill:#161615}.bc-ink{fill:#e9e9e4}.bc-axis{stroke:#e9e9e4}\
.bc-grid{stroke:#3b3b38}.bc-halo{stroke:#161615}}";

/// Half the size of a mark with the room around it.
pub(super) const MARK: f64 = 7.0;

/// A place on the sheet.
pub(super) type At = (f64, f64);

/// Text for HTML and SVG; names come from files that anyone may have written.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

impl Area {
    pub(super) fn overlaps(&self, other: &Area) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    pub(super) fn holds(&self, other: &Area) -> bool {
        self.left <= other.left
            && other.right <= self.right
            && self.top <= other.top
            && other.bottom <= self.bottom
    }

    /// The nearest point of the area.
    pub(super) fn nearest(&self, (x, y): At) -> At {
        (x.clamp(self.left, self.right), y.clamp(self.top, self.bottom))
    }
}

/// How large the picture is and where its plot lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sheet {
    width: f64,
    height: f64,
    pub(super) plot: Area,
    font_px: f64,
}

impl Sheet {
    pub(super) const PICTURE: Sheet = Sheet {
        width: 860.0,
        height: 560.0,
        plot: Area { left: 62.0, top: 46.0, right: 844.0, bottom: 508.0 },
        font_px: 12.0,
    };

    /// Height of a label.
    pub(super) fn line_height(&self) -> f64 {
        self.font_px * 7.0 / 6.0
    }

    /// Width of a text; most sans-serif fonts are narrower.
    pub(super) fn text_width(&self, text: &str) -> f64 {
        self.font_px * 0.575 * text.chars().count() as f64
    }
}

/// A logarithmic axis: its name, the values it holds, and those that have a label.
pub(super) struct Axis {
    name: String,
    range: Range<f64>,
    ticks: Vec<f64>,
    /// The value whose line is of ink, such as the reference of ratios.
    own: Option<f64>,
}

impl Axis {
    /// A logarithmic axis with at most so many ticks.
    pub(super) fn logarithmic(name: &str, range: Range<f64>, most: usize) -> Axis {
        let ticks = ticks(range.start, range.end, most);
        Axis { name: name.to_owned(), range, ticks, own: None }
    }

    pub(super) fn with_own(self, own: f64) -> Axis {
        Axis { own: Some(own), ..self }
    }

    /// The line of a tick.
    fn style(&self, tick: f64) -> &'static str {
        if self.own.is_some_and(|own| (tick - own).abs() < 1e-9) {
            "class=\"bc-axis\" stroke-width=\"0.8\""
        } else {
            "class=\"bc-grid\" stroke-width=\"0.8\""
        }
    }

    /// Where a value lies: 0 at the beginning, 1 at the end.
    fn share(&self, value: f64) -> f64 {
        (value / self.range.start).ln() / (self.range.end / self.range.start).ln()
    }
}

/// The figure under way.
pub(super) struct Figure {
    svg: String,
    sheet: Sheet,
    x: Axis,
    y: Axis,
}

impl Figure {
    /// Paper, axes and their names.
    pub(super) fn begin(sheet: Sheet, name: &str, x: Axis, y: Axis) -> Figure {
        let Sheet { width, height, font_px, .. } = sheet;
        let mut figure = Figure { svg: String::new(), sheet, x, y };
        figure.add(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             class=\"picture\" role=\"img\" aria-label=\"{}\" font-family=\"sans-serif\" font-size=\"{font_px}\">",
            escape(name)
        ));
        figure.add(format_args!(
            "<style>{STYLE}</style>\n<rect class=\"bc-paper\" width=\"{width}\" height=\"{height}\"/>"
        ));
        figure.names();
        figure.axes();
        figure
    }

    /// Names of the axes.
    fn names(&mut self) {
        let Sheet { height, plot, font_px, .. } = self.sheet;
        let below =
            format!("x=\"{}\" y=\"{}\"", f64::midpoint(plot.left, plot.right), height - font_px - 2.0);
        let middle = f64::midpoint(plot.top, plot.bottom);
        let beside = format!("transform=\"translate({} {middle}) rotate(-90)\"", font_px + 4.0);
        for (place, name) in [(below, escape(&self.x.name)), (beside, escape(&self.y.name))] {
            self.add(format_args!("<text class=\"bc-ink\" {place} text-anchor=\"middle\">{name}</text>"));
        }
    }

    /// Ticks with their lines.
    fn axes(&mut self) {
        let Sheet { plot, font_px, .. } = self.sheet;
        let mut lines = String::new();
        for value in &self.x.ticks {
            let x = self.at(*value, self.y.range.start).0;
            lines += &segment((x, plot.top), (x, plot.bottom), self.x.style(*value));
            lines +=
                &label((x, plot.bottom + font_px + 4.0), "text-anchor=\"middle\"", &number::short(*value));
        }
        for value in &self.y.ticks {
            let y = self.at(self.x.range.start, *value).1;
            lines += &segment((plot.left, y), (plot.right, y), self.y.style(*value));
            lines +=
                &label((plot.left - 6.0, y + font_px / 3.0), "text-anchor=\"end\"", &number::short(*value));
        }
        self.svg.push_str(&lines);
    }

    /// The place of a value.
    pub(super) fn at(&self, x: f64, y: f64) -> At {
        let plot = self.sheet.plot;
        (
            plot.left + (plot.right - plot.left) * self.x.share(x),
            plot.bottom - (plot.bottom - plot.top) * self.y.share(y),
        )
    }

    pub(super) fn add(&mut self, element: fmt::Arguments<'_>) {
        writeln!(self.svg, "{element}").expect("writing to a string does not fail");
    }

    /// A line between two places.
    pub(super) fn segment(&mut self, from: At, to: At, style: &str) {
        self.svg.push_str(&segment(from, to, style));
    }

    pub(super) fn text(&mut self, at: At, style: &str, text: &str) {
        self.svg.push_str(&label(at, style, text));
    }

    /// Elements with a title, which a pointer shows.
    pub(super) fn titled(&mut self, title: &str, draw: impl FnOnce(&mut Figure)) {
        self.add(format_args!("<g><title>{}</title>", escape(title)));
        draw(self);
        self.add(format_args!("</g>"));
    }

    /// A name near its mark, and a line to the mark where it stands away from it.
    pub(super) fn name(&mut self, at: At, place: Area, style: &str, name: &str) {
        let near = place.nearest(at);
        if (near.0 - at.0).hypot(near.1 - at.1) > MARK + 3.0 {
            self.segment(at, near, &format!("{INK} stroke-opacity=\"0.4\" stroke-width=\"0.7\""));
        }
        // Towards the mark, so that a narrower font leaves no gap.
        let (x, anchor) = if place.right <= at.0 { (place.right, "end") } else { (place.left, "start") };
        let (y, name) = (place.bottom - self.sheet.font_px / 4.0, escape(name));
        self.add(format_args!(
            "<text class=\"bc-ink bc-halo\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\"{style}>{name}</text>"
        ));
    }

    pub(super) fn end(self) -> String {
        self.svg + "</svg>\n"
    }
}

fn segment(from: At, to: At, style: &str) -> String {
    format!(
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" {style}/>\n",
        from.0, from.1, to.0, to.1
    )
}

fn label((x, y): At, style: &str, text: &str) -> String {
    format!("<text class=\"bc-ink\" x=\"{x:.1}\" y=\"{y:.1}\" {style}>{}</text>\n", escape(text))
}

/// The range of positive values with room around it.
pub(super) fn padded(values: impl Iterator<Item = f64>, room: f64) -> Range<f64> {
    let (low, high) =
        values.fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    if low.is_finite() && low > 0.0 { low / room..high * room } else { 0.5..2.0 }
}

/// At most `most` ticks of a logarithmic axis: 1, 2, 5 and their tenfolds, finer ones in a narrow
/// range.
fn ticks(low: f64, high: f64, most: usize) -> Vec<f64> {
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
