//! The socket on which a server listens, and those that it accepts.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    time::sleep,
};
use tracing::warn;

/// The pause after a failed accept: descriptors become free when a connection ends.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Listens with a queue long enough for a thousand clients that connect at once. Needs a runtime
/// around it.
///
/// # Errors
/// When another program listens there, or the system refuses.
pub fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    const BACKLOG: u32 = 4_096;
    let listen = || {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => anyhow::anyhow!(
            "another program listens on {address} already; stop it, or choose another port with --listen \
             {}:PORT (port 0 takes a free one)",
            address.ip()
        ),
        io::ErrorKind::AddrNotAvailable => anyhow::anyhow!(
            "cannot listen on {address}: this host has no such address; choose another with --listen IP:PORT, as in \
             0.0.0.0:{} for all",
            address.port()
        ),
        // On Linux ports below net.ipv4.ip_unprivileged_port_start are root's (ip(7)).
        io::ErrorKind::PermissionDenied if address.port() < 1024 => anyhow::anyhow!(
            "this user may not listen on port {}; choose one from 1024 on with --listen {}:PORT, or allow it \
             (setcap cap_net_bind_service=+ep FILE)",
            address.port(),
            address.ip()
        ),
        _ => anyhow::Error::new(error).context(format!("cannot listen on {address}")),
    })
}

/// The next connection. Never fails: what keeps a server from accepting passes. Cancel-safe.
pub async fn accept(listener: &TcpListener) -> TcpStream {
    let mut told = false;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                if !std::mem::replace(&mut told, true) {
                    warn!(%error, "cannot accept connections; trying again every {ACCEPT_RETRY:?}");
                }
                sleep(ACCEPT_RETRY).await;
            }
        }
    }
}
