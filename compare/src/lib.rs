//! Which wire format, with which compression, and what would it buy?
//!
//! A [`Plan`] orders the cells of a matrix at random within each round, [`run`](run::run) measures every cell in fresh
//! processes, and what came out is a [`ResultFile`], from which [`report`] renders tables and verdicts. Measuring and
//! rendering meet only in that file: nothing in `report` starts a process, nothing in `run` renders.
//!
//! To add a column, add a variant to [`report::Metric`]. To add a profile, add a variant to [`Profile`].

mod args;
pub mod cli;
mod git;
mod matrix;
mod plan;
pub mod progress;
pub mod report;
mod result;
pub mod run;
pub mod search;
pub mod selftest;
pub mod slo;
mod stats;

pub use matrix::{CellSpec, Known, Matrix, Role, UnknownName, cells};
pub use plan::{Plan, Profile};
pub use result::{Block, CellResult, Config, Git, Header, RESULT_FILE, ResultFile};
