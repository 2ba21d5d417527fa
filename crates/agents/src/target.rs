//! Addresses of relays, by which an agent knows whether it may play against one.

use std::{fmt, str::FromStr};

use url::{ParseError, Url};

/// A relay, `ws://HOST:PORT` or `wss://HOST`, however its address is spelled: port 80 of ws:// and
/// 443 of wss:// may be left out (RFC 6455 §3), and user and password say who asks, not which relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target(Url);

/// Why a text is no address of a relay.
#[derive(Debug, thiserror::Error)]
#[error("{why}; a relay is ws://HOST:PORT or wss://HOST, as in {example}")]
pub struct TargetError {
    why: String,
    example: String,
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Target, TargetError> {
        let refused = |why: String| TargetError { why, example: example(text) };
        let mut url = Url::parse(text).map_err(|error| match error {
            ParseError::RelativeUrlWithoutBase => refused("it has no ws:// or wss://".to_owned()),
            error => refused(error.to_string()),
        })?;
        match url.scheme() {
            "ws" | "wss" => {}
            _ if !text.contains("://") => return Err(refused("it has no ws:// or wss://".to_owned())),
            "http" | "https" => return Err(refused(format!("{}:// is not WebSocket", url.scheme()))),
            _ => return Err(refused("its scheme is not WebSocket".to_owned())),
        }
        if url.port() == Some(0) {
            return Err(refused("no relay listens on port 0".to_owned()));
        }
        // `url` reads \ as /, and other readers of addresses as part of user or host.
        if text.contains('\\') || url.fragment().is_some() {
            return Err(refused("it contains \\ or #".to_owned()));
        }
        let path = url.path().trim_end_matches('/').to_owned();
        url.set_path(&path);
        // Both fail only for addresses without a host, which ws:// always has.
        let _ = url.set_username("").and_then(|()| url.set_password(None));
        Ok(Target(url))
    }
}

/// With its port and without user and password.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Target(url) = self;
        let (scheme, host) = (url.scheme(), url.host_str().unwrap_or_default());
        write!(f, "{scheme}://{host}:{}", url.port_or_known_default().unwrap_or_default())?;
        f.write_str(if url.path() == "/" { "" } else { url.path() })?;
        url.query().map_or(Ok(()), |query| write!(f, "?{query}"))
    }
}

/// The address that was probably meant, or else the relay of this machine; without what stands
/// before the last @, which may be a password that ends an address.
fn example(text: &str) -> String {
    let (scheme, rest) = text.split_once("://").unwrap_or(("ws", text));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let scheme = if matches!(scheme, "wss" | "https") { "wss" } else { "ws" };
    // An IPv6 address may lack its brackets.
    let spelled = [format!("{scheme}://{rest}"), format!("{scheme}://[{rest}]")];
    let mut meant = spelled.iter().filter_map(|text| Url::parse(text).ok()).map(|mut url| {
        url.set_fragment(None);
        let has_port = url.port().is_some_and(|port| port != 0);
        if scheme == "ws" && !has_port && url.set_port(Some(7777)).is_err() {
            return url.to_string();
        }
        Target(url).to_string()
    });
    meant.next().unwrap_or_else(|| "ws://127.0.0.1:7777".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(text: &str) -> Target {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn a_relay_is_the_same_however_its_address_is_spelled() {
        for (one, other) in [
            ("ws://127.0.0.1:7777", "ws://127.0.0.1:7777/"),
            ("ws://relay.example", "WS://Relay.Example:80/"),
            ("wss://relay.example", "wss://relay.example:443"),
            ("wss://relay.example/nostr", "wss://relay.example/nostr/"),
            ("ws://[::1]:7777", "ws://[0:0:0:0:0:0:0:1]:7777"),
            ("wss://relay.example", "wss://me:s3cret@relay.example"),
            ("wss://relay.example/?a=b", "wss://relay.example?a=b"),
        ] {
            assert_eq!(target(one), target(other), "{one} {other}");
        }
        for (one, other) in [
            ("ws://127.0.0.1:7777", "ws://127.0.0.1"),
            ("ws://127.0.0.1:7777", "ws://127.0.0.1:7777@relay.example"),
            ("ws://127.0.0.1:7777", "ws://[::ffff:127.0.0.1]:7777"),
            ("ws://relay.example:443", "wss://relay.example:443"),
            ("wss://relay.example", "wss://relay.example/other"),
            ("wss://relay.example", "wss://relay.example?a"),
            ("wss://relay.example", "wss://relay.example.net"),
        ] {
            assert_ne!(target(one), target(other), "{one} {other}");
        }
        let shown = ["wss://me:s3cret@Relay.Example/x?y", "ws://[::1]"].map(|text| target(text).to_string());
        assert_eq!(shown, ["wss://relay.example:443/x?y", "ws://[::1]:80"]);
    }

    #[test]
    fn what_could_match_no_relay_is_refused_with_what_was_meant() {
        for (text, why, example) in [
            ("127.0.0.1", "it has no ws:// or wss://", "ws://127.0.0.1:7777"),
            ("127.0.0.1:8080", "it has no ws:// or wss://", "ws://127.0.0.1:8080"),
            ("relay.example", "it has no ws:// or wss://", "ws://relay.example:7777"),
            ("localhost:7777", "it has no ws:// or wss://", "ws://localhost:7777"),
            ("::1", "it has no ws:// or wss://", "ws://[::1]:7777"),
            ("[::1]", "it has no ws:// or wss://", "ws://[::1]:7777"),
            ("[::1]:8080", "it has no ws:// or wss://", "ws://[::1]:8080"),
            ("ws://::1", "", "ws://[::1]:7777"),
            ("http://relay.example:8080", "http:// is not WebSocket", "ws://relay.example:8080"),
            ("https://relay.example", "https:// is not WebSocket", "wss://relay.example:443"),
            ("ws://127.0.0.1:0", "port 0", "ws://127.0.0.1:7777"),
            ("ws://127.0.0.1:77777", "invalid port", "ws://127.0.0.1:7777"),
            ("ws://one:1,ws://two:1", "invalid port", "ws://127.0.0.1:7777"),
            ("ws://relay.example\\@127.0.0.1", "\\ or #", "ws://127.0.0.1:7777"),
            ("ws://127.0.0.1:7777#a", "\\ or #", "ws://127.0.0.1:7777"),
            ("ws://", "empty host", "ws://127.0.0.1:7777"),
            ("", "it has no ws:// or wss://", "ws://127.0.0.1:7777"),
        ] {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains(why) && error.contains(&format!("as in {example}")), "{text}: {error}");
        }
    }

    #[test]
    fn a_refusal_has_no_password() {
        for text in [
            "me:s3cret@relay.example",
            "me/s3cret@relay.example",
            "http://me:s3cret@relay.example",
            "s3cret://relay.example",
            "ws://me:s3cret@relay.example:port",
            "ws://me:s3cret@relay.example:0",
            "ws://me:s3cret@relay.example#a",
            "ws://s3cret#1@relay.example",
            "ws://me:s3cret/1@relay.example",
            "ws://me:s3cret\\@relay.example",
        ] {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(!error.contains("s3cret"), "{text}: {error}");
        }
    }
}
