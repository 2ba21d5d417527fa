//! From a result to tables, figures, verdicts and `derived.json`: pure functions of the result
//! file, which is defined here ([`result`]). Nothing in this crate starts a process or opens a
//! socket.
//!
//! To add a column, add a variant to [`merged::Metric`].

mod agents;
mod answer;
pub mod bracket;
mod break_even;
mod browser;
mod check;
mod comparison;
pub mod crossing;
mod derived;
mod diff;
mod dispersion;
mod export;
mod family;
mod figures;
mod floor;
mod found;
mod gallery;
mod gate;
mod html;
mod instructions;
mod judge;
mod likeness;
mod limits;
mod links;
mod logs;
pub mod merged;
mod model;
mod number;
mod page;
mod part;
pub mod power;
pub mod precision;
mod provenance;
mod reading;
pub mod reference;
pub mod result;
mod run;
mod sentences;
pub mod slo;
mod slos;
mod splice;
pub mod stats;
mod steady;
mod summary;
mod table;
mod text;
mod throughput;
mod utilisation;
mod view;
mod warmth;

pub use browser::PageFigures;
pub use check::{Check, FAILS, Outcome, check, unsteady};
pub use comparison::deviations;
pub use comparison::{Comparison, Family, Verdict};
pub use derived::{CellFigures, DERIVED_FILE, DERIVED_SCHEMA_VERSION, Derived, comparisons};
pub use diff::{Change, Diff, diff, of_other_kinds, unlike};
pub use export::github_action_benchmark;
pub use figures::{Bar, Bars, bars};
pub use floor::AboveFloor;
pub use gate::{FailOn, Judged, between_relays, rounds_to_fail};
pub use html::html;
pub use logs::{write_intervals, write_percentiles, write_pictures};
pub use model::Report;
pub use number::grouped;
pub use result::{
    Block, CellResult, Config, Foreign, Git, Header, PlannedRounds, RESULT_FILE, ResultFile, Role,
};
pub use run::run_html;
pub use splice::splice;
pub use steady::Steadiness;
pub use summary::{summary, terminal, terminal_of};
pub use table::Table;
pub use utilisation::Utilisation;
