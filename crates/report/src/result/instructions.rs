//! What `compare instructions` counted.

use std::path::Path;

use anyhow::Result;
use measure::Tool;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::unfinished::write_json;

/// The smallest difference that has a verdict, as a share, where two counts of the same differ by
/// less.
pub const RESOLUTION: f64 = 0.002;

/// Counts of instructions, and their conditions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Instructions {
    /// [`measure::SCHEMA_VERSION`] of the writer.
    pub schema_version: String,
    /// The program that wrote this.
    pub tool: Tool,
    /// Conditions that change counts of the same source.
    pub conditions: Conditions,
    /// The counts, in the order in which they were made.
    pub rows: Vec<Row>,
}

/// Conditions that change the counts of the same source: counts compare only when these are the
/// same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Conditions {
    /// The compiler of the program that was counted.
    pub rustc: Option<String>,
    /// Whether it optimised.
    pub optimised: bool,
    /// Valgrind's version.
    pub valgrind: String,
    /// The C library, whose `memcpy` and `malloc` are counted too.
    pub libc: String,
    /// The processor's instruction set as far as code chooses by it.
    pub processor: String,
}

/// One section of the program that was counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// The name of a hot path, or of a cell and a part of its play.
    pub name: String,
    /// The divisor of the counts: deliveries, events or messages.
    pub units: u64,
    /// Instructions of the relay's side for each.
    pub relay: f64,
    /// Instructions of the clients' side for each.
    pub client: f64,
    /// The larger difference of the two sides between two counts, as a share.
    pub repeat_difference: f64,
}

impl Instructions {
    /// Reads a file.
    ///
    /// # Errors
    /// When it is missing or has another layout.
    pub fn read(path: &Path) -> Result<Instructions> {
        Ok(measure::read_versioned(path, "count of instructions")?)
    }

    /// Writes a file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, file: &Path) -> Result<()> {
        write_json(file, self)
    }

    /// The row of that name.
    pub fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// The largest difference between two counts of the same, as a share.
    pub fn repeat_difference(&self) -> f64 {
        self.rows.iter().map(|row| row.repeat_difference).fold(0.0, f64::max)
    }
}
