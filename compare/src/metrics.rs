//! State of all blocks of a run while it lasts.

use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use client_sim::metrics::{Endpoint, Snapshot};
use measure::LiveCounts;

use program::UsageError;
use report::result::Block;

/// Counts of all blocks so far, for whoever asks; its copies are one.
#[derive(Debug, Clone, Default)]
pub struct Metrics(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// The blocks that ended.
    ended: Snapshot,
    /// The running block.
    block: Snapshot,
}

impl Metrics {
    /// Serves what is seen of a run from now on, at `[HOST:]PORT`.
    ///
    /// # Errors
    /// When the address is none, or in use.
    pub(crate) fn serve(address: &str) -> Result<Metrics> {
        let endpoint = Endpoint::listen(address).map_err(UsageError)?;
        let metrics = Metrics::default();
        let seen = metrics.clone();
        endpoint.serve(move || seen.seen())?;
        Ok(metrics)
    }

    /// The run as it is.
    pub(crate) fn seen(&self) -> Snapshot {
        self.with(|State { ended, block }| Snapshot {
            sent: ended.sent + block.sent,
            deliveries: ended.deliveries + block.deliveries,
            connections: block.connections,
            latency_ns_p99: block.latency_ns_p99,
            ..*ended
        })
    }

    /// Takes what a running block counts.
    pub(crate) fn counted(&self, counts: &LiveCounts, latency_ns_p99: u64) {
        let LiveCounts { connections, sent, deliveries, .. } = *counts;
        self.with(|state| {
            state.block = Snapshot { connections, sent, deliveries, latency_ns_p99, ..Snapshot::default() }
        });
    }

    /// Takes a block that ended: by its ledger, or without a record as it was last seen.
    pub(crate) fn ended(&self, block: &Block) {
        self.with(|State { ended, block: running }| {
            let last = std::mem::take(running);
            ended.judged(block.record.as_ref().map(|record| record.validity.class));
            let Some(record) = &block.record else {
                ended.sent += last.sent;
                ended.deliveries += last.deliveries;
                return;
            };
            let counts = &record.counts;
            ended.sent += counts.acked + counts.rejected + counts.timed_out + counts.unknown;
            ended.deliveries += record.counts.deliveries;
            ended.relay_cpu_ns += record.relay_cpu.map_or(0, |cpu| cpu.total_ns);
            ended.client_cpu_ns += record.client_cpu.total_ns;
        });
    }

    fn with<R>(&self, look: impl FnOnce(&mut State) -> R) -> R {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
