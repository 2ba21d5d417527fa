//! External relays that a run starts beside each other (`--relay`): a process for every block, in
//! a folder of its own.

mod command;
mod keeper;
mod started;

pub(crate) use command::{read, refusal};
pub use keeper::{KEEPER_ROLE, main as keep};
pub(crate) use started::{Started, on_cores};
