//! Faults that show on the socket alone.

use std::time::Duration;

use codecs::Format;
use futures::{SinkExt, StreamExt};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_tungstenite::{
    connect_async,
    tungstenite::{Error, Message},
};
use wire::{Offer, WireError, WireLimits};

use crate::common::{PATIENCE, TestRelay, expect, hear, note, ok, say};

/// Long enough that what is to come has come.
const A_WHILE: Duration = Duration::from_millis(300);

const REQ: &str = r#"["REQ","a",{}]"#;
const EOSE: &str = r#"["EOSE","a"]"#;

async fn misbehaving(faults: &[&str]) -> TestRelay {
    let faults = faults.iter().map(|fault| fault.parse().unwrap()).collect();
    TestRelay::start(|config| config.faults = faults).await
}

fn is_reset(error: &Error) -> bool {
    matches!(error, Error::Io(error) if error.kind() == std::io::ErrorKind::ConnectionReset)
}

#[tokio::test]
async fn a_connection_is_reset_at_a_message() {
    let relay = misbehaving(&["reset:connection=1:message=2"]).await;
    for connection in 1..=2 {
        let mut socket = relay.socket("nostr.json").await;
        for message in 1..=2 {
            say(&mut socket, REQ).await;
            if (connection, message) == (1, 2) {
                let error = hear(&mut socket).await.unwrap_err();
                assert!(is_reset(&error), "{error:?}");
            } else {
                expect(&mut socket, EOSE).await;
            }
        }
    }
    assert_eq!(relay.stop().await.connections, 2);
}

#[tokio::test]
async fn a_half_open_connection_answers_nothing_and_stays() {
    let relay = misbehaving(&["half-open:message=2"]).await;
    let mut socket = relay.socket("nostr.json").await;
    say(&mut socket, REQ).await;
    expect(&mut socket, EOSE).await;
    say(&mut socket, REQ).await;
    socket.send(Message::Ping("are you there".into())).await.unwrap();
    timeout(A_WHILE, socket.next()).await.expect_err("nothing comes, not even an end");
    say(&mut socket, REQ).await;
    relay.stop().await;
}

#[tokio::test]
async fn a_connection_is_closed_with_any_code() {
    let relay = misbehaving(&["close=4000:message=1"]).await;
    let mut socket = relay.socket("nostr.json").await;
    say(&mut socket, REQ).await;
    let Message::Close(Some(frame)) = hear(&mut socket).await.unwrap() else { panic!("a Close frame") };
    assert_eq!((u16::from(frame.code), frame.reason.as_str()), (4_000, "planted: close"));
    relay.stop().await;
}

#[tokio::test]
async fn a_late_ok_comes_by_itself() {
    let relay = misbehaving(&["late-ok=300ms"]).await;
    let mut client = relay.json_client().await;
    let note = note(1, 1);
    let began = std::time::Instant::now();
    client.publish(&note).await;
    client.expect(&ok(&note)).await;
    // tokio's timer may fire a millisecond late, for which the relay allows.
    assert!(began.elapsed() >= Duration::from_millis(299), "{:?}", began.elapsed());
    relay.stop().await;
}

#[tokio::test]
async fn handshakes_are_reset_or_never_answered() {
    let relay = misbehaving(&["reset-handshake:connection=1", "ignore-handshake:connection=2"]).await;
    let error = connect_async(&relay.url).await.unwrap_err();
    assert!(is_reset(&error), "{error:?}");
    timeout(A_WHILE, connect_async(&relay.url)).await.expect_err("no answer");
    let mut third = relay.socket("nostr.json").await;
    say(&mut third, REQ).await;
    expect(&mut third, EOSE).await;
    relay.stop().await;
}

/// A connection that asks for this compression.
async fn compressed(relay: &TestRelay, compression: &str) -> wire::Connection {
    let offer =
        Offer { batched: false, formats: vec![Format::JSON], compression: compression.parse().unwrap() };
    wire::connect(&relay.url, &offer, &WireLimits::default()).await.unwrap()
}

#[tokio::test]
async fn compression_is_declined() {
    let relay = misbehaving(&["decline-compression:connection=1-2"]).await;
    for (compression, expected) in [("deflate", "none"), ("zstd", "none"), ("deflate", "deflate")] {
        let conn = compressed(&relay, compression).await;
        assert_eq!(conn.agreement().compression.name(), expected);
    }
    relay.stop().await;
}

/// What a client hears that requests this often by a name that compresses, up to an error.
async fn eoses(relay: &TestRelay, compression: &str, times: usize) -> (usize, Option<WireError>) {
    let mut conn = compressed(relay, compression).await;
    let name = "abcdefghij".repeat(6);
    for n in 0..times {
        conn.feed(format!(r#"["REQ","{name}",{{"limit":1}}]"#).into()).await.unwrap();
        conn.flush().await.unwrap();
        let message = timeout(PATIENCE, conn.next()).await.expect("an answer in time");
        match message.expect("no end before it is told") {
            Ok(message) if message.payload == format!(r#"["EOSE","{name}"]"#) => {}
            Ok(_) => return (n, None),
            Err(error) => return (n, Some(error)),
        }
    }
    (times, None)
}

#[tokio::test]
async fn fragments_and_final_blocks_are_the_same_messages() {
    let relay = misbehaving(&["fragment=7", "bfinal:message=2-4"]).await;
    for compression in ["none", "deflate-no-takeover:min_bytes=0", "zstd"] {
        let (heard, error) = eoses(&relay, compression, 9).await;
        assert!(heard == 9 && error.is_none(), "{compression}: {heard} {error:?}");
    }
    // A final block ends zlib's stream and its window, to which the fifth message refers.
    let (heard, error) = eoses(&relay, "deflate:min_bytes=0", 9).await;
    assert!(heard == 4 && matches!(error, Some(WireError::Inflate(_))), "{heard} {error:?}");
    relay.stop().await;
}

#[tokio::test]
async fn a_flipped_bit_is_an_error_or_another_message() {
    for seed in 1..=8 {
        let relay = misbehaving(&[&format!("flip-bit:message=3:probability=99%:seed={seed}")]).await;
        let (heard, error) = eoses(&relay, "deflate:min_bytes=0", 9).await;
        assert!((2..9).contains(&heard), "seed {seed}: {heard} {error:?}");
        relay.stop().await;
    }
}

#[tokio::test]
async fn a_slow_relay_sends_so_many_bytes_a_second() {
    let relay = misbehaving(&["slow=200"]).await;
    let began = std::time::Instant::now();
    // 72 bytes each, of which the last piece is waited for by the next message alone.
    let (heard, _) = eoses(&relay, "none", 2).await;
    assert_eq!(heard, 2);
    let took = began.elapsed().as_secs_f64();
    assert!((0.5..5.0).contains(&took), "{took}");
    relay.stop().await;
}

#[tokio::test]
async fn the_document_lies_about_limits_and_says_that_it_does() {
    for (faults, nips) in [(vec![], 7), (vec!["nip11-lies"], 3), (vec!["nip11-lies:after=50s"], 7)] {
        let relay = misbehaving(&faults).await;
        let (_, body) =
            http(&relay.address, "GET / HTTP/1.1\r\nAccept: application/nostr+json\r\n\r\n").await;
        let document: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(document["supported_nips"].as_array().unwrap().len(), nips);
        assert_eq!(document["limitation"]["auth_required"], nips == 3);
        assert_eq!(document["faults"].as_array().map_or(0, Vec::len), faults.len());
        relay.stop().await;
    }
}

/// The status and the body of the answer to a request.
async fn http(address: &str, request: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("an answer in time").unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].to_owned(), body.to_owned())
}

/// A request for the faults, with a body if there is one.
fn request(method: &str, headers: &str, body: &str) -> String {
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    format!("{method} /faults HTTP/1.1\r\n{headers}{length}\r\n{body}")
}

#[tokio::test]
async fn faults_are_replaced_while_the_relay_runs() {
    let relay = TestRelay::start(|config| config.control = true).await;
    let mut socket = relay.socket("nostr.json").await;
    say(&mut socket, REQ).await;
    expect(&mut socket, EOSE).await;
    let put = request("PUT", "Host: localhost\r\n", r#"["no-eose:message=1","flip-bit"]"#);
    let (status, body) = http(&relay.address, &put).await;
    assert_eq!(status, "200", "{body}");
    say(&mut socket, REQ).await;
    say(&mut socket, r#"["COUNT","c",{}]"#).await;
    expect(&mut socket, r#"["COUNT","c",{"count":0}]"#).await;
    let (_, body) = http(&relay.address, &request("GET", "", "")).await;
    let expected = r#"{"faults":[{"fault":"no-eose:message=1","hits":1},{"fault":"flip-bit","hits":0}]}"#;
    assert_eq!(body, expected);
    let (status, body) = http(&relay.address, &request("PUT", "", r#"["no-oese"]"#)).await;
    assert!(status == "400" && body.contains("known: "), "{body}");
    assert_eq!(http(&relay.address, &request("GET", "", "")).await.1, expected, "it changed nothing");
    http(&relay.address, &request("PUT", "", "[]")).await;
    say(&mut socket, REQ).await;
    expect(&mut socket, EOSE).await;
    relay.stop().await;
}

#[tokio::test]
async fn control_is_for_programs_of_this_host_and_only_when_asked_for() {
    let relay = TestRelay::start(|config| config.control = true).await;
    for (request, expected) in [
        (request("GET", "Origin: http://127.0.0.1\r\n", ""), "403"),
        (request("PUT", "Origin: null\r\n", "[]"), "403"),
        (request("GET", "Host: relay.example\r\n", ""), "403"),
        (request("PUT", "", ""), "411"),
        (request("PUT", "Content-Length: 65537\r\n", ""), "413"),
        (request("PUT", "Content-Length: -1\r\n", ""), "411"),
        (request("DELETE", "", ""), "405"),
    ] {
        let (status, body) = http(&relay.address, &request).await;
        assert_eq!(status, expected, "{request}: {body}");
    }
    // An address of this host that is no loopback address, where there is one.
    let everywhere = TestRelay::start_at("0.0.0.0:0", |config| config.control = true).await;
    let port = everywhere.address.rsplit(':').next().unwrap();
    if let Some(own) = own_address() {
        let (status, body) = http(&format!("{own}:{port}"), &request("GET", "", "")).await;
        assert_eq!(status, "403", "{body}");
    }
    let closed = misbehaving(&["no-eose"]).await;
    assert_eq!(http(&closed.address, &request("GET", "", "")).await.0, "404");
    for relay in [relay, everywhere, closed] {
        relay.stop().await;
    }
}

/// The address by which this host reaches others. Nothing is sent.
fn own_address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback())
}
