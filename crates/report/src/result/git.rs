//! Which source tree a result belongs to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The source tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Git {
    /// The commit in full.
    pub commit: String,
    /// True when tracked files differed from it.
    pub dirty: bool,
}
