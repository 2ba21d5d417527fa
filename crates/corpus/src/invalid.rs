//! Records in a file that are no valid events.

use std::fmt;

use codecs::hex;

/// Skipped records that are named.
const NAMED: usize = 3;

/// A record of a file that is no valid event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// Line from 1, in formats that have lines.
    pub line: Option<u64>,
    /// Start in the decompressed stream.
    pub offset_bytes: u64,
    /// The id that it states, if it is an event.
    pub id: Option<[u8; 32]>,
    /// The reason why it is invalid.
    pub reason: String,
    /// Position in formats without lines.
    pub(crate) place: String,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}")?,
            None => f.write_str(&self.place)?,
        }
        match &self.id {
            Some(id) => write!(f, ", event {}: {}", hex::encode(id), self.reason),
            None => write!(f, ": {}", self.reason),
        }
    }
}

/// Records that a command left out because they are no valid events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Skipped {
    count: u64,
    first: Vec<String>,
}

impl Skipped {
    /// Number of invalid records.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Counts one.
    pub fn add(&mut self, invalid: &Invalid) {
        self.count += 1;
        if self.first.len() < NAMED {
            self.first.push(invalid.to_string());
        }
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} skipped that are not valid events ({}", self.count, self.first.join("; "))?;
        f.write_str(if self.count > NAMED as u64 { "; …)" } else { ")" })
    }
}
