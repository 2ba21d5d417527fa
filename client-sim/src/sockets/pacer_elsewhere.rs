//! Replaces `pacer.rs` on systems without timerfd: the runtime's timer, up to two milliseconds late.

use std::{io, time::Instant};

/// Sleeps until instants of the plan. Each worker has one.
#[derive(Debug)]
pub(crate) struct Pacer;

impl Pacer {
    /// Makes a timer. Call it inside a tokio runtime.
    ///
    /// # Errors
    /// Never; the signature is that of `pacer.rs`, whose timerfd may fail.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Pacer)
    }

    /// Waits until `instant`; returns at once when it has passed.
    ///
    /// # Errors
    /// Never, as above.
    pub(crate) async fn until(&self, instant: Instant) -> io::Result<()> {
        tokio::time::sleep_until(instant.into()).await;
        Ok(())
    }
}
