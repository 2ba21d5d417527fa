//! Checks which authors a client proved to be (NIP-42).

use std::net::IpAddr;

use codecs::{Event, PublicKeys, VerifyLevel, hex};
use url::{Host, Url};

/// The kind of AUTH events, which are not published (NIP-42).
pub(crate) const CLIENT_AUTH: u16 = 22_242;

/// How far an AUTH event's clock may be off (NIP-42 suggests ten minutes).
const AUTH_CLOCK_SECONDS: u64 = 600;

/// Authors that one connection may prove to be, so that it cannot grow without bound.
const MAX_AUTHORS: usize = 100;

/// The challenge of one connection, and the authors who answered it.
#[derive(Debug)]
pub(crate) struct Auth {
    challenge: String,
    /// Names by which the client may call this relay.
    hosts: Vec<String>,
    authors: Vec<[u8; 32]>,
}

impl Auth {
    /// A challenge to a client of the relay at `local`, which has these names besides.
    pub(crate) fn new(challenge: [u8; 16], hosts: &[String], local: IpAddr) -> Auth {
        Auth { challenge: hex::encode(&challenge), hosts: own_hosts(hosts, local), authors: Vec::new() }
    }

    /// The challenge that the client must sign.
    pub(crate) fn challenge(&self) -> &str {
        &self.challenge
    }

    /// Whether the client proved to be this author.
    pub(crate) fn has(&self, author: &[u8; 32]) -> bool {
        self.authors.contains(author)
    }

    /// Whether the client proved to be anybody.
    pub(crate) fn is_answered(&self) -> bool {
        !self.authors.is_empty()
    }

    /// Takes the client's proof, `now` in seconds since 1970.
    ///
    /// # Errors
    /// The text of OK: why it is none.
    pub(crate) fn accept(&mut self, proof: &Event<'_>, keys: &PublicKeys, now: u64) -> Result<(), String> {
        self.check(proof, keys, now)?;
        if !self.has(&proof.pubkey) {
            self.authors.push(proof.pubkey);
        }
        Ok(())
    }

    fn check(&self, event: &Event<'_>, keys: &PublicKeys, now: u64) -> Result<(), String> {
        keys.verify(event, VerifyLevel::Full).map_err(|error| format!("invalid: {error}"))?;
        if event.kind != CLIENT_AUTH {
            return Err(format!("invalid: AUTH takes kind {CLIENT_AUTH}, not {}", event.kind));
        }
        if event.first_tag_value("challenge") != Some(&self.challenge) {
            return Err("invalid: the challenge tag is not this connection's challenge".to_owned());
        }
        let relay = event.first_tag_value("relay").and_then(host_of);
        if !relay.as_ref().is_some_and(|host| self.hosts.contains(host)) {
            return Err(format!("invalid: the relay tag must name one of: {}", self.hosts.join(" ")));
        }
        let created_at = u64::try_from(event.created_at).unwrap_or(0);
        if created_at.abs_diff(now) > AUTH_CLOCK_SECONDS {
            return Err(format!("invalid: created_at is more than {AUTH_CLOCK_SECONDS} s from now"));
        }
        if self.authors.len() >= MAX_AUTHORS {
            return Err(format!("restricted: at most {MAX_AUTHORS} authors in one connection"));
        }
        Ok(())
    }
}

/// The names under which a client may have reached this relay.
fn own_hosts(configured: &[String], local: IpAddr) -> Vec<String> {
    let local = local.to_canonical();
    let mut hosts: Vec<_> = configured.iter().map(|host| canonical(host)).collect();
    hosts.push(local.to_string());
    if local.is_loopback() {
        hosts.push("localhost".to_owned());
    }
    hosts
}

/// The host of a `ws://` or `wss://` URL in its one form: a name in lower case, an address as Rust
/// writes it, IPv4 for one that IPv6 maps.
fn host_of(url: &str) -> Option<String> {
    let url = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "ws" | "wss"))?;
    Some(match url.host()? {
        Host::Domain(name) => name.to_owned(),
        Host::Ipv4(address) => address.to_string(),
        Host::Ipv6(address) => address.to_canonical().to_string(),
    })
}

/// That form of a host as `--host` takes it: IPv6 with brackets or without.
fn canonical(host: &str) -> String {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    match bare.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().to_string(),
        Err(_) => host.to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_from_relay_urls() {
        for (url, host) in [
            ("ws://Example.com:7777/", Some("example.com")),
            ("wss://relay.example/path?x=1", Some("relay.example")),
            ("WSS://Relay.Example:443", Some("relay.example")),
            ("ws://user:password@relay.example/", Some("relay.example")),
            ("ws://[::1]:7777", Some("::1")),
            ("ws://[0:0:0:0:0:0:0:1]:7777", Some("::1")),
            ("ws://[::ffff:127.0.0.1]:7777", Some("127.0.0.1")),
            ("ws://[::ffff:7f00:1]", Some("127.0.0.1")),
            ("ws://[2001:DB8::0:1]/", Some("2001:db8::1")),
            ("ws://[::1", None),
            ("https://example.com", None),
            ("ws://", None),
        ] {
            assert_eq!(host_of(url).as_deref(), host, "{url}");
        }
    }

    #[test]
    fn the_relay_goes_by_one_form_of_each_address() {
        for (local, names) in [
            ("::ffff:127.0.0.1", &["127.0.0.1", "localhost"][..]),
            ("127.0.0.2", &["127.0.0.2", "localhost"]),
            ("::1", &["::1", "localhost"]),
            ("::ffff:192.0.2.1", &["192.0.2.1"]),
            ("2001:db8:0::1", &["2001:db8::1"]),
        ] {
            assert_eq!(own_hosts(&[], local.parse().unwrap()), names, "{local}");
        }
        let configured = ["Relay.Example", "::FFFF:192.0.2.1", "[2001:DB8::0:1]"].map(str::to_owned);
        let names = own_hosts(&configured, "192.0.2.9".parse().unwrap());
        assert_eq!(names, ["relay.example", "192.0.2.1", "2001:db8::1", "192.0.2.9"]);
    }
}
