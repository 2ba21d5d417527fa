//! Single runs of the client with chosen flags.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use measure::RunRecord;
use nix::unistd::Pid;

use super::finding::Options;

const SCENARIO: &str = include_str!("selftest.toml");

/// How long a client may take to start another process.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the tests run.
pub(crate) struct Bench<'a> {
    pub(super) program: &'a Path,
    pub(super) options: &'a Options,
    pub(super) folder: &'a Path,
    /// The scenario as a file.
    pub(super) scenario: PathBuf,
    runs: usize,
}

/// One run of the client.
pub(super) struct Run {
    pub(super) exit_code: Option<i32>,
    pub(super) record: RunRecord,
}

/// A client that runs.
pub(super) struct Running {
    child: Child,
    record: PathBuf,
}

impl<'a> Bench<'a> {
    pub(super) fn new(program: &'a Path, folder: &'a Path, options: &'a Options) -> Result<Bench<'a>> {
        let scenario = folder.join("selftest.toml");
        fs::write(&scenario, SCENARIO).with_context(|| format!("cannot write {}", scenario.display()))?;
        Ok(Bench { program, options, folder, scenario, runs: 0 })
    }

    /// Plays the scenario for some seconds with further flags.
    ///
    /// # Errors
    /// When the client leaves no record.
    pub(super) fn run(&mut self, seconds: f64, flags: &[&str]) -> Result<Run> {
        self.start(seconds, flags)?.finish()
    }

    /// Starts another scenario, of this text, with its own length.
    pub(super) fn play(&mut self, name: &str, text: &str, flags: &[&str]) -> Result<Running> {
        // Each run reads a file of its own: writing again would cut off one that another run reads.
        let scenario = self.folder.join(format!("{name}-{}.toml", self.runs + 1));
        fs::write(&scenario, text).with_context(|| format!("cannot write {}", scenario.display()))?;
        self.spawn(&scenario, flags)
    }

    /// Plays it against a relay of our own that verifies nothing and has these faults.
    pub(super) fn own_relay(&mut self, seconds: f64, faults: &[&str]) -> Result<Run> {
        let mut flags = vec!["--verify", "none"];
        faults.iter().for_each(|fault| flags.extend(["--relay-fault", fault]));
        self.run(seconds, &flags)
    }

    pub(super) fn start(&mut self, seconds: f64, flags: &[&str]) -> Result<Running> {
        let seconds = seconds.to_string();
        let flags: Vec<&str> = ["--seconds", &seconds].into_iter().chain(flags.iter().copied()).collect();
        self.spawn(&self.scenario.clone(), &flags)
    }

    fn spawn(&mut self, scenario: &Path, flags: &[&str]) -> Result<Running> {
        self.runs += 1;
        let record = self.folder.join(format!("{}.json", self.runs));
        let mut command = Command::new(self.program);
        // The cell's defaults: no relay of another program is looked for, and nothing is left open.
        command.args(["role:client", "--quiet", "--cell", "{}", "--scenario"]);
        command.arg(scenario).arg("--record").arg(&record).args(flags);
        if !flags.contains(&"--seed") {
            command.args(["--seed", "1"]);
        }
        if env::var_os("RUST_LOG").is_none() {
            // Warnings about faults are expected here.
            command.env("RUST_LOG", "error");
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Ok(Running { child: command.spawn().context("cannot start a client")?, record })
    }
}

impl Running {
    /// Waits for the process that this client starts with such an argument.
    pub(super) fn started(&self, argument: &str) -> Result<Pid> {
        // A client also asks programs that end at once.
        let is_it = |pid: &u32| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split('\0').any(|one| one == argument)
        };
        let began = Instant::now();
        loop {
            if let Some(pid) = measure::children(self.child.id()).into_iter().find(is_it) {
                return Ok(Pid::from_raw(pid.try_into()?));
            }
            ensure!(began.elapsed() < PATIENCE, "the client started no process with {argument}");
            thread::sleep(Duration::from_millis(20));
        }
    }

    pub(super) fn finish(self) -> Result<Run> {
        let output = self.child.wait_with_output().context("cannot wait for the client")?;
        if !self.record.exists() {
            bail!(
                "a client left no record ({}): {}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        let record = RunRecord::read(&self.record)?;
        // Histograms make records large.
        fs::remove_file(&self.record).ok();
        Ok(Run { exit_code: output.status.code(), record })
    }
}

impl Run {
    /// A quantile of the response, in milliseconds.
    pub(super) fn response_ms(&self, q: f64) -> Result<f64> {
        let response = self.record.latency.get("response").context("nothing was delivered")?;
        let ns =
            response.quantile_ns(q).ns().with_context(|| format!("too few samples for the {q} quantile"))?;
        Ok(ns as f64 / 1e6)
    }

    /// Nanoseconds of the relay's CPU for each envelope.
    pub(super) fn relay_ns_per_envelope(&self) -> Result<f64> {
        let cpu = self.record.relay_cpu.context("the relay's CPU clock was not read")?;
        Ok(cpu.total_ns as f64 / self.record.counts.envelopes().max(1) as f64)
    }
}
