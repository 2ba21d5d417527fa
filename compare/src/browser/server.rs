//! The page's own server: the page, the events, and what a page tells its player.
//!
//! All of it stands below a token in the path, so that only who was told the address gets any of it.

use std::{
    net::{Ipv4Addr, TcpListener},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use wire::{Incoming, ServerConfig};

use super::events::Events;

const PAGE: &str = include_str!("../../../web/browser/page.html");

/// Longest body of a request; those of pages are below 1 KiB.
const MAX_BYTES: usize = 16 << 10;
/// Connections at a time; a browser opens six.
const MAX_CONNECTIONS: usize = 32;
/// Time for a request to arrive.
const PATIENCE: Duration = Duration::from_secs(5);

/// Something that a page tells, which waits for the answer.
#[derive(Debug)]
pub(crate) struct Told {
    /// The last part of the path, such as `mark`.
    pub(crate) what: String,
    pub(crate) said: Value,
    /// If it is dropped, the page gets an error.
    pub(crate) answer: oneshot::Sender<Value>,
}

/// What is served, and who listens.
#[derive(Debug)]
struct Site {
    /// What every path begins with.
    token: String,
    script: Vec<u8>,
    events: Arc<Events>,
    player: mpsc::Sender<Told>,
}

/// Serves on a free port of this machine until the process ends: `http://ADDRESS/TOKEN/` and what pages
/// tell.
///
/// # Errors
/// When no port is free.
pub(crate) fn serve(script: Vec<u8>, events: Arc<Events>) -> Result<(String, mpsc::Receiver<Told>)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot serve the page")?;
    // Of 2^48 tokens one is right.
    let token = format!("/{:012x}/", rand::random::<u64>() >> 16);
    let url = format!("http://{}{token}", listener.local_addr().context("cannot serve the page")?);
    let (player, told) = mpsc::channel(MAX_CONNECTIONS);
    let site = Arc::new(Site { token, script, events, player });
    let answering = move |request, config: Arc<ServerConfig>| {
        let site = Arc::clone(&site);
        // A request that fails is seen by the page, which says so.
        async move { answer(request, &config, &site).await }
    };
    // Blocks come and go with a runtime each.
    wire::serve_pages(listener, (MAX_CONNECTIONS, PATIENCE), answering).context("cannot serve the page")?;
    Ok((url, told))
}

async fn answer(mut request: Incoming, config: &ServerConfig, site: &Site) {
    let (status, kind, body) = match found(&mut request, config, site).await {
        Some((kind, body)) => ("200 OK", kind, body),
        None => ("404 Not Found", "text/plain", b"nothing is here, or the run has ended\n".to_vec()),
    };
    // Isolated by the last two headers, a page has a clock of 5 µs instead of 100
    // (https://developer.chrome.com/blog/cross-origin-isolated-hr-timers).
    let headers = [
        ("Content-Type", kind),
        ("Cache-Control", "no-store"),
        ("Cross-Origin-Opener-Policy", "same-origin"),
        ("Cross-Origin-Embedder-Policy", "require-corp"),
    ];
    request.answer_with(status, &headers, &body).await;
}

/// The file below the token, or the player's answer to what a page tells, with its media type.
async fn found(
    request: &mut Incoming,
    config: &ServerConfig,
    site: &Site,
) -> Option<(&'static str, Vec<u8>)> {
    let path = request.target().strip_prefix(&site.token)?.to_owned();
    match (request.method(), &*path) {
        ("GET", "") => Some(("text/html; charset=utf-8", PAGE.into())),
        ("GET", "page.js") => Some(("text/javascript; charset=utf-8", site.script.clone())),
        ("GET", path) => {
            let (set, format) = path.strip_prefix("events/")?.split_once('/')?;
            Some(("application/octet-stream", site.events.frames(set, format).ok()?))
        }
        ("POST", what) => {
            let length =
                request.header("content-length")?.parse().ok().filter(|length| *length <= MAX_BYTES)?;
            let said = serde_json::from_slice(&request.body(length, config).await.ok()?).ok()?;
            let (answer, answered) = oneshot::channel();
            let told = Told { what: what.to_owned(), said, answer };
            site.player.send(told).await.ok()?;
            Some(("application/json", answered.await.ok()?.to_string().into()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{self, Read, Write},
        net, thread,
    };

    use serde_json::json;

    use super::*;

    fn served() -> (String, mpsc::Receiver<Told>) {
        let events = Arc::new(Events::read(None, false, &[]).unwrap());
        serve(Vec::new(), events).unwrap()
    }

    /// The start of the answer to a request below an address, with its last line.
    fn answer(url: &str, verb: &str, path: &str, (length, body): (usize, &str)) -> String {
        let (address, token) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
        let mut stream = net::TcpStream::connect(address).unwrap();
        write!(stream, "{verb} /{token}{path} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
        let mut answer = Vec::new();
        // A request that a server leaves unread ends a connection by a reset (RFC 9293 §3.6.1).
        if let Err(error) = stream.read_to_end(&mut answer) {
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        }
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[test]
    fn pages_and_events_are_served_isolated_below_the_token_and_nothing_else() {
        let (url, _told) = served();
        let last = if url.ends_with("0/") { '1' } else { '0' };
        let other = format!("{}{last}/", &url[..url.len() - 2]);
        for (url, path, status) in [
            (&url[..], "", 200),
            (&url, "page.js", 200),
            (&url, "events/lists/dannypack", 200),
            (&url, "events/lists/xml", 404),
            (&url, "../Cargo.toml", 404),
            (&other, "", 404),
            (&other, "page.js", 404),
        ] {
            let answer = answer(url, "GET", path, (0, ""));
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {}", &answer[..40]);
            assert!(answer.contains("Cross-Origin-Embedder-Policy: require-corp\r\n"), "{path}");
        }
    }

    #[test]
    fn what_a_page_tells_reaches_the_player_whole_or_not_at_all() {
        let (url, mut told) = served();
        let player = thread::spawn(move || {
            let one = told.blocking_recv().unwrap();
            assert_eq!((&*one.what, one.said), ("mark", json!({ "a": 1 })));
            one.answer.send(json!({ "b": 2 })).unwrap();
            // Dropped, it is answered, too.
            drop(told.blocking_recv().unwrap());
        });
        let post = |length: usize, body: &str| answer(&url, "POST", "mark", (length, body));
        assert!(post(2, "[{").starts_with("HTTP/1.1 404"));
        assert!(post(MAX_BYTES + 1, "{}").starts_with("HTTP/1.1 404"));
        let answer = post(7, r#"{"a":1}"#);
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(r#"{"b":2}"#), "{answer}");
        assert!(post(2, "{}").starts_with("HTTP/1.1 404"));
        player.join().unwrap();
    }
}
