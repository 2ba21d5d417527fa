//! A folder of a test's own, and runs of a plan in it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use measure::RunRecord;
use tempfile::TempDir;

use crate::{
    common::program,
    ran::{Ran, Runs},
};

pub(crate) struct Setup {
    folder: TempDir,
    /// The scenario, as the command line names it.
    scenario: PathBuf,
    /// The events, where they are not the bundled ones.
    events: Option<PathBuf>,
}

impl Setup {
    /// With this scenario, and events that are written to a file, or the bundled ones.
    pub(crate) fn new(scenario: &str, write_events: impl FnOnce(&Path)) -> Setup {
        let folder = TempDir::new().unwrap();
        let events = folder.path().join("events.jsonl");
        write_events(&events);
        let setup = Setup {
            scenario: folder.path().join("plan.toml"),
            events: Some(events).filter(|events| events.exists()),
            folder,
        };
        setup.write("plan.toml", scenario);
        // For relays that refuse nothing.
        setup.write("unasked.json", "{}");
        setup
    }

    /// With a built-in scenario.
    pub(crate) fn built_in(scenario: &str, events: Option<&Path>) -> Setup {
        let events = events.map(Path::to_owned);
        Setup { scenario: scenario.into(), events, ..Setup::new("", |_| ()) }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// The program with this plan.
    pub(crate) fn plan(&self) -> Command {
        let mut command = program();
        command.arg("--scenario").arg(&self.scenario);
        self.events.iter().for_each(|events| _ = command.arg("--corpus").arg(events));
        command
    }

    /// The same with a record, and with further flags.
    pub(crate) fn command(&self, flags: &[&str]) -> Command {
        let mut command = self.plan();
        command.arg("--record").arg(self.path("record.json")).args(flags);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, flags: &[&str]) -> Ran {
        fs::remove_file(self.path("record.json")).ok();
        self.command(flags).ran()
    }

    pub(crate) fn record(&self) -> RunRecord {
        RunRecord::read(&self.path("record.json")).unwrap()
    }

    /// The record, unless a run has left none.
    pub(crate) fn record_if_any(&self) -> Option<RunRecord> {
        self.path("record.json").exists().then(|| self.record())
    }
}
