//! The socket on which a server listens.

use std::{io, net::SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

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
