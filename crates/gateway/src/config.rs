//! How a gateway behaves.

use std::{path::PathBuf, time::Duration};

use codecs::Format;
use wire::{Compression, RelayUrl, ServerTls, Support, WireLimits};

use crate::network::Network;

/// Compressions that are offered by default: those that compress once for many clients.
pub(crate) const DEFAULT_COMPRESSIONS: [&str; 3] = ["deflate-shared", "zstd-shared", "zstd-dict"];

/// Settings of a gateway.
#[derive(Debug, Clone)]
pub struct Config {
    /// The relay. Its path is the client's.
    pub relay: RelayUrl,
    /// Whether the relay may have a public address.
    pub relay_is_public: bool,
    /// Roots (PEM) for a relay at `wss://`; the platform's when absent.
    pub ca: Option<PathBuf>,
    /// The certificate for `wss://` clients.
    pub tls: Option<ServerTls>,
    /// Formats that clients may negotiate, next to JSON.
    pub formats: Vec<Format>,
    /// Compressions that clients may negotiate.
    pub compressions: Vec<Compression>,
    /// Texts in the User-Agent of clients that get no compression.
    pub no_compression_for: Vec<String>,
    /// Fronts whose `X-Forwarded-For` is believed.
    pub trust: Vec<Network>,
    /// Most connections of clients at once.
    pub max_connections: usize,
    /// Bounds of each connection that is not tunnelled.
    pub limits: WireLimits,
    /// Most bytes of events that are kept encoded and compressed.
    pub cache_bytes: usize,
    /// The new file into which what passes is recorded; none for no recording.
    pub record: Option<PathBuf>,
    /// Whether it is recorded as it is, which only a relay on loopback allows.
    pub record_raw: bool,
    /// Time between two Pings of a connection; a peer that is silent for three of them is left.
    pub ping_interval: Duration,
    /// Time for connections to end after the shutdown began.
    pub drain: Duration,
}

impl Config {
    /// The defaults, before this relay.
    pub fn new(relay: RelayUrl) -> Config {
        Config {
            relay,
            relay_is_public: false,
            ca: None,
            tls: None,
            formats: Format::all().collect(),
            compressions: DEFAULT_COMPRESSIONS
                .iter()
                .map(|name| Compression::named(name).expect("the list has names that are known"))
                .collect(),
            no_compression_for: Vec::new(),
            trust: Vec::new(),
            max_connections: 10_000,
            limits: WireLimits::default(),
            cache_bytes: 64 << 20,
            record: None,
            record_raw: false,
            ping_interval: Duration::from_secs(30),
            drain: Duration::from_secs(10),
        }
    }

    /// What clients may negotiate.
    pub(crate) fn support(&self) -> Support {
        Support {
            formats: self.formats.clone(),
            compressions: self.compressions.clone(),
            // An event that waits for others is a property of the relay.
            batched: false,
        }
    }
}
