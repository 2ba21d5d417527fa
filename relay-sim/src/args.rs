//! The command line, and the [`Config`] that it asks for.

use std::{net::SocketAddr, num::NonZeroUsize, path::PathBuf, str::FromStr, time::Duration};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use codecs::{Format, Implementation, UnknownName, VerifyLevel};
use corpus::Corpus;
use tracing::{info, warn};
use wire::{Compression, CompressionError, Dictionary, ServerTls};

use crate::{
    config::{Config, Reencode, known_compressions},
    fanout::BatchLimits,
    fault::Fault,
    reconcile::{MIN_FRAME_BYTES, ReconcileLimits},
    store::StoreConfig,
};

const EXAMPLES: &str = "\
Examples:
  relay-sim
      every format and every compression on ws://127.0.0.1:7777, events fully verified
  relay-sim --format proto-binary --compression none --verify none
      one format besides JSON, nothing compressed, nothing checked: what the format itself costs
  relay-sim --corpus data/sample.pb.gz --listen 127.0.0.1:0
      starts with stored events, on a free port
  relay-sim --store DIR --at-rest dannypack
      keeps events in a directory, as this format writes them
  relay-sim --tls-cert cert.pem --tls-key key.pem
      the same on wss://, for client-sim --url wss://localhost:7777 --ca cert.pem
  websocat ws://127.0.0.1:7777 <<< '[\"REQ\",\"a\",{\"kinds\":[1],\"limit\":3}]'
      any Nostr client speaks to it; without a subprotocol it is a plain NIP-01 relay
  curl -H 'Accept: application/nostr+json' http://127.0.0.1:7777
      what it supports (NIP-11)

Formats are negotiated by WebSocket subprotocol (nostr.cbor-packed.v1), deflate by WebSocket extension, zstd by a \
suffix of the subprotocol (nostr.json+zstd). Without --store the relay keeps events in memory and forgets them when \
it stops, by Ctrl-C or SIGTERM.

Exit codes: 0 stopped as asked, 1 failed, 2 wrong usage. RUST_LOG=relay_sim=debug tells more.";

/// A Nostr relay for load tests: NIP-01 in memory or on disk, in several wire formats.
#[derive(Debug, Parser)]
#[command(name = "relay-sim", version, after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Address and port; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7777")]
    pub(crate) listen: SocketAddr,

    /// Formats that clients may negotiate: `all`, or names with commas between; JSON is always
    /// among them
    #[arg(long, value_name = "FORMATS", default_value = "all")]
    format: Formats,

    /// Who wrote the code that reads and writes the formats: `library` or `tuned`
    #[arg(long, value_name = "WHO", default_value_t = Implementation::Library)]
    implementation: Implementation,

    /// Compressions that clients may negotiate: `all`, or names with commas between, each with
    /// optional parameters, as in deflate:level=4:min_bytes=100. Of several kinds of deflate,
    /// `deflate` serves clients that accept context takeover, the first other kind the rest
    #[arg(long, value_name = "NAMES", default_value = "all")]
    compression: Compressions,

    /// A dictionary for zstd-dict (corpus train-dictionary makes one) instead of the bundled ones;
    /// may be repeated
    #[arg(long, value_name = "FILE")]
    dictionary: Vec<PathBuf>,

    /// What is checked of a published event: `full` (id and signature), `id` or `none`
    #[arg(long, value_name = "LEVEL", default_value_t = VerifyLevel::Full)]
    verify: VerifyLevel,

    /// Encode an event anew for readers of its publisher's format: always, or never where the
    /// published bytes are those that the codec would write
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    reencode: Reencode,

    /// Events to start with (.jsonl, .jsonl.gz, .jsonl.zst, .pb.gz); they are not verified
    #[arg(long, value_name = "FILE")]
    corpus: Option<PathBuf>,

    /// Leave out what in --corpus is no valid event, and count it; each event is then verified
    #[arg(long, requires = "corpus")]
    skip_invalid: bool,

    /// Threads that serve; 1 gives every format the same single core
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) threads: NonZeroUsize,

    /// Answer HTTP 400 to a client that offers only unknown subprotocols, rather than speak JSON
    /// with it
    #[arg(long)]
    strict_negotiation: bool,

    /// Send every client a NIP-42 challenge; a client that answers may publish protected events
    /// (NIP-70)
    #[arg(long)]
    auth: bool,

    /// Accept, keep and send expired events (NIP-40), for load tests with old events
    #[arg(long)]
    keep_expired: bool,

    /// Certificate chain (PEM); the relay then serves wss:// only
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The certificate's private key (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// A host name that clients reach this relay by, for the check of AUTH; may be repeated
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,

    /// Largest incoming message, as it comes and after inflation
    #[arg(long, value_name = "BYTES", default_value_t = Config::default().wire.max_message_bytes)]
    max_message_bytes: usize,

    /// Connections at one time; the rest are turned away
    #[arg(long, value_name = "N")]
    max_connections: Option<usize>,

    /// Subscriptions of one connection
    #[arg(long, value_name = "N", default_value_t = Config::default().max_subscriptions)]
    max_subscriptions: usize,

    /// Stored events sent for a filter without a limit
    #[arg(long, value_name = "N", default_value_t = Config::default().default_limit)]
    default_limit: usize,

    /// Most stored events sent for one filter, whatever its limit
    #[arg(long, value_name = "N", default_value_t = Config::default().max_limit)]
    max_limit: usize,

    /// Reconciliations (NIP-77) of one connection
    #[arg(long, value_name = "N", default_value_t = Config::default().reconcile.max_open)]
    max_reconciliations: usize,

    /// Events that one reconciliation may be about
    #[arg(long, value_name = "N", default_value_t = Config::default().reconcile.max_events)]
    max_reconcile_events: usize,

    /// Largest message of a reconciliation before hex; at least 4096
    #[arg(long, value_name = "BYTES", default_value_t = Config::default().reconcile.frame_bytes)]
    reconcile_frame_bytes: usize,

    /// Bytes of live events that one connection may leave unread before it is closed with 1013
    #[arg(long, value_name = "BYTES", default_value_t = Config::default().outbox_bytes)]
    outbox_bytes: usize,

    /// How long a live event may wait for others, on connections that agreed to batches (tokens
    /// with .batched)
    #[arg(long, value_name = "MS", default_value_t = 5, value_parser = clap::value_parser!(u16).range(0..=10_000))]
    batch_ms: u16,

    /// Most events in a batch
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4_096))]
    batch_n: u16,

    /// Most bytes of encoded events in a batch; a larger event goes alone
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 10, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    batch_bytes: u32,

    /// Keep events in this directory, which is created if missing; OK is sent once an event is on
    /// disk
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,

    /// Format of the events in --store: connections that speak it get the stored bytes. Default:
    /// the format that DIR holds, json for a new DIR
    #[arg(long, value_name = "FORMAT", requires = "store")]
    at_rest: Option<Format>,

    /// Memory for stored events, roughly; further events are refused. With --store, memory for the
    /// indexes and for the events that were sent last
    #[arg(long, value_name = "BYTES", default_value_t = Config::default().store_bytes)]
    store_bytes: usize,

    /// For tests of an instrument, misbehave; may be repeated. `stall=500ms@3s` (once, 3 s after
    /// the start; with one thread), `burn=20us` (CPU for each event sent), `delay=50ms` (of
    /// everything sent). Of deliveries, an event for a subscription each, as a share: `lose=1%`
    /// (left out), `double=1%` (sent twice), `alter=1%` (one field changed, never the id),
    /// `invent=1%` (another event beside it, which nobody published), `misroute=1%` (for a
    /// subscription that it does not match, or for "nobody"); each with an optional `:seed=7`. A
    /// delivery is hit by one fault at most, the first that does. The relay names its faults in its
    /// announcement, totals and NIP-11 document, and counts what it planted
    #[arg(long, value_name = "FAULT", hide_short_help = true)]
    fault: Vec<Fault>,

    /// Do no Nostr work: answer from this script of a plan, which client-sim --floor writes. JSON
    /// without compression. What remains is the cost of generator and sockets
    #[arg(long, value_name = "FILE", hide_short_help = true, conflicts_with_all = ["corpus", "auth", "tls_cert", "fault", "store"])]
    pub(crate) floor: Option<PathBuf>,

    /// For programs that start a relay: one line of JSON on stdout when it listens and one when it
    /// stopped; stops when stdin ends
    #[arg(long, hide = true)]
    pub(crate) announce: bool,
}

/// The value of `--format`.
#[derive(Debug, Clone)]
struct Formats(Vec<Format>);

impl FromStr for Formats {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        if text == "all" {
            return Ok(Formats(Format::all().collect()));
        }
        let known = || Format::all().map(Format::name).chain(["all"]);
        text.split(',')
            .map(|name| name.parse().map_err(|_| UnknownName::new("format", name, known())))
            .collect::<Result<_, _>>()
            .map(Formats)
    }
}

/// The value of `--compression`.
#[derive(Debug, Clone)]
struct Compressions(Vec<Compression>);

impl FromStr for Compressions {
    type Err = CompressionError;

    fn from_str(text: &str) -> Result<Self, CompressionError> {
        match text {
            "all" => Ok(Compressions(known_compressions())),
            list => list.split(',').map(str::parse).collect::<Result<_, _>>().map(Compressions),
        }
    }
}

impl Args {
    pub(crate) fn into_config(self) -> Result<Config> {
        let mut config = Config {
            formats: self.format.0,
            implementation: self.implementation,
            compressions: with_dictionaries(self.compression.0, &self.dictionary)?,
            strict_negotiation: self.strict_negotiation,
            verify: self.verify,
            reencode: self.reencode,
            auth: self.auth,
            keep_expired: self.keep_expired,
            hosts: self.host,
            max_subscriptions: self.max_subscriptions,
            default_limit: self.default_limit,
            max_limit: self.max_limit,
            outbox_bytes: self.outbox_bytes,
            store_bytes: self.store_bytes,
            store: self.store.map(|directory| StoreConfig { directory, at_rest: self.at_rest }),
            max_connections: self.max_connections,
            faults: self.fault,
            batch: BatchLimits {
                hold: Duration::from_millis(self.batch_ms.into()),
                events: self.batch_n.into(),
                bytes: self.batch_bytes as usize,
            },
            ..Config::default()
        };
        config.wire.max_message_bytes = self.max_message_bytes;
        ensure!(
            self.reconcile_frame_bytes >= MIN_FRAME_BYTES,
            "--reconcile-frame-bytes must be at least {MIN_FRAME_BYTES}, unlike {}",
            self.reconcile_frame_bytes
        );
        config.reconcile = ReconcileLimits {
            max_open: self.max_reconciliations,
            max_events: self.max_reconcile_events,
            frame_bytes: self.reconcile_frame_bytes,
        };
        if let (Some(certificate), Some(key)) = (self.tls_cert, self.tls_key) {
            config.tls = Some(
                ServerTls::from_files(&certificate, &key).context("cannot use --tls-cert and --tls-key")?,
            );
        }
        config.codecs().context("choose another --format or --implementation")?;
        if let Some(path) = self.corpus {
            let corpus = Corpus::read_with(&path, self.skip_invalid).context("cannot preload --corpus")?;
            info!(events = corpus.events.len(), origin = %corpus.origin, fingerprint = %corpus.fingerprint, "read {}", corpus.name);
            if corpus.skipped.count() > 0 {
                warn!("{}: {}; `corpus verify` lists all", path.display(), corpus.skipped);
            }
            config.preload = corpus.events;
        }
        Ok(config)
    }
}

/// Every `zstd-dict` once for each of the dictionaries; without any, with those that are bundled.
fn with_dictionaries(compressions: Vec<Compression>, files: &[PathBuf]) -> Result<Vec<Compression>> {
    if files.is_empty() {
        return Ok(compressions);
    }
    ensure!(
        compressions.iter().any(|compression| compression.name() == "zstd-dict"),
        "--dictionary is for --compression zstd-dict, which is not enabled"
    );
    let dictionaries: Vec<_> = files
        .iter()
        .map(|file| {
            Dictionary::read(file).with_context(|| format!("cannot use --dictionary {}", file.display()))
        })
        .collect::<Result<_>>()?;
    let mut all = Vec::new();
    for compression in compressions {
        match compression.name() {
            "zstd-dict" => {
                all.extend(dictionaries.iter().map(|&dictionary| compression.with_dictionary(dictionary)));
            }
            _ => all.push(compression),
        }
    }
    Ok(all)
}
