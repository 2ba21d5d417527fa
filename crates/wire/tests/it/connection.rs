//! Both ends against each other, over real sockets.

use std::time::Duration;

use tokio::net::TcpListener;
use wire::{CloseCode, Compression, Shared, WireLimits};

use crate::{
    common::{config, offer, pair, receive, sample, send, support},
    scripted::{CLOSE, FIN, PING, Scripted, TEXT, patiently, upgrade_answer},
};

#[tokio::test]
async fn messages_of_every_size_arrive_unaltered_under_every_compression_in_both_directions() {
    for name in Compression::NAMES {
        let (mut client, mut relay) = pair(&offer(name), config(support(&[name]))).await;
        assert_eq!(client.agreement().compression.name(), name);
        assert_eq!(relay.agreement(), client.agreement());
        for (seed, bytes) in
            [0, 1, 125, 126, 700, 255, 65_535, 65_536, 300_000, 0, 0, 700].into_iter().enumerate()
        {
            let payload = sample(seed, bytes);
            let (sent, received) = tokio::join!(
                async {
                    send(&mut client, payload.clone()).await;
                    receive(&mut client).await
                },
                async {
                    let received = receive(&mut relay).await;
                    // A slice is a message like others.
                    relay.feed_slice(&received).await.unwrap();
                    relay.flush().await.unwrap();
                    received
                }
            );
            assert!(sent == payload && received == payload, "{name}, {bytes} bytes");
        }
        let (sent, received) = (client.traffic().sent, relay.traffic().received);
        assert_eq!(sent, received, "{name}: counts at both ends of the socket");
        assert_eq!(relay.traffic().sent, client.traffic().received, "{name}");
        tokio::join!(client.close(CloseCode::Normal, ""), async {
            assert!(relay.next().await.is_none(), "{name}: an orderly close is no error");
        });
    }
}

#[tokio::test]
async fn what_a_reader_leaves_unread_costs_no_later_message() {
    for name in Compression::NAMES {
        let (mut client, mut relay) = pair(&offer(name), config(support(&[name]))).await;
        let keeps_context = ["deflate", "zstd-stream"].contains(&name);
        // Compressible, and larger than the limit also when it is compressed.
        let long = |round: usize| [sample(round, 400), vec![b'x'; 4_000]].concat();
        for round in 0..9 {
            let (is_long, reads) = (round % 3 > 0, round % 2 == 0);
            let payload = if is_long { long(round) } else { sample(round, 60) };
            send(&mut relay, payload.clone()).await;
            client.leave_unread((!reads).then_some(128));
            let message = client.next().await.unwrap().unwrap();
            assert_eq!(client.is_unread(), is_long && !reads, "{name} {round}");
            let stays = client.is_unread() && name != "none" && !keeps_context;
            assert_eq!(message.payload != payload, stays, "{name} {round}");
            assert!(!stays || message.payload.len() < payload.len(), "{name} {round}");
        }
        let received = client.traffic().received;
        assert_eq!(received.messages, 9, "{name}");
        assert_eq!(received.wire_bytes, relay.traffic().sent.wire_bytes, "{name}");
    }
}

/// A compression of their own would make an OK little smaller and an EOSE larger.
#[tokio::test]
async fn what_is_smaller_than_any_event_goes_as_it_is_where_events_are_compressed_once() {
    let ok = format!(r#"["OK","{}",true,""]"#, "5c83da77af1dec6d7289834998ad7aaf".repeat(2));
    for (name, layer_bytes) in [("deflate-shared", 0), ("zstd-shared", 1), ("zstd-dict", 1)] {
        for payload in [ok.as_str(), r#"["EOSE","sub:1"]"#, ""] {
            let (mut client, mut relay) = pair(&offer(name), config(support(&[name]))).await;
            send(&mut relay, payload.to_owned()).await;
            assert_eq!(receive(&mut client).await, payload);
            let sent = relay.traffic().sent.wire_bytes;
            assert_eq!(sent, 2 + layer_bytes + payload.len() as u64, "{name} {payload}");
        }
    }
}

#[tokio::test]
async fn a_client_compresses_from_its_own_limit_on_and_the_relay_reads_both() {
    for (name, uploads_smaller) in [
        ("deflate", true),
        ("deflate-shared", true),
        ("deflate-shared:upload_min_bytes=never", false),
        ("zstd-shared", true),
        ("zstd-dict", true),
        ("zstd-dict:upload_min_bytes=never", false),
    ] {
        let (mut client, mut relay) = pair(&offer(name), config(support(&[name]))).await;
        for _ in 0..2 {
            send(&mut client, sample(3, 5_000)).await;
            assert!(receive(&mut relay).await == sample(3, 5_000), "{name}");
            send(&mut relay, sample(4, 5_000)).await;
            assert!(receive(&mut client).await == sample(4, 5_000), "{name}");
        }
        let [up, down] = [&client, &relay].map(|end| end.traffic().sent);
        assert_eq!(up.wire_bytes < up.payload_bytes, uploads_smaller, "{name}: {up:?}");
        assert!(down.wire_bytes < down.payload_bytes, "{name}: {down:?}");
    }
}

#[tokio::test]
async fn what_subscriptions_have_in_common_is_sent_to_each_under_its_own_prefix() {
    for name in Compression::NAMES {
        let shared = Shared::default();
        let event = sample(7, 900);
        let mut wire_bytes = Vec::new();
        for subscription in ["a", "another", &"s".repeat(64)] {
            let (mut client, mut relay) = pair(&offer(name), config(support(&[name]))).await;
            // Between two spliced messages an ordinary one, as an EOSE would be.
            for round in 0..2 {
                let payload = [subscription.as_bytes(), &event].concat();
                let (front, end) = event.split_at(round * 450);
                relay.feed_shared(subscription.as_bytes(), [front, end], &shared).await.unwrap();
                send(&mut relay, sample(round, 300)).await;
                assert!(receive(&mut client).await == payload, "{name} {subscription}");
                assert!(receive(&mut client).await == sample(round, 300), "{name} {subscription}");
            }
            wire_bytes.push(relay.traffic().sent.wire_bytes);
        }
        if ["deflate-shared", "zstd-shared", "zstd-dict"].contains(&name) {
            assert!(shared.held_bytes() > 0);
            assert!(wire_bytes.iter().all(|&bytes| bytes < 2 * 1200), "{wire_bytes:?}");
        } else {
            assert_eq!(shared.held_bytes(), 0, "{name}");
        }
    }
}

/// The words of a peer that closes and resets at once wait in the buffer of the other end, which
/// finds out when it writes.
#[tokio::test]
async fn what_a_peer_said_before_it_reset_the_connection_is_read_after_a_write_that_failed() {
    for writes in [0, 3] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}", listener.local_addr().unwrap());
        let relay = async {
            let mut relay = Scripted::server(listener.accept().await.unwrap().0);
            let head = relay.read_head().await;
            relay.write(upgrade_answer(&head, "").as_bytes()).await;
            relay.frame(FIN | PING, b"").await;
            relay.frame(FIN | TEXT, b"a last event").await;
            relay.frame(FIN | CLOSE, &[&1013_u16.to_be_bytes()[..], b"slow consumer"].concat()).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
            relay.stream.set_zero_linger().unwrap();
        };
        let offer = offer("none");
        let limits = WireLimits::default();
        let (client, ()) = tokio::join!(wire::connect(&url, &offer, &limits), relay);
        let mut client = client.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        for _ in 0..writes {
            client.feed("nobody reads this".into()).await.unwrap();
            client.flush().await.unwrap();
        }
        let message = patiently(client.next()).await.unwrap().unwrap();
        assert_eq!(message.payload, "a last event");
        let error = patiently(client.next()).await.unwrap().unwrap_err().to_string();
        assert_eq!(error, "closed with 1013: slow consumer", "after {writes} writes");
        assert!(client.next().await.is_none());
    }
}
