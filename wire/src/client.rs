//! The client's side of the handshake.

use std::io;

use tokio::{
    io::AsyncWriteExt,
    net::{TcpSocket, TcpStream, lookup_host},
    time,
};
use tokio_tungstenite::tungstenite::{
    handshake::{client::generate_key, derive_accept_key},
    http::{HeaderMap, Uri},
    protocol::Role,
};

use crate::{
    agreement::{Offer, WireLimits},
    connection::{Connection, HandshakeBytes},
    error::WireError,
    http::{self, Head, HeadError, StatusLine},
    negotiate,
    socket::{Counted, Socket},
    tls::ClientTls,
};

/// Excerpt of a refusing server's body in the error.
const MAX_EXCERPT_CHARS: usize = 300;

/// Connects to a relay and makes the offer. Sets `TCP_NODELAY` before the first byte. For `wss://`
/// it reads and trusts the platform's roots; a caller with many connections passes them to
/// [`connect_with`].
///
/// A relay that names no subprotocol is spoken to in plain JSON, as RFC 6455 §4.2.2 allows; the
/// agreement then has no token. A relay that refuses the request with a status that may be about
/// the unknown header is asked once more without the header
/// (docs/decisions/subprotocol-fallback.md).
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let offer = wire::Offer { formats: vec![], batched: false, compression: "deflate".parse()? };
/// let mut relay = wire::connect("wss://relay.example", &offer, &wire::WireLimits::default()).await?;
/// relay.feed(r#"["REQ","s",{"limit":1}]"#.into()).await?;
/// relay.flush().await?;
/// while let Some(message) = relay.next().await {
///     println!("{:?}", message?.payload);
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`WireError::Handshake`] says what the relay answered, with its HTTP status if it refused.
pub async fn connect(url: &str, offer: &Offer, limits: &WireLimits) -> Result<Connection, WireError> {
    connect_with(url, offer, limits, None).await
}

/// [`connect`] with given roots; `None` stands for the platform's.
///
/// # Errors
/// As [`connect`].
pub async fn connect_with(
    url: &str,
    offer: &Offer,
    limits: &WireLimits,
    tls: Option<&ClientTls>,
) -> Result<Connection, WireError> {
    let target = Target::parse(url)?.trusting(tls)?;
    match attempt(url, &target, offer, Tokens::Offered, limits).await {
        Err(WireError::Handshake { reason, status: Some(status) }) if may_be_about_tokens(status) => {
            attempt(url, &target, offer, Tokens::LeftOut, limits).await.map_err(|again| {
                let reason = format!("{reason}; and without Sec-WebSocket-Protocol: {again}");
                WireError::Handshake { reason, status: Some(status) }
            })
        }
        outcome => outcome,
    }
}

/// Whether the request has a `Sec-WebSocket-Protocol` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tokens {
    Offered,
    LeftOut,
}

/// A status of the 400s, except 401, 403 and 429, which a second request would repeat.
fn may_be_about_tokens(status: u16) -> bool {
    matches!(status, 400..=499) && !matches!(status, 401 | 403 | 429)
}

async fn attempt(
    url: &str,
    target: &Target,
    offer: &Offer,
    tokens: Tokens,
    limits: &WireLimits,
) -> Result<Connection, WireError> {
    let timeout = limits.handshake_timeout;
    time::timeout(timeout, handshake(target, offer, tokens, limits))
        .await
        .map_err(|_| WireError::handshake(format!("no complete handshake with {url} within {timeout:?}")))?
}

/// [`connect_with`] over the caller's TCP stream, for instance one that is bound to an address. A
/// refusal is final, because a second request needs a second stream.
///
/// # Errors
/// As [`connect`].
pub async fn connect_over(
    stream: TcpStream,
    url: &str,
    offer: &Offer,
    limits: &WireLimits,
    tls: Option<&ClientTls>,
) -> Result<Connection, WireError> {
    let target = Target::parse(url)?.trusting(tls)?;
    let timeout = limits.handshake_timeout;
    time::timeout(timeout, handshake_over(stream, &target, offer, Tokens::Offered, limits))
        .await
        .map_err(|_| WireError::handshake(format!("no complete handshake with {url} within {timeout:?}")))?
}

async fn handshake(
    target: &Target,
    offer: &Offer,
    tokens: Tokens,
    limits: &WireLimits,
) -> Result<Connection, WireError> {
    let tcp = tcp(target.host.as_str(), target.port, limits.receive_buffer_bytes).await?;
    handshake_over(tcp, target, offer, tokens, limits).await
}

async fn handshake_over(
    tcp: TcpStream,
    target: &Target,
    offer: &Offer,
    tokens: Tokens,
    limits: &WireLimits,
) -> Result<Connection, WireError> {
    tcp.set_nodelay(true)?;
    let tcp = Counted::new(tcp).hearing_out();
    let mut stream = match &target.tls {
        Some(tls) => Socket::Tls(Box::new(tls.connect(&target.host, tcp).await?)),
        None => Socket::Plain(tcp),
    };
    let key = generate_key();
    let request = target.request(&key, &negotiate::request(offer), tokens);
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;

    let head =
        http::read_response(&mut stream, limits.max_head_bytes).await.map_err(|error| match error {
            HeadError::Wire(error) => error,
            HeadError::TooLarge => WireError::handshake(format!(
                "the answer's HTTP head is over {} bytes",
                limits.max_head_bytes
            )),
            HeadError::Malformed(why) => WireError::handshake(format!("the answer is not HTTP/1.1: {why}")),
        })?;
    check_upgrade(&head, &key)?;
    let header = |name| http::list(&head.headers, name);
    let (protocol, extensions) = (header("sec-websocket-protocol"), header("sec-websocket-extensions"));
    if let (Tokens::LeftOut, Some(protocol)) = (tokens, &protocol) {
        let reason = format!("the relay chose the subprotocol {protocol:?}, although none was offered");
        return Err(WireError::handshake(reason));
    }
    let agreement = negotiate::check_answer(offer, protocol.as_deref(), extensions.as_deref())
        .map_err(WireError::handshake)?;
    let bytes = HandshakeBytes::of(&stream, &head.early);
    Connection::new(stream, Role::Client, head.early, agreement, limits, bytes).await
}

/// Connects to the first address of a name that answers.
async fn tcp(host: &str, port: u16, receive_buffer_bytes: Option<u32>) -> io::Result<TcpStream> {
    let Some(bytes) = receive_buffer_bytes else { return TcpStream::connect((host, port)).await };
    let mut refused = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in lookup_host((host, port)).await? {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // Before the connect, which offers the peer a window by it (tcp(7)).
        socket.set_recv_buffer_size(bytes)?;
        match socket.connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

/// The checks of RFC 6455 §4.1, except subprotocol and extensions.
fn check_upgrade(head: &Head<StatusLine>, key: &str) -> Result<(), WireError> {
    let status = head.start.status;
    if status != 101 {
        let body: String =
            String::from_utf8_lossy(&head.early).trim().chars().take(MAX_EXCERPT_CHARS).collect();
        let reason = format!("expected HTTP 101, the relay answered {status}: {body}");
        return Err(WireError::Handshake { reason, status: Some(status) });
    }
    let headers: &HeaderMap = &head.headers;
    for (name, word) in [("upgrade", "websocket"), ("connection", "upgrade")] {
        if !http::list_contains(headers, name, word) {
            return Err(WireError::handshake(format!("the answer has no \"{name}: {word}\" header")));
        }
    }
    if http::list(headers, "sec-websocket-accept") != Some(derive_accept_key(key.as_bytes())) {
        return Err(WireError::handshake("Sec-WebSocket-Accept does not fit the key that was sent"));
    }
    Ok(())
}

/// A parsed URL.
#[derive(Debug)]
struct Target {
    /// Whether it is `wss://`.
    secure: bool,
    tls: Option<ClientTls>,
    host: String,
    port: u16,
    /// Host and port as the URL has them.
    authority: String,
    path: String,
}

impl Target {
    fn parse(url: &str) -> Result<Target, WireError> {
        let uri: Uri =
            url.parse().map_err(|error| WireError::handshake(format!("{url:?} is not a URL: {error}")))?;
        let secure = match uri.scheme_str() {
            Some("ws") => false,
            Some("wss") => true,
            _ => return Err(WireError::handshake(format!("{url:?} does not begin with ws:// or wss://"))),
        };
        let authority =
            uri.authority().ok_or_else(|| WireError::handshake(format!("{url:?} has no host")))?;
        Ok(Target {
            secure,
            tls: None,
            host: authority.host().trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: authority.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            authority: authority.as_str().to_owned(),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        })
    }

    /// Takes the roots that a secure connection trusts; `None` stands for the platform's.
    fn trusting(mut self, tls: Option<&ClientTls>) -> Result<Target, WireError> {
        if self.secure {
            let tls = tls.cloned().map_or_else(ClientTls::platform, Ok);
            self.tls = Some(tls.map_err(|error| WireError::handshake(error.to_string()))?);
        }
        Ok(self)
    }

    fn request(&self, key: &str, offer: &negotiate::Request, tokens: Tokens) -> String {
        let Target { path, authority, .. } = self;
        let mut text = format!(
            "GET {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
        );
        if tokens == Tokens::Offered {
            text.push_str(&format!("Sec-WebSocket-Protocol: {}\r\n", offer.protocols));
        }
        if let Some(extensions) = &offer.extensions {
            text.push_str(&format!("Sec-WebSocket-Extensions: {extensions}\r\n"));
        }
        text.push_str("\r\n");
        text
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_small_receive_buffer_is_had_by_whatever_name_a_relay_is_reached() {
        for host in ["127.0.0.1", "localhost", "::ffff:127.0.0.1", "::1"] {
            let listen = if host == "::1" { "[::1]:0" } else { "127.0.0.1:0" };
            let Ok(listener) = TcpListener::bind(listen).await else {
                assert_eq!(host, "::1", "a host without IPv6 is no fault");
                continue;
            };
            let port = listener.local_addr().unwrap().port();
            let buffer_of = async |bytes| {
                let stream = tcp(host, port, bytes).await.unwrap().into_std().unwrap();
                TcpSocket::from_std_stream(stream).recv_buffer_size().unwrap()
            };
            let small = buffer_of(Some(16 << 10)).await;
            // The kernel doubles it for its own books (socket(7)).
            assert_eq!(small, 32 << 10, "{host}");
            assert!(buffer_of(None).await > small, "{host}");
        }
    }
}
