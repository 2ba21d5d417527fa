//! The client's side of the handshake.

use std::{
    env, io,
    net::SocketAddr,
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use futures::{StreamExt, stream::FuturesUnordered};

use rustls::pki_types::CertificateDer;
use terms::{Header, HeaderError, RelayUrl, RelayUrlError};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpSocket, TcpStream, lookup_host},
    sync::OnceCell,
    time,
};
use tokio_tungstenite::tungstenite::{
    handshake::{client::generate_key, derive_accept_key},
    http::{HeaderMap, Response},
    protocol::Role,
};

use crate::{
    agreement::{Offer, Token, WireLimits},
    connection::{Connection, HandshakeBytes},
    error::WireError,
    http::{self, HeadError},
    negotiate,
    socket::{Counted, Socket},
    tls::{ClientTls, TlsError},
};

/// Silence after a ClientHello after which the relay is tried without TLS, and time for its answer.
const SILENT_TO_TLS: Duration = Duration::from_secs(2);

/// Time for an address before the next one is tried beside it (RFC 8305 §5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Variables that name a proxy to other programs.
const PROXY_VARIABLES: [&str; 6] =
    ["ALL_PROXY", "all_proxy", "HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"];

/// Shorter parts of header values are words, such as `https` or `Bearer`.
const SHORTEST_SECRET_BYTES: usize = 8;

/// Connects to a relay and makes the offer. Sets `TCP_NODELAY` before the first byte. For `wss://`
/// it reads and trusts the platform's roots; a caller with many connections, or with roots of its
/// own, has an [`Endpoint`].
///
/// With a relay that names no subprotocol the client speaks plain JSON, as RFC 6455 §4.2.2 allows.
/// The agreement then has no token. A relay that refuses the request with a status that may be
/// about the unknown header is asked once more without the header
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
/// [`WireError::Handshake`] has the relay's answer, with its HTTP status if it rejected the
/// request.
pub async fn connect(url: &str, offer: &Offer, limits: &WireLimits) -> Result<Connection, WireError> {
    let url: RelayUrl =
        url.parse().map_err(|error: RelayUrlError| WireError::handshake(error.to_string()))?;
    let relay = Endpoint::new(url, None).map_err(|error| WireError::handshake(error.to_string()))?;
    relay.connect(offer, limits).await
}

/// A relay as clients reach it: its address, the header fields of their requests and, for `wss://`,
/// the roots that they trust.
#[derive(Debug, Clone)]
pub struct Endpoint {
    url: RelayUrl,
    headers: Arc<[Header]>,
    tls: Option<ClientTls>,
    /// Whether a request names plain JSON, where it would name nothing else.
    names_json: bool,
    /// The name's addresses, looked up once for all connections and clones, because a resolver's
    /// time and failures are not the relay's.
    addresses: Arc<OnceCell<Vec<SocketAddr>>>,
    /// The address of the first connection.
    reached: Arc<OnceLock<SocketAddr>>,
    /// Whether a relay that was silent to TLS answers without it: tried once for all connections.
    answers_plain: Arc<OnceCell<bool>>,
}

impl Endpoint {
    /// Reads the roots that `wss://` needs: the platform's, or those in a PEM file.
    ///
    /// # Errors
    /// When there are none.
    pub fn new(url: RelayUrl, ca: Option<&Path>) -> Result<Endpoint, TlsError> {
        let roots = || ca.map_or_else(ClientTls::platform, ClientTls::from_file);
        let tls = url.is_secure().then(roots).transpose()?;
        Ok(Endpoint {
            url,
            headers: Arc::default(),
            tls,
            names_json: true,
            addresses: Arc::default(),
            reached: Arc::default(),
            answers_plain: Arc::default(),
        })
    }

    /// Sets the header fields of every request, NIP-11's included, in place of earlier ones.
    ///
    /// # Errors
    /// When a field would stand in a request twice.
    pub fn with_headers(self, headers: Vec<Header>) -> Result<Endpoint, HeaderError> {
        Header::distinct(&headers)?;
        let authorization = headers.iter().find(|header| header.is("authorization"));
        if let Some(header) = authorization.filter(|_| self.url.authorization().is_some()) {
            return Err(HeaderError::OfUrl(header.name().to_owned()));
        }
        Ok(Endpoint { headers: headers.into(), ..self })
    }

    /// Leaves `Sec-WebSocket-Protocol` out where plain JSON is all that it would name, as clients do
    /// that know no subprotocol.
    #[must_use]
    pub fn without_plain_token(self) -> Endpoint {
        Endpoint { names_json: false, ..self }
    }

    /// The address of the first connection to the relay, once there was one.
    pub fn reached(&self) -> Option<SocketAddr> {
        self.reached.get().copied()
    }

    /// Why a relay that was given so much time was not reached; `None` of a relay that took a
    /// connection.
    pub fn unreached(&self, within: Duration) -> Option<WireError> {
        let none = self.reached.get().is_none();
        let addresses = self.addresses.get().map_or(&[][..], Vec::as_slice);
        none.then(|| {
            let tried = match addresses {
                [] => "its name was not resolved".to_owned(),
                all => format!(
                    "no answer from {}",
                    all.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ")
                ),
            };
            let reason =
                format!("{} was not reached within {within:?}: {tried}{}", self.url, self.ignored_proxy());
            WireError::Io(io::Error::new(io::ErrorKind::TimedOut, reason))
        })
    }

    /// The relay's address.
    pub fn url(&self) -> &RelayUrl {
        &self.url
    }

    /// Fields that every request has next to its protocol's, in their order.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let agent = ("User-Agent", USER_AGENT);
        let agent = Some(agent).filter(|(name, _)| !self.headers.iter().any(|header| header.is(name)));
        let authorization = self.url.authorization().map(|value| ("Authorization", value));
        let given = self.headers.iter().map(|header| (header.name(), header.value()));
        agent.into_iter().chain(authorization).chain(given)
    }

    /// The roots that are trusted; none without TLS.
    pub(crate) fn roots(&self) -> &[CertificateDer<'static>] {
        self.tls.as_ref().map_or(&[], ClientTls::roots)
    }

    /// Whether requests have headers of the user.
    pub(crate) fn has_headers(&self) -> bool {
        !self.headers.is_empty()
    }

    /// [`connect`] to this relay.
    ///
    /// # Errors
    /// As [`connect`].
    pub async fn connect(&self, offer: &Offer, limits: &WireLimits) -> Result<Connection, WireError> {
        self.connect_by_any(std::slice::from_ref(offer), limits).await
    }

    /// [`Endpoint::connect`] with several offers, in order of preference: the relay chooses.
    ///
    /// # Errors
    /// As [`connect`].
    pub async fn connect_by_any(
        &self,
        offers: &[Offer],
        limits: &WireLimits,
    ) -> Result<Connection, WireError> {
        let once = async |tokens| {
            let handshake = async {
                let stream = self.socket(limits).await?;
                self.handshake(stream, offers, tokens, limits).await
            };
            self.attempt(handshake, limits).await
        };
        match once(Tokens::Offered).await {
            Err(WireError::Handshake { reason, status: Some(status) }) if may_be_about_tokens(status) => {
                once(Tokens::LeftOut).await.map_err(|again| {
                    let reason = format!("{reason}; and without Sec-WebSocket-Protocol: {again}");
                    WireError::Handshake { reason, status: Some(status) }
                })
            }
            outcome => outcome,
        }
    }

    /// [`Endpoint::connect`] over the caller's TCP stream, for instance one that is bound to an
    /// address. A refusal is final, because a second request needs a second stream.
    ///
    /// # Errors
    /// As [`connect`].
    pub async fn connect_over(
        &self,
        stream: TcpStream,
        offer: &Offer,
        limits: &WireLimits,
    ) -> Result<Connection, WireError> {
        let handshake = async {
            let (stream, offers) = (self.socket_over(stream).await?, std::slice::from_ref(offer));
            self.handshake(stream, offers, Tokens::Offered, limits).await
        };
        self.attempt(handshake, limits).await
    }

    async fn attempt(
        &self,
        handshake: impl Future<Output = Result<Connection, WireError>>,
        limits: &WireLimits,
    ) -> Result<Connection, WireError> {
        let timeout = limits.handshake_timeout;
        let late = || {
            if let Some(unreached) = self.unreached(timeout) {
                return unreached;
            }
            let hint = if self.url.is_secure() { self.other_scheme() } else { String::new() };
            let proxy = self.ignored_proxy();
            WireError::handshake(format!(
                "no complete handshake with {} within {timeout:?}: what listens there is silent, or no relay; correct host \
                 and port{hint}{proxy}",
                self.url
            ))
        };
        let outcome = time::timeout(timeout, handshake).await.map_err(|_| late())?;
        outcome.map_err(|error| match error {
            WireError::Io(error) if is_unreached(&error) => {
                WireError::Io(io::Error::new(error.kind(), format!("{error}{}", self.ignored_proxy())))
            }
            WireError::Handshake { reason, status } => {
                WireError::Handshake { reason: self.withheld(reason), status }
            }
            error => error,
        })
    }

    /// Names a proxy variable that is set, after a failure to reach another host. Connections to a
    /// relay are direct.
    pub fn ignored_proxy(&self) -> String {
        let variable =
            PROXY_VARIABLES.into_iter().find(|name| env::var_os(name).is_some_and(|it| !it.is_empty()));
        match variable.filter(|_| !self.url.is_loopback()) {
            Some(name) => format!("; {name} is set, but connections to relays use no proxy"),
            None => String::new(),
        }
    }

    /// A reason with `***` where the peer repeats values that may be secrets.
    fn withheld(&self, reason: String) -> String {
        let values = self.fields().filter(|(_, value)| *value != USER_AGENT).map(|(_, value)| value);
        let parts = values.flat_map(|value| value.split([' ', ',', ';', '=']));
        let secrets = parts.filter(|part| part.len() >= SHORTEST_SECRET_BYTES);
        secrets.fold(reason, |reason, secret| reason.replace(secret, "***"))
    }

    /// Opens a byte stream to the relay, TLS included, and sends nothing: for a proxy.
    ///
    /// # Errors
    /// As [`connect`], before the request.
    pub async fn open(
        &self,
        limits: &WireLimits,
    ) -> Result<impl AsyncRead + AsyncWrite + Send + Unpin + use<>, WireError> {
        self.socket(limits).await
    }

    /// Connects as a proxy does for a client: with the target and the header fields of its request,
    /// for plain JSON without subprotocol and extension.
    ///
    /// # Errors
    /// As [`connect`].
    pub async fn connect_for(
        &self,
        target: &str,
        fields: &HeaderMap,
        limits: &WireLimits,
    ) -> Result<Connection, WireError> {
        let handshake = async {
            let (stream, key) = (self.socket(limits).await?, generate_key());
            let fields = fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
            let request = upgrade_request(target, &key, fields);
            self.upgrade(stream, &request, &key, (&[], Tokens::LeftOut), limits).await
        };
        self.attempt(handshake, limits).await
    }

    /// The relay's addresses, looked up once for all connections.
    ///
    /// # Errors
    /// The resolver's.
    pub async fn addresses(&self) -> io::Result<&[SocketAddr]> {
        let host = self.url.host();
        let corrects = |error: io::Error| {
            io::Error::new(
                error.kind(),
                format!("{error}; correct the host, or check this machine's name server"),
            )
        };
        let found =
            async || Ok(lookup_host((host.as_str(), self.url.port())).await.map_err(corrects)?.collect());
        self.addresses.get_or_try_init(found).await.map(Vec::as_slice)
    }

    async fn handshake(
        &self,
        stream: Socket,
        offers: &[Offer],
        tokens: Tokens,
        limits: &WireLimits,
    ) -> Result<Connection, WireError> {
        let key = generate_key();
        let is_plain = Offer::tokens_of(offers) == [Token::JSON];
        let tokens = if is_plain && !self.names_json { Tokens::LeftOut } else { tokens };
        let negotiate::Request { protocols, extensions } = negotiate::request(offers);
        let protocols = (tokens == Tokens::Offered).then_some(("Sec-WebSocket-Protocol", &*protocols));
        let extensions = extensions.as_deref().map(|extensions| ("Sec-WebSocket-Extensions", extensions));
        let authority = self.url.authority();
        let fields = [("Host", &*authority)].into_iter().chain(self.fields());
        let fields = fields.chain(protocols).chain(extensions).map(|(name, value)| (name, value.as_bytes()));
        let request = upgrade_request(&self.url.resource(), &key, fields);
        self.upgrade(stream, &request, &key, (offers, tokens), limits).await
    }

    /// A new stream on which a request may be sent.
    async fn socket(&self, limits: &WireLimits) -> Result<Socket, WireError> {
        self.socket_over(tcp(self.addresses().await?, limits.receive_buffer_bytes).await?).await
    }

    /// The stream on which a request may be sent: with TLS for `wss://`.
    async fn socket_over(&self, tcp: TcpStream) -> Result<Socket, WireError> {
        tcp.set_nodelay(true)?;
        // The first connection sets it.
        let _ = self.reached.set(tcp.peer_addr()?);
        let tcp = Counted::new(tcp).hearing_out();
        Ok(match &self.tls {
            Some(tls) => {
                let host = self.url.host();
                let stream = tokio::select! {
                    biased;
                    stream = tls.connect(&host, tcp, || self.other_scheme()) => stream?,
                    () = self.is_found_plain() => {
                        let hint = self.other_scheme();
                        let reason = format!("no TLS with {host}: it is silent to TLS and answers HTTP without it{hint}");
                        return Err(WireError::handshake(reason));
                    }
                };
                // From now on silence is that of a busy relay. Fails while the relay is being
                // asked, which then decides.
                let _ = self.answers_plain.set(false);
                Socket::Tls(Box::new(stream))
            }
            None => Socket::Plain(tcp),
        })
    }

    /// Sends a request with this key and makes the answer a connection.
    async fn upgrade(
        &self,
        mut stream: Socket,
        request: &[u8],
        key: &str,
        (offers, tokens): (&[Offer], Tokens),
        limits: &WireLimits,
    ) -> Result<Connection, WireError> {
        stream.write_all(request).await?;
        stream.flush().await?;

        let (answer, early) =
            http::read_response(&mut stream, limits.max_head_bytes).await.map_err(|error| match error {
                HeadError::Wire(WireError::Handshake { reason, status }) if self.tls.is_none() => {
                    WireError::Handshake { reason: format!("{reason}{}", self.other_scheme()), status }
                }
                HeadError::Wire(error) => error,
                HeadError::TooLarge => WireError::handshake(format!(
                    "the answer's HTTP head is over {} bytes",
                    limits.max_head_bytes
                )),
                HeadError::Malformed(why) => {
                    let hint = if self.tls.is_none() { self.other_scheme() } else { String::new() };
                    WireError::handshake(format!("the answer is not HTTP/1.1: {why}{hint}"))
                }
            })?;
        check_upgrade(&answer, &early, key)?;
        let header = |name| http::list(answer.headers(), name);
        let (protocol, extensions) = (header("sec-websocket-protocol"), header("sec-websocket-extensions"));
        if let (Tokens::LeftOut, Some(protocol)) = (tokens, &protocol) {
            let reason = format!("the relay chose the subprotocol {protocol:?}, although none was offered");
            return Err(WireError::handshake(reason));
        }
        let agreement = negotiate::check_answer(offers, protocol.as_deref(), extensions.as_deref())
            .map_err(WireError::handshake)?;
        let bytes = HandshakeBytes::from_socket(&stream, &early);
        Connection::new(stream, Role::Client, early, agreement, limits, bytes).await
    }

    /// Completes once a relay that was silent to TLS for a while has answered without it.
    async fn is_found_plain(&self) {
        time::sleep(SILENT_TO_TLS).await;
        if !*self.answers_plain.get_or_init(|| self.ask_plainly()).await {
            std::future::pending::<()>().await;
        }
    }

    /// Requests an upgrade without TLS, and sends nothing of the user's in clear text.
    async fn ask_plainly(&self) -> bool {
        let asking = async {
            let mut tcp = tcp(self.addresses().await?, None).await?;
            let (host, key) = (self.url.authority(), generate_key());
            let fields = [("Host", host.as_bytes()), ("User-Agent", USER_AGENT.as_bytes())];
            tcp.write_all(&upgrade_request("/", &key, fields)).await?;
            let mut status = [0; b"HTTP/1.1 400".len()];
            tcp.read_exact(&mut status).await?;
            io::Result::Ok(status)
        };
        // Servers with TLS answer 400 to what is none, in plain text.
        let answers = |status: &[u8]| status.starts_with(b"HTTP/1.") && !status.ends_with(b" 400");
        matches!(time::timeout(SILENT_TO_TLS, asking).await, Ok(Ok(status)) if answers(&status))
    }

    /// The address with the other scheme, after a failure that a wrong scheme explains.
    fn other_scheme(&self) -> String {
        let (relay, scheme) = if self.url.is_secure() { ("without TLS", "ws") } else { ("with TLS", "wss") };
        format!("; a relay {relay} is {scheme}://{}", self.url.authority())
    }
}

/// A request for a WebSocket with these fields before its own.
fn upgrade_request<'f>(
    target: &str,
    key: &str,
    fields: impl IntoIterator<Item = (&'f str, &'f [u8])>,
) -> Vec<u8> {
    let mut request = format!("GET {target} HTTP/1.1\r\n").into_bytes();
    for (name, value) in fields {
        request.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
    }
    let own = format!(
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n"
    );
    request.extend(own.as_bytes());
    request
}

/// Whether the request has a `Sec-WebSocket-Protocol` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tokens {
    Offered,
    LeftOut,
}

/// Whether the relay was not reached, rather than that this machine has no room for the connection.
fn is_unreached(error: &io::Error) -> bool {
    use io::ErrorKind::{HostUnreachable, NetworkUnreachable, TimedOut};
    // A name that is not resolved, and a refusal with its advice, have no code of the system.
    error.raw_os_error().is_none() || matches!(error.kind(), HostUnreachable | NetworkUnreachable | TimedOut)
}

/// A status of the 400s, except 401, 403 and 429, which a second request would repeat.
fn may_be_about_tokens(status: u16) -> bool {
    matches!(status, 400..=499) && !matches!(status, 401 | 403 | 429)
}

/// Firewalls answer 403 to a request without a User-Agent (RFC 9110 §10.1.5).
const USER_AGENT: &str = concat!("nostr-load-test/", env!("CARGO_PKG_VERSION"));

/// Connects to the first address that answers. After 250 ms of silence the next one is
/// tried, too, and families take turns (Happy Eyeballs, RFC 8305 §4 and §5).
async fn tcp(addresses: &[SocketAddr], receive_buffer_bytes: Option<u32>) -> io::Result<TcpStream> {
    let mut left = in_turns(addresses).into_iter();
    let mut attempts = FuturesUnordered::new();
    let mut refused = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    loop {
        attempts.extend(left.next().map(|address| tcp_to(address, receive_buffer_bytes)));
        let has_next = left.len() > 0;
        tokio::select! {
            attempt = attempts.next() => match attempt {
                Some(Ok(stream)) => return Ok(stream),
                Some(Err(error)) => refused = error,
                None => return Err(refused),
            },
            () = time::sleep(ATTEMPT_DELAY), if has_next => {}
        }
    }
}

async fn tcp_to(address: SocketAddr, receive_buffer_bytes: Option<u32>) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    if let Some(bytes) = receive_buffer_bytes {
        // Before the connect, which offers the peer a window by it (tcp(7)).
        socket.set_recv_buffer_size(bytes)?;
    }
    socket.connect(address).await
}

/// Addresses in the resolver's order, but one family after the other, the first one's first.
fn in_turns(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let is_first = |address: &SocketAddr| address.is_ipv4() == addresses[0].is_ipv4();
    let (first, other): (Vec<_>, Vec<_>) = addresses.iter().copied().partition(is_first);
    let turn = |n: usize| [first.get(n), other.get(n)].into_iter().flatten();
    (0..addresses.len()).flat_map(turn).copied().collect()
}

/// The checks of RFC 6455 §4.1, except subprotocol and extensions.
fn check_upgrade(answer: &Response<()>, body: &[u8], key: &str) -> Result<(), WireError> {
    let (status, headers) = (answer.status().as_u16(), answer.headers());
    if status != 101 {
        let reason = format!("expected HTTP 101, the relay answered {status}{}", refusal(answer, body));
        return Err(WireError::Handshake { reason, status: Some(status) });
    }
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

/// The reason in an answer without upgrade: the relay's new address, the requested credentials (RFC
/// 9110 §10.2.2 and §11.6.1), or the answer's text; the title of an HTML page.
fn refusal(answer: &Response<()>, body: &[u8]) -> String {
    let header = |name| http::list(answer.headers(), name);
    let excerpt = |text: &str| codecs::quoted(text.trim());
    let body = String::from_utf8_lossy(body);
    match (answer.status().as_u16(), header("location"), header("www-authenticate")) {
        (301 | 302 | 303 | 307 | 308, Some(target), _) => {
            format!(": the relay is at {}; give that address", excerpt(&target))
        }
        (401, _, Some(challenge)) => {
            let scheme = challenge.split([' ', ',']).next().unwrap_or_default();
            let how =
                if scheme.eq_ignore_ascii_case("basic") { ", as in ws://name:password@host" } else { "" };
            format!(": it wants credentials by the scheme {}{how}", excerpt(scheme))
        }
        _ => match title(&body) {
            Some(title) => format!(": {}", excerpt(title)),
            None if body.trim_start().starts_with('<') => ": a page of HTML".to_owned(),
            None => format!(": {}", excerpt(&body)),
        },
    }
}

/// The text between the tags of a page's title.
fn title(page: &str) -> Option<&str> {
    // ASCII keeps every place as it is.
    let lower = page.to_ascii_lowercase();
    let opens = lower.find("<title")?;
    let begins = opens + lower[opens..].find('>')? + 1;
    let ends = begins + lower[begins..].find("</title")?;
    Some(page[begins..ends].trim())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_small_receive_buffer_is_had_by_whatever_name_a_relay_is_reached() {
        for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "[::1]"] {
            let listen = if host == "[::1]" { "[::1]:0" } else { "127.0.0.1:0" };
            let Ok(listener) = TcpListener::bind(listen).await else {
                assert_eq!(host, "[::1]", "a host without IPv6 is no fault");
                continue;
            };
            let url = format!("ws://{host}:{}", listener.local_addr().unwrap().port());
            let relay = Endpoint::new(url.parse().unwrap(), None).unwrap();
            let buffer_of = async |bytes| {
                let stream = tcp(relay.addresses().await.unwrap(), bytes).await.unwrap();
                TcpSocket::from_std_stream(stream.into_std().unwrap()).recv_buffer_size().unwrap()
            };
            let small = buffer_of(Some(16 << 10)).await;
            // The kernel doubles it for its own books (socket(7)).
            assert_eq!(small, 32 << 10, "{host}");
            assert!(buffer_of(None).await > small, "{host}");
        }
    }

    #[tokio::test]
    async fn an_address_that_swallows_packets_does_not_hide_a_good_one() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let good = listener.local_addr().unwrap();
        // TEST-NET-1 (RFC 5737): refused at once or never answered, by the host's routes.
        let silent: SocketAddr = "192.0.2.1:9".parse().unwrap();
        let stream = time::timeout(Duration::from_secs(5), tcp(&[silent, silent, good], None)).await;
        assert_eq!(stream.expect("the third has its turn").unwrap().peer_addr().unwrap(), good);
        let six: SocketAddr = "[::1]:9".parse().unwrap();
        assert_eq!(in_turns(&[six, six, good, silent]), [six, good, six, silent]);
        assert_eq!((in_turns(&[good, silent]), in_turns(&[])), (vec![good, silent], vec![]));
        assert!(tcp(&[], None).await.is_err());
    }

    #[tokio::test]
    async fn a_name_is_looked_up_once_for_all_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        // RFC 6761: no resolver knows the name, so whoever asks again fails.
        let relay = Endpoint::new("ws://relay.invalid".parse().unwrap(), None).unwrap();
        assert!(relay.addresses().await.is_err(), "a failure is not kept");
        relay.addresses.set(vec![listener.local_addr().unwrap()]).unwrap();
        for relay in [relay.clone(), relay] {
            assert!(tcp(relay.addresses().await.unwrap(), None).await.is_ok());
        }
    }
}
