//! A relay of our own, in a process of its own with a CPU clock of its own: this program again, in the relay role.

use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::CommandExt,
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use measure::{Allocations, PinnedCores};
use relay_sim::Announcement;

use crate::cores;

/// The first argument that makes a program a relay.
pub const RELAY_ROLE: &str = "role:relay";

/// How long the relay may take to finish its sessions.
const PATIENCE: Duration = Duration::from_secs(5);

/// The relay's process; it ends when this is dropped.
#[derive(Debug)]
pub struct OwnRelay {
    child: Child,
    output: BufReader<ChildStdout>,
    /// `ws://…`
    pub url: String,
    /// Its process id.
    pub pid: u32,
    /// How it misbehaves, because it was told to.
    pub faults: Vec<String>,
}

impl OwnRelay {
    /// Starts a relay on a free port, with relay-sim's own flags, and waits until it listens. With `pinned` it keeps to
    /// the relay's cores, and the caller and what it starts later keep to the clients'.
    ///
    /// # Errors
    /// When it does not start; its own words are on standard error.
    pub fn start(flags: &[OsString], pinned: Option<&PinnedCores>) -> anyhow::Result<OwnRelay> {
        let Some(cores) = pinned else { return OwnRelay::spawn(flags) };
        cores::keep_to(&cores.relay).context("cannot pin the relay (--no-pin does not)")?;
        let relay = OwnRelay::spawn(flags);
        cores::keep_to(&cores.clients).context("cannot pin the clients (--no-pin does not)")?;
        relay
    }

    fn spawn(flags: &[OsString]) -> anyhow::Result<OwnRelay> {
        let program = std::env::current_exe().context("cannot tell which program this is")?;
        let mut child = Command::new(program)
            .arg(RELAY_ROLE)
            .args(["--listen", "127.0.0.1:0", "--announce"])
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C is for us: the relay must outlive it until its clients have closed.
            .process_group(0)
            .spawn()
            .context("cannot start the relay process")?;
        let mut output = BufReader::new(child.stdout.take().context("the relay's output was asked for")?);
        let mut line = String::new();
        output.read_line(&mut line).context("cannot read the relay's first line")?;
        if line.is_empty() {
            bail!("the relay process ended before it listened: {}", child.wait()?);
        }
        let announcement: Announcement =
            serde_json::from_str(&line).with_context(|| format!("not an announcement: {line}"))?;
        let Announcement { listening: url, pid, faults } = announcement;
        Ok(OwnRelay { child, output, url, pid, faults })
    }

    /// What the relay has allocated since it started; `None` in builds that do not count, and where it does not answer.
    pub fn allocations(&mut self) -> Option<Allocations> {
        Allocations::so_far()?;
        writeln!(self.child.stdin.as_mut()?, "allocations").ok()?;
        let mut line = String::new();
        self.output.read_line(&mut line).ok()?;
        serde_json::from_str(&line).ok()
    }

    /// Ends the relay and returns what it printed last: its totals as JSON.
    ///
    /// # Errors
    /// When it ended badly or does not end.
    pub fn stop(mut self) -> anyhow::Result<String> {
        self.ask_to_end();
        let mut totals = String::new();
        self.output.read_to_string(&mut totals).context("cannot read the relay's totals")?;
        let status = self.child.wait()?;
        if !status.success() {
            bail!("the relay process ended with {status}");
        }
        Ok(totals)
    }

    /// A relay started with `--announce` ends when its standard input does.
    fn ask_to_end(&mut self) {
        drop(self.child.stdin.take());
    }
}

impl Drop for OwnRelay {
    fn drop(&mut self) {
        self.ask_to_end();
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        // It may have ended in this very instant; there is nothing to do about either.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
