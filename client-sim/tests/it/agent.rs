//! A process that takes part in a block: it plays a share of a plan, or serves the relay.

use std::{
    io::{BufRead, BufReader, Read, Write},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio},
    time::Duration,
};

use measure::LiveCounts;
use nix::time::{ClockId, clock_gettime};
use serde_json::Value;

use crate::ran::Ran;

pub(crate) struct Agent {
    pub(crate) child: Child,
    pub(crate) stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    record: PathBuf,
}

/// How it ended, and what it wrote.
pub(crate) struct Ended {
    pub(crate) ran: Ran,
    pub(crate) record: PathBuf,
    /// Counts so far, line by line.
    pub(crate) told: Vec<LiveCounts>,
}

impl Agent {
    pub(crate) fn start(command: &mut Command, record: PathBuf) -> Agent {
        command.arg("--record").arg(&record);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Agent { stdin: child.stdin.take(), stdout, child, record }
    }

    /// What it says once it is prepared.
    pub(crate) fn prepared(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap_or_default();
        let is_hash = |name: &str| said["prepared"][name].as_str().is_some_and(|hash| hash.len() == 64);
        if !(is_hash("plan_sha256") && is_hash("corpus_sha256")) {
            panic!("{line:?} {}", self.stderr());
        }
        said["prepared"].clone()
    }

    fn stderr(&mut self) -> String {
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    pub(crate) fn say(&mut self, line: &str) {
        self.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
    }

    /// Waits for its end, with standard input open until then.
    pub(crate) fn end(mut self) -> Ended {
        let told = (&mut self.stdout).lines().filter_map(|line| {
            let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
            Some(serde_json::from_value(line.get("so_far")?.clone()).unwrap())
        });
        let told = told.collect();
        let stderr = self.stderr().into_bytes();
        let output = Output { status: self.child.wait().unwrap(), stdout: Vec::new(), stderr };
        Ended { ran: Ran::new(self.record.display().to_string(), output), record: self.record.clone(), told }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

pub(crate) fn monotonic_ns() -> u64 {
    let now = Duration::from(clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap());
    u64::try_from(now.as_nanos()).unwrap()
}

/// Has all of them start soon, at one instant.
pub(crate) fn start_all<'a>(agents: impl IntoIterator<Item = &'a mut Agent>) {
    let start_ns = monotonic_ns() + 700_000_000;
    agents.into_iter().for_each(|agent| agent.say(&format!("start {start_ns}\n")));
}
