//! Memory of an idle connection with its task, after one echo.

use std::{fs, net::SocketAddr, sync::mpsc};

use anyhow::{Context, ensure};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::oneshot,
    task::JoinSet,
};
use wire::Compression;

use crate::{
    PEER_CORE, SERVER_CORE, accepted, address_channel, join, on_core, raw_client, say, server_config,
};

const CONNECTIONS: usize = 5_000;

/// Connections before the first count, which allocate what all share.
const WARM: usize = 100;

pub(crate) fn measure() -> anyhow::Result<()> {
    let (tell, told) = address_channel();
    let (resident, figures) = mpsc::channel();
    let (leave, left) = oneshot::channel::<()>();
    let server = on_core(SERVER_CORE, async move || serve(tell, resident).await);
    let address = told.recv()?;
    let clients = on_core(PEER_CORE, async move || speak_once(address, left).await);
    let (before, after): (u64, u64) = (figures.recv()?, figures.recv()?);
    // Ends the clients.
    leave.send(()).ok();
    join(clients)?;
    join(server)?;
    let each = after.saturating_sub(before) / (CONNECTIONS - WARM) as u64;
    say(&format!(
        "idle: {each} bytes resident a connection with its task, and its client's socket ({CONNECTIONS} connections)"
    ));
    Ok(())
}

async fn serve(tell: mpsc::Sender<SocketAddr>, resident: mpsc::Sender<u64>) -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    tell.send(listener.local_addr()?)?;
    let mut tasks: JoinSet<anyhow::Result<()>> = JoinSet::new();
    let (echoed, mut echoes) = tokio::sync::mpsc::unbounded_channel();
    for n in 1..=CONNECTIONS {
        let (stream, _) = listener.accept().await?;
        let echoed = echoed.clone();
        tasks.spawn_local(async move {
            let mut connection = accepted(stream, &server_config(Compression::None)).await?;
            while let Some(Ok(message)) = connection.next().await {
                connection.feed(message.payload).await?;
                connection.flush().await?;
                echoed.send(())?;
            }
            Ok(())
        });
        echoes.recv().await.context("a client spoke")?;
        if n == WARM || n == CONNECTIONS {
            resident.send(resident_bytes()?)?;
        }
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }
    Ok(())
}

async fn speak_once(address: SocketAddr, left: oneshot::Receiver<()>) -> anyhow::Result<()> {
    let mut streams = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = raw_client(address, "").await?;
        stream.write_all(&[0x81, 0x82, 0, 0, 0, 0, b'h', b'i']).await?;
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).await?;
        ensure!(answer == [0x81, 2, b'h', b'i'], "{answer:x?}");
        streams.push(stream);
    }
    left.await?;
    Ok(())
}

fn resident_bytes() -> anyhow::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .context("no VmRSS in /proc/self/status")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse::<u64>()? * 1024)
}
