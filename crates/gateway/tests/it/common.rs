//! A gateway, relays before which it stands, and clients.

use std::{future::Future, time::Duration};

use bytes::Bytes;
use clap::Parser;
use codecs::{ClientMessage, Format};
use gateway::{Config, Gateway};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinHandle,
    time::timeout,
};
use tokio_tungstenite::{WebSocketStream, tungstenite::handshake::derive_accept_key};
use wire::{Connection, Offer, WireError, WireLimits};

/// Far beyond what anything here takes, so that a hang is a failure and not a wait.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) async fn patiently<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("it takes less")
}

/// The defaults, before this relay.
pub(crate) fn config(relay: &str) -> Config {
    Config::parse_from(["gateway", "--relay", relay])
}

pub(crate) struct TestGateway {
    pub(crate) address: String,
    pub(crate) metrics: String,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl TestGateway {
    /// A gateway before the relay at an address.
    pub(crate) async fn before(relay: &str, change: impl FnOnce(&mut Config)) -> TestGateway {
        let mut config = config(&format!("ws://{relay}"));
        change(&mut config);
        let gateway = Gateway::open(config).await.unwrap();
        let [listener, metrics_listener] = [listen().await, listen().await];
        let [address, metrics] =
            [&listener, &metrics_listener].map(|one| one.local_addr().unwrap().to_string());
        gateway.serve_metrics(metrics_listener.into_std().unwrap()).unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(gateway::serve(listener, gateway, async {
            let _ = stopped.await;
        }));
        TestGateway { address, metrics, stop, task }
    }

    pub(crate) async fn stop(self) {
        let _ = self.stop.send(());
        patiently(self.task).await.unwrap();
    }

    /// A client with a format and a compression, which it was granted.
    pub(crate) async fn client(&self, format: &str, compression: &str) -> Connection {
        let client = self.client_that_offers(format, compression).await;
        assert_eq!(client.agreement().format.name(), format);
        assert_eq!(client.agreement().compression.name(), compression);
        client
    }

    pub(crate) async fn client_that_offers(&self, format: &str, compression: &str) -> Connection {
        let compression = compression.parse().unwrap();
        let offer = Offer { batched: false, formats: vec![format.parse().unwrap()], compression };
        let limits = WireLimits { max_message_bytes: 16 << 20, ..WireLimits::default() };
        patiently(wire::connect(&format!("ws://{}", self.address), &offer, &limits)).await.unwrap()
    }

    /// The value of a metric without labels.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let text = http(&self.metrics, "GET /metrics HTTP/1.1\r\n\r\n").await;
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("gateway_{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }
}

async fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

/// A relay that does with each connection what the test says; returns its address.
pub(crate) async fn relay<F>(each: impl Fn(TcpStream) -> F + Send + 'static) -> String
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = listen().await;
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(each(stream));
        }
    });
    address
}

/// A relay-sim that takes unverified events.
pub(crate) async fn relay_sim(change: impl FnOnce(&mut relay_sim::Config)) -> String {
    let mut config = relay_sim::Config::default();
    config.verify = codecs::VerifyLevel::None;
    change(&mut config);
    let listener = listen().await;
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(relay_sim::serve(listener, config, std::future::pending()));
    address
}

/// A client's message in JSON.
pub(crate) fn text_of(message: &ClientMessage<'_>) -> String {
    let mut bytes = Vec::new();
    Format::JSON.spec().library.encode_client(message, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Reads an HTTP head, byte by byte so that nothing after it is taken.
pub(crate) async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(patiently(stream.read_u8()).await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// The value of a field in a head; none if it is absent.
pub(crate) fn field<'h>(head: &'h str, name: &str) -> Option<&'h str> {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    let mut values = lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    let value = values.next();
    assert_eq!(values.next(), None, "{name} is there once");
    value
}

/// Takes a connection as a server of WebSockets; returns the request's head, too.
pub(crate) async fn upgraded(mut stream: TcpStream) -> (WebSocketStream<TcpStream>, String) {
    let request = head(&mut stream).await;
    stream.write_all(switching(&request).as_bytes()).await.unwrap();
    let role = tokio_tungstenite::tungstenite::protocol::Role::Server;
    (WebSocketStream::from_raw_socket(stream, role, None).await, request)
}

/// The answer to a request for a WebSocket.
pub(crate) fn switching(request: &str) -> String {
    let key = derive_accept_key(field(request, "sec-websocket-key").unwrap().as_bytes());
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nX-Kept: as it is\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {key}\r\n\r\n"
    )
}

/// A request for a WebSocket with further fields.
pub(crate) fn handshake(fields: &str) -> String {
    format!(
        "GET / HTTP/1.1\r\nHost: relay.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{fields}\r\n"
    )
}

/// A connection on which this was sent.
pub(crate) async fn sent(address: &str, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

/// Sends a client's message.
pub(crate) async fn say(client: &mut Connection, message: impl Into<Bytes>) {
    client.feed(message.into()).await.unwrap();
    client.flush().await.ok();
}

/// Waits for the peer's Close frame with a code.
pub(crate) async fn ends_with(client: &mut Connection, expected: u16) {
    let ended = patiently(client.next()).await;
    assert!(matches!(&ended, Some(Err(WireError::Closed { code, .. })) if *code == expected), "{ended:?}");
}

/// The whole answer to a request.
pub(crate) async fn http(address: &str, request: &str) -> String {
    let mut stream = sent(address, request).await;
    let mut answer = Vec::new();
    patiently(stream.read_to_end(&mut answer)).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Numbers that look random, the same in each run.
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.below(256).to_le_bytes()[0]).collect()
    }
}

/// An event that nobody signed.
pub(crate) fn event(kind: u16, content: &str) -> String {
    let key = "07".repeat(32);
    format!(
        r#"{{"id":"{key}","pubkey":"{key}","created_at":1,"kind":{kind},"tags":[["t","{content}"]],"content":"{}","sig":"{key}{key}"}}"#,
        content.repeat(40)
    )
}
