//! The relay's side of the handshake, and plain HTTP.

use std::{
    io::Cursor,
    net::{IpAddr, SocketAddr},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time,
};
use tokio_tungstenite::tungstenite::{
    handshake::server::{create_response, write_response},
    http::{HeaderValue, Method, Request, Version, header, uri::PathAndQuery},
    protocol::Role,
};

use crate::{
    agreement::{Agreement, Support, WireLimits},
    connection::{Connection, HandshakeBytes},
    error::WireError,
    http::{self, HeadError},
    negotiate,
    socket::{Counted, Socket},
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
    request: Request<()>,
    /// Bytes that came with the head.
    early: Vec<u8>,
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

    /// The request's head.
    pub fn request(&self) -> &Request<()> {
        &self.request
    }

    /// Whether the request is for a WebSocket.
    pub fn asks_for_websocket(&self) -> bool {
        asks_for_websocket(&self.request)
    }

    /// The request's method, such as `GET`.
    pub fn method(&self) -> &str {
        self.request.method().as_str()
    }

    /// The request's path and query, such as `/`.
    pub fn target(&self) -> &str {
        self.request.uri().path_and_query().map_or("", PathAndQuery::as_str)
    }

    /// The values of a header as one list; `None` if it is absent.
    pub fn header(&self, name: &str) -> Option<String> {
        http::list(self.request.headers(), name)
    }

    /// Whether `Host` names this host by an address or as `localhost`, which no web page elsewhere
    /// makes a browser say. A request without `Host` is of no browser.
    pub fn names_this_host(&self) -> bool {
        self.header("host").is_none_or(|hosts| hosts.split(", ").all(is_this_host))
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
        let mut body = std::mem::take(&mut self.early);
        body.truncate(bytes);
        let here = body.len();
        body.resize(bytes, 0);
        let reading = async { Ok(self.stream.read_exact(&mut body[here..]).await.map(|_| ())?) };
        in_time(&config.limits, reading).await?;
        Ok(body)
    }

    /// Answers with these header fields, next to the body's length, and closes.
    pub async fn answer_with(mut self, status: &str, headers: &[(&str, &str)], body: &[u8]) {
        http::answer(&mut self.stream, status, headers, body, self.request.method() == Method::HEAD).await;
    }

    /// Both directions of the byte stream behind the request's head, for a proxy that answers
    /// otherwise.
    pub fn into_stream(self) -> (impl AsyncRead + Send + Unpin, impl AsyncWrite + Send + Unpin) {
        let (input, output) = tokio::io::split(self.stream);
        (Cursor::new(self.early).chain(input), output)
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

fn is_this_host(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
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
        Ok((request, early)) => Ok(Incoming { stream, request, early }),
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
    let Incoming { mut stream, request, early } = incoming;
    match decide(&request, config) {
        Err(Plain { status, headers, body }) => {
            let leaves_body_out = request.method() == Method::HEAD;
            http::answer(&mut stream, status, &headers, body.as_bytes(), leaves_body_out).await;
            Ok(Accepted::Http)
        }
        Ok(Upgrade { response, agreement }) => {
            stream.write_all(&response).await?;
            stream.flush().await?;
            let bytes = HandshakeBytes::from_socket(&stream, &early);
            if let Some(tamper) = tamper {
                stream = Socket::Tampered(Box::new(Tampered::new(stream, tamper)));
            }
            let connection =
                Connection::new(stream, Role::Server, early, agreement, &config.limits, bytes).await?;
            Ok(Accepted::WebSocket(Box::new(connection)))
        }
    }
}

/// A handshake is a GET (RFC 6455 §4.1).
fn asks_for_websocket(request: &Request<()>) -> bool {
    request.method() == Method::GET && http::list_contains(request.headers(), "upgrade", "websocket")
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

fn decide(request: &Request<()>, config: &ServerConfig) -> Result<Upgrade, Plain> {
    if request.uri().path() != "/" {
        return Err(plain("404 Not Found", "this relay is at /"));
    }
    if request.method() == Method::OPTIONS {
        return Err(Plain { status: "204 No Content", headers: CORS.to_vec(), body: String::new() });
    }
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut refusal = plain("405 Method Not Allowed", "use GET");
        refusal.headers.push(("Allow", "GET, HEAD, OPTIONS"));
        return Err(refusal);
    }
    if !asks_for_websocket(request) {
        return Err(document(request, config));
    }
    if request.version() == Version::HTTP_10 {
        return Err(plain("400 Bad Request", "a WebSocket handshake needs HTTP/1.1"));
    }
    upgrade(request, config)
}

fn document(request: &Request<()>, config: &ServerConfig) -> Plain {
    let accepts = http::list(request.headers(), "accept").unwrap_or_default();
    if accepts.contains("application/nostr+json") {
        let mut headers = CORS.to_vec();
        headers.push(("Content-Type", "application/nostr+json"));
        return Plain { status: "200 OK", headers, body: config.relay_info.clone() };
    }
    let text = "A Nostr relay for load tests. Connect with a WebSocket, or ask for application/nostr+json.\n";
    plain("200 OK", text)
}

fn upgrade(request: &Request<()>, config: &ServerConfig) -> Result<Upgrade, Plain> {
    let mut response = create_response(request).map_err(|error| {
        let wrong_version =
            request.headers().get("sec-websocket-version").is_none_or(|version| version != "13");
        let status = if wrong_version { "426 Upgrade Required" } else { "400 Bad Request" };
        let mut refusal = plain(status, error.to_string());
        refusal.headers.extend([("Sec-WebSocket-Version", "13"), ("Upgrade", "websocket")]);
        refusal
    })?;

    let offered = |name| http::list(request.headers(), name);
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
