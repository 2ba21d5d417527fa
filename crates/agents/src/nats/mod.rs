//! Carries the messages of a run by NATS: requests for pings and commands, a key-value bucket for
//! spec, claims and state, a stream for records, an object store for events.
//!
//! [`coordinate`] opens a run, [`attend`] is an agent's part in one. Neither reconnects: who loses
//! the server stops.

mod attend;
mod coordinate;
mod files;

use std::{
    error::Error,
    fmt::Display,
    future::Future,
    io,
    net::IpAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use async_nats::{
    Client, ConnectError, ConnectErrorKind, ConnectOptions, Event, HeaderMap, Message, ServerAddr,
    ServerError, jetstream,
};
use tokio::{fs, sync::watch};

pub use self::{
    attend::{Attendance, Attended, attend},
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

/// Subjects of the stream: run, round, position, agent.
const RESULTS: &str = "nsim.v1.*.result.*.*.*";

/// Says which start of which run a message belongs to.
const RUN_HEADER: &str = "Nsim-Run";

/// Exit code of the player whose record a message is; absent when a signal ended it.
const EXIT_HEADER: &str = "Nsim-Exit";

/// Leavings of a run whose coordinator was killed are forgotten after a day.
const KEPT: Duration = Duration::from_secs(24 * 3_600);

/// Longest wait for an answer of the server.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// The flag of [`Server::credentials`], by which errors name the file.
const CREDENTIALS_FLAG: &str = "--nats-creds";

/// The flag of [`Server::ca`].
const CA_FLAG: &str = "--nats-ca";

/// Messages that wait for a subscriber: some seconds of pings, and a bound on memory.
const WAITING: usize = 64;

/// A NATS server with JetStream, and how to be let in.
#[derive(Debug, Clone)]
pub struct Server {
    /// `nats://HOST:PORT`, or `tls://HOST:PORT` for TLS.
    pub url: String,
    /// File of credentials (JWT and seed).
    pub credentials: Option<PathBuf>,
    /// File of certificates to trust instead of the system's, as PEM.
    pub ca: Option<PathBuf>,
}

/// Why there is no run, or no part in one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NatsError {
    /// No connection to the server; a final one, as where it refuses the user, is not tried again.
    #[error("cannot connect to the NATS server {server}: {reason}")]
    Connect { server: String, reason: String, is_final: bool },
    /// The server keeps the user from a subject.
    #[error("the NATS server denies its user what the run needs: {0}")]
    Denied(String),
    /// The server does not do what is asked.
    #[error("the NATS server: {what}: {reason}")]
    Server { what: &'static str, reason: String },
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

/// Why a connection is of no further use.
#[derive(Debug, Clone)]
enum End {
    Lost,
    /// The server's words.
    Denied(String),
}

impl End {
    fn from_event(event: Event) -> Option<End> {
        match event {
            Event::Disconnected | Event::Closed => Some(End::Lost),
            Event::ServerError(ServerError::Other(what)) if what.starts_with("Permissions Violation") => {
                Some(End::Denied(what))
            }
            _ => None,
        }
    }
}

/// A connection that is never made again.
struct NatsConnection {
    client: Client,
    end: watch::Receiver<Option<End>>,
}

impl Server {
    /// Whether its address is one that only this machine, or a tunnel, reaches.
    pub fn is_loopback(&self) -> bool {
        let is_loopback = |host: &str| host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        let address = self.url.parse::<ServerAddr>();
        address.is_ok_and(|address| address.host() == "localhost" || is_loopback(address.host()))
    }

    async fn connect(&self, name: &str) -> Result<NatsConnection, NatsError> {
        let address = self.url.parse::<ServerAddr>();
        let address = address.map_err(|error| NatsError::Connect {
            server: "address".to_owned(),
            reason: error.to_string(),
            is_final: true,
        })?;
        // Not the URL, which may have a password.
        let place = format!("{}:{}", address.host(), address.port());
        let failed = |reason, is_final| NatsError::Connect { server: place.clone(), reason, is_final };
        let (tell, end) = watch::channel(None);
        let options = self.options(&address).await.map_err(|reason| failed(reason, true))?;
        let options = options.name(name).event_callback(move |event| {
            if let Some(end) = End::from_event(event) {
                tell.send_replace(Some(end));
            }
            std::future::ready(())
        });
        let connected = options.connect(address).await;
        let client = connected.map_err(|error| failed(self.explained(&error), is_final(&error)))?;
        Ok(NatsConnection { client, end })
    }

    /// The client's words, with the flag and the file that may decide it.
    fn explained(&self, error: &ConnectError) -> String {
        let of = match error.kind() {
            ConnectErrorKind::Io | ConnectErrorKind::Tls if is_of_certificates(error) => (CA_FLAG, &self.ca),
            ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation => {
                (CREDENTIALS_FLAG, &self.credentials)
            }
            _ => return error.to_string(),
        };
        match of {
            (flag, Some(file)) => format!("{error}, with {flag} {}", file.display()),
            (_, None) => error.to_string(),
        }
    }

    /// How to be let in.
    async fn options(&self, address: &ServerAddr) -> Result<ConnectOptions, String> {
        let mut options = ConnectOptions::new()
            .require_tls(self.url.starts_with("tls://"))
            .subscription_capacity(WAITING)
            .request_timeout(Some(ANSWERS_WITHIN))
            // 0 would mean without end.
            .max_reconnects(1);
        // The client itself does not take them from the address.
        if let (Some(user), Some(password)) = (address.username(), address.password()) {
            options = options.user_and_password(user.to_owned(), password.to_owned());
        }
        if let Some(file) = &self.credentials {
            let text = read(CREDENTIALS_FLAG, file).await?;
            options = options.credentials(&text).map_err(|error| named(CREDENTIALS_FLAG, file, error))?;
        }
        if let Some(file) = &self.ca {
            // The client takes a file without any, and then trusts nobody.
            if !read(CA_FLAG, file).await?.contains("-----BEGIN CERTIFICATE-----") {
                return Err(named(CA_FLAG, file, "it has no certificate as PEM"));
            }
            options = options.add_root_certificates(file.clone());
        }
        Ok(options)
    }
}

async fn read(flag: &str, file: &Path) -> Result<String, String> {
    fs::read_to_string(file).await.map_err(|error| named(flag, file, error))
}

fn named(flag: &str, file: &Path, reason: impl Display) -> String {
    format!("{flag} {}: {reason}", file.display())
}

/// Whether a later attempt fails, too. A server that starts later is no such case.
fn is_final(error: &ConnectError) -> bool {
    match error.kind() {
        ConnectErrorKind::Dns | ConnectErrorKind::TimedOut | ConnectErrorKind::MaxReconnects => false,
        ConnectErrorKind::Io => is_of_certificates(error),
        _ => true,
    }
}

/// Whether the server's certificate is refused, or those that are trusted cannot be read.
fn is_of_certificates(error: &ConnectError) -> bool {
    let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    source
        .is_some_and(|error| matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput))
}

impl NatsConnection {
    /// Completes once the connection is of no further use, with the reason.
    fn ends(&self) -> impl Future<Output = NatsError> + Send + use<> {
        let mut end = self.end.clone();
        async move {
            match end.wait_for(Option::is_some).await.as_deref() {
                Ok(Some(End::Denied(what))) => NatsError::Denied(what.clone()),
                // A sender that is gone is a client that is gone.
                _ => NatsError::Lost,
            }
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

    /// The records of a block, or of all.
    fn results(&self, of: Option<BlockKey>) -> String {
        match of {
            Some(key) => format!("nsim.v1.{}.result.{}.{}.*", self.run, key.round, key.position),
            None => format!("nsim.v1.{}.result.>", self.run),
        }
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
