//! How connections end: by the client, the relay, the gateway or a limit.

use std::{future::pending, time::Duration};

use futures::{SinkExt, StreamExt};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};
use tokio_tungstenite::tungstenite::Message;
use wire::CloseCode;

use crate::common::{
    TestGateway, ends_with, handshake, head, http, patiently, relay, say, sent, switching, upgraded,
};

#[tokio::test]
async fn a_relay_that_dies_is_1012_and_one_that_is_not_there_502() {
    let relay = relay(|stream| async move {
        let (mut socket, _) = upgraded(stream).await;
        socket.send(Message::text(r#"["NOTICE","last words"]"#)).await.unwrap();
        socket.next().await;
    })
    .await;
    let gateway = TestGateway::before(&relay, |_| {}).await;
    for (format, compression) in [("json", "zstd-dict"), ("dannypack", "none")] {
        let mut client = gateway.client(format, compression).await;
        assert!(patiently(client.next()).await.unwrap().is_ok());
        // The relay drops the connection then.
        say(&mut client, r#"["CLOSE","a"]"#).await;
        ends_with(&mut client, 1012).await;
    }
    let gateway = TestGateway::before("127.0.0.1:1", |_| {}).await;
    for fields in ["", "Sec-WebSocket-Protocol: nostr.json\r\n"] {
        let answer = http(&gateway.address, &handshake(fields)).await;
        assert!(answer.starts_with("HTTP/1.1 502") && answer.contains("Retry-After"), "{answer}");
    }
    assert!(http(&gateway.address, "GET /x HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 502"));
    assert!(http(&gateway.metrics, "GET /healthz HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 503"));
    assert_eq!(gateway.metric("relay_failures_total").await, 3);
}

#[tokio::test]
async fn the_relay_hears_how_its_client_closed() {
    let (sender, mut closes) = mpsc::unbounded_channel();
    let relay = relay(move |stream| {
        let sender = sender.clone();
        async move {
            let (mut socket, _) = upgraded(stream).await;
            while let Some(Ok(message)) = socket.next().await {
                if let Message::Close(close) = message {
                    sender
                        .send(close.map(|close| (u16::from(close.code), close.reason.to_string())))
                        .unwrap();
                }
            }
        }
    })
    .await;
    let gateway = TestGateway::before(&relay, |_| {}).await;
    let mut client = gateway.client("json", "zstd-dict").await;
    patiently(client.close(CloseCode::Library(4000), "bye")).await;
    assert_eq!(patiently(closes.recv()).await.unwrap(), Some((4000, "bye".to_owned())));
    let mut client = gateway.client("json", "zstd-dict").await;
    patiently(client.close(CloseCode::Status, "")).await;
    assert_eq!(patiently(closes.recv()).await.unwrap(), None);
    gateway.client("json", "zstd-dict").await.reset();
    assert_eq!(patiently(closes.recv()).await.unwrap(), Some((1001, "the client is gone".to_owned())));
}

#[tokio::test]
async fn a_client_that_closes_over_its_first_compressed_messages_gets_none_next_time() {
    let relay = relay(|stream| async move {
        let (mut socket, _) = upgraded(stream).await;
        let notice = format!(r#"["NOTICE","{}"]"#, "a".repeat(300));
        socket.send(Message::text(notice)).await.unwrap();
        while socket.next().await.is_some() {}
    })
    .await;
    let gateway = TestGateway::before(&relay, |_| {}).await;
    let closes = async |code| {
        let mut client = gateway.client_that_offers("json", "deflate").await;
        let is_compressed = client.agreement().compression != wire::Compression::None;
        assert!(patiently(client.next()).await.unwrap().is_ok());
        patiently(client.close(code, "what is this?")).await;
        is_compressed
    };
    assert!(closes(CloseCode::Normal).await);
    assert!(closes(CloseCode::Invalid).await);
    let shunned = async {
        while gateway.metric("shunned_total").await == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    patiently(shunned).await;
    assert!(!closes(CloseCode::Normal).await);
    let client = gateway.client_that_offers("dannypack", "zstd-dict").await;
    let agreement = client.agreement();
    assert_eq!((agreement.format.name(), agreement.compression), ("json", wire::Compression::None));
}

#[tokio::test]
async fn silent_peers_are_left_and_others_are_pinged() {
    let relay = relay(|stream| async move {
        let (mut socket, _) = upgraded(stream).await;
        while socket.next().await.is_some() {}
    })
    .await;
    let gateway =
        TestGateway::before(&relay, |config| config.ping_interval = Duration::from_millis(200)).await;
    let request = handshake("Sec-WebSocket-Protocol: nostr.json\r\n");
    let mut silent = sent(&gateway.address, &request).await;
    let mut alive = gateway.client("json", "zstd-dict").await;
    let mut all = Vec::new();
    let silent_ends = silent.read_to_end(&mut all);
    tokio::select! {
        end = patiently(silent_ends) => { end.unwrap(); }
        message = alive.next() => panic!("{message:?}"),
    }
    assert!(String::from_utf8_lossy(&all).contains("no sign of life"), "{all:?}");
    let still = tokio::time::timeout(Duration::from_millis(400), alive.next()).await;
    assert!(still.is_err(), "{still:?}");
}

#[tokio::test]
async fn a_gateway_that_stops_says_so_and_takes_nobody() {
    let relay = relay(|stream| async move {
        let (mut socket, _) = upgraded(stream).await;
        while socket.next().await.is_some() {}
    })
    .await;
    let gateway = TestGateway::before(&relay, |config| config.max_connections = 2).await;
    let mut client = gateway.client("json", "zstd-dict").await;
    let mut tunnelled = sent(&gateway.address, &handshake("")).await;
    head(&mut tunnelled).await;
    let mut third = TcpStream::connect(&gateway.address).await.unwrap();
    assert!(head(&mut third).await.starts_with("HTTP/1.1 503"));

    let address = gateway.address.clone();
    let mut rest = Vec::new();
    let (_, message, read) =
        tokio::join!(gateway.stop(), patiently(client.next()), patiently(tunnelled.read_to_end(&mut rest)));
    assert!(message.is_none(), "{message:?}");
    assert_eq!(client.peer_close().map(|(code, _)| code), Some(CloseCode::Away));
    read.ok();
    assert!(TcpStream::connect(&address).await.is_err());
}

#[tokio::test]
async fn clients_that_come_again_are_served_once_a_killed_relay_is_back() {
    let serve = |listener| tokio::spawn(relay_sim::serve(listener, relay_sim::Config::default(), pending()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let first = serve(listener);
    let gateway = TestGateway::before(&address, |_| {}).await;
    let asks = async || {
        let mut client = gateway.client("dannypack", "zstd-dict").await;
        say(&mut client, r#"["REQ","a",{"limit":0}]"#).await;
        assert!(patiently(client.next()).await.unwrap().is_ok(), "EOSE");
        client
    };
    let mut client = asks().await;
    let mut passed = sent(&gateway.address, &handshake("")).await;
    head(&mut passed).await;
    first.abort();
    ends_with(&mut client, 1012).await;
    patiently(passed.read_to_end(&mut Vec::new())).await.ok();
    assert!(http(&gateway.address, &handshake("")).await.starts_with("HTTP/1.1 502"));
    serve(TcpListener::bind(&address).await.unwrap());
    asks().await;
}

/// Headers of empty frames that end in a breach of RFC 6455, or promise more than anybody takes, and
/// the code for whoever sends them.
const BROKEN: [(&[&[u8]], u16); 5] = [
    // RSV2, and RSV1 on a continuation.
    (&[b"\xa1\x00"], 1002),
    (&[b"\x01\x00", b"\xc0\x00"], 1002),
    // A reserved opcode.
    (&[b"\x83\x00"], 1002),
    (&[b"\x81\x7f\x80\x00\x00\x00\x00\x00\x00\x01"], 1009),
    (&[b"\x81\x7f\x00\xff\xff\xff\xff\xff\xff\xff"], 1009),
];

#[tokio::test]
async fn broken_frames_bombs_and_endless_requests_end_their_own_connection_alone() {
    // Answers a message of one byte, a number, with those frames, and others in order.
    let relay = relay(|mut stream| async move {
        let request = head(&mut stream).await;
        stream.write_all(switching(&request).as_bytes()).await.unwrap();
        let mut asked = [0; 7];
        if stream.read_exact(&mut asked).await.is_ok() {
            let broken = BROKEN.get(usize::from(asked[6] ^ asked[2]));
            let frames = broken.map_or_else(|| b"\x81\x02[]".to_vec(), |(headers, _)| headers.concat());
            stream.write_all(&frames).await.unwrap();
            stream.read_to_end(&mut Vec::new()).await.ok();
        }
    })
    .await;
    let gateway = TestGateway::before(&relay, |_| {}).await;
    let mut bystander = gateway.client("json", "zstd-dict").await;
    for (n, (headers, code)) in (0..).zip(BROKEN) {
        let request = handshake("Sec-WebSocket-Extensions: permessage-deflate\r\n");
        let mut client = sent(&gateway.address, &request).await;
        assert!(head(&mut client).await.contains("permessage-deflate"));
        for header in headers {
            // A client masks its frames.
            let masked = [&[header[0], header[1] | 0x80], &header[2..], &[0; 4]].concat();
            client.write_all(&masked).await.unwrap();
        }
        let mut answer = Vec::new();
        patiently(client.read_to_end(&mut answer)).await.ok();
        assert!(answer.len() > 4 && answer[0] == 0x88, "{n}: {answer:?}");
        assert_eq!(answer[2..4], u16::to_be_bytes(code), "{n}: {answer:?}");

        let mut client = gateway.client("json", "none").await;
        say(&mut client, vec![n]).await;
        ends_with(&mut client, 1011).await;
    }
    for compression in ["deflate", "zstd-dict"] {
        let mut bomb = gateway.client_that_offers("json", compression).await;
        assert_ne!(bomb.agreement().compression, wire::Compression::None);
        say(&mut bomb, vec![b' '; 8 << 20]).await;
        ends_with(&mut bomb, 1009).await;
        assert!(bomb.traffic().sent.wire_bytes < 1 << 17, "{:?}", bomb.traffic());
    }
    say(&mut bystander, vec![99]).await;
    assert_eq!(patiently(bystander.next()).await.unwrap().unwrap().payload, "[]");

    let hasty = Duration::from_millis(300);
    let gateway = TestGateway::before(&relay, |config| config.limits.handshake_timeout = hasty).await;
    let mut slow = sent(&gateway.address, "GET / HTTP/1.1\r\nHost: ").await;
    let (mut input, mut output) = slow.split();
    let dripping = async {
        while output.write_all(b"a").await.is_ok() {
            tokio::time::sleep(hasty / 10).await;
        }
    };
    let mut end = Vec::new();
    tokio::select! {
        () = dripping => {}
        _ = patiently(input.read_to_end(&mut end)) => {}
    }
}
