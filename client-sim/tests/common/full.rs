//! A way to a relay that holds next to nothing: it measures how much a client's end takes from it
//! that the client has not read.

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{
        TcpSocket, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
};

/// The send buffer that the way asks of the kernel for its own end of a connection.
const SEND_BUFFER_BYTES: u32 = 4 << 10;

/// The longest time in which a client's end took nothing, and the bytes that it had taken before.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Full {
    pub(crate) lasted: Duration,
    pub(crate) after_bytes: usize,
}

/// Stands before a relay, at an address of its own.
pub(crate) struct Way {
    pub(crate) port: u16,
    /// Of each connection.
    pub(crate) full: Arc<Mutex<Vec<Full>>>,
}

impl Way {
    /// Listens at a free port of `address`.
    pub(crate) fn start(address: SocketAddr, relay: SocketAddr) -> Way {
        let (tell, told) = mpsc::channel();
        let full = Arc::<Mutex<Vec<Full>>>::default();
        let all = Arc::clone(&full);
        // Ends with the test's process.
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let socket =
                    if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.unwrap();
                // Connections inherit it (socket(7)).
                socket.set_send_buffer_size(SEND_BUFFER_BYTES).unwrap();
                socket.bind(address).unwrap();
                let listener = socket.listen(64).unwrap();
                tell.send(listener.local_addr().unwrap().port()).unwrap();
                loop {
                    let (client, _) = listener.accept().await.unwrap();
                    let all = Arc::clone(&all);
                    tokio::spawn(async move {
                        let relay = TcpStream::connect(relay).await.unwrap();
                        let ((mut from_client, to_client), (from_relay, mut to_relay)) =
                            (client.into_split(), relay.into_split());
                        tokio::spawn(async move { copy(&mut from_client, &mut to_relay).await });
                        let mut full = Full::default();
                        // A client that leaves ends its connection alone.
                        let _ = carry(from_relay, to_client, &mut full).await;
                        all.lock().unwrap().push(full);
                    });
                }
            });
        });
        Way { port: told.recv().unwrap(), full }
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, full: &mut Full) -> io::Result<()> {
    let (mut bytes, mut taken) = ([0; 1 << 10], 0);
    loop {
        let count = from.read(&mut bytes).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        let since = Instant::now();
        to.write_all(&bytes[..count]).await?;
        let lasted = since.elapsed();
        if lasted > full.lasted {
            *full = Full { lasted, after_bytes: taken };
        }
        taken += count;
    }
}
