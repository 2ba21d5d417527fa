//! Makes many connections: from several loopback addresses where one has too few ports, and with as
//! many descriptors as the system allows.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicUsize, Ordering},
};

use anyhow::{Context, ensure};
use codecs::{Format, Implementation};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::net::{TcpSocket, TcpStream};
use wire::{Agreement, ClientTls, Connection, Dictionary, Offer, WireError, WireLimits};

use crate::workload::Speaks;

/// Connections from one source address. Linux has 28,232 ephemeral ports by default (ip(7),
/// `ip_local_port_range`); after a connection closes, its port stays in TIME-WAIT for a minute (RFC
/// 9293 §3.6).
const CONNECTIONS_PER_SOURCE: usize = 10_000;

/// Descriptors beyond the connections: of the runtime, timers, standard streams, the record, the
/// relay's pipes.
const OTHER_DESCRIPTORS: u64 = 64;

/// The relay to connect to, and what to offer it.
#[derive(Debug, Clone)]
pub struct Target {
    /// `ws://…` or `wss://…`
    pub url: String,
    /// The root certificates to trust, for `wss://`.
    pub tls: Option<ClientTls>,
    /// Formats, batching and compression to offer.
    pub offer: Offer,
    /// Buffers, limits, timeouts.
    pub limits: WireLimits,
    /// The implementation of the format.
    pub implementation: Implementation,
}

impl Target {
    /// What a client offers that speaks something of its own.
    pub fn offer_of(&self, speaks: Speaks) -> Offer {
        Offer {
            formats: speaks.format.map_or_else(|| self.offer.formats.clone(), |format| vec![format]),
            compression: speaks.compression.unwrap_or(self.offer.compression),
            batched: self.offer.batched,
        }
    }

    /// Compares the agreement with what was offered. A run is labelled with what was offered, so
    /// any other agreement must not run.
    ///
    /// # Errors
    /// Says what differs and what to try.
    pub fn check(&self, offer: &Offer, agreement: &Agreement) -> anyhow::Result<()> {
        let url = &self.url;
        let asked = offer.formats.first().copied().unwrap_or(Format::JSON);
        let agreed = agreement.format;
        ensure!(
            agreed == asked,
            "{url} does not speak {asked}: it agreed on {agreed}. Try --format {agreed}, or a relay that speaks {asked}",
        );
        ensure!(
            agreement.batched == offer.batched,
            "{url} does not batch events. Leave out --batched, or try a relay that does",
        );
        let (asked, agreed) = (offer.compression.name(), agreement.compression.name());
        let dictionary = offer.compression.dictionary().or_else(|| Dictionary::bundled(agreement.format));
        let dictionary = match dictionary.filter(|_| asked == "zstd-dict") {
            Some(dictionary) => format!(
                ", or give the relay the same --dictionary: {} is its name here, and the relay's NIP-11 document \
                 lists those that it has",
                dictionary.id()
            ),
            None => String::new(),
        };
        ensure!(
            asked == agreed,
            "{url} declined compression {asked}: it agreed on {agreed}. Try --compression {agreed}{dictionary}",
        );
        Ok(())
    }
}

/// Makes connections to the relay.
#[derive(Debug)]
pub struct Dialer {
    target: Target,
    /// The relay's address, when that is a loopback address given by number.
    local: Option<SocketAddr>,
    sources: usize,
    made: AtomicUsize,
}

impl Dialer {
    /// Makes a dialer for `connections` over the whole run, including reconnections.
    pub fn new(target: Target, connections: usize) -> Self {
        let sources = connections.div_ceil(CONNECTIONS_PER_SOURCE).max(1);
        let local = loopback(&target.url);
        Dialer {
            sources: if local.is_some() { sources } else { 1 },
            target,
            local,
            made: AtomicUsize::new(0),
        }
    }

    /// The number of source addresses.
    pub fn sources(&self) -> usize {
        self.sources
    }

    /// The relay to connect to.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Connects with this offer. `receive_buffer_bytes` sets the receive buffer of the socket
    /// (`SO_RCVBUF`, socket(7)).
    ///
    /// # Errors
    /// When the system refuses the connection or the handshake fails.
    pub async fn dial(
        &self,
        offer: &Offer,
        receive_buffer_bytes: Option<u32>,
    ) -> Result<Connection, WireError> {
        let Target { url, limits, tls, .. } = &self.target;
        let made = self.made.fetch_add(1, Ordering::Relaxed);
        match self.local {
            Some(relay) if self.sources > 1 || receive_buffer_bytes.is_some() => {
                let stream = self.stream(relay, made, receive_buffer_bytes).await?;
                wire::connect_over(stream, url, offer, limits).await
            }
            _ => wire::connect_with(url, offer, limits, tls.as_ref()).await,
        }
    }

    async fn stream(
        &self,
        relay: SocketAddr,
        made: usize,
        receive_buffer_bytes: Option<u32>,
    ) -> std::io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        if let Some(bytes) = receive_buffer_bytes {
            socket.set_recv_buffer_size(bytes)?;
        }
        if self.sources > 1 {
            let host = u32::try_from(made % self.sources).unwrap_or(0);
            let source = Ipv4Addr::from_bits(Ipv4Addr::LOCALHOST.to_bits() + host);
            socket.bind(SocketAddr::new(IpAddr::V4(source), 0))?;
        }
        socket.connect(relay).await
    }
}

/// The loopback address in a URL that gives it by number.
fn loopback(url: &str) -> Option<SocketAddr> {
    let authority = url.strip_prefix("ws://")?.split('/').next()?;
    let address: SocketAddr = authority.parse().ok()?;
    (address.is_ipv4() && address.ip().is_loopback()).then_some(address)
}

/// Raises the limit of open descriptors to its maximum.
///
/// # Errors
/// When the maximum is below what `connections` need; the text says what helps.
pub fn raise_descriptor_limit(connections: usize) -> anyhow::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("cannot read the limit of descriptors")?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("cannot raise the limit of descriptors")?;
    let needed = connections as u64 + OTHER_DESCRIPTORS;
    ensure!(
        needed <= hard,
        "{connections} connections need {needed} descriptors, and a process may open {hard} here: raise that with \
         ulimit -Hn as root, or connect fewer with --set"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_numbered_loopback_address_gets_chosen_sources() {
        assert!(loopback("ws://127.0.0.1:7777").is_some());
        assert!(loopback("ws://127.9.9.9:7777/path").is_some());
        for url in
            ["ws://localhost:7777", "ws://10.0.0.1:80", "ws://[::1]:80", "wss://127.0.0.1:1", "nonsense"]
        {
            assert_eq!(loopback(url), None, "{url}");
        }
    }
}
