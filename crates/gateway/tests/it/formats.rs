//! Events and messages in every format and compression.

use std::borrow::Cow;

use codecs::{ClientMessage, Event, Filter, Format, Implementation, Opcode, RelayMessage};
use corpus::Corpus;
use futures::{SinkExt, StreamExt};
use tokio_tungstenite::tungstenite::Message;
use wire::{CloseCode, Connection};

use crate::common::{
    TestGateway, ends_with, handshake, head, http, patiently, relay, relay_sim, say, sent, upgraded,
};

/// A client of a format, which reads JSON where the format does not hold a message.
struct Client {
    conn: Connection,
    format: Format,
    json_texts: usize,
}

impl Client {
    async fn send(&mut self, message: &ClientMessage<'_>) {
        let mut bytes = Vec::new();
        self.format.codec(Implementation::Library).unwrap().encode_client(message, &mut bytes).unwrap();
        say(&mut self.conn, bytes).await;
    }

    async fn hear(&mut self) -> RelayMessage<'static> {
        let message = patiently(self.conn.next()).await.unwrap().unwrap();
        let codec = self.format.codec(Implementation::Library).unwrap();
        if let Ok(read) = codec.decode_relay(&message.payload) {
            return read.into_owned();
        }
        assert!(message.payload.starts_with(b"["), "{}", self.format);
        let is_layered = self.conn.agreement().token.as_ref().unwrap().contains('+');
        assert!(is_layered || message.opcode == Opcode::Text, "{}", self.format);
        self.json_texts += 1;
        Format::JSON.spec().library.decode_relay(&message.payload).unwrap().into_owned()
    }
}

/// Bundled events of many kinds that a relay keeps.
fn events(count: usize) -> Vec<Event<'static>> {
    let mut events = Corpus::bundled().events;
    events.retain(|event| {
        event.class() == codecs::KindClass::Regular && ![4, 5, 13, 14, 1059].contains(&event.kind)
    });
    events.truncate(count);
    events
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_format_and_compression_gives_back_the_relays_events() {
    let events = events(60);
    let relay = relay_sim(|config| {
        config.preload = events.clone();
        config.keep_expired = true;
    })
    .await;
    let gateway = TestGateway::before(&relay, |config| {
        let names = ["deflate-shared", "zstd-shared", "zstd-dict", "zstd", "zstd-stream"];
        config.compression = names.map(|name| name.parse().unwrap()).into();
    })
    .await;
    let mut expected: Vec<_> = events.iter().map(|event| event.id).collect();
    expected.sort_unstable();
    let mut json_texts = 0;
    for (n, format) in Format::all().enumerate() {
        for compression in ["none", "deflate", "zstd-shared", "zstd-dict", "zstd", "zstd-stream"] {
            let conn = gateway.client_that_offers(format.name(), compression).await;
            assert_eq!(conn.agreement().format, format);
            assert_eq!(conn.agreement().compression.name() == "none", compression == "none", "{format}");
            let mut client = Client { conn, format, json_texts: 0 };
            let filters = vec![Filter { limit: Some(500), ..Filter::default() }];
            client.send(&ClientMessage::Req { subscription: "täg".into(), filters }).await;
            let mut found = Vec::new();
            loop {
                match client.hear().await {
                    RelayMessage::Event { subscription, event } => {
                        assert_eq!(subscription, "täg");
                        let original = events.iter().find(|one| one.id == event.id);
                        // Others were published below.
                        if let Some(original) = original {
                            assert_eq!(*original, *event, "{format} {compression}");
                            found.push(event.id);
                        }
                    }
                    RelayMessage::Eose { .. } => break,
                    other => panic!("{format} {compression}: {other:?}"),
                }
            }
            found.sort_unstable();
            assert_eq!(found, expected, "{format} {compression}");
            json_texts += client.json_texts;
            if compression == "zstd-dict" {
                let mut published = events[n].clone();
                published.id[0] ^= 0x55;
                published.content = Cow::Borrowed("from a client");
                published.tags.clear();
                let id = published.id;
                client.send(&ClientMessage::Event(Cow::Owned(published.clone()))).await;
                let answers = [client.hear().await, client.hear().await];
                assert!(
                    answers.contains(&RelayMessage::Ok { id, accepted: true, text: "".into() }),
                    "{answers:?}"
                );
                let event = Cow::Owned(published);
                assert!(answers.contains(&RelayMessage::Event { subscription: "täg".into(), event }));
            }
        }
    }
    assert!(json_texts > 0, "tlv and others do not hold every event");
    assert_eq!(gateway.metric("json_texts_total").await, json_texts as u64);
    assert!(gateway.metric("cache_hits_total").await > 30 * gateway.metric("cache_misses_total").await);
}

#[tokio::test]
async fn what_a_format_does_not_hold_passes_as_json_text_both_ways() {
    let relay = relay(|stream| async move {
        let (mut socket, _) = upgraded(stream).await;
        for text in [r#"["LIMITS",{"a":1}]"#, r#"["NOTICE","a"]"#] {
            socket.send(Message::text(text)).await.unwrap();
        }
        let mut heard = Vec::new();
        while let Some(Ok(message)) = socket.next().await {
            if let Message::Text(text) = message {
                heard.push(text.to_string());
                socket.send(Message::text(format!(r#"["NOTICE",{:?}]"#, heard.join(" ")))).await.unwrap();
            }
        }
    })
    .await;
    let gateway = TestGateway::before(&relay, |_| {}).await;
    for (compression, opcode) in [("none", Opcode::Text), ("zstd-dict", Opcode::Binary)] {
        let mut client = gateway.client("dannypack", compression).await;
        let message = patiently(client.next()).await.unwrap().unwrap();
        assert_eq!((message.opcode, &message.payload[..]), (opcode, &br#"["LIMITS",{"a":1}]"#[..]));
        let codec = Format::all().find(|one| one.name() == "dannypack").unwrap().spec().library;
        let message = patiently(client.next()).await.unwrap().unwrap();
        let notice = codec.decode_relay(&message.payload).unwrap();
        assert_eq!(notice, RelayMessage::Notice { text: "a".into() });
        let text = wire::Message { opcode: Opcode::Text, payload: r#"["SAY",1]"#.into() };
        client.feed_message(text).await.unwrap();
        client.flush().await.unwrap();
        let message = patiently(client.next()).await.unwrap().unwrap();
        let notice = codec.decode_relay(&message.payload).unwrap();
        assert_eq!(notice, RelayMessage::Notice { text: r#"["SAY",1]"#.into() });
    }
    assert_eq!(gateway.metric("json_texts_total").await, 2);

    let mut client = gateway.client("dannypack", "none").await;
    for _ in 0..2 {
        patiently(client.next()).await.unwrap().unwrap();
    }
    say(&mut client, &b"\x01 is no event"[..]).await;
    ends_with(&mut client, CloseCode::Invalid.into()).await;
}

#[tokio::test]
async fn a_dictionary_is_had_by_its_id_and_an_unknown_one_means_json() {
    let relay = relay(|stream| async move {
        let (mut socket, request) = upgraded(stream).await;
        let offer = crate::common::field(&request, "sec-websocket-protocol").unwrap_or("none");
        socket.send(Message::text(offer)).await.unwrap();
        while socket.next().await.is_some() {}
    })
    .await;
    let gateway = TestGateway::before(&relay, |_| {}).await;
    for (offered, passed) in [
        ("nostr.json+zstd-dict2-deadbeef", "none"),
        ("nostr.json+zstd-dict2-deadbeef, chat, nostr.xml.v9", "chat"),
    ] {
        let request = handshake(&format!("Sec-WebSocket-Protocol: {offered}\r\n"));
        let mut stream = sent(&gateway.address, &request).await;
        assert!(head(&mut stream).await.starts_with("HTTP/1.1 101"));
        let role = tokio_tungstenite::tungstenite::protocol::Role::Client;
        let mut socket = tokio_tungstenite::WebSocketStream::from_raw_socket(stream, role, None).await;
        assert_eq!(patiently(socket.next()).await.unwrap().unwrap(), Message::text(passed));
    }
    let bundled = wire::Dictionary::bundled("dannypack").unwrap();
    let path = format!("/.well-known/nostr/dictionary/{}", bundled.id());
    let mut stream = sent(&gateway.address, &format!("GET {path} HTTP/1.1\r\n\r\n")).await;
    let answer = head(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("immutable"), "{answer}");
    let mut body = Vec::new();
    patiently(tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut body)).await.unwrap();
    assert!(body == bundled.bytes());
    for id in ["deadbeef", "", "../x"] {
        let request = format!("GET /.well-known/nostr/dictionary/{id} HTTP/1.1\r\n\r\n");
        assert!(http(&gateway.address, &request).await.starts_with("HTTP/1.1 404"), "{id}");
    }
}
