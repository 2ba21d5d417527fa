//! The emulator's process as the program sees it that started it.

use std::{net::Ipv4Addr, process::Command};

use anyhow::Context;
use measure::{Helper, LinkRecord};

use crate::{
    host,
    profile::Link,
    protocol::{LINK_ROLE, Order},
};

/// A running emulator; it ends when this is dropped, or when this process ends.
#[derive(Debug)]
pub struct Emulation(Helper);

impl Emulation {
    /// Starts an emulator for these links. The network namespace of the calling thread, which
    /// [`crate::enter`] made, becomes the relay's. Start the relay next, then call
    /// [`Emulation::join_users`]. `unbound` is the user whose connections bind no address. `ended` is
    /// called when the emulator's process ends, for any reason.
    ///
    /// # Errors
    /// When the host forbids a device or a namespace; the emulator has reported it on standard
    /// error.
    pub fn start(
        links: &[Link],
        seed: u64,
        congestion: &str,
        unbound: Ipv4Addr,
        ended: impl FnOnce() + Send + 'static,
    ) -> anyhow::Result<Emulation> {
        let links = links.iter().map(Link::spelled_out).collect();
        let order = Order { links, seed, congestion: congestion.to_owned(), unbound };
        let order = serde_json::to_string(&order)?;
        let add = |command: &mut Command| {
            command.arg(order);
        };
        let process = Helper::start(LINK_ROLE, add, ended)?;
        process.line_in_time().context("the emulator did not start; its reason stands above")?;
        Ok(Emulation(process))
    }

    /// Moves the calling thread, and the threads and processes that it starts later, to the
    /// namespace of the users.
    ///
    /// # Errors
    /// When the emulator has ended.
    pub fn join_users(&self) -> anyhow::Result<()> {
        host::join(self.0.pid()).context("cannot join the users' network namespace")
    }

    /// Begins the counts anew.
    ///
    /// # Errors
    /// When the emulator has ended.
    pub fn begin(&mut self) -> anyhow::Result<()> {
        self.0.ask("begin").context("the emulator of links")?;
        Ok(())
    }

    /// The emulator's work since [`Emulation::begin`]; it does not know how many connections use a link.
    ///
    /// # Errors
    /// When the emulator has ended.
    pub fn report(&mut self) -> anyhow::Result<LinkRecord> {
        let line = self.0.ask("report").context("the emulator of links")?;
        serde_json::from_str(&line).with_context(|| format!("not a report: {line:.200}"))
    }
}
