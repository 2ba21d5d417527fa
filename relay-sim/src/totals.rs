//! Counters of the relay's work, reported when it stops.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use serde::{Deserialize, Serialize};

use wire::Traffic;

use crate::fault::Kind;

/// Declares [`Counters`] and [`Totals`] from one list, so that nothing is counted without being
/// reported.
macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Counters that every session shares.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $($(#[doc = $doc])+ pub(crate) $name: AtomicU64,)+
            traffic: Mutex<Traffic>,
        }

        /// Counts of a relay from its start to its stop.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[non_exhaustive]
        pub struct Totals {
            $($(#[doc = $doc])+ pub $name: u64,)+
            /// Messages and bytes of all connections that ended.
            pub traffic: Traffic,
        }

        impl Counters {
            /// The counters now; traffic of connections that still live is not in it yet.
            pub(crate) fn totals(&self) -> Totals {
                Totals {
                    $($name: self.$name.load(Ordering::Relaxed),)+
                    traffic: *self.traffic.lock().unwrap_or_else(PoisonError::into_inner),
                }
            }
        }
    };
}

counters! {
    /// WebSocket connections opened.
    connections,
    /// Plain HTTP requests answered (NIP-11 and the like).
    http_requests,
    /// Connections whose opening handshake failed.
    handshakes_failed,
    /// TCP connections turned away for `--max-connections`.
    connections_refused,
    /// EVENT messages read.
    events_received,
    /// Events answered OK true, duplicates apart.
    events_accepted,
    /// Events answered OK false.
    events_rejected,
    /// Events answered OK true because they were here already.
    events_duplicate,
    /// Signatures checked with a key that was parsed for an earlier event of its author.
    keys_known,
    /// Keys parsed to check a signature.
    keys_parsed,
    /// Events in the store at the end.
    events_stored,
    /// REQ messages read.
    requests,
    /// COUNT messages read.
    counts,
    /// REQ and COUNT messages answered CLOSED.
    requests_refused,
    /// NEG-OPEN messages read.
    reconciliations,
    /// NEG-OPEN and NEG-MSG messages answered NEG-ERR.
    reconciliations_refused,
    /// Stored events sent in answer to REQs.
    deliveries_stored,
    /// Live events sent to subscriptions.
    deliveries_live,
    /// Live events that were matched but not sent: the connection ended, or its subscription did.
    deliveries_dropped,
    /// Deliveries sent with the bytes of the publisher.
    encodings_spliced,
    /// Events encoded or read from disk, each for its first delivery in a format.
    encodings_cold,
    /// Deliveries of events that were encoded before, those matched but not sent included.
    encodings_cached,
    /// Deliveries skipped because the connection's format cannot hold the event.
    unencodable,
    /// Deliveries skipped because the event cannot be read from `--store`.
    unreadable,
    /// Deliveries left out by `--fault lose`.
    planted_lost,
    /// Deliveries sent twice by `--fault double`.
    planted_doubled,
    /// Deliveries altered by `--fault alter` and `wrong-sig`.
    planted_altered,
    /// Events invented by `--fault invent`, and ids by `wrong-id`.
    planted_invented,
    /// Deliveries sent for another subscription by `--fault misroute`.
    planted_misrouted,
    /// Messages that do not decode, came in the wrong kind of frame, or broke the rules of the
    /// transport.
    malformed,
    /// Well-formed messages with an unknown verb or opcode.
    unsupported,
    /// Connections closed (1013) for leaving too much unread.
    slow_consumers,
    /// Connections closed because the peer gave no sign of life.
    silent_peers,
    /// Connections that broke off, or that the peer closed with an error.
    connections_failed,
    /// Sessions that still ran when the relay was told to stop: one for each client that was there.
    sessions_left,
    /// Memory of connections' own compressors and decompressors, in bytes: each as it was at its
    /// connection's end, added up over all connections.
    compression_bytes,
    /// Memory of compressors and decompressors that a thread's connections share, in bytes: the most that a
    /// connection found.
    compression_shared_bytes,
    /// Sessions that ended in a panic: a bug of this program.
    sessions_panicked,
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl Counters {
    /// Counts a fault that hit a delivery, by what a client sees of it.
    pub(crate) fn add_planted(&self, kind: Kind) {
        let counter = match kind {
            Kind::Lose => &self.planted_lost,
            Kind::Double => &self.planted_doubled,
            Kind::Alter | Kind::WrongSig => &self.planted_altered,
            Kind::Invent | Kind::WrongId => &self.planted_invented,
            Kind::Misroute => &self.planted_misrouted,
            _ => return,
        };
        add(counter, 1);
    }

    /// Adds what a connection's compression took, at its end.
    pub(crate) fn add_compression(&self, memory: wire::CompressionMemory) {
        add(&self.compression_bytes, memory.own_bytes as u64);
        self.compression_shared_bytes.fetch_max(memory.shared_bytes as u64, Ordering::Relaxed);
    }

    /// Adds what a connection moved, once it ended.
    pub(crate) fn add_traffic(&self, traffic: Traffic) {
        *self.traffic.lock().unwrap_or_else(PoisonError::into_inner) += traffic;
    }
}
