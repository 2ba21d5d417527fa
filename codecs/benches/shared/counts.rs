//! What `codec-allocations` tells `codec-report`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What an event costs in allocations, in the mean.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Counts {
    pub(crate) format: String,
    pub(crate) by: String,
    /// `None`: all events.
    pub(crate) kind: Option<u16>,
    /// Into a buffer that is large enough.
    pub(crate) encode: Count,
    /// Into an event that owns everything.
    pub(crate) owned: Count,
    /// Into owned text in one piece.
    pub(crate) flat: Count,
    /// A checked view, nothing read from it.
    pub(crate) view: Count,
}

/// Calls of the allocator and the bytes asked of it, an event.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Count {
    pub(crate) allocations: f64,
    pub(crate) bytes: f64,
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{:.1} / {:.0}", self.allocations, self.bytes))
    }
}
