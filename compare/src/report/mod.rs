//! From a result to tables, figures, verdicts and `derived.json`: pure functions of the result
//! file.

mod agents;
mod answer;
mod break_even;
mod browser;
mod check;
mod comparison;
mod derived;
mod diff;
mod export;
mod figures;
mod html;
mod instructions;
mod judge;
mod likeness;
mod limits;
mod links;
mod logs;
mod number;
mod provenance;
mod reading;
mod readme;
mod slos;
mod steady;
mod summary;
mod table;
mod text;
mod utilisation;
mod view;
mod warmth;

pub use browser::PageFigures;
pub use check::{Check, FAILS, Outcome, check, unsteady};
pub(crate) use comparison::deviations;
pub use comparison::{Comparison, Verdict, comparisons};
pub use derived::{CellFigures, DERIVED_FILE, DERIVED_SCHEMA_VERSION, Derived};
pub use diff::{Change, Diff, diff, of_other_kinds, unlike};
pub use export::github_action_benchmark;
pub use html::html;
pub use logs::{write_intervals, write_percentiles, write_pictures};
pub use readme::refreshed;
pub use steady::Steadiness;
pub use summary::{summary, terminal, terminal_of};
pub use table::Table;
pub use utilisation::Utilisation;
