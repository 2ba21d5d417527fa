//! A relay of our own, and a gateway before it or before another's: this program again, in another
//! role, as a process whose CPU time can be read.

use std::{
    ffi::OsString,
    io,
    net::{Ipv4Addr, SocketAddr},
    process::Command,
};

use anyhow::{Context, bail};
use measure::{Allocations, Helper, PinnedCores, cores};
use relay_sim::{Announcement, Refusal, Totals};
use serde::de::DeserializeOwned;

use crate::links::Links;

/// The first argument that makes a program a relay.
pub const RELAY_ROLE: &str = "role:relay";

/// The first argument that makes a program a gateway.
pub const GATEWAY_ROLE: &str = "role:gateway";

/// The process of a relay, or of a gateway; it ends when this is dropped.
#[derive(Debug)]
pub struct OwnRelay {
    process: Helper,
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
        let add = |command: &mut Command| {
            command.args(["--listen", &address.to_string(), "--announce"]).args(flags);
        };
        let process = Helper::start(role, add, || {})?;
        let Some(line) = process.first_line() else {
            bail!("{} before it listened", process.end()?.how);
        };
        if let Ok(Refusal { failed }) = serde_json::from_str(&line) {
            bail!("{failed}");
        }
        let announcement: Announcement =
            serde_json::from_str(&line).with_context(|| format!("not an announcement: {line}"))?;
        let Announcement { listening: url, pid, faults, at_rest, log_level } = announcement;
        Ok(OwnRelay { process, url, pid, faults, at_rest, log_level, links: None })
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
        self.process.ended()
    }

    fn ask<T: DeserializeOwned>(&mut self, question: &str) -> Option<T> {
        serde_json::from_str(&self.process.ask(question).ok()?).ok()
    }

    /// Ends the process and returns a relay's totals as JSON, which it prints last.
    ///
    /// # Errors
    /// When it ends with an error.
    pub fn stop(self) -> anyhow::Result<String> {
        let ended = self.process.end()?;
        if !ended.is_success {
            bail!("{}", ended.how);
        }
        Ok(ended.last.unwrap_or_default())
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
