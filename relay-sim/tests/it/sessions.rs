//! Whole sessions in every format and compression.

use codecs::{ClientMessage, Filter, Format, VerifyLevel};
use futures::{SinkExt, StreamExt};
use relay_sim::Reencode;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use wire::Compression;

use crate::common::{PATIENCE, TestRelay, compressions, delivery, event_json, kinds, note, ok};

/// Publish, OK, stored events, EOSE, live events, COUNT, CLOSE.
async fn check_session(relay: &TestRelay, format: Format, compression: Compression) {
    let mut publisher = relay.client(format, compression).await;
    let mut reader = relay.client(format, compression).await;
    let stored: Vec<_> = (0..3).map(|n| note(n, 100 + i64::try_from(n).unwrap())).collect();
    for event in &stored {
        publisher.publish(event).await;
        publisher.expect(&ok(event)).await;
    }
    reader.request("stored first", kinds(&[1])).await;
    for event in stored.iter().rev() {
        reader.expect(&delivery("stored first", event)).await;
    }
    reader.expect(r#"["EOSE","stored first"]"#).await;

    let live = note(9, 50);
    publisher.publish(&live).await;
    publisher.expect(&ok(&live)).await;
    reader.expect(&delivery("stored first", &live)).await;

    reader.send(&ClientMessage::Count { subscription: "n".into(), filters: kinds(&[1]) }).await;
    reader.expect(r#"["COUNT","n",{"count":4}]"#).await;

    reader.send(&ClientMessage::Close { subscription: "stored first".into() }).await;
    publisher.publish(&note(10, 60)).await;
    publisher.expect(&ok(&note(10, 60))).await;
    reader.request("after", vec![Filter { limit: Some(0), ..Filter::default() }]).await;
    reader.expect(r#"["EOSE","after"]"#).await;

    let bad = codecs::Event { content: "altered".into(), ..note(11, 60) };
    publisher.publish(&bad).await;
    let id = codecs::hex::encode(&bad.id);
    publisher.expect(&format!(r#"["OK","{id}",false,"invalid: event id does not match"]"#)).await;
    let bad = codecs::Event { sig: [1; 64], ..note(12, 60) };
    publisher.publish(&bad).await;
    let id = codecs::hex::encode(&bad.id);
    publisher.expect(&format!(r#"["OK","{id}",false,"invalid: signature does not verify"]"#)).await;
}

#[tokio::test]
async fn every_format_and_compression_carries_a_whole_session() {
    for format in Format::all() {
        // A relay that offers both kinds of deflate grants the other one.
        let shared: Compression = "deflate-shared:min_bytes=64".parse().unwrap();
        for compression in compressions().chain([shared]) {
            let relay = TestRelay::start(|config| {
                (config.reencode, config.compressions) = (Reencode::NeverIfCanonical, vec![compression]);
            })
            .await;
            check_session(&relay, format, compression).await;
            relay.stop().await;
            if compression == shared {
                continue;
            }
            let relay = TestRelay::start(|_| {}).await;
            check_session(&relay, format, compression).await;
            let totals = relay.stop().await;
            assert_eq!(totals.connections, 2);
            assert_eq!((totals.events_received, totals.events_accepted, totals.events_rejected), (7, 5, 2));
            // The one with another id costs no check of its signature.
            assert_eq!((totals.keys_parsed, totals.keys_known), (1, 5));
            assert_eq!((totals.deliveries_stored, totals.deliveries_live), (3, 1));
            assert_eq!((totals.requests, totals.counts, totals.events_stored), (2, 1, 5));
            assert_eq!((totals.malformed, totals.slow_consumers, totals.sessions_panicked), (0, 0, 0));
            // Each way: 7 OK and 1 COUNT, 2 EOSE, 4 EVENT; 7 EVENT, 2 REQ, 1 COUNT, 1 CLOSE.
            assert_eq!((totals.traffic.sent.messages, totals.traffic.received.messages), (14, 11));
            assert!(totals.traffic.sent.wire_bytes > 0 && totals.traffic.handshake_received_bytes > 0);
        }
    }
}

/// Readers share what was compressed of an event. One leaves in the middle of its answer, and the
/// author deletes every other event while the answer of another waits for its reader.
#[tokio::test]
async fn shared_bodies_outlive_readers_who_leave_and_events_that_are_deleted() {
    const STORED: usize = 800;
    for name in ["deflate-shared", "zstd-shared", "zstd-dict"] {
        let compression: Compression = name.parse().unwrap();
        // Hardly compressible, so that the sockets cannot hold it all.
        let number = |n: u32| format!("{:08x}", n.wrapping_mul(2_654_435_761));
        let content = |n: u32| (1_000 * n..1_000 * (n + 1)).map(number).collect::<String>();
        let events: Vec<_> = (0..STORED)
            .map(|n| codecs::Event { content: content(n.try_into().unwrap()).into(), ..unsigned(n, 1_000) })
            .collect();
        let relay = TestRelay::start(|config| {
            (config.verify, config.default_limit) = (VerifyLevel::None, 2 * STORED);
            (config.compressions, config.preload) = (vec![compression], events.clone());
        })
        .await;
        let mut leaver = relay.client(Format::JSON, compression).await;
        let mut slow = relay.client(Format::JSON, compression).await;
        for reader in [&mut leaver, &mut slow] {
            reader.request("all", kinds(&[1])).await;
            assert!(reader.hear().await.unwrap().starts_with(r#"["EVENT","all""#));
        }
        drop(leaver);
        let deleted =
            events.iter().step_by(2).map(|event| vec!["e".into(), codecs::hex::encode(&event.id).into()]);
        let deletion = codecs::Event { kind: 5, tags: deleted.collect(), ..unsigned(STORED, 1_001) };
        let mut publisher = relay.client(Format::JSON, compression).await;
        publisher.publish(&deletion).await;
        publisher.expect(&ok(&deletion)).await;
        // The snapshot of the request, whole; `hear` has taken the first.
        let newest_first = |events: &mut dyn Iterator<Item = &codecs::Event<'static>>, name: &str| {
            events.map(|event| delivery(name, event)).collect::<Vec<_>>()
        };
        for expected in newest_first(&mut events.iter().skip(1), "all") {
            assert!(slow.hear().await.unwrap() == expected, "{name}");
        }
        slow.expect(r#"["EOSE","all"]"#).await;
        // The rest, under another subscription.
        slow.request("another", kinds(&[1])).await;
        for expected in newest_first(&mut events.iter().skip(1).step_by(2), "another") {
            assert!(slow.hear().await.unwrap() == expected, "{name}");
        }
        slow.expect(r#"["EOSE","another"]"#).await;
        drop((slow, publisher));
        let totals = relay.stop().await;
        assert_eq!((totals.sessions_panicked, totals.slow_consumers), (0, 0));
    }
}

/// An event that only a relay without verification takes; cheap to make in numbers.
fn unsigned(n: usize, created_at: i64) -> codecs::Event<'static> {
    let mut id = [0; 32];
    id[..8].copy_from_slice(&n.to_be_bytes());
    codecs::Event {
        id,
        pubkey: [7; 32],
        created_at,
        kind: 1,
        tags: vec![],
        content: "x".repeat(500).into(),
        sig: [0; 64],
    }
}

/// Each publishes more than all buffers hold before it reads anything; each gets what the other
/// published.
#[tokio::test]
async fn two_peers_that_only_feed_each_other_do_not_stall() {
    const EVENTS: usize = 120;
    let relay = TestRelay::start(|config| config.verify = VerifyLevel::None).await;
    let event = codecs::Event { content: "x".repeat(100 << 10).into(), kind: 20_001, ..note(1, 5) };
    let frame = tokio_tungstenite::tungstenite::Message::text(format!(r#"["EVENT",{}]"#, event_json(&event)));
    let peer = async || {
        let mut peer = tokio_tungstenite::connect_async(relay.url.as_str()).await.unwrap().0;
        peer.send(r#"["REQ","a",{"kinds":[20001]}]"#.into()).await.unwrap();
        peer.next().await.unwrap().unwrap();
        peer
    };
    let feed_then_read = async |mut peer: WebSocketStream<_>| {
        for _ in 0..EVENTS {
            peer.send(frame.clone()).await.unwrap();
        }
        // The events of both, and the OKs.
        for _ in 0..3 * EVENTS {
            assert!(peer.next().await.unwrap().unwrap().is_text());
        }
    };
    let (one, other) = (peer().await, peer().await);
    let both = async { tokio::join!(feed_then_read(one), feed_then_read(other)) };
    timeout(3 * PATIENCE, both).await.expect("nobody waits for the other");
    assert_eq!(relay.stop().await.slow_consumers, 0);
}
