//! Carries the messages of a run by NATS: requests for pings and commands, a key-value bucket for
//! spec, claims and state, a stream for records, an object store for events.
//!
//! [`coordinate`] opens a run, [`attend`] is an agent's part in one. Neither reconnects: who loses
//! the server stops.

mod attend;
mod coordinate;
mod files;

use std::{future::Future, net::IpAddr, path::PathBuf, time::Duration};

use async_nats::{Client, ConnectOptions, Event, HeaderMap, Message, ServerAddr, jetstream};
use tokio::sync::watch;

pub use self::{
    attend::{Attendance, attend},
    coordinate::{Aborted, Arrival, Run, coordinate},
    files::fetch_corpus,
};
use crate::{
    message::RECORD_BYTES,
    player::now_ns,
    spec::{BlockKey, RunId, Spec},
};

/// The bucket of specs, claims and states.
const BUCKET: &str = "nsim";

/// The stream of records.
const STREAM: &str = "NSIM";

/// What the stream holds: run, round, position, agent.
const RESULTS: &str = "nsim.v1.*.result.*.*.*";

/// Says which start of which run a message belongs to.
const RUN_HEADER: &str = "Nsim-Run";

/// Exit code of the player whose record a message is; absent when a signal ended it.
const EXIT_HEADER: &str = "Nsim-Exit";

/// What a run leaves behind when its coordinator is killed is forgotten after a day.
const KEPT: Duration = Duration::from_secs(24 * 3_600);

/// Longest wait for an answer of the server.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Messages that wait for a subscriber: some seconds of pings, and a bound on memory.
const WAITING: usize = 64;

/// A NATS server with JetStream, and how to be let in.
#[derive(Debug, Clone)]
pub struct Server {
    /// `nats://HOST:PORT`, or `tls://HOST:PORT` for TLS.
    pub url: String,
    /// File of credentials (JWT and seed).
    pub credentials: Option<PathBuf>,
    /// File of certificates to trust beside the system's, as PEM.
    pub ca: Option<PathBuf>,
}

/// Why there is no run, or no part in one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NatsError {
    /// No connection to the server.
    #[error("cannot connect to the NATS server {server}: {reason}")]
    Connect {
        /// Host and port.
        server: String,
        /// What the client says.
        reason: String,
    },
    /// The server does not do what is asked.
    #[error("the NATS server: {what}: {reason}")]
    Server {
        /// What was asked.
        what: &'static str,
        /// What the client says.
        reason: String,
    },
    /// The run is there already.
    #[error(
        "run {0} is there already, or its coordinator was killed less than a day ago; take another --run"
    )]
    Taken(RunId),
    /// The agent takes no part in the run.
    #[error("refused: {0}")]
    Refused(String),
    /// The connection was lost before there was a run.
    #[error("the connection to the NATS server was lost")]
    Lost,
    /// Interrupted before there was a run.
    #[error("interrupted")]
    Interrupted,
}

impl NatsError {
    fn server(what: &'static str) -> impl FnOnce(Box<dyn std::error::Error + Send + Sync>) -> NatsError {
        move |error| NatsError::Server { what, reason: error.to_string() }
    }
}

/// A connection that is never made again.
struct Link {
    client: Client,
    is_lost: watch::Receiver<bool>,
}

impl Server {
    /// Whether its address is one that only this machine, or a tunnel, reaches.
    pub fn is_loopback(&self) -> bool {
        let is_loopback = |host: &str| host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        let address = self.url.parse::<ServerAddr>();
        address.is_ok_and(|address| address.host() == "localhost" || is_loopback(address.host()))
    }

    async fn connect(&self, name: &str) -> Result<Link, NatsError> {
        let address = self.url.parse::<ServerAddr>();
        let address = address.map_err(|error| NatsError::Connect {
            server: "address".to_owned(),
            reason: error.to_string(),
        })?;
        // Not the URL, which may have a password.
        let place = format!("{}:{}", address.host(), address.port());
        let failed = |reason: String| NatsError::Connect { server: place.clone(), reason };
        let (tell, is_lost) = watch::channel(false);
        let mut options = ConnectOptions::new()
            .name(name)
            .require_tls(self.url.starts_with("tls://"))
            .subscription_capacity(WAITING)
            .request_timeout(Some(ANSWERS_WITHIN))
            // 0 would mean without end.
            .max_reconnects(1)
            .event_callback(move |event| {
                if matches!(event, Event::Disconnected | Event::Closed) {
                    tell.send_replace(true);
                }
                std::future::ready(())
            });
        // The client itself does not take them from the address.
        if let (Some(user), Some(password)) = (address.username(), address.password()) {
            options = options.user_and_password(user.to_owned(), password.to_owned());
        }
        if let Some(file) = &self.credentials {
            let with = options.credentials_file(file).await;
            options = with.map_err(|error| failed(format!("{}: {error}", file.display())))?;
        }
        if let Some(file) = &self.ca {
            options = options.add_root_certificates(file.clone());
        }
        let client = options.connect(address).await.map_err(|error| failed(error.to_string()))?;
        Ok(Link { client, is_lost })
    }
}

impl Link {
    /// Completes once the connection is lost.
    fn lost(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut is_lost = self.is_lost.clone();
        async move {
            // A sender that is gone is a client that is gone.
            let _ = is_lost.wait_for(|lost| *lost).await;
        }
    }

    fn jetstream(&self) -> jetstream::Context {
        jetstream::new(self.client.clone())
    }
}

/// The names of one start of a run.
#[derive(Debug, Clone)]
struct Names {
    run: RunId,
    header: String,
}

impl Names {
    fn new(spec: &Spec) -> Names {
        Names { run: spec.run.clone(), header: format!("{}:{}", spec.run, spec.sha256()) }
    }

    fn ping(&self, index: u16) -> String {
        format!("nsim.v1.{}.agent.{index}.ping", self.run)
    }

    fn command(&self, index: u16) -> String {
        format!("nsim.v1.{}.agent.{index}.cmd", self.run)
    }

    fn abort(&self) -> String {
        format!("nsim.v1.{}.abort", self.run)
    }

    fn result(&self, key: BlockKey, index: u16) -> String {
        format!("nsim.v1.{}.result.{}.{}.{index}", self.run, key.round, key.position)
    }

    fn headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(RUN_HEADER, self.header.as_str());
        headers
    }

    /// Whether a message is of this start of this run.
    fn own(&self, headers: Option<&HeaderMap>) -> bool {
        headers.and_then(|headers| headers.get(RUN_HEADER)).is_some_and(|run| run.as_str() == self.header)
    }

    /// A message of this run; counts one of another.
    fn kept(&self, message: Message, mismatched: &mut u64) -> Option<Message> {
        if self.own(message.headers.as_ref()) {
            return Some(message);
        }
        *mismatched += 1;
        None
    }
}

fn spec_key(run: &RunId) -> String {
    format!("{run}.spec")
}

fn state_key(run: &RunId) -> String {
    format!("{run}.state")
}

fn slot_key(run: &RunId, index: u16) -> String {
    format!("{run}.slot.{index}")
}

/// Sleeps until this machine's monotonic clock shows `at_ns`.
async fn sleep_until(at_ns: u64) {
    tokio::time::sleep(Duration::from_nanos(at_ns.saturating_sub(now_ns()).min(3_600_000_000_000))).await;
}

/// Longest message of the stream: a record and its headers.
const RESULT_BYTES: usize = RECORD_BYTES + (16 << 10);
