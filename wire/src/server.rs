//! The relay's side of the handshake, and plain HTTP.

use tokio::{io::AsyncWriteExt, net::TcpStream, time};
use tokio_tungstenite::tungstenite::{
    handshake::server::{create_response, write_response},
    http::{HeaderValue, Request, Uri, header},
    protocol::Role,
};

use crate::{
    agreement::{Agreement, Support, WireLimits},
    connection::{Connection, HandshakeBytes},
    error::WireError,
    http::{self, Head, HeadError, RequestLine},
    negotiate,
    socket::{Counted, Socket},
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
    /// A client behind its handshake.
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
/// [`WireError::Handshake`] for a head that is malformed, too large or too slow; a malformed or too
/// large one is answered. A well-formed request that is refused is [`Accepted::Http`].
pub async fn accept(stream: TcpStream, config: &ServerConfig) -> Result<Accepted, WireError> {
    stream.set_nodelay(true)?;
    let timeout = config.limits.handshake_timeout;
    // Boxed: the task of a connection is as large as the largest future in it.
    time::timeout(timeout, Box::pin(handshake(stream, config)))
        .await
        .map_err(|_| WireError::handshake(format!("no complete HTTP request within {timeout:?}")))?
}

async fn handshake(stream: TcpStream, config: &ServerConfig) -> Result<Accepted, WireError> {
    let limits = &config.limits;
    let tcp = Counted::new(stream);
    let mut stream = match &config.tls {
        Some(tls) => Socket::Tls(Box::new(tls.accept(tcp).await?)),
        None => Socket::Plain(tcp),
    };
    let head = match http::read_request(&mut stream, limits.max_head_bytes).await {
        Ok(head) => head,
        Err(HeadError::Wire(error)) => return Err(error),
        Err(HeadError::TooLarge) => {
            let why = format!("HTTP head over {} bytes", limits.max_head_bytes);
            http::answer(&mut stream, "431 Request Header Fields Too Large", &[TEXT], &why, false).await;
            return Err(WireError::handshake(why));
        }
        Err(HeadError::Malformed(why)) => {
            let why = format!("malformed HTTP request: {why}");
            http::answer(&mut stream, "400 Bad Request", &[TEXT], &why, false).await;
            return Err(WireError::handshake(why));
        }
    };
    match decide(&head, config) {
        Err(refusal) => {
            let leaves_body_out = head.start.method == "HEAD";
            let Plain { status, headers, body } = refusal;
            http::answer(&mut stream, status, &headers, &body, leaves_body_out).await;
            Ok(Accepted::Http)
        }
        Ok(Upgrade { response, agreement }) => {
            stream.write_all(&response).await?;
            stream.flush().await?;
            let bytes = HandshakeBytes::of(&stream, &head.early);
            let connection =
                Connection::new(stream, Role::Server, head.early, agreement, limits, bytes).await?;
            Ok(Accepted::WebSocket(Box::new(connection)))
        }
    }
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
    // A handshake is a GET (RFC 6455 §4.1).
    if method == "HEAD" || !http::list_contains(&head.headers, "upgrade", "websocket") {
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
