//! From the command line to a running gateway.

use std::{
    ffi::OsString,
    io::{self, Write},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    thread::available_parallelism,
    time::Duration,
};

use anyhow::{Context, Result};
use clap::Parser;
use codecs::Format;
use serde_json::{Value, json};
use tracing::{info, level_filters::LevelFilter, warn};
use tracing_subscriber::EnvFilter;
use wire::{Compression, RelayUrl, ServerTls};

use crate::{
    config::{Config, DEFAULT_COMPRESSIONS},
    network::Network,
    server::serve,
    shared::Gateway,
};

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
struct Args {
    /// Address and port for clients; port 0 takes a free one
    #[arg(long, help_heading = LISTEN, value_name = "ADDRESS", default_value = "127.0.0.1:7000")]
    listen: SocketAddr,

    /// Certificate chain (PEM); the gateway then serves wss:// only
    #[arg(long, help_heading = LISTEN, value_name = "FILE", requires = "key")]
    cert: Option<PathBuf>,

    /// The certificate's private key (PEM)
    #[arg(long, help_heading = LISTEN, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,

    /// Fronts whose X-Forwarded-For is believed: addresses or networks, with commas
    #[arg(long, help_heading = LISTEN, value_name = "NETWORKS", value_delimiter = ',')]
    trust: Vec<Network>,

    /// Address for /metrics (Prometheus) and /healthz
    #[arg(long, help_heading = LISTEN, value_name = "ADDRESS")]
    metrics_listen: Option<SocketAddr>,

    /// Print where it listens as one line of JSON, and stop when standard input ends
    ///
    /// {"listening":"ws://127.0.0.1:40123","pid":4711}, or {"failed":"..."} with the reason. For programs that
    /// start it.
    #[arg(long, help_heading = LISTEN, hide_short_help = true)]
    announce: bool,

    /// Threads that serve [default: one for each core]
    #[arg(
        long, help_heading = LISTEN, value_name = "N", hide_short_help = true,
        value_parser = clap::value_parser!(u16).range(1..=256)
    )]
    threads: Option<u16>,

    /// The relay: ws:// or wss://, on this host or in a private network
    #[arg(long, help_heading = RELAY, value_name = "URL", default_value = "ws://127.0.0.1:7777")]
    relay: RelayUrl,

    /// Root certificates (PEM) for a relay at wss:// [default: the platform's]
    #[arg(long, help_heading = RELAY, value_name = "FILE")]
    ca: Option<PathBuf>,

    /// Accept a relay with a public address
    ///
    /// What clients sign and say then goes to that host.
    #[arg(long, help_heading = RELAY)]
    relay_is_public: bool,

    /// Formats that clients may negotiate, with commas [default: all]
    #[arg(long, help_heading = WIRE, value_name = "FORMATS", value_delimiter = ',')]
    format: Vec<Format>,

    /// Compressions that clients may negotiate, with commas; none for none
    #[arg(
        long, help_heading = WIRE, value_name = "NAMES", value_delimiter = ',',
        default_values = DEFAULT_COMPRESSIONS
    )]
    compression: Vec<Compression>,

    /// A dictionary for zstd-dict, next to the bundled ones; may be repeated
    ///
    /// Keep old ones: clients have tokens with their ids. corpus train-dictionary makes one.
    #[arg(long, help_heading = WIRE, value_name = "FILE", hide_short_help = true)]
    dictionary: Vec<PathBuf>,

    /// Decline compression to clients whose User-Agent contains this; may be repeated
    ///
    /// For stacks that fail with a compression that they offer. Apple's URLSession has CFNetwork in
    /// its User-Agent.
    #[arg(
        long, help_heading = WIRE, value_name = "TEXT", hide_short_help = true,
        value_parser = clap::builder::NonEmptyStringValueParser::new()
    )]
    no_compression_for: Vec<String>,

    /// Record what passes in this new file, under pseudonyms
    ///
    /// Keys, ids, texts and names are replaced while they are written. Then no client is passed as bytes.
    /// docs/gateway.md has what pseudonyms do not hide.
    #[arg(long, help_heading = RECORD, value_name = "FILE")]
    record: Option<PathBuf>,

    /// Record messages as they are, before a relay on loopback
    ///
    /// AUTH and private messages are left out even then.
    #[arg(long, help_heading = RECORD, requires = "record", hide_short_help = true)]
    record_raw: bool,

    /// Most connections; more are answered with 503
    #[arg(
        long, help_heading = LIMITS, value_name = "N", default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..)
    )]
    max_connections: u32,

    /// Largest message of clients with a format or compression, and of their relay
    #[arg(
        long, help_heading = LIMITS, value_name = "BYTES", default_value_t = 1 << 20,
        value_parser = clap::value_parser!(u32).range(1 << 10..=64 << 20)
    )]
    max_message_bytes: u32,

    /// Most bytes of events that are kept encoded and compressed
    #[arg(long, help_heading = LIMITS, value_name = "BYTES", default_value_t = 64 << 20)]
    cache_bytes: u32,

    /// Time between two Pings
    #[arg(
        long, help_heading = LIMITS, value_name = "SECONDS", default_value_t = 30, hide_short_help = true,
        value_parser = clap::value_parser!(u16).range(1..=3600)
    )]
    ping_seconds: u16,
}

/// Runs the gateway as the command line says; the first of `args` is the program's name.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args = match program::parse::<Args>(&args.collect::<Vec<_>>()) {
        Ok(args) => args,
        Err(not_parsed) => return not_parsed.code,
    };
    let announces = args.announce;
    // The log of a gateway started by another program is that program's business.
    let level = if announces { "warn" } else { "info" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        // It would print them to standard error, and panic where nobody reads that.
        .log_internal_errors(false)
        .with_ansi(anstream::AutoStream::choice(&io::stderr()) != anstream::ColorChoice::Never)
        .init();
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            program::report(&format!("gateway: {error:#}"));
            if announces {
                say(&json!({ "failed": format!("{error:#}") }));
            }
            ExitCode::FAILURE
        }
    }
}

/// Tells the program that started this one, which may be gone.
fn say(line: &Value) {
    let _ = writeln!(io::stdout(), "{line}");
}

fn run(args: Args) -> Result<()> {
    let (listen, metrics_listen, announces) = (args.listen, args.metrics_listen, args.announce);
    let threads = args.threads.map_or_else(|| available_parallelism().map_or(1, usize::from), usize::from);
    let config = args.into_config()?;
    match program::raise_descriptor_limit() {
        // A client has a socket, and its connection to the relay has one.
        Ok(most) if most < 2 * u64::try_from(config.max_connections)? => {
            warn!(
                most,
                "the limit of open descriptors is below two for each of --max-connections; raise it (ulimit -n, \
                 systemd: LimitNOFILE) or lower --max-connections"
            );
        }
        Ok(_) => {}
        Err(error) => warn!(%error, "cannot raise the limit of open descriptors; it also limits connections"),
    }
    // Beside them one may read standard input, and one answer for metrics.
    program::try_threads(threads + usize::from(announces) + usize::from(metrics_listen.is_some()))?;
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(threads).enable_all().build();
    runtime.context("cannot start the async runtime")?.block_on(async {
        // First, so that an address in use leaves no new recording behind.
        let listener = program::listen(listen)?;
        let for_metrics = metrics_listen.map(program::listen).transpose().context("cannot serve --metrics-listen")?;
        let gateway = Gateway::open(config).await?;
        let address = listener.local_addr().context("the listening socket has no address")?;
        let stop = program::stopped(announces.then_some(|_: &str| {}))?;
        if let Some(listener) = for_metrics {
            info!(address = %listener.local_addr()?, "metrics");
            gateway.serve_metrics(listener.into_std()?).context("cannot serve --metrics-listen")?;
        }
        let scheme = if gateway.config.tls.is_some() { "wss" } else { "ws" };
        let tokens = gateway.config.support().tokens().len();
        info!(
            url = %format_args!("{scheme}://{address}"),
            relay = %gateway.config.relay,
            tokens,
            threads,
            "listening; stop with Ctrl-C. The relay must know its public address for AUTH (NIP-42)"
        );
        if announces {
            let log_level = LevelFilter::current().to_string();
            say(&json!({
                "listening": format!("{scheme}://{address}"), "pid": std::process::id(), "log_level": log_level
            }));
        }
        serve(listener, gateway, stop).await;
        Ok(())
    })
}

impl Args {
    fn into_config(self) -> Result<Config> {
        let mut config = Config::new(self.relay);
        config.relay_is_public = self.relay_is_public;
        config.ca = self.ca;
        if let (Some(cert), Some(key)) = (self.cert, self.key) {
            config.tls = Some(ServerTls::from_files(&cert, &key).context("cannot use --cert and --key")?);
        }
        if !self.format.is_empty() {
            config.formats = self.format;
        }
        config.compressions = self.compression;
        config.compressions.retain(|compression| *compression != Compression::None);
        for file in &self.dictionary {
            let dictionary = wire::dictionary::read(file)
                .with_context(|| format!("cannot use --dictionary {}", file.display()))?;
            config.compressions.push(Compression::named("zstd-dict")?.with_dictionary(dictionary));
        }
        config.no_compression_for = self.no_compression_for;
        config.trust = self.trust;
        config.max_connections = self.max_connections as usize;
        config.limits.max_message_bytes = self.max_message_bytes as usize;
        config.cache_bytes = self.cache_bytes as usize;
        config.record = self.record;
        config.record_raw = self.record_raw;
        config.ping_interval = Duration::from_secs(self.ping_seconds.into());
        Ok(config)
    }
}
