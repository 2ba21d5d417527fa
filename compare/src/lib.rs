//! Which wire format, with which compression, and what would it buy?
//!
//! A [`Plan`] orders the cells of a matrix at random within each round, [`run`](run::run) measures
//! every cell in fresh processes, and what was measured is a [`ResultFile`], from which [`report`]
//! derives figures, tables and verdicts. Measuring and rendering meet only in that file: nothing in
//! `report` starts a process, nothing in `run` renders.
//!
//! To add a column, add a variant to [`merged::Metric`]. To add a profile, add a variant to
//! [`Profile`].

mod args;
mod assemble;
pub mod bandwidths;
pub mod bracket;
pub mod browser;
pub mod cli;
pub mod count;
pub mod crossing;
pub mod generator;
mod git;
mod grants;
mod matrix;
pub mod merged;
pub mod metrics;
pub mod over_agents;
pub mod own_core;
mod plan;
mod precision;
mod probe;
pub mod progress;
pub mod rate;
pub mod reference;
mod relay_agent;
pub mod report;
pub mod result;
pub mod rounds;
pub mod run;
pub mod search;
pub mod selftest;
pub mod slo;
mod stats;
pub mod this_machine;
mod usage;
mod watched;

pub use assemble::assemble;
pub use matrix::{CellSpec, Matrix, OverLinks, UnknownName, cells};
pub use plan::{Plan, Profile};
pub use result::{
    Block, CellResult, Config, Foreign, Git, Header, PlannedRounds, RESULT_FILE, ResultFile, Role,
};
