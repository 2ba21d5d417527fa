//! The agent that starts the relay of each block, on a machine of its own or on the coordinator's.

use std::{
    ffi::OsString,
    net::SocketAddr,
    path::Path,
    thread::{self, JoinHandle},
};

use agents::{Attendance, Left, NatsError, Policy, Process, attend};
use anyhow::{Context, Result, bail, ensure};
use tokio::{runtime, sync::oneshot};
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
    Policy { targets: Vec::new(), max_rate_per_s: None, starts_relays: true, identity }
}

/// The relay's agent in a thread of the coordinator's process. When it is dropped it leaves.
#[derive(Debug)]
pub(crate) struct LocalAgent {
    stop: Option<oneshot::Sender<()>>,
    left: oneshot::Receiver<Result<Left, NatsError>>,
    thread: Option<JoinHandle<()>>,
}

impl LocalAgent {
    /// Attends a run that is open.
    ///
    /// # Errors
    /// When the system starts no thread.
    pub(crate) fn start(attendance: Attendance, player: Process) -> Result<LocalAgent> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start the runtime of the relay's agent")?;
        let (stop, stopped) = oneshot::channel::<()>();
        let (leaves, left) = oneshot::channel();
        let attends = move || {
            let interrupt = async {
                // A coordinator that is gone needs no relay.
                let _ = stopped.await;
            };
            // Nobody asks once the run has begun: the coordinator knows a lost agent by its
            // silence.
            let _ = leaves.send(runtime.block_on(attend(&attendance, &player, interrupt)));
        };
        let thread = thread::Builder::new().name("relay-agent".to_owned()).spawn(attends);
        let thread = thread.context("cannot start the thread of the relay's agent")?;
        Ok(LocalAgent { stop: Some(stop), left, thread: Some(thread) })
    }

    /// Completes when it has left the run; the text is why.
    pub(crate) async fn left(&mut self) -> String {
        match (&mut self.left).await {
            Ok(Ok(Left::Finished)) => "the run is over".to_owned(),
            Ok(Ok(Left::Stopped { reason, .. })) => reason,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "its thread ended".to_owned(),
        }
    }
}

impl Drop for LocalAgent {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // It may have left already.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
