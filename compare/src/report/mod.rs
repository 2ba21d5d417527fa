//! From a result to tables and verdicts: pure functions, the same text from the same file for ever.

mod logs;
mod merged;
mod number;
mod ratio;
mod summary;
mod table;

pub use logs::write_logs;
pub use merged::{Merged, Metric};
pub use ratio::{Ratio, Verdict};
pub use summary::{summary, terminal};
pub use table::{Table, table};

use crate::{CellResult, ResultFile, matrix};

/// What stands in the latency columns, best known first: the first that any usable block has samples of.
const LATENCIES: [(&str, &str); 3] = [
    ("response", "from the instant an event was due to its delivery"),
    ("publish_ok", "from the instant an event was due to the relay's OK"),
    ("eose", "from the instant a request was due to the end of its stored events"),
];

/// The cells of a result with their usable blocks merged.
pub(crate) struct View<'a> {
    pub(crate) result: &'a ResultFile,
    pub(crate) cells: Vec<(&'a CellResult, Merged)>,
    /// The metric of the latency columns, and what it means.
    pub(crate) latency: (&'static str, &'static str),
}

impl<'a> View<'a> {
    pub(crate) fn new(result: &'a ResultFile) -> View<'a> {
        let merge =
            |cell: &'a CellResult| (cell, Merged::of(cell.blocks.iter().filter_map(|block| block.usable())));
        let cells: Vec<(&CellResult, Merged)> = result.cells.iter().map(merge).collect();
        let measured = |name: &str| {
            cells
                .iter()
                .any(|(_, merged)| merged.latency.get(name).is_some_and(|latency| !latency.is_empty()))
        };
        let latency = LATENCIES.into_iter().find(|(name, _)| measured(name)).unwrap_or(LATENCIES[0]);
        View { result, cells, latency }
    }

    /// The index of a cell by the names of its format and compression.
    pub(crate) fn find(&self, format: &str, compression: &str) -> Option<usize> {
        self.cells
            .iter()
            .position(|(cell, _)| cell.cell.format == format && cell.cell.compression == compression)
    }

    /// JSON without compression, to which the ratios of the table refer.
    pub(crate) fn base(&self) -> Option<usize> {
        self.find(matrix::BASE_FORMAT, matrix::BASE_COMPRESSION)
    }

    /// The ratio of two cells of this view.
    pub(crate) fn ratio(&self, cell: usize, base: usize, metric: Metric) -> Option<Ratio> {
        Ratio::of(&self.cells[cell], &self.cells[base], metric, self.latency.0)
    }
}
