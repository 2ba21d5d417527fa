//! Checks which authors a client proved to be (NIP-42).

use std::net::IpAddr;

use codecs::{Event, VerifyLevel, hex};

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
    /// What the client may call this relay.
    hosts: Vec<String>,
    authors: Vec<[u8; 32]>,
}

impl Auth {
    /// A challenge to a client of the relay at `local`, which has these names besides.
    pub(crate) fn new(challenge: [u8; 16], hosts: &[String], local: IpAddr) -> Auth {
        Auth { challenge: hex::encode(&challenge), hosts: own_hosts(hosts, local), authors: Vec::new() }
    }

    /// What the client must sign.
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
    pub(crate) fn accept(&mut self, proof: &Event<'_>, now: u64) -> Result<(), String> {
        self.check(proof, now)?;
        if !self.has(&proof.pubkey) {
            self.authors.push(proof.pubkey);
        }
        Ok(())
    }

    fn check(&self, event: &Event<'_>, now: u64) -> Result<(), String> {
        event.verify(VerifyLevel::Full).map_err(|error| format!("invalid: {error}"))?;
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
    let mut hosts: Vec<_> = configured.iter().map(|host| host.to_ascii_lowercase()).collect();
    hosts.push(local.to_string());
    if local.is_loopback() {
        hosts.push("localhost".to_owned());
    }
    hosts
}

/// The host of a `ws://` or `wss://` URL, in lower case and without the brackets of IPv6.
fn host_of(url: &str) -> Option<String> {
    let rest = url.strip_prefix("ws://").or_else(|| url.strip_prefix("wss://"))?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next()?,
        None => authority.split(':').next()?,
    };
    (!host.is_empty()).then(|| host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read_from_relay_urls() {
        for (url, host) in [
            ("ws://Example.com:7777/", Some("example.com")),
            ("wss://relay.example/path?x=1", Some("relay.example")),
            ("ws://[::1]:7777", Some("::1")),
            ("https://example.com", None),
            ("ws://", None),
        ] {
            assert_eq!(host_of(url).as_deref(), host, "{url}");
        }
    }
}
