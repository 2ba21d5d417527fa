//! Which combination of factors is measured?
//!
//! A [`Cell`] has one value of every [`Factor`]. Other crates know a factor by its [`Factor::row`] alone:
//! its name and flag, whose property it is, how it is read, written and recorded, and its column in
//! tables.
//!
//! To add a factor, add a field to [`Cell`] or [`RelaySide`], a variant to [`Factor`] and a row to
//! the table in `factors.rs`.

mod batching;
mod factors;
mod flags;
mod saturate;
mod text;

use std::{ffi::OsStr, path::Path};

use codecs::{Format, Implementation, VerifyLevel};
use link::Link;
use measure::NO_LINK;
use terms::{Compression, Reencode};

pub use batching::Batching;
pub use factors::{Factor, MOST_LOAD, Row, Side};
pub use saturate::Saturate;

/// The word for every setting of another's relay.
pub const UNKNOWN: &str = "unknown";

/// One value of every factor.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// A built-in scenario, or the path of a TOML file; empty where none was named.
    pub scenario: String,
    /// Events published per second instead of the scenario's own rate.
    pub rate_per_s: Option<f64>,
    /// How many times the scenario's clients and rates are played; 1 is the scenario as it stands.
    pub load: f64,
    /// The process whose limit is measured: arrivals are closed loops that last the whole block.
    /// `None` plays the scenario's own arrivals.
    pub saturate: Option<Saturate>,
    /// The access link of each user; `None` for loopback, or the network that is there.
    pub link: Option<Link>,
    /// The wire format.
    pub format: Format,
    /// The compression of both directions.
    pub compression: Compression,
    /// Batches that clients offer, and the limits that the relay keeps; `None` without batches.
    pub batching: Option<Batching>,
    /// Who wrote the codec of both ends.
    pub implementation: Implementation,
    /// The check of each event that clients receive.
    pub client_verify: VerifyLevel,
    /// Whether clients keep ids and keys in tags as 32 bytes, and make no text of them.
    pub client_keeps_bytes: bool,
    /// The settings of a relay of our own; `None` of another's.
    pub relay: Option<RelaySide>,
    /// Which relay of several that one run starts, by the name that the run gave it; else empty.
    pub relay_name: String,
    /// Whether clients reach the relay through a gateway, which the run starts.
    pub via_gateway: bool,
}

/// The factors that only a relay of our own takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelaySide {
    /// The check of each published event.
    pub verify: VerifyLevel,
    /// Whether it encodes an event anew in its publisher's format.
    pub reencode: Reencode,
    /// Threads that serve its connections.
    pub threads: u16,
}

impl Default for RelaySide {
    fn default() -> RelaySide {
        RelaySide { verify: VerifyLevel::Full, reencode: Reencode::Always, threads: 1 }
    }
}

impl Default for Cell {
    fn default() -> Cell {
        Cell {
            scenario: String::new(),
            rate_per_s: None,
            load: 1.0,
            saturate: None,
            link: None,
            format: Format::JSON,
            compression: Compression::None,
            batching: None,
            implementation: Implementation::Library,
            client_verify: VerifyLevel::None,
            client_keeps_bytes: false,
            relay: Some(RelaySide::default()),
            relay_name: String::new(),
            via_gateway: false,
        }
    }
}

impl Cell {
    /// The scenario's name: of a file without folder and ending.
    pub fn scenario_name(&self) -> &str {
        stem(&self.scenario)
    }

    /// The rate where it is a whole number, as those of a matrix are.
    pub fn whole_rate_per_s(&self) -> Option<u32> {
        self.rate_per_s?.to_string().parse().ok()
    }

    /// The settings of a relay that is started for this cell.
    pub fn own_relay(&self) -> RelaySide {
        self.relay.unwrap_or_default()
    }

    /// The cell as records name it.
    pub fn recorded(&self) -> measure::Cell {
        let write = |factor: Factor| (factor.row().write)(self);
        measure::Cell {
            scenario: self.scenario_name().to_owned(),
            format: self.format.name().to_owned(),
            implementation: self.implementation.name().to_owned(),
            code: self.format.code(self.implementation).to_owned(),
            compression: self.compression.label(),
            compression_parameters: match self.relay {
                None if !self.via_gateway => agreed(&self.compression.parameters()),
                _ => self.compression.parameters(),
            },
            verify: write(Factor::Verify),
            batching: match (self.batching, self.relay) {
                (None, _) => measure::NO_BATCHES.to_owned(),
                (Some(_), None) => "by the relay".to_owned(),
                (Some(batching), Some(_)) => batching.in_full(),
            },
            reencode: write(Factor::Reencode),
            relay_threads: write(Factor::RelayThreads),
            client_verify: write(Factor::ClientVerify),
            client_keeps: write(Factor::ClientKeeps),
            load: write(Factor::Load),
            saturate: write(Factor::Saturate),
            relay: write(Factor::Relay),
            via: write(Factor::Via),
            link: self.link.as_ref().map_or_else(|| NO_LINK.to_owned(), Link::label),
        }
    }
}

/// The parameters that a handshake agrees on: an external relay does not tell how it compresses.
fn agreed(parameters: &str) -> String {
    let known = |parameter: &str| match parameter.split_once('=') {
        Some((name @ ("level" | "min_bytes"), _)) => format!("{name}=unknown"),
        _ => parameter.to_owned(),
    };
    parameters.split(' ').map(known).collect::<Vec<_>>().join(" ")
}

/// The name of a scenario: of a file without folder and ending.
fn stem(scenario: &str) -> &str {
    let scenario = scenario.strip_suffix(".zst").unwrap_or(scenario);
    Path::new(scenario).file_stem().and_then(OsStr::to_str).unwrap_or(scenario)
}
