//! Events that connections share, to a socket: copied one behind the other, or named where they are
//! (`writev`).

use std::{
    io::{IoSlice, Read, Write},
    net::{TcpListener, TcpStream},
};

use anyhow::ensure;

use crate::{PEER_CORE, SERVER_CORE, cpu_ns, join, median, on_core, say};

/// Bytes of an event, and events of a flush: a delivery by itself, a turn of a busy connection, a
/// full write buffer, a follow list.
const SHAPES: [(usize, usize); 4] = [(700, 1), (700, 16), (700, 45), (32 << 10, 1)];

/// The part of a delivery that no other shares: the frame's header and all that stands before the
/// event.
const HEAD: [u8; 24] = [b'h'; 24];

/// The end of a message in JSON.
const TAIL: [u8; 1] = [b']'];

const SENT_BYTES: usize = 200 << 20;

/// Different events, so that they are not all in the innermost cache.
const EVENTS: usize = 256;

/// How a flush is sent. The buffer is used again for each.
type SendFlush = fn(&mut TcpStream, &[&[u8]], &mut Vec<u8>) -> anyhow::Result<()>;

pub(crate) fn measure(rounds: usize) -> anyhow::Result<()> {
    for (bytes, batch) in SHAPES {
        let mut each = Vec::new();
        for _ in 0..rounds {
            each.push((play(bytes, batch, copied)?, play(bytes, batch, vectored)?));
        }
        say(&format!(
            "vectored, {bytes} B, {batch} a flush, sender's CPU ns a message: copied {:.0}, writev {:.0}: {:.2} x",
            median(each.iter().map(|round| round.0)),
            median(each.iter().map(|round| round.1)),
            median(each.iter().map(|round| round.1 / round.0)),
        ));
    }
    Ok(())
}

/// The sender's CPU for each message.
fn play(bytes: usize, batch: usize, send: SendFlush) -> anyhow::Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let flushes = SENT_BYTES / (bytes * batch);
    let receiver = on_core(PEER_CORE, async move || received(TcpStream::connect(address)?));
    let sender = on_core(SERVER_CORE, async move || {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let events: Vec<_> = (0..EVENTS).map(|_| vec![b'e'; bytes]).collect();
        let mut next = events.iter().map(Vec::as_slice).cycle();
        let (mut flush, mut buffer) = (Vec::new(), Vec::new());
        let before = cpu_ns()?;
        for _ in 0..flushes {
            flush.clear();
            flush.extend(next.by_ref().take(batch));
            send(&mut stream, &flush, &mut buffer)?;
        }
        Ok(cpu_ns()? - before)
    });
    let spent_ns = join(sender)?;
    let (received_bytes, messages) = (join(receiver)?, flushes * batch);
    let sent_bytes = messages * (HEAD.len() + bytes + TAIL.len());
    ensure!(received_bytes == sent_bytes, "{received_bytes} of {sent_bytes} bytes arrived");
    Ok(spent_ns as f64 / messages as f64)
}

fn copied(stream: &mut TcpStream, events: &[&[u8]], buffer: &mut Vec<u8>) -> anyhow::Result<()> {
    buffer.clear();
    for event in events {
        for part in [&HEAD[..], event, &TAIL] {
            buffer.extend_from_slice(part);
        }
    }
    Ok(stream.write_all(buffer)?)
}

fn vectored(stream: &mut TcpStream, events: &[&[u8]], _: &mut Vec<u8>) -> anyhow::Result<()> {
    let parts = |event| [IoSlice::new(&HEAD), IoSlice::new(event), IoSlice::new(&TAIL)];
    let mut parts: Vec<_> = events.iter().copied().flat_map(parts).collect();
    let mut left = &mut parts[..];
    while !left.is_empty() {
        let written = stream.write_vectored(left)?;
        ensure!(written > 0, "the socket takes nothing");
        IoSlice::advance_slices(&mut left, written);
    }
    Ok(())
}

/// Reads until the peer has no more, and counts.
fn received(mut stream: TcpStream) -> anyhow::Result<usize> {
    let mut buffer = vec![0; 64 << 10];
    let mut received_bytes = 0;
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(received_bytes),
            read => received_bytes += read,
        }
    }
}
