//! Connections in memory, driven by one thread that never waits.

use anyhow::Context;
use codecs::Format;
use futures::FutureExt;
use wire::{Compression, Connection, Offer, Support, WireLimits};

/// The ends of a client and of a relay.
pub(crate) fn pair(format: Format, compression: Compression) -> anyhow::Result<(Connection, Connection)> {
    let offer = Offer { formats: vec![format], batched: false, compression };
    let support =
        Support { formats: vec![format], compressions: vec![compression], batched: false, strict: true };
    let limits = WireLimits::default();
    Ok(at_once(wire::in_memory(&offer, &support, [&limits, &limits]))??)
}

/// The result of work that never waits, as over a connection in memory.
pub(crate) fn at_once<T>(work: impl Future<Output = T>) -> anyhow::Result<T> {
    work.now_or_never().context("a connection in memory waited")
}
