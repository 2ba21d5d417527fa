//! A relay behind a proxy that counts the bytes of each socket without parsing frames.

use std::{
    ffi::OsString,
    io,
    net::{Ipv4Addr, SocketAddr},
    thread::{self, JoinHandle},
};

use anyhow::{Context, Result, anyhow};
use client_sim::own_relay::OwnRelay;
use relay_sim::{Totals, Traffic};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinSet,
};

/// A relay and the proxy before it.
pub(super) struct CountedRelay {
    relay: OwnRelay,
    pub(super) url: String,
    /// Ends the proxy when it is dropped.
    until: oneshot::Sender<()>,
    proxy: JoinHandle<io::Result<(u64, u64)>>,
}

/// Bytes of all connections, handshakes included, as (to the relay, to clients), by each counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bytes {
    pub(super) relay: (u64, u64),
    pub(super) proxy: (u64, u64),
}

impl CountedRelay {
    pub(super) fn start() -> Result<CountedRelay> {
        let flags = ["--verify", "none"].map(OsString::from);
        let relay = OwnRelay::spawn(&flags, (Ipv4Addr::LOCALHOST, 0).into())?;
        let address = relay.url.strip_prefix("ws://").context("the relay speaks TLS")?.parse()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let url = format!("ws://{}", listener.local_addr()?);
        let (until, ended) = oneshot::channel();
        let proxy = thread::spawn(move || runtime.block_on(pass_all(listener, address, ended)));
        Ok(CountedRelay { relay, url, until, proxy })
    }

    /// Stops the relay and returns both counts.
    pub(super) fn stop(self) -> Result<Bytes> {
        let totals = self.relay.stop()?;
        let totals: Totals = serde_json::from_str(&totals).context("these are not the totals of a relay")?;
        let Traffic { sent, received, handshake_sent_bytes, handshake_received_bytes } = totals.traffic;
        drop(self.until);
        let proxy = self.proxy.join().map_err(|_| anyhow!("the proxy panicked"))?;
        Ok(Bytes {
            relay: (received.wire_bytes + handshake_received_bytes, sent.wire_bytes + handshake_sent_bytes),
            proxy: proxy.context("a connection of the proxy broke")?,
        })
    }
}

/// Passes connections on to `relay` until the end; returns the bytes of all in both directions.
async fn pass_all(
    listener: TcpListener,
    relay: SocketAddr,
    mut ended: oneshot::Receiver<()>,
) -> io::Result<(u64, u64)> {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => connections.spawn(pass(accepted?.0, relay)),
            _ = &mut ended => break,
        };
    }
    let (mut to_relay, mut to_client) = (0, 0);
    for passed in connections.join_all().await {
        let (up, down) = passed?;
        (to_relay, to_client) = (to_relay + up, to_client + down);
    }
    Ok((to_relay, to_client))
}

async fn pass(mut client: TcpStream, relay: SocketAddr) -> io::Result<(u64, u64)> {
    let mut relay = TcpStream::connect(relay).await?;
    client.set_nodelay(true)?;
    relay.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut relay).await
}
