//! What all sessions share: the store, the subscriptions and the counters.
//!
//! Store and subscriptions stand behind one lock. Whoever takes it gives an event or a REQ its
//! place in one order: a REQ finds the events before it in its snapshot and gets the events after
//! it through its outbox. Nothing falls between the two, nothing is in both.
//!
//! The lock covers that order alone: what an event costs in a format is spent outside of it, once
//! for each format, and so are the outboxes. The events that one connection publishes reach every
//! subscription in the order in which they were published. Events of two connections may reach a
//! subscription in another order than the store has them, and in another order than the next
//! subscription: NIP-01 demands none of live events.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use codecs::{Codec, Event, Filter, Format, UnknownName};
use tracing::debug;

use crate::{
    config::Config,
    fanout::{Delivery, Dropped, Outbox, Subscription, Subscriptions},
    fault::{Burner, DeliveryFaults},
    store::{AllEncodings, Outcome, Store, StoredEvent},
    totals::{Counters, Totals, add},
};

/// The state of one running relay, without its sockets.
#[derive(Debug)]
pub struct Relay {
    pub(crate) config: Config,
    pub(crate) counters: Counters,
    /// Only in a relay that was told to misbehave.
    pub(crate) burner: Option<Burner>,
    pub(crate) delivery_faults: DeliveryFaults,
    codecs: Vec<Option<&'static dyn Codec>>,
    /// See [`Store::encodings`].
    encodings: Arc<AllEncodings>,
    connections: AtomicU64,
    shared: Mutex<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: Store,
    subscriptions: Subscriptions,
}

/// What preloading did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Preloaded {
    /// Events in the store.
    pub stored: usize,
    /// Duplicates, older versions, deleted and ephemeral events.
    pub left_out: usize,
}

impl Relay {
    /// A relay without events: those of [`Config::preload`] are for [`Relay::preload`].
    ///
    /// # Errors
    /// [`UnknownName`] when the format insisted on has no such implementation.
    pub fn new(config: Config) -> Result<Relay, UnknownName> {
        let shared =
            Shared { store: Store::new(config.store_bytes), subscriptions: Subscriptions::default() };
        Ok(Relay {
            codecs: config.codecs()?,
            counters: Counters::default(),
            burner: Burner::of(&config.faults),
            delivery_faults: DeliveryFaults::of(&config.faults),
            connections: AtomicU64::new(0),
            encodings: Arc::clone(shared.store.encodings()),
            shared: Mutex::new(shared),
            config,
        })
    }

    /// The codec that sessions of this format use.
    pub(crate) fn codec(&self, format: Format) -> &'static dyn Codec {
        self.codecs[format.index()].expect("only enabled formats are negotiated")
    }

    /// The number of a new connection.
    pub(crate) fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    /// Stores events without checking them, as a relay finds them on its disk.
    pub fn preload(&self, events: &[Event<'_>]) -> Preloaded {
        let mut shared = self.lock();
        let offered = events.len();
        for event in events {
            shared.store.insert(&Arc::new(StoredEvent::new(event, &self.encodings)));
        }
        let stored = shared.store.len();
        Preloaded { stored, left_out: offered - stored }
    }

    /// Stores an event that was checked as configured, and queues it for every subscription that it
    /// matches. `received` are the bytes that stand for it in the publisher's format, where they
    /// may be passed on.
    pub(crate) fn publish(
        &self,
        event: &Event<'_>,
        received: Option<(Format, &[u8])>,
        unix_seconds: u64,
    ) -> Outcome {
        let stored = Arc::new(match received {
            Some(received) => StoredEvent::received(event, received, &self.encodings),
            None => StoredEvent::new(event, &self.encodings),
        });
        let mut matched = Vec::new();
        let outcome = {
            let mut shared = self.at(unix_seconds);
            let Shared { store, subscriptions } = &mut *shared;
            let outcome = store.insert(&stored);
            if matches!(outcome, Outcome::Stored | Outcome::Ephemeral) {
                subscriptions.matching(event, |subscription| matched.push(Arc::clone(subscription)));
            }
            outcome
        };
        for subscription in matched {
            self.queue(subscription, event, &stored);
        }
        outcome
    }

    /// Registers a subscription and takes the stored events that it begins with.
    pub(crate) fn subscribe(
        &self,
        name: String,
        format: Format,
        outbox: Arc<Outbox>,
        filters: Vec<Filter>,
        unix_seconds: u64,
    ) -> (Arc<Subscription>, Vec<Arc<StoredEvent>>) {
        let mut shared = self.at(unix_seconds);
        let stored = shared.store.query(&filters, self.config.query_limits());
        (shared.subscriptions.add(name, format, outbox, filters), stored)
    }

    /// Ends a subscription.
    pub(crate) fn unsubscribe(&self, subscription: &Subscription) {
        self.lock().subscriptions.remove(subscription);
    }

    /// Whether an event matches a subscription that has not ended.
    pub(crate) fn matches(&self, subscription: &Subscription, event: &Event<'_>) -> bool {
        self.lock().subscriptions.matches(subscription, event)
    }

    /// An event that is sent and never stored.
    pub(crate) fn forged(&self, event: &Event<'_>) -> Arc<StoredEvent> {
        Arc::new(StoredEvent::new(event, &self.encodings))
    }

    /// How many stored events match.
    pub(crate) fn count(&self, filters: &[Filter], unix_seconds: u64) -> usize {
        self.at(unix_seconds).store.count(filters)
    }

    /// Times and ids of the stored events that match, the newest `limit` of them.
    pub(crate) fn matching(&self, filter: &Filter, limit: usize, unix_seconds: u64) -> Vec<(i64, [u8; 32])> {
        self.at(unix_seconds).store.matching_ids(filter, limit)
    }

    /// The counters now.
    pub fn totals(&self) -> Totals {
        let totals = self.counters.totals();
        let encodings_cold = self.encodings.cold.load(Ordering::Relaxed);
        let delivered = totals.deliveries_stored + totals.deliveries_live + totals.deliveries_dropped;
        Totals {
            events_stored: self.lock().store.len() as u64,
            encodings_cold,
            encodings_cached: delivered.saturating_sub(encodings_cold + totals.encodings_spliced),
            ..totals
        }
    }

    fn queue(&self, subscription: Arc<Subscription>, event: &Event<'_>, stored: &Arc<StoredEvent>) {
        let format = subscription.format;
        match stored.encoded_from(event, format, self.codec(format)) {
            Ok(encoded) => {
                let payload_bytes = encoded.bytes.len();
                let outbox = Arc::clone(&subscription.outbox);
                match outbox
                    .push(Delivery { subscription, event: Arc::clone(stored), payload_bytes }, payload_bytes)
                {
                    Ok(()) => {}
                    Err(dropped) => {
                        add(&self.counters.deliveries_dropped, 1);
                        add(&self.counters.slow_consumers, u64::from(dropped == Dropped::Overflow));
                    }
                }
            }
            Err(error) => {
                add(&self.counters.unencodable, 1);
                debug!(id = codecs::hex::encode(&event.id), %error, "a subscriber misses an event");
            }
        }
    }

    /// What is shared, without what has expired by then.
    fn at(&self, unix_seconds: u64) -> MutexGuard<'_, Shared> {
        let mut shared = self.lock();
        if !self.config.keep_expired {
            shared.store.expire(unix_seconds);
        }
        shared
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // One session's bug should not stop the relay.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
