//! Blocks of a document that a result makes.
//!
//! A block stands between two comments. The first names the folder of a result, from the folder of
//! the document. With cells the block is a table of them, otherwise the lines that a terminal shows:
//!
//! ```text
//! <!-- generated: results/published/limit -->
//! <!-- generated: results/published/mixed-day-load-4 json+none json+deflate -->
//! <!-- end of generated -->
//! ```

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::{
    metric::Metric,
    number::{self, Ratio},
    pages::model::Report,
    result::{ResultFile, Role},
    tables::table::{NOTHING, Table, or_nothing},
    verdicts::comparison::{Comparison, Verdict},
    view::{CellView, LoadView, views},
};

const BEGIN: &str = "<!-- generated: ";
const CLOSE: &str = " -->";
const END: &str = "<!-- end of generated -->";

/// The document with every generated block made anew. `folder` is the document's.
///
/// # Errors
/// When a block has no end, or names a result that cannot be read, is incomplete, or lacks a cell;
/// when the document has no block.
pub fn splice(document: &str, folder: &Path) -> Result<String> {
    let (mut text, mut rest) = (String::new(), document);
    while let Some((before, behind)) = rest.split_once(BEGIN) {
        let (asked, behind) = behind.split_once(CLOSE).with_context(|| format!("{BEGIN}… has no {CLOSE}"))?;
        let (_, behind) =
            behind.split_once(END).with_context(|| format!("{BEGIN}{asked}{CLOSE} has no {END}"))?;
        let block = generated(asked, folder).with_context(|| format!("{BEGIN}{asked}{CLOSE}"))?;
        text.push_str(&format!("{before}{BEGIN}{asked}{CLOSE}\n\n{block}\n{END}"));
        rest = behind;
    }
    ensure!(!text.is_empty(), "no generated block: write {BEGIN}DIR{CLOSE} and {END} where one belongs");
    Ok(text + rest)
}

fn generated(asked: &str, folder: &Path) -> Result<String> {
    let mut words = asked.split_whitespace();
    let dir = words.next().context("name the folder of a result")?;
    let cells: Vec<&str> = words.collect();
    let result = ResultFile::read(&folder.join(dir))?;
    if let Some(reason) = result.incomplete() {
        bail!("the result is incomplete, and the block would look whole: {reason}");
    }
    let report = Report::from_result(&result);
    if !cells.is_empty() {
        return table(&report, &cells);
    }
    let lines = report.lines();
    ensure!(!lines.is_empty(), "the result has no loads, so a terminal shows no lines");
    Ok(format!("```\n{lines}```\n"))
}

/// The rows of these cells.
fn table(report: &Report<'_>, cells: &[&str]) -> Result<String> {
    let loads = views(report.result);
    let [load] = &loads[..] else { bail!("a table needs a result with one load, not {}", loads.len()) };
    let table = load.beside_json(&load.comparisons());
    // One load has the cells in the order of the result.
    let ids: Vec<&str> = report.result.cells.iter().map(|cell| cell.id.as_str()).collect();
    let row = |cell: &&str| {
        let known = || format!("the result has no cell {cell:?}; it has {}", ids.join(" "));
        Ok(table.rows[ids.iter().position(|id| id == cell).with_context(known)?].clone())
    };
    let rows = cells.iter().map(row).collect::<Result<_>>()?;
    Ok(Table { rows, ..table }.markdown())
}

impl LoadView<'_> {
    /// One row per cell: bytes, relay CPU beyond JSON's, and ratios to JSON without compression. Ratios with a
    /// verdict are bold.
    pub(crate) fn beside_json(&self, comparisons: &[Comparison]) -> Table {
        let resolution = |metric: Metric| {
            let interval = self.control().and_then(|control| self.to_anchor(control, metric)?.interval);
            let heading = format!("{} × JSON", metric.short());
            interval
                .map_or_else(|| heading.clone(), |(low, high)| format!("{heading} (A/A {low:.2}–{high:.2})"))
        };
        let ratios = [Metric::WireBytes, Metric::RelayCpu, Metric::ClientCpu];
        let names =
            ["format", "compression", "wire bytes per envelope", "relay µs per envelope"].map(str::to_owned);
        let headings = names.into_iter().chain(ratios.map(resolution)).collect();
        let row = |view: &CellView<'_>| {
            let mut row = self.labels(view.cell);
            let code = row.split_off(2).join(" ");
            if !code.is_empty() {
                row[0] = format!("{} {code}", row[0]);
            }
            row.push(or_nothing(self.shown(view, Metric::WireBytes)));
            row.push(or_nothing(self.relay_cpu_above_json(view)));
            row.extend(ratios.map(|metric| self.beside_anchor(view, metric, comparisons)));
            row
        };
        Table { names: 2, headings, rows: self.cells.iter().map(row).collect() }
    }

    /// Relay CPU per envelope in microseconds: JSON's own, and what another cell adds to it.
    fn relay_cpu_above_json(&self, view: &CellView<'_>) -> Option<String> {
        let anchor = self.anchor()?;
        if view.cell.role == Role::Anchor {
            return self.shown(anchor, Metric::RelayCpu);
        }
        let json_us = anchor.value(Metric::RelayCpu, self.latency.0)? / Metric::RelayCpu.unit();
        let ratio = self.to_anchor(view, Metric::RelayCpu)?.value;
        Some(format!("{:+.1}", json_us * (ratio - 1.0)))
    }

    fn beside_anchor(&self, view: &CellView<'_>, metric: Metric, comparisons: &[Comparison]) -> String {
        if view.cell.role == Role::Anchor {
            return "1".to_owned();
        }
        let Some(Ratio { value, interval }) = self.to_anchor(view, metric) else { return NOTHING.to_owned() };
        // A verdict is about the reference, which for compressed cells is another one.
        let settled = comparisons.iter().any(|c| {
            let against = self.anchor().is_some_and(|anchor| anchor.cell.id == c.reference);
            let verdict = matches!(c.verdict, Verdict::Better | Verdict::Worse | Verdict::Same);
            c.cell == view.cell.id && c.metric == metric && against && verdict
        });
        let ratio = number::ratio(value);
        let ratio = if settled { format!("**{ratio}**") } else { ratio };
        interval.map_or_else(|| ratio.clone(), |(low, high)| format!("{ratio} [{low:.2}, {high:.2}]"))
    }
}
