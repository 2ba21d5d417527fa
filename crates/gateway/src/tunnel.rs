//! Bytes of client and relay, passed as they are: frames, Pings, Close frames and what is no
//! WebSocket at all.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, sink, split},
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use wire::{Endpoint, WireError, WireLimits};

use crate::{metrics::Live, request::Request};

/// Bytes on their way in each direction: with the sockets' buffers all that waits for a slow peer.
const PASSED_BYTES: usize = 8 << 10;

/// Time for the other direction after one has ended.
const LINGER: Duration = Duration::from_secs(5);

/// Sends the relay a request. Returns its stream, and for a WebSocket what came of the answer: its
/// head, and maybe more.
///
/// # Errors
/// Those of the connection.
pub(crate) async fn ask(
    relay: &Endpoint,
    request: &Request,
    limits: &WireLimits,
) -> Result<(impl AsyncRead + AsyncWrite + Send + Unpin + use<>, Vec<u8>), WireError> {
    let mut relay = relay.open(limits).await?;
    relay.write_all(&request.head()).await?;
    relay.flush().await?;
    let mut start = Vec::with_capacity(1 << 10);
    if request.for_websocket {
        // Bytes of the client are for the WebSocket alone, so its begin is awaited.
        while !start.windows(4).any(|four| four == b"\r\n\r\n") {
            if start.len() > limits.max_head_bytes || relay.read_buf(&mut start).await? == 0 {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "no HTTP head").into());
            }
        }
    }
    Ok((relay, start))
}

/// Passes bytes until both directions have ended, or `stop`.
pub(crate) async fn pass(
    (client_in, mut client_out): (impl AsyncRead + Unpin, impl AsyncWrite + Unpin),
    (relay, start): (impl AsyncRead + AsyncWrite, Vec<u8>),
    request: &Request,
    live: &Live,
    stop: &CancellationToken,
) {
    if client_out.write_all(&start).await.is_err() || client_out.flush().await.is_err() {
        return;
    }
    live.to_client.after.fetch_add(start.len() as u64, Relaxed);
    let is_websocket = start.starts_with(b"HTTP/1.1 101");
    let most_up = if is_websocket { u64::MAX } else { request.body_bytes };
    let (mut relay_in, mut relay_out) = split(relay);
    let mut client_in = client_in.take(most_up);
    let up = async {
        let passing = async {
            pass_one_way(&mut client_in, &mut relay_out, &live.to_relay.after).await;
            if client_in.limit() == 0 {
                // A further request on this connection would reach the relay unread.
                let _ = copy(client_in.get_mut(), &mut sink()).await;
            }
        };
        tokio::select! {
            () = passing => {}
            () = stop.cancelled() => {}
        }
        let _ = relay_out.shutdown().await;
    };
    let down = async {
        pass_one_way(&mut relay_in, &mut client_out, &live.to_client.after).await;
        let _ = client_out.shutdown().await;
    };
    tokio::pin!(up, down);
    tokio::select! {
        () = &mut up => { let _ = timeout(LINGER, down).await; }
        () = &mut down => { let _ = timeout(LINGER, up).await; }
    }
}

async fn pass_one_way(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    count: &AtomicU64,
) {
    let mut buffer = vec![0; PASSED_BYTES];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if to.write_all(&buffer[..read]).await.is_err() || to.flush().await.is_err() {
            return;
        }
        count.fetch_add(read as u64, Relaxed);
    }
}
