//! A command a file.

pub(crate) mod doctor;
pub(crate) mod floor;
pub(crate) mod play;
pub(crate) mod run;
pub(crate) mod serve;
