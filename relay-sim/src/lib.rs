//! A Nostr relay in every wire format, made to measure its cost.
//!
//! [`serve`] is the relay: NIP-01 with everything in memory, or in a directory ([`StoreConfig`]),
//! fast enough that a measurement shows the format. [`Config`] has its settings, [`Totals`] its counts.
//!
//! One task owns a connection (`session.rs`) and drives its [`machine::Connection`], which has no
//! socket and no clock. That decodes, asks its `Peer` (`peer.rs`, no bytes) what to answer, and
//! encodes. All peers share the store and the subscriptions behind one lock (`relay.rs`); live
//! events go to each connection through its bounded outbox (`fanout/`). A reconciliation (NIP-77)
//! belongs to its connection (`reconcile.rs`). `floor.rs` is a relay that does no Nostr work, for
//! comparison; `benches/floor` makes one.
//!
//! `fault/` misbehaves on request, so that a test of an instrument or of a client has something to
//! find; `control.rs` lets such a test replace the faults while the relay runs.
//!
//! To add a rule of the protocol, change `peer.rs` or `store.rs`; to add a setting, change
//! `config.rs` and `args.rs`; to count something, add a line in `totals.rs`.

mod args;
mod auth;
mod cli;
mod committer;
mod config;
mod control;
mod fanout;
mod fault;
pub mod floor;
pub mod machine;
mod nip11;
mod outgoing;
mod peer;
mod reconcile;
mod refused;
mod relay;
mod server;
mod session;
mod store;
#[cfg(test)]
mod testing;
mod totals;

pub use args::DEFAULT_ADDRESS;
pub use cli::{Announcement, Refusal, main};
pub use config::{Config, ReconcileLimits};
pub use fault::{Fault, UnknownFault};
pub use server::serve;
pub use store::{StoreConfig, StoreError};
pub use terms::{BatchLimits, Reencode};
pub use totals::Totals;
pub use wire::{Flow, Traffic};
