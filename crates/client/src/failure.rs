//! Why a client ends early.

use std::{fmt, time::Duration};

/// Why a client cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The relay said nothing for so long while a connection was set up.
    #[error("the relay was silent for {} s: {owed} did not come{said}", .patience.as_secs())]
    Silent { patience: Duration, owed: Owed, said: String },
    /// The relay kept talking for so long, but not of what the set-up waits for.
    #[error("after {} s of other messages from the relay, {owed} did not come{said}", .patience.as_secs())]
    Endless { patience: Duration, owed: Owed, said: String },
    /// Anything else, in words.
    #[error("{0}")]
    Other(String),
}

/// An answer that a relay owes while a connection is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owed {
    /// OK to AUTH.
    Proof,
    /// EOSE of this REQ, in JSON.
    Eose(String),
}

impl fmt::Display for Owed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owed::Proof => write!(f, "OK to AUTH (NIP-42)"),
            Owed::Eose(request) => write!(f, "EOSE of {request}"),
        }
    }
}
