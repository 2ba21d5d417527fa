//! How a relay sends one event to many.

use std::time::Duration;

use clap::ValueEnum;

/// Whether an event is encoded anew in the format in which its publisher sent it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Reencode {
    /// Once for each format, as strfry writes the text of each event once
    /// (docs/decisions/reencode.md).
    #[default]
    Always,
    /// Except where the publisher's bytes are known to equal the codec's.
    NeverIfCanonical,
}

/// When a batch goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// How long an event may be held; zero: as long as the session has other work.
    pub hold: Duration,
    /// Events of a batch.
    pub events: usize,
    /// Encoded events of a batch together; a larger one goes alone.
    pub bytes: usize,
}

impl Default for BatchLimits {
    fn default() -> Self {
        BatchLimits { hold: Duration::from_millis(5), events: 64, bytes: 64 << 10 }
    }
}
