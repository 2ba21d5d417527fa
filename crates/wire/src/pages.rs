//! Answers of a program to requests that are for no WebSocket: its metrics, or its pages.

use std::{io, sync::Arc, thread, time::Duration};

use tokio::{net::TcpListener, runtime, sync::Semaphore, time};

use crate::{
    agreement::{Support, WireLimits},
    server::{Incoming, ServerConfig},
};

/// Wait behind a connection that the system could not accept.
const ACCEPTS_AGAIN: Duration = Duration::from_millis(50);

/// Has a thread of its own answer requests, `most` at a time and each read within `patience`, until the
/// process ends.
///
/// # Errors
/// When the system gives no thread or no runtime.
pub fn serve_pages<A: Future<Output = ()> + Send + 'static>(
    listener: std::net::TcpListener,
    (most, patience): (usize, Duration),
    answer: impl Fn(Incoming, Arc<ServerConfig>) -> A + Send + Sync + 'static,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let support = Support::default();
    let limits = WireLimits { handshake_timeout: patience, ..WireLimits::default() };
    let config = Arc::new(ServerConfig { support, limits, relay_info: String::new(), tls: None });
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let (answer, places) = (Arc::new(answer), Arc::new(Semaphore::new(most)));
    let serving = async move {
        let listener = TcpListener::from_std(listener)?;
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            let Ok((stream, _)) = listener.accept().await else {
                time::sleep(ACCEPTS_AGAIN).await;
                continue;
            };
            let (answer, config) = (Arc::clone(&answer), Arc::clone(&config));
            tokio::spawn(async move {
                // Invalid requests were answered already, and a client that left needs no answer.
                if let Ok(incoming) = Incoming::read(stream, &config).await {
                    answer(incoming, config).await;
                }
                drop(place);
            });
        }
        io::Result::Ok(())
    };
    thread::Builder::new().name("pages".to_owned()).spawn(move || runtime.block_on(serving))?;
    Ok(())
}

/// Time for a reader of metrics to take them: one that takes nothing keeps no place.
const READS: Duration = Duration::from_secs(2);

/// The format of those who accept it, and the one that everybody else reads.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT_0_0_4: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers a request for `/metrics` with what is `exposed`, in OpenMetrics or Prometheus's text format.
/// A server on loopback answers only those who name this host. Others are told the `paths` that there are.
pub async fn answer_metrics(
    request: Incoming,
    is_loopback: bool,
    paths: &'static str,
    exposed: impl FnOnce(bool) -> String,
) {
    let status = match (request.method(), request.target()) {
        // A web page whose name leads to loopback may not read what it finds there.
        _ if is_loopback && !request.names_this_host() => "421 Misdirected Request",
        ("GET" | "HEAD", "/metrics") => "200 OK",
        ("GET" | "HEAD", _) => "404 Not Found",
        _ => "405 Method Not Allowed",
    };
    let accepted = request.header("accept").unwrap_or_default();
    let open_metrics = accepted.contains("application/openmetrics-text");
    let (kind, body) = match status {
        "200 OK" => (if open_metrics { OPEN_METRICS } else { TEXT_0_0_4 }, exposed(open_metrics)),
        _ => ("text/plain; charset=utf-8", format!("{status}: this address has {paths}\n")),
    };
    let fields = [("Content-Type", kind)];
    let _ = time::timeout(READS, request.answer_with(status, &fields, body.as_bytes())).await;
}
