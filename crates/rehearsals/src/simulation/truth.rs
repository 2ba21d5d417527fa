//! The true ledger: a log of what crossed the network, added up by brute force when the run is
//! over.
//!
//! Nothing here uses the clients' code. A delivery is judged by the REQ that went over the network,
//! a publication by the OK that came back, a reconciliation by the NEG-MSGs (NIP-77).

mod tally;

use std::{borrow::Cow, sync::Arc};

use codecs::{ClientMessage, Codec, Filter, RelayMessage};
use measure::Counts;

use self::tally::Tally;
use client::shared::Shared;
use workload::{Reading, Task};

/// One entry of the log: a message or another event, as its client saw it. Peek is an event with the
/// planned id, which its client may recognise without decoding the rest; otherwise it is the next
/// message.
#[derive(Debug)]
enum Entry {
    Connected,
    Req { id: String, filter: Filter },
    Close { id: String },
    Publish { id: [u8; 32] },
    Auth { id: [u8; 32] },
    NegOpen { id: String, bytes: usize },
    NegSent { bytes: usize },
    Event { id: String, event: EventMatch },
    Peek { id: String, event: usize, decoded: Box<Entry> },
    Eose { id: String, now_ns: u64 },
    Closed { id: String, now_ns: u64 },
    Ok { id: [u8; 32], accepted: bool },
    NegMsg { id: String, message: Vec<u8> },
    NegErr { id: String },
    Challenge,
    Undecodable,
    Timer { now_ns: u64 },
}

/// An event beside the plan.
#[derive(Debug, Clone, Copy, PartialEq)]
enum EventMatch {
    Unknown,
    Altered,
    /// The place in the plan.
    Intact(usize),
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
        let id = Cow::into_owned;
        let entry = match codec.decode_client(payload).unwrap() {
            ClientMessage::Req { subscription, mut filters } => {
                Entry::Req { id: id(subscription), filter: filters.remove(0) }
            }
            ClientMessage::Close { subscription } => Entry::Close { id: id(subscription) },
            ClientMessage::Event(event) => Entry::Publish { id: event.id },
            ClientMessage::Auth(event) => Entry::Auth { id: event.id },
            ClientMessage::NegOpen { subscription, message, .. } => {
                Entry::NegOpen { id: id(subscription), bytes: message.len() }
            }
            ClientMessage::NegMsg { message, .. } => Entry::NegSent { bytes: message.len() },
            ClientMessage::NegClose { .. } => return,
            other => panic!("no role of these plans sends {other:?}"),
        };
        self.log.push((client, entry));
    }

    pub(super) fn received(&mut self, client: usize, codec: &dyn Codec, payload: &[u8], now_ns: u64) {
        let mut entries = self.entries(codec, payload, now_ns);
        let role = &self.shared.workload.roles[client];
        if let Task::Reader(Reading { peeks: true, .. }) = role.task
            && let Some((subscription, head)) = codec.peek_relay(payload)
            && let Some(event) = self.planned(&head.id)
        {
            let decoded = Box::new(entries.remove(0));
            entries = vec![Entry::Peek { id: subscription.into_owned(), event, decoded }];
        }
        self.log.extend(entries.into_iter().map(|entry| (client, entry)));
    }

    fn entries(&self, codec: &dyn Codec, payload: &[u8], now_ns: u64) -> Vec<Entry> {
        let Ok(message) = codec.decode_relay(payload) else { return vec![Entry::Undecodable] };
        let id = Cow::into_owned;
        vec![match message {
            RelayMessage::Event { subscription, event } => {
                Entry::Event { id: id(subscription), event: self.seen(&event) }
            }
            RelayMessage::Events { subscription, events } => {
                let entry = |event| Entry::Event { id: subscription.to_string(), event: self.seen(event) };
                return events.iter().map(entry).collect();
            }
            RelayMessage::Eose { subscription, .. } => Entry::Eose { id: id(subscription), now_ns },
            RelayMessage::Closed { subscription, .. } => Entry::Closed { id: id(subscription), now_ns },
            RelayMessage::Ok { id, accepted, text } => {
                Entry::Ok { id, accepted: accepted && !text.starts_with("duplicate:") }
            }
            RelayMessage::NegMsg { subscription, message } => {
                Entry::NegMsg { id: id(subscription), message: message.into_owned() }
            }
            RelayMessage::NegErr { subscription, .. } => Entry::NegErr { id: id(subscription) },
            RelayMessage::Auth { .. } => Entry::Challenge,
            other => panic!("a relay of these runs does not say {other:?}"),
        }]
    }

    fn seen(&self, event: &codecs::Event<'_>) -> EventMatch {
        match self.planned(&event.id) {
            None => EventMatch::Unknown,
            Some(n) if self.shared.workload.events[n] != *event => EventMatch::Altered,
            Some(n) => EventMatch::Intact(n),
        }
    }

    fn planned(&self, id: &[u8; 32]) -> Option<usize> {
        self.shared.workload.events.iter().position(|planned| planned.id == *id)
    }

    /// Adds up the true ledger.
    pub(super) fn ledger(&self, complete: bool, cut_off: &[bool]) -> Counts {
        Tally::from_truth(self).close(complete, cut_off)
    }
}
