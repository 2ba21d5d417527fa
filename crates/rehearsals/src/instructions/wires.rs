//! Connections in memory. Nothing on them waits: a pipe takes what it is given and has at once what
//! it was given.

use std::future::Future;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use cell::Cell;
use futures::FutureExt;
use relay_sim::machine::{self, Time};
use wire::{Connection, Message, Offer, Shared, Support, WireLimits};

/// The ends of the client and of the relay, as both programs set up their own.
pub(super) fn pair(cell: &Cell, clients: usize) -> anyhow::Result<(Connection, Connection)> {
    let (formats, compression) = (vec![cell.format], cell.compression);
    let batched = cell.batching.is_some();
    let support = Support { formats: formats.clone(), compressions: vec![compression], batched };
    let offer = Offer { formats, batched, compression };
    let limits = [&WireLimits::for_connections(clients), &WireLimits::default()];
    Ok(at_once(wire::in_memory(&offer, &support, limits))??)
}

/// The next message of `peer`, the other end, if there is one.
pub(super) fn next(connection: &mut Connection, peer: &Connection) -> anyhow::Result<Option<Message>> {
    // A socket says that it has nothing before it is read; a pipe in memory does not.
    if connection.traffic().received.messages == peer.traffic().sent.messages {
        return Ok(None);
    }
    match connection.next().now_or_never() {
        None => Ok(None),
        Some(Some(message)) => Ok(Some(message?)),
        Some(None) => Err(anyhow!("a connection in memory ended")),
    }
}

/// Sends a message, without a flush.
pub(super) fn feed(connection: &mut Connection, payload: Bytes) -> anyhow::Result<()> {
    Ok(at_once(connection.feed(payload))??)
}

/// Sends a message that has all behind its prefix in common with others, without a flush.
pub(super) fn feed_shared(
    connection: &mut Connection,
    payload: &[u8],
    prefix_bytes: usize,
    shared: &Shared,
) -> anyhow::Result<()> {
    let (prefix, common) = payload.split_at(prefix_bytes);
    Ok(at_once(connection.feed_shared(prefix, [common, b""], shared))??)
}

/// Flushes what was sent.
pub(super) fn flush(connection: &mut Connection) -> anyhow::Result<()> {
    Ok(at_once(connection.flush())??)
}

/// A relay's turn on one connection: reads the messages of `client` and sends its own.
pub(super) fn serve(
    connection: &mut Connection,
    client: &Connection,
    machine: &mut machine::Connection,
    time: Time,
) -> anyhow::Result<()> {
    while let Some(message) = next(connection, client)? {
        let taken = machine.receive(&message.payload, message.opcode, time);
        taken.map_err(|close| anyhow!("the relay ends a connection: {}", close.reason))?;
    }
    at_once(machine.transmit(connection, time))??;
    match machine.poll_stop() {
        Some(close) => bail!("the relay ends a connection: {}", close.reason),
        None => Ok(()),
    }
}

/// The result of what does not wait.
pub(super) fn at_once<T>(work: impl Future<Output = T>) -> anyhow::Result<T> {
    work.now_or_never().context("a connection in memory takes everything, and this waited")
}
