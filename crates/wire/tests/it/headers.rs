//! Header fields that a user adds to requests.

use std::{sync::Arc, time::Duration};

use tokio::{net::TcpListener, sync::Mutex};
use wire::{Endpoint, Header, WireError, WireLimits};

use crate::{
    common::offer,
    scripted::{Scripted, answering, patiently, upgrade_answer},
};

const SECRET: &str = "a5ecr3t/value==";

/// Answers a request that has the field as `answer` says, and any other with 403.
async fn guard(answer: fn(&str) -> String) -> (String, Arc<Mutex<Vec<String>>>) {
    answering(move |head| match lines_of(head, "x-api-key") {
        key if key == [SECRET] => answer(head),
        key => format!("HTTP/1.1 403 No\r\nConnection: close\r\n\r\nbad key: {key:?}"),
    })
    .await
}

/// The values of a field, one for each of its lines.
fn lines_of(head: &str, name: &str) -> Vec<String> {
    let fields = head.lines().filter_map(|line| line.split_once(": "));
    fields.filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned()).collect()
}

fn upgrade(head: &str) -> String {
    upgrade_answer(head, "")
}

fn with(url: &str, headers: &[&str]) -> Endpoint {
    let headers = headers.iter().map(|header| header.parse::<Header>().unwrap()).collect();
    Endpoint::new(url.parse().unwrap(), None).unwrap().with_headers(headers).unwrap()
}

async fn connect(relay: &Endpoint) -> Result<wire::Connection, WireError> {
    patiently(relay.connect(&offer("deflate"), &WireLimits::default())).await
}

#[tokio::test]
async fn who_lacks_the_field_is_refused_and_a_value_that_the_peer_repeats_is_not_shown() {
    let (url, heads) = guard(upgrade).await;
    let error = connect(&with(&url, &[])).await.unwrap_err().to_string();
    assert!(error.contains("403: bad key: []"), "{error}");
    let wrong = with(&url, &["X-Api-Key=Bearer an0ther-s3cret"]);
    let error = connect(&wrong).await.unwrap_err().to_string();
    assert!(error.contains("403: bad key: [\"Bearer ***\"]"), "{error}");
    assert!(!format!("{wrong:?}").contains("an0ther-s3cret"), "{wrong:?}");
    let agents = heads.lock().await.iter().map(|head| lines_of(head, "user-agent")).collect::<Vec<_>>();
    assert!(
        agents.iter().all(|agent| agent.len() == 1 && agent[0].starts_with("nostr-load-test/")),
        "{agents:?}"
    );
}

#[tokio::test]
async fn the_document_is_asked_for_with_the_fields_and_nobody_else_is_told_them() {
    let document = |_: &str| {
        "HTTP/1.1 200 OK\r\nContent-Length: 15\r\nConnection: close\r\n\r\n{\"name\":\"here\"}".to_owned()
    };
    let (url, heads) = guard(document).await;
    let ask = async |relay: Endpoint| {
        let document = move || wire::document(&relay, Duration::from_secs(5)).map(|document| document.text);
        tokio::task::spawn_blocking(document).await.unwrap()
    };
    let key = format!("X-Api-Key={SECRET}");
    assert_eq!(
        ask(with(&url, &[&key, "User-Agent=a/1", "X-Name=caf\u{e9}"])).await.unwrap(),
        "{\"name\":\"here\"}"
    );
    let refused = ask(with(&url, &[])).await.unwrap_err().to_string();
    assert!(refused.contains("403"), "{refused}");
    let head = heads.lock().await[0].clone();
    assert_eq!(lines_of(&head, "x-api-key"), [SECRET], "{head}");
    assert_eq!(lines_of(&head, "user-agent"), ["a/1"], "{head}");
    assert_eq!(lines_of(&head, "accept"), ["application/nostr+json"], "{head}");
    assert_eq!(lines_of(&head, "x-name"), ["caf\u{e9}"], "{head}");

    let elsewhere = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = format!("http://{}", elsewhere.local_addr().unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let redirect = tokio::spawn(async move {
        let mut server = Scripted::server(listener.accept().await.unwrap().0);
        server.read_head().await;
        let answer = format!(
            "HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        server.write(answer.as_bytes()).await;
    });
    let asked = ask(with(&url, &[&key]));
    tokio::select! {
        answer = asked => assert!(answer.is_ok_and(|text| text.is_empty()), "the redirect itself"),
        _ = elsewhere.accept() => panic!("another host was asked"),
    }
    redirect.await.unwrap();
}

#[test]
fn what_would_stand_twice_is_refused() {
    let refused = |url: &str, headers: &[&str]| {
        let headers = headers.iter().map(|header| header.parse().unwrap()).collect();
        let relay = Endpoint::new(url.parse().unwrap(), None).unwrap();
        relay.with_headers(headers).unwrap_err().to_string()
    };
    let twice = refused("ws://relay.example", &["X-Key=s3cret", "a=b", "x-key=s3cret"]);
    assert!(twice.contains("x-key is given twice") && !twice.contains("s3cret"), "{twice}");
    let both = refused("ws://me:s3cret@relay.example", &["authorization=Bearer s3cret"]);
    assert!(
        both.contains("authorization follows from user and password") && !both.contains("s3cret"),
        "{both}"
    );
}

#[tokio::test]
async fn a_client_that_knows_no_subprotocol_names_none() {
    let (url, heads) = guard(upgrade).await;
    let relay = with(&url, &[&format!("X-Api-Key={SECRET}")]).without_plain_token();
    for (compression, named) in
        [("none", None), ("deflate", None), ("zstd", Some("nostr.json+zstd, nostr.json"))]
    {
        let client = patiently(relay.connect(&offer(compression), &WireLimits::default())).await.unwrap();
        assert_eq!(client.agreement().format, codecs::Format::JSON, "{compression}");
        let head = heads.lock().await.pop().unwrap();
        assert_eq!(lines_of(&head, "sec-websocket-protocol"), Vec::from_iter(named), "{compression}");
    }
}
