//! The page's own server: its documents, its scripts, the events, and what a page tells its player.
//!
//! All of it stands below a token in the path, so that only who was told the address gets any of it.

use std::{
    net::{SocketAddrV4, TcpListener},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::{
    sync::{mpsc, oneshot},
    time,
};
use wire::{Incoming, ServerConfig};

use super::events::Events;

/// The document of a block.
const PAGE: &str = include_str!("../../../web/browser/page.html");
/// The document that a person opens on a device.
const DEVICE: &str = include_str!("../../../web/browser/device.html");
const DEVICE_SCRIPT: &str = include_str!("../../../web/browser/src/device.js");

/// Longest body of a request; those of pages are below 1 KiB.
const MAX_BYTES: usize = 16 << 10;
/// Connections at a time; a browser opens six.
const MAX_CONNECTIONS: usize = 32;
/// Time for a request to arrive.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time to take a response: every event of a corpus, over a slow network.
const TAKES_WITHIN: Duration = Duration::from_secs(120);
/// Characters of the token, without those that look alike: a person may have to type it.
const ALPHABET: [u8; 32] = *b"23456789abcdefghijkmnpqrstuvwxyz";
/// Of 2^50 tokens one is right.
const TOKEN_CHARACTERS: usize = 10;

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const JSON: &str = "application/json";

/// Something that a page tells, which waits for the answer.
#[derive(Debug)]
pub(crate) struct Told {
    /// The last part of the path, such as `mark`.
    pub(crate) what: String,
    /// The block that the page is of, as its address has it.
    pub(crate) block: String,
    pub(crate) said: Value,
    /// If it is dropped, the page gets an error.
    pub(crate) answer: oneshot::Sender<Value>,
}

/// Files that are served, and who listens.
#[derive(Debug)]
struct Site {
    token: String,
    /// The script of a block's page.
    script: Vec<u8>,
    events: Arc<Events>,
    player: mpsc::Sender<Told>,
}

/// Serves at this address, on a free port where it has none, until the process ends: `http://ADDRESS/TOKEN/`
/// and what pages tell.
///
/// # Errors
/// When this machine does not have the address, or the port is taken.
pub(crate) fn serve(
    script: Vec<u8>,
    events: Arc<Events>,
    address: SocketAddrV4,
) -> Result<(String, mpsc::Receiver<Told>)> {
    let listener =
        TcpListener::bind(address).with_context(|| format!("cannot serve the page at {address}"))?;
    let address = listener.local_addr().context("cannot serve the page")?;
    let token: String =
        (0..TOKEN_CHARACTERS).map(|_| char::from(ALPHABET[rand::random_range(0..ALPHABET.len())])).collect();
    let url = format!("http://{address}/{token}/");
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
    let (verb, target) = (request.method().to_owned(), request.target().to_owned());
    let (path, block) = target.split_once('?').unwrap_or((&target, ""));
    let target = path.strip_prefix('/').and_then(|path| path.strip_prefix(site.token.as_str()));
    let found = match (&*verb, target) {
        ("GET", Some(target)) => resource(target, site),
        ("POST", Some(target)) => match body(&mut request, config).await {
            Some(body) => told(target, block, &body, site).await,
            None => None,
        },
        _ => None,
    };
    let (status, kind, body) = match found {
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
    // Who takes longer is gone.
    let _ = time::timeout(TAKES_WITHIN, request.answer_with(status, &headers, &body)).await;
}

/// A request's body; nothing when it does not end, or is too long.
async fn body(request: &mut Incoming, config: &ServerConfig) -> Option<Vec<u8>> {
    let length = request.header("content-length").map_or(Some(0), |length| length.parse().ok());
    request.body(length.filter(|length| *length <= MAX_BYTES)?, config).await.ok()
}

/// The file at a path below the token, with its media type.
fn resource(target: &str, site: &Site) -> Option<(&'static str, Vec<u8>)> {
    match target {
        // The address without its last slash, as a person may type it.
        "" => Some((HTML, format!("<meta http-equiv=refresh content='0; url={}/'>", site.token).into())),
        "/" => Some((HTML, DEVICE.into())),
        "/device.js" => Some((SCRIPT, DEVICE_SCRIPT.into())),
        "/page.html" => Some((HTML, PAGE.into())),
        "/page.js" => Some((SCRIPT, site.script.clone())),
        _ => {
            let (set, format) = target.strip_prefix("/events/")?.split_once('/')?;
            Some(("application/octet-stream", site.events.frames(set, format).ok()?))
        }
    }
}

/// The player's answer to what a page tells.
async fn told(target: &str, block: &str, body: &[u8], site: &Site) -> Option<(&'static str, Vec<u8>)> {
    let (answer, answered) = oneshot::channel();
    let (what, block) = (target.strip_prefix('/')?.to_owned(), block.to_owned());
    let told = Told { what, block, said: serde_json::from_slice(body).ok()?, answer };
    site.player.send(told).await.ok()?;
    Some((JSON, answered.await.ok()?.to_string().into()))
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
        serve(Vec::new(), events, "127.0.0.1:0".parse().unwrap()).unwrap()
    }

    /// Address and token of `http://ADDRESS/TOKEN/`.
    fn parts(url: &str) -> (&str, &str) {
        url.strip_prefix("http://").unwrap().trim_end_matches('/').split_once('/').unwrap()
    }

    fn get(url: &str, request: &str) -> String {
        let mut stream = net::TcpStream::connect(parts(url).0).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
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
        let token = parts(&url).1;
        assert_eq!(token.len(), TOKEN_CHARACTERS);
        let wrong = if token.starts_with('2') { "3333333333" } else { "2222222222" };
        for (path, status) in [
            (format!("{token}/"), 200),
            (token.to_owned(), 200),
            (format!("{token}/device.js"), 200),
            (format!("{token}/page.html?7"), 200),
            (format!("{token}/page.js?7"), 200),
            (format!("{token}/events/lists/dannypack"), 200),
            (format!("{token}/events/lists/xml"), 404),
            (format!("{token}/../Cargo.toml"), 404),
            (format!("{token}/etc/passwd"), 404),
            (format!("{token}x"), 404),
            (format!("{wrong}/"), 404),
            (format!("{wrong}/page.js"), 404),
            ("page.js".to_owned(), 404),
            (String::new(), 404),
        ] {
            let answer = get(&url, &format!("GET /{path} HTTP/1.1\r\nHost: x\r\n\r\n"));
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {}", &answer[..40]);
            assert!(answer.contains("Cross-Origin-Embedder-Policy: require-corp\r\n"), "{path}");
        }
    }

    #[test]
    fn what_a_page_tells_reaches_the_player_whole_or_not_at_all() {
        let (url, mut told) = served();
        let player = thread::spawn(move || {
            let one = told.blocking_recv().unwrap();
            assert_eq!((&*one.what, &*one.block, one.said), ("mark", "7", json!({ "a": 1 })));
            one.answer.send(json!({ "b": 2 })).unwrap();
            // Dropped, it is answered, too.
            drop(told.blocking_recv().unwrap());
        });
        let token = parts(&url).1;
        let post = |path: &str, length: usize, body: &str| {
            get(&url, &format!("POST /{path} HTTP/1.1\r\ncontent-length: {length}\r\n\r\n{body}"))
        };
        assert!(post("2222222222/mark?7", 7, r#"{"a":1}"#).starts_with("HTTP/1.1 404"));
        assert!(post(&format!("{token}/mark?7"), 2, "[{").starts_with("HTTP/1.1 404"));
        assert!(post(&format!("{token}/mark?7"), MAX_BYTES + 1, "{}").starts_with("HTTP/1.1 404"));
        let answer = post(&format!("{token}/mark?7"), 7, r#"{"a":1}"#);
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(r#"{"b":2}"#), "{answer}");
        assert!(post(&format!("{token}/mark"), 2, "{}").starts_with("HTTP/1.1 404"));
        player.join().unwrap();
    }
}
