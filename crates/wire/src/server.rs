//! The relay's side of the handshake, and plain HTTP.

use std::net::SocketAddr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time,
};
use tokio_tungstenite::tungstenite::{
    handshake::server::{create_response, write_response},
    http::{HeaderMap, HeaderValue, Request, Uri, header},
    protocol::Role,
};

use crate::{
    agreement::{Agreement, Support, WireLimits},
    connection::{Connection, HandshakeBytes},
    error::WireError,
    http::{self, Head, HeadError, RequestLine},
    negotiate,
    socket::{Counted, Socket},
    stream::ByteStream,
    tamper::{Tamper, Tampered},
    tls::ServerTls,
};

/// A relay's answers in handshakes and plain HTTP.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Formats and compressions.
    pub support: Support,
    /// Bounds of every connection.
    pub limits: WireLimits,
    /// The relay information document of NIP-11, as JSON.
    pub relay_info: String,
    /// The certificate for `wss://`; `None` for `ws://`.
    pub tls: Option<ServerTls>,
}

/// The outcome of an incoming connection.
#[derive(Debug)]
pub enum Accepted {
    /// A client after its handshake.
    WebSocket(Box<Connection>),
    /// A plain HTTP request that was answered (NIP-11, OPTIONS, a refusal). The connection is
    /// closed.
    Http,
}

/// Headers of the relay information document (NIP-11).
const CORS: [(&str, &str); 3] = [
    ("Access-Control-Allow-Origin", "*"),
    ("Access-Control-Allow-Headers", "*"),
    ("Access-Control-Allow-Methods", "GET, HEAD, OPTIONS"),
];

const TEXT: (&str, &str) = ("Content-Type", "text/plain; charset=utf-8");

/// Takes an incoming connection through its handshake. Sets `TCP_NODELAY` before the first byte.
///
/// ```
/// # async fn example(config: wire::ServerConfig) -> Result<(), Box<dyn std::error::Error>> {
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:7777").await?;
/// loop {
///     let (stream, _) = listener.accept().await?;
///     if let wire::Accepted::WebSocket(mut client) = wire::accept(stream, &config).await? {
///         println!("{:?} speaks {}", client.peer_addr(), client.agreement().format);
///         client.close(wire::CloseCode::Normal, "").await;
///     }
/// }
/// # }
/// ```
///
/// # Errors
/// The errors of [`Incoming::read`] and [`Incoming::accept`].
pub async fn accept(stream: TcpStream, config: &ServerConfig) -> Result<Accepted, WireError> {
    Incoming::read(stream, config).await?.accept(config, None).await
}

/// An HTTP request that came, before it is answered: for servers that answer some themselves.
#[derive(Debug)]
pub struct Incoming {
    stream: Socket,
    head: Head<RequestLine>,
}

impl Incoming {
    /// Reads the head of a connection's request. Sets `TCP_NODELAY` before the first byte.
    ///
    /// # Errors
    /// [`WireError::Handshake`] for a head that is malformed, too large or too slow; a malformed or
    /// too large one is answered.
    pub async fn read(stream: TcpStream, config: &ServerConfig) -> Result<Incoming, WireError> {
        stream.set_nodelay(true)?;
        // Boxed: the task of a connection is as large as the largest future in it.
        in_time(&config.limits, Box::pin(read(stream, config))).await
    }

    /// Whether the request is for a WebSocket.
    pub fn asks_for_websocket(&self) -> bool {
        asks_for_websocket(&self.head)
    }

    /// The request's method, such as `GET`.
    pub fn method(&self) -> &str {
        &self.head.start.method
    }

    /// The request's target, such as `/`.
    pub fn target(&self) -> &str {
        &self.head.start.target
    }

    /// The minor version of HTTP/1.
    pub fn minor_version(&self) -> u8 {
        self.head.start.minor_version
    }

    /// The header fields.
    pub fn headers(&self) -> &HeaderMap {
        &self.head.headers
    }

    /// The values of a header as one list; `None` if it is absent.
    pub fn header(&self, name: &str) -> Option<String> {
        http::list(&self.head.headers, name)
    }

    /// The client's address.
    ///
    /// # Errors
    /// Errors of the socket.
    pub fn peer_addr(&self) -> std::io::Result<SocketAddr> {
        Ok(self.stream.tcp().addresses()?.0)
    }

    /// Reads a body of `bytes`, which the caller bounds.
    ///
    /// # Errors
    /// [`WireError::Handshake`] for a slow body, and errors of the socket.
    pub async fn body(&mut self, bytes: usize, config: &ServerConfig) -> Result<Vec<u8>, WireError> {
        let mut body = self.head.early.split_off(0);
        body.truncate(bytes);
        let here = body.len();
        body.resize(bytes, 0);
        let reading = async { Ok(self.stream.read_exact(&mut body[here..]).await.map(|_| ())?) };
        in_time(&config.limits, reading).await?;
        Ok(body)
    }

    /// Answers with JSON, and closes.
    pub async fn answer(self, status: &str, json: &str) {
        self.answer_with(status, &[("Content-Type", "application/json")], json.as_bytes()).await;
    }

    /// Answers with these header fields, next to the body's length, and closes.
    pub async fn answer_with(mut self, status: &str, headers: &[(&str, &str)], body: &[u8]) {
        http::answer(&mut self.stream, status, headers, body, self.head.start.method == "HEAD").await;
    }

    /// The byte stream behind the request's head, for a proxy that answers otherwise.
    pub fn into_stream(self) -> ByteStream {
        ByteStream::new(self.stream, self.head.early)
    }

    /// Never answers, until the client is gone.
    pub async fn ignore(mut self) {
        let _: Result<u64, std::io::Error> = tokio::io::copy(&mut self.stream, &mut tokio::io::sink()).await;
    }

    /// Resets TCP in place of an answer.
    pub fn reset(self) {
        self.stream.tcp().reset_when_dropped();
    }

    /// Takes the connection through its handshake, or answers a plain request. Bytes after the
    /// handshake pass through `tamper`.
    ///
    /// # Errors
    /// Errors of the socket. A well-formed request that is refused is [`Accepted::Http`].
    pub async fn accept(
        self,
        config: &ServerConfig,
        tamper: Option<Box<dyn Tamper>>,
    ) -> Result<Accepted, WireError> {
        in_time(&config.limits, Box::pin(handshake(self, config, tamper))).await
    }
}

async fn in_time<T>(
    limits: &WireLimits,
    work: impl Future<Output = Result<T, WireError>>,
) -> Result<T, WireError> {
    let timeout = limits.handshake_timeout;
    time::timeout(timeout, work)
        .await
        .map_err(|_| WireError::handshake(format!("no complete HTTP request within {timeout:?}")))?
}

async fn read(stream: TcpStream, config: &ServerConfig) -> Result<Incoming, WireError> {
    let limits = &config.limits;
    let tcp = Counted::new(stream);
    let mut stream = match &config.tls {
        Some(tls) => Socket::Tls(Box::new(tls.accept(tcp).await?)),
        None => Socket::Plain(tcp),
    };
    match http::read_request(&mut stream, limits.max_head_bytes).await {
        Ok(head) => Ok(Incoming { stream, head }),
        Err(HeadError::Wire(error)) => Err(error),
        Err(HeadError::TooLarge) => {
            let why = format!("HTTP head over {} bytes", limits.max_head_bytes);
            http::answer(&mut stream, "431 Request Header Fields Too Large", &[TEXT], why.as_bytes(), false)
                .await;
            Err(WireError::handshake(why))
        }
        Err(HeadError::Malformed(why)) => {
            let why = format!("malformed HTTP request: {why}");
            http::answer(&mut stream, "400 Bad Request", &[TEXT], why.as_bytes(), false).await;
            Err(WireError::handshake(why))
        }
    }
}

async fn handshake(
    incoming: Incoming,
    config: &ServerConfig,
    tamper: Option<Box<dyn Tamper>>,
) -> Result<Accepted, WireError> {
    let Incoming { mut stream, head } = incoming;
    match decide(&head, config) {
        Err(refusal) => {
            let leaves_body_out = head.start.method == "HEAD";
            let Plain { status, headers, body } = refusal;
            http::answer(&mut stream, status, &headers, body.as_bytes(), leaves_body_out).await;
            Ok(Accepted::Http)
        }
        Ok(Upgrade { response, agreement }) => {
            stream.write_all(&response).await?;
            stream.flush().await?;
            let bytes = HandshakeBytes::from_socket(&stream, &head.early);
            if let Some(tamper) = tamper {
                stream = Socket::Tampered(Box::new(Tampered::new(stream, tamper)));
            }
            let connection =
                Connection::new(stream, Role::Server, head.early, agreement, &config.limits, bytes).await?;
            Ok(Accepted::WebSocket(Box::new(connection)))
        }
    }
}

/// A handshake is a GET (RFC 6455 §4.1).
fn asks_for_websocket(head: &Head<RequestLine>) -> bool {
    head.start.method == "GET" && http::list_contains(&head.headers, "upgrade", "websocket")
}

struct Upgrade {
    response: Vec<u8>,
    agreement: Agreement,
}

/// An answer other than 101.
struct Plain {
    status: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    body: String,
}

fn plain(status: &'static str, body: impl Into<String>) -> Plain {
    Plain { status, headers: vec![TEXT], body: body.into() }
}

fn decide(head: &Head<RequestLine>, config: &ServerConfig) -> Result<Upgrade, Plain> {
    let RequestLine { method, target, minor_version } = &head.start;
    let uri: Uri = target.parse().map_err(|_| plain("400 Bad Request", "malformed request target"))?;
    if uri.path() != "/" {
        return Err(plain("404 Not Found", "this relay is at /"));
    }
    if method == "OPTIONS" {
        return Err(Plain { status: "204 No Content", headers: CORS.to_vec(), body: String::new() });
    }
    if !matches!(method.as_str(), "GET" | "HEAD") {
        let mut refusal = plain("405 Method Not Allowed", "use GET");
        refusal.headers.push(("Allow", "GET, HEAD, OPTIONS"));
        return Err(refusal);
    }
    if !asks_for_websocket(head) {
        return Err(document(head, config));
    }
    if *minor_version == 0 {
        return Err(plain("400 Bad Request", "a WebSocket handshake needs HTTP/1.1"));
    }
    upgrade(head, uri, config)
}

fn document(head: &Head<RequestLine>, config: &ServerConfig) -> Plain {
    let accepts = http::list(&head.headers, "accept").unwrap_or_default();
    if accepts.contains("application/nostr+json") {
        let mut headers = CORS.to_vec();
        headers.push(("Content-Type", "application/nostr+json"));
        return Plain { status: "200 OK", headers, body: config.relay_info.clone() };
    }
    let text = "A Nostr relay for load tests. Connect with a WebSocket, or ask for application/nostr+json.\n";
    plain("200 OK", text)
}

fn upgrade(head: &Head<RequestLine>, uri: Uri, config: &ServerConfig) -> Result<Upgrade, Plain> {
    let mut request = Request::new(());
    *request.uri_mut() = uri;
    *request.headers_mut() = head.headers.clone();
    let mut response = create_response(&request).map_err(|error| {
        let wrong_version = head.headers.get("sec-websocket-version").is_none_or(|version| version != "13");
        let status = if wrong_version { "426 Upgrade Required" } else { "400 Bad Request" };
        let mut refusal = plain(status, error.to_string());
        refusal.headers.extend([("Sec-WebSocket-Version", "13"), ("Upgrade", "websocket")]);
        refusal
    })?;

    let offered = |name| http::list(&head.headers, name);
    let (protocols, extensions) = (offered("sec-websocket-protocol"), offered("sec-websocket-extensions"));
    let agreement = negotiate::accept(protocols.as_deref(), extensions.as_deref(), &config.support)
        .map_err(|refusal| plain("400 Bad Request", format!("{refusal}\n")))?;
    let answers = [
        (header::SEC_WEBSOCKET_PROTOCOL, &agreement.token),
        (header::SEC_WEBSOCKET_EXTENSIONS, &agreement.extensions),
    ];
    for (name, answer) in answers {
        if let Some(answer) = answer {
            let value = HeaderValue::from_str(answer).expect("tokens and parameters are visible ASCII");
            response.headers_mut().insert(name, value);
        }
    }
    let mut bytes = Vec::new();
    write_response(&mut bytes, &response).expect("a Vec takes everything, and all values are visible ASCII");
    Ok(Upgrade { response: bytes, agreement })
}
