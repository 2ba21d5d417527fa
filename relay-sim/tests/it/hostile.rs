//! Peers that break rules: each gets the right answer, and the next client is served.

use std::time::Duration;

use codecs::{ClientMessage, Filter, Format, Opcode, VerifyLevel};
use futures::StreamExt;
use relay_sim::Config;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::timeout,
};
use tokio_tungstenite::{MaybeTlsStream, client_async, tungstenite::Message};
use wire::{Compression, Endpoint, Offer, WireLimits};

use crate::common::{PATIENCE, Socket, TestRelay, compressions, expect, kinds, note, ok, say};

/// Reads until the relay closes: the texts, then the close code.
async fn hear_close(socket: &mut Socket) -> (Vec<String>, Option<u16>) {
    let mut texts = Vec::new();
    while let Some(message) = timeout(PATIENCE, socket.next()).await.expect("an answer in time") {
        match message {
            Ok(Message::Close(frame)) => return (texts, frame.map(|frame| frame.code.into())),
            Ok(message) => texts.push(message.into_text().unwrap_or_default().to_string()),
            Err(_) => break,
        }
    }
    (texts, None)
}

async fn check_served(relay: &TestRelay) {
    let mut client = relay.json_client().await;
    client.publish(&note(1, 1)).await;
    assert!(client.hear().await.unwrap().starts_with("[\"OK\""));
}

#[tokio::test]
async fn undecodable_messages_get_a_notice_in_json_and_1007_in_binary_formats() {
    let relay = TestRelay::start(|_| {}).await;
    for format in Format::all() {
        for compression in compressions() {
            let mut client = relay.client(format, compression).await;
            let close = ClientMessage::Close { subscription: "abc".into() };
            let mut cut = Vec::new();
            format.spec().library.encode_client(&close, &mut cut).unwrap();
            cut.pop();
            client.send_bytes(cut).await;
            if format.spec().opcode == Opcode::Text {
                assert!(client.hear().await.unwrap().starts_with("[\"NOTICE\",\"invalid: "));
                client.request("a", kinds(&[7])).await;
                client.expect(r#"["EOSE","a"]"#).await;
            } else {
                assert_eq!(client.expect_close().await, Some(1007), "{format} {compression}");
            }
            check_served(&relay).await;
        }
    }
    let totals = relay.stop().await;
    assert_eq!(totals.malformed, (Format::all().len() * compressions().count()) as u64);
    assert_eq!(totals.sessions_panicked, 0);
}

/// Each limit by itself, one past it, and what a frame is large enough for; the connection goes on.
#[tokio::test]
async fn requests_beyond_a_limit_are_closed_by_name_in_every_format() {
    let relay = TestRelay::start(|_| {}).await;
    let many = |count| vec![Filter { limit: Some(1), ..Filter::default() }; count];
    let kind = |count| vec![Filter { kinds: Some(vec![7; count]), ..Filter::default() }];
    let (filters, entries) = ("a request has 1 to 200 filters", "a filter list has at most 2047 entries");
    let cases =
        [(many(201), filters), (many(4_096), filters), (kind(2_048), entries), (kind(50_000), entries)];
    for format in Format::all() {
        let mut client = relay.client(format, Compression::None).await;
        for (filters, text) in &cases {
            client.request("a", kinds(&[7])).await;
            client.expect(r#"["EOSE","a"]"#).await;
            client.request("a", filters.clone()).await;
            client.expect(&format!(r#"["CLOSED","a","invalid: {text}"]"#)).await;
            let filters = filters.clone();
            client.send(&ClientMessage::Count { subscription: "c".into(), filters }).await;
            client.expect(&format!(r#"["CLOSED","c","invalid: {text}"]"#)).await;
        }
        let filter = kind(2_048).remove(0);
        client
            .send(&ClientMessage::NegOpen { subscription: "n".into(), filter, message: vec![0x61].into() })
            .await;
        client.expect(&format!(r#"["NEG-ERR","n","invalid: {entries}"]"#)).await;
        let long = "x".repeat(64);
        client.request(&long, kinds(&[7])).await;
        client.expect(&format!(r#"["EOSE","{long}"]"#)).await;
        client.request(&format!("{long}x"), kinds(&[7])).await;
        let text = "invalid: a subscription id has 1 to 64 characters";
        client.expect(&format!(r#"["CLOSED","{long}","{text}"]"#)).await;
    }
    let totals = relay.stop().await;
    assert_eq!((totals.malformed, totals.sessions_panicked), (0, 0));
    assert_eq!(totals.requests_refused, (9 * Format::all().len()) as u64);
    assert_eq!(totals.reconciliations_refused, Format::all().len() as u64);
}

/// A socket that the kernel keeps little for.
async fn with_a_small_buffer(relay: &TestRelay) -> Socket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 << 10).unwrap();
    let stream = socket.connect(relay.address.parse().unwrap()).await.unwrap();
    client_async(relay.url.as_str(), MaybeTlsStream::Plain(stream)).await.unwrap().0
}

/// A subscriber that took nothing of more events than its outbox and any send buffer hold, and how
/// many these were. A quick one beside it had each.
async fn slow_consumer(relay: &TestRelay) -> (Socket, usize) {
    let mut slow = with_a_small_buffer(relay).await;
    say(&mut slow, r#"["REQ","a",{"kinds":[20001]}]"#).await;
    expect(&mut slow, r#"["EOSE","a"]"#).await;
    let mut quick = relay.json_client().await;
    quick.request("a", kinds(&[20_001])).await;
    quick.expect(r#"["EOSE","a"]"#).await;

    // Ephemeral, so the same event is new every time.
    const EVENTS: usize = 60;
    let event = codecs::Event { content: "x".repeat(100 << 10).into(), kind: 20_001, ..note(1, 5) };
    let mut publisher = relay.json_client().await;
    for n in 0..EVENTS {
        publisher.publish(&event).await;
        publisher.expect(&ok(&event)).await;
        let message = timeout(PATIENCE, quick.conn.next()).await.expect("the quick one is served");
        assert!(message.unwrap().unwrap().payload.starts_with(b"[\"EVENT\""), "event {n}");
    }
    (slow, EVENTS)
}

fn small_outbox(config: &mut Config) {
    config.verify = VerifyLevel::None;
    config.outbox_bytes = 1 << 20;
}

#[tokio::test]
async fn a_slow_consumer_is_closed_with_1013_and_nobody_else_notices() {
    let relay = TestRelay::start(small_outbox).await;
    let (mut slow, events) = slow_consumer(&relay).await;
    // It reads again in time to learn why it was closed, long after an orderly peer answers.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let (texts, code) = hear_close(&mut slow).await;
    assert_eq!(code, Some(1013));
    assert!(texts.len() < events);
    let totals = relay.stop().await;
    assert_eq!(totals.slow_consumers, 1);
    assert!(totals.deliveries_dropped > 0);
}

#[tokio::test]
async fn a_relay_that_stops_does_not_wait_for_a_slow_consumer() {
    let hour = Duration::from_secs(3_600);
    let relay = TestRelay::start(|config| {
        small_outbox(config);
        config.stop_timeout = hour;
    })
    .await;
    let (mut slow, _) = slow_consumer(&relay).await;
    let totals = timeout(Duration::from_secs(5), relay.stop()).await.expect("before its time is over");
    assert_eq!(totals.slow_consumers, 1);
    assert!(totals.sessions_left > 0, "it was still there");
    assert!(totals.deliveries_dropped > 0);
    assert_eq!(hear_close(&mut slow).await.1, None, "it has taken nothing, and so hears nothing more");
}

/// Each frame is a sign of life and none has a byte of payload: they count all the same.
#[tokio::test]
async fn a_peer_that_reads_nothing_and_sends_empty_messages_is_closed() {
    let relay = TestRelay::start(|config| config.outbox_bytes = 64 << 10).await;
    let mut peer = with_a_small_buffer(&relay).await;
    // Text without a payload, masked with zeros. Answers fill the socket first, then nothing is
    // read any more.
    let frames = [0x81, 0x80, 0, 0, 0, 0].repeat(10_000);
    // 48 MB: more than the kernel keeps for a relay that does not read.
    const MOST: usize = 800;
    let mut written = 0;
    while written < MOST {
        let write = timeout(PATIENCE, peer.get_mut().write_all(&frames)).await;
        if write.expect("the relay reads on or hangs up").is_err() {
            break;
        }
        written += 1;
    }
    assert!(written < MOST, "the relay took {} frames", MOST * 10_000);
    check_served(&relay).await;
    assert_eq!(relay.stop().await.slow_consumers, 1);
}

#[tokio::test]
async fn a_peer_without_a_sign_of_life_is_closed_and_one_that_answers_pings_stays() {
    let relay = TestRelay::start(|config| config.ping_interval = Duration::from_millis(200)).await;
    let mut quiet = relay.json_client().await;
    let silent = relay.socket("nostr.json").await;
    // Reading answers pings; `silent` is not read.
    assert!(timeout(Duration::from_secs(1), quiet.conn.next()).await.is_err(), "nothing but pings");
    quiet.request("a", kinds(&[1])).await;
    quiet.expect(r#"["EOSE","a"]"#).await;
    drop(silent);
    let totals = relay.stop().await;
    assert_eq!(totals.silent_peers, 1);
}

#[tokio::test]
async fn a_relay_that_stops_closes_with_1001_after_what_it_owes() {
    let relay = TestRelay::start(|_| {}).await;
    let mut socket = relay.socket("nostr.json").await;
    say(&mut socket, r#"["REQ","a",{"limit":0}]"#).await;
    expect(&mut socket, r#"["EOSE","a"]"#).await;
    let mut publisher = relay.json_client().await;
    publisher.publish(&note(1, 1)).await;
    publisher.expect(&ok(&note(1, 1))).await;
    let heard = tokio::spawn(async move { hear_close(&mut socket).await });
    let totals = relay.stop().await;
    let (texts, code) = heard.await.unwrap();
    assert_eq!((texts.len(), code), (1, Some(1001)));
    assert_eq!(totals.deliveries_live, 1);
}

#[tokio::test]
async fn connections_over_the_limit_are_turned_away_and_room_is_found_again() {
    let relay = TestRelay::start(|config| config.max_connections = Some(1)).await;
    let first = relay.json_client().await;
    let mut refused = TcpStream::connect(&relay.address).await.unwrap();
    let read = timeout(PATIENCE, refused.read(&mut [0; 16])).await.expect("the relay hangs up");
    assert_eq!(read.unwrap_or(0), 0);
    drop(first);
    tokio::time::sleep(Duration::from_millis(100)).await;
    check_served(&relay).await;
    assert_eq!(relay.stop().await.connections_refused, 1);
}

#[tokio::test]
async fn a_client_of_a_user_agent_that_fails_with_compression_is_spoken_to_without() {
    let texts = ["CFNetwork", "Old/1"].map(str::to_owned).to_vec();
    let relay = TestRelay::start(|config| config.no_compression_for = texts).await;
    for (user_agent, compressed) in [
        ("Client/7 CFNetwork/1490.0.4 Darwin/23.2.0", false),
        ("Old/1.9", false),
        ("cfnetwork", true),
        ("Client/7 Old", true),
    ] {
        for compression in ["deflate", "deflate-no-takeover", "zstd-dict"] {
            let headers = vec![format!("User-Agent={user_agent}").parse().unwrap()];
            let endpoint = Endpoint::new(relay.url.parse().unwrap(), None).unwrap();
            let offer = Offer {
                batched: false,
                formats: vec![Format::JSON],
                compression: compression.parse().unwrap(),
            };
            let mut client = endpoint
                .with_headers(headers)
                .unwrap()
                .connect(&offer, &WireLimits::default())
                .await
                .unwrap();
            let agreed = client.agreement().compression.name();
            assert_eq!(agreed, if compressed { compression } else { "none" }, "{user_agent}");
            client.feed(r#"["REQ","s",{"limit":1}]"#.into()).await.unwrap();
            client.flush().await.unwrap();
            let answer = client.next().await.unwrap().unwrap();
            assert_eq!(answer.payload, r#"["EOSE","s"]"#, "{user_agent} {compression}");
        }
    }
    relay.stop().await;
}
