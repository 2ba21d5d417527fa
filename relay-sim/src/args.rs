//! The command line, and its [`Config`].

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use codecs::Format;
use corpus::Corpus;
use terms::{BatchLimits, Compression};
use tracing::{info, warn};
use wire::{ServerTls, WireLimits};

use crate::{
    config::{Config, EVENTS, LIMITS, LISTEN, STORE, WIRE, known_compressions},
    fault::Fault,
    store::StoreConfig,
};

/// The address of `--listen`, at which client-sim looks for a relay-sim.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:7777";

/// One for each group of flags.
const EXAMPLES: &str = "\
Examples:
  Listen  relay-sim --tls-cert cert.pem --tls-key key.pem
  Wire    relay-sim --format proto-binary --compression zstd
  Events  relay-sim --corpus data/sample.pb.gz --verify none
  Store   relay-sim --store DIR --at-rest dannypack
  Limits  relay-sim --max-connections 1000
  Faults  relay-sim --fault no-eose

Without flags: every format and compression on ws://127.0.0.1:7777, events verified, in memory.";

const MORE: &str = "\
Ask it:
  websocat ws://127.0.0.1:7777 <<< '[\"REQ\",\"a\",{\"kinds\":[1],\"limit\":3}]'
      any Nostr client speaks to it; without a subprotocol it is a plain NIP-01 relay
  curl -H 'Accept: application/nostr+json' http://127.0.0.1:7777
      prints what it supports (NIP-11)

Formats are negotiated by WebSocket subprotocol (nostr.cbor-packed.v1), deflate by WebSocket extension, zstd by a \
suffix of the subprotocol (nostr.json+zstd). Without --store the relay keeps events in memory and forgets them when \
it stops, by Ctrl-C or SIGTERM.

Exit codes: 0 stopped by a signal or its input, 1 failed, 2 wrong usage. RUST_LOG=relay_sim=debug logs more.";

/// A Nostr relay for load tests: NIP-01 in memory or on disk, in several wire formats.
#[derive(Debug, Parser)]
#[command(name = "relay-sim", version, after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{MORE}"))]
pub(crate) struct Args {
    /// Address and port; port 0 takes a free one
    #[arg(
        long, help_heading = LISTEN, value_name = "ADDRESS", default_value = DEFAULT_ADDRESS,
        value_parser = address
    )]
    pub(crate) listen: SocketAddr,

    /// Certificate chain (PEM); the relay then serves wss:// only
    #[arg(long, help_heading = LISTEN, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,

    /// The certificate's private key (PEM)
    #[arg(long, help_heading = LISTEN, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,

    /// Threads that serve; 1 gives every format the same single core
    #[arg(
        long, help_heading = LISTEN, value_name = "N", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=256), allow_negative_numbers = true
    )]
    pub(crate) threads: u16,

    /// Formats that clients may negotiate, with commas
    ///
    /// All when absent, and always JSON. The client's first offer among them wins.
    #[arg(long, help_heading = WIRE, value_name = "FORMATS", value_delimiter = ',')]
    format: Vec<Format>,

    /// Compressions that clients may negotiate, with commas [default: all, none with --format]
    ///
    /// Each with optional parameters, as in deflate:level=4:min_bytes=100. `deflate` serves clients
    /// that accept context takeover. The first other kind of deflate serves the rest.
    #[arg(long, help_heading = WIRE, value_name = "NAMES", value_delimiter = ',')]
    compression: Vec<Compression>,

    /// A dictionary for zstd-dict, instead of the bundled ones; may be repeated
    ///
    /// corpus train-dictionary makes one.
    #[arg(long, help_heading = WIRE, value_name = "FILE", hide_short_help = true)]
    dictionary: Vec<PathBuf>,

    /// Longest wait of a live event for its batch
    ///
    /// Only on connections that agreed to batches (tokens with .batched).
    #[arg(
        long, help_heading = WIRE, value_name = "MS", default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(0..=10_000), hide_short_help = true
    )]
    batch_ms: u16,

    /// Most events in a batch
    #[arg(
        long, help_heading = WIRE, value_name = "N", default_value_t = 64,
        value_parser = clap::value_parser!(u16).range(1..=4_096), hide_short_help = true
    )]
    batch_n: u16,

    /// Most bytes of encoded events in a batch; a larger event goes alone
    #[arg(
        long, help_heading = WIRE, value_name = "BYTES", default_value_t = 64 << 10,
        value_parser = clap::value_parser!(u32).range(1..=1 << 20), hide_short_help = true
    )]
    batch_bytes: u32,

    /// Events to start with (.jsonl, .jsonl.gz, .jsonl.zst, .pb.gz)
    ///
    /// They are not verified.
    #[arg(long, help_heading = EVENTS, value_name = "FILE")]
    corpus: Option<PathBuf>,

    /// Leave out invalid events of --corpus, and count them
    ///
    /// Each event is then verified.
    #[arg(long, help_heading = EVENTS, requires = "corpus", hide_short_help = true)]
    skip_invalid: bool,

    /// Record what passes in this new file, under pseudonyms
    ///
    /// Keys, ids, texts and names are replaced while they are written. docs/gateway.md has what pseudonyms do
    /// not hide.
    #[arg(long, help_heading = EVENTS, value_name = "FILE", hide_short_help = true)]
    pub(crate) record: Option<PathBuf>,

    /// Keep events in this directory, which is created if missing
    ///
    /// OK is sent once an event is on disk.
    #[arg(long, help_heading = STORE, value_name = "DIR")]
    store: Option<PathBuf>,

    /// Format of the events in --store
    ///
    /// Connections that speak it get the stored bytes. Default: the format that DIR holds, json for
    /// a new DIR.
    #[arg(long, help_heading = STORE, value_name = "FORMAT", requires = "store")]
    at_rest: Option<Format>,

    /// Largest incoming message
    ///
    /// Both before and after inflation.
    #[arg(
        long, help_heading = LIMITS, value_name = "BYTES",
        default_value_t = WireLimits::default().max_message_bytes, value_parser = program::units::bytes
    )]
    max_message_bytes: usize,

    /// Do no Nostr work: answer from this script of a plan, which client-sim --floor writes
    ///
    /// JSON without compression. The cost of generator and sockets remains.
    #[arg(long, value_name = "FILE", hide = true, conflicts_with_all = ["corpus", "auth", "tls_cert", "record", "fault", "control", "store"])]
    pub(crate) floor: Option<PathBuf>,

    /// Print one line of JSON when it listens, with address and process, and one when it stopped
    ///
    /// For programs that start a relay: {"listening":"ws://127.0.0.1:41234","pid":7,...}, then the
    /// totals with faults and hits; {"failed":"..."} instead gives the reason. The relay stops when
    /// its standard input ends, so that it does not outlive a test: give it a pipe.
    #[arg(long, help_heading = LISTEN, hide_short_help = true)]
    pub(crate) announce: bool,

    #[command(flatten)]
    config: Config,
}

impl Args {
    pub(crate) fn into_config(self) -> Result<Config> {
        ensure!(
            !(self.config.control && self.config.faults.iter().any(Fault::is_a_delay)),
            "--control cannot tell hosts apart behind a delay: leave one of them out"
        );
        let insists = !self.format.is_empty();
        let compressions = match (insists, self.compression.is_empty()) {
            (_, false) => self.compression,
            // Who insists on a format gets nothing else unasked.
            (true, true) => vec![Compression::None],
            (false, true) => known_compressions(),
        };
        let mut config = self.config;
        if insists {
            config.formats = self.format;
        }
        config.compressions = with_dictionaries(compressions, &self.dictionary)?;
        config.store = self.store.map(|directory| StoreConfig { directory, at_rest: self.at_rest });
        config.batch = BatchLimits {
            hold: Duration::from_millis(self.batch_ms.into()),
            events: self.batch_n.into(),
            bytes: self.batch_bytes as usize,
        };
        config.wire.max_message_bytes = self.max_message_bytes;
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

/// An address to listen on, by number: a name may stand for several.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| "expected IP:PORT, as in 127.0.0.1:7777 or [::1]:7777".to_owned())
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
            wire::dictionary::read(file)
                .with_context(|| format!("cannot use --dictionary {}", file.display()))
        })
        .collect::<Result<_>>()?;
    let with_each = |compression: Compression| match compression.name() {
        "zstd-dict" => dictionaries.iter().map(|one| compression.with_dictionary(*one)).collect(),
        _ => vec![compression],
    };
    Ok(compressions.into_iter().flat_map(with_each).collect())
}
