//! Counts for the operator, in Prometheus's text format.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use measure::CpuClock;
use program::Exposition;
use recording::Recorder;

use crate::cache::Cache;

/// What a gateway counts.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    schemes: Mutex<BTreeMap<String, Arc<Scheme>>>,
    /// Messages that were sent as JSON because the client's format does not hold them.
    pub(crate) json_texts: AtomicU64,
    /// Connections and requests that the relay did not take.
    pub(crate) relay_failures: AtomicU64,
    /// Clients that closed over their first compressed messages.
    pub(crate) shunned: AtomicU64,
    /// Connections beyond `--max-connections`.
    pub(crate) refused: AtomicU64,
}

/// Counts of the clients with one format and compression, or of those that are passed through.
#[derive(Debug, Default)]
pub(crate) struct Scheme {
    clients: AtomicU64,
    connections: AtomicU64,
    pub(crate) to_client: Bytes,
    pub(crate) to_relay: Bytes,
}

/// Bytes of one direction.
#[derive(Debug, Default)]
pub(crate) struct Bytes {
    /// As JSON, without frames: as they are at the relay.
    pub(crate) before: AtomicU64,
    /// At the client's socket.
    pub(crate) after: AtomicU64,
}

/// A client of a scheme while it is connected.
#[derive(Debug)]
pub(crate) struct Live(Arc<Scheme>);

impl std::ops::Deref for Live {
    type Target = Scheme;

    fn deref(&self) -> &Scheme {
        &self.0
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Relaxed);
    }
}

impl Metrics {
    /// Counts a client of the scheme.
    pub(crate) fn client(&self, scheme: &str) -> Live {
        let mut all = self.schemes.lock().unwrap_or_else(PoisonError::into_inner);
        let scheme = all.entry(scheme.to_owned()).or_default();
        scheme.clients.fetch_add(1, Relaxed);
        scheme.connections.fetch_add(1, Relaxed);
        Live(Arc::clone(scheme))
    }

    /// The counts as text.
    pub(crate) fn exposed(&self, open_metrics: bool, cache: &Cache, recorder: Option<&Recorder>) -> String {
        let mut metrics = Exposition::new("gateway", open_metrics);
        let all: Vec<_> = {
            let all = self.schemes.lock().unwrap_or_else(PoisonError::into_inner);
            all.iter().map(|(name, scheme)| (name.clone(), Arc::clone(scheme))).collect()
        };
        let schemes = |of: fn(&Scheme) -> &AtomicU64| {
            all.iter().map(move |(name, scheme)| (format!("{{scheme=\"{name}\"}}"), of(scheme).load(Relaxed)))
        };
        metrics.add(("clients", "gauge", "Connected clients"), schemes(|scheme| &scheme.clients));
        let connections = schemes(|scheme| &scheme.connections);
        metrics.add(("connections", "counter", "Clients that connected"), connections);
        let bytes = |of: fn(&Bytes) -> &AtomicU64| {
            let directions = all.iter().flat_map(|(name, scheme)| {
                [("to_client", name, &scheme.to_client), ("to_relay", name, &scheme.to_relay)]
            });
            directions.map(move |(direction, name, bytes)| {
                (format!("{{scheme=\"{name}\",direction=\"{direction}\"}}"), of(bytes).load(Relaxed))
            })
        };
        let before = ("bytes_before", "counter", "Bytes of messages as JSON, at the relay");
        metrics.add(before, bytes(|bytes| &bytes.before));
        metrics.add(("bytes_after", "counter", "Bytes at the client's socket"), bytes(|bytes| &bytes.after));
        let read = |count: &AtomicU64| count.load(Relaxed);
        let (events, bytes) = cache.size();
        for (name, kind, help, value) in [
            ("cache_hits", "counter", "Events that were encoded already", read(&cache.hits)),
            ("cache_misses", "counter", "Events that were not", read(&cache.misses)),
            ("cache_events", "gauge", "Events that are kept", events as u64),
            ("cache_bytes", "gauge", "Their bytes, encoded and compressed", bytes as u64),
            ("json_texts", "counter", "Messages that a format did not hold", read(&self.json_texts)),
            ("relay_failures", "counter", "Requests that found no relay", read(&self.relay_failures)),
            ("shunned", "counter", "Clients that refused compression", read(&self.shunned)),
            ("refused", "counter", "Connections beyond the limit", read(&self.refused)),
        ] {
            metrics.add((name, kind, help), [(String::new(), value)]);
        }
        if let Some(recording) = recorder.map(Recorder::status) {
            let waiting_bytes = recording.waiting_bytes.load(Relaxed) as u64;
            let failed = u64::from(recording.failed.load(Relaxed));
            for (name, kind, help, value) in [
                ("recording_lost", "counter", "Lines that the recording lacks", read(&recording.lost)),
                ("recording_queue_bytes", "gauge", "Bytes that wait for it", waiting_bytes),
                ("recording_failed", "gauge", "Whether its file cannot be written", failed),
            ] {
                metrics.add((name, kind, help), [(String::new(), value)]);
            }
        }
        if let Ok(cpu) = CpuClock::this_process().read() {
            let seconds = [(String::new(), cpu.total_ns as f64 / 1e9)];
            metrics.add(("cpu_seconds", "counter", "CPU time of this process"), seconds);
        }
        metrics.whole()
    }
}
