//! What all connections of a gateway share.

use std::{
    io,
    net::TcpListener,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use codecs::Format;
use recording::{Recorder, Redaction};
use serde_json::Value;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use wire::{Compression, Dictionary, Endpoint, ServerConfig, ServerTls, Support};

use crate::{
    cache::Cache, config::Config, metrics::Metrics, network::is_private, request::Request, shunned::Shunned,
};

/// Time for the relay to take the connection of a health check.
const HEALTH: Duration = Duration::from_secs(2);

/// Requests for metrics that are answered at one time, and the time to read one.
const METRICS_AT_ONCE: usize = 16;
const METRICS_PATIENCE: Duration = Duration::from_secs(5);

/// The header of an answer in plain text.
pub(crate) const TEXT: (&str, &str) = ("Content-Type", "text/plain; charset=utf-8");

/// A relay, the terms that clients are offered, and the state of all connections.
#[derive(Debug)]
pub struct Gateway {
    pub(crate) config: Config,
    pub(crate) relay: Endpoint,
    /// The handshake of clients, and of those that get no compression.
    pub(crate) front: ServerConfig,
    pub(crate) uncompressed: ServerConfig,
    /// The key `wire` of the relay's NIP-11 document.
    pub(crate) described: Value,
    pub(crate) dictionaries: Vec<Dictionary>,
    pub(crate) cache: Cache,
    pub(crate) metrics: Metrics,
    pub(crate) shunned: Shunned,
    pub(crate) recorder: Option<Arc<Recorder>>,
    /// Cancelled once the gateway stops.
    pub(crate) stop: CancellationToken,
}

impl Gateway {
    /// Checks the relay's address, which is looked up once for the gateway's life.
    ///
    /// # Errors
    /// For an address that has a path or a password, that is not found, or that is public without
    /// [`Config::relay_is_public`].
    pub async fn open(mut config: Config) -> Result<Arc<Gateway>> {
        config.limits.max_message_bytes = config.max_message_bytes as usize;
        let url = &config.relay;
        ensure!(
            url.resource() == "/",
            "--relay {url} has a path: leave it out, because the path of each client is passed"
        );
        ensure!(
            url.authorization().is_none(),
            "--relay {url} has a user: leave it out, because the Authorization of each client is passed"
        );
        let relay = Endpoint::new(url.clone(), config.ca.as_deref()).context("cannot use --relay")?;
        let addresses = relay.addresses().await.with_context(|| format!("cannot find --relay {url}"))?;
        ensure!(!addresses.is_empty(), "--relay {url}: the name has no address");
        if let Some(public) = addresses.iter().find(|address| !is_private(address.ip()))
            && !config.relay_is_public
        {
            bail!(
                "--relay {url} is at {}, which is neither of this host nor private: what clients sign and say would go \
                 there through this gateway; with the consent of that relay's operator add --relay-is-public",
                public.ip()
            );
        }
        ensure!(
            !config.record_raw || addresses.iter().all(|address| address.ip().to_canonical().is_loopback()),
            "--record-raw writes what people say as it is, which only a relay on loopback allows; --relay {url} is \
             elsewhere: leave --record-raw out, and pseudonyms are written"
        );
        let tls = config.cert.as_ref().zip(config.key.as_ref());
        let tls = tls.map(|(cert, key)| ServerTls::from_files(cert, key)).transpose();
        let tls = tls.context("cannot use --cert and --key")?;
        let server = |support: Support| ServerConfig {
            support,
            limits: config.limits,
            relay_info: String::new(),
            tls: tls.clone(),
        };
        let support = support(&config)?;
        let uncompressed = Support { compressions: Vec::new(), ..support.clone() };
        // Last: a start that fails leaves no file.
        let redaction = if config.record_raw { Redaction::None } else { Redaction::Pseudonyms };
        let by = concat!("gateway ", env!("CARGO_PKG_VERSION"));
        let recorder =
            config.record.as_deref().map(|file| Recorder::start(file, redaction, by)).transpose()?;
        Ok(Arc::new(Gateway {
            relay,
            described: support.described(),
            dictionaries: support.dictionaries(),
            front: server(support),
            uncompressed: server(uncompressed),
            cache: Cache::new(config.cache_bytes as usize),
            metrics: Metrics::default(),
            shunned: Shunned::default(),
            recorder,
            stop: CancellationToken::new(),
            config,
        }))
    }

    /// Has a thread answer `/metrics` and `/healthz` on a listener of its own, without end.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn serve_metrics(self: &Arc<Self>, listener: TcpListener) -> io::Result<()> {
        let (gateway, is_loopback) = (Arc::clone(self), listener.local_addr()?.ip().is_loopback());
        wire::serve_pages(listener, (METRICS_AT_ONCE, METRICS_PATIENCE), move |incoming, config| {
            let gateway = Arc::clone(&gateway);
            async move {
                if incoming.target() != "/healthz" {
                    let (paths, exposed) = ("/metrics and /healthz", |open| gateway.exposed(open));
                    return wire::answer_metrics(incoming, is_loopback, paths, exposed).await;
                }
                let (status, text) = match timeout(HEALTH, gateway.relay.open(&config.limits)).await {
                    Ok(Ok(_)) => ("200 OK", "ok\n"),
                    _ => ("503 Service Unavailable", "the relay takes no connection\n"),
                };
                incoming.answer_with(status, &[TEXT], text.as_bytes()).await;
            }
        })
    }

    fn exposed(&self, open_metrics: bool) -> String {
        self.metrics.exposed(open_metrics, &self.cache, self.recorder.as_deref())
    }

    pub(crate) fn has_tls(&self) -> bool {
        self.front.tls.is_some()
    }

    /// Whether the client gets no compression.
    pub(crate) fn declines_compression(&self, request: &Request) -> bool {
        let agent = request.field("user-agent").unwrap_or_default();
        self.config.no_compression_for.iter().any(|text| agent.contains(text))
            || self.shunned.has(request.client, Instant::now())
    }
}

/// What clients may negotiate.
fn support(config: &Config) -> Result<Support> {
    let formats = if config.format.is_empty() { Format::all().collect() } else { config.format.clone() };
    let mut compressions = config.compression.clone();
    for file in &config.dictionary {
        let dictionary = wire::dictionary::read(file)
            .with_context(|| format!("cannot use --dictionary {}", file.display()))?;
        compressions.push(Compression::named("zstd-dict")?.with_dictionary(dictionary));
    }
    // An event that waits for others is a property of the relay.
    Ok(Support { formats, compressions, batched: false })
}
