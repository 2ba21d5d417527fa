//! State that all sessions share: the store, the subscriptions and the counters.
//!
//! Store and subscriptions stand behind one lock. Whoever takes it gives an event or a REQ its
//! place in one order: a REQ finds the events before it in its snapshot and gets the events after
//! it through its outbox. Nothing falls between the two, nothing is in both.
//!
//! A relay with a store on disk gives an event its place after the commit. Until then no client sees the
//! event, and its publisher gets no OK (`committer.rs`).
//!
//! The lock covers that order alone. Encoding (once per format), outboxes and reads from disk happen
//! outside of it. The events that one
//! connection publishes reach every subscription in the order in which they were published. Events
//! of two connections may reach a subscription in another order than the store has them, and in
//! another order than the next subscription: NIP-01 demands none of live events.

use std::{
    cell::Cell,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::Context;
use codecs::{Codec, Event, Filter, Format, PublicKeys, RelayMessage, UnknownName};
use tracing::{debug, error, info};

use crate::{
    committer::{Committer, Offer},
    config::Config,
    fanout::{Delivery, Dropped, Outbox, Queued, Subscription, Subscriptions},
    fault::{Burner, Faults, Planted},
    store::{AllEncodings, Disk, Outcome, Store, StoredEvent},
    totals::{Counters, Totals, add},
};

/// Parsed keys of authors that are kept: at most 1 MB (docs/decisions/public-keys.md).
const PUBLIC_KEYS: usize = 8_192;

thread_local! {
    /// Memory for the subscriptions that an event matches.
    static MATCHED: Cell<Vec<Arc<Subscription>>> = const { Cell::new(Vec::new()) };
}

/// The state of one running relay, without its sockets.
#[derive(Debug)]
pub struct Relay {
    pub(crate) config: Config,
    pub(crate) counters: Counters,
    /// The checker of signatures, with the keys that it has seen.
    pub(crate) keys: PublicKeys,
    /// Only in a relay that was told to misbehave.
    pub(crate) burner: Option<Burner>,
    pub(crate) faults: Arc<Faults>,
    codecs: Vec<Option<&'static dyn Codec>>,
    /// The largest event in any format that a message has room for.
    pub(crate) max_event_bytes: usize,
    /// See [`Store::encodings`].
    encodings: Arc<AllEncodings>,
    connections: AtomicU64,
    shared: Mutex<Shared>,
    durable: Option<Durable>,
}

/// Parts that only a relay with a store on disk has.
#[derive(Debug)]
struct Durable {
    disk: Arc<Disk>,
    committer: Arc<Committer>,
}

impl Drop for Durable {
    fn drop(&mut self) {
        self.committer.stop();
    }
}

#[derive(Debug)]
struct Shared {
    store: Store,
    subscriptions: Subscriptions,
}

impl Relay {
    /// A relay without events, in memory: those of [`Config::preload`] are for [`Relay::preload`],
    /// and [`Config::store`] is for [`Relay::open`].
    ///
    /// # Errors
    /// [`UnknownName`] when the format insisted on has no such implementation.
    pub fn new(mut config: Config) -> Result<Relay, UnknownName> {
        /// Bytes of an EVENT message around its event, and for each byte of its subscription id in JSON.
        const AROUND_BYTES: (usize, usize) = (128, 6);
        /// Clients read no larger message in capnp-packed, whatever the frames may have.
        const UNPACKED_BYTES: usize = 8 << 20;
        config.limits.max_unpacked_bytes = config.wire.max_message_bytes;
        let around_bytes = config.limits.max_subscription_chars.saturating_mul(AROUND_BYTES.1);
        let around_bytes = around_bytes.saturating_add(AROUND_BYTES.0);
        let codecs = config.codecs()?;
        let is_packed = |format: Format| format.name() == "capnp-packed" && codecs[format.index()].is_some();
        let unpacked_bytes = if Format::all().any(is_packed) { UNPACKED_BYTES } else { usize::MAX };
        let message_bytes = config.wire.outgoing_bytes().min(unpacked_bytes);
        let shared =
            Shared { store: Store::new(config.store_bytes), subscriptions: Subscriptions::default() };
        let faults = Faults::new(&config.faults);
        Ok(Relay {
            codecs,
            max_event_bytes: message_bytes.saturating_sub(around_bytes),
            counters: Counters::default(),
            keys: PublicKeys::at_most(PUBLIC_KEYS),
            burner: Burner::from_faults(&faults),
            faults: Arc::new(faults),
            connections: AtomicU64::new(0),
            encodings: Arc::clone(shared.store.encodings()),
            shared: Mutex::new(shared),
            durable: None,
            config,
        })
    }

    /// Opens a relay with the events of [`Config::store`], if one is configured. Events that have expired
    /// by `unix_seconds` are left out. [`Relay::close`] ends the relay.
    ///
    /// # Errors
    /// When the format insisted on has no such implementation, or the store cannot be used
    /// ([`crate::StoreError`]).
    pub fn open(config: Config, unix_seconds: u64) -> anyhow::Result<Arc<Relay>> {
        let mut relay = Relay::new(config)?;
        let Some(store) = &relay.config.store else { return Ok(Arc::new(relay)) };
        let disk = Arc::new(Disk::open(store, relay.config.implementation)?);
        relay.lock().store.load(&disk, (!relay.config.keep_expired).then_some(unix_seconds))?;
        relay.durable = Some(Durable { disk, committer: Arc::default() });
        let relay = Arc::new(relay);
        let weak = Arc::downgrade(&relay);
        // False ends the committer's thread: the relay was dropped.
        let settle = move |offers| weak.upgrade().map(|relay| relay.settle(offers)).is_some();
        if let Some(durable) = &relay.durable {
            durable.committer.start(settle).context("cannot start the thread that writes the store")?;
        }
        Ok(relay)
    }

    /// Writes all offered events to disk, refuses later ones, and removes the rows that are left over.
    pub fn close(&self) {
        let Some(Durable { disk, committer }) = &self.durable else { return };
        committer.close();
        // The committer removes rows only when it writes some.
        let removed = self.lock().store.take_removed();
        if let Err(error) = disk.commit(&removed, &[]) {
            // The next start finds them superseded, deleted or expired once more.
            error!(%error, "rows that are no longer needed stay");
        }
    }

    /// The format of the events on disk, if there is a store.
    pub fn at_rest(&self) -> Option<Format> {
        Some(self.durable.as_ref()?.disk.format())
    }

    /// The codec that sessions of this format use.
    pub(crate) fn codec(&self, format: Format) -> &'static dyn Codec {
        self.codecs[format.index()].expect("only enabled formats are negotiated")
    }

    /// A format on offer in which the event is too large for a message, and its bytes in it. A format
    /// that cannot hold the event at all does not count: its answers leave the event out.
    pub(crate) fn undeliverable(&self, event: &Event<'_>) -> Option<(Format, usize)> {
        if most_bytes(event) <= self.max_event_bytes {
            return None;
        }
        let mut bytes = Vec::new();
        Format::all().find_map(|format| {
            bytes.clear();
            self.codecs[format.index()]?.encode_event(event, &mut bytes).ok()?;
            (bytes.len() > self.max_event_bytes).then_some((format, bytes.len()))
        })
    }

    /// The number of a new connection.
    pub(crate) fn next_connection(&self) -> u64 {
        self.connections.fetch_add(1, Ordering::Relaxed)
    }

    /// Whether connections need to look for faults. Faults of the process, such as `burn`, need no look,
    /// which would add to the planted cost.
    pub(crate) fn may_misbehave(&self) -> bool {
        self.config.control || self.config.faults.iter().any(|fault| !fault.is_of_the_process())
    }

    /// The faults as the connection of this number meets them.
    pub(crate) fn planted(&self, connection: u64) -> Planted {
        Planted::new(&self.faults, connection)
    }

    /// Stores events without checking them, as a relay finds them on its disk.
    pub fn preload(&self, events: &[Event<'_>]) {
        /// Events that reach the disk together.
        const GROUP: usize = 4_096;
        if events.is_empty() {
            return;
        }
        let before = self.lock().store.len();
        for group in events.chunks(GROUP) {
            let new = |event| Arc::new(StoredEvent::new(event, &self.encodings));
            if let Some(Durable { disk, .. }) = &self.durable {
                let offer = |event| {
                    let stored = new(event);
                    let is_new = !self.lock().store.contains(&event.id);
                    let is_storable = is_new && stored.encoded_for_disk(event, disk).is_ok();
                    is_storable.then_some(Offer { event: stored, unix_seconds: 0, outbox: None })
                };
                self.settle(group.iter().filter_map(offer).collect());
            } else {
                let mut shared = self.lock();
                for event in group {
                    shared.store.insert(&new(event));
                }
            }
        }
        let stored = self.lock().store.len();
        info!(
            stored,
            left_out = (before + events.len()).saturating_sub(stored),
            "preloaded, unverified; left out are duplicates, older versions, deleted and ephemeral events, \
             those that --at-rest cannot hold and those beyond --store-bytes"
        );
    }

    /// Stores an event that was checked as configured, and queues it for every subscription that it
    /// matches. `received` are the bytes that stand for it in the publisher's format, where they
    /// may be passed on. `None` where the outcome waits for the disk: the answer then comes through
    /// `outbox`.
    pub(crate) fn publish(
        &self,
        event: &Event<'_>,
        received: Option<(Format, &[u8])>,
        unix_seconds: u64,
        outbox: &Arc<Outbox>,
    ) -> Option<Outcome> {
        let stored = Arc::new(match received {
            Some(received) => StoredEvent::received(event, received, &self.encodings),
            None => StoredEvent::new(event, &self.encodings),
        });
        let Some(Durable { disk, committer }) = &self.durable else {
            return Some(self.place(event, &stored, unix_seconds, |store| store.insert(&stored)));
        };
        if self.has(&event.id, unix_seconds) {
            return Some(Outcome::Duplicate);
        }
        if stored.is_kept() && stored.encoded_for_disk(event, disk).is_err() {
            return Some(Outcome::Unstorable);
        }
        let offer = Offer { event: stored, unix_seconds, outbox: Some(Arc::clone(outbox)) };
        (!committer.offer(offer)).then_some(Outcome::Unwritten)
    }

    /// Gives an event its place in the order of all, and sends it to those whom it concerns.
    fn place(
        &self,
        event: &Event<'_>,
        stored: &Arc<StoredEvent>,
        unix_seconds: u64,
        insert: impl FnOnce(&mut Store) -> Outcome,
    ) -> Outcome {
        let mut matched = MATCHED.take();
        let outcome = {
            let mut shared = self.at(unix_seconds);
            let Shared { store, subscriptions } = &mut *shared;
            let outcome = insert(store);
            if matches!(outcome, Outcome::Stored | Outcome::Ephemeral) {
                subscriptions.matching(event, |subscription| matched.push(Arc::clone(subscription)));
            }
            outcome
        };
        for subscription in matched.drain(..) {
            self.queue(subscription, event, stored);
        }
        MATCHED.set(matched);
        outcome
    }

    /// Brings events to the disk in one commit, gives each its place, and answers.
    fn settle(&self, offers: Vec<Offer>) {
        let Some(Durable { disk, .. }) = &self.durable else { return };
        let (mut numbered, mut full, mut taken_bytes) = (Vec::new(), Vec::new(), 0);
        let removed = {
            let mut shared = self.lock();
            let store = &mut shared.store;
            for offer in offers {
                let bytes = Store::max_row_bytes(&offer.event);
                if !offer.event.is_kept() {
                    numbered.push((offer, None));
                } else if store.has_room(taken_bytes + bytes) {
                    taken_bytes += bytes;
                    numbered.push((offer, Some(store.next_row())));
                } else {
                    // Its row would keep the relay from its next start.
                    full.push(offer);
                }
            }
            store.take_removed()
        };
        full.iter().for_each(|offer| self.answer(offer, Outcome::Full));
        let mut rows = Vec::new();
        for (offer, number) in &numbered {
            if let (Some(number), Ok(encoded)) = (number, offer.event.encoded(disk.format(), disk.codec())) {
                rows.push((*number, &*encoded.bytes));
            }
        }
        let written = disk.commit(&removed, &rows);
        if let Err(error) = &written {
            error!(%error, events = rows.len(), "events are refused, for they cannot be written");
            self.lock().store.put_back(&removed);
        }
        for (offer, number) in &numbered {
            let outcome = match *number {
                Some(_) if written.is_err() => Outcome::Unwritten,
                number => self.settle_one(offer, number),
            };
            self.answer(offer, outcome);
        }
    }

    /// Settles an event whose row was written, or which is not kept.
    fn settle_one(&self, offer: &Offer, row: Option<u64>) -> Outcome {
        let Offer { event: stored, unix_seconds, .. } = offer;
        let event = stored.event().to_event();
        self.place(&event, stored, *unix_seconds, |store| {
            let Some(number) = row else { return Outcome::Ephemeral };
            let outcome = store.insert_row(&event, number);
            if outcome == Outcome::Stored {
                store.cache(stored);
            }
            outcome
        })
    }

    /// Tells the publisher what became of its event.
    fn answer(&self, offer: &Offer, outcome: Outcome) {
        let Some(outbox) = &offer.outbox else { return };
        let (accepted, text) = self.verdict(outcome);
        let id = offer.event.head().id;
        let answer = Queued::Answer(Box::new(RelayMessage::Ok { id, accepted, text: text.into() }));
        if outbox.push(answer, Queued::ANSWER_BYTES) == Err(Dropped::Overflow) {
            add(&self.counters.slow_consumers, 1);
        }
    }

    /// Counts an outcome, and words it for OK.
    pub(crate) fn verdict(&self, outcome: Outcome) -> (bool, &'static str) {
        let (accepted, text) = match outcome {
            Outcome::Stored | Outcome::Ephemeral => (true, ""),
            Outcome::Duplicate => (true, "duplicate: already have this event"),
            Outcome::Superseded => (false, "duplicate: have a newer event"),
            Outcome::Deleted => (false, "blocked: its author deleted this event"),
            Outcome::Full => (false, "error: the store is full; restart the relay or raise --store-bytes"),
            Outcome::Unstorable => (false, "error: the format of --at-rest cannot hold this event"),
            Outcome::Unwritten => (
                false,
                "error: the event cannot be written to --store; see the relay's log (is the disk full?)",
            ),
        };
        let counters = &self.counters;
        let counter = match outcome {
            Outcome::Duplicate => &counters.events_duplicate,
            _ if accepted => &counters.events_accepted,
            _ => &counters.events_rejected,
        };
        add(counter, 1);
        (accepted, text)
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
        let stored = shared.store.query(&filters, |filter| self.config.limit_of(filter));
        (shared.subscriptions.add(name, format, outbox, filters), stored)
    }

    /// Ends a subscription.
    pub(crate) fn unsubscribe(&self, subscription: &Subscription) {
        self.lock().subscriptions.remove(subscription);
    }

    /// The subscriptions of all connections that an event matches.
    pub(crate) fn matched(&self, event: &Event<'_>) -> Vec<Arc<Subscription>> {
        let mut matched = Vec::new();
        self.lock().subscriptions.matching(event, |subscription| matched.push(Arc::clone(subscription)));
        matched
    }

    /// Whether the event is stored.
    pub(crate) fn has(&self, id: &[u8; 32], unix_seconds: u64) -> bool {
        self.at(unix_seconds).store.contains(id)
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
            keys_known: self.keys.known(),
            keys_parsed: self.keys.parsed(),
            encodings_cold,
            encodings_cached: delivered.saturating_sub(encodings_cold + totals.encodings_spliced),
            ..totals
        }
    }

    fn queue(&self, subscription: Arc<Subscription>, event: &Event<'_>, stored: &Arc<StoredEvent>) {
        let format = subscription.format;
        let payload_bytes = match stored.encoded_from(event, format, self.codec(format)) {
            Ok(encoded) => encoded.bytes.len(),
            Err(error) => {
                add(&self.counters.unencodable, 1);
                debug!(id = codecs::hex::encode(&event.id), %error, "a subscriber misses an event");
                return;
            }
        };
        let outbox = Arc::clone(&subscription.outbox);
        let delivery = Delivery { subscription, event: Arc::clone(stored), payload_bytes };
        if let Err(dropped) = outbox.push(Queued::Event(delivery), payload_bytes) {
            add(&self.counters.deliveries_dropped, 1);
            add(&self.counters.slow_consumers, u64::from(dropped == Dropped::Overflow));
        }
    }

    /// Locks the shared state, without the events that have expired by then.
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

/// At least as many bytes as any format makes of an event. JSON writes six for a control character,
/// FlatBuffers up to 32 around a tag or a value.
fn most_bytes(event: &Event<'_>) -> usize {
    const FIXED_BYTES: usize = 1 << 10;
    const AROUND_BYTES: usize = 32;
    let most = |text: &str| AROUND_BYTES + 6 * text.len();
    let tags = event.tags.iter();
    let tags = tags.map(|tag| AROUND_BYTES + tag.iter().map(|value| most(value)).sum::<usize>());
    FIXED_BYTES + most(&event.content) + tags.sum::<usize>()
}
