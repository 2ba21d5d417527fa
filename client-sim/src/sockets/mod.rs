//! Plays a plan's clients over sockets.

pub mod dial;
pub(crate) mod driver;
pub(crate) mod opening;
#[cfg_attr(not(target_os = "linux"), path = "pacer_elsewhere.rs")]
pub(crate) mod pacer;
pub(crate) mod patience;
pub(crate) mod prepare;
pub(crate) mod progress;
pub(crate) mod resources;
pub mod swarm;
pub(crate) mod worker;
