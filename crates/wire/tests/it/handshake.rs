//! Handshakes with conforming and other peers, and plain HTTP.

use std::time::{Duration, Instant};

use codecs::Format;
use tokio::{net::TcpListener, task::JoinHandle};
use wire::{Accepted, CloseCode, Compression, Connection, WireError, WireLimits};

use crate::{
    common::{config, connection, listen, offer, send, support},
    scripted::{FIN, Scripted, TEXT, answering, patiently, upgrade_answer, upgrade_request},
};

/// Sends a request to a relay. Returns the whole answer and the relay's outcome.
async fn ask(request: &str) -> (String, Result<Accepted, WireError>) {
    let (address, accepted) = listen(config(support(&Compression::NAMES))).await;
    let mut client = Scripted::client(address).await;
    client.write(request.as_bytes()).await;
    let answer = client.read_to_end().await;
    drop(client);
    (answer, patiently(accepted).await.unwrap())
}

#[tokio::test]
async fn plain_http_is_answered() {
    let nip_11 = "Accept: application/nostr+json\r\n";
    let elsewhere = upgrade_request("/chat", "");
    let old = upgrade_request("/", "").replace("Version: 13", "Version: 8");
    let keyless = upgrade_request("/", "").replace("Sec-WebSocket-Key", "X-Key");
    let malformed = upgrade_request("/", "Sec-WebSocket-Extensions: permessage-deflate; =\r\n");
    let cases: [(String, &str, &[&str]); 11] = [
        (
            format!("GET / HTTP/1.1\r\n{nip_11}\r\n"),
            "200 OK",
            &[
                "\r\n\r\n{\"name\":\"test\"}",
                "Access-Control-Allow-Origin: *",
                "Content-Type: application/nostr+json",
            ],
        ),
        (
            format!("GET /?x=y HTTP/1.0\r\n{nip_11}\r\n"),
            "200 OK",
            &["{\"name\":\"test\"}", "Content-Length: 15"],
        ),
        ("GET / HTTP/1.1\r\n\r\n".into(), "200 OK", &["application/nostr+json"]),
        (
            "OPTIONS / HTTP/1.1\r\n\r\n".into(),
            "204 No Content",
            &["Access-Control-Allow-Headers: *", "Access-Control-Allow-Methods: GET, HEAD, OPTIONS"],
        ),
        (format!("GET /info HTTP/1.1\r\n{nip_11}\r\n"), "404 Not Found", &[]),
        (elsewhere, "404 Not Found", &[]),
        (
            "POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}".into(),
            "405 Method Not Allowed",
            &["Allow: GET, HEAD, OPTIONS"],
        ),
        (old, "426 Upgrade Required", &["Sec-WebSocket-Version: 13"]),
        (keyless, "400 Bad Request", &["Sec-WebSocket-Key"]),
        (malformed, "400 Bad Request", &["malformed Sec-WebSocket-Extensions"]),
        (upgrade_request("/", "").replace("HTTP/1.1", "HTTP/1.0"), "400 Bad Request", &["HTTP/1.1"]),
    ];
    for (request, status, parts) in cases {
        let (answer, accepted) = ask(&request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request}\n{answer}");
        for part in parts {
            assert!(answer.contains(part), "{request}\n{answer}\nhas no {part:?}");
        }
        assert!(matches!(accepted, Ok(Accepted::Http)), "{request}: {accepted:?}");
    }
}

/// HEAD is GET without the body (RFC 9110 §9.3.2), whatever GET would have answered.
#[tokio::test]
async fn head_is_answered_as_get_without_the_body() {
    let nip_11 = "Accept: application/nostr+json\r\n";
    for (target, lines, status) in
        [("/", nip_11, "200 OK"), ("/", "", "200 OK"), ("/info", nip_11, "404 Not Found")]
    {
        let (got, _) = ask(&format!("GET {target} HTTP/1.1\r\n{lines}\r\n")).await;
        let (head, accepted) = ask(&format!("HEAD {target} HTTP/1.1\r\n{lines}\r\n")).await;
        let (head_of_got, body) = got.split_once("\r\n\r\n").unwrap();
        assert!(!body.is_empty() && got.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{got}");
        assert_eq!(head, format!("{head_of_got}\r\n\r\n"), "{target} {lines}");
        assert!(matches!(accepted, Ok(Accepted::Http)), "{accepted:?}");
    }
    let upgrade = upgrade_request("/", nip_11).replacen("GET", "HEAD", 1);
    let (answer, accepted) = ask(&upgrade).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\n"), "{answer}");
    assert!(matches!(accepted, Ok(Accepted::Http)), "no handshake: {accepted:?}");
}

#[tokio::test]
async fn heads_out_of_bounds_are_errors() {
    let oversize = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(20_000));
    let endless = "x".repeat(40_000);
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(100));
    let cases = [(oversize, "431"), (endless, "431"), (many, "400"), ("hello\r\n\r\n".into(), "400")];
    for (request, status) in cases {
        let (answer, accepted) = ask(&request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(matches!(accepted, Err(WireError::Handshake { .. })), "{accepted:?}");
    }
}

#[tokio::test]
async fn a_slow_head_is_given_up() {
    let mut config = config(support(&[]));
    config.limits.handshake_timeout = Duration::from_millis(200);
    let (address, accepted) = listen(config).await;
    let mut client = Scripted::client(address).await;
    let begin = Instant::now();
    client.write(b"GET / HTTP/1.1\r\n").await;
    let error = patiently(accepted).await.unwrap().unwrap_err();
    assert!(matches!(error, WireError::Handshake { .. }), "{error}");
    assert!(begin.elapsed() >= Duration::from_millis(200), "{:?}", begin.elapsed());
    assert_eq!(client.read_to_end().await, "");
}

#[tokio::test]
async fn a_head_in_single_bytes_is_a_head() {
    let (address, accepted) = listen(config(support(&[]))).await;
    let mut client = Scripted::client(address).await;
    for byte in upgrade_request("/?relay=1", "").as_bytes() {
        client.write(&[*byte]).await;
    }
    assert!(client.read_head().await.starts_with("HTTP/1.1 101 "));
    let relay = connection(patiently(accepted).await.unwrap().unwrap());
    let traffic = relay.traffic();
    assert_eq!(traffic.handshake_received_bytes, upgrade_request("/?relay=1", "").len() as u64);
    assert_eq!((traffic.received.wire_bytes, traffic.sent.wire_bytes), (0, 0));
}

#[tokio::test]
async fn a_client_of_today_gets_no_header_and_json() {
    let (address, accepted) = listen(config(support(&Compression::NAMES))).await;
    let (mut client, head) = Scripted::upgraded(address, "").await;
    assert!(!head.to_ascii_lowercase().contains("sec-websocket-protocol"), "{head}");
    assert!(!head.to_ascii_lowercase().contains("sec-websocket-extensions"), "{head}");
    let mut relay = connection(accepted.await.unwrap().unwrap());
    assert_eq!((relay.agreement().format, relay.agreement().compression), (Format::JSON, Compression::None));
    send(&mut relay, "[]").await;
    assert_eq!(client.read_frame().await, (FIN | TEXT, b"[]".to_vec()));
}

#[tokio::test]
async fn headers_on_several_lines_are_one_list() {
    let (address, accepted) = listen(config(support(&Compression::NAMES))).await;
    let lines = "Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Protocol: nostr.json+zstd\r\n";
    let (_client, head) = Scripted::upgraded(address, lines).await;
    assert!(head.contains("sec-websocket-protocol: nostr.json+zstd\r\n"), "{head}");
    accepted.await.unwrap().unwrap();
}

/// Connects to a server that answers with these header lines.
async fn against(
    headers: &'static str,
    compression: &str,
) -> (Result<Connection, WireError>, JoinHandle<Scripted>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let mut server = Scripted::server(listener.accept().await.unwrap().0);
        let request = server.read_head().await;
        server.write(upgrade_answer(&request, headers).as_bytes()).await;
        server
    });
    let url = format!("ws://{address}/some/path?and=query");
    (wire::connect(&url, &offer(compression), &WireLimits::default()).await, server)
}

#[tokio::test]
async fn a_relay_that_ignores_the_header_is_spoken_to_in_json() {
    for compression in Compression::NAMES {
        let (connected, server) = against("", compression).await;
        let (mut client, mut server) = (connected.unwrap(), server.await.unwrap());
        let agreement = client.agreement();
        assert_eq!((agreement.format, &agreement.token), (Format::JSON, &None), "{compression}");
        assert_eq!(agreement.compression, Compression::None, "{compression}");
        send(&mut client, "[]").await;
        assert_eq!(server.read_frame().await, (FIN | TEXT, b"[]".to_vec()));
    }
}

#[tokio::test]
async fn an_answer_that_was_not_offered_fails_the_handshake() {
    for (headers, why) in [
        ("Sec-WebSocket-Protocol: chat\r\n", "was not offered"),
        ("Sec-WebSocket-Protocol: nostr.json+zstd\r\n", "was not offered"),
        ("Sec-WebSocket-Extensions: permessage-deflate; unknown\r\n", "unknown parameter"),
        ("Sec-WebSocket-Extensions: permessage-bzip2\r\n", "was not offered"),
    ] {
        let (connected, _server) = against(headers, "deflate").await;
        let error = connected.unwrap_err();
        assert!(matches!(error, WireError::Handshake { status: None, .. }), "{headers}: {error}");
        assert!(error.to_string().contains(why), "{headers}: {error}");
    }
}

/// Connects to a server that answers offers of subprotocols with `refusal`, and accepts requests without
/// them. Returns the number of requests, too.
async fn without_subprotocols(refusal: &'static str) -> (Result<Connection, WireError>, usize) {
    let (url, heads) = answering(move |request| {
        if request.contains("Sec-WebSocket-Protocol") {
            return refusal.to_owned();
        }
        upgrade_answer(request, "Sec-WebSocket-Extensions: permessage-deflate\r\n")
    })
    .await;
    let connected = patiently(wire::connect(&url, &offer("deflate"), &WireLimits::default())).await;
    (connected, heads.lock().await.len())
}

#[tokio::test]
async fn a_relay_that_refuses_the_header_is_asked_once_more_without_it_unless_for_another_reason() {
    let (connected, requests) = without_subprotocols("HTTP/1.1 400 Bad Request\r\n\r\n").await;
    let client = connected.unwrap();
    assert_eq!(requests, 2);
    assert_eq!((client.agreement().format, &client.agreement().token), (Format::JSON, &None));
    assert_eq!(client.agreement().compression.name(), "deflate", "extensions are offered all the same");
    for (refusal, expected) in [
        ("HTTP/1.1 401 Unauthorized\r\n\r\n", 401),
        ("HTTP/1.1 403 Forbidden\r\n\r\n", 403),
        ("HTTP/1.1 429 Too Many Requests\r\n\r\n", 429),
        ("HTTP/1.1 503 Service Unavailable\r\n\r\n", 503),
    ] {
        let (connected, requests) = without_subprotocols(refusal).await;
        let error = connected.unwrap_err();
        let WireError::Handshake { status, .. } = error else { panic!("{error}") };
        assert_eq!((status, requests), (Some(expected), 1));
    }
}

/// Connects to a server that answers every request with these bytes and closes.
async fn against_raw(answer: &'static str) -> WireError {
    let (url, _) = answering(move |_| answer.to_owned()).await;
    let limits = WireLimits { max_head_bytes: 1000, ..WireLimits::default() };
    wire::connect(&url, &offer("none"), &limits).await.unwrap_err()
}

#[tokio::test]
async fn a_failed_handshake_says_what_came_instead() {
    let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\n";
    let wrong_key = format!("HTTP/1.1 101 x\r\n{upgrade}Sec-WebSocket-Accept: AAAA\r\n\r\n").leak();
    let long = format!("HTTP/1.1 101 x\r\nX: {}\r\n\r\n", "x".repeat(2000)).leak();
    let cases: [(&'static str, Option<u16>, &str); 12] = [
        (
            "HTTP/1.1 301 Moved\r\nLocation: wss://relay.example/\r\n\r\n<html>",
            Some(301),
            "301: the relay is at wss://relay.example/; give that address",
        ),
        ("HTTP/1.1 308 Moved\r\n\r\n", Some(308), "the relay answered 308: "),
        (
            "HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm=\"a\"\r\n\r\n",
            Some(401),
            "401: it wants credentials by the scheme Basic, as in ws://name:password@host",
        ),
        ("HTTP/1.1 403 No\r\n\r\n<HTML><Title lang=en>Blocked</TITLE>", Some(403), "403: Blocked"),
        ("HTTP/1.1 502 Bad\r\n\r\n<html><body>\u{130}<title", Some(502), "502: a page of HTML"),
        ("HTTP/1.1 400 Bad Request\r\n\r\nenabled: nostr.json", Some(400), "enabled: nostr.json"),
        ("HTTP/1.1 200 OK\r\n\r\n", Some(200), "expected HTTP 101"),
        ("HTTP/1.1 101 x\r\nConnection: upgrade\r\n\r\n", None, "upgrade: websocket"),
        (wrong_key, None, "Sec-WebSocket-Accept"),
        (long, None, "over 1000 bytes"),
        ("SSH-2.0-OpenSSH_9.9\r\n\r\n", None, "not HTTP/1.1"),
        ("HTTP/1.1 101", None, "before its HTTP head was complete"),
    ];
    for (answer, expected, why) in cases {
        let error = against_raw(answer).await;
        assert!(error.to_string().contains(why), "{answer:?}: {error}");
        let WireError::Handshake { status, .. } = error else { panic!("{error}") };
        assert_eq!(status, expected, "{answer:?}");
    }
}

#[tokio::test]
async fn a_relay_that_does_not_answer_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let limits = WireLimits { handshake_timeout: Duration::from_millis(200), ..WireLimits::default() };
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let error = patiently(wire::connect(&url, &offer("none"), &limits)).await.unwrap_err();
    assert!(error.to_string().contains("within 200ms"), "{error}");
}

#[tokio::test]
#[ignore = "needs IPv6 on the loopback"]
async fn ipv6_addresses_work() {
    let listener = TcpListener::bind("[::1]:0").await.unwrap();
    let url = format!("ws://{}/", listener.local_addr().unwrap());
    let config = config(support(&[]));
    let accepted =
        tokio::spawn(async move { wire::accept(listener.accept().await.unwrap().0, &config).await });
    let mut client = wire::connect(&url, &offer("none"), &WireLimits::default()).await.unwrap();
    let mut relay = connection(accepted.await.unwrap().unwrap());
    assert_eq!(relay.peer_addr(), client.local_addr());
    tokio::join!(client.close(CloseCode::Normal, ""), relay.next());
}
