//! What does a relay gain by compressions and formats that it does not speak?
//!
//! A [`Gateway`] stands before a relay and [`serve`]s its clients. One client has one connection to
//! the relay. A client that asks for nothing of ours gets the relay's bytes as they are
//! (`tunnel.rs`). For others both legs are negotiated alone (`session.rs`): messages are written in
//! the client's format (`transcode.rs`), and what many clients receive is encoded and compressed
//! once (`cache.rs`). docs/gateway.md states what passes, what is held and whom to trust.
//!
//! To add a rule about requests, change `request.rs`; to count something, add a line in
//! `metrics.rs`; to add a flag, change `config.rs`.

#![warn(missing_docs)]

mod cache;
mod cli;
mod config;
mod document;
mod metrics;
mod network;
mod request;
mod server;
mod session;
mod shared;
mod shunned;
mod transcode;
mod tunnel;

pub use cli::main;
pub use config::Config;
pub use server::serve;
pub use shared::Gateway;
