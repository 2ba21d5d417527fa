//! The NATS server where coordinator and agents meet. Nobody reconnects: who loses it stops.

use std::{
    error::Error,
    fmt::Display,
    io,
    net::IpAddr,
    path::{Path, PathBuf},
};

use async_nats::{
    Client, ConnectError, ConnectErrorKind, ConnectOptions, Event, ServerAddr, ServerError, Subscriber,
};
use tokio::{
    fs,
    sync::watch,
    time::{self, Instant},
};

use crate::{
    message::{PAYLOAD_BYTES, bounded},
    spec::RunId,
    times::{ANSWER, LOOK, SERVER_STARTS},
};

/// The flag of [`Server::credentials`], by which errors name the file.
const CREDENTIALS_FLAG: &str = "--nats-creds";

/// The flag of [`Server::ca`].
const CA_FLAG: &str = "--nats-ca";

/// Messages that wait for a subscriber: some seconds of pings, and a bound on memory.
const WAITING: usize = 64;

/// A NATS server, and how to be let in.
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
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum NatsError {
    /// No connection to the server; a final one, as where it refuses the user, is not tried again.
    #[error("cannot connect to the NATS server {server}: {reason}")]
    Connect { server: String, reason: String, is_final: bool },
    /// The server keeps the user from a subject.
    #[error("the NATS server denies its user what the run needs: {0}")]
    Denied(String),
    /// The server does not do what is asked.
    #[error("{reason}; so the NATS server does not {what}")]
    Server { what: &'static str, reason: String },
    /// Somebody coordinates a run of this name.
    #[error("run {0} is there already; take another --run")]
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
    /// With the server's words first.
    pub(crate) fn server(what: &'static str, error: &dyn Display) -> NatsError {
        NatsError::Server { what, reason: bounded(error.to_string()) }
    }
}

/// Why a connection is of no further use.
fn end(event: Event) -> Option<NatsError> {
    match event {
        Event::Disconnected | Event::Closed => Some(NatsError::Lost),
        Event::ServerError(ServerError::Other(what)) if what.starts_with("Permissions Violation") => {
            Some(NatsError::Denied(bounded(what)))
        }
        _ => None,
    }
}

/// A connection that is never made again.
pub(crate) struct NatsConnection {
    pub(crate) client: Client,
    ended: watch::Receiver<Option<NatsError>>,
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
        let (tell, ended) = watch::channel(None);
        let options = self.options(&address).await.map_err(|reason| failed(reason, true))?;
        let options = options.name(name).event_callback(move |event| {
            if let Some(end) = end(event) {
                tell.send_replace(Some(end));
            }
            std::future::ready(())
        });
        let connected = options.connect(address).await;
        let client = connected.map_err(|error| failed(self.explained(&error), is_final(&error)))?;
        let most = client.max_payload();
        if most < PAYLOAD_BYTES {
            let why = format!(
                "it takes messages of {most} bytes, and a record may have {PAYLOAD_BYTES}: set max_payload: 1MB in \
                 its configuration, which is the default"
            );
            return Err(failed(why, true));
        }
        Ok(NatsConnection { client, ended })
    }

    /// The client's words, with the flags and files that may decide it.
    fn explained(&self, error: &ConnectError) -> String {
        let files = [(CA_FLAG, &self.ca), (CREDENTIALS_FLAG, &self.credentials)];
        let given = files.iter().filter_map(|(flag, file)| Some((flag, file.as_ref()?)));
        given.fold(bounded(error.to_string()), |text, (flag, file)| {
            format!("{text}, with {flag} {}", file.display())
        })
    }

    /// How to be let in.
    async fn options(&self, address: &ServerAddr) -> Result<ConnectOptions, String> {
        let mut options = ConnectOptions::new()
            .require_tls(self.url.starts_with("tls://"))
            .subscription_capacity(WAITING)
            .request_timeout(Some(ANSWER))
            // A coordinator looks for others.
            .no_echo()
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
    pub(crate) fn ends(&self) -> impl Future<Output = NatsError> + Send + use<> {
        let mut ended = self.ended.clone();
        async move {
            let end = ended.wait_for(Option::is_some).await.ok().and_then(|end| end.clone());
            // A sender that is gone is a client that is gone.
            end.unwrap_or(NatsError::Lost)
        }
    }

    /// Does something, unless the connection ends meanwhile.
    pub(crate) async fn during<T>(
        &self,
        doing: impl Future<Output = Result<T, NatsError>>,
    ) -> Result<T, NatsError> {
        tokio::select! {
            done = doing => done,
            error = self.ends() => Err(error),
        }
    }

    pub(crate) async fn subscribe(&self, subject: String) -> Result<Subscriber, NatsError> {
        self.client.subscribe(subject).await.map_err(|error| NatsError::server("subscribe", &error))
    }
}

/// Connects, and waits for a server that starts later.
pub(crate) async fn reach(server: &Server, name: &str) -> Result<NatsConnection, NatsError> {
    let since = Instant::now();
    loop {
        match server.connect(name).await {
            Err(NatsError::Connect { is_final: false, .. }) if since.elapsed() < SERVER_STARTS => {}
            reached => return reached,
        }
        time::sleep(LOOK).await;
    }
}
