//! Properties of any bytes: the fuzz targets ask them of new inputs, `fuzz_seeds.rs` of the
//! committed ones, on stable Rust. Both compile this file.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use futures::{SinkExt, StreamExt, executor::block_on};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, duplex};
use tungstenite_deflate::{
    DeflateParams, Direction, SharedDeflate, WebSocket, negotiate,
    tungstenite::{
        Message,
        protocol::{Role, WebSocketConfig, frame::coding::Data},
    },
};

/// Limits messages of a peer, so that a bomb of a few bytes meets it.
const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// `headers`: bytes as `Sec-WebSocket-Extensions`, to a server and to a client. No panic; a server
/// grants only what its own client would be granted again, in a header that HTTP can carry.
pub(crate) fn headers(bytes: &[u8]) {
    let header = String::from_utf8_lossy(bytes);
    let smaller = Direction { window_bits: 11, ..Direction::DEFAULT };
    let small = DeflateParams { to_client: smaller, to_server: smaller, ..DeflateParams::DEFAULT };
    let none = Direction::NO_TAKEOVER;
    let fresh = DeflateParams { to_client: none, to_server: none, ..DeflateParams::DEFAULT };
    for enabled in [&[DeflateParams::DEFAULT, fresh][..], &[small], &[fresh], &[]] {
        let Ok(Some((answer, agreed))) = negotiate::accept(&header, enabled) else { continue };
        assert!(answer.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{answer:?}");
        let bits = [agreed.to_client, agreed.to_server].map(|direction| direction.window_bits);
        assert!(bits.iter().all(|bits| (9..=15).contains(bits)), "{header:?}: {agreed:?}");
        // An offer of this crate lets the server choose the client's window, so one that wants it
        // smaller gets that now.
        let (again, same) = negotiate::accept(&negotiate::offer(&agreed), enabled)
            .expect("an offer of this crate is in the grammar")
            .expect("what was granted is granted again");
        assert_eq!(same.to_client, agreed.to_client, "{header:?}");
        assert_eq!(same.to_server.takeover, agreed.to_server.takeover, "{header:?}");
        assert!(same.to_server.window_bits <= agreed.to_server.window_bits, "{header:?}");
        let client = negotiate::check_answer(&again, Some(&agreed)).expect("the answer suits the offer");
        let client = client.expect("the answer has the extension");
        assert_eq!((client.to_client, client.to_server), (same.to_client, same.to_server), "{header:?}");
    }
    for offered in [Some(&DeflateParams::DEFAULT), Some(&small), Some(&fresh), None] {
        let agreed = negotiate::check_answer(&header, offered);
        assert!(offered.is_some() || !matches!(agreed, Ok(Some(_))), "{header:?} was not offered");
    }
}

/// `streams`: which end, which parameters, how reads are cut, then all that the peer sends. No
/// panic and no message over the limit; the cuts change nothing of what comes out.
pub(crate) fn streams(bytes: &[u8]) {
    let Some((&[how, window, cut, early], sent)) = bytes.split_first_chunk() else { return };
    let role = if how & 1 == 0 { Role::Server } else { Role::Client };
    let direction = Direction { takeover: how & 2 == 0, window_bits: 9 + window % 7, min_bytes: 0 };
    let params = DeflateParams { to_client: direction, to_server: direction, ..DeflateParams::DEFAULT };
    let deflate = (how & 4 == 0).then_some(params);
    let whole = received(role, deflate, &[], sent, usize::MAX);
    let early_bytes = usize::from(early).min(sent.len());
    let in_pieces = received(role, deflate, &sent[..early_bytes], &sent[early_bytes..], usize::from(cut) + 1);
    assert_eq!(whole, in_pieces, "how reads are cut changes what is read");
}

/// The messages and the error that ended them.
pub(crate) fn received(
    role: Role,
    deflate: Option<DeflateParams>,
    early: &[u8],
    sent: &[u8],
    piece_bytes: usize,
) -> (Vec<Message>, Option<String>) {
    let pieces = Pieces { rest: sent, piece_bytes };
    let config = WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE_BYTES));
    block_on(async {
        let mut websocket =
            WebSocket::from_partially_read(pieces, early.to_vec(), role, deflate, Some(config)).await;
        let mut messages = Vec::new();
        while let Some(result) = websocket.next().await {
            match result {
                Ok(message) => {
                    assert!(message.len() <= MAX_MESSAGE_BYTES, "{} bytes", message.len());
                    messages.push(message);
                }
                Err(error) => {
                    assert!(websocket.next().await.is_none(), "an error ends the stream");
                    return (messages, Some(error.to_string()));
                }
            }
        }
        (messages, None)
    })
}

/// A peer that sends these bytes, so many at a time, and reads whatever comes.
struct Pieces<'b> {
    rest: &'b [u8],
    piece_bytes: usize,
}

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let len = self.rest.len().min(self.piece_bytes).min(buf.remaining());
        let (piece, rest) = self.rest.split_at(len);
        buf.put_slice(piece);
        self.rest = rest;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pieces<'_> {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// `messages`: parameters, then messages of both ends. What one end sends the other receives.
pub(crate) fn messages(bytes: &[u8]) {
    let Some((&[to_client, to_server, level, min_bytes], mut recipe)) = bytes.split_first_chunk() else {
        return;
    };
    let min_bytes = min_bytes.into();
    let direction =
        |byte: u8| Direction { takeover: byte & 1 == 0, window_bits: 9 + (byte >> 1) % 7, min_bytes };
    let params = DeflateParams {
        level: u32::from(level % 10),
        to_client: direction(to_client),
        to_server: direction(to_server),
        shared: to_client & 1 == 1,
    };
    let (near, far) = duplex(1 << 20);
    block_on(async {
        let mut client =
            WebSocket::from_partially_read(near, Vec::new(), Role::Client, Some(params), None).await;
        let mut server =
            WebSocket::from_partially_read(far, Vec::new(), Role::Server, Some(params), None).await;
        let shared = SharedDeflate::default();
        let mut common: Option<Vec<u8>> = None;
        while let Some((&[how, len], rest)) = recipe.split_first_chunk() {
            let (pattern, rest) = rest.split_at(rest.len().min(len.into()));
            recipe = rest;
            // At most 32 KiB: both pipes hold what nobody has read yet.
            let payload = pattern.repeat(1 << (how >> 4 & 7));
            let text = || String::from_utf8_lossy(&payload).into_owned();
            match how % 4 {
                0 | 1 => {
                    let message = if how % 4 == 0 { Message::text(text()) } else { Message::binary(payload) };
                    client.send(message.clone()).await.expect("the server reads");
                    assert_eq!(server.next().await.expect("a message").expect("it is valid"), message);
                }
                2 => {
                    let message = Message::text(text());
                    server.send(message.clone()).await.expect("the client reads");
                    assert_eq!(client.next().await.expect("a message").expect("it is valid"), message);
                }
                _ => {
                    // The prefix is this message's own, the rest the first one's.
                    let common = common.get_or_insert_with(|| payload.clone());
                    let whole = [pattern, &common[..]].concat();
                    server.start_shared(Data::Binary, pattern, &[common], &shared).expect("the client reads");
                    server.flush().await.expect("the client reads");
                    let message = client.next().await.expect("a message").expect("it is valid");
                    assert_eq!(message, Message::binary(whole));
                }
            }
        }
    });
}
