//! The agent that starts the relay of each block, on a machine of its own or on the coordinator's.

use std::{ffi::OsString, net::SocketAddr, path::Path};

use agents::{Policy, Process};
use anyhow::{Context, Result, bail, ensure};
use wire::RelayUrl;

/// Where the relay of each block listens.
#[derive(Debug, Clone)]
pub(crate) struct RelayPlace {
    /// An address of this machine, the same for each block.
    pub(crate) listen: SocketAddr,
    /// Where agents reach it; `None` where they reach it at its address.
    pub(crate) url: Option<RelayUrl>,
}

impl RelayPlace {
    /// Refuses an address that agents cannot use.
    ///
    /// # Errors
    /// The words to say instead.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!(
            self.url.is_some() || !self.listen.ip().is_unspecified(),
            "agents cannot reach {}: add --relay-url WS_URL, which is where they do",
            self.listen
        );
        let Some(url) = &self.url else { return Ok(()) };
        ensure!(!url.is_secure(), "a relay of our own speaks ws://: --relay-url ws://HOST:PORT");
        untold("--relay-url", url).map_or(Ok(()), |why| bail!(why))
    }

    /// The process that starts the relay of a block, for a plan over these events.
    ///
    /// # Errors
    /// When this program's own file is unknown.
    pub(crate) fn player(&self, corpus: Option<&Path>) -> Result<Process> {
        let program = measure::own_program().context("cannot find this program's own file")?;
        let mut arguments: Vec<OsString> = vec!["role:client".into()];
        arguments.extend(["--serve".into(), self.listen.to_string().into()]);
        if let Some(url) = &self.url {
            arguments.extend(["--relay-at".into(), url.to_string().into()]);
        }
        if let Some(file) = corpus {
            arguments.extend(["--corpus".into(), file.into()]);
        }
        Ok(Process { program, arguments })
    }
}

/// Why agents are not told an address: it has user and password.
pub(crate) fn untold(flag: &str, url: &RelayUrl) -> Option<String> {
    url.authorization()?;
    Some(format!(
        "agents are told {flag} over NATS, where everyone at the server hears it: leave out its user and password; for a \
         proxy that asks for them each agent has --header 'Authorization=Basic …'"
    ))
}

/// Bounds on an agent that starts relays.
pub(crate) fn policy(identity: agents::Identity) -> Policy {
    Policy { targets: Vec::new(), starts_relays: true, identity }
}
