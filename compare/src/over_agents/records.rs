//! The agents' records of a block, of which one record of all is made.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use agents::nats::Arrival;
use anyhow::{Context, Result, anyhow};
use measure::{ClockRecord, Exit, Merge, RelayRecord, RunRecord};

use super::Played;

/// The agents' records of a block, of which one is held at a time.
pub(super) struct Records<'a> {
    /// Where the record of all goes; each agent's stands beside it.
    file: &'a Path,
    /// How many agents play; who is behind them started the relay.
    of: u16,
    sum: Result<Merge, String>,
    relay: Option<RelayRecord>,
    codes: Vec<Option<i32>>,
    files: BTreeMap<u16, PathBuf>,
    partial: BTreeMap<u16, PathBuf>,
    unwritten: Option<anyhow::Error>,
}

impl Records<'_> {
    pub(super) fn new(file: &Path, of: u16) -> Records<'_> {
        Records {
            file,
            of,
            sum: Ok(Merge::default()),
            relay: None,
            codes: Vec::new(),
            files: BTreeMap::new(),
            partial: BTreeMap::new(),
            unwritten: None,
        }
    }

    pub(super) fn take(&mut self, arrival: &Arrival) {
        let Arrival { index, ending, is_partial } = arrival;
        let own = self.beside(*index, if *is_partial { ".partial" } else { "" });
        if let Err(error) = fs::write(&own, &ending.record) {
            self.unwritten = Some(anyhow!(error).context(format!("cannot write {}", own.display())));
            return;
        }
        if *is_partial {
            self.partial.insert(*index, own);
            return;
        }
        if let Err(reason) = self.add(*index, &own) {
            self.sum = Err(reason);
        }
        self.codes.push(ending.exit_code);
        self.files.insert(*index, own);
    }

    fn add(&mut self, index: u16, own: &Path) -> Result<(), String> {
        let Ok(sum) = &mut self.sum else { return Ok(()) };
        if index < self.of {
            let record =
                RunRecord::read(own).map_err(|error| format!("agent {index}: {:#}", anyhow!(error)))?;
            return sum.add(record).map_err(|error| error.to_string());
        }
        let relay = RelayRecord::read(own).map_err(|error| format!("the relay: {:#}", anyhow!(error)))?;
        self.relay = Some(relay);
        Ok(())
    }

    /// The file of one agent's record beside that of all.
    fn beside(&self, index: u16, mark: &str) -> PathBuf {
        let who = if index < self.of { format!("agent-{index}") } else { "relay".to_owned() };
        self.file.with_extension(format!("{who}{mark}.json"))
    }

    /// Makes one record of all agents', who may have other names for the file of events. Theirs
    /// stay only if they are to be kept.
    pub(super) fn merge(
        self,
        clocks: &[ClockRecord],
        corpus_name: &str,
        keeps_records: bool,
    ) -> Result<Played> {
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
        merged.write(self.file)?;
        for own in self.files.into_values().filter(|_| !keeps_records) {
            // A file that stays does no harm.
            let _ = fs::remove_file(own);
        }
        Ok(Played { exit_code: Some(worst(&self.codes)), failure: None })
    }

    /// Why a block was aborted, and where what agents published of it stands: never under the name
    /// of a record that counts.
    pub(super) fn partial(mut self, reason: &str) -> Result<String> {
        if let Some(error) = self.unwritten {
            return Err(error);
        }
        for (index, own) in std::mem::take(&mut self.files) {
            let kept = self.beside(index, ".partial");
            fs::rename(&own, &kept).with_context(|| format!("cannot write {}", kept.display()))?;
            self.partial.insert(index, kept);
        }
        let kept: Vec<String> = self.partial.values().map(|file| file.display().to_string()).collect();
        Ok(match kept.is_empty() {
            true => format!("the run over agents was aborted: {reason}"),
            false => format!("the run over agents was aborted: {reason}; partial: {}", kept.join(", ")),
        })
    }
}

fn unmerged(reason: &str) -> Played {
    Played { exit_code: None, failure: Some(format!("the agents' records do not make one: {reason}")) }
}

/// The exit code that says most: of a player that ended early, then of a ledger, then of times.
fn worst(codes: &[Option<i32>]) -> i32 {
    let graver = [Exit::Incomplete, Exit::Unbalanced, Exit::Invalid];
    if codes.contains(&None) {
        return Exit::Incomplete.code().into();
    }
    let found = graver.into_iter().find(|exit| codes.iter().any(|code| exit.is(*code)));
    let other = || codes.iter().flatten().copied().find(|code| *code != 0).unwrap_or(0);
    found.map_or_else(other, |exit| exit.code().into())
}

#[cfg(test)]
mod tests {
    use agents::Ending;

    use super::*;

    fn arrival(exit_code: i32, record: &str, is_partial: bool) -> Arrival {
        let ending = Ending { exit_code: Some(exit_code), record: record.as_bytes().to_vec() };
        Arrival { index: 2, ending, is_partial }
    }

    #[test]
    fn the_gravest_exit_code_is_the_blocks() {
        for (codes, expected) in [
            (vec![Some(0), Some(0)], 0),
            (vec![Some(0), Some(3)], 3),
            (vec![Some(3), Some(4), Some(0)], 4),
            (vec![Some(4), Some(5)], 5),
            (vec![Some(0), None], 5),
            (vec![Some(0), Some(99)], 99),
        ] {
            assert_eq!(worst(&codes), expected);
        }
    }

    #[test]
    fn what_is_no_record_makes_no_block() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("000-000-json.json");
        for record in ["", "{}", r#"{"schema_version":"99.0"}"#] {
            let mut records = Records::new(&file, 3);
            records.take(&arrival(0, record, false));
            let played = records.merge(&[], "sample.pb.gz", false).unwrap();
            assert_eq!(played.exit_code, None);
            assert!(played.failure.unwrap().contains("agent 2"), "{record}");
            assert!(!file.exists());
        }
    }

    #[test]
    fn what_is_no_part_of_a_relay_makes_no_block() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("000-000-json.json");
        let mut records = Records::new(&file, 2);
        records.take(&arrival(0, "{}", false));
        let failure = records.merge(&[], "sample.pb.gz", false).unwrap().failure.unwrap();
        assert!(failure.contains("the relay") && !file.exists(), "{failure}");
    }

    #[test]
    fn partial_records_keep_their_agents_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("000-001-json.json");
        let mut records = Records::new(&file, 3);
        // It had arrived when another agent was lost; what the stream has comes again.
        records.take(&arrival(0, "half", false));
        records.take(&arrival(0, "half", true));
        records.take(&Arrival { index: 3, ..arrival(0, "relay", true) });
        let said = records.partial("agent 0 is lost").unwrap();
        let kept = folder.path().join("000-001-json.agent-2.partial.json");
        assert_eq!(fs::read_to_string(&kept).unwrap(), "half");
        let relay = folder.path().join("000-001-json.relay.partial.json");
        assert_eq!(fs::read_to_string(relay).unwrap(), "relay");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "and no other");
        assert!(said.contains("agent 0 is lost") && said.contains("agent-2.partial.json"), "{said}");
    }
}
