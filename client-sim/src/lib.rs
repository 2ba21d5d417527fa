//! How long do users wait, how many bytes cross the wire and what does it cost in CPU, when a
//! scenario is played against a relay?
//!
//! The [`swarm`] plays a [`workload::Workload`] against a relay, the [`client::ledger`] proves that
//! every planned event and every expected delivery is accounted for, and a [`measure::RunRecord`]
//! holds the measurements. The words are those of `docs/glossary.md`.

pub mod args;
mod cli;
mod commands;
mod interruption;
mod links;
pub mod metrics;
mod outcome;
mod relays;
pub mod share;
mod sockets;

pub use self::{
    cli::main,
    commands::doctor::{answers, examine},
    links::record as link_record,
    relays::own_relay,
    sockets::{dial, swarm},
};
