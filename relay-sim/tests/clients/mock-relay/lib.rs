//! The mock relays of nostr-relay-pool's tests, each a relay-sim with the faults in FAULTS.

use std::{
    env,
    io::{BufRead, BufReader, Error},
    ops::Deref,
    process::{Child, Command, Stdio},
    sync::{Mutex, OnceLock},
    time::Duration,
};

use nostr::RelayUrl;

pub mod prelude {
    pub use crate::*;
}

/// How a mock relay misbehaves: silent for a while, or with events that nobody asked for.
#[derive(Debug, Default)]
pub struct RelayTestOptions {
    pub unresponsive_connection: Option<Duration>,
    pub send_random_events: bool,
}

/// What a client must authenticate for.
#[derive(Debug, Clone, Copy)]
pub enum RelayBuilderNip42Mode {
    Read,
    Write,
    Both,
}

#[derive(Debug)]
pub struct RelayBuilderNip42 {
    pub mode: RelayBuilderNip42Mode,
}

#[derive(Debug, Default)]
pub struct RelayBuilder {
    faults: Vec<String>,
}

impl RelayBuilder {
    /// relay-sim does not tell reading from writing: the tests read after their first message.
    pub fn nip42(mut self, options: RelayBuilderNip42) -> RelayBuilder {
        let read = matches!(options.mode, RelayBuilderNip42Mode::Read);
        self.faults.push(if read { "auth-required:message=2-" } else { "auth-required" }.to_owned());
        self
    }
}

/// A process of relay-sim.
#[derive(Debug)]
pub struct LocalRelay {
    faults: Vec<String>,
    url: OnceLock<RelayUrl>,
    process: Mutex<Option<Child>>,
}

impl LocalRelay {
    pub fn new(builder: RelayBuilder) -> LocalRelay {
        let of_all = env::var("FAULTS").unwrap_or_default();
        let faults = builder.faults.into_iter().chain(of_all.split_whitespace().map(str::to_owned));
        LocalRelay { faults: faults.collect(), url: OnceLock::new(), process: Mutex::default() }
    }

    pub async fn run(&self) -> Result<(), Error> {
        let mut process = Command::new("relay-sim")
            .args(["--listen", "127.0.0.1:0", "--announce"])
            .args(self.faults.iter().flat_map(|fault| ["--fault", fault]))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(process.stdout.as_mut().expect("it is piped")).read_line(&mut line)?;
        let announced: serde_json::Value = serde_json::from_str(&line)?;
        let url = announced["listening"].as_str().ok_or_else(|| Error::other(line.clone()))?;
        self.url.get_or_init(|| RelayUrl::parse(url).expect("relay-sim says where it listens"));
        *self.process.lock().expect("nobody panics with it") = Some(process);
        Ok(())
    }

    pub async fn url(&self) -> RelayUrl {
        self.url.get().expect("it runs").clone()
    }

    pub fn shutdown(&self) {
        if let Some(mut process) = self.process.lock().expect("nobody panics with it").take() {
            drop(process.stdin.take());
            let _ = process.wait();
        }
    }
}

impl Drop for LocalRelay {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// A relay for one test.
#[derive(Debug)]
pub struct MockRelay(LocalRelay);

impl MockRelay {
    pub async fn run() -> Result<MockRelay, Error> {
        MockRelay::run_with_opts(RelayTestOptions::default()).await
    }

    pub async fn run_with_opts(options: RelayTestOptions) -> Result<MockRelay, Error> {
        let silence = options.unresponsive_connection.map(|time| format!("delay={}ms", time.as_millis()));
        let random = options.send_random_events.then(|| "flood=10".to_owned());
        let faults = silence.into_iter().chain(random).collect();
        let relay = LocalRelay::new(RelayBuilder { faults });
        relay.run().await?;
        Ok(MockRelay(relay))
    }
}

impl Deref for MockRelay {
    type Target = LocalRelay;

    fn deref(&self) -> &LocalRelay {
        &self.0
    }
}
