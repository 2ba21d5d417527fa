//! The agents' records of a block, of which one record of all is made.

use std::{fs, path::Path};

use agents::Ending;
use anyhow::{Result, anyhow};
use measure::{ClockRecord, Exit, Merge, RelayRecord, parse_versioned};

use crate::generator::Played;

/// The agents' records of a block, of which one is held at a time.
pub(super) struct Records<'a> {
    /// Where the record of all goes, and next to it each agent's that stays.
    file: &'a Path,
    /// How many agents play; who is behind them started the relay.
    of: u16,
    /// Whether the agents' own stay, whatever becomes of the block.
    keeps_all: bool,
    sum: Result<Merge, String>,
    relay: Option<RelayRecord>,
    /// The gravest: of a player that ended early, then of a ledger, then of times.
    exit_code: i32,
    unwritten: Option<anyhow::Error>,
}

impl Records<'_> {
    pub(super) fn new(file: &Path, of: u16, keeps_all: bool) -> Records<'_> {
        Records { file, of, keeps_all, sum: Ok(Merge::default()), relay: None, exit_code: 0, unwritten: None }
    }

    pub(super) fn take(&mut self, index: u16, ending: &Ending) {
        if let Err(reason) = self.add(index, &ending.record) {
            self.sum = Err(reason);
        }
        let incomplete = Exit::Incomplete.code().into();
        self.exit_code = self.exit_code.max(ending.exit_code.unwrap_or(incomplete));
        // Nothing else stays of a record that is in no sum.
        if self.keeps_all || self.sum.is_err() {
            let who = if index < self.of { format!("agent-{index}") } else { "relay".to_owned() };
            let own = self.file.with_extension(format!("{who}.json"));
            if let Err(error) = fs::write(&own, &ending.record) {
                self.unwritten = Some(anyhow!(error).context(format!("cannot write {}", own.display())));
            }
        }
    }

    fn add(&mut self, index: u16, json: &[u8]) -> Result<(), String> {
        let Ok(sum) = &mut self.sum else { return Ok(()) };
        if index < self.of {
            let record = parse_versioned(json, &format!("what agent {index} sent"), "record");
            let record = record.map_err(|error| format!("{:#}", anyhow!(error)))?;
            return sum.add(record).map_err(|error| error.to_string());
        }
        let relay = parse_versioned(json, "what the relay's agent sent", "relay's part of a record");
        self.relay = Some(relay.map_err(|error| format!("{:#}", anyhow!(error)))?);
        Ok(())
    }

    /// Makes one record of all agents', who may have other names for the file of events. The clock
    /// of the relay's agent is behind theirs.
    pub(super) fn merge(self, clocks: &[ClockRecord], corpus_name: &str) -> Result<Played> {
        if let Some(error) = self.unwritten {
            return Err(error);
        }
        let finish = |sum: Merge| match &self.relay {
            Some(relay) => sum.finish_with(relay),
            None => sum.finish(),
        };
        let merged = self.sum.and_then(|sum| finish(sum).map_err(|error| error.to_string()));
        let mut merged = match merged {
            Ok(merged) => merged,
            Err(reason) => return Ok(unmerged(&reason)),
        };
        corpus_name.clone_into(&mut merged.corpus.name);
        for (agent, clock) in merged.agents.iter_mut().zip(clocks) {
            agent.clock = Some(*clock);
        }
        if let Some(relay) = &mut merged.relay {
            relay.clock = clocks.get(usize::from(self.of)).copied();
        }
        merged.write(self.file)?;
        Ok(Played { exit_code: Some(self.exit_code), ..Played::default() })
    }
}

fn unmerged(reason: &str) -> Played {
    let failure = Some(format!("the agents' records do not make one: {reason}"));
    Played { failure, ..Played::default() }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::{Compression, read::GzEncoder};
    use measure::{RunRecord, SCHEMA_VERSION};
    use serde_json::{Value, json};

    use super::*;

    fn ended(record: impl Into<Vec<u8>>) -> Ending {
        Ending { exit_code: Some(0), record: record.into() }
    }

    fn packed(json: &str) -> Vec<u8> {
        let mut packed = Vec::new();
        GzEncoder::new(json.as_bytes(), Compression::default()).read_to_end(&mut packed).unwrap();
        packed
    }

    /// The record of the one agent of a block.
    fn share() -> Value {
        let mut record: Value =
            serde_json::from_str(include_str!("../../../crates/measure/tests/record.json")).unwrap();
        record["schema_version"] = SCHEMA_VERSION.into();
        record["share"] = json!({
            "index": 0, "of": 1, "plan_sha256": "00", "started_late_ns": 0, "active_spans_ns": [[0, 100]],
            "throughput_spans_ns": [[0, 100]], "wanted_interval_ns": 100_000_000,
            "intervals": {"interval_ns": 10_000_000, "counts": [[1, 0, 1]]},
            "burst_sends": 0, "pace": null, "expected": [],
        });
        record
    }

    /// The part of that agent's relay.
    fn relay() -> Value {
        let process = json!({"pid": 1, "software": "relay-sim", "version": "0", "own": true});
        json!({
            "schema_version": SCHEMA_VERSION, "tool": {"name": "client-sim", "version": "0.1.0"},
            "environment": {"cores": 2, "optimised": true}, "plan_sha256": "00", "process": process,
            "cores": 1, "cpu": [],
        })
    }

    fn names(folder: &Path) -> Vec<String> {
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn the_gravest_exit_code_is_the_blocks() {
        for (codes, expected) in [
            (vec![Some(0), Some(3)], 3),
            (vec![Some(4), Some(3), Some(0)], 4),
            (vec![Some(4), Some(5)], 5),
            (vec![Some(0), None], 5),
        ] {
            let mut records = Records::new(Path::new("x"), 3, false);
            for exit_code in codes {
                records.sum = Ok(Merge::default());
                let ending = Ending { exit_code, record: share().to_string().into_bytes() };
                records.take(0, &ending);
            }
            assert_eq!(records.exit_code, expected);
        }
    }

    #[test]
    fn what_is_no_record_is_not_unpacked_makes_no_block_and_stays() {
        let newer = br#"{"schema_version":"99.0"}"#;
        // Agent 2 of three, and the relay's agent behind two.
        for (of, record, says) in [
            (3, Vec::new(), "agent 2"),
            (3, b"{}".to_vec(), "agent 2"),
            (3, newer.to_vec(), "agent 2"),
            (3, packed("{}"), "is not a record"),
            (2, packed("{}"), "is not a relay's part"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("000-000-json.json");
            let mut records = Records::new(&file, of, false);
            records.take(2, &ended(record));
            let played = records.merge(&[], "sample.pb.gz").unwrap();
            assert_eq!(played.exit_code, None);
            let failure = played.failure.unwrap();
            assert!(failure.contains(says), "{failure}");
            let who = if of == 3 { "agent-2" } else { "relay" };
            assert_eq!(names(folder.path()), [format!("000-000-json.{who}.json")]);
        }
    }

    #[test]
    fn records_of_a_block_that_are_one_leave_no_files_unless_they_are_kept() {
        let all = ["000-000.agent-0.json", "000-000.json", "000-000.relay.json"];
        for (keeps_all, expected) in [(false, &all[1..2]), (true, &all[..])] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("000-000.json");
            let mut records = Records::new(&file, 1, keeps_all);
            records.take(0, &ended(share().to_string()));
            records.take(1, &ended(relay().to_string()));
            let played = records.merge(&[], "sample.pb.gz").unwrap();
            assert_eq!((played.exit_code, played.failure), (Some(0), None));
            assert_eq!(names(folder.path()), expected);
        }
    }

    #[test]
    fn a_record_has_the_clocks_of_its_agents_and_of_the_relays_host() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("000-000.json");
        let mut records = Records::new(&file, 1, false);
        records.take(0, &ended(share().to_string()));
        let mut relay = relay();
        relay["process"]["clock"] = json!({"start_bound_ns": 0, "drift_ns": 0, "drift_bound_ns": 0});
        records.take(1, &ended(relay.to_string()));
        let clock = |drift_ns| ClockRecord { start_bound_ns: 9, drift_ns, drift_bound_ns: 9 };
        records.merge(&[clock(1), clock(2)], "sample.pb.gz").unwrap();
        let record = RunRecord::read(&file).unwrap();
        assert_eq!(record.agents[0].clock, Some(clock(1)));
        assert_eq!(record.relay.unwrap().clock, Some(clock(2)), "as the coordinator compared it");
    }
}
