//! From a result to tables and verdicts: pure functions, the same text from the same file for ever.

mod comparison;
mod diff;
mod figures;
mod html;
mod logs;
mod merged;
mod number;
mod summary;
mod table;
mod view;

pub use comparison::{BAND, Comparison, Verdict};
pub use diff::{Change, Diff, diff, unlike};
pub use html::html;
pub use logs::write_logs;
pub use merged::{Merged, Metric};
pub use summary::{summary, terminal};
pub use table::Table;

pub(crate) use view::{LoadView, views};

use crate::ResultFile;

/// Each cell of a result against its reference, for every judged metric.
pub fn comparisons(result: &ResultFile) -> Vec<Comparison> {
    views(result).iter().flat_map(LoadView::comparisons).collect()
}
