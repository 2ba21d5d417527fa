//! How should the relay behave? Every setting with its default, and its flag if it has one;
//! [`crate::args`] has flags that are no setting by themselves.

use std::{sync::Arc, time::Duration};

use clap::{Parser, builder::RangedU64ValueParser};
use codecs::{Codec, Event, Filter, Format, Implementation, Limits, UnknownName, VerifyLevel};
use recording::Recorder;
use terms::{BatchLimits, Reencode};
use wire::{Compression, ServerTls, Support, WireLimits};

use crate::{
    fault::{self, Fault},
    store::StoreConfig,
};

// The groups of flags.
pub(crate) const LISTEN: &str = "Listen";
pub(crate) const WIRE: &str = "Wire";
pub(crate) const EVENTS: &str = "Events";
pub(crate) const STORE: &str = "Store";
pub(crate) const LIMITS: &str = "Limits";
const FAULTS: &str = "Faults";

/// The smallest frame that the crate `negentropy` takes.
pub(crate) const MIN_FRAME_BYTES: usize = 4_096;

// Bounds on reconciliations (NIP-77). clap would take a doc comment for what the program is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::Args)]
pub struct ReconcileLimits {
    /// Open ones of one connection.
    #[arg(skip = 4_usize)]
    pub max_open: usize,

    // strfry has the same bound; 40 MB.
    /// Most events of one reconciliation
    #[arg(
        long = "max-reconcile-events", help_heading = LIMITS, value_name = "N", default_value_t = 1_000_000,
        hide_short_help = true
    )]
    pub max_events: usize,

    // In JSON it becomes twice as long, and clients have a limit of 1 MiB for a message as a rule.
    /// Largest message of a reconciliation before hex; at least 4096
    #[arg(
        long = "reconcile-frame-bytes", help_heading = LIMITS, value_name = "BYTES",
        default_value_t = 500_000, hide_short_help = true,
        value_parser = RangedU64ValueParser::<usize>::new().range(MIN_FRAME_BYTES as u64..)
    )]
    pub frame_bytes: usize,
}

// A relay's settings, of which many are flags of the command line. `Config::default()` is what that
// gives without flags. clap would take a doc comment for what the program is about.
#[derive(Debug, Clone, clap::Args)]
#[non_exhaustive]
pub struct Config {
    /// A host name of this relay, for the check of AUTH; may be repeated
    #[arg(long = "host", help_heading = LISTEN, value_name = "NAME", hide_short_help = true)]
    pub hosts: Vec<String>,

    /// Decline compression to clients whose User-Agent contains this; may be repeated
    ///
    /// For stacks that fail with a compression that they offer. Apple's URLSession has CFNetwork in
    /// its User-Agent.
    #[arg(
        long, help_heading = WIRE, value_name = "TEXT", hide_short_help = true,
        value_parser = clap::builder::NonEmptyStringValueParser::new()
    )]
    pub no_compression_for: Vec<String>,

    /// Codecs: library (ecosystem) or tuned (ours)
    #[arg(long, help_heading = WIRE, value_name = "WHO", default_value_t = Implementation::Library)]
    pub implementation: Implementation,

    /// Encode an event anew for readers of its publisher's format: always, or never-if-canonical
    ///
    /// never-if-canonical passes on published bytes that equal the codec's.
    #[arg(
        long, help_heading = WIRE, value_name = "WHEN", value_enum, default_value_t, hide_short_help = true
    )]
    pub reencode: Reencode,

    /// Check of published events: full, id or none
    ///
    /// Full is id and signature (NIP-01).
    #[arg(long, help_heading = EVENTS, value_name = "LEVEL", default_value_t = VerifyLevel::Full)]
    pub verify: VerifyLevel,

    /// Send every client a NIP-42 challenge
    ///
    /// A client that answers may publish protected events (NIP-70).
    #[arg(long, help_heading = EVENTS)]
    pub auth: bool,

    /// Accept, keep and send expired events (NIP-40)
    ///
    /// For load tests with old events.
    #[arg(long, help_heading = EVENTS)]
    pub keep_expired: bool,

    /// Memory for stored events, roughly
    ///
    /// The relay rejects further events. With --store: memory for indexes and recently sent events.
    #[arg(
        long, help_heading = STORE, value_name = "BYTES", default_value_t = 2 << 30,
        value_parser = program::units::bytes
    )]
    pub store_bytes: usize,

    /// Connections at one time; further ones are closed
    #[arg(long, help_heading = LIMITS, value_name = "N")]
    pub max_connections: Option<usize>,

    /// Subscriptions of one connection
    #[arg(
        long, help_heading = LIMITS, value_name = "N", default_value_t = 300
    )]
    pub max_subscriptions: usize,

    /// Stored events sent for a filter without a limit
    #[arg(long, help_heading = LIMITS, value_name = "N", default_value_t = 500, hide_short_help = true)]
    pub default_limit: usize,

    /// Most stored events sent for one filter
    ///
    /// Caps the filter's own limit.
    #[arg(long, help_heading = LIMITS, value_name = "N", default_value_t = 5_000)]
    pub max_limit: usize,

    /// Live events that a client may not read yet
    ///
    /// Beyond that the relay closes it with 1013.
    #[arg(
        long, help_heading = LIMITS, value_name = "BYTES", default_value_t = 32 << 20,
        value_parser = program::units::bytes
    )]
    pub outbox_bytes: usize,

    /// Misbehave, for tests of an instrument or of a client; may be repeated
    #[arg(long = "fault", id = "fault", help_heading = FAULTS, value_name = "FAULT", long_help = fault::help())]
    pub faults: Vec<Fault>,

    /// Let programs of this host read and replace the faults over HTTP, at /faults
    ///
    /// GET returns every fault and its hits. PUT replaces all faults by a JSON array such as
    /// ["no-eose", "late-ok=2s:message=2"]. Only loopback addresses may use both, and no web page.
    #[arg(long, help_heading = FAULTS, hide_short_help = true)]
    pub control: bool,

    /// The formats that clients may negotiate; JSON is always among them.
    #[arg(skip = Format::all().collect::<Vec<_>>())]
    pub formats: Vec<Format>,

    /// The compressions that clients may negotiate.
    #[arg(skip = known_compressions())]
    pub compressions: Vec<Compression>,

    /// Bounds on one REQ or COUNT.
    #[arg(skip)]
    pub limits: Limits,

    #[command(flatten)]
    pub reconcile: ReconcileLimits,

    /// Where events are kept; `None` for memory.
    #[arg(skip)]
    pub store: Option<StoreConfig>,

    /// When a batch of events goes, on connections that agreed to batches.
    #[arg(skip)]
    pub batch: BatchLimits,

    /// How often a connection is pinged; without a sign of life for two of these it is closed.
    #[arg(skip = Duration::from_secs(55))]
    pub ping_interval: Duration,

    /// How long a stopping relay waits for its sessions.
    #[arg(skip = Duration::from_secs(5))]
    pub stop_timeout: Duration,

    /// The certificate, where clients shall come by `wss://`.
    #[arg(skip)]
    pub tls: Option<ServerTls>,

    /// Limits of the transport.
    #[arg(skip)]
    pub wire: WireLimits,

    /// Events that are stored before the first connection, unverified.
    #[arg(skip)]
    pub preload: Vec<Event<'static>>,

    /// Records what passes; none for no recording.
    #[arg(skip)]
    pub recorder: Option<Arc<Recorder>>,
}

impl Default for Config {
    fn default() -> Self {
        #[derive(Debug, Parser)]
        struct Flags {
            #[command(flatten)]
            config: Config,
        }
        Flags::parse_from(["relay-sim"]).config
    }
}

impl Config {
    /// The codec of each format, by its index; `None` for formats that are not enabled.
    ///
    /// The first of several formats must have the chosen implementation. The others are there as a
    /// fallback or because all were asked for, and keep their library's where they have no other.
    ///
    /// # Errors
    /// [`UnknownName`] when the only format besides JSON has no such implementation.
    pub(crate) fn codecs(&self) -> Result<Vec<Option<&'static dyn Codec>>, UnknownName> {
        let named: Vec<_> = self.formats.iter().copied().filter(|&format| format != Format::JSON).collect();
        let insist = match named.as_slice() {
            [] => Some(Format::JSON),
            [only] => Some(*only),
            _ => None,
        };
        Format::all()
            .map(|format| {
                if format != Format::JSON && !named.contains(&format) {
                    return Ok(None);
                }
                match format.codec(self.implementation) {
                    Ok(codec) => Ok(Some(codec)),
                    Err(error) if insist == Some(format) => Err(error),
                    Err(_) => Ok(Some(format.spec().library)),
                }
            })
            .collect()
    }

    /// Formats and compressions for the handshake.
    pub(crate) fn support(&self) -> Support {
        Support { formats: self.formats.clone(), compressions: self.compressions.clone(), batched: true }
    }

    /// Whether a client with this User-Agent is spoken to without compression.
    pub(crate) fn declines_compression_to(&self, user_agent: Option<&str>) -> bool {
        let contains = |agent: &str| self.no_compression_for.iter().any(|text| agent.contains(text));
        user_agent.is_some_and(contains)
    }

    /// How many stored events a filter may give.
    pub(crate) fn limit_of(&self, filter: &Filter) -> usize {
        let asked = filter.limit.map_or(self.default_limit, |limit| limit.try_into().unwrap_or(usize::MAX));
        asked.min(self.max_limit)
    }
}

/// Every compression with its standing parameters.
pub(crate) fn known_compressions() -> Vec<Compression> {
    Compression::NAMES
        .iter()
        .map(|name| Compression::named(name).expect("NAMES lists what `named` knows"))
        .collect()
}
