//! Accepts clients and gives each its way to the relay, until told to stop.

use std::{
    future::Future,
    io::Write,
    pin::pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use nix::sys::socket::{setsockopt, sockopt};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};
use tracing::{debug, info, warn};
use wire::{Accepted, Incoming, WireError, WireLimits, negotiate};

use crate::{
    document,
    request::{DICTIONARIES, Request},
    session::Session,
    shared::{Gateway, TEXT},
    tunnel,
};

const RETRY: (&str, &str) = ("Retry-After", "5");

/// Time for connections to end after the shutdown began.
const DRAIN: Duration = Duration::from_secs(10);

/// Serves until `shutdown` completes, then tells every client that the gateway stops and waits for
/// ten seconds at most.
pub async fn serve(listener: TcpListener, gateway: Arc<Gateway>, shutdown: impl Future<Output = ()>) {
    let (mut connections, mut shutdown) = (JoinSet::new(), pin!(shutdown));
    loop {
        tokio::select! {
            // In this order: connections that have ended count no more.
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => {}
            stream = program::accept(&listener) => {
                if connections.len() >= gateway.config.max_connections as usize {
                    refuse(stream, &gateway);
                } else {
                    connections.spawn(connection(stream, Arc::clone(&gateway)));
                }
            }
        }
    }
    drop(listener);
    info!(connections = connections.len(), "stopping");
    gateway.stop.cancel();
    let ending = async { while connections.join_next().await.is_some() {} };
    if timeout(DRAIN, ending).await.is_err() {
        warn!(connections = connections.len(), "connections did not end in time and are cut off");
        connections.shutdown().await;
    }
    if let Some(recorder) = &gateway.recorder {
        recorder.finish();
    }
}

/// Answers one connection too many at once, if its socket takes the bytes.
fn refuse(stream: TcpStream, gateway: &Gateway) {
    const ANSWER: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\n\
        Connection: close\r\n\r\n";
    gateway.metrics.refused.fetch_add(1, Relaxed);
    if !gateway.has_tls() {
        // tokio does not know yet that the socket takes bytes.
        let _ = stream.into_std().and_then(|mut stream| stream.write(ANSWER));
    }
}

async fn connection(stream: TcpStream, gateway: Arc<Gateway>) {
    // A client that vanished is noticed where bytes are passed as they are, too.
    if let Err(error) = setsockopt(&stream, sockopt::KeepAlive, &true) {
        debug!(%error, "no keep-alive");
    }
    let incoming = tokio::select! {
        incoming = Incoming::read(stream, &gateway.front) => incoming,
        () = gateway.stop.cancelled() => return,
    };
    let outcome = match incoming {
        Ok(incoming) => route(incoming, gateway).await,
        Err(error) => Err(error),
    };
    if let Err(error) = outcome {
        debug!(%error, "no connection");
    }
}

/// Answers a request, or passes it to the relay.
async fn route(incoming: Incoming, gateway: Arc<Gateway>) -> Result<(), WireError> {
    let config = &gateway.config;
    let mut request = match Request::of(&incoming, &config.trust, gateway.has_tls()) {
        Ok(request) => request,
        Err(why) => {
            incoming.answer_with("400 Bad Request", &[TEXT], format!("{why}\n").as_bytes()).await;
            return Ok(());
        }
    };
    if let Some(id) = request.target.strip_prefix(DICTIONARIES)
        && matches!(&*request.method, "GET" | "HEAD")
    {
        dictionary(incoming, &gateway, id).await;
        return Ok(());
    }
    if !request.for_websocket {
        let accepts = request.field("accept").unwrap_or_default();
        let is_document = request.method == "GET" && accepts.contains("application/nostr+json");
        if is_document && request.is_for_relay() {
            match relay_document(&gateway, &request).await {
                Ok(Some((fields, body))) => {
                    let fields: Vec<_> = fields.iter().map(|(name, value)| (&**name, &**value)).collect();
                    incoming.answer_with("200 OK", &fields, body.as_bytes()).await;
                    return Ok(());
                }
                Ok(None) => {}
                Err(error) => {
                    no_relay(incoming, &gateway, &error).await;
                    return Ok(());
                }
            }
        }
        pass(incoming, &gateway, &request, "http").await;
        return Ok(());
    }
    let declines = gateway.declines_compression(&request);
    let server = if declines { &gateway.uncompressed } else { &gateway.front };
    let offered = |name| request.field(name);
    let (protocols, extensions) = (offered("sec-websocket-protocol"), offered("sec-websocket-extensions"));
    // A header outside its grammar is the relay's to refuse.
    let agreement = negotiate::accept(protocols.as_deref(), extensions.as_deref(), &server.support).ok();
    let is_ours = agreement.is_some_and(|agreed| agreed.token.is_some() || agreed.extensions.is_some());
    // Bytes that pass as they are cannot be recorded.
    if (!is_ours && gateway.recorder.is_none()) || !request.is_for_relay() {
        request.strip_offers(declines);
        pass(incoming, &gateway, &request, "tunnel").await;
        return Ok(());
    }
    request.strip_handshake();
    let relay = match gateway.relay.connect_for(&request.target, &request.fields, &config.limits).await {
        Ok(relay) => relay,
        Err(error) => {
            no_relay(incoming, &gateway, &error).await;
            return Ok(());
        }
    };
    let Accepted::WebSocket(client) = incoming.accept(server, None).await? else { return Ok(()) };
    let agreement = client.agreement();
    let live = gateway.metrics.client(&format!("{} {}", agreement.format, agreement.compression.name()));
    debug!(client = %request.client, ?agreement, "connected");
    let session = Session::new(Arc::clone(&gateway), live, request.client, *client, relay);
    // Boxed: the task of a connection is as large as the largest future in it.
    Box::pin(session.run()).await;
    Ok(())
}

/// Passes a request and what follows it as bytes.
async fn pass(incoming: Incoming, gateway: &Gateway, request: &Request, scheme: &str) {
    let limits = &gateway.config.limits;
    match in_time(limits, tunnel::ask(&gateway.relay, request, limits)).await {
        Ok(answered) => {
            let live = gateway.metrics.client(scheme);
            Box::pin(tunnel::pass(incoming.into_stream(), answered, request, &live, &gateway.stop)).await;
        }
        Err(error) => no_relay(incoming, gateway, &error).await,
    }
}

/// The fields and the body of the relay's NIP-11 document, to which tokens are added; `None` if the
/// relay answers otherwise.
async fn relay_document(
    gateway: &Gateway,
    request: &Request,
) -> Result<Option<(document::Fields, String)>, WireError> {
    let limits = &gateway.config.limits;
    let answer = in_time(limits, document::fetch(&gateway.relay, request, limits)).await?;
    Ok(document::with_wire(&answer, &gateway.described))
}

/// Answers with a dictionary, whose bytes never change.
async fn dictionary(incoming: Incoming, gateway: &Gateway, id: &str) {
    let found = gateway.dictionaries.iter().find(|dictionary| dictionary.id() == id);
    let open = ("Access-Control-Allow-Origin", "*");
    match found {
        Some(dictionary) => {
            let kind = ("Content-Type", "application/octet-stream");
            let cached = ("Cache-Control", "public, max-age=31536000, immutable");
            incoming.answer_with("200 OK", &[kind, cached, open], dictionary.bytes()).await;
        }
        None => {
            let why = b"no dictionary has this id; the relay's NIP-11 document lists those that do\n";
            incoming.answer_with("404 Not Found", &[TEXT, open], why).await;
        }
    }
}

/// Tells a client that the relay does not take it, by the relay's own status if it has one.
async fn no_relay(incoming: Incoming, gateway: &Gateway, error: &WireError) {
    gateway.metrics.relay_failures.fetch_add(1, Relaxed);
    warn!(%error, "the relay did not take a request");
    let status = match error {
        WireError::Handshake { status: Some(status @ 400..=599), .. } => {
            http::StatusCode::from_u16(*status).unwrap_or(http::StatusCode::BAD_GATEWAY)
        }
        _ => http::StatusCode::BAD_GATEWAY,
    };
    let text = format!("the relay behind this gateway did not take the request ({status})\n");
    incoming.answer_with(&status.to_string(), &[TEXT, RETRY], text.as_bytes()).await;
}

async fn in_time<T>(
    limits: &WireLimits,
    work: impl Future<Output = Result<T, WireError>>,
) -> Result<T, WireError> {
    let late = |_| WireError::Io(std::io::Error::from(std::io::ErrorKind::TimedOut));
    timeout(limits.handshake_timeout, work).await.map_err(late)?
}
