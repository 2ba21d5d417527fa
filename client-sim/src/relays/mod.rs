//! The relay of a run: its process, and what it takes.

pub(crate) mod disk;
pub(crate) mod meet;
pub(crate) mod memory;
pub(crate) mod meters;
pub mod own_relay;
pub(crate) mod relay_pids;
