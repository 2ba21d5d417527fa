//! Whole sessions in every format and compression.

use std::borrow::Cow;

use codecs::{ClientMessage, Filter, Format, VerifyLevel};
use corpus::Corpus;
use futures::{SinkExt, StreamExt};
use relay_sim::Reencode;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use wire::Compression;

use crate::common::{
    Client, PATIENCE, TestRelay, compressions, delivery, event_json, kinds, note, ok, signed,
};

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
async fn a_relay_that_compresses_once_for_all_carries_a_whole_session_in_every_format() {
    for compression in ["deflate-shared:min_bytes=64", "zstd-shared", "zstd-dict"] {
        let shared: Compression = compression.parse().unwrap();
        for format in Format::all() {
            let relay = TestRelay::start(|config| config.compressions = vec![shared]).await;
            check_session(&relay, format, shared).await;
            relay.stop().await;
        }
    }
}

#[tokio::test]
async fn every_format_and_compression_carries_a_whole_session() {
    for format in Format::all() {
        for compression in compressions() {
            let relay = TestRelay::start(|config| config.reencode = Reencode::NeverIfCanonical).await;
            check_session(&relay, format, compression).await;
            relay.stop().await;
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

#[tokio::test]
async fn clients_of_every_format_see_the_same_events_in_the_same_order() {
    let mut events = Corpus::bundled().events;
    events.retain(|event| {
        Format::all().all(|format| format.spec().library.encode_event(event, &mut Vec::new()).is_ok())
    });
    let (stored, live) = events[..events.len().min(400)].split_at(200);
    let relay = TestRelay::start(|config| config.preload = stored.to_vec()).await;
    let mut clients = Vec::new();
    let mut answers = Vec::new();
    for format in Format::all() {
        for compression in compressions() {
            let mut client = relay.client(format, compression).await;
            client.request("all", vec![Filter::default()]).await;
            let mut heard = Vec::new();
            while heard.last().is_none_or(|message: &String| message != r#"["EOSE","all"]"#) {
                heard.push(client.hear().await.unwrap());
            }
            answers.push((format!("{format} {compression}"), heard));
            clients.push(client);
        }
    }
    assert!(answers[0].1.len() > stored.len() / 2, "most of the preloaded events are current");
    for (title, heard) in &answers {
        assert_eq!(heard, &answers[0].1, "{title}");
    }

    let mut publisher = relay.json_client().await;
    let mut accepted = Vec::new();
    for event in live {
        publisher.publish(event).await;
        if publisher.hear().await.unwrap() == ok(event) {
            accepted.push(delivery("all", event));
        }
    }
    assert!(accepted.len() > live.len() / 2, "most of the live events are current");
    for ((title, _), client) in answers.iter().zip(&mut clients) {
        for expected in &accepted {
            assert_eq!(&client.hear().await.unwrap(), expected, "{title}");
        }
    }
    let totals = relay.stop().await;
    assert_eq!((totals.unencodable, totals.deliveries_dropped), (0, 0));
    assert_eq!(totals.deliveries_live, (accepted.len() * clients.len()) as u64);
}

/// The answer to the AUTH that the relay greets with, by a client that calls it `url`.
async fn auth_answer(client: &mut Client, url: &str) -> codecs::Event<'static> {
    let greeting = client.hear().await.unwrap();
    let challenge = greeting.strip_prefix(r#"["AUTH",""#).unwrap().strip_suffix(r#""]"#).unwrap().to_owned();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let tags = vec![vec!["challenge".into(), challenge.into()], vec!["relay".into(), url.to_owned().into()]];
    signed(22_242, i64::try_from(now).unwrap(), tags, String::new())
}

#[tokio::test]
async fn auth_is_a_challenge_and_lets_authors_publish_protected_events() {
    let relay = TestRelay::start(|config| config.auth = true).await;
    let mut client = relay.json_client().await;
    let answer = auth_answer(&mut client, &relay.url).await;
    let protected = signed(1, 5, vec![vec!["-".into()]], String::new());
    client.publish(&protected).await;
    assert!(client.hear().await.unwrap().contains("auth-required: "));
    client.send(&ClientMessage::Auth(Cow::Borrowed(&answer))).await;
    client.expect(&ok(&answer)).await;
    client.publish(&protected).await;
    client.expect(&ok(&protected)).await;
    relay.stop().await;
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

/// 64 characters may be 256 bytes, more than the binary envelopes can say. A subscription id only
/// ever goes back in the format it came in.
#[tokio::test]
async fn a_subscription_id_longer_than_other_formats_hold_is_served_where_it_came() {
    let relay = TestRelay::start(|_| {}).await;
    let long = "\u{1f980}".repeat(64);
    assert!(long.len() > usize::from(u8::MAX));
    let mut json = relay.json_client().await;
    json.request(&long, kinds(&[1])).await;
    json.expect(&format!(r#"["EOSE","{long}"]"#)).await;
    let mut others = Vec::new();
    for format in Format::all() {
        let mut client = relay.client(format, Compression::None).await;
        client.request("a", kinds(&[1])).await;
        client.expect(r#"["EOSE","a"]"#).await;
        others.push(client);
    }
    let event = note(1, 1);
    let mut publisher = relay.client(Format::all().last().unwrap(), Compression::None).await;
    publisher.publish(&event).await;
    publisher.expect(&ok(&event)).await;
    json.expect(&delivery(&long, &event)).await;
    for client in &mut others {
        client.expect(&delivery("a", &event)).await;
    }
    json.send_bytes(format!(r#"["REQ","{long}",{{"colour":"red"}}]"#).into_bytes()).await;
    assert!(json.hear().await.unwrap().starts_with(&format!(r#"["CLOSED","{long}","unsupported: "#)));
    assert_eq!(relay.stop().await.sessions_panicked, 0);
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
