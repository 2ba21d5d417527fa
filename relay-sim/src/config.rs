//! How should the relay behave? Every setting with its default; [`crate::args`] fills it from the
//! command line.

use std::{sync::Arc, time::Duration};

use codecs::{Codec, Event, Format, Implementation, Limits, UnknownName, VerifyLevel};
use recording::Recorder;
use terms::{BatchLimits, Reencode};
use wire::{Compression, ServerTls, Support, WireLimits};

use crate::{
    fault::Fault,
    reconcile::ReconcileLimits,
    store::{QueryLimits, StoreConfig},
};

/// A relay's settings. `Config::default()` is what the command line gives without flags.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// The formats that clients may negotiate; JSON is always among them.
    pub formats: Vec<Format>,
    /// Who wrote the code that reads and writes them.
    pub implementation: Implementation,
    /// The compressions that clients may negotiate.
    pub compressions: Vec<Compression>,
    /// Texts in a client's User-Agent to which every compression is declined.
    pub no_compression_for: Vec<String>,
    /// How much of a published event is checked.
    pub verify: VerifyLevel,
    /// Whether an event is encoded anew in its publisher's format.
    pub reencode: Reencode,
    /// Send a NIP-42 challenge to every client, and let authors who answered publish protected
    /// events (NIP-70).
    pub auth: bool,
    /// Accept, keep and send expired events (NIP-40), for load tests with old events.
    pub keep_expired: bool,
    /// Host names besides the listening address that an AUTH event's `relay` tag may name.
    pub hosts: Vec<String>,
    /// Bounds on one REQ or COUNT.
    pub limits: Limits,
    /// Bounds on reconciliations (NIP-77).
    pub reconcile: ReconcileLimits,
    /// Subscriptions of one connection.
    pub max_subscriptions: usize,
    /// Stored events for a filter without `limit`.
    pub default_limit: usize,
    /// Stored events for any one filter.
    pub max_limit: usize,
    /// Encoded live events that one connection may leave unread. 32 MiB as strfry has it.
    pub outbox_bytes: usize,
    /// Memory that stored events may take, roughly; with [`Config::store`], their indexes and the
    /// cache. Ten minutes of 3,000 notes a second stay below it.
    pub store_bytes: usize,
    /// Where events are kept; `None` for memory.
    pub store: Option<StoreConfig>,
    /// Connections at one time; `None` leaves it to the limit of descriptors.
    pub max_connections: Option<usize>,
    /// When a batch of events goes, on connections that agreed to batches.
    pub batch: BatchLimits,
    /// How often a connection is pinged; without a sign of life for two of these it is closed.
    pub ping_interval: Duration,
    /// How long a stopping relay waits for its sessions.
    pub stop_timeout: Duration,
    /// The certificate, where clients shall come by `wss://`.
    pub tls: Option<ServerTls>,
    /// Limits of the transport.
    pub wire: WireLimits,
    /// Events that are stored before the first connection, unverified.
    pub preload: Vec<Event<'static>>,
    /// Records what passes; none for no recording.
    pub recorder: Option<Arc<Recorder>>,
    /// How to misbehave. `delay` is a matter of the sockets, which the command line sees to.
    pub faults: Vec<Fault>,
    /// Let programs of this host read and replace the faults over HTTP, at `/faults`.
    pub control: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            formats: Format::all().collect(),
            implementation: Implementation::Library,
            compressions: known_compressions(),
            no_compression_for: Vec::new(),
            verify: VerifyLevel::Full,
            reencode: Reencode::default(),
            auth: false,
            keep_expired: false,
            hosts: Vec::new(),
            limits: Limits::default(),
            reconcile: ReconcileLimits::default(),
            max_subscriptions: 300,
            default_limit: 500,
            max_limit: 5_000,
            outbox_bytes: 32 << 20,
            store_bytes: 2 << 30,
            store: None,
            max_connections: None,
            batch: BatchLimits::default(),
            ping_interval: Duration::from_secs(55),
            stop_timeout: Duration::from_secs(5),
            tls: None,
            wire: WireLimits::default(),
            preload: Vec::new(),
            recorder: None,
            faults: Vec::new(),
            control: false,
        }
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

    pub(crate) fn query_limits(&self) -> QueryLimits {
        QueryLimits { default_limit: self.default_limit, max_limit: self.max_limit }
    }
}

/// Every compression with its standing parameters.
pub(crate) fn known_compressions() -> Vec<Compression> {
    Compression::NAMES
        .iter()
        .map(|name| Compression::named(name).expect("NAMES lists what `named` knows"))
        .collect()
}
