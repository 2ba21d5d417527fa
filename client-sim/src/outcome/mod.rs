//! What a run leaves: its record, its summary and its files.

pub(crate) mod outputs;
pub(crate) mod record;
pub(crate) mod summary;
