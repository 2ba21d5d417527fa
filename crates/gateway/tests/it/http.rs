//! Requests, addresses and TLS.

use std::fs;

use gateway::Gateway;
use rcgen::{CertificateParams, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::{Endpoint, Offer, ServerTls, WireLimits};

use crate::common::{
    TestGateway, config, field, handshake, head, http, patiently, relay, relay_sim, say, sent, switching,
};

#[tokio::test]
async fn the_relays_document_gets_the_tokens_and_other_requests_pass() {
    let relay = relay_sim(|_| {}).await;
    let gateway = TestGateway::before(&relay, |config| {
        config.format = vec!["dannypack".parse().unwrap()];
        config.compression = vec!["zstd-shared".parse().unwrap()];
    })
    .await;
    let request = "GET / HTTP/1.1\r\nHost: a\r\nAccept: application/nostr+json\r\n\r\n";
    let answer = http(&gateway.address, request).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.contains("application/nostr+json") && head.contains("Access-Control-Allow-Origin"),
        "{head}"
    );
    let document: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(document["name"], "relay-sim");
    let tokens =
        ["nostr.json", "nostr.json+zstd-shared", "nostr.dannypack.v1", "nostr.dannypack.v1+zstd-shared"];
    assert_eq!(document["wire"]["tokens"], serde_json::json!(tokens));
    for request in ["GET / HTTP/1.1\r\n\r\n", "GET /nothing HTTP/1.1\r\n\r\n", "OPTIONS / HTTP/1.1\r\n\r\n"] {
        let [direct, passed] = [http(&relay, request).await, http(&gateway.address, request).await];
        assert_eq!(direct, passed);
    }
}

#[tokio::test]
async fn the_relay_is_told_who_asks_and_a_second_request_does_not_reach_it() {
    let relay = relay(|mut stream| async move {
        let request = head(&mut stream).await;
        if request.contains("/websocket-refused") || !request.contains("Upgrade") {
            let mut body =
                vec![0; field(&request, "content-length").map_or(0, |bytes| bytes.parse().unwrap())];
            stream.read_exact(&mut body).await.unwrap();
            let told = request.replace("\r\n", "\n") + &String::from_utf8(body).unwrap();
            let answer = format!("HTTP/1.1 403 Forbidden\r\nContent-Length: {}\r\n\r\n{told}", told.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
            // Keeps the connection, and answers more.
            let mut more = Vec::new();
            stream.read_to_end(&mut more).await.ok();
            stream.write_all(&more).await.ok();
            return;
        }
        let told = field(&request, "x-forwarded-for").unwrap().to_owned();
        let told = [told.as_str(), field(&request, "host").unwrap()].join(" ");
        let frame = [&[0x81, u8::try_from(told.len()).unwrap()], told.as_bytes()].concat();
        stream.write_all(&[switching(&request).as_bytes(), &frame].concat()).await.unwrap();
        stream.read_to_end(&mut Vec::new()).await.ok();
    })
    .await;
    let forged = "X-Forwarded-For: 198.51.100.7\r\n";
    for (trust, client) in [("127.0.0.2/32", "127.0.0.1"), ("127.0.0.0/8", "198.51.100.7")] {
        let gateway = TestGateway::before(&relay, |config| config.trust = vec![trust.parse().unwrap()]).await;
        for fields in ["", "Sec-WebSocket-Protocol: nostr.json\r\n"] {
            let mut stream = sent(&gateway.address, &handshake(&format!("{forged}{fields}"))).await;
            head(&mut stream).await;
            let mut frame = vec![0; 2 + client.len() + " relay.example".len()];
            patiently(stream.read_exact(&mut frame)).await.unwrap();
            assert_eq!(String::from_utf8_lossy(&frame[2..]), format!("{client} relay.example"));
        }
        let second = "GET /admin HTTP/1.1\r\nX-Forwarded-For: 10.0.0.1\r\n\r\n";
        for first in [
            format!("POST /media HTTP/1.1\r\nHost: relay.example\r\n{forged}Content-Length: 4\r\n\r\nbody"),
            handshake("").replace("GET / ", "GET /websocket-refused "),
        ] {
            let mut stream = sent(&gateway.address, &format!("{first}{second}")).await;
            let answer = head(&mut stream).await;
            assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
            let mut told = vec![0; field(&answer, "content-length").unwrap().parse().unwrap()];
            patiently(stream.read_exact(&mut told)).await.unwrap();
            let told = String::from_utf8(told).unwrap();
            assert!(told.contains("relay.example") && !told.contains("admin"), "{told}");
            assert_eq!(told.ends_with("body"), first.starts_with("POST"), "{told}");
            stream.shutdown().await.unwrap();
            let mut more = Vec::new();
            patiently(stream.read_to_end(&mut more)).await.unwrap();
            assert_eq!(String::from_utf8_lossy(&more), "", "the second request is not passed");
        }
    }
    let gateway = TestGateway::before(&relay, |_| {}).await;
    for request in [
        "GET http://other/ HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 4, 4\r\n\r\n",
        &handshake("Content-Length: 4\r\n"),
    ] {
        assert!(http(&gateway.address, request).await.starts_with("HTTP/1.1 400"), "{request}");
    }
}

#[tokio::test]
async fn a_public_relay_is_refused_without_consent_and_so_are_paths_and_passwords() {
    let open = async |relay: &str, is_public| {
        let mut config = config(relay);
        config.relay_is_public = is_public;
        Gateway::open(config).await.map(drop).map_err(|error| format!("{error:#}"))
    };
    let refused = open("ws://192.0.2.1", false).await.unwrap_err();
    assert!(refused.contains("at 192.0.2.1,") && refused.contains("--relay-is-public"), "{refused}");
    assert_eq!(open("ws://192.0.2.1", true).await, Ok(()));
    for private in ["ws://127.0.0.1:7777", "ws://localhost:7777", "ws://10.0.0.1", "ws://[fd00::1]"] {
        assert_eq!(open(private, false).await, Ok(()), "{private}");
    }
    for (relay, why) in [("ws://127.0.0.1/a", "path"), ("ws://a:b@127.0.0.1", "user")] {
        let refused = open(relay, true).await.unwrap_err();
        assert!(refused.contains(why) && !refused.contains("a:b"), "{refused}");
    }
}

#[tokio::test]
async fn both_legs_speak_tls() {
    let folder = tempfile::tempdir().unwrap();
    let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
    let pair = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    fs::write(&cert, params.self_signed(&pair).unwrap().pem()).unwrap();
    fs::write(&key, pair.serialize_pem()).unwrap();
    let tls = ServerTls::from_files(&cert, &key).unwrap();
    let relay = relay_sim(|config| config.tls = Some(tls)).await;
    let gateway = TestGateway::before(&relay, |config| {
        config.relay = format!("wss://{relay}").parse().unwrap();
        config.ca = Some(cert.clone());
        (config.cert, config.key) = (Some(cert.clone()), Some(key));
    })
    .await;
    let endpoint = Endpoint::new(format!("wss://{}", gateway.address).parse().unwrap(), Some(&cert)).unwrap();
    for compression in ["none", "zstd-dict"] {
        let offer = Offer {
            batched: false,
            formats: vec![codecs::Format::JSON],
            compression: compression.parse().unwrap(),
        };
        let mut client = patiently(endpoint.connect(&offer, &WireLimits::default())).await.unwrap();
        assert_eq!(client.agreement().compression.name(), compression);
        say(&mut client, r#"["REQ","a",{"limit":0}]"#).await;
        let answer = patiently(client.next()).await.unwrap().unwrap();
        assert_eq!(answer.payload, r#"["EOSE","a"]"#);
    }
}
