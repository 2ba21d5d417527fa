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
    /// There is no page, or npm did not write it.
    #[error(
        "{0}: run `npm install --ignore-scripts && npm run build` in web/browser, or name the folder of a built page with \
         --page FOLDER"
    )]
    NotBuilt(String),
    /// It ended before it could be spoken to.
    #[error("{program} did not start: {why}")]
    NotStarted { program: String, why: String },
    /// Its connection ended: it was killed or crashed.
    #[error("Chromium ended in the middle of a block: {0}")]
    Ended(String),
    /// It did not answer.
    #[error("Chromium did not answer {method} within {} s", .within.as_secs())]
    Silent { method: String, within: Duration },
    /// A device's connection ended.
    #[error("the device left: {0}")]
    DeviceLeft(String),
    /// A device did not answer.
    #[error("the device did not answer within {} s: is its page in front and its screen on?", .within.as_secs())]
    DeviceSilent { within: Duration },
    /// A device answered what no page of this version does.
    #[error("the device's answer is refused: {0}")]
    Answer(String),
    /// It refused a call of the DevTools protocol.
    #[error("Chromium refused {method}: {why}")]
    Refused { method: String, why: String },
    /// The page threw an exception.
    #[error("the page failed in {expression}: {why}")]
    Page { expression: String, why: String },
    /// A decoder returned another object than `JSON.parse`.
    #[error("{decoder} reads event {id} otherwise than JSON.parse does: {found}")]
    Differs { decoder: String, id: String, found: String },
    /// The message received over a WebSocket differs from that of others.
    #[error("{cell} received {found} where JSON without compression received {expected}")]
    Received { cell: String, found: String, expected: String },
    /// Nothing could be published to the relay.
    #[error("the relay of {cell} failed: {why}")]
    Relay { cell: String, why: String },
    /// The emulator of the access link ended.
    #[error("{0}")]
    Link(String),
    /// The kernel or the browser did not say what a process spent.
    #[error("cannot read the CPU time of Chromium's {what}: {why}")]
    Cpu { what: &'static str, why: String },
}
