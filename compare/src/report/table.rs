//! The table of cells, aligned for a terminal or as Markdown.

use measure::Quantile;

use super::{Merged, Metric, View, merged::Measured, number};
use crate::{CellResult, ResultFile};

/// What stands where nothing was measured or too little to say.
const NOTHING: &str = "–";

/// Rows of text under headings; the first two columns are names, the others numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    headings: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// The table of a result: one row a cell, ratios to JSON without compression behind the numbers.
pub fn table(result: &ResultFile) -> Table {
    let view = View::new(result);
    let mut headings = vec!["format".to_owned(), "compression".to_owned()];
    headings.extend(Metric::ALL.map(|metric| metric.heading().to_owned()));
    headings.extend(["valid".to_owned(), "ledger".to_owned()]);
    let base = view.base();
    let row = |index: usize| {
        let (cell, merged) = &view.cells[index];
        let mut row = vec![cell.cell.format.clone(), cell.cell.compression.clone()];
        for metric in Metric::ALL {
            let ratio = base.and_then(|base| view.ratio(index, base, metric));
            let value = shown(metric, merged, view.latency.0);
            // A ratio of something that cannot be shown would be a number from nowhere.
            row.push(match ratio.filter(|_| value != NOTHING) {
                Some(ratio) => format!("{value} {}", number::ratio(ratio.value)),
                None => value,
            });
        }
        row.push(format!("{}/{}", merged.blocks, cell.blocks.len()));
        row.push(ledger(cell));
        row
    };
    Table { headings, rows: (0..view.cells.len()).map(row).collect() }
}

fn shown(metric: Metric, merged: &Merged, latency: &str) -> String {
    let nothing = || NOTHING.to_owned();
    if let Some(q) = metric.quantile() {
        let ms = |ns: u64| number::three(ns as f64 / 1e6);
        return match merged.quantile(latency, q) {
            Quantile::Exact(ns) => ms(ns),
            Quantile::Bracketed(ns) => format!("[{}]", ms(ns)),
            Quantile::Missing => nothing(),
        };
    }
    let unit = match metric {
        Metric::RelayCpu | Metric::ClientCpu => 1e3,
        _ => 1.0,
    };
    metric.value(&Measured::merged(merged, latency)).map_or_else(nothing, |value| number::three(value / unit))
}

/// Whether every block of the cell that left a record accounts for everything, unusable ones included.
fn ledger(cell: &CellResult) -> String {
    let records = cell.blocks.iter().filter_map(|block| block.record.as_ref());
    let (mut seen, mut off) = (0, 0);
    for record in records {
        seen += 1;
        off += usize::from(record.counts.balanced().is_err());
    }
    match (seen, off) {
        (0, _) => NOTHING.to_owned(),
        (_, 0) => "balanced".to_owned(),
        _ => format!("{off} off"),
    }
}

impl Table {
    /// Columns aligned with spaces, for a terminal.
    pub fn text(&self) -> String {
        let lines = || std::iter::once(&self.headings).chain(&self.rows);
        let width = |column: usize| lines().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.headings.len()).map(width).collect();
        let mut text = String::new();
        for line in lines() {
            let mut fields = String::new();
            for (column, (field, width)) in line.iter().zip(&widths).enumerate() {
                match column {
                    0 => fields.push_str(&format!("{field:<width$}")),
                    1 => fields.push_str(&format!("  {field:<width$}")),
                    _ => fields.push_str(&format!("  {field:>width$}")),
                }
            }
            text.push_str(fields.trim_end());
            text.push('\n');
        }
        text
    }

    /// A Markdown table with numbers on the right.
    pub fn markdown(&self) -> String {
        let line = |fields: &[String]| format!("| {} |\n", fields.join(" | "));
        let alignment = |column: usize| if column < 2 { "---" } else { "---:" }.to_owned();
        let alignments: Vec<String> = (0..self.headings.len()).map(alignment).collect();
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        line(&self.headings) + &line(&alignments) + &rows
    }
}
