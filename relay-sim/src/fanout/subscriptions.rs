//! Which subscriptions does a new event match?
//!
//! Each filter stands in one kind of bucket, the narrowest it has: ids, authors, one `#x`
//! condition, kinds, or none of these. An event looks into the few buckets it could be in; the
//! condition that chose the bucket holds there by construction and is left out of the check that
//! follows. So 10,000 feeds of 200 authors each cost an event one lookup by its author and the
//! feeds that have the author, not 10,000 scans of 200 keys. A filter knows its place in each
//! bucket, so that to close a feed costs its own 200 keys, however many feeds share them.
//!
//! The queue of each connection stands here, too: a delivery has its subscription, and a
//! subscription its connection's queue.

use std::{
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use ahash::HashMap;
use codecs::{Event, Filter, Format};

use super::outbox;
use crate::store::StoredEvent;

/// A connection's queue of what others have for it. Live events count as they are encoded.
pub(crate) type Outbox = outbox::Outbox<Queued>;

/// A message that waits for a connection.
#[derive(Debug)]
pub(crate) enum Queued {
    Event(Delivery),
    /// Boxed, for it is twice as large as a delivery and much rarer.
    Answer(Box<Answered>),
}

/// The answer to an EVENT that had to reach the disk first.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) id: [u8; 32],
    pub(crate) accepted: bool,
    pub(crate) text: &'static str,
}

impl Answered {
    /// Bytes that it counts in the outbox: an OK in JSON, roughly.
    pub(crate) const BYTES: usize = 100;
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
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    index: Index,
    /// Counts the events that were matched, to give an event to a subscription once though several
    /// filters match.
    round: u64,
    /// Filters that were looked at so far: what events cost.
    looked_at: u64,
}

/// The filters by the values that an event must have.
#[derive(Debug, Default)]
struct Index {
    by_id: HashMap<[u8; 32], Vec<Place>>,
    by_author: HashMap<[u8; 32], Vec<Place>>,
    by_tag: HashMap<char, HashMap<String, Vec<Place>>>,
    by_kind: HashMap<u16, Vec<Place>>,
    unindexed: Vec<Place>,
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
    /// The filter without the condition that its bucket stands for.
    rest: Filter,
    bucket: Bucket,
    /// For each value of the bucket's condition, the position in the list of that value.
    positions: Vec<u32>,
}

/// One value of a filter's bucket, as lists have it.
#[derive(Debug, Clone, Copy)]
struct Place {
    slot: u32,
    filter: u32,
    value: u32,
}

/// The condition by which a filter is found.
#[derive(Debug)]
enum Bucket {
    Ids(Vec<[u8; 32]>),
    Authors(Vec<[u8; 32]>),
    Tag(char, Vec<String>),
    Kinds(Vec<u16>),
    None,
}

impl Bucket {
    /// Takes the narrowest condition out of the filter.
    fn take_from(filter: &mut Filter) -> Self {
        if let Some(ids) = filter.ids.take() {
            Bucket::Ids(ids)
        } else if let Some(authors) = filter.authors.take() {
            Bucket::Authors(authors)
        } else if !filter.tags.is_empty() {
            let condition = filter.tags.remove(0);
            Bucket::Tag(condition.letter, condition.values)
        } else if let Some(kinds) = filter.kinds.take() {
            Bucket::Kinds(kinds)
        } else {
            Bucket::None
        }
    }

    /// Whether an event meets the condition.
    fn holds(&self, event: &Event<'_>) -> bool {
        match self {
            Bucket::Ids(ids) => ids.contains(&event.id),
            Bucket::Authors(authors) => authors.contains(&event.pubkey),
            Bucket::Tag(letter, values) => event.tags.iter().any(|tag| {
                matches!(tag.as_slice(), [name, value, ..]
                    if single_char(name) == Some(*letter) && values.iter().any(|v| v == value))
            }),
            Bucket::Kinds(kinds) => kinds.contains(&event.kind),
            Bucket::None => true,
        }
    }
}

impl Index {
    /// Lists a filter under each value of its bucket. Returns the positions there.
    fn add(&mut self, bucket: &Bucket, place: Place) -> Vec<u32> {
        match bucket {
            Bucket::Ids(ids) => add_to(&mut self.by_id, ids, place),
            Bucket::Authors(authors) => add_to(&mut self.by_author, authors, place),
            Bucket::Tag(letter, values) => add_to(self.by_tag.entry(*letter).or_default(), values, place),
            Bucket::Kinds(kinds) => add_to(&mut self.by_kind, kinds, place),
            Bucket::None => vec![append(&mut self.unindexed, place)],
        }
    }

    /// Takes a filter out of the lists of its bucket.
    fn remove(&mut self, bucket: &Bucket, place: Place, slots: &mut [Option<Slot>]) {
        match bucket {
            Bucket::Ids(ids) => remove_from(&mut self.by_id, ids, place, slots),
            Bucket::Authors(authors) => remove_from(&mut self.by_author, authors, place, slots),
            Bucket::Tag(letter, values) => {
                if let Some(index) = self.by_tag.get_mut(letter) {
                    remove_from(index, values, place, slots);
                    if index.is_empty() {
                        self.by_tag.remove(letter);
                    }
                }
            }
            Bucket::Kinds(kinds) => remove_from(&mut self.by_kind, kinds, place, slots),
            Bucket::None => take_out(&mut self.unindexed, place, slots),
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
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            position(self.slots.len() - 1)
        });
        let indexed = |(filter, mut rest): (u32, Filter)| {
            let bucket = Bucket::take_from(&mut rest);
            let positions = self.index.add(&bucket, Place { slot, filter, value: 0 });
            Indexed { rest, bucket, positions }
        };
        let filters = (0..).zip(filters).map(indexed).collect();
        let subscription =
            Arc::new(Subscription { name, format, outbox, ended: AtomicBool::new(false), slot });
        let entry = Slot { subscription: Arc::clone(&subscription), filters, last_round: self.round };
        self.slots[slot as usize] = Some(entry);
        subscription
    }

    /// Ends a subscription. Nothing more is sent for it, not even queued events.
    pub(crate) fn remove(&mut self, subscription: &Subscription) {
        if subscription.ended.swap(true, Ordering::Relaxed) {
            return; // its slot may be another's by now
        }
        let slot = subscription.slot;
        let Some(Slot { filters, .. }) = &mut self.slots[slot as usize] else { return };
        // The slot stays until its places are gone: two of them may be in one list.
        let buckets: Vec<_> =
            filters.iter_mut().map(|filter| std::mem::replace(&mut filter.bucket, Bucket::None)).collect();
        for (filter, bucket) in (0..).zip(&buckets) {
            self.index.remove(bucket, Place { slot, filter, value: 0 }, &mut self.slots);
        }
        self.slots[slot as usize] = None;
        self.free.push(slot);
    }

    /// Whether an event matches a subscription that has not ended.
    pub(crate) fn matches(&self, subscription: &Subscription, event: &Event<'_>) -> bool {
        let slot = self.slots[subscription.slot as usize].as_ref().filter(|_| !subscription.ended());
        slot.is_some_and(|slot| {
            slot.filters.iter().any(|filter| filter.bucket.holds(event) && filter.rest.matches(event))
        })
    }

    /// Calls `visit` once for each subscription that the event matches.
    pub(crate) fn matching(&mut self, event: &Event<'_>, mut visit: impl FnMut(&Arc<Subscription>)) {
        self.round += 1;
        let Subscriptions { slots, index, round, looked_at, .. } = self;
        let mut look = |places: Option<&Vec<Place>>| {
            let places = places.map_or(&[][..], Vec::as_slice);
            *looked_at += places.len() as u64;
            for place in places {
                let slot = slots[place.slot as usize].as_mut();
                let slot = slot.expect("a bucket only names registered subscriptions");
                if slot.last_round != *round && slot.filters[place.filter as usize].rest.matches(event) {
                    slot.last_round = *round;
                    visit(&slot.subscription);
                }
            }
        };
        look(index.by_id.get(&event.id));
        look(index.by_author.get(&event.pubkey));
        look(index.by_kind.get(&event.kind));
        look(Some(&index.unindexed));
        if index.by_tag.is_empty() {
            return;
        }
        for tag in &event.tags {
            if let [name, value, ..] = tag.as_slice()
                && let Some(letter) = single_char(name)
                && let Some(values) = index.by_tag.get(&letter)
            {
                look(values.get(&**value));
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

fn add_to<K: Hash + Eq + Clone>(lists: &mut HashMap<K, Vec<Place>>, values: &[K], place: Place) -> Vec<u32> {
    let add =
        |(value, key): (u32, &K)| append(lists.entry(key.clone()).or_default(), Place { value, ..place });
    (0..).zip(values).map(add).collect()
}

fn append(list: &mut Vec<Place>, place: Place) -> u32 {
    list.push(place);
    position(list.len() - 1)
}

fn remove_from<K: Hash + Eq>(
    lists: &mut HashMap<K, Vec<Place>>,
    values: &[K],
    place: Place,
    slots: &mut [Option<Slot>],
) {
    for (value, key) in (0..).zip(values) {
        if let Some(list) = lists.get_mut(key) {
            take_out(list, Place { value, ..place }, slots);
            if list.is_empty() {
                lists.remove(key);
            }
        }
    }
}

/// Takes a place out of its list. The last of the list moves there, and its filter is told.
fn take_out(list: &mut Vec<Place>, place: Place, slots: &mut [Option<Slot>]) {
    let at = *position_of(place, slots);
    list.swap_remove(at as usize);
    if let Some(moved) = list.get(at as usize) {
        *position_of(*moved, slots) = at;
    }
}

/// Where a place is in its list.
fn position_of(place: Place, slots: &mut [Option<Slot>]) -> &mut u32 {
    let slot = slots[place.slot as usize].as_mut().expect("a bucket only names registered subscriptions");
    &mut slot.filters[place.filter as usize].positions[place.value as usize]
}

/// A position or a slot, of which memory has room for fewer than 2^32.
fn position(n: usize) -> u32 {
    u32::try_from(n).expect("2^32 filters do not fit into memory")
}

#[cfg(test)]
mod tests;
