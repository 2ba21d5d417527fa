//! The page of a result or of one run, and its renderings.

pub(crate) mod explorer;
pub(crate) mod export;
pub(crate) mod logs;
pub(crate) mod model;
pub(crate) mod part;
pub(crate) mod provenance;
pub(crate) mod reading;
pub(crate) mod run;
pub(crate) mod sentences;
pub(crate) mod site;
pub(crate) mod splice;
pub(crate) mod summary;
pub(crate) mod text;
pub(crate) mod throughput;
