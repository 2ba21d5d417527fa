//! The relay's part of one record, read by its own host while agents play a block.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{read_versioned, write_line};
use crate::{Allocations, CpuTime, EncodingsRecord, Environment, RecordError, RelayProcess, Tool};

/// Readings of a relay's CPU clock at most: some 100 KB in a file.
const MOST_READINGS: usize = 1 << 10;

/// A relay's side of a block that agents played against it, as its own host read it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RelayRecord {
    /// [`crate::SCHEMA_VERSION`] of the writer.
    pub schema_version: String,
    /// The program that wrote this.
    pub tool: Tool,
    /// The machine.
    pub environment: Environment,
    /// Which play of a block it is, as the coordinator names it.
    pub block_id: Option<String>,
    /// SHA-256 of the plan in hex.
    pub plan_sha256: String,
    /// The process.
    pub process: RelayProcess,
    /// Cores that it can keep busy.
    pub cores: u64,
    /// CPU time since the plan's time zero.
    pub cpu: CpuReadings,
    /// Its resident memory when all connections were open.
    pub memory_bytes: Option<u64>,
    /// The most that it ever had.
    pub memory_peak_bytes: Option<u64>,
    /// Deliveries by the source of the event's bytes.
    pub encodings: Option<EncodingsRecord>,
    /// Compression memory per connection.
    pub compression_bytes_per_connection: Option<u64>,
    /// Compression memory per thread.
    pub compression_shared_bytes: Option<u64>,
    /// Its allocations, in builds that count them.
    pub allocations: Option<Allocations>,
    /// [`crate::cpu_pressure_percent`] of its machine at the end.
    pub cpu_pressure_percent: Option<f64>,
}

/// CPU time of a process at several instants after the plan's last. Its host does not know when the agents
/// are done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuReadings(Vec<(u64, CpuTime)>);

impl CpuReadings {
    /// Adds a reading, taken `after_ns` after time zero. If there are too many, half of them are dropped and
    /// the result is true: take the next ones half as often.
    pub fn add(&mut self, after_ns: u64, spent: CpuTime) -> bool {
        let is_full = self.0.len() >= MOST_READINGS;
        if is_full {
            let mut place = 0;
            self.0.retain(|_| {
                place += 1;
                place % 2 == 0
            });
        }
        self.0.push((after_ns, spent));
        is_full
    }

    /// CPU time at the first reading at or after this instant.
    pub(crate) fn at(&self, after_ns: u64) -> Option<CpuTime> {
        self.0.iter().find(|(read_ns, _)| *read_ns >= after_ns).map(|(_, spent)| *spent)
    }
}

impl RelayRecord {
    /// Reads a relay's part.
    ///
    /// # Errors
    /// [`RecordError`]; each names the file.
    pub fn read(path: &Path) -> Result<RelayRecord, RecordError> {
        read_versioned(path, "relay's part of a record")
    }

    /// Writes it as JSON.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn write(&self, path: &Path) -> Result<(), RecordError> {
        write_line(path, self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(total_ns: u64) -> CpuTime {
        CpuTime { total_ns, ..CpuTime::default() }
    }

    #[test]
    fn what_was_spent_until_the_end_is_the_next_reading() {
        let mut readings = CpuReadings::default();
        for n in 1..=3 {
            assert!(!readings.add(n * 10, spent(n)));
        }
        for (after_ns, expected) in [(0, Some(1)), (10, Some(1)), (11, Some(2)), (30, Some(3)), (31, None)] {
            assert_eq!(readings.at(after_ns), expected.map(spent), "{after_ns}");
        }
    }

    #[test]
    fn readings_are_bounded_and_become_rarer() {
        let mut readings = CpuReadings::default();
        let mut halved = 0;
        for n in 0..10_000 {
            halved += usize::from(readings.add(n, spent(n)));
            assert!(readings.0.len() <= MOST_READINGS);
        }
        assert_eq!(readings.at(9_999), Some(spent(9_999)));
        assert!(halved > 10 && readings.0.is_sorted_by_key(|(read_ns, _)| *read_ns), "{halved}");
    }
}
