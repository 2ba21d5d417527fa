//! Relay and clients in one thread, from a seed, without a socket or a clock.
//!
//! [`instructions`] is what `compare instructions` counts. `simulation`, which is its own test,
//! puts a hostile network between both ends and compares the ledger with what crossed it.

pub mod instructions;
#[cfg(test)]
mod simulation;
