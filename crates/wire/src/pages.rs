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
