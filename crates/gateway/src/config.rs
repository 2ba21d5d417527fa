//! How a gateway behaves: its flags, which are also its settings.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::Parser;
use codecs::Format;
use ipnet::IpNet;
use wire::{Compression, RelayUrl, WireLimits};

use crate::network;

const LISTEN: &str = "Listen";
const RELAY: &str = "Relay";
const WIRE: &str = "Wire";
const RECORD: &str = "Record";
const LIMITS: &str = "Limits";

const EXAMPLES: &str = "\
Examples:
  Listen  gateway --listen 0.0.0.0:443 --cert cert.pem --key key.pem
  Listen  gateway --trust 127.0.0.1 --metrics-listen 127.0.0.1:9100
  Relay   gateway --relay ws://127.0.0.1:7777
  Wire    gateway --format dannypack --compression zstd-dict
  Record  gateway --record day.jsonl.zst

docs/gateway.md states what passes, what is held and whom to trust.";

const MORE: &str = "\
Tell the relay its public address (strfry: relay.auth.serviceUrl): NIP-42 and NIP-98 check it. The gateway passes \
Host and sends the client's address as X-Forwarded-For and X-Real-IP.

Exit codes: 0 stopped by a signal, 1 failed, 2 wrong usage. RUST_LOG=gateway=debug logs more.";

/// Stands before a Nostr relay and speaks compressions and formats that the relay does not.
#[derive(Debug, Parser)]
#[command(name = "gateway", version, after_help = EXAMPLES, after_long_help = MORE)]
pub struct Config {
    /// Address and port for clients; port 0 takes a free one
    #[arg(long, help_heading = LISTEN, value_name = "ADDRESS", default_value = "127.0.0.1:7000")]
    pub(crate) listen: SocketAddr,

    /// Certificate chain (PEM); the gateway then serves wss:// only
    #[arg(long, help_heading = LISTEN, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,

    /// The certificate's private key (PEM)
    #[arg(long, help_heading = LISTEN, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,

    /// Fronts whose X-Forwarded-For is believed: addresses or networks, with commas
    #[arg(
        long, help_heading = LISTEN, value_name = "NETWORKS", value_delimiter = ',', value_parser = network::parse
    )]
    pub trust: Vec<IpNet>,

    /// Address for /metrics (Prometheus) and /healthz
    #[arg(long, help_heading = LISTEN, value_name = "ADDRESS")]
    pub(crate) metrics_listen: Option<SocketAddr>,

    /// Print where it listens as one line of JSON, and stop when standard input ends
    ///
    /// {"listening":"ws://127.0.0.1:40123","pid":4711}, or {"failed":"..."} with the reason. For programs that
    /// start it.
    #[arg(long, help_heading = LISTEN, hide_short_help = true)]
    pub(crate) announce: bool,

    /// Threads that serve [default: one for each core]
    #[arg(
        long, help_heading = LISTEN, value_name = "N", hide_short_help = true,
        value_parser = clap::value_parser!(u16).range(1..=256)
    )]
    pub(crate) threads: Option<u16>,

    /// The relay: ws:// or wss://, on this host or in a private network
    #[arg(long, help_heading = RELAY, value_name = "URL", default_value = "ws://127.0.0.1:7777")]
    pub relay: RelayUrl,

    /// Root certificates (PEM) for a relay at wss:// [default: the platform's]
    #[arg(long, help_heading = RELAY, value_name = "FILE")]
    pub ca: Option<PathBuf>,

    /// Accept a relay with a public address
    ///
    /// What clients sign and say then goes to that host.
    #[arg(long, help_heading = RELAY)]
    pub relay_is_public: bool,

    /// Formats that clients may negotiate, with commas [default: all]
    #[arg(long, help_heading = WIRE, value_name = "FORMATS", value_delimiter = ',')]
    pub format: Vec<Format>,

    /// Compressions that clients may negotiate, with commas; none for none
    // By default those that compress once for many clients.
    #[arg(
        long, help_heading = WIRE, value_name = "NAMES", value_delimiter = ',',
        default_values = ["deflate-shared", "zstd-shared", "zstd-dict"]
    )]
    pub compression: Vec<Compression>,

    /// A dictionary for zstd-dict, next to the bundled ones; may be repeated
    ///
    /// Keep old ones: clients have tokens with their ids. corpus train-dictionary makes one.
    #[arg(long, help_heading = WIRE, value_name = "FILE", hide_short_help = true)]
    pub(crate) dictionary: Vec<PathBuf>,

    /// Decline compression to clients whose User-Agent contains this; may be repeated
    ///
    /// For stacks that fail with a compression that they offer. Apple's URLSession has CFNetwork in
    /// its User-Agent.
    #[arg(
        long, help_heading = WIRE, value_name = "TEXT", hide_short_help = true,
        value_parser = clap::builder::NonEmptyStringValueParser::new()
    )]
    pub(crate) no_compression_for: Vec<String>,

    /// Record what passes in this new file, under pseudonyms
    ///
    /// Keys, ids, texts and names are replaced while they are written. Then no client is passed as bytes.
    /// docs/gateway.md has what pseudonyms do not hide.
    #[arg(long, help_heading = RECORD, value_name = "FILE")]
    pub record: Option<PathBuf>,

    /// Record messages as they are, before a relay on loopback
    ///
    /// AUTH and private messages are left out even then.
    #[arg(long, help_heading = RECORD, requires = "record", hide_short_help = true)]
    pub record_raw: bool,

    /// Most connections; more are answered with 503
    #[arg(
        long, help_heading = LIMITS, value_name = "N", default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    pub max_connections: u32,

    /// Largest message of clients with a format or compression, and of their relay
    #[arg(
        long, help_heading = LIMITS, value_name = "BYTES", default_value_t = 1 << 20,
        value_parser = clap::value_parser!(u32).range(1 << 10..=64 << 20)
    )]
    pub(crate) max_message_bytes: u32,

    /// Most bytes of events that are kept encoded and compressed
    #[arg(long, help_heading = LIMITS, value_name = "BYTES", default_value_t = 64 << 20)]
    pub(crate) cache_bytes: u32,

    /// Time between two Pings
    #[arg(
        long = "ping-seconds", help_heading = LIMITS, value_name = "SECONDS", default_value = "30",
        hide_short_help = true, value_parser = whole_seconds
    )]
    pub ping_interval: Duration,

    /// Other bounds of each connection that is not tunnelled.
    #[arg(skip)]
    pub limits: WireLimits,
}

fn whole_seconds(text: &str) -> Result<Duration, String> {
    program::units::whole_seconds(text).map(|seconds| Duration::from_secs(seconds.into()))
}
