//! What the kernel tells of processes, cores and the machine.

pub(crate) mod allocations;
pub mod cores;
pub(crate) mod cpu;
pub(crate) mod environment;
pub(crate) mod helper;
pub(crate) mod host;
#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "elsewhere.rs")]
pub(crate) mod platform;
pub(crate) mod processes;
pub(crate) mod quota;
mod stat;
