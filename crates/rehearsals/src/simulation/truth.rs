//! The true ledger: a log of what crossed the network, added up by brute force when the run is
//! over.
//!
//! Nothing here uses the clients' code. A delivery is judged by the REQ that went over the network,
//! a publication by the OK that came back, a reconciliation by the NEG-MSGs (NIP-77).

mod tally;

use std::sync::Arc;

use codecs::{ClientMessage, Codec, RelayMessage};
use measure::Counts;

use self::tally::Tally;
use client::shared::Shared;
use workload::{Reading, Task};

/// One entry of the log, as its client saw it.
#[derive(Debug)]
enum Entry {
    Connected,
    Timer {
        now_ns: u64,
    },
    Sent(ClientMessage<'static>),
    Received {
        /// None if it cannot be decoded.
        message: Option<RelayMessage<'static>>,
        /// Subscription and place in the plan of an event that its client may recognise by its id, without
        /// decoding the rest.
        peeked: Option<(String, usize)>,
        now_ns: u64,
    },
}

#[derive(Debug)]
pub(super) struct Truth {
    /// Only its plan.
    shared: Arc<Shared>,
    /// Entries of all clients, in the order of time.
    log: Vec<(usize, Entry)>,
    /// The length of the log when the run started.
    start: usize,
}

impl Truth {
    pub(super) fn new(shared: Arc<Shared>) -> Truth {
        Truth { shared, log: Vec::new(), start: 0 }
    }

    pub(super) fn start(&mut self) {
        self.start = self.log.len();
    }

    pub(super) fn connected(&mut self, client: usize) {
        self.log.push((client, Entry::Connected));
    }

    pub(super) fn timer(&mut self, client: usize, now_ns: u64) {
        self.log.push((client, Entry::Timer { now_ns }));
    }

    pub(super) fn sent(&mut self, client: usize, codec: &dyn Codec, payload: &[u8]) {
        self.log.push((client, Entry::Sent(codec.decode_client(payload).unwrap().into_owned())));
    }

    pub(super) fn received(&mut self, client: usize, codec: &dyn Codec, payload: &[u8], now_ns: u64) {
        let message = codec.decode_relay(payload).ok().map(RelayMessage::into_owned);
        let workload = &self.shared.workload;
        let peeks = matches!(workload.roles[client].task, Task::Reader(Reading { peeks: true, .. }));
        let peeked = codec.peek_relay(payload).filter(|_| peeks).and_then(|(subscription, head)| {
            let event = workload.events.iter().position(|planned| planned.id == head.id)?;
            Some((subscription.into_owned(), event))
        });
        self.log.push((client, Entry::Received { message, peeked, now_ns }));
    }

    /// Adds up the true ledger.
    pub(super) fn ledger(&self, complete: bool, cut_off: &[bool]) -> Counts {
        Tally::from_truth(self).close(complete, cut_off)
    }
}
