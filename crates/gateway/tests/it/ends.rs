//! How connections end: by the client, the relay, the gateway or a limit.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use tokio::{io::AsyncWriteExt, net::TcpStream, sync::mpsc};
use tokio_tungstenite::tungstenite::Message;
use wire::{CloseCode, WireError};

use crate::common::{TestGateway, handshake, head, http, patiently, relay, upgraded};

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
        client.feed(r#"["CLOSE","a"]"#.into()).await.unwrap();
        client.flush().await.ok();
        let ended = patiently(client.next()).await;
        assert!(matches!(&ended, Some(Err(WireError::Closed { code: 1012, .. }))), "{ended:?}");
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
    patiently(client.close(CloseCode::Other(4000), "bye")).await;
    assert_eq!(patiently(closes.recv()).await.unwrap(), Some((4000, "bye".to_owned())));
    let mut client = gateway.client("json", "zstd-dict").await;
    patiently(client.close(CloseCode::NONE, "")).await;
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
    assert!(closes(CloseCode::InvalidData).await);
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
    let mut silent = TcpStream::connect(&gateway.address).await.unwrap();
    let request = handshake("Sec-WebSocket-Protocol: nostr.json\r\n");
    silent.write_all(request.as_bytes()).await.unwrap();
    let mut alive = gateway.client("json", "zstd-dict").await;
    let mut all = Vec::new();
    let silent_ends = tokio::io::AsyncReadExt::read_to_end(&mut silent, &mut all);
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
    let mut tunnelled = TcpStream::connect(&gateway.address).await.unwrap();
    tunnelled.write_all(handshake("").as_bytes()).await.unwrap();
    head(&mut tunnelled).await;
    let mut third = TcpStream::connect(&gateway.address).await.unwrap();
    assert!(head(&mut third).await.starts_with("HTTP/1.1 503"));

    let address = gateway.address.clone();
    let mut rest = Vec::new();
    let (_, message, read) = tokio::join!(
        gateway.stop(),
        patiently(client.next()),
        patiently(tokio::io::AsyncReadExt::read_to_end(&mut tunnelled, &mut rest)),
    );
    assert!(message.is_none(), "{message:?}");
    assert_eq!(client.peer_close().map(|(code, _)| code.code()), Some(1001));
    read.ok();
    assert!(TcpStream::connect(&address).await.is_err());
}
