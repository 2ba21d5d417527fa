//! The browser whose pages played the blocks of `compare browser`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The browser, how it ran, and what was in its page.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Browser {
    /// `browser`: headless on the host.
    pub client: String,
    /// Its name and version.
    pub product: String,
    /// Command-line flags, without folders.
    pub flags: Vec<String>,
    /// Whether the engine has `Uint8Array.prototype.toHex`; rows make hex by a table otherwise.
    pub has_to_hex: bool,
    /// By how much the page's clock moves at a time, in nanoseconds.
    pub clock_ns: u64,
    /// Least time of a measured step, in milliseconds.
    pub step_ms: u32,
    /// The packages in the page's script, with their versions.
    pub libraries: BTreeMap<String, String>,
    /// How many events each set has.
    pub events: BTreeMap<String, u64>,
}
