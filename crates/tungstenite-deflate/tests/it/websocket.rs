//! Messages through both ends, and what a peer may not send.

use std::{io::Write, time::Duration};

use flate2::{Compression as Level, write::DeflateEncoder};
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tungstenite_deflate::{
    CompressionMemory, DeflateParams, Direction, Error, SharedDeflate, WebSocket, accept, connect,
    tungstenite::{
        self, Message,
        protocol::{
            CloseFrame, Role, WebSocketConfig,
            frame::{
                Frame,
                coding::{CloseCode, Data, OpCode},
            },
        },
    },
};

pub(crate) type Ends = (WebSocket<DuplexStream>, WebSocket<DuplexStream>);

/// Both ends after the handshake: client, server.
pub(crate) async fn pair(offered: Option<&DeflateParams>, enabled: &[DeflateParams]) -> Ends {
    let (near, far) = duplex(1 << 20);
    let (client, server) =
        tokio::join!(connect("ws://test/", near, offered, None), accept(far, enabled, None));
    (client.unwrap().0, server.unwrap())
}

/// Repetitive text with digits in it.
pub(crate) fn sample(bytes: usize) -> String {
    (0..)
        .map(|n: usize| format!("[\"EVENT\",{}],", n * n))
        .flat_map(String::into_bytes)
        .take(bytes)
        .map(char::from)
        .collect()
}

fn all_params() -> Vec<DeflateParams> {
    let directions = [9, 12, 15].map(|window_bits| {
        [Direction::DEFAULT, Direction::NO_TAKEOVER].map(|direction| Direction { window_bits, ..direction })
    });
    let directions = directions.as_flattened();
    let pairs = directions.iter().flat_map(|up| directions.iter().map(move |down| (*down, *up)));
    pairs
        .map(|(to_client, to_server)| DeflateParams { to_client, to_server, ..DeflateParams::DEFAULT })
        .collect()
}

#[tokio::test]
async fn messages_arrive_unaltered_under_all_parameters_in_both_directions() {
    for params in all_params() {
        let (mut client, mut server) = pair(Some(&params), &[DeflateParams::DEFAULT]).await;
        assert_eq!((client.deflate(), server.deflate()), (Some(&params), Some(&params)));
        for bytes in [0, 1, 125, 126, 700, 700, 65_535, 65_536, 70_000, 0] {
            for message in [Message::text(sample(bytes)), Message::binary(sample(bytes))] {
                client.send(message.clone()).await.unwrap();
                assert_eq!(server.next().await.unwrap().unwrap(), message, "{params:?}");
                server.send(message.clone()).await.unwrap();
                assert_eq!(client.next().await.unwrap().unwrap(), message, "{params:?}");
            }
        }
    }
}

#[tokio::test]
async fn messages_far_beyond_the_first_buffer_arrive() {
    let (mut client, mut server) = pair(Some(&DeflateParams::DEFAULT), &[DeflateParams::DEFAULT]).await;
    for bytes in [1 << 16, (1 << 17) - 1, 1 << 17, (1 << 17) + 1, 3 << 20] {
        for message in [Message::text(sample(bytes)), Message::binary(vec![0; bytes])] {
            let (sent, received) = tokio::join!(client.send(message.clone()), server.next());
            sent.unwrap();
            assert!(received.unwrap().unwrap() == message, "{bytes}");
        }
    }
}

#[tokio::test]
async fn an_end_without_the_extension_is_spoken_to_uncompressed() {
    for (offered, enabled) in [(None, &[DeflateParams::DEFAULT][..]), (Some(&DeflateParams::DEFAULT), &[])] {
        let (mut client, mut server) = pair(offered, enabled).await;
        assert_eq!((client.deflate(), server.deflate()), (None, None));
        client.send(Message::text("hello")).await.unwrap();
        assert_eq!(server.next().await.unwrap().unwrap(), Message::text("hello"));
        assert_eq!(server.compression_memory(), CompressionMemory::default());
    }
}

#[tokio::test]
async fn payloads_below_min_bytes_travel_as_they_are() {
    let (near, mut far) = duplex(4096);
    let to_client = Direction { min_bytes: 100, ..Direction::DEFAULT };
    let params = DeflateParams { to_client, ..DeflateParams::DEFAULT };
    let mut server = raw(near, Some(params)).await;
    for (bytes, first_byte) in [(99, FIN | TEXT), (100, FIN | RSV1 | TEXT)] {
        server.send(Message::text("x".repeat(bytes))).await.unwrap();
        let mut header = [0; 2];
        far.read_exact(&mut header).await.unwrap();
        assert_eq!(header[0], first_byte, "{bytes}");
        assert_eq!(usize::from(header[1]) == bytes, bytes < 100, "{bytes}");
        far.read_exact(&mut vec![0; usize::from(header[1])]).await.unwrap();
    }
}

#[tokio::test]
async fn a_common_end_is_compressed_once_and_read_by_any_client() {
    let enabled =
        [DeflateParams { shared: true, to_client: Direction::NO_TAKEOVER, ..DeflateParams::DEFAULT }];
    let common = SharedDeflate::default();
    let mut held = None;
    for prefix in ["a", "another", &"s".repeat(70_000)] {
        let (mut client, mut server) = pair(Some(&DeflateParams::DEFAULT), &enabled).await;
        let (text, payload) = (sample(900), format!("{prefix}{}", sample(900)));
        let parts = text.as_bytes().split_at(5);
        server.start_shared(Data::Text, prefix.as_bytes(), &[parts.0, parts.1], &common).unwrap();
        server.send(Message::text("between")).await.unwrap();
        assert_eq!(client.next().await.unwrap().unwrap(), Message::text(payload));
        assert_eq!(client.next().await.unwrap().unwrap(), Message::text("between"));
        assert_eq!(*held.get_or_insert(common.held_bytes()), common.held_bytes());
    }
    assert!(common.held_bytes() > 0);

    let (mut client, mut server) = pair(Some(&DeflateParams::DEFAULT), &[DeflateParams::DEFAULT]).await;
    let unused = SharedDeflate::default();
    server.start_shared(Data::Binary, b"own", &[b" and ", b"common"], &unused).unwrap();
    server.flush().await.unwrap();
    assert_eq!(client.next().await.unwrap().unwrap(), Message::binary("own and common"));
    assert_eq!(unused.held_bytes(), 0, "nothing is shared where it was not agreed");
}

#[tokio::test]
async fn frames_that_come_with_the_head_are_read_at_both_ends() {
    let head = "GET / HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
        Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n";
    for head in [head.to_owned(), head.replace('\r', "")] {
        let (near, mut far) = duplex(4096);
        let mut request = head.into_bytes();
        request.extend(frame(FIN | RSV1 | TEXT, &HELLO));
        far.write_all(&request).await.unwrap();
        let mut server = accept(near, &[DeflateParams::DEFAULT], None).await.unwrap();
        assert_eq!(server.next().await.unwrap().unwrap(), Message::text("Hello"));
    }

    let (near, mut far) = duplex(4096);
    let answering = async move {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(far.read_u8().await.unwrap());
        }
        let request = String::from_utf8(request).unwrap();
        let key = request.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).unwrap();
        let accept = tungstenite::handshake::derive_accept_key(key.as_bytes());
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Accept: {accept}\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
        );
        let mut answer = head.into_bytes();
        answer.extend([FIN | RSV1 | TEXT, 7]);
        answer.extend(HELLO);
        far.write_all(&answer).await.unwrap();
        far
    };
    let connecting = connect("ws://test/", near, Some(&DeflateParams::DEFAULT), None);
    let (client, _far) = tokio::join!(connecting, answering);
    assert_eq!(client.unwrap().0.next().await.unwrap().unwrap(), Message::text("Hello"));
}

#[tokio::test]
async fn malformed_extensions_are_answered_with_400() {
    let (near, mut far) = duplex(4096);
    let request = "GET / HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
        Sec-WebSocket-Extensions: permessage-deflate; =\r\n\r\n";
    far.write_all(request.as_bytes()).await.unwrap();
    let error = accept(near, &[DeflateParams::DEFAULT], None).await.unwrap_err();
    assert!(matches!(&error, Error::WebSocket(_)), "{error}");
    let mut answer = String::new();
    far.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
    assert!(answer.ends_with("malformed Sec-WebSocket-Extensions: \"\" is no token"), "{answer}");
}

#[tokio::test]
async fn what_a_peer_may_not_send_ends_the_stream_with_the_fitting_close_code() {
    let agreed = Some(DeflateParams::DEFAULT);
    let bomb = deflated(&vec![b' '; 8 << 20]);
    let latin1 = deflated(b"caf\xe9");
    let cases: [(&str, Option<DeflateParams>, Vec<u8>, CloseCode); 9] = [
        ("RSV1 without the extension", None, frame(FIN | RSV1 | TEXT, &HELLO), CloseCode::Protocol),
        ("RSV1 on a ping", agreed, frame(FIN | RSV1 | PING, b""), CloseCode::Protocol),
        (
            "RSV1 on a continuation",
            agreed,
            [frame(RSV1 | TEXT, &HELLO), frame(FIN | RSV1, b"")].concat(),
            CloseCode::Protocol,
        ),
        ("RSV2", agreed, frame(FIN | 0x20 | TEXT, b"x"), CloseCode::Protocol),
        ("a bomb", agreed, frame(FIN | RSV1 | BINARY, &bomb), CloseCode::Size),
        ("a large message", agreed, frame(FIN | BINARY, &vec![0; MAX_BYTES + 1]), CloseCode::Size),
        ("no deflate stream", agreed, frame(FIN | RSV1 | BINARY, &[0x07, 1, 2, 3]), CloseCode::Invalid),
        ("deflated Latin-1", agreed, frame(FIN | RSV1 | TEXT, &latin1), CloseCode::Invalid),
        ("plain Latin-1", agreed, frame(FIN | TEXT, b"caf\xe9"), CloseCode::Invalid),
    ];
    for (what, deflate, bytes, code) in cases {
        let (near, mut far) = duplex(4 << 20);
        let mut server = raw(near, deflate).await;
        far.write_all(&bytes).await.unwrap();
        let error = server.next().await.unwrap().unwrap_err();
        assert_eq!(error.close_code(), Some(code), "{what}: {error}");
        assert!(server.next().await.is_none(), "{what}: an error ends the stream");
        let close = async {
            server.close(Some(CloseFrame { code, reason: "".into() })).await;
            drop(server);
        };
        let read = async {
            let mut bytes = Vec::new();
            far.read_to_end(&mut bytes).await.unwrap();
            assert_eq!(bytes, [&[FIN | CLOSE, 2], &u16::from(code).to_be_bytes()[..]].concat(), "{what}");
            drop(far);
        };
        tokio::join!(close, read);
    }
}

#[tokio::test]
async fn closing_waits_for_the_peer_and_ends_both_streams() {
    let (mut client, mut server) = pair(Some(&DeflateParams::DEFAULT), &[DeflateParams::DEFAULT]).await;
    let frame = CloseFrame { code: CloseCode::Away, reason: "bye".into() };
    let serve = async {
        let message = server.next().await.unwrap().unwrap();
        assert_eq!(message, Message::Close(Some(frame.clone())));
        assert!(server.next().await.is_none());
        drop(server);
    };
    tokio::join!(client.close(Some(frame.clone())), serve);
    assert!(client.next().await.is_none());
    assert!(client.send(Message::text("late")).await.is_err());
}

#[tokio::test]
async fn a_stream_that_is_asked_first_is_not_read_in_vain() {
    let (near, far) = duplex(4096);
    let mut server = raw(near, Some(DeflateParams::DEFAULT)).await.asking_first(|_, _| true);
    let mut far = far;
    far.write_all(&frame(FIN | RSV1 | TEXT, &HELLO)).await.unwrap();
    assert_eq!(server.next().await.unwrap().unwrap(), Message::text("Hello"));
    assert!(futures::poll!(server.next()).is_pending(), "tungstenite drains the stream once");
    far.write_all(&frame(FIN | RSV1 | TEXT, &HELLO)).await.unwrap();
    assert!(futures::poll!(server.next()).is_pending(), "the function says that there is nothing");
}

#[test]
fn a_read_buffer_is_small_unless_it_was_asked_for() {
    let read = |config| {
        futures::executor::block_on(async {
            let (near, mut far) = duplex(64);
            far.write_all(&frame(FIN | TEXT, b"hello")).await.unwrap();
            let mut server =
                WebSocket::from_partially_read(near, Vec::new(), Role::Server, None, config).await;
            assert_eq!(server.next().await.unwrap().unwrap(), Message::text("hello"));
        });
    };
    read(None); // now the thread has its buffers
    let [own, tungstenites] = [None, Some(WebSocketConfig::default())]
        .map(|config| allocation_counter::measure(|| read(config)).bytes_max);
    assert!(own < 8 << 10 && tungstenites > 100 << 10, "{own} and {tungstenites} bytes");
}

#[tokio::test]
async fn answers_to_pings_come_into_no_message_and_a_flush_that_waits_is_woken_beside_them() {
    // The first cuts every frame.
    for pipe_bytes in [7, 64, 1_000] {
        let (near, far) = duplex(pipe_bytes);
        let (client, server) = tokio::join!(connect("ws://test/", near, None, None), accept(far, &[], None));
        let (mut pings, mut messages) = client.unwrap().0.split();
        let (mut sink, mut stream) = server.unwrap().split();
        // Tasks of their own: each is woken for itself.
        let sending = tokio::spawn(async move {
            for n in 0..50 {
                sink.feed(Message::text(sample(n * 40))).await.unwrap();
                if n % 3 == 0 {
                    sink.flush().await.unwrap();
                }
            }
            sink.flush().await.unwrap();
            sink
        });
        let answering = tokio::spawn(async move {
            for _ in 0..50 {
                assert!(stream.next().await.unwrap().unwrap().is_ping());
            }
            stream
        });
        let pinging = tokio::spawn(async move {
            for n in 0..50 {
                pings.send(Message::Ping(vec![0; n].into())).await.unwrap();
            }
            pings
        });
        let mut texts = 0;
        while texts < 50 {
            let next = tokio::time::timeout(Duration::from_secs(20), messages.next());
            match next.await.expect("nobody sleeps").unwrap().unwrap() {
                Message::Text(text) => {
                    assert_eq!(text, sample(texts * 40));
                    texts += 1;
                }
                other => assert!(other.is_pong(), "{other}"),
            }
        }
        let (sink, stream, _) = (sending.await.unwrap(), answering.await.unwrap(), pinging.await.unwrap());
        drop((sink, stream));
    }
}

#[tokio::test]
async fn a_message_is_not_overtaken_by_the_close_behind_it() {
    let (near, far) = duplex(7); // the Pong does not fit
    let (client, server) = tokio::join!(connect("ws://test/", near, None, None), accept(far, &[], None));
    let (mut client, mut server) = (client.unwrap().0, server.unwrap());
    let ping = client.send(Message::Ping(vec![0; 20].into()));
    let (_, heard) = tokio::join!(ping, server.next());
    assert!(heard.unwrap().unwrap().is_ping());
    assert!(futures::poll!(server.next()).is_pending(), "a part of the Pong is written");
    let end = async {
        server.feed(Message::text("the last answer")).await.unwrap();
        server.close(None).await;
    };
    let read = async {
        assert!(client.next().await.unwrap().unwrap().is_pong());
        assert_eq!(client.next().await.unwrap().unwrap(), Message::text("the last answer"));
        assert!(client.next().await.unwrap().unwrap().is_close());
        while client.next().await.is_some() {}
    };
    tokio::join!(end, read);
}

#[tokio::test]
async fn messages_and_frames_of_the_caller_keep_their_order() {
    let (mut client, mut server) = pair(None, &[]).await;
    let frame = Frame::message(&b"own"[..], OpCode::Data(Data::Text), true);
    for message in [Message::text("before"), Message::Frame(frame), Message::text("behind")] {
        server.feed(message).await.unwrap();
    }
    server.flush().await.unwrap();
    for text in ["before", "own", "behind"] {
        assert_eq!(client.next().await.unwrap().unwrap(), Message::text(text));
    }
}

pub(crate) const FIN: u8 = 0x80;
pub(crate) const RSV1: u8 = 0x40;
pub(crate) const TEXT: u8 = 1;
pub(crate) const BINARY: u8 = 2;
pub(crate) const CLOSE: u8 = 8;
pub(crate) const PING: u8 = 9;

/// RFC 7692 §7.2.3.1.
pub(crate) const HELLO: [u8; 7] = [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];

const MAX_BYTES: usize = 1 << 20;

/// A server behind a handshake that agreed on `deflate`.
pub(crate) async fn raw(stream: DuplexStream, deflate: Option<DeflateParams>) -> WebSocket<DuplexStream> {
    let config = WebSocketConfig::default().max_message_size(Some(MAX_BYTES));
    WebSocket::from_partially_read(stream, Vec::new(), Role::Server, deflate, Some(config)).await
}

/// A client's frame, masked with zeros.
pub(crate) fn frame(first_byte: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first_byte];
    match payload.len() {
        len @ 0..126 => bytes.push(0x80 | u8::try_from(len).unwrap()),
        len => {
            bytes.push(0x80 | 127);
            bytes.extend((len as u64).to_be_bytes());
        }
    }
    bytes.extend([0; 4]);
    bytes.extend(payload);
    bytes
}

/// A first message as permessage-deflate compresses it.
pub(crate) fn deflated(payload: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Level::new(6));
    encoder.write_all(payload).unwrap();
    encoder.flush().unwrap();
    encoder.get_ref().strip_suffix(&[0, 0, 0xff, 0xff]).unwrap().to_vec()
}
