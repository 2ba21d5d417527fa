//! Which subscriptions does a new event match?
//!
//! Each filter stands in one kind of bucket, the narrowest it has: ids, authors, one `#x`
//! condition, kinds, or none of these. An event looks into the few buckets it could be in; the
//! condition that chose the bucket holds there by construction and is left out of the check that
//! follows. So 500 feeds of 200 authors each cost an event one lookup by its author, not 500 scans
//! of 200 keys.
//!
//! What waits for a connection stands here, too: a delivery has its subscription, and a
//! subscription its connection's queue.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use codecs::{Event, Filter, Format};

use super::outbox;
use crate::store::StoredEvent;

/// A connection's queue of what others have for it. Live events count as they are encoded.
pub(crate) type Outbox = outbox::Outbox<Queued>;

/// What waits for a connection.
#[derive(Debug)]
pub(crate) enum Queued {
    Event(Delivery),
    Answer(Answered),
}

/// The answer to an EVENT that had to reach the disk first.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) id: [u8; 32],
    pub(crate) accepted: bool,
    pub(crate) text: &'static str,
}

impl Answered {
    /// What it counts in the outbox: an OK in JSON, roughly.
    pub(crate) const BYTES: usize = 100;
}

/// A live event for one subscription.
#[derive(Debug)]
pub(crate) struct Delivery {
    pub(crate) subscription: Arc<Subscription>,
    pub(crate) event: Arc<StoredEvent>,
    /// What it counts in the outbox.
    pub(crate) payload_bytes: usize,
}

/// One REQ of one connection, from its registration to its end.
#[derive(Debug)]
pub(crate) struct Subscription {
    /// The client's name for it.
    pub(crate) name: String,
    /// What its connection speaks.
    pub(crate) format: Format,
    /// Its connection's queue.
    pub(crate) outbox: Arc<Outbox>,
    /// Events still queued for an ended subscription are not sent: its name may belong to a
    /// successor already.
    ended: AtomicBool,
    slot: usize,
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
    free: Vec<usize>,
    by_id: HashMap<[u8; 32], Vec<Place>>,
    by_author: HashMap<[u8; 32], Vec<Place>>,
    by_tag: HashMap<char, HashMap<String, Vec<Place>>>,
    by_kind: HashMap<u16, Vec<Place>>,
    unindexed: Vec<Place>,
    /// Counts the events that were matched, to give an event to a subscription once though several
    /// filters match.
    round: u64,
}

#[derive(Debug)]
struct Slot {
    subscription: Arc<Subscription>,
    /// The filters, each without the condition that its bucket stands for.
    rest: Vec<Filter>,
    /// The conditions of the buckets, to find them when the subscription closes.
    buckets: Vec<Bucket>,
    last_round: u64,
}

/// A filter of a subscription.
#[derive(Debug, Clone, Copy)]
struct Place {
    slot: usize,
    filter: usize,
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
            self.slots.len() - 1
        });
        let mut rest = filters;
        let buckets: Vec<_> = rest.iter_mut().map(Bucket::take_from).collect();
        for (filter, bucket) in buckets.iter().enumerate() {
            let place = Place { slot, filter };
            match bucket {
                Bucket::Ids(ids) => add_to(&mut self.by_id, ids, place),
                Bucket::Authors(authors) => add_to(&mut self.by_author, authors, place),
                Bucket::Tag(letter, values) => add_to(self.by_tag.entry(*letter).or_default(), values, place),
                Bucket::Kinds(kinds) => add_to(&mut self.by_kind, kinds, place),
                Bucket::None => self.unindexed.push(place),
            }
        }
        let subscription =
            Arc::new(Subscription { name, format, outbox, ended: AtomicBool::new(false), slot });
        let entry = Slot { subscription: Arc::clone(&subscription), rest, buckets, last_round: self.round };
        self.slots[slot] = Some(entry);
        subscription
    }

    /// Ends a subscription: nothing more is sent for it, not even what is queued.
    pub(crate) fn remove(&mut self, subscription: &Subscription) {
        if subscription.ended.swap(true, Ordering::Relaxed) {
            return; // its slot may be another's by now
        }
        let slot = subscription.slot;
        let Some(Slot { buckets, .. }) = self.slots[slot].take() else { return };
        for bucket in &buckets {
            match bucket {
                Bucket::Ids(ids) => remove_from(&mut self.by_id, ids, slot),
                Bucket::Authors(authors) => remove_from(&mut self.by_author, authors, slot),
                Bucket::Tag(letter, values) => {
                    if let Some(index) = self.by_tag.get_mut(letter) {
                        remove_from(index, values, slot);
                        if index.is_empty() {
                            self.by_tag.remove(letter);
                        }
                    }
                }
                Bucket::Kinds(kinds) => remove_from(&mut self.by_kind, kinds, slot),
                Bucket::None => self.unindexed.retain(|place| place.slot != slot),
            }
        }
        self.free.push(slot);
    }

    /// Whether an event matches a subscription that has not ended.
    pub(crate) fn matches(&self, subscription: &Subscription, event: &Event<'_>) -> bool {
        let slot = self.slots[subscription.slot].as_ref().filter(|_| !subscription.ended());
        slot.is_some_and(|slot| {
            slot.buckets
                .iter()
                .zip(&slot.rest)
                .any(|(bucket, rest)| bucket.holds(event) && rest.matches(event))
        })
    }

    /// Calls `visit` once for each subscription that the event matches.
    pub(crate) fn matching(&mut self, event: &Event<'_>, mut visit: impl FnMut(&Arc<Subscription>)) {
        self.round += 1;
        let Subscriptions { slots, by_id, by_author, by_tag, by_kind, unindexed, round, .. } = self;
        let mut look = |places: Option<&Vec<Place>>| {
            for place in places.into_iter().flatten() {
                let slot = slots[place.slot].as_mut().expect("a bucket only names registered subscriptions");
                if slot.last_round != *round && slot.rest[place.filter].matches(event) {
                    slot.last_round = *round;
                    visit(&slot.subscription);
                }
            }
        };
        look(by_id.get(&event.id));
        look(by_author.get(&event.pubkey));
        look(by_kind.get(&event.kind));
        look(Some(unindexed));
        if by_tag.is_empty() {
            return;
        }
        for tag in &event.tags {
            if let [name, value, ..] = tag.as_slice()
                && let Some(letter) = single_char(name)
                && let Some(values) = by_tag.get(&letter)
            {
                look(values.get(&**value));
            }
        }
    }
}

fn single_char(name: &str) -> Option<char> {
    let mut chars = name.chars();
    chars.next().filter(|_| chars.next().is_none())
}

fn add_to<K: Hash + Eq + Clone>(index: &mut HashMap<K, Vec<Place>>, keys: &[K], place: Place) {
    for key in keys {
        index.entry(key.clone()).or_default().push(place);
    }
}

fn remove_from<K: Hash + Eq>(index: &mut HashMap<K, Vec<Place>>, keys: &[K], slot: usize) {
    for key in keys {
        if let Some(places) = index.get_mut(key) {
            places.retain(|place| place.slot != slot);
            if places.is_empty() {
                index.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use codecs::TagFilter;

    use super::*;
    use crate::testing::event;

    fn matched(subscriptions: &mut Subscriptions, event: &Event<'_>) -> Vec<String> {
        let mut names = Vec::new();
        subscriptions.matching(event, |subscription| names.push(subscription.name.clone()));
        names.sort();
        names
    }

    fn filters() -> Vec<Filter> {
        let tags = |values: &[&str]| {
            let values = values.iter().map(|value| (*value).to_owned()).collect();
            vec![TagFilter { letter: 't', values }]
        };
        vec![
            Filter::default(),
            Filter { kinds: Some(vec![1, 7]), ..Filter::default() },
            Filter { kinds: Some(vec![]), ..Filter::default() },
            Filter { authors: Some(vec![[7; 32], [8; 32]]), kinds: Some(vec![1]), ..Filter::default() },
            Filter { authors: Some(vec![[9; 32]]), ..Filter::default() },
            Filter { ids: Some(vec![event(1).id]), authors: Some(vec![[7; 32]]), ..Filter::default() },
            Filter { tags: tags(&["a", "b", "a"]), ..Filter::default() },
            Filter { tags: tags(&["a"]), kinds: Some(vec![7]), ..Filter::default() },
            Filter { since: Some(1_001), ..Filter::default() },
            Filter { limit: Some(0), until: Some(1_000), ..Filter::default() },
        ]
    }

    #[test]
    fn an_event_finds_exactly_the_filters_that_match_it() {
        let outbox = Outbox::new(0);
        let mut subscriptions = Subscriptions::default();
        let added: Vec<_> = (0..)
            .zip(filters())
            .map(|(n, filter): (u8, _)| {
                subscriptions.add(n.to_string(), Format::JSON, Arc::clone(&outbox), vec![filter])
            })
            .collect();
        let tag = |value: &'static str| vec!["t".into(), value.into()];
        for event in [
            event(1),
            event(2),
            Event { kind: 7, ..event(3) },
            Event { pubkey: [9; 32], ..event(1) },
            Event { tags: vec![tag("b"), tag("a"), tag("a")], ..event(4) },
            Event { tags: vec![tag("a"), vec![], vec!["t".into()]], kind: 7, ..event(5) },
            Event { created_at: 2_000, ..event(6) },
        ] {
            let expected: Vec<_> = filters()
                .iter()
                .enumerate()
                .filter(|(_, filter)| filter.matches(&event))
                .map(|(n, _)| n.to_string())
                .collect();
            assert_eq!(matched(&mut subscriptions, &event), expected, "{event:?}");
            let one_by_one = added.iter().filter(|added| subscriptions.matches(added, &event));
            assert_eq!(one_by_one.map(|s| s.name.clone()).collect::<Vec<_>>(), expected, "{event:?}");
        }
    }

    #[test]
    fn ended_subscriptions_leave_nothing_behind() {
        let outbox = Outbox::new(0);
        let mut subscriptions = Subscriptions::default();
        let added: Vec<_> = (0..3)
            .map(|n| subscriptions.add(n.to_string(), Format::JSON, Arc::clone(&outbox), filters()))
            .collect();
        subscriptions.remove(&added[0]);
        let successor = subscriptions.add("3".into(), Format::JSON, Arc::clone(&outbox), filters());
        subscriptions.remove(&added[0]); // a second time, when its slot is the successor's
        assert_eq!(matched(&mut subscriptions, &event(1)), ["1", "2", "3"]);
        for subscription in [&added[1], &added[2], &successor] {
            subscriptions.remove(subscription);
            assert!(subscription.ended());
        }
        let Subscriptions { slots, free, by_id, by_author, by_tag, by_kind, unindexed, .. } = &subscriptions;
        assert!(by_id.is_empty() && by_author.is_empty() && by_tag.is_empty() && by_kind.is_empty());
        assert!(unindexed.is_empty() && slots.iter().all(Option::is_none));
        assert_eq!(free.len(), slots.len());
    }
}
