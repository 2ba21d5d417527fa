//! The kernel's byte count of a socket (`TCP_INFO`), read through `sock_diag(7)`: without
//! privileges or unsafe code.

use std::{
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use netlink_packet_core::{NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::{
    SockDiagMessage,
    constants::{AF_INET, IPPROTO_TCP},
    inet::{
        ExtensionFlags, InetRequest, SocketId, StateFlags,
        nlas::{Nla, TcpInfo},
    },
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_SOCK_DIAG};

/// Upper bound on the time until everything sent is acknowledged.
const PATIENCE: Duration = Duration::from_secs(1);

/// Bytes that the kernel sent on an IPv4 connection, without retransmissions (RFC 4898,
/// `tcpEStatsPerfHCDataOctetsOut`). Waits until all are acknowledged.
///
/// # Errors
/// When the kernel does not tell, or the peer does not acknowledge.
pub(super) fn bytes_sent(connection: &TcpStream) -> Result<u64> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let info = ask(connection).context("the kernel does not tell about a socket")?;
        if info.notsent_bytes == 0 && info.unacked == 0 {
            return Ok(info.bytes_sent - info.bytes_retrans);
        }
        if Instant::now() > deadline {
            bail!("{} bytes were not sent, {} segments not acknowledged", info.notsent_bytes, info.unacked);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn ask(connection: &TcpStream) -> Result<TcpInfo> {
    let (own, peer) = (connection.local_addr()?, connection.peer_addr()?);
    let request = InetRequest {
        family: AF_INET,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::INFO,
        states: StateFlags::all(),
        socket_id: SocketId {
            source_port: own.port(),
            destination_port: peer.port(),
            source_address: own.ip(),
            destination_address: peer.ip(),
            interface_id: 0,
            // Any socket with these addresses.
            cookie: [0xff; 8],
        },
    };
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST;
    let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);

    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&bytes, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    match NetlinkMessage::<SockDiagMessage>::deserialize(&answer)?.payload {
        NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(response)) => {
            let info = response.nlas.into_iter().find_map(|nla| match nla {
                Nla::TcpInfo(info) => Some(info),
                _ => None,
            });
            info.context("its answer has no tcp_info")
        }
        other => bail!("its answer is {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
    };

    use super::*;

    #[test]
    #[ignore = "needs a kernel that answers sock_diag(7)"]
    fn the_kernel_counts_what_was_written_in_both_directions() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[1; 70_001]).unwrap();
        server.read_exact(&mut [0; 70_001]).unwrap();
        server.write_all(&[2; 3]).unwrap();
        client.read_exact(&mut [0; 3]).unwrap();
        assert_eq!((bytes_sent(&client).unwrap(), bytes_sent(&server).unwrap()), (70_001, 3));
        // A closed side no longer counts.
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(server.read(&mut [0]).unwrap(), 0);
        assert_eq!(bytes_sent(&server).unwrap(), 3);
    }
}
