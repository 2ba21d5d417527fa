//! Both ends of a connection over loopback.

use std::net::SocketAddr;

use bytes::Bytes;
use codecs::Format;
use tokio::{net::TcpListener, task::JoinHandle};
use wire::{Accepted, Connection, Offer, ServerConfig, Support, WireError, WireLimits};

pub(crate) fn offer(compression: &str) -> Offer {
    Offer { batched: false, formats: vec![Format::JSON], compression: compression.parse().unwrap() }
}

pub(crate) fn support(compressions: &[&str]) -> Support {
    let compressions = compressions.iter().map(|name| name.parse().unwrap()).collect();
    Support { formats: Format::all().collect(), compressions, batched: false }
}

pub(crate) fn config(support: Support) -> ServerConfig {
    ServerConfig {
        support,
        limits: WireLimits::default(),
        relay_info: r#"{"name":"test"}"#.into(),
        tls: None,
    }
}

/// A relay that takes one connection.
pub(crate) async fn listen(config: ServerConfig) -> (SocketAddr, JoinHandle<Result<Accepted, WireError>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        wire::accept(stream, &config).await
    });
    (address, accepted)
}

pub(crate) fn connection(accepted: Accepted) -> Connection {
    match accepted {
        Accepted::WebSocket(connection) => *connection,
        Accepted::Http => panic!("a WebSocket was expected"),
    }
}

/// Both ends after the handshake: client, relay.
pub(crate) async fn pair(offer: &Offer, config: ServerConfig) -> (Connection, Connection) {
    let limits = config.limits;
    let (address, accepted) = listen(config).await;
    let client = wire::connect(&format!("ws://{address}/"), offer, &limits).await.unwrap();
    (client, connection(accepted.await.unwrap().unwrap()))
}

pub(crate) async fn send(connection: &mut Connection, payload: impl Into<Bytes>) {
    connection.feed(payload.into()).await.unwrap();
    connection.flush().await.unwrap();
}

pub(crate) async fn receive(connection: &mut Connection) -> Bytes {
    connection.next().await.expect("the connection is open").expect("a message").payload
}

/// Repetitive JSON with hex, different for each `seed`.
pub(crate) fn sample(seed: usize, bytes: usize) -> Vec<u8> {
    let mut state = seed as u64 ^ 0x9e37_79b9_7f4a_7c15;
    let mut text = String::from(r#"["EVENT","sub",{"kind":1,"tags":[["p",""#);
    while text.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push_str(&format!("{state:016x}"));
        text.push_str(if state.is_multiple_of(4) { r#""],["p",""# } else { "" });
    }
    text.truncate(bytes);
    text.into_bytes()
}
