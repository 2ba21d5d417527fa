//! Many connections with one message in flight each.

use std::{net::SocketAddr, time::Instant};

use anyhow::{Context, ensure};
use futures::{SinkExt, StreamExt};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_tungstenite::accept_async;
use wire::{Compression, ServerConfig};

use crate::{
    PEER_CORE, SERVER_CORE, accepted, address_channel, cpu_ns, join, median, on_core, raw_client, say,
    server_config,
};

const CONNECTIONS: usize = 1_000;
const ROUND_TRIPS: usize = 60;
const MESSAGE_BYTES: usize = 700;

#[derive(Debug, Clone, Copy)]
enum Server {
    Tungstenite,
    Wire,
}

pub(crate) fn measure(rounds: usize) -> anyhow::Result<()> {
    let mut each: Vec<Round> = Vec::new();
    for _ in 0..rounds {
        let tungstenite = play(Server::Tungstenite).context("tungstenite")?;
        each.push((tungstenite, play(Server::Wire).context("wire")?));
    }
    let column = |of: fn(&Round) -> f64| median(each.iter().map(of));
    say(&format!(
        "echo over {CONNECTIONS} connections, {MESSAGE_BYTES} B: tungstenite's defaults {:.0} round trips/s, wire {:.0}: {:.2} x; \
         server's CPU µs each {:.2} and {:.2}: {:.2} x",
        column(|round| round.0.0),
        column(|round| round.1.0),
        column(|round| round.1.0 / round.0.0),
        column(|round| round.0.1),
        column(|round| round.1.1),
        column(|round| round.0.1 / round.1.1),
    ));
    Ok(())
}

/// Round trips a second, and the server's CPU in microseconds for each.
type Figures = (f64, f64);

/// tungstenite's and `wire`'s.
type Round = (Figures, Figures);

fn play(server: Server) -> anyhow::Result<Figures> {
    let (tell, told) = address_channel();
    let serving = on_core(SERVER_CORE, async move || serve(server, tell).await);
    let address = told.recv()?;
    let clients = on_core(PEER_CORE, async move || ask(address).await);
    let per_second = join(clients)?;
    Ok((per_second, join(serving)? as f64 / 1e3 / (CONNECTIONS * ROUND_TRIPS) as f64))
}

/// Serves until all clients left; returns the CPU from the first message on.
async fn serve(server: Server, tell: std::sync::mpsc::Sender<SocketAddr>) -> anyhow::Result<u64> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    tell.send(listener.local_addr()?)?;
    let mut echoes = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        echoes.spawn_local(echo(server, stream));
    }
    let before = cpu_ns()?;
    while let Some(echo) = echoes.join_next().await {
        echo??;
    }
    Ok(cpu_ns()? - before)
}

async fn echo(server: Server, stream: TcpStream) -> anyhow::Result<()> {
    match server {
        Server::Tungstenite => {
            let mut websocket = accept_async(stream).await?;
            while let Some(message) = websocket.next().await {
                match message {
                    Ok(message) if message.is_text() => websocket.send(message).await?,
                    // The client closed.
                    _ => break,
                }
            }
        }
        Server::Wire => {
            let config: ServerConfig = server_config(Compression::None);
            let mut connection = accepted(stream, &config).await?;
            while let Some(Ok(message)) = connection.next().await {
                connection.feed(message.payload).await?;
                connection.flush().await?;
            }
        }
    }
    Ok(())
}

/// Every client keeps one message in flight. All begin when all are connected.
async fn ask(address: SocketAddr) -> anyhow::Result<f64> {
    let mut streams = Vec::new();
    for _ in 0..CONNECTIONS {
        streams.push(raw_client(address, "").await?);
    }
    // A text frame with a mask of zeros, which leaves the payload as it is.
    let mut frame = vec![0x81, 0xfe];
    frame.extend(u16::try_from(MESSAGE_BYTES)?.to_be_bytes());
    frame.extend([0; 4]);
    frame.resize(frame.len() + MESSAGE_BYTES, b'x');
    let started = Instant::now();
    let mut clients: JoinSet<anyhow::Result<()>> = JoinSet::new();
    for mut stream in streams {
        let frame = frame.clone();
        clients.spawn_local(async move {
            let mut answer = vec![0; 4 + MESSAGE_BYTES];
            for _ in 0..ROUND_TRIPS {
                stream.write_all(&frame).await?;
                stream.read_exact(&mut answer).await?;
                ensure!(answer[0] == 0x81, "an echo begins with {:02x}", answer[0]);
            }
            Ok(())
        });
    }
    while let Some(client) = clients.join_next().await {
        client??;
    }
    Ok((CONNECTIONS * ROUND_TRIPS) as f64 / started.elapsed().as_secs_f64())
}
