//! How long do users wait, how many bytes cross the wire and what does it cost in CPU, when a
//! scenario is played against a relay?
//!
//! The [`swarm`] plays a [`workload::Workload`] against a relay, the [`client::ledger`] proves that
//! every planned event and every expected delivery is accounted for, and a [`measure::RunRecord`]
//! holds the measurements. The words are those of `docs/glossary.md`.

pub mod args;
mod cli;
pub mod dial;
mod doctor;
mod driver;
mod first_delivery;
mod floor;
mod interruption;
mod light;
mod links;
mod meet;
mod memory;
mod meters;
pub mod metrics;
mod opening;
mod outputs;
pub mod own_relay;
#[cfg_attr(not(target_os = "linux"), path = "pacer_elsewhere.rs")]
mod pacer;
#[cfg(all(test, target_os = "linux"))]
mod pacer_elsewhere;
mod patience;
mod play;
mod prepare;
mod progress;
mod record;
mod relay_pids;
mod resources;
mod run;
mod serve;
pub mod share;
mod summary;
pub mod swarm;
mod worker;

pub use self::cli::main;
