//! Which events does the relay have, and which of them answer a filter?
//!
//! In memory, for the length of a load test. Every index is one ordered tree, newest first with ties by lowest id within
//! what it is by, so a filter's answer is a merge of short ranges: by author and kind, by kind or by time. Tag conditions
//! are checked on the candidates of those ranges. A tree for each author would cost most authors more memory than their
//! events do.
//!
//! The rules of NIP-01 (replaceable, addressable, ephemeral) and NIP-09 (deletion) live in [`Store::insert`].

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet, hash_map::Entry},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use codecs::{EventHead, Filter, KindClass, hex};

pub(crate) use self::stored::StoredEvent;

mod stored;

/// The order of every answer: newest first, ties by lowest id.
type Key = (Reverse<i64>, [u8; 32]);
const NEWEST: Key = (Reverse(i64::MAX), [0; 32]);

/// New events that wait for their place in the indexes: enough that neighbours come together, and not so many that anybody
/// notices who has to wait for it.
const MAX_UNINDEXED: usize = 1_024;

/// NIP-09.
const DELETION: u16 = 5;

/// Of events with one address only the newest is kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Address {
    kind: u16,
    pubkey: [u8; 32],
    /// The first `d` tag's value of an addressable event; empty for replaceable ones.
    d: String,
}

impl Address {
    fn of(stored: &StoredEvent) -> Option<Self> {
        let EventHead { kind, pubkey, .. } = *stored.head();
        let d = match KindClass::of(kind) {
            KindClass::Addressable => stored.event().first_tag_value("d").unwrap_or_default().to_owned(),
            KindClass::Replaceable => String::new(),
            KindClass::Regular | KindClass::Ephemeral => return None,
        };
        Some(Address { kind, pubkey, d })
    }

    /// Reads the value of an `a` tag, `kind:pubkey:d`.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ':');
        let kind = parts.next()?.parse().ok()?;
        let pubkey = hex::decode_array(parts.next()?.as_bytes())?;
        let d = parts.next().unwrap_or("");
        match KindClass::of(kind) {
            KindClass::Addressable => Some(Address { kind, pubkey, d: d.to_owned() }),
            KindClass::Replaceable if d.is_empty() => Some(Address { kind, pubkey, d: String::new() }),
            _ => None,
        }
    }
}

/// What became of an offered event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// New and kept.
    Stored,
    /// Passed on and forgotten.
    Ephemeral,
    /// This very event is here already.
    Duplicate,
    /// The address has a newer version (or one of the same second with a lower id).
    Superseded,
    /// Its author deleted it.
    Deleted,
    /// The store holds as much as it may.
    Full,
}

/// The events; see the module's text.
#[derive(Debug)]
pub(crate) struct Store {
    events: HashMap<[u8; 32], Arc<StoredEvent>>,
    /// The latest of them, which are in none of the next three yet.
    unindexed: Vec<Arc<StoredEvent>>,
    by_time: BTreeMap<Key, Arc<StoredEvent>>,
    by_kind: BTreeMap<(u16, Key), Arc<StoredEvent>>,
    by_author: BTreeMap<([u8; 32], u16, Key), Arc<StoredEvent>>,
    /// The current version of each address.
    addresses: HashMap<Address, [u8; 32]>,
    /// Ids that somebody deleted, with that somebody: only the event's own author counts, and the event may
    /// arrive after its deletion.
    deleted_ids: HashSet<([u8; 32], [u8; 32])>,
    /// Versions up to and including this `created_at` are deleted.
    deleted_addresses: HashMap<Address, i64>,
    held_bytes: usize,
    /// Of all events that live, in the store or on their way to somebody.
    encoded_bytes: Arc<AtomicUsize>,
    max_bytes: usize,
}

impl Store {
    /// An empty store that refuses events beyond roughly `max_bytes` of memory.
    pub(crate) fn new(max_bytes: usize) -> Self {
        Store {
            events: HashMap::new(),
            unindexed: Vec::new(),
            by_time: BTreeMap::new(),
            by_kind: BTreeMap::new(),
            by_author: BTreeMap::new(),
            addresses: HashMap::new(),
            deleted_ids: HashSet::new(),
            deleted_addresses: HashMap::new(),
            held_bytes: 0,
            encoded_bytes: Arc::default(),
            max_bytes,
        }
    }

    /// Where events of this relay count their encodings.
    pub(crate) fn encoded_bytes(&self) -> &Arc<AtomicUsize> {
        &self.encoded_bytes
    }

    /// How many events are stored.
    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    /// Takes an event whose id and signature were checked as configured, and applies the rules of its kind.
    pub(crate) fn insert(&mut self, offered: &Arc<StoredEvent>) -> Outcome {
        let event = offered.head();
        if self.events.contains_key(&event.id) {
            return Outcome::Duplicate;
        }
        if KindClass::of(event.kind) == KindClass::Ephemeral {
            return Outcome::Ephemeral;
        }
        if event.kind != DELETION && self.deleted_ids.contains(&(event.id, event.pubkey)) {
            return Outcome::Deleted;
        }
        let address = Address::of(offered);
        if let Some(address) = &address {
            if self.deleted_addresses.get(address).is_some_and(|&until| event.created_at <= until) {
                return Outcome::Deleted;
            }
            let current = self.addresses.get(address).and_then(|id| self.events.get(id));
            if current.is_some_and(|current| current.key() < offered.key()) {
                return Outcome::Superseded;
            }
        }
        let held_bytes = self.held_bytes + self.encoded_bytes.load(Ordering::Relaxed);
        if held_bytes + offered.held_bytes() > self.max_bytes {
            return Outcome::Full;
        }
        if let Some(address) = address
            && let Some(older) = self.addresses.insert(address, event.id)
        {
            self.remove(&older);
        }
        self.add(offered);
        if event.kind == DELETION {
            self.delete_what_it_names(offered);
        }
        Outcome::Stored
    }

    /// The union of the filters' answers: each event once, newest first, ties by lowest id. Each filter gives at
    /// most its own `limit`, which is `default_limit` when absent and never above `max_limit`.
    pub(crate) fn query(&mut self, filters: &[Filter], limits: QueryLimits) -> Vec<Arc<StoredEvent>> {
        self.select(filters, |filter| limits.of(filter))
    }

    /// How many stored events match any of the filters; their limits play no part (NIP-45).
    pub(crate) fn count(&mut self, filters: &[Filter]) -> usize {
        self.select(filters, |_| usize::MAX).len()
    }

    /// Times and ids of the newest matches, at most `limit` and the filter's own.
    pub(crate) fn matching_ids(&mut self, filter: &Filter, limit: usize) -> Vec<(i64, [u8; 32])> {
        let asked = filter.limit.map_or(limit, |asked| asked.try_into().unwrap_or(usize::MAX));
        let found = self.select(std::slice::from_ref(filter), |_| asked.min(limit));
        found.iter().map(|stored| (stored.head().created_at, stored.head().id)).collect()
    }

    fn select(&mut self, filters: &[Filter], limit: impl Fn(&Filter) -> usize) -> Vec<Arc<StoredEvent>> {
        self.index();
        let mut found = Vec::new();
        for filter in filters {
            let start = found.len();
            let limit = limit(filter);
            let rest = beyond_the_index(filter);
            self.candidates(filter, |candidates| {
                let matching = candidates.filter(|stored| rest.matches_flat(stored.event()));
                found.extend(matching.take(limit).cloned());
            });
            sort_and_deduplicate(&mut found, start);
            found.truncate(start.saturating_add(limit));
        }
        if filters.len() > 1 {
            sort_and_deduplicate(&mut found, 0);
        }
        found
    }

    /// Calls `visit` with every range that may hold matches of the filter, in order and of its time; narrowest index first.
    fn candidates<'s>(
        &'s self,
        filter: &Filter,
        mut visit: impl FnMut(&mut dyn Iterator<Item = &'s Arc<StoredEvent>>),
    ) {
        let newest = (Reverse(filter.until.unwrap_or(i64::MAX)), [0; 32]);
        let oldest = (Reverse(filter.since.unwrap_or(i64::MIN)), [0xff; 32]);
        if newest > oldest {
            return; // `since` after `until`: the ranges below would panic
        }
        let mut of_author = |author: [u8; 32], kind: u16| {
            let range = self.by_author.range((author, kind, newest)..=(author, kind, oldest));
            visit(&mut range.map(|(_, stored)| stored));
        };
        match (&filter.ids, &filter.authors, &filter.kinds) {
            (Some(ids), _, _) => {
                let named = ids.iter().filter_map(|id| self.events.get(id));
                let mut named: Vec<_> = named.filter(|e| (newest..=oldest).contains(&e.key())).collect();
                named.sort_unstable_by_key(|event| event.key());
                named.dedup_by_key(|event| event.key()); // a client may name one twice
                visit(&mut named.into_iter());
            }
            (None, Some(authors), Some(kinds)) => {
                authors.iter().for_each(|author| kinds.iter().for_each(|kind| of_author(*author, *kind)));
            }
            (None, Some(authors), None) => {
                authors.iter().for_each(|a| self.kinds_of(*a).for_each(|kind| of_author(*a, kind)));
            }
            (None, None, Some(kinds)) => {
                for kind in kinds {
                    let range = self.by_kind.range((*kind, newest)..=(*kind, oldest));
                    visit(&mut range.map(|(_, stored)| stored));
                }
            }
            (None, None, None) => visit(&mut self.by_time.range(newest..=oldest).map(|(_, stored)| stored)),
        }
    }

    /// The kinds that an author's stored events have, each found by one step into the tree.
    fn kinds_of(&self, author: [u8; 32]) -> impl Iterator<Item = u16> {
        let first_from = move |kind: u16| {
            let (&(found, kind, _), _) = self.by_author.range((author, kind, NEWEST)..).next()?;
            (found == author).then_some(kind)
        };
        std::iter::successors(first_from(0), move |kind| first_from(kind.checked_add(1)?))
    }

    fn add(&mut self, stored: &Arc<StoredEvent>) {
        self.events.insert(stored.head().id, Arc::clone(stored));
        self.held_bytes += stored.held_bytes();
        self.unindexed.push(Arc::clone(stored));
        if self.unindexed.len() == MAX_UNINDEXED {
            self.index();
        }
    }

    /// Brings the indexes up to date. One after the other and each in its own order: event by event, three large trees push
    /// each other out of the processor's caches, and that costs more than all else that is done with a new event.
    fn index(&mut self) {
        let Store { unindexed, by_time, by_kind, by_author, .. } = self;
        unindexed.sort_unstable_by_key(|stored| stored.key());
        by_time.extend(unindexed.iter().map(|stored| (stored.key(), Arc::clone(stored))));
        unindexed.sort_by_key(|stored| stored.head().kind);
        by_kind
            .extend(unindexed.iter().map(|stored| ((stored.head().kind, stored.key()), Arc::clone(stored))));
        unindexed.sort_by_key(|stored| stored.head().pubkey);
        by_author.extend(unindexed.drain(..).map(|stored| {
            let EventHead { pubkey, kind, .. } = *stored.head();
            ((pubkey, kind, stored.key()), stored)
        }));
    }

    fn remove(&mut self, id: &[u8; 32]) {
        let Some(stored) = self.events.remove(id) else { return };
        self.index();
        let (key, event) = (stored.key(), stored.head());
        self.by_time.remove(&key);
        self.by_kind.remove(&(event.kind, key));
        self.by_author.remove(&(event.pubkey, event.kind, key));
        self.held_bytes -= stored.held_bytes();
    }

    /// NIP-09: a deletion reaches its author's own events, and no other deletion.
    fn delete_what_it_names(&mut self, deletion: &StoredEvent) {
        let EventHead { pubkey: author, created_at, .. } = *deletion.head();
        for mut values in deletion.event().tags() {
            let (Some(name), Some(value)) = (values.next(), values.next()) else { continue };
            if name == "e" {
                let Some(id) = hex::decode_array::<32>(value.as_bytes()) else { continue };
                self.delete_id(id, author);
            } else if name == "a" {
                let Some(address) = Address::parse(value) else { continue };
                if address.pubkey == author {
                    self.delete_address(address, created_at);
                }
            }
        }
    }

    fn delete_id(&mut self, id: [u8; 32], author: [u8; 32]) {
        let known = self.events.get(&id);
        if known.is_some_and(|known| known.head().pubkey != author || known.head().kind == DELETION) {
            return;
        }
        if let Some(address) = known.and_then(|known| Address::of(known)) {
            self.addresses.remove(&address);
        }
        self.remove(&id);
        if self.deleted_ids.insert((id, author)) {
            self.held_bytes += size_of::<([u8; 32], [u8; 32])>();
        }
    }

    fn delete_address(&mut self, address: Address, until: i64) {
        let current = self.addresses.get(&address).copied();
        if let Some(id) = current
            && self.events.get(&id).is_some_and(|stored| stored.head().created_at <= until)
        {
            self.addresses.remove(&address);
            self.remove(&id);
        }
        let memory_bytes = size_of::<Address>() + address.d.len();
        match self.deleted_addresses.entry(address) {
            Entry::Occupied(mut remembered) => *remembered.get_mut() = until.max(*remembered.get()),
            Entry::Vacant(unknown) => {
                unknown.insert(until);
                self.held_bytes += memory_bytes;
            }
        }
    }
}

/// How many stored events one filter may give.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueryLimits {
    pub(crate) default_limit: usize,
    pub(crate) max_limit: usize,
}

impl QueryLimits {
    fn of(self, filter: &Filter) -> usize {
        let asked = filter.limit.map_or(self.default_limit, |limit| limit.try_into().unwrap_or(usize::MAX));
        asked.min(self.max_limit)
    }
}

/// The conditions that [`Store::candidates`] leaves to check; scanning a list of 2,000
/// authors again for each of their events would cost more than finding the event.
fn beyond_the_index(filter: &Filter) -> Filter {
    match filter.ids {
        Some(_) => Filter { ids: None, ..filter.clone() },
        None => Filter { tags: filter.tags.clone(), ..Filter::default() },
    }
}

fn sort_and_deduplicate(found: &mut Vec<Arc<StoredEvent>>, start: usize) {
    found[start..].sort_unstable_by_key(|stored| stored.key());
    if start == 0 {
        found.dedup_by(|a, b| a.head().id == b.head().id);
    } else {
        let mut tail = found.split_off(start);
        tail.dedup_by(|a, b| a.head().id == b.head().id);
        found.append(&mut tail);
    }
}

#[cfg(test)]
mod tests;
