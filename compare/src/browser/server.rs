//! The page's own server: its document, its script and the events, on 127.0.0.1.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time,
};

use super::events::Events;

const DOCUMENT: &str = include_str!("../../browser/index.html");
/// What `npm run build` made of `compare/browser/src` and the packages of its lock file.
const SCRIPT: &str = include_str!("../../browser/dist/page.js");

/// Longest request head that is read; Chromium's are below 1 KiB.
const MAX_HEAD_BYTES: usize = 16 << 10;
/// Time for a request's head.
const PATIENCE: Duration = Duration::from_secs(5);

/// A server until it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    /// Where the page is.
    pub(crate) address: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    /// Serves on a free port.
    ///
    /// # Errors
    /// When no port is free.
    pub(crate) async fn start(events: Arc<Events>) -> Result<Server> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot serve the page")?;
        let address = listener.local_addr().context("cannot serve the page")?;
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let events = Arc::clone(&events);
                // A request that fails is seen by the page, which says so.
                tokio::spawn(async move { time::timeout(PATIENCE, answer(stream, &events)).await });
            }
        });
        Ok(Server { address, task })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(mut stream: TcpStream, events: &Events) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > MAX_HEAD_BYTES || stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let line = String::from_utf8_lossy(&head);
    let target = line.strip_prefix("GET ").and_then(|rest| rest.split(' ').next());
    let (status, kind, body) = match target.and_then(|target| resource(target, events)) {
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
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&body).await?;
    stream.shutdown().await
}

/// What stands at a path, with its media type.
fn resource(target: &str, events: &Events) -> Option<(&'static str, Vec<u8>)> {
    match target {
        "/" => Some(("text/html; charset=utf-8", DOCUMENT.into())),
        "/page.js" => Some(("text/javascript; charset=utf-8", SCRIPT.into())),
        _ => {
            let (set, format) = target.strip_prefix("/events/")?.split_once('/')?;
            Some(("application/octet-stream", events.frames(set, format).ok()?))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn get(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // What a server leaves unread ends a connection by a reset (RFC 9293 §3.6.1).
        if let Err(error) = stream.read_to_end(&mut answer).await {
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        }
        String::from_utf8_lossy(&answer).into_owned()
    }

    #[tokio::test]
    async fn the_page_and_its_events_are_served_isolated_and_nothing_else() {
        let events = Arc::new(Events::read(None, &[]).unwrap());
        let server = Server::start(events).await.unwrap();
        for (path, status) in [
            ("/", 200),
            ("/page.js", 200),
            ("/events/lists/dannypack", 200),
            ("/events/lists/xml", 404),
            ("/../Cargo.toml", 404),
            ("/etc/passwd", 404),
        ] {
            let answer = get(server.address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {}", &answer[..40]);
            assert!(answer.contains("Cross-Origin-Embedder-Policy: require-corp\r\n"), "{path}");
        }
        assert!(get(server.address, "POST / HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 404 "));
        let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(2 * MAX_HEAD_BYTES));
        assert_eq!(get(server.address, &long).await, "");
    }
}
