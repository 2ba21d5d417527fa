//! What is kept for other clients, and what is not.

use futures::{SinkExt, StreamExt};
use tokio_tungstenite::tungstenite::Message;

use crate::common::{TestGateway, event, patiently, relay, say, upgraded};

#[tokio::test]
async fn private_events_and_clients_that_proved_who_they_are_leave_nothing_behind() {
    let relay = relay(|stream| async move {
        let (mut socket, _) = upgraded(stream).await;
        // Some relays end messages with a line feed.
        let send =
            |kind, content: &str| Message::text(format!("[\"EVENT\",\"s\",{}]\n", event(kind, content)));
        for message in [
            Message::text(r#"["AUTH","challenge"]"#),
            send(1, "public"),
            send(4, "private"),
            send(13, "private"),
            send(14, "private"),
            send(1059, "private"),
            Message::text(r#"["EOSE","s"]"#),
        ] {
            socket.send(message).await.unwrap();
        }
        while let Some(Ok(message)) = socket.next().await {
            if message.is_text() {
                socket.send(send(1, "for one who proved it")).await.unwrap();
            }
        }
    })
    .await;
    let gateway = TestGateway::before(&relay, |_| {}).await;
    let mut seen = 0;
    for (format, compression) in [
        ("json", "deflate-shared"),
        ("json", "zstd-shared"),
        ("json", "zstd-dict"),
        ("dannypack", "zstd-dict"),
    ] {
        let mut client = gateway.client_that_offers(format, compression).await;
        assert_ne!(client.agreement().compression, wire::Compression::None);
        for n in 0..7 {
            let heard = patiently(client.next()).await.unwrap().unwrap();
            assert!(n != 1 || format != "json" || heard.payload.ends_with(b"]\n"), "{compression}");
        }
        seen += 1;
        assert_eq!(gateway.metric("cache_events").await, 1, "{format} {compression}");
        assert_eq!(gateway.metric("cache_misses_total").await, 1);
        assert_eq!(gateway.metric("cache_hits_total").await, seen - 1);

        let auth = format!(r#"["AUTH",{}]"#, event(22_242, "proof"));
        let format: codecs::Format = format.parse().unwrap();
        let message = codecs::Format::JSON.spec().library.decode_client(auth.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        format.spec().library.encode_client(&message, &mut bytes).unwrap();
        say(&mut client, bytes).await;
        let heard = patiently(client.next()).await.unwrap().unwrap();
        let codecs::RelayMessage::Event { event, .. } =
            format.spec().library.decode_relay(&heard.payload).unwrap()
        else {
            panic!("an event")
        };
        assert!(event.content.starts_with("for one who proved it"));
        assert_eq!(gateway.metric("cache_events").await, 1, "{format} {compression}");
    }
}
