//! The address of a relay, parsed once, and shown without its secrets.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use base64::{Engine, prelude::BASE64_STANDARD};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use url::{Host, ParseError, Url};

/// The URL of a relay: `ws://HOST:PORT/PATH?QUERY` or `wss://…` (RFC 6455 §3). User and password go
/// into the `Authorization` of requests alone: whatever is shown or serialized has none.
///
/// ```
/// let url: terms::RelayUrl = "WSS://me:s3cret@Relay.Example:443/".parse().unwrap();
/// assert_eq!(url.to_string(), "wss://relay.example");
/// assert_eq!(url.authorization(), Some("Basic bWU6czNjcmV0"));
/// ```
#[derive(derive_more::Debug, Clone, PartialEq, Eq)]
#[debug("RelayUrl({self})")]
pub struct RelayUrl {
    /// Without user and password.
    url: Url,
    authorization: Option<String>,
    given: String,
}

/// Why a text is no address of a relay.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{shown:?} is no address of a relay: {why}; expected ws://HOST:PORT or wss://HOST")]
pub struct RelayUrlError {
    shown: String,
    why: String,
}

impl RelayUrl {
    /// Whether it is `wss://`.
    pub fn is_secure(&self) -> bool {
        self.url.scheme() == "wss"
    }

    /// The name or address of the host, an IPv6 address without brackets.
    pub fn host(&self) -> String {
        match self.url.host() {
            Some(Host::Ipv6(address)) => address.to_string(),
            Some(host) => host.to_string(),
            None => String::new(),
        }
    }

    /// The port; the standard one if the URL has none.
    pub fn port(&self) -> u16 {
        self.url.port_or_known_default().unwrap_or_default()
    }

    /// The relay's address, if the URL gives it by number.
    pub fn socket_address(&self) -> Option<SocketAddr> {
        let ip: IpAddr = match self.url.host()? {
            Host::Ipv4(address) => address.into(),
            Host::Ipv6(address) => address.into(),
            Host::Domain(_) => return None,
        };
        Some((ip, self.port()).into())
    }

    /// Whether the host is this machine: a loopback address, or `localhost` (RFC 6761 §6.3).
    pub fn is_loopback(&self) -> bool {
        match self.url.host() {
            Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            _ => self.socket_address().is_some_and(|address| address.ip().is_loopback()),
        }
    }

    /// The value of `Host`: without user and password (RFC 9110 §7.2), and without a standard port.
    pub fn authority(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        self.url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// Path and query.
    pub fn resource(&self) -> String {
        let query = self.url.query().map(|query| format!("?{query}")).unwrap_or_default();
        format!("{}{query}", self.url.path())
    }

    /// The value of `Authorization` that user and password make (RFC 7617). Not for records.
    pub fn authorization(&self) -> Option<&str> {
        self.authorization.as_deref()
    }

    /// The URL of the relay's information document (NIP-11), without user and password.
    pub fn http(&self) -> String {
        let scheme = if self.is_secure() { "https" } else { "http" };
        format!("{scheme}://{}{}", self.authority(), self.resource())
    }

    /// Whether two addresses are of one relay, whoever asks and however its path ends.
    pub fn is_same_relay(&self, other: &RelayUrl) -> bool {
        self.to_string().trim_end_matches('/') == other.to_string().trim_end_matches('/')
    }

    /// As the user gave it, with user and password: for a process that connects to it, not for
    /// records.
    pub fn with_password(&self) -> &str {
        &self.given
    }
}

impl FromStr for RelayUrl {
    type Err = RelayUrlError;

    fn from_str(text: &str) -> Result<RelayUrl, RelayUrlError> {
        let refused = |why: &str| RelayUrlError { shown: without_password(text), why: why.to_owned() };
        let mut url = Url::parse(text).map_err(|error| match error {
            ParseError::RelativeUrlWithoutBase => refused("it does not begin with ws:// or wss://"),
            error => refused(&error.to_string()),
        })?;
        match url.scheme() {
            "ws" | "wss" => {}
            _ => return Err(refused("it does not begin with ws:// or wss://")),
        }
        if url.fragment().is_some() {
            return Err(refused("it has a fragment, which RFC 6455 §3 forbids (write %23 for #)"));
        }
        // `url` reads it as /, other readers as part of user or host.
        if text.contains('\\') {
            return Err(refused("it contains \\"));
        }
        if url.port() == Some(0) {
            return Err(refused("no relay listens on port 0"));
        }
        let authorization = basic(&url).map_err(refused)?;
        // Both fail only for addresses without a host, which ws:// always has.
        let _ = url.set_username("").and_then(|()| url.set_password(None));
        Ok(RelayUrl { url, authorization, given: text.to_owned() })
    }
}

/// The credentials of RFC 7617 §2; `None` for a URL without user and password.
fn basic(url: &Url) -> Result<Option<String>, &'static str> {
    if url.username().is_empty() && url.password().is_none() {
        return Ok(None);
    }
    let user: Vec<u8> = percent_decode_str(url.username()).collect();
    let password: Vec<u8> = percent_decode_str(url.password().unwrap_or_default()).collect();
    if user.contains(&b':') {
        return Err("its user has a colon, which RFC 7617 §2 forbids");
    }
    if user.iter().chain(&password).any(u8::is_ascii_control) {
        return Err("its user or password has a control character, which RFC 7617 §2 forbids");
    }
    let credentials = [user, password].join(&b':');
    Ok(Some(format!("Basic {}", BASE64_STANDARD.encode(credentials))))
}

/// An address that is not parsed, or not an address, with `***` for a possible user and password:
/// everything before its last @, because a password may hold any separator.
pub fn without_password(text: &str) -> String {
    let Some((before, host)) = text.rsplit_once('@') else { return text.to_owned() };
    match before.split_once("://") {
        Some((scheme, _)) => format!("{scheme}://***@{host}"),
        None => format!("***@{host}"),
    }
}

/// As `url` writes it, without user, password and a path of a single slash.
impl fmt::Display for RelayUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.url.as_str();
        let bare = self.url.path() == "/" && self.url.query().is_none();
        f.write_str(if bare { text.trim_end_matches('/') } else { text })
    }
}

impl Serialize for RelayUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for RelayUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<RelayUrl, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> RelayUrl {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn one_relay_has_one_spelling() {
        for (given, shown, authority, resource) in [
            ("ws://127.0.0.1:7777", "ws://127.0.0.1:7777", "127.0.0.1:7777", "/"),
            ("WS://Relay.Example:80/", "ws://relay.example", "relay.example", "/"),
            ("wss://relay.example:443", "wss://relay.example", "relay.example", "/"),
            ("wss://relay.example:80", "wss://relay.example:80", "relay.example:80", "/"),
            ("ws://[0:0::1]:7777/", "ws://[::1]:7777", "[::1]:7777", "/"),
            ("Wss://r.example/Nostr/?A=b&c", "wss://r.example/Nostr/?A=b&c", "r.example", "/Nostr/?A=b&c"),
            ("ws://r.example?a@b:c", "ws://r.example/?a@b:c", "r.example", "/?a@b:c"),
            ("ws://bücher.example", "ws://xn--bcher-kva.example", "xn--bcher-kva.example", "/"),
        ] {
            let url = url(given);
            assert_eq!(url.to_string(), shown);
            assert_eq!((url.authority().as_str(), url.resource().as_str()), (authority, resource));
            assert_eq!(url.authorization(), None);
            assert_eq!(url.with_password(), given);
        }
        assert_eq!(url("ws://[::1]:80").socket_address(), Some("[::1]:80".parse().unwrap()));
        assert_eq!(url("wss://127.0.0.1/x").socket_address(), Some("127.0.0.1:443".parse().unwrap()));
        assert_eq!(url("ws://localhost:7777").socket_address(), None);
        assert_eq!((url("ws://[::1]").host(), url("ws://a.example").port()), ("::1".to_owned(), 80));
        assert_eq!(url("wss://me:s3cret@a.example/x?y").http(), "https://a.example/x?y");
    }

    #[test]
    fn a_relay_is_the_same_however_its_address_is_spelled() {
        for (one, other, is_same) in [
            ("wss://relay.example/nostr", "wss://relay.example/nostr/", true),
            ("ws://[::1]:7777", "ws://[0:0:0:0:0:0:0:1]:7777", true),
            ("wss://relay.example/?a=b", "wss://me:s3cret@relay.example?a=b", true),
            ("ws://127.0.0.1:7777", "ws://127.0.0.1:7777@relay.example", false),
            ("ws://relay.example:443", "wss://relay.example:443", false),
            ("wss://relay.example", "wss://relay.example/other", false),
        ] {
            assert_eq!(url(one).is_same_relay(&url(other)), is_same, "{one} {other}");
        }
    }

    /// The example of RFC 7617 §2 among them.
    #[test]
    fn user_and_password_are_sent_and_never_shown() {
        for (given, shown, credentials) in [
            ("ws://Aladdin:open%20sesame@a.example", "ws://a.example", "Aladdin:open sesame"),
            ("WSS://me:s3cret@A.example:443/x?y=z", "wss://a.example/x?y=z", "me:s3cret"),
            ("ws://me:p@s@a.example", "ws://a.example", "me:p@s"),
            ("ws://me:100%25%2f%40@[::1]:7777", "ws://[::1]:7777", "me:100%/@"),
            ("ws://m%C3%BC:50%@a.example", "ws://a.example", "mü:50%"),
            ("ws://token@a.example", "ws://a.example", "token:"),
            ("ws://:token@a.example", "ws://a.example", ":token"),
        ] {
            let url = url(given);
            assert_eq!(url.to_string(), shown);
            assert_eq!(format!("{url:?}"), format!("RelayUrl({shown})"));
            assert!(!format!("{}{}{}", url.authority(), url.resource(), url.http()).contains('@'));
            let basic = url.authorization().and_then(|value| value.strip_prefix("Basic ")).unwrap();
            assert_eq!(BASE64_STANDARD.decode(basic).unwrap(), credentials.as_bytes());
        }
        assert_eq!(url("ws://@a.example").authorization(), None);
    }

    #[test]
    fn what_is_no_address_is_explained_without_its_password() {
        for (text, why) in [
            ("me:s3cret@relay.example", "ws:// or wss://"),
            ("http://me:s3cret@relay.example", "ws:// or wss://"),
            ("ws://me:s3cret@", "empty host"),
            ("ws://me:s3cret@relay example", "domain"),
            ("ws://me:s3cret@relay.example:0", "port 0"),
            ("ws://me:s3cret@relay.example/#a", "fragment"),
            ("ws://me:s3cret#1@relay.example", "port"),
            ("ws://s3cret#1@relay.example", "fragment"),
            ("ws://me:s3cret\\@relay.example", "port"),
            ("ws://relay.example\\@127.0.0.1", "contains \\"),
            ("ws://me%3As3cret:x@relay.example", "colon"),
            ("ws://me:s3cret%0d%0aX:y@relay.example", "control"),
            ("ws://me:s3cret@[::1", "IPv6"),
            ("", "ws:// or wss://"),
        ] {
            let error = text.parse::<RelayUrl>().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("expected ws://HOST:PORT"), "{text}: {error}");
            assert!(!error.contains("s3cret"), "{text}: {error}");
        }
    }

    #[test]
    fn records_have_no_password() {
        let written = serde_json::to_string(&url("ws://me:s3cret@a.example")).unwrap();
        assert_eq!(written, "\"ws://a.example\"");
        assert_eq!(serde_json::from_str::<RelayUrl>(&written).unwrap(), url("ws://a.example"));
        assert!(serde_json::from_str::<RelayUrl>("\"a.example\"").is_err());
    }
}
