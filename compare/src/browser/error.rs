//! Why a browser cannot be measured.

use std::time::Duration;

/// Why a browser cannot be measured, or no longer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrowserError {
    /// There is no Chromium to start.
    #[error(
        "no Chromium or Chrome on PATH: `apt-get install chromium` (Debian) has one, or name it with --chromium FILE"
    )]
    NotInstalled,
    /// It ended before it could be spoken to.
    #[error("{program} did not start: {why}")]
    NotStarted {
        /// Its file.
        program: String,
        /// Its last words, or how it ended.
        why: String,
    },
    /// Its connection ended: it was killed or crashed.
    #[error("Chromium ended in the middle of a block: {0}")]
    Ended(String),
    /// It did not answer.
    #[error("Chromium did not answer {method} within {} s", .within.as_secs())]
    Silent {
        /// The call.
        method: String,
        /// The limit.
        within: Duration,
    },
    /// A device's connection ended.
    #[error("the device left: {0}")]
    DeviceLeft(String),
    /// A device did not answer.
    #[error("the device did not answer within {} s: is its page in front and its screen on?", .within.as_secs())]
    DeviceSilent {
        /// The limit.
        within: Duration,
    },
    /// A device answered what no page of this version does.
    #[error("the device's answer is refused: {0}")]
    Answer(String),
    /// It refused a call of the DevTools protocol.
    #[error("Chromium refused {method}: {why}")]
    Refused {
        /// The call.
        method: String,
        /// Its message.
        why: String,
    },
    /// The page threw an exception.
    #[error("the page failed in {expression}: {why}")]
    Page {
        /// The expression that the page was to evaluate.
        expression: String,
        /// The exception.
        why: String,
    },
    /// A decoder returned another object than `JSON.parse`.
    #[error("{decoder} reads event {id} otherwise than JSON.parse does: {found}")]
    Differs {
        /// The row.
        decoder: String,
        /// The event's id.
        id: String,
        /// Its value, or its error.
        found: String,
    },
    /// The message received over a WebSocket differs from that of others.
    #[error("{cell} received {found} where JSON without compression received {expected}")]
    Received {
        /// The cell.
        cell: String,
        /// How many events, and their hash.
        found: String,
        /// The same of the anchor.
        expected: String,
    },
    /// Nothing could be published to the relay.
    #[error("the relay of {cell} failed: {why}")]
    Relay {
        /// The cell.
        cell: String,
        /// Why.
        why: String,
    },
    /// The emulator of the access link ended.
    #[error("{0}")]
    Link(String),
    /// The kernel or the browser did not say what a process spent.
    #[error("cannot read the CPU time of Chromium's {what}: {why}")]
    Cpu {
        /// The process.
        what: &'static str,
        /// Why.
        why: String,
    },
}
