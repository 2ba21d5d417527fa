//! From a result to tables, figures, verdicts and `derived.json`: pure functions of the result
//! file, which is defined here ([`result`]). Nothing in this crate starts a process or opens a
//! socket.
//!
//! To add a column, add a row to the table of metrics ([`metric`]).

mod derived;
mod diff;
pub mod merged;
pub mod metric;
mod number;
mod pages;
pub mod plan;
pub mod reference;
pub mod result;
pub mod slo;
mod statistics;
mod tables;
mod utilisation;
mod verdicts;
mod view;

pub use derived::{CellFigures, DERIVED_FILE, DERIVED_SCHEMA_VERSION, Derived, comparisons};
pub use diff::{Change, Diff, diff, since, unlike};
pub use number::{grouped, rounds};
pub use pages::export::observations;
pub use pages::logs::write_intervals;
pub use pages::model::Report;
pub use pages::run::{run_html, run_text};
pub use pages::site::Site;
pub use pages::splice::splice;
pub use pages::summary::{summary, terminal, terminal_of};
pub use result::{Block, CellResult, Config, Foreign, Git, PlannedRounds, RESULT_FILE, ResultFile, Role};
pub use statistics::{bracket, power, precision, stats, steady::Steadiness};
pub use tables::check::{Check, check, unsteady};
pub use tables::floor::AboveFloor;
pub use tables::table::Table;
pub use utilisation::Utilisation;
pub use verdicts::comparison::deviations;
pub use verdicts::comparison::{Comparison, Family, Verdict};
pub use verdicts::gate::{FailOn, Judged, between_relays, rounds_to_fail};
