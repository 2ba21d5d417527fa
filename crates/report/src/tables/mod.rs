//! Tables, and the sentences that stand above them.

pub(crate) mod agents;
pub(crate) mod browser;
pub(crate) mod check;
pub(crate) mod floor;
pub(crate) mod instructions;
pub(crate) mod limits;
pub(crate) mod links;
pub(crate) mod slos;
pub(crate) mod table;
