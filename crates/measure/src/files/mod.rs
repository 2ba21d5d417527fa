//! Files that are written whole, and read packed.

pub(crate) mod output;
pub(crate) mod unpack;
