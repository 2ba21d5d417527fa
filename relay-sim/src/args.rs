//! From the command line to a running relay.

use std::{
    ffi::OsString,
    future::Future,
    io::{self, IsTerminal, Write},
    net::SocketAddr,
    num::NonZeroUsize,
    path::PathBuf,
    process::ExitCode,
    str::FromStr,
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use clap::Parser;
use codecs::{Format, Implementation, UnknownName, VerifyLevel};
use corpus::Corpus;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::{
    net::{TcpListener, TcpSocket},
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};
use tracing::{info, warn};
use tracing_subscriber::EnvFilter;
use wire::{Compression, CompressionError, Dictionary, ServerTls};

use crate::{
    config::{Config, known_compressions},
    fanout::BatchLimits,
    fault::{self, Fault},
    floor::{self, Script},
    reconcile::{MIN_FRAME_BYTES, ReconcileLimits},
    serve, server,
    totals::Totals,
};

const EXAMPLES: &str = "\
Examples:
  relay-sim
      every format and every compression on ws://127.0.0.1:7777, events fully verified
  relay-sim --format proto-binary --compression none --verify none
      one format besides JSON, nothing compressed, nothing checked: what the format itself costs
  relay-sim --corpus data/sample.pb.gz --listen 127.0.0.1:0
      starts with stored events, on a free port
  relay-sim --tls-cert cert.pem --tls-key key.pem
      the same on wss://, for client-sim --url wss://localhost:7777 --ca cert.pem
  websocat ws://127.0.0.1:7777 <<< '[\"REQ\",\"a\",{\"kinds\":[1],\"limit\":3}]'
      any Nostr client speaks to it; without a subprotocol it is a plain NIP-01 relay
  curl -H 'Accept: application/nostr+json' http://127.0.0.1:7777
      what it supports (NIP-11)

Formats are negotiated by WebSocket subprotocol (nostr.cbor-packed.v1), deflate by WebSocket extension, zstd by a \
suffix of the subprotocol (nostr.json+zstd). The relay keeps events in memory and forgets them when it stops, by \
Ctrl-C or SIGTERM.

Exit codes: 0 stopped as asked, 1 failed, 2 wrong usage. RUST_LOG=relay_sim=debug tells more.";

/// A Nostr relay for load tests: NIP-01 in memory, in several wire formats.
#[derive(Debug, Parser)]
#[command(name = "relay-sim", version, after_help = EXAMPLES)]
struct Args {
    /// Address and port; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:7777")]
    listen: SocketAddr,

    /// Formats that clients may negotiate: `all`, or names with commas between; JSON is always among them
    #[arg(long, value_name = "FORMATS", default_value = "all")]
    format: Formats,

    /// Who wrote the code that reads and writes the formats: `library` or `tuned`
    #[arg(long, value_name = "WHO", default_value_t = Implementation::Library)]
    implementation: Implementation,

    /// CBOR formats, with commas between, that are read as other encoders write them: keys in any order, padded lengths,
    /// hex as text (docs/decisions/lenient.md)
    #[arg(long, value_name = "FORMATS", value_delimiter = ',')]
    lenient: Vec<Format>,

    /// Compressions that clients may negotiate: `all`, or names with commas between, each with parameters if need be,
    /// as in deflate:level=4:min_bytes=100; deflate-shared counts where no other deflate stands before it
    #[arg(long, value_name = "NAMES", default_value = "all")]
    compression: Compressions,

    /// A dictionary for zstd-dict (corpus train-dictionary makes one) instead of the bundled ones; may be repeated
    #[arg(long, value_name = "FILE")]
    dictionary: Vec<PathBuf>,

    /// What is checked of a published event: `full` (id and signature), `id` or `none`
    #[arg(long, value_name = "LEVEL", default_value_t = VerifyLevel::Full)]
    verify: VerifyLevel,

    /// Events to start with (.jsonl, .jsonl.gz, .jsonl.zst, .pb.gz); they are not verified
    #[arg(long, value_name = "FILE")]
    corpus: Option<PathBuf>,

    /// Threads that serve; 1 gives every format the same single core
    #[arg(long, value_name = "N", default_value = "1")]
    threads: NonZeroUsize,

    /// Answer HTTP 400 to a client that offers only unknown subprotocols, rather than speak JSON with it
    #[arg(long)]
    strict_negotiation: bool,

    /// Send every client a NIP-42 challenge; who answers may publish protected events (NIP-70)
    #[arg(long)]
    auth: bool,

    /// A certificate chain (PEM): clients then come by wss:// and by nothing else
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

    /// Stored events for a filter without a limit
    #[arg(long, value_name = "N", default_value_t = Config::default().default_limit)]
    default_limit: usize,

    /// Stored events for any one filter
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

    /// Live events that one connection may leave unread before it is closed with 1013
    #[arg(long, value_name = "BYTES", default_value_t = Config::default().outbox_bytes)]
    outbox_bytes: usize,

    /// How long a live event may wait for others, on connections that agreed to batches (tokens with .batched)
    #[arg(long, value_name = "MS", default_value_t = 5, value_parser = clap::value_parser!(u16).range(0..=10_000))]
    batch_ms: u16,

    /// Events of a batch
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4_096))]
    batch_n: u16,

    /// Encoded events of a batch together; a larger event goes alone
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 10, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    batch_bytes: u32,

    /// Memory for stored events, roughly; further ones are refused
    #[arg(long, value_name = "BYTES", default_value_t = Config::default().store_bytes)]
    store_bytes: usize,

    /// For tests of an instrument, misbehave; may be repeated. `stall=500ms@3s` (once, 3 s after the start; with one
    /// thread), `burn=20us` (CPU for each event sent), `delay=50ms` (of everything sent). Of deliveries, an event for a
    /// subscription each, as a share: `lose=1%` (left out), `double=1%` (sent twice), `alter=1%` (one field changed, never
    /// the id), `invent=1%` (another event beside it, which nobody published), `misroute=1%` (for a subscription that it
    /// does not match, or for "nobody"); each with `:seed=7` if need be, and at most one hits a delivery, the first that
    /// does. The relay says so wherever it speaks of itself, and counts what it planted
    #[arg(long, value_name = "FAULT", hide_short_help = true)]
    fault: Vec<Fault>,

    /// Do no Nostr work: answer from this script of a plan, which client-sim --floor writes; JSON without compression. What
    /// is measured then is the generator and the sockets
    #[arg(long, value_name = "FILE", hide_short_help = true, conflicts_with_all = ["corpus", "auth", "tls_cert", "fault"])]
    floor: Option<PathBuf>,

    /// For programs that start a relay: one line of JSON on stdout when it listens and one when it stopped; stops
    /// when stdin ends
    #[arg(long, hide = true)]
    announce: bool,
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

/// Runs the relay as the command line says; `args` are the arguments after the program's name.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args = match Args::try_parse_from(std::iter::once("relay-sim".into()).chain(args)) {
        Ok(args) => args,
        Err(error) => {
            let usage = u8::try_from(error.exit_code()).unwrap_or(2);
            return error.print().map_or(ExitCode::FAILURE, |()| ExitCode::from(usage));
        }
    };
    // A relay that another program started is not who its user talks to.
    let level = if args.announce { "warn" } else { "info" };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    // A program that runs relays in its own process may have set up logging already.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .try_init();
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> Result<()> {
    let (listen, threads, announce) = (args.listen, args.threads.get(), args.announce);
    let script = args.floor.as_deref().map(Script::read).transpose()?;
    let config = args.into_config()?;
    if let Err(error) = raise_descriptor_limit() {
        warn!(%error, "cannot raise the limit of open descriptors; it also limits connections");
    }
    let runtime = if threads == 1 {
        tokio::runtime::Builder::new_current_thread().enable_all().build()
    } else {
        tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()
    };
    let scheme = if config.tls.is_some() { "wss" } else { "ws" };
    runtime.context("cannot start the async runtime")?.block_on(async {
        let listener = bind(listen)?;
        let address = listener.local_addr().context("the listening socket has no address")?;
        let listener = delayed(listener, &config.faults).context("cannot delay what is sent")?;
        let faults: Vec<_> = config.faults.iter().map(ToString::to_string).collect();
        let stop = stop_signal(announce)?;
        info!(
            url = %format_args!("{scheme}://{address}"),
            formats = %names(&config.formats),
            implementation = %config.implementation,
            compressions = %names(&config.compressions),
            verify = %config.verify,
            threads,
            "listening; stop with Ctrl-C"
        );
        if announce {
            say(&serde_json::json!({ "listening": format!("{scheme}://{address}"), "pid": std::process::id(), "faults": faults }));
        }
        if let Some(script) = script {
            floor::serve(listener, Some(script), stop).await?;
            if announce {
                say(&serde_json::json!({ "floor": true }));
            }
            return Ok(());
        }
        let totals = serve(listener, config, stop).await?;
        server::log(&totals, "stopped");
        if announce {
            say_totals(&totals, &faults)?;
        }
        Ok(())
    })
}

impl Args {
    fn into_config(self) -> Result<Config> {
        let mut config = Config {
            formats: self.format.0,
            implementation: self.implementation,
            lenient: self.lenient,
            compressions: with_dictionaries(self.compression.0, &self.dictionary)?,
            strict_negotiation: self.strict_negotiation,
            verify: self.verify,
            auth: self.auth,
            hosts: self.host,
            max_subscriptions: self.max_subscriptions,
            default_limit: self.default_limit,
            max_limit: self.max_limit,
            outbox_bytes: self.outbox_bytes,
            store_bytes: self.store_bytes,
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
        config.codecs().context("choose another --format, --implementation or --lenient")?;
        if let Some(path) = self.corpus {
            let corpus = Corpus::read(&path).context("cannot preload --corpus")?;
            info!(events = corpus.events.len(), origin = %corpus.origin, fingerprint = %corpus.fingerprint, "read {}", corpus.name);
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

/// Listens with a queue long enough for a thousand clients that connect at once.
fn bind(address: SocketAddr) -> Result<TcpListener> {
    const BACKLOG: u32 = 4_096;
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => anyhow::anyhow!(
            "another program listens on {address} already; stop it, or choose another port with --listen \
             {}:PORT (port 0 takes a free one)",
            address.ip()
        ),
        _ => anyhow::Error::new(error).context(format!("cannot listen on {address}")),
    })
}

/// The listener that the relay serves: another one behind a delay, when that is among the faults.
fn delayed(listener: TcpListener, faults: &[Fault]) -> Result<TcpListener> {
    let delay = |fault: &Fault| if let Fault::Delay { by } = fault { *by } else { Duration::ZERO };
    let by: Duration = faults.iter().map(delay).sum();
    if by.is_zero() {
        return Ok(listener);
    }
    let outer = listener.into_std()?;
    outer.set_nonblocking(false)?;
    let inner = fault::behind_a_delay(outer, by)?;
    inner.set_nonblocking(true)?;
    Ok(TcpListener::from_std(inner)?)
}

/// Completes on Ctrl-C, on SIGTERM and, for the child of another program, when its stdin ends.
fn stop_signal(stop_with_stdin: bool) -> Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for Ctrl-C")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let (sender, stdin_ended) = oneshot::channel();
    if stop_with_stdin {
        // A thread of its own: tokio's stdin would keep the runtime from ending until somebody types.
        thread::spawn(move || {
            for line in io::stdin().lines() {
                match line.as_deref() {
                    // For whoever wants to know what a span of time cost.
                    Ok("allocations") => say(&serde_json::json!(measure::Allocations::so_far())),
                    Ok(_) => {}
                    Err(_) => break,
                }
            }
            let _ = sender.send(()); // nobody listens when the relay stops already
        });
    }
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            Ok(()) = stdin_ended => {}
        }
    })
}

/// Takes as many descriptors as the system lets us: a connection is one.
fn raise_descriptor_limit() -> nix::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
}

fn names<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(" ")
}

fn say_totals(totals: &Totals, faults: &[String]) -> Result<()> {
    let mut line = serde_json::to_value(totals).context("totals do not serialize")?;
    line["faults"] = faults.into();
    say(&line);
    Ok(())
}

/// Tells the program that started this one; it may be gone, which is no reason to fail.
fn say(line: &serde_json::Value) {
    let _ = writeln!(io::stdout(), "{line}");
}
