//! A client's request, and what the relay is told of it.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, HeaderValue, Version, header};
use ipnet::IpNet;
use wire::Incoming;

/// Fields of one connection (RFC 9110 §7.6.1), and fields by which fronts name a client.
const NOT_PASSED: [&str; 11] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "upgrade",
    "te",
    "trailer",
    "forwarded",
    "x-real-ip",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-host",
];

/// Tokens of this repository begin so. Some relays echo any token, which the client would believe.
const OUR_TOKENS: &str = "nostr.";

/// Where requests for dictionaries begin (RFC 8615).
pub(crate) const DICTIONARIES: &str = "/.well-known/nostr/dictionary/";

/// A request as the relay shall see it.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// The client's address, behind fronts that are trusted.
    pub(crate) client: IpAddr,
    pub(crate) target: String,
    pub(crate) method: String,
    is_http_1_0: bool,
    pub(crate) fields: HeaderMap,
    /// Bytes of the body that the relay may be sent.
    pub(crate) body_bytes: u64,
    pub(crate) for_websocket: bool,
}

impl Request {
    /// Reads a request; `tls` is whether it came by TLS.
    ///
    /// # Errors
    /// Why it is answered with 400: two readers could understand it differently.
    pub(crate) fn of(incoming: &Incoming, trust: &[IpNet], tls: bool) -> Result<Request, &'static str> {
        let peer = incoming.peer_addr().map_err(|_| "the client is gone")?.ip().to_canonical();
        let (given, target) = (incoming.request().headers(), incoming.request().uri().to_string());
        if !target.starts_with('/') && target != "*" {
            return Err("a request names a path, not an address");
        }
        if given.get_all(header::HOST).iter().count() > 1 {
            return Err("Host is given twice");
        }
        let (length, coding) = (incoming.header("content-length"), given.get(header::TRANSFER_ENCODING));
        let body_bytes = match (length, coding) {
            (None, None) => 0,
            (None, Some(_)) => u64::MAX,
            (Some(length), None) => length.parse().map_err(|_| "Content-Length is not a number")?,
            (Some(_), Some(_)) => return Err("Content-Length and Transfer-Encoding exclude each other"),
        };
        let for_websocket = incoming.asks_for_websocket();
        if for_websocket && body_bytes > 0 {
            return Err("a WebSocket handshake has no body");
        }
        let client = client_address(peer, incoming.header("x-forwarded-for").as_deref(), trust);
        Ok(Request {
            client,
            target,
            method: incoming.method().to_owned(),
            is_http_1_0: incoming.request().version() == Version::HTTP_10,
            fields: fields(given, client, is_trusted(peer, trust), tls),
            body_bytes,
            for_websocket,
        })
    }

    /// Whether it is for the relay itself, which is at `/`.
    pub(crate) fn is_for_relay(&self) -> bool {
        self.target.split('?').next() == Some("/")
    }

    /// The value of a field as one list.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        wire::header_list(&self.fields, name)
    }

    /// Takes the offers of subprotocols that are ours off, and of compression where it is declined.
    pub(crate) fn strip_offers(&mut self, declines_compression: bool) {
        if let Some(offered) = self.field("sec-websocket-protocol") {
            let others = offered.split(',').map(str::trim).filter(|token| !token.starts_with(OUR_TOKENS));
            let others = others.collect::<Vec<_>>().join(", ");
            self.fields.remove(header::SEC_WEBSOCKET_PROTOCOL);
            if let Some(others) = HeaderValue::from_str(&others).ok().filter(|others| !others.is_empty()) {
                self.fields.insert(header::SEC_WEBSOCKET_PROTOCOL, others);
            }
        }
        if declines_compression {
            self.fields.remove(header::SEC_WEBSOCKET_EXTENSIONS);
        }
    }

    /// Takes the client's handshake off.
    pub(crate) fn strip_handshake(&mut self) {
        let names: Vec<HeaderName> = self.fields.keys().cloned().collect();
        for name in names.iter().filter(|name| name.as_str().starts_with("sec-websocket-")) {
            self.fields.remove(name);
        }
    }

    /// The head for the relay: for a WebSocket, or for one answer after which the relay closes.
    pub(crate) fn head(&self) -> Vec<u8> {
        let connection = if self.for_websocket {
            "Connection: Upgrade\r\nUpgrade: websocket\r\n"
        } else {
            "Connection: close\r\n"
        };
        let start = format!("{} {} HTTP/1.{}\r\n", self.method, self.target, u8::from(!self.is_http_1_0));
        let mut head = [start.as_bytes(), connection.as_bytes()].concat();
        for (name, value) in &self.fields {
            head.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        head.extend(b"\r\n");
        head
    }

    /// The same by HTTP/1.0, whose answers are not in chunks, and without compression of the body.
    pub(crate) fn for_one_body(&self) -> Request {
        let mut request = Request { is_http_1_0: true, ..self.clone() };
        request.fields.remove(header::ACCEPT_ENCODING);
        request
    }
}

fn is_trusted(address: IpAddr, trust: &[IpNet]) -> bool {
    trust.iter().any(|network| network.contains(&address))
}

/// The last address of `X-Forwarded-For` that no trusted front has. Only a trusted peer is believed.
fn client_address(peer: IpAddr, forwarded: Option<&str>, trust: &[IpNet]) -> IpAddr {
    let mut client = peer;
    for text in forwarded.unwrap_or_default().rsplit(',').map(str::trim) {
        let address = text.parse().or_else(|_| text.parse().map(|address: SocketAddr| address.ip()));
        match address {
            Ok(address) if is_trusted(client, trust) => client = address.to_canonical(),
            _ => break,
        }
    }
    client
}

/// The fields for the relay: those of the client, and who it is.
fn fields(given: &HeaderMap, client: IpAddr, is_trusted: bool, tls: bool) -> HeaderMap {
    let listed = given.get_all(header::CONNECTION).iter().filter_map(|line| line.to_str().ok());
    let named: Vec<String> =
        listed.flat_map(|line| line.split(',')).map(|name| name.trim().to_ascii_lowercase()).collect();
    let mut fields = HeaderMap::new();
    for (name, value) in given {
        if !NOT_PASSED.contains(&name.as_str()) && !named.iter().any(|one| one == name.as_str()) {
            fields.append(name, value.clone());
        }
    }
    for name in ["x-forwarded-proto", "x-forwarded-host"] {
        if let Some(value) = given.get(name).filter(|_| is_trusted) {
            fields.insert(HeaderName::from_static(name), value.clone());
        }
    }
    let scheme = HeaderValue::from_static(if tls { "https" } else { "http" });
    fields.entry("x-forwarded-proto").or_insert(scheme);
    let client = HeaderValue::from_str(&client.to_string()).expect("an address is visible ASCII");
    fields.insert("x-real-ip", client.clone());
    fields.insert("x-forwarded-for", client);
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::parse;

    #[test]
    fn only_what_trusted_fronts_say_about_the_client_is_believed() {
        let trust: Vec<IpNet> = ["127.0.0.1", "10.0.0.0/8"].map(|one| parse(one).unwrap()).into();
        for (peer, forwarded, client) in [
            ("192.0.2.1", None, "192.0.2.1"),
            ("192.0.2.1", Some("198.51.100.7"), "192.0.2.1"),
            ("127.0.0.1", None, "127.0.0.1"),
            ("127.0.0.1", Some("198.51.100.7"), "198.51.100.7"),
            ("127.0.0.1", Some("203.0.113.9, 198.51.100.7"), "198.51.100.7"),
            ("127.0.0.1", Some("203.0.113.9, 198.51.100.7, 10.0.0.2"), "198.51.100.7"),
            ("127.0.0.1", Some("2001:db8::1"), "2001:db8::1"),
            ("127.0.0.1", Some("[2001:db8::1]:7"), "2001:db8::1"),
            ("127.0.0.1", Some("198.51.100.7:7"), "198.51.100.7"),
            ("127.0.0.1", Some("198.51.100.7, unknown"), "127.0.0.1"),
            ("127.0.0.1", Some("198.51.100.7, unknown, 10.0.0.2"), "10.0.0.2"),
            ("127.0.0.1", Some(""), "127.0.0.1"),
        ] {
            let found = client_address(peer.parse().unwrap(), forwarded, &trust);
            assert_eq!(found, client.parse::<IpAddr>().unwrap(), "{peer} {forwarded:?}");
        }
    }

    #[test]
    fn the_relay_gets_the_clients_fields_but_not_those_of_the_connection_or_about_others() {
        let mut given = HeaderMap::new();
        for (name, value) in [
            ("host", "relay.example"),
            ("connection", "keep-alive, Upgrade, X-Secret"),
            ("upgrade", "websocket"),
            ("x-secret", "1"),
            ("x-forwarded-for", "203.0.113.9"),
            ("x-real-ip", "203.0.113.9"),
            ("forwarded", "for=203.0.113.9"),
            ("x-forwarded-proto", "wss"),
            ("authorization", "Nostr abc"),
        ] {
            given.append(name, value.parse().unwrap());
        }
        let text = |trusted| {
            let fields = fields(&given, [192, 0, 2, 1].into(), trusted, true);
            let mut lines: Vec<_> =
                fields.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
            lines.sort();
            lines.join("\n")
        };
        let expected = "authorization: Nostr abc\nhost: relay.example\nx-forwarded-for: 192.0.2.1\n\
                        x-forwarded-proto: https\nx-real-ip: 192.0.2.1";
        assert_eq!(text(false), expected);
        assert_eq!(text(true), expected.replace("https", "wss"));
    }
}
