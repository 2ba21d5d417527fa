//! Quotations of a result in other documents, kept up to date from it: a table of a few cells, or
//! the lines that a terminal shows.
//!
//! The place is a comment that names the folder of the result, of a table also the cells, and one
//! that ends it:
//!
//! ```text
//! <!-- table: results/published/mixed-day-load-4 json+none json+deflate -->
//! <!-- end of table -->
//! <!-- lines: results/published/follow-list-burst-quick -->
//! <!-- end of lines -->
//! ```

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::{
    comparison::{Comparison, Verdict},
    model::Report,
    number,
    part::{Medium, What},
    table::{NOTHING, Table, or_nothing},
    view::{CellView, LoadView},
};
use crate::{merged::Metric, result::Role};

/// A kind of quotation: the comments around it, and what stands between them.
struct Quotation {
    begin: &'static str,
    end: &'static str,
    draw: fn(&Report<'_>, &[&str]) -> Result<String>,
}

const QUOTATIONS: [Quotation; 2] = [
    Quotation { begin: "<!-- table:", end: "<!-- end of table -->", draw: table },
    Quotation { begin: "<!-- lines:", end: "<!-- end of lines -->", draw: lines },
];
const CLOSE: &str = "-->";

/// Rows that a reader takes in at a glance.
const MOST_ROWS: usize = 6;

/// The document with every quotation of this result made anew. `folder` is the result's, as the
/// document names it.
///
/// # Errors
/// When the result is incomplete, which no quotation says; when the document has none of it, or one
/// that names what it does not have.
pub fn refreshed(document: &str, folder: &Path, report: &Report<'_>) -> Result<String> {
    if let Some(reason) = report.result.incomplete() {
        bail!("{} is incomplete, and a table would look whole: {reason}", folder.display());
    }
    let first = |text: &str| {
        let places = QUOTATIONS.iter().filter_map(|kind| Some((text.find(kind.begin)?, kind)));
        places.min_by_key(|(place, _)| *place)
    };
    let (mut text, mut rest, mut quotations) = (String::new(), document, 0);
    while let Some((place, Quotation { begin, end, draw })) = first(rest) {
        let (before, behind) = rest.split_at(place + begin.len());
        let (asked, behind) =
            behind.split_once(CLOSE).with_context(|| format!("a {begin} without {CLOSE}"))?;
        let (old, behind) = behind.split_once(end).with_context(|| format!("a {begin} without {end}"))?;
        text.push_str(&format!("{before}{asked}{CLOSE}"));
        let mut words = asked.split_whitespace();
        if words.next().is_some_and(|named| Path::new(named) == folder) {
            text.push_str(&format!("\n\n{}\n", draw(report, &words.collect::<Vec<_>>())?));
            quotations += 1;
        } else {
            text.push_str(old);
        }
        text.push_str(end);
        rest = behind;
    }
    let folder = folder.display();
    let [Quotation { begin, end, .. }, _] = QUOTATIONS;
    ensure!(
        quotations > 0,
        "there is no table of {folder}; write {begin} {folder} CELL … {CLOSE} and {end} where it goes"
    );
    Ok(text + rest)
}

/// The rows of these cells.
fn table(report: &Report<'_>, cells: &[&str]) -> Result<String> {
    ensure!(
        (1..=MOST_ROWS).contains(&cells.len()),
        "a table has 1 to {MOST_ROWS} cells, not {}",
        cells.len()
    );
    let loads: Vec<&What> = report.parts(Medium::Rows).map(|part| &part.what).collect();
    let [What::Table { table, ids }] = loads[..] else {
        bail!("a table is of a result with one load, not {}", loads.len())
    };
    let row = |cell: &&str| {
        let known = || format!("the result has no cell {cell:?}; it has {}", ids.join(" "));
        Ok(table.rows[ids.iter().position(|id| id == cell).with_context(known)?].clone())
    };
    let rows = cells.iter().map(row).collect::<Result<_>>()?;
    Ok(Table { rows, ..table.clone() }.markdown())
}

/// What a terminal shows of all cells.
fn lines(report: &Report<'_>, cells: &[&str]) -> Result<String> {
    ensure!(cells.is_empty(), "lines are of all cells; leave out {}", cells.join(" "));
    let lines = report.lines();
    ensure!(!lines.is_empty(), "lines are of a result with loads, and this has none");
    Ok(format!("```\n{lines}```\n"))
}

impl LoadView<'_> {
    /// One row a cell: its bytes, and its ratios to JSON without compression, bold where decided.
    pub(crate) fn beside_json(&self, comparisons: &[Comparison]) -> Table {
        let resolution = |metric: Metric| {
            let interval = self.control().and_then(|control| self.to_anchor(control, metric)?.1);
            let heading = format!("{} × JSON", metric.short());
            interval
                .map_or_else(|| heading.clone(), |(low, high)| format!("{heading} (A/A {low:.2}–{high:.2})"))
        };
        let ratios = [Metric::WireBytes, Metric::RelayCpu, Metric::ClientCpu];
        let names = ["format", "compression", "wire bytes per envelope"].map(str::to_owned);
        let headings = names.into_iter().chain(ratios.map(resolution)).collect();
        let row = |view: &CellView<'_>| {
            let mut row = self.labels(view.cell);
            let code = row.split_off(2).join(" ");
            if !code.is_empty() {
                row[0] = format!("{} {code}", row[0]);
            }
            row.push(or_nothing(self.shown(view, Metric::WireBytes)));
            row.extend(ratios.map(|metric| self.beside_anchor(view, metric, comparisons)));
            row
        };
        Table { names: 2, headings, rows: self.cells.iter().map(row).collect() }
    }

    fn beside_anchor(&self, view: &CellView<'_>, metric: Metric, comparisons: &[Comparison]) -> String {
        if view.cell.role == Role::Anchor {
            return "1".to_owned();
        }
        let Some((ratio, interval)) = self.to_anchor(view, metric) else { return NOTHING.to_owned() };
        // A verdict is about the reference, which for compressed cells is another one.
        let decided = comparisons.iter().any(|c| {
            let against = self.anchor().is_some_and(|anchor| anchor.cell.id == c.reference);
            let verdict = matches!(c.verdict, Verdict::Better | Verdict::Worse | Verdict::Same);
            c.cell == view.cell.id && c.metric == metric && against && verdict
        });
        let ratio = number::ratio(ratio);
        let ratio = if decided { format!("**{ratio}**") } else { ratio };
        interval.map_or_else(|| ratio.clone(), |(low, high)| format!("{ratio} [{low:.2}, {high:.2}]"))
    }
}
