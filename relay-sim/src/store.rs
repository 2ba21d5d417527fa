//! Which events does the relay have, and which of them answer a filter?
//!
//! In memory, for the length of a load test, or in a directory (`store/disk.rs`), with what filters
//! ask for in memory all the same; `store/index.rs` finds them.
//!
//! The rules of NIP-01 (replaceable, addressable, ephemeral) and NIP-09 (deletion) live in
//! [`Store::insert`].

use std::{
    collections::{BTreeSet, hash_map::Entry},
    sync::{Arc, atomic::Ordering},
};

use ahash::{HashMap, HashSet};
use codecs::{Event, EventHead, Filter, KindClass, hex};

pub use self::disk::{StoreConfig, StoreError};
use self::{
    by_id::ById,
    cache::Cache,
    index::{Index, sort_and_deduplicate},
    stored::Row,
};
pub(crate) use self::{
    disk::Disk,
    stored::{AllEncodings, Encoded, StoredEvent, Unavailable, expires_at},
};

mod by_id;
mod cache;
mod disk;
mod index;
mod stored;

/// NIP-09.
const DELETION: u16 = 5;

/// The address of events of which only the newest is kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Address {
    kind: u16,
    pubkey: [u8; 32],
    /// The first `d` tag's value of an addressable event; empty for replaceable ones.
    d: String,
}

impl Address {
    fn from_event(stored: &StoredEvent) -> Option<Self> {
        let EventHead { kind, pubkey, .. } = *stored.head();
        let d = match KindClass::from_kind(kind) {
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
        match KindClass::from_kind(kind) {
            KindClass::Addressable => Some(Address { kind, pubkey, d: d.to_owned() }),
            KindClass::Replaceable if d.is_empty() => Some(Address { kind, pubkey, d: String::new() }),
            _ => None,
        }
    }
}

/// The outcome for an offered event.
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
    /// The format at rest cannot hold the event.
    Unstorable,
    /// The event could not be written to disk.
    Unwritten,
}

/// The events; see the module's text.
#[derive(Debug, Default)]
pub(crate) struct Store {
    events: ById,
    index: Index,
    /// The current version of each address.
    addresses: HashMap<Address, [u8; 32]>,
    /// Deleted ids, each with the author of the deletion: a deletion counts for its author's own
    /// events alone, and may arrive before the event.
    deleted_ids: HashSet<([u8; 32], [u8; 32])>,
    /// Versions up to and including this `created_at` are deleted.
    deleted_addresses: HashMap<Address, i64>,
    /// When events expire, and which.
    expiring: BTreeSet<(u64, [u8; 32])>,
    held_bytes: usize,
    /// Encodings of all events in the store and in outboxes.
    encodings: Arc<AllEncodings>,
    max_bytes: usize,
    /// Rows of a store on disk.
    rows: Option<Rows>,
}

/// Parts that only a store on disk has.
#[derive(Debug)]
struct Rows {
    disk: Arc<Disk>,
    cache: Cache,
    /// The number of the next row.
    next: u64,
    /// Rows of events that are no more, yet to be removed.
    removed: Vec<Arc<Row>>,
}

impl Rows {
    fn row(&self, number: u64) -> Arc<Row> {
        Arc::new(Row { disk: Arc::clone(&self.disk), number })
    }
}

impl Store {
    /// An empty store that refuses events beyond roughly `max_bytes` of memory.
    pub(crate) fn new(max_bytes: usize) -> Self {
        Store { max_bytes, ..Store::default() }
    }

    /// Fills an empty store with what a disk holds, as if it were published again in the same
    /// order. What has expired by `unix_seconds` is not; `None` takes it all the same.
    ///
    /// # Errors
    /// When a row is malformed, or there is no memory for the indexes.
    pub(crate) fn load(&mut self, disk: &Arc<Disk>, unix_seconds: Option<u64>) -> Result<(), StoreError> {
        self.rows =
            Some(Rows { disk: Arc::clone(disk), cache: Cache::default(), next: 0, removed: Vec::new() });
        disk.rows(|number, bytes| {
            let event = disk.decode(number, bytes)?;
            self.rows.as_mut().expect("set above").next = number + 1;
            let has_expired = expires_at(&event).is_some_and(|at| unix_seconds.is_some_and(|now| at <= now));
            // A deletion that has expired still deletes, as it does in memory.
            if has_expired && event.kind != DELETION {
                self.forget_row(number);
                return Ok(());
            }
            match self.insert_row(&event, number) {
                Outcome::Full => Err(disk.too_large()),
                _ => Ok(()),
            }
        })
    }

    /// The number for a new row.
    pub(crate) fn next_row(&mut self) -> u64 {
        let rows = self.rows.as_mut().expect("only a store on disk has rows");
        rows.next += 1;
        rows.next - 1
    }

    /// Hands over the rows to remove, up to the first that an answer still needs. A superseded row must not
    /// outlive the row that superseded it, so that they go in order.
    pub(crate) fn take_removed(&mut self) -> Vec<u64> {
        let Some(rows) = &mut self.rows else { return Vec::new() };
        let unused = rows.removed.iter().take_while(|row| Arc::strong_count(row) == 1).count();
        rows.removed.drain(..unused).map(|row| row.number).collect()
    }

    /// Takes back rows that were handed over and not removed, before all others.
    pub(crate) fn put_back(&mut self, numbers: &[u64]) {
        if let Some(rows) = &mut self.rows {
            let back: Vec<_> = numbers.iter().map(|number| rows.row(*number)).collect();
            rows.removed.splice(0..0, back);
        }
    }

    /// Marks a row for removal by the next commit.
    pub(crate) fn forget_row(&mut self, number: u64) {
        if let Some(rows) = &mut self.rows {
            rows.removed.push(rows.row(number));
        }
    }

    /// Inserts an event that is in this row of the disk. If the event is not stored, the row is marked for
    /// removal.
    pub(crate) fn insert_row(&mut self, event: &Event<'_>, number: u64) -> Outcome {
        let Some(rows) = &self.rows else { return Outcome::Unwritten };
        let stored = Arc::new(StoredEvent::of_row(event, rows.row(number), &self.encodings));
        let outcome = self.insert(&stored);
        if outcome != Outcome::Stored {
            self.forget_row(number);
        }
        outcome
    }

    /// Keeps an event in memory that was just inserted by [`Store::insert_row`], as one that will
    /// soon be asked for.
    pub(crate) fn cache(&mut self, event: &Arc<StoredEvent>) {
        if let Some(rows) = &mut self.rows {
            event.count(event.held_bytes());
            rows.cache.add(event);
        }
        self.bound_cache();
    }

    /// Whether the event is stored.
    pub(crate) fn contains(&self, id: &[u8; 32]) -> bool {
        self.events.get(id).is_some()
    }

    /// Whether this many more bytes fit.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        // Encodings of a store on disk are a cache, which makes room.
        let encoded_bytes =
            if self.rows.is_some() { 0 } else { self.encodings.bytes.load(Ordering::Relaxed) };
        self.held_bytes + encoded_bytes + bytes <= self.max_bytes
    }

    /// Upper bound on the memory that a store on disk takes for the event.
    pub(crate) fn max_row_bytes(event: &StoredEvent) -> usize {
        // The store also keeps a deletion's ids and addresses, in less memory than its tags take.
        let times = if event.head().kind == DELETION { 2 } else { 1 };
        times * event.max_row_bytes()
    }

    /// Drops the least recently used encodings from the cache, until index and cache fit.
    fn bound_cache(&mut self) {
        let Some(rows) = &mut self.rows else { return };
        // The cache has two generations, so two drops empty it.
        for _ in 0..2 {
            if self.held_bytes + self.encodings.bytes.load(Ordering::Relaxed) > self.max_bytes {
                rows.cache.age();
            }
        }
    }

    /// Where events of this relay count their encodings.
    pub(crate) fn encodings(&self) -> &Arc<AllEncodings> {
        &self.encodings
    }

    /// How many events are stored.
    pub(crate) fn len(&self) -> usize {
        self.events.len()
    }

    /// Takes an event whose id and signature were checked as configured, and applies the rules of
    /// its kind.
    pub(crate) fn insert(&mut self, offered: &Arc<StoredEvent>) -> Outcome {
        let event = offered.head();
        let hash = self.events.hash(&event.id);
        if self.events.get_hashed(hash, &event.id).is_some() {
            return Outcome::Duplicate;
        }
        if !offered.is_kept() {
            return Outcome::Ephemeral;
        }
        if event.kind != DELETION && self.deleted_ids.contains(&(event.id, event.pubkey)) {
            return Outcome::Deleted;
        }
        let address = Address::from_event(offered);
        if let Some(address) = &address {
            if self.deleted_addresses.get(address).is_some_and(|&until| event.created_at <= until) {
                return Outcome::Deleted;
            }
            let current = self.addresses.get(address).and_then(|id| self.events.get(id));
            if current.is_some_and(|current| current.key() < offered.key()) {
                return Outcome::Superseded;
            }
        }
        if !self.has_room(offered.held_bytes()) {
            return Outcome::Full;
        }
        if let Some(address) = address
            && let Some(older) = self.addresses.insert(address, event.id)
        {
            self.remove(&older);
        }
        self.add(hash, offered);
        if event.kind == DELETION {
            self.delete_what_it_names(offered);
        }
        Outcome::Stored
    }

    /// Forgets what has expired by then (NIP-40).
    pub(crate) fn expire(&mut self, unix_seconds: u64) {
        while let Some(&(expires_at, id)) = self.expiring.first()
            && expires_at <= unix_seconds
        {
            self.remove(&id);
        }
    }

    /// The union of the filters' answers: each event once, newest first, ties by lowest id. Each
    /// filter gives at most its `limit`.
    pub(crate) fn query(
        &mut self,
        filters: &[Filter],
        limit: impl Fn(&Filter) -> usize,
    ) -> Vec<Arc<StoredEvent>> {
        let mut found = self.select(filters, limit);
        if let Some(rows) = &mut self.rows {
            found.iter_mut().for_each(|stored| *stored = rows.cache.used(stored));
            self.bound_cache();
        }
        found
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
        let mut found = Vec::new();
        for filter in filters {
            found.append(&mut self.index.newest(filter, &self.events, limit(filter)));
        }
        if filters.len() > 1 {
            sort_and_deduplicate(&mut found);
        }
        found
    }

    fn add(&mut self, hash: u64, stored: &Arc<StoredEvent>) {
        self.events.insert(hash, Arc::clone(stored));
        self.held_bytes += stored.held_bytes();
        self.index.add(stored);
        self.expiring.extend(stored.expires_at().map(|expires_at| (expires_at, stored.head().id)));
    }

    fn remove(&mut self, id: &[u8; 32]) {
        let Some(stored) = self.events.remove(id) else { return };
        self.index.remove(&stored);
        if let Some(address) = Address::from_event(&stored)
            && self.addresses.get(&address) == Some(id)
        {
            self.addresses.remove(&address);
        }
        if let Some(expires_at) = stored.expires_at() {
            self.expiring.remove(&(expires_at, *id));
        }
        self.held_bytes -= stored.held_bytes();
        if let (Some(rows), Some(row)) = (&mut self.rows, stored.row()) {
            rows.cache.remove(id);
            // Deleted events stay deleted when the deletion itself has expired.
            if stored.head().kind != DELETION {
                rows.removed.push(Arc::clone(row));
            }
        }
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
        self.remove(&id);
        if self.deleted_ids.insert((id, author)) {
            self.held_bytes += size_of::<([u8; 32], [u8; 32])>();
        }
    }

    /// Removes the event at an address if it is not newer than `until`, and remembers to refuse others.
    fn delete_address(&mut self, address: Address, until: i64) {
        let current = self.addresses.get(&address).copied();
        if let Some(id) = current
            && self.events.get(&id).is_some_and(|stored| stored.head().created_at <= until)
        {
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

#[cfg(test)]
mod tests;
