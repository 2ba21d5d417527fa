//! What a run counts and times while it goes.

pub(crate) mod counts;
pub(crate) mod encodings;
pub(crate) mod latency;
pub(crate) mod live;
pub mod log;
pub(crate) mod slices;
pub(crate) mod spans;
pub(crate) mod throughput;
