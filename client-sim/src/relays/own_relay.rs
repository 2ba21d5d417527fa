//! A relay of our own, and a gateway before it or before another's: this program again, in another
//! role, as a process whose CPU time can be read.

use std::{
    ffi::OsString,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr},
    os::unix::process::CommandExt,
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use measure::{Allocations, MemoryKills, PinnedCores, cores};
use relay_sim::{Announcement, Refusal, Totals};
use serde::de::DeserializeOwned;

use crate::links::Links;

/// The first argument that makes a program a relay.
pub const RELAY_ROLE: &str = "role:relay";

/// The first argument that makes a program a gateway.
pub const GATEWAY_ROLE: &str = "role:gateway";

/// How long the relay may take to close its sessions.
const PATIENCE: Duration = Duration::from_secs(5);

/// The process of a relay, or of a gateway; it ends when this is dropped.
#[derive(Debug)]
pub struct OwnRelay {
    /// `relay` or `gateway`.
    what: &'static str,
    child: Child,
    output: BufReader<ChildStdout>,
    /// `ws://…`
    pub url: String,
    /// The relay's process id.
    pub pid: u32,
    /// The faults that were planted (`relay-sim --fault`).
    pub faults: Vec<String>,
    /// The format of its events on disk; `None` for memory.
    pub at_rest: Option<String>,
    /// The most that it logs.
    pub log_level: Option<String>,
    /// The links that clients reach it over.
    pub(crate) links: Option<Links>,
    kills: MemoryKills,
}

impl OwnRelay {
    /// Starts a relay on a free port with relay-sim's flags, and waits until it listens. With `links` the
    /// relay is at the far end of them.
    ///
    /// # Errors
    /// When the relay does not start, with its own reason.
    pub(crate) fn start(flags: &[OsString], links: Option<Links>) -> anyhow::Result<OwnRelay> {
        let mut relay = OwnRelay::spawn(flags, (address(links.as_ref()), 0).into())?;
        relay.links = links;
        Ok(relay)
    }

    /// Starts a gateway with these flags on a free port, next to the relay at the far end of `links`.
    ///
    /// # Errors
    /// When the gateway does not start, with its own reason.
    pub(crate) fn start_gateway(flags: &[OsString], links: Option<&Links>) -> anyhow::Result<OwnRelay> {
        OwnRelay::spawn_in(GATEWAY_ROLE, flags, (address(links), 0).into())
    }

    /// Starts a relay at this address in the network namespace of the calling thread. Port 0 is any free
    /// port.
    ///
    /// # Errors
    /// When the relay does not start, with its own reason.
    pub fn spawn(flags: &[OsString], address: SocketAddr) -> anyhow::Result<OwnRelay> {
        OwnRelay::spawn_in(RELAY_ROLE, flags, address)
    }

    fn spawn_in(role: &'static str, flags: &[OsString], address: SocketAddr) -> anyhow::Result<OwnRelay> {
        let what = role.trim_start_matches("role:");
        let program = measure::own_program().context("cannot find the file of this program")?;
        let kills = MemoryKills::so_far();
        let mut child = Command::new(program)
            .arg(role)
            .args(["--listen", &address.to_string(), "--announce"])
            .args(flags)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A process group of its own keeps Ctrl-C from the relay, which must live until its
            // clients have closed.
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start the {what} process"))?;
        let mut output = BufReader::new(child.stdout.take().context("the output was asked for")?);
        let mut line = String::new();
        output.read_line(&mut line).with_context(|| format!("cannot read the {what}'s first line"))?;
        if line.is_empty() {
            bail!("the {what} process ended before it listened: {}", kills.how(child.wait()?));
        }
        if let Ok(Refusal { failed }) = serde_json::from_str(&line) {
            child.wait()?;
            bail!("{failed}");
        }
        let announcement: Announcement =
            serde_json::from_str(&line).with_context(|| format!("not an announcement: {line}"))?;
        let Announcement { listening: url, pid, faults, at_rest, log_level } = announcement;
        Ok(OwnRelay { what, child, output, url, pid, faults, at_rest, log_level, links: None, kills })
    }

    /// Allocations of the relay since it started; `None` in builds without `count-allocations`, and
    /// without an answer.
    pub fn allocations(&mut self) -> Option<Allocations> {
        Allocations::so_far()?;
        self.ask("allocations")
    }

    /// The relay's totals since it started; `None` without an answer.
    pub fn totals(&mut self) -> Option<Totals> {
        self.ask("totals")
    }

    /// How the process ended, if it did.
    ///
    /// # Errors
    /// When the system does not tell.
    pub(crate) fn ended(&mut self) -> io::Result<Option<String>> {
        let status = self.child.try_wait()?;
        Ok(status.map(|status| {
            format!("the {}'s process {} ended with {}", self.what, self.pid, self.kills.how(status))
        }))
    }

    fn ask<T: DeserializeOwned>(&mut self, question: &str) -> Option<T> {
        writeln!(self.child.stdin.as_mut()?, "{question}").ok()?;
        let mut line = String::new();
        self.output.read_line(&mut line).ok()?;
        serde_json::from_str(&line).ok()
    }

    /// Ends the process and returns a relay's totals as JSON, which it prints last.
    ///
    /// # Errors
    /// When it ends with an error, or its output cannot be read.
    pub fn stop(mut self) -> anyhow::Result<String> {
        self.ask_to_end();
        let (pid, (ended, end)) = (self.child.id(), std::sync::mpsc::channel::<()>());
        // One that stands still would block the reading of its totals for ever.
        let killer = thread::spawn(move || {
            if end.recv_timeout(PATIENCE * 2) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap_or(i32::MAX));
                nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).ok();
            }
        });
        let mut totals = String::new();
        let read = self.output.read_to_string(&mut totals);
        drop(ended);
        killer.join().ok();
        read.with_context(|| format!("cannot read what the {} says last", self.what))?;
        let status = self.child.wait()?;
        if !status.success() {
            bail!("the {} process ended with {}", self.what, self.kills.how(status));
        }
        Ok(totals)
    }

    /// A process started with `--announce` ends when its standard input does.
    fn ask_to_end(&mut self) {
        drop(self.child.stdin.take());
    }
}

/// The address of a relay at the end of these links, or without any.
fn address(links: Option<&Links>) -> Ipv4Addr {
    if links.is_some() { link::RELAY } else { Ipv4Addr::LOCALHOST }
}

/// Starts processes on the relay's cores. The calling thread, with the threads that it starts later,
/// keeps to those of the clients.
///
/// # Errors
/// The errors of `start`, and when the kernel refuses the cores.
pub(crate) fn on_relay_cores<T>(
    pinned: Option<&PinnedCores>,
    start: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let Some(cores) = pinned else { return start() };
    cores::keep_to(&cores.relay).context("cannot pin the relay (--no-pin avoids this)")?;
    let started = start();
    cores::keep_to(&cores.clients).context("cannot pin the clients (--no-pin avoids this)")?;
    started
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
        // Fails when the relay ended meanwhile, which is what is wanted.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
