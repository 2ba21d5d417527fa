//! The page's own server: its documents, its scripts, the events, and the connection of a device.
//!
//! All of it stands below a token in the path, so that only who was told the address gets any of
//! it.

use std::{
    io::{self, Cursor},
    net::SocketAddrV4,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, Chain, Join, join},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{Semaphore, oneshot},
    task::JoinHandle,
    time,
};
use tokio_tungstenite::{
    WebSocketStream, accept_async_with_config,
    tungstenite::protocol::{CloseFrame, WebSocketConfig, frame::coding::CloseCode},
};

use super::events::Events;

/// The document of a block.
const PAGE: &str = include_str!("../../../web/browser/page.html");
/// The document that a person opens on a device.
const DEVICE: &str = include_str!("../../../web/browser/device.html");
const DEVICE_SCRIPT: &str = include_str!("../../../web/browser/src/device.js");

/// Longest request head that is read; Chromium's are below 1 KiB.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Largest answer of a device; those that it gives are below a kilobyte.
const MAX_ANSWER_BYTES: usize = 16 << 10;
/// Connections at a time; a browser opens six.
const MAX_CONNECTIONS: usize = 32;
/// Time for a request's head, and for a device's handshake.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time to take a response: every event of a corpus, over a slow network.
const TAKES_WITHIN: Duration = Duration::from_secs(120);
/// Wait behind a connection that the system could not accept.
const ACCEPTS_AGAIN: Duration = Duration::from_millis(50);

/// Characters of the token, without those that look alike: a person may have to type it.
const ALPHABET: [u8; 32] = *b"23456789abcdefghijkmnpqrstuvwxyz";
/// Of 2^50 tokens one is right.
const TOKEN_CHARACTERS: usize = 10;

/// The connection to a device. What was read of it to know that it asks for one comes first.
pub(crate) type Socket = WebSocketStream<Join<Chain<Cursor<Vec<u8>>, OwnedReadHalf>, OwnedWriteHalf>>;

/// A server until it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    /// `http://ADDRESS/TOKEN/`, below which everything is.
    pub(crate) url: String,
    task: JoinHandle<()>,
}

/// Files that are served.
#[derive(Debug)]
struct Site {
    token: String,
    /// The script of a block's page.
    script: Vec<u8>,
    events: Arc<Events>,
    /// Takes the first device that connects.
    device: Mutex<Option<oneshot::Sender<Socket>>>,
}

impl Server {
    /// Serves at this address, on a free port where it has none. `device` gets the first device
    /// that connects; others are turned away.
    ///
    /// # Errors
    /// When this machine does not have the address, or the port is taken.
    pub(crate) async fn start(
        script: Vec<u8>,
        events: Arc<Events>,
        address: SocketAddrV4,
        device: Option<oneshot::Sender<Socket>>,
    ) -> Result<Server> {
        let listener = TcpListener::bind(address).await;
        let listener = listener.with_context(|| format!("cannot serve the page at {address}"))?;
        let address = listener.local_addr().context("cannot serve the page")?;
        let token: String = (0..TOKEN_CHARACTERS)
            .map(|_| char::from(ALPHABET[rand::random_range(0..ALPHABET.len())]))
            .collect();
        let url = format!("http://{address}/{token}/");
        let site = Arc::new(Site { token, script, events, device: Mutex::new(device) });
        Ok(Server { url, task: tokio::spawn(serve(listener, site)) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, site: Arc<Site>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        let Ok((stream, _)) = listener.accept().await else {
            time::sleep(ACCEPTS_AGAIN).await;
            continue;
        };
        let site = Arc::clone(&site);
        tokio::spawn(async move {
            // A request that fails is seen by the page, which says so.
            let _ = answer(stream, &site).await;
            drop(place);
        });
    }
}

async fn answer(mut stream: TcpStream, site: &Site) -> io::Result<()> {
    let Some(head) = time::timeout(PATIENCE, head(&mut stream)).await?? else { return Ok(()) };
    let text = String::from_utf8_lossy(&head);
    let target = text.strip_prefix("GET /").and_then(|rest| rest.split([' ', '?']).next());
    let target = target.and_then(|target| target.strip_prefix(site.token.as_str()));
    if target == Some("/device") {
        return welcome(head, stream, site).await;
    }
    let (status, kind, body) = match target.and_then(|target| resource(target, site)) {
        Some((kind, body)) => ("200 OK", kind, body),
        None => ("404 Not Found", "text/plain", b"not found\n".to_vec()),
    };
    // Isolated by these two headers, a page has a clock of 5 µs instead of 100
    // (https://developer.chrome.com/blog/cross-origin-isolated-hr-timers).
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n\
         Cross-Origin-Opener-Policy: same-origin\r\nCross-Origin-Embedder-Policy: require-corp\r\n\r\n",
        body.len()
    );
    let respond = async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&body).await?;
        stream.shutdown().await
    };
    time::timeout(TAKES_WITHIN, respond).await?
}

/// A request's head and what came with it; nothing when it does not end.
async fn head(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > MAX_HEAD_BYTES || stream.read_buf(&mut head).await? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(head))
}

/// The file at a path below the token, with its media type.
fn resource(target: &str, site: &Site) -> Option<(&'static str, Vec<u8>)> {
    const HTML: &str = "text/html; charset=utf-8";
    const SCRIPT: &str = "text/javascript; charset=utf-8";
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

/// Takes a device's connection: the first is measured, and others are told so.
async fn welcome(head: Vec<u8>, stream: TcpStream, site: &Site) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let (read, write) = stream.into_split();
    let whole = join(Cursor::new(head).chain(read), write);
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_ANSWER_BYTES))
        .max_frame_size(Some(MAX_ANSWER_BYTES));
    let accepted = time::timeout(PATIENCE, accept_async_with_config(whole, Some(config))).await?;
    // A request for no WebSocket gets none.
    let Ok(mut socket) = accepted else { return Ok(()) };
    let expected = site.device.lock().unwrap_or_else(PoisonError::into_inner).take();
    match expected {
        // Where nobody waits any longer the run has ended, and the connection with it.
        Some(sender) => drop(sender.send(socket)),
        None => {
            let reason = "Another device is measured: one at a time.".into();
            let _ = socket.close(Some(CloseFrame { code: CloseCode::Again, reason })).await;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use tokio_tungstenite::{
        connect_async,
        tungstenite::{Error, Message},
    };

    use super::*;

    async fn server(device: Option<oneshot::Sender<Socket>>) -> Server {
        let events = Arc::new(Events::read(None, false, &[]).unwrap());
        Server::start(Vec::new(), events, "127.0.0.1:0".parse().unwrap(), device).await.unwrap()
    }

    /// `http://ADDRESS/TOKEN/` without the token.
    fn parts(server: &Server) -> (&str, &str) {
        server.url.strip_prefix("http://").unwrap().trim_end_matches('/').split_once('/').unwrap()
    }

    async fn get(server: &Server, request: &str) -> String {
        let mut stream = TcpStream::connect(parts(server).0).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // A request that a server leaves unread ends a connection by a reset (RFC 9293 §3.6.1).
        if let Err(error) = stream.read_to_end(&mut answer).await {
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        }
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[tokio::test]
    async fn pages_and_events_are_served_isolated_below_the_token_and_nothing_else() {
        let server = server(None).await;
        let token = parts(&server).1;
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
            let answer = get(&server, &format!("GET /{path} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {}", &answer[..40]);
            assert!(answer.contains("Cross-Origin-Embedder-Policy: require-corp\r\n"), "{path}");
        }
        let posted = get(&server, &format!("POST /{token}/device HTTP/1.1\r\n\r\n")).await;
        assert!(posted.starts_with("HTTP/1.1 404 "), "{posted}");
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(2 * MAX_HEAD_BYTES));
        assert_eq!(get(&server, &long).await, "");
        // Asking for the device's connection without a handshake takes no device's place.
        let plain = get(&server, &format!("GET /{token}/device HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        assert!(!plain.starts_with("HTTP/1.1 101"), "{plain}");
    }

    #[tokio::test]
    async fn the_first_device_with_the_token_connects_and_no_other() {
        let (sender, mut arrival) = oneshot::channel();
        let server = server(Some(sender)).await;
        let (address, _) = parts(&server);
        let wrong = connect_async(format!("ws://{address}/wrong/device")).await.unwrap_err();
        assert!(matches!(wrong, Error::Http(response) if response.status() == 404));
        assert!(arrival.try_recv().is_err());
        let url = format!("{}device", server.url.replacen("http", "ws", 1));
        let (_first, _) = connect_async(&url).await.unwrap();
        arrival.await.unwrap();
        let (mut second, _) = connect_async(&url).await.unwrap();
        let Some(Ok(Message::Close(Some(frame)))) = second.next().await else { panic!("no close frame") };
        assert!(frame.reason.contains("one at a time"), "{frame}");
    }
}
