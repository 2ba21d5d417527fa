//! Which subscriptions does a new event match?
//!
//! Each filter is listed under the values of its narrowest condition: ids, authors, one `#x`
//! condition, kinds, or none of these. An event looks up the few values that it has. The condition of
//! the list holds there by construction and is left out of the check that follows. So 10,000 feeds of
//! 200 authors each cost an event one lookup by its author and the feeds that have the author, not
//! 10,000 scans of 200 keys. A filter knows its place in each list, so that to close a feed costs its
//! own 200 keys, however many feeds share them.
//!
//! The queue of each connection stands here, too: a delivery has its subscription, and a
//! subscription its connection's queue.

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use ahash::HashMap;
use codecs::{Event, Filter, Format, RelayMessage, TagFilter};
use slab::Slab;

use super::outbox;
use crate::store::StoredEvent;

/// A connection's queue of what others have for it. Live events count as they are encoded.
pub(crate) type Outbox = outbox::Outbox<Queued>;

/// A message that waits for a connection.
#[derive(Debug)]
pub(crate) enum Queued {
    Event(Delivery),
    /// The answer to an EVENT that had to reach the disk first. Boxed, for it is larger than a delivery
    /// and much rarer.
    Answer(Box<RelayMessage<'static>>),
}

impl Queued {
    /// Bytes that an answer counts in the outbox: an OK in JSON, roughly.
    pub(crate) const ANSWER_BYTES: usize = 100;
}

/// A live event for one subscription.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) subscription: Arc<Subscription>,
    pub(crate) event: Arc<StoredEvent>,
    /// Bytes that it counts in the outbox.
    pub(crate) payload_bytes: usize,
}

/// One REQ of one connection, from its registration to its end.
#[derive(Debug)]
pub(crate) struct Subscription {
    /// The client's name for it.
    pub(crate) name: String,
    /// The format of its connection.
    pub(crate) format: Format,
    /// Its connection's queue.
    pub(crate) outbox: Arc<Outbox>,
    /// Events still queued for an ended subscription are not sent: its name may belong to a
    /// successor already.
    ended: AtomicBool,
    slot: u32,
}

impl Subscription {
    /// Whether it was closed or replaced. Its own session decides that, so no ordering is needed.
    pub(crate) fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

/// All subscriptions of all connections.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    slots: Slab<Slot>,
    index: Index,
    /// Counts the events that were matched, to give an event to a subscription once though several
    /// filters match.
    round: u64,
    /// Filters that were looked at so far: what events cost.
    looked_at: u64,
}

/// The filters by a value that an event must have.
#[derive(Debug, Default)]
struct Index {
    places: HashMap<Key<'static>, Vec<Place>>,
    /// How many of the keys are values of tags. Without any, an event's tags are not looked up.
    tags: usize,
}

/// A value by which filters are found.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Key<'v> {
    Id([u8; 32]),
    Author([u8; 32]),
    Tag(char, Cow<'v, str>),
    Kind(u16),
    /// What every event has.
    Any,
}

#[derive(Debug)]
struct Slot {
    subscription: Arc<Subscription>,
    filters: Vec<Indexed>,
    last_round: u64,
}

/// A filter of a subscription.
#[derive(Debug)]
struct Indexed {
    /// The filter without the condition that its keys stand for.
    rest: Filter,
    keys: Vec<Key<'static>>,
    /// For each key, the position in its list.
    positions: Vec<u32>,
}

/// One key of a filter, as the key's list has it.
#[derive(Debug, Clone, Copy)]
struct Place {
    slot: u32,
    filter: u32,
    key: u32,
}

impl Key<'_> {
    /// Takes the narrowest condition out of a filter, and returns its values.
    fn take_from(filter: &mut Filter) -> Vec<Key<'static>> {
        if let Some(ids) = filter.ids.take() {
            ids.into_iter().map(Key::Id).collect()
        } else if let Some(authors) = filter.authors.take() {
            authors.into_iter().map(Key::Author).collect()
        } else if !filter.tags.is_empty() {
            let TagFilter { letter, values } = filter.tags.remove(0);
            values.into_iter().map(|value| Key::Tag(letter, value.into())).collect()
        } else if let Some(kinds) = filter.kinds.take() {
            kinds.into_iter().map(Key::Kind).collect()
        } else {
            vec![Key::Any]
        }
    }
}

impl Index {
    /// Lists a filter under each of its keys. Returns the positions there.
    fn add(&mut self, keys: &[Key<'static>], place: Place) -> Vec<u32> {
        let add = |(n, key): (u32, &Key<'static>)| {
            let list = self.places.entry(key.clone()).or_insert_with(|| {
                self.tags += usize::from(matches!(key, Key::Tag(..)));
                Vec::new()
            });
            list.push(Place { key: n, ..place });
            position(list.len() - 1)
        };
        (0..).zip(keys).map(add).collect()
    }

    /// Takes a filter out of the lists of its keys. The last of each list moves to its position there,
    /// and its own filter is told.
    fn remove(&mut self, keys: &[Key<'static>], place: Place, slots: &mut Slab<Slot>) {
        for (n, key) in (0..).zip(keys) {
            let Some(list) = self.places.get_mut(key) else { continue };
            let at = *position_of(Place { key: n, ..place }, slots);
            list.swap_remove(at as usize);
            if let Some(moved) = list.get(at as usize) {
                *position_of(*moved, slots) = at;
            } else if list.is_empty() {
                self.places.remove(key);
                self.tags -= usize::from(matches!(key, Key::Tag(..)));
            }
        }
    }
}

impl Subscriptions {
    /// Registers a subscription: it matches every event from now on.
    pub(crate) fn add(
        &mut self,
        name: String,
        format: Format,
        outbox: Arc<Outbox>,
        filters: Vec<Filter>,
    ) -> Arc<Subscription> {
        let entry = self.slots.vacant_entry();
        let slot = position(entry.key());
        let indexed = |(filter, mut rest): (u32, Filter)| {
            let keys = Key::take_from(&mut rest);
            let positions = self.index.add(&keys, Place { slot, filter, key: 0 });
            Indexed { rest, keys, positions }
        };
        let filters = (0..).zip(filters).map(indexed).collect();
        let subscription =
            Arc::new(Subscription { name, format, outbox, ended: AtomicBool::new(false), slot });
        entry.insert(Slot { subscription: Arc::clone(&subscription), filters, last_round: self.round });
        subscription
    }

    /// Ends a subscription. Nothing more is sent for it, not even queued events.
    pub(crate) fn remove(&mut self, subscription: &Subscription) {
        if subscription.ended.swap(true, Ordering::Relaxed) {
            return; // its slot may be another's by now
        }
        let slot = subscription.slot;
        let Some(Slot { filters, .. }) = self.slots.get_mut(slot as usize) else { return };
        // The slot stays until its places are gone: two of them may be in one list.
        let keys: Vec<_> = filters.iter_mut().map(|filter| std::mem::take(&mut filter.keys)).collect();
        for (filter, keys) in (0..).zip(&keys) {
            self.index.remove(keys, Place { slot, filter, key: 0 }, &mut self.slots);
        }
        self.slots.remove(slot as usize);
    }

    /// Calls `visit` once for each subscription that the event matches.
    pub(crate) fn matching(&mut self, event: &Event<'_>, mut visit: impl FnMut(&Arc<Subscription>)) {
        self.round += 1;
        let Subscriptions { slots, index: Index { places, tags }, round, looked_at } = self;
        let mut look = |key: Key<'_>| {
            let places = places.get(&key).map_or(&[][..], Vec::as_slice);
            *looked_at += places.len() as u64;
            for place in places {
                let slot = &mut slots[place.slot as usize];
                if slot.last_round != *round && slot.filters[place.filter as usize].rest.matches(event) {
                    slot.last_round = *round;
                    visit(&slot.subscription);
                }
            }
        };
        look(Key::Id(event.id));
        look(Key::Author(event.pubkey));
        look(Key::Kind(event.kind));
        look(Key::Any);
        if *tags == 0 {
            return;
        }
        for tag in &event.tags {
            if let [name, value, ..] = tag.as_slice()
                && let Some(letter) = single_char(name)
            {
                look(Key::Tag(letter, Cow::Borrowed(value)));
            }
        }
    }

    /// Filters that were looked at since this was last asked.
    #[cfg(test)]
    fn take_looked_at(&mut self) -> u64 {
        std::mem::take(&mut self.looked_at)
    }
}

fn single_char(name: &str) -> Option<char> {
    let mut chars = name.chars();
    chars.next().filter(|_| chars.next().is_none())
}

/// Where a place is in its list.
fn position_of(place: Place, slots: &mut Slab<Slot>) -> &mut u32 {
    &mut slots[place.slot as usize].filters[place.filter as usize].positions[place.key as usize]
}

/// A position or a slot, of which memory has room for fewer than 2^32.
fn position(n: usize) -> u32 {
    u32::try_from(n).expect("2^32 filters do not fit into memory")
}

#[cfg(test)]
mod tests;
