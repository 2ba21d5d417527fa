//! What numbers alone say: intervals, tests, searches for a rate, and how steady they are.

pub mod bracket;
pub(crate) mod judge;
pub mod power;
pub mod precision;
pub mod stats;
pub(crate) mod steady;
