//! One connection, relay to client, saturated.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use bytes::{Bytes, BytesMut};
use codecs::Opcode;
use futures::{SinkExt, StreamExt};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_tungstenite::{
    WebSocketStream, accept_async_with_config, client_async_with_config,
    tungstenite::{Message, protocol::WebSocketConfig},
};
use wire::{Compression, Connection, Offer, WireLimits};

use crate::{
    PEER_CORE, SERVER_CORE, accepted, address_channel, cpu_ns, join, median, on_core, say, server_config,
};

const MESSAGES: usize = 200_000;
const MESSAGE_BYTES: usize = 700;
const BATCH: usize = 16;

/// The transport under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Carrier {
    /// TCP with a four-byte length before each message; buffers of 64 KiB.
    Raw,
    /// tungstenite with buffers of 16 KiB (read) and 32 KiB (write).
    Tungstenite,
    Wire,
    /// `wire` with the small read buffer of a relay: it reads up to 64 KiB in one call and copies.
    WireAhead,
    /// `wire` with permessage-deflate agreed and every message below `min_bytes`: the cost of the
    /// tap.
    WireTapped,
}

const CARRIERS: [Carrier; 5] =
    [Carrier::Raw, Carrier::Tungstenite, Carrier::Wire, Carrier::WireTapped, Carrier::WireAhead];

pub(crate) fn measure(rounds: usize) -> anyhow::Result<()> {
    let mut each: Vec<[f64; 5]> = Vec::new();
    for _ in 0..rounds {
        let mut round = [0.0; 5];
        for (n, carrier) in CARRIERS.into_iter().enumerate() {
            round[n] = play(carrier).with_context(|| format!("{carrier:?}"))? as f64 / MESSAGES as f64;
        }
        each.push(round);
    }
    let ns = |n: usize| median(each.iter().map(|round| round[n]));
    let ratio = |a: usize, b: usize| median(each.iter().map(|round| round[a] / round[b]));
    say(&format!(
        "stream, {MESSAGE_BYTES} B, {BATCH} a flush, CPU ns a message at both ends: raw {:.0}, tungstenite {:.0}, wire {:.0}, \
         with the tap {:.0}, reading ahead {:.0}",
        ns(0),
        ns(1),
        ns(2),
        ns(3),
        ns(4)
    ));
    say(&format!(
        "stream: wire {:.2} x raw (tungstenite {:.2} x), reading ahead {:.2} x wire",
        ratio(2, 0),
        ratio(1, 0),
        ratio(4, 2)
    ));
    say(&format!(
        "tap: wire with the tap {:.2} x plain tungstenite, {:.2} x wire without",
        ratio(3, 1),
        ratio(3, 2)
    ));
    Ok(())
}

fn play(carrier: Carrier) -> anyhow::Result<u64> {
    let (tell, told) = address_channel();
    let sender = on_core(SERVER_CORE, async move || {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        tell.send(listener.local_addr()?)?;
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        send(carrier, stream).await
    });
    let address = told.recv()?;
    let receiver = on_core(PEER_CORE, async move || receive(carrier, address).await);
    Ok(join(sender)? + join(receiver)?)
}

fn payload() -> Bytes {
    Bytes::from((b'a'..=b'z').cycle().take(MESSAGE_BYTES).collect::<Vec<_>>())
}

fn compression(carrier: Carrier) -> anyhow::Result<Compression> {
    let name = if carrier == Carrier::WireTapped { "deflate:min_bytes=1000000" } else { "none" };
    Ok(name.parse()?)
}

fn tungstenite_config() -> WebSocketConfig {
    WebSocketConfig::default().read_buffer_size(16 << 10).write_buffer_size(32 << 10)
}

async fn send(carrier: Carrier, stream: TcpStream) -> anyhow::Result<u64> {
    match carrier {
        Carrier::Raw => send_raw(stream).await,
        Carrier::Tungstenite => {
            send_tungstenite(accept_async_with_config(stream, Some(tungstenite_config())).await?).await
        }
        Carrier::Wire | Carrier::WireTapped | Carrier::WireAhead => {
            send_wire(accepted(stream, &server_config(compression(carrier)?)).await?).await
        }
    }
}

async fn receive(carrier: Carrier, address: SocketAddr) -> anyhow::Result<u64> {
    let url = format!("ws://{address}/");
    let connect = async || -> anyhow::Result<TcpStream> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    match carrier {
        Carrier::Raw => receive_raw(connect().await?).await,
        Carrier::Tungstenite => {
            let (websocket, _) =
                client_async_with_config(&url, connect().await?, Some(tungstenite_config())).await?;
            receive_tungstenite(websocket).await
        }
        Carrier::Wire | Carrier::WireTapped | Carrier::WireAhead => {
            let offer = Offer { batched: false, formats: vec![], compression: compression(carrier)? };
            let mut limits = WireLimits::default();
            if carrier != Carrier::WireAhead {
                limits.read_buffer_bytes = 16 << 10; // for an end with few connections, as in client-sim
            }
            receive_wire(wire::connect(&url, &offer, &limits).await?).await
        }
    }
}

async fn send_raw(mut stream: TcpStream) -> anyhow::Result<u64> {
    let (payload, before) = (payload(), cpu_ns()?);
    let mut buffer = Vec::new();
    for _ in 0..MESSAGES / BATCH {
        for _ in 0..BATCH {
            buffer.extend(u32::try_from(payload.len())?.to_be_bytes());
            buffer.extend_from_slice(&payload);
        }
        stream.write_all(&buffer).await?;
        buffer.clear();
    }
    Ok(cpu_ns()? - before)
}

async fn receive_raw(mut stream: TcpStream) -> anyhow::Result<u64> {
    let before = cpu_ns()?;
    let mut buffer = BytesMut::new();
    let mut messages = 0;
    while messages < MESSAGES {
        buffer.reserve(64 << 10);
        ensure!(stream.read_buf(&mut buffer).await? > 0, "the sender left");
        while let Some((length, _)) = buffer.split_first_chunk::<4>() {
            let length = u32::from_be_bytes(*length) as usize;
            if buffer.len() < 4 + length {
                break;
            }
            let message = buffer.split_to(4 + length).freeze().slice(4..);
            ensure!(message.len() == MESSAGE_BYTES, "a message of {} bytes", message.len());
            messages += 1;
        }
    }
    Ok(cpu_ns()? - before)
}

async fn send_tungstenite(mut websocket: WebSocketStream<TcpStream>) -> anyhow::Result<u64> {
    let (payload, before) = (String::from_utf8(payload().to_vec())?, cpu_ns()?);
    let text = tokio_tungstenite::tungstenite::Utf8Bytes::from(payload);
    for _ in 0..MESSAGES / BATCH {
        for _ in 0..BATCH {
            websocket.feed(Message::Text(text.clone())).await?;
        }
        websocket.flush().await?;
    }
    Ok(cpu_ns()? - before)
}

async fn receive_tungstenite(mut websocket: WebSocketStream<TcpStream>) -> anyhow::Result<u64> {
    let before = cpu_ns()?;
    for _ in 0..MESSAGES {
        let message = websocket.next().await.context("the sender left")??;
        ensure!(message.is_text() && message.len() == MESSAGE_BYTES, "a message of {} bytes", message.len());
    }
    Ok(cpu_ns()? - before)
}

async fn send_wire(mut connection: Connection) -> anyhow::Result<u64> {
    let (payload, before) = (payload(), cpu_ns()?);
    for _ in 0..MESSAGES / BATCH {
        for _ in 0..BATCH {
            connection.feed(payload.clone()).await?;
        }
        connection.flush().await?;
    }
    let spent = cpu_ns()? - before;
    // Until the client closes, which it does after the last message.
    let end = connection.next().await;
    ensure!(end.is_none(), "the client left early: {end:?}");
    Ok(spent)
}

async fn receive_wire(mut connection: Connection) -> anyhow::Result<u64> {
    let before = cpu_ns()?;
    for _ in 0..MESSAGES {
        let message = connection.next().await.context("the sender left")??;
        let (opcode, len) = (message.opcode, message.payload.len());
        ensure!(opcode == Opcode::Text && len == MESSAGE_BYTES, "{opcode:?} of {len} bytes");
    }
    let spent = cpu_ns()? - before;
    connection.close(wire::CloseCode::Normal, "").await;
    Ok(spent)
}
