//! Which wire format, with which compression, and what would it buy?
//!
//! A [`BlockOrder`] orders the cells of a matrix at random within each round, [`run`](run::run)
//! measures every cell in fresh processes, and what was measured is a [`report::ResultFile`], from
//! which the crate `report` derives figures, tables and verdicts. Measuring and rendering meet only
//! in that file.
//!
//! To add a profile, add a variant to [`Profile`].

mod args;
mod assemble;
mod browser;
pub mod cli;
mod count;
pub mod generator;
mod git;
mod grants;
mod junit;
mod matrix;
pub mod metrics;
mod outline;
pub mod over_agents;
pub mod pilot;
mod plan;
mod primary;
mod probe;
pub mod progress;
mod relay_agent;
mod relays;
pub mod rounds;
pub mod run;
pub mod search;
pub mod selftest;
mod strfry;
pub mod this_machine;
mod usage;
mod watched;

pub use assemble::assemble;
pub use matrix::{CellSpec, Matrix, OverLinks, cells};
pub use plan::{BlockOrder, Profile};
pub use relays::{KEEPER_ROLE, keep};
