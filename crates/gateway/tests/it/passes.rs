//! What passes unchanged, and what waits for a slow peer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use codecs::Opcode;
use futures::{SinkExt, StreamExt};
use tokio::time::{sleep, timeout};
use tokio_tungstenite::tungstenite::{
    Message,
    protocol::{CloseFrame, Role, frame::coding::CloseCode},
};

use crate::common::{Draw, TestGateway, handshake, head, patiently, relay, sent, upgraded};

/// Messages of every type, of which some are no Nostr.
fn messages(count: usize, seed: u64) -> Vec<Message> {
    let mut draw = Draw(seed);
    let message = |_| {
        let len = draw.below(600);
        match draw.below(8) {
            0 => Message::Binary(draw.bytes(len).into()),
            1 => Message::Ping(draw.bytes(len.min(125)).into()),
            2 => Message::text(format!("[\"EVENT\", \"sub\" ,{{\"kind\":{len}}} ]")),
            3 => Message::text(format!(" [\"LIMITS\",{{\"n\":{len}}}]\n")),
            4 => Message::text("ü\0\\\"".repeat(len / 8)),
            5 => Message::text(""),
            _ => Message::text(format!(r#"["EVENT","s",{}]"#, crate::common::event(1, &len.to_string()))),
        }
    };
    (0..count).map(message).collect()
}

#[tokio::test]
async fn a_json_client_with_a_compression_gets_and_sends_every_message_as_it_is() {
    const MESSAGES: usize = 1_000;
    let data = |seed| messages(MESSAGES, seed).into_iter().filter(|one| !one.is_ping());
    let relay = relay(move |stream| async move {
        let (mut socket, request) = upgraded(stream).await;
        assert!(!request.to_ascii_lowercase().contains("sec-websocket-extensions"), "{request}");
        assert!(!request.to_ascii_lowercase().contains("sec-websocket-protocol"), "{request}");
        for message in data(3) {
            socket.feed(message).await.unwrap();
        }
        socket.flush().await.unwrap();
        for message in data(4) {
            let heard = loop {
                match socket.next().await.unwrap().unwrap() {
                    Message::Ping(_) => {}
                    heard => break heard,
                }
            };
            assert!(heard == message);
        }
        let frame = CloseFrame { code: CloseCode::Library(4321), reason: "é, enough".into() };
        socket.close(Some(frame)).await.unwrap();
        while socket.next().await.is_some() {}
    })
    .await;
    let gateway = TestGateway::before(&relay, |config| {
        config.compression = vec!["deflate-shared".parse().unwrap(), "deflate".parse().unwrap()];
    })
    .await;
    for compression in ["deflate", "deflate-no-takeover"] {
        let mut client = gateway.client_that_offers("json", compression).await;
        assert!(client.agreement().extensions.is_some(), "{compression}");
        for message in data(3) {
            let heard = patiently(client.next()).await.unwrap().unwrap();
            let opcode = if message.is_text() { Opcode::Text } else { Opcode::Binary };
            assert_eq!((heard.opcode, heard.payload), (opcode, message.into_data()));
        }
        for message in data(4) {
            let opcode = if message.is_text() { Opcode::Text } else { Opcode::Binary };
            client.feed_message(wire::Message { opcode, payload: message.into_data() }).await.unwrap();
        }
        client.flush().await.unwrap();
        assert!(patiently(client.next()).await.unwrap().is_err());
        assert_eq!(client.peer_close(), Some((CloseCode::Library(4321), "é, enough")));
    }
}

#[tokio::test]
async fn a_slow_client_stops_the_reading_of_its_relay_and_loses_nothing() {
    const MESSAGES: usize = 160;
    // More than the sockets of three connections hold, and far less than all messages.
    const MOST_WAITING: usize = 48 << 20;
    let message = |n: usize| format!(r#"["NOTICE","{n} {}"]"#, "x".repeat(512 << 10));
    let written = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&written);
    let relay = relay(move |stream| {
        let counted = Arc::clone(&counted);
        async move {
            let (mut socket, _) = upgraded(stream).await;
            for n in 0..MESSAGES {
                let message = message(n);
                let len = message.len();
                if socket.send(Message::text(message)).await.is_err() {
                    return;
                }
                counted.fetch_add(len, Relaxed);
            }
            while socket.next().await.is_some() {}
        }
    })
    .await;
    let gateway = TestGateway::before(&relay, |_| {}).await;
    // Both are JSON without compression: the first is passed as bytes, the other message by message.
    for fields in ["", "Sec-WebSocket-Protocol: nostr.json\r\n"] {
        written.store(0, Relaxed);
        let mut stream = sent(&gateway.address, &handshake(fields)).await;
        let answer = head(&mut stream).await;
        assert_eq!(answer.contains("nostr.json"), !fields.is_empty(), "{answer}");
        let stuck = async {
            let mut before = 0;
            loop {
                sleep(Duration::from_millis(500)).await;
                match written.load(Relaxed) {
                    now if now == before && now > 0 => return now,
                    now => before = now,
                }
            }
        };
        let waiting = patiently(stuck).await;
        assert!(waiting < MOST_WAITING, "{fields:?}: {waiting} bytes wait");
        let mut socket =
            tokio_tungstenite::WebSocketStream::from_raw_socket(stream, Role::Client, None).await;
        for n in 0..MESSAGES {
            let heard = timeout(Duration::from_secs(20), socket.next()).await.unwrap().unwrap().unwrap();
            assert!(heard == Message::text(message(n)), "{n}");
        }
    }
}
