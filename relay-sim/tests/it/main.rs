//! The relay over real sockets: `serve` on a free port, with our own clients, scripted peers and
//! real programs.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod allocations;
mod common;
mod faults;
mod hostile;
mod processes;
mod real_clients;
mod reconcile;
mod record;
mod resources;
mod sessions;
mod store;
