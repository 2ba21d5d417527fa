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

pub(crate) struct Setup(TempDir);

impl Setup {
    /// With this scenario, and events that are written to a file.
    pub(crate) fn new(scenario: &str, write_events: impl FnOnce(&Path)) -> Setup {
        let setup = Setup(TempDir::new().unwrap());
        setup.write("plan.toml", scenario);
        // For relays that refuse nothing.
        setup.write("unasked.json", "{}");
        write_events(&setup.path("events.jsonl"));
        setup
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// The program with this plan.
    pub(crate) fn plan(&self) -> Command {
        let mut command = program();
        command.arg("--scenario").arg(self.path("plan.toml")).arg("--corpus").arg(self.path("events.jsonl"));
        command
    }

    /// The same with a record, and with further flags.
    pub(crate) fn command(&self, flags: &[&str]) -> Command {
        let mut command = self.plan();
        command.arg("--record").arg(self.path("record.json")).args(flags);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, flags: &[&str]) -> Ran {
        fs::remove_file(self.path("record.json")).ok();
        self.command(flags).ran()
    }

    pub(crate) fn record(&self) -> RunRecord {
        RunRecord::read(&self.path("record.json")).unwrap()
    }
}
