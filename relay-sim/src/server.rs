//! Accepts connections and gives each its session, until told to stop.

use std::{borrow::Cow, collections::HashMap, future::Future, sync::Arc};

use tokio::{
    net::{TcpListener, TcpStream},
    task::{Id, JoinError, JoinSet},
    time::{Instant, timeout},
};
use tracing::{debug, error, warn};
use wire::{Accepted, Incoming, ServerConfig, WireError};

use crate::{
    config::Config,
    control,
    fanout::{Outbox, Stop},
    fault::{self, Kind, SpoiltFrames},
    nip11,
    relay::Relay,
    session,
    totals::{Totals, add},
};

/// Serves until `shutdown` completes, then lets every session finish its current message, delivers
/// what was accepted, and closes with 1001.
///
/// # Errors
/// Only before the first connection: a format without the chosen implementation, or a store that
/// cannot be used. Afterwards an error ends at most one connection.
pub async fn serve(
    listener: TcpListener,
    config: Config,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<Totals> {
    Ok(serve_relay(listener, open(config)?, shutdown).await)
}

/// The relay of a configuration, with its events on disk and its preloaded events.
///
/// # Errors
/// When a format has no such implementation, or the store cannot be used.
pub(crate) fn open(mut config: Config) -> anyhow::Result<Arc<Relay>> {
    let preload = std::mem::take(&mut config.preload);
    let relay = Relay::open(config, session::time_now().unix_seconds)?;
    relay.preload(&preload);
    Ok(relay)
}

/// As [`serve`], for a relay that its owner asks for totals meanwhile.
pub(crate) async fn serve_relay(
    listener: TcpListener,
    relay: Arc<Relay>,
    shutdown: impl Future<Output = ()>,
) -> Totals {
    let config = &relay.config;
    relay.faults.begin(std::time::Instant::now());
    if !config.faults.is_empty() {
        warn!(faults = %relay.faults.names().join(" "), "this relay misbehaves as it was told to");
        tokio::spawn(fault::stall(Arc::clone(&relay.faults)));
    }
    let wire = Arc::new(ServerConfig {
        support: config.support(),
        limits: config.wire,
        relay_info: nip11::document(config, relay.at_rest(), &relay.faults.names(), false),
        tls: config.tls.clone(),
    });
    let mut sessions =
        Sessions { relay: Arc::clone(&relay), wire, tasks: JoinSet::new(), live: HashMap::new() };
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            stream = program::accept(&listener) => sessions.start(stream),
            Some(ended) = sessions.tasks.join_next_with_id() => sessions.ended(ended),
        }
    }
    drop(listener);
    sessions.stop().await;
    relay.close();
    if let Some(recorder) = &relay.config.recorder {
        recorder.finish();
    }
    relay.totals()
}

struct Sessions {
    relay: Arc<Relay>,
    wire: Arc<ServerConfig>,
    tasks: JoinSet<()>,
    live: HashMap<Id, Arc<Outbox>>,
}

impl Sessions {
    fn start(&mut self, stream: TcpStream) {
        let relay = Arc::clone(&self.relay);
        if relay.config.max_connections.is_some_and(|max| self.tasks.len() >= max) {
            add(&relay.counters.connections_refused, 1);
            return;
        }
        let outbox = Outbox::new(relay.config.outbox_bytes);
        let wire = Arc::clone(&self.wire);
        let task = self.tasks.spawn(connection(stream, relay, wire, Arc::clone(&outbox)));
        self.live.insert(task.id(), outbox);
    }

    fn ended(&mut self, ended: Result<(Id, ()), JoinError>) {
        let id = match ended {
            Ok((id, ())) => id,
            Err(failure) => {
                if failure.is_panic() {
                    add(&self.relay.counters.sessions_panicked, 1);
                    error!(%failure, "a session panicked: this is a bug; the relay goes on");
                }
                failure.id()
            }
        };
        self.live.remove(&id);
    }

    async fn stop(mut self) {
        while let Some(ended) = self.tasks.try_join_next_with_id() {
            self.ended(ended);
        }
        add(&self.relay.counters.sessions_left, self.tasks.len() as u64);
        for outbox in self.live.values() {
            outbox.stop(Stop::Shutdown);
        }
        let deadline = Instant::now() + self.relay.config.stop_timeout;
        while let Ok(Some(ended)) = timeout(deadline - Instant::now(), self.tasks.join_next_with_id()).await {
            self.ended(ended);
        }
        if !self.tasks.is_empty() {
            warn!(sessions = self.tasks.len(), "sessions did not end in time and are cut off");
            self.tasks.shutdown().await;
        }
    }
}

async fn connection(stream: TcpStream, relay: Arc<Relay>, wire: Arc<ServerConfig>, outbox: Arc<Outbox>) {
    let accepted = tokio::select! {
        accepted = shake_hands(stream, &relay, &wire) => accepted,
        _ = outbox.stopped() => return,
    };
    match accepted {
        Ok(Some((Accepted::WebSocket(conn), number))) => {
            add(&relay.counters.connections, 1);
            debug!(peer = ?conn.peer_addr(), agreement = ?conn.agreement(), "connected");
            session::run(relay, *conn, outbox, number).await;
        }
        Ok(Some((Accepted::Http, _))) => add(&relay.counters.http_requests, 1),
        Ok(None) => add(&relay.counters.handshakes_failed, 1),
        Err(error) => {
            add(&relay.counters.handshakes_failed, 1);
            debug!(%error, "no connection");
        }
    }
}

/// Answers a request, and gives a WebSocket its number. `None` where a fault ends it.
async fn shake_hands(
    stream: TcpStream,
    relay: &Arc<Relay>,
    wire: &Arc<ServerConfig>,
) -> Result<Option<(Accepted, u64)>, WireError> {
    let incoming = Incoming::read(stream, wire).await?;
    let now = std::time::Instant::now();
    if relay.config.control && incoming.target() == control::TARGET {
        control::answer(incoming, relay, wire).await?;
        return Ok(Some((Accepted::Http, 0)));
    }
    if !incoming.asks_for_websocket() {
        let mut wire = Cow::Borrowed(&**wire);
        if relay.may_misbehave() {
            let lies = relay.faults.acts(Kind::Nip11Lies, now);
            let names = relay.faults.names();
            wire.to_mut().relay_info = nip11::document(&relay.config, relay.at_rest(), &names, lies);
        }
        return Ok(Some((incoming.accept(&wire, None).await?, 0)));
    }
    let number = relay.next_connection();
    let mut wire = Cow::Borrowed(&**wire);
    if relay.config.declines_compression_to(incoming.header("user-agent").as_deref()) {
        wire.to_mut().support.compressions.clear();
    }
    if !relay.may_misbehave() {
        return Ok(Some((incoming.accept(&wire, None).await?, number)));
    }
    let mut planted = relay.planted(number);
    if planted.next(Kind::ResetHandshake, now).is_some() {
        incoming.reset();
        return Ok(None);
    }
    if planted.next(Kind::IgnoreHandshake, now).is_some() {
        incoming.ignore().await;
        return Ok(None);
    }
    if planted.next(Kind::DeclineCompression, now).is_some() {
        wire.to_mut().support.compressions.clear();
    }
    let tamper = Box::new(SpoiltFrames::new(&relay.faults, number));
    Ok(Some((incoming.accept(&wire, Some(tamper)).await?, number)))
}
