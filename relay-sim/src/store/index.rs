//! Where are the events that match a filter?
//!
//! Events are listed by all that filters ask for, newest first with ties by lowest id: by author,
//! author and kind, one-letter tag, kind, or nothing. A list is found by the hash of its
//! key, so a new event costs one look-up for each of its lists, and mostly goes to their end. An entry
//! has the part of its event that mostly decides the order.
//!
//! If several lists hold all matches, the one with the fewest other events between them is not known
//! beforehand. They are searched by turns. The first that has found enough, or has no more, gives the
//! answer. So a filter visits few times as many candidates as it does in the best of its lists.

use std::{
    cmp::{Ordering, Reverse},
    slice,
    sync::Arc,
    vec,
};

use ahash::{HashSet, RandomState};
use codecs::Filter;
use hashbrown::{HashTable, hash_table::Entry};

use super::{by_id::ById, stored::StoredEvent};

/// Entries of a list that lie side by side: few enough that one is put between them quickly.
pub(super) const MAX_CHUNK: usize = 128;

/// Maps that the lists are spread over: when one grows, the pause is a small part of what one map
/// for all would take.
const MAPS: usize = 64;

/// Candidates of one list before the next has its turn.
const TURN: usize = 16;

/// Kinds up to which a filter's authors are looked up kind by kind, and no other way.
const FEW_KINDS: usize = 16;

/// Authors of a filter beyond which they are looked up by hash.
const FEW_AUTHORS: usize = 8;

/// The events by what filters ask for, except their ids.
#[derive(Debug)]
pub(super) struct Index {
    /// Lists by the hash of their key. Two keys with one hash share a list; a look at the event tells
    /// them apart.
    lists: [HashTable<(u64, List)>; MAPS],
    hasher: RandomState,
    /// Candidates that were looked at so far: what filters cost.
    visited: u64,
}

/// What a list is by.
#[derive(Debug, Clone, Copy, Hash)]
enum By<'a> {
    Time,
    Kind(u16),
    Author(&'a [u8; 32]),
    AuthorAndKind(&'a [u8; 32], u16),
    Tag(char, &'a str),
}

impl By<'_> {
    /// Whether the event belongs in the list; of tags the filter itself decides.
    fn fits(&self, stored: &StoredEvent) -> bool {
        let event = stored.head();
        match *self {
            By::Time | By::Tag(..) => true,
            By::Kind(kind) => event.kind == kind,
            By::Author(author) => event.pubkey == *author,
            By::AuthorAndKind(author, kind) => event.kind == kind && event.pubkey == *author,
        }
    }
}

/// Events in the opposite order of answers, so that a new one mostly goes to the end.
#[derive(Debug)]
enum List {
    One(Placed),
    /// A chunk, not empty.
    Few(Vec<Placed>),
    Many(Box<Chunks>),
}

/// A list in chunks of at most [`MAX_CHUNK`], none of them empty.
#[derive(Debug)]
struct Chunks {
    chunks: Vec<Vec<Placed>>,
    /// The chunk that took the last event, tried first for the next one: events of about one time
    /// mostly come together, and a search would read memory that is in no cache.
    latest: usize,
}

/// A stored event in the order of a list.
#[derive(Debug, Clone)]
struct Placed {
    created_at: i64,
    /// The beginning of the id. Where it is equal, too, the events themselves are looked at.
    id_start: Reverse<u64>,
    stored: Arc<StoredEvent>,
}

impl Placed {
    fn from_event(stored: &Arc<StoredEvent>) -> Placed {
        let event = stored.head();
        let id_start = event.id.first_chunk().map_or(0, |start| u64::from_be_bytes(*start));
        Placed { created_at: event.created_at, id_start: Reverse(id_start), stored: Arc::clone(stored) }
    }
}

impl Ord for Placed {
    fn cmp(&self, other: &Placed) -> Ordering {
        let of_ids = || other.stored.head().id.cmp(&self.stored.head().id);
        self.created_at.cmp(&other.created_at).then(self.id_start.cmp(&other.id_start)).then_with(of_ids)
    }
}

impl PartialOrd for Placed {
    fn partial_cmp(&self, other: &Placed) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Placed {
    fn eq(&self, other: &Placed) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Placed {}

impl Chunks {
    fn insert(&mut self, placed: Placed) {
        let Chunks { chunks, latest } = self;
        let begins_before = |chunk: &Vec<Placed>| chunk[0] <= placed;
        let begun = |place: usize| chunks.get(place).is_some_and(begins_before);
        if !begun(*latest) || begun(*latest + 1) {
            *latest = chunks.partition_point(begins_before).saturating_sub(1);
        }
        if let Some(next) = insert_into(&mut chunks[*latest], placed) {
            *latest += 1;
            chunks.insert(*latest, next);
        }
    }

    /// Removes an event. Returns whether no chunk is left.
    fn remove(&mut self, placed: &Placed) -> bool {
        let chunks = &mut self.chunks;
        let place = chunks.partition_point(|chunk| chunk[0] <= *placed).saturating_sub(1);
        if remove_from(&mut chunks[place], placed) {
            chunks.remove(place);
        }
        chunks.is_empty()
    }
}

/// Adds an event to a chunk, unless it is there: one may have a tag twice. Returns the chunk that is
/// to follow if this one was full.
fn insert_into(chunk: &mut Vec<Placed>, placed: Placed) -> Option<Vec<Placed>> {
    let is_last = chunk.last().is_some_and(|last| *last < placed);
    let at = if is_last { chunk.len() } else { chunk.binary_search(&placed).err()? };
    if chunk.len() < MAX_CHUNK {
        chunk.insert(at, placed);
        return None;
    }
    // What comes in order fills its chunks.
    let mut next = chunk.split_off(if is_last { at } else { MAX_CHUNK / 2 });
    match at.checked_sub(chunk.len()) {
        Some(at) => next.insert(at, placed),
        None => chunk.insert(at, placed),
    }
    Some(next)
}

/// Removes an event from a chunk. Returns whether the chunk is empty then.
fn remove_from(chunk: &mut Vec<Placed>, placed: &Placed) -> bool {
    if let Ok(at) = chunk.binary_search(placed) {
        chunk.remove(at);
        if chunk.len() <= chunk.capacity() / 4 {
            chunk.shrink_to(chunk.len() * 2);
        }
    }
    chunk.is_empty()
}

impl List {
    /// Adds an event, unless it is there.
    fn insert(&mut self, placed: Placed) {
        match self {
            List::One(one) if *one == placed => {}
            List::One(one) => {
                let mut both = vec![one.clone(), placed];
                both.sort_unstable();
                *self = List::Few(both);
            }
            List::Few(few) => {
                if let Some(next) = insert_into(few, placed) {
                    let chunks = vec![std::mem::take(few), next];
                    *self = List::Many(Box::new(Chunks { chunks, latest: 1 }));
                }
            }
            List::Many(many) => many.insert(placed),
        }
    }

    /// Removes an event. Returns whether the list is empty then.
    fn remove(&mut self, placed: &Placed) -> bool {
        match self {
            List::One(one) => one == placed,
            List::Few(few) => remove_from(few, placed),
            List::Many(many) => many.remove(placed),
        }
    }

    /// Its events up to this time.
    fn until(&self, until: i64) -> (&[Vec<Placed>], &[Placed]) {
        fn up_to(chunk: &[Placed], until: i64) -> &[Placed] {
            &chunk[..chunk.partition_point(|placed| placed.created_at <= until)]
        }
        match self {
            List::One(one) => (&[], up_to(slice::from_ref(one), until)),
            List::Few(few) => (&[], up_to(few, until)),
            List::Many(many) => {
                let begun = many.chunks.partition_point(|chunk| chunk[0].created_at <= until);
                let Some((last, whole)) = many.chunks[..begun].split_last() else { return (&[], &[]) };
                (whole, up_to(last, until))
            }
        }
    }
}

impl Default for Index {
    fn default() -> Self {
        let lists = std::array::from_fn(|_| HashTable::new());
        Index { lists, hasher: RandomState::default(), visited: 0 }
    }
}

impl Index {
    pub(super) fn add(&mut self, stored: &Arc<StoredEvent>) {
        for (map, key) in keys(&self.hasher, stored) {
            let placed = Placed::from_event(stored);
            match self.lists[map].entry(key, |list| list.0 == key, |list| list.0) {
                Entry::Occupied(mut list) => list.get_mut().1.insert(placed),
                Entry::Vacant(new) => _ = new.insert((key, List::One(placed))),
            }
        }
    }

    pub(super) fn remove(&mut self, stored: &Arc<StoredEvent>) {
        let placed = Placed::from_event(stored);
        for (map, key) in keys(&self.hasher, stored) {
            if let Ok(mut list) = self.lists[map].find_entry(key, |list| list.0 == key)
                && list.get_mut().1.remove(&placed)
            {
                list.remove();
            }
        }
    }

    /// The newest matches of a filter, `limit` at most, each once and in order. `events` are all,
    /// by id.
    pub(super) fn newest(&mut self, filter: &Filter, events: &ById, limit: usize) -> Vec<Arc<StoredEvent>> {
        if limit == 0 {
            return Vec::new();
        }
        let filter = &without_repeats(filter);
        let mut sources = self.sources(filter, events);
        let turn = if sources.len() == 1 { usize::MAX } else { TURN };
        let winner = (0..sources.len()).cycle().find(|&n| sources[n].advance(turn, limit));
        let visited: u64 = sources.iter().map(|source| source.visited).sum();
        let winner = winner.map(|n| sources.swap_remove(n).found).unwrap_or_default();
        let mut found: Vec<_> = winner.into_iter().cloned().collect();
        drop(sources);
        self.visited += visited;
        sort_and_deduplicate(&mut found);
        found.truncate(limit);
        found
    }

    /// Candidates that were looked at since this was last asked.
    #[cfg(test)]
    pub(super) fn take_visited(&mut self) -> u64 {
        std::mem::take(&mut self.visited)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.lists.iter().all(HashTable::is_empty)
    }

    /// The lists that hold every match.
    fn sources<'i>(&'i self, filter: &'i Filter, events: &'i ById) -> Vec<Source<'i>> {
        if let Some(ids) = &filter.ids {
            let rest = Filter { ids: None, ..filter.clone() };
            let mut named: Vec<_> = ids.iter().filter_map(|id| events.get(id)).collect();
            named.sort_unstable_by_key(|event| event.key());
            named.dedup_by_key(|event| event.key()); // a client may name one twice
            return vec![Source::new(std::iter::once(Candidates::Named(named.into_iter())), rest)];
        }
        let list = |by| Candidates::Listed(self.range(by, filter));
        let tags = || Filter { tags: filter.tags.clone(), ..Filter::default() };
        let mut sources = Vec::new();
        match (&filter.authors, &filter.kinds) {
            (Some(authors), kinds) => {
                let few = kinds.as_ref().filter(|kinds| kinds.len() <= FEW_KINDS);
                if few.is_none() {
                    let rest = Filter { kinds: kinds.clone(), ..tags() };
                    sources.push(Source::new(authors.iter().map(move |a| list(By::Author(a))), rest));
                }
                if let Some(kinds) = kinds {
                    let of_author = move |a| kinds.iter().map(move |kind| list(By::AuthorAndKind(a, *kind)));
                    sources.push(Source::new(authors.iter().flat_map(of_author), tags()));
                }
            }
            (None, Some(kinds)) => {
                sources.push(Source::new(kinds.iter().map(move |kind| list(By::Kind(*kind))), tags()));
            }
            (None, None) if filter.tags.is_empty() => {
                sources.push(Source::new(std::iter::once(list(By::Time)), tags()));
            }
            (None, None) => {}
        }
        for condition in &filter.tags {
            let of_value = move |value: &'i String| list(By::Tag(condition.letter, value));
            sources.push(Source::new(condition.values.iter().map(of_value), filter.clone()));
        }
        sources
    }

    /// The part of a list that is of a filter's times.
    fn range<'i>(&'i self, by: By<'i>, filter: &Filter) -> Listed<'i> {
        let (map, key) = key(&self.hasher, by);
        let list = self.lists[map].find(key, |list| list.0 == key);
        let until = |(_, list): &'i (u64, List)| list.until(filter.until.unwrap_or(i64::MAX));
        let (before, chunk) = list.map_or((&[][..], &[][..]), until);
        Listed { by, before, chunk, since: filter.since.unwrap_or(i64::MIN) }
    }
}

/// The map of a list, and the hash in it.
fn key(hasher: &RandomState, by: By<'_>) -> (usize, u64) {
    let hash = hasher.hash_one(by);
    // Bits by which a map of fewer than 2^32 lists does not place them.
    (usize::try_from((hash >> 32) % MAPS as u64).expect("fewer than MAPS"), hash)
}

/// The lists of an event.
fn keys(hasher: &RandomState, stored: &StoredEvent) -> impl Iterator<Item = (usize, u64)> {
    let event = stored.head();
    let (author, kind) = (&event.pubkey, event.kind);
    let tags = stored.event().tags().filter_map(|mut values| {
        let (name, value) = (values.next()?, values.next()?);
        let mut letters = name.chars();
        let letter = letters.next().filter(|_| letters.next().is_none())?;
        Some(By::Tag(letter, value))
    });
    let all = [By::Time, By::Kind(kind), By::Author(author), By::AuthorAndKind(author, kind)];
    all.into_iter().chain(tags).map(|by| key(hasher, by))
}

/// The filter with each author, kind and tag value once, in order: a look-up for each pair of 2,000
/// equal authors and kinds would be four million.
fn without_repeats(filter: &Filter) -> Filter {
    fn once<T: Ord>(values: &mut Vec<T>) {
        values.sort_unstable();
        values.dedup();
    }
    let mut filter = filter.clone();
    filter.authors.iter_mut().for_each(once);
    filter.kinds.iter_mut().for_each(once);
    filter.tags.iter_mut().for_each(|tag| once(&mut tag.values));
    filter
}

/// Events that may match, in order.
#[derive(Debug)]
enum Candidates<'i> {
    Named(vec::IntoIter<&'i Arc<StoredEvent>>),
    Listed(Listed<'i>),
}

impl<'i> Iterator for Candidates<'i> {
    type Item = &'i Arc<StoredEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Candidates::Named(named) => named.next(),
            Candidates::Listed(listed) => listed.next(),
        }
    }
}

/// What is left of a range of a list.
#[derive(Debug)]
struct Listed<'i> {
    by: By<'i>,
    before: &'i [Vec<Placed>],
    chunk: &'i [Placed],
    since: i64,
}

impl<'i> Iterator for Listed<'i> {
    type Item = &'i Arc<StoredEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            while let Some((placed, before)) = self.chunk.split_last() {
                if placed.created_at < self.since {
                    return None;
                }
                self.chunk = before;
                if self.by.fits(&placed.stored) {
                    return Some(&placed.stored);
                }
            }
            let (chunk, before) = self.before.split_last()?;
            (self.chunk, self.before) = (chunk, before);
        }
    }
}

/// Lists, or ranges of them, that hold together every match of a filter.
struct Source<'i> {
    ranges: Box<dyn Iterator<Item = Candidates<'i>> + 'i>,
    /// The rest of the range that is gone through, and its matches so far.
    range: Option<(Candidates<'i>, usize)>,
    /// The conditions that the ranges leave to check. To scan a list of 2,000 authors again for
    /// each of their events would cost more than to find the event.
    rest: Filter,
    authors: Option<HashSet<[u8; 32]>>,
    found: Vec<&'i Arc<StoredEvent>>,
    visited: u64,
}

impl<'i> Source<'i> {
    fn new(ranges: impl Iterator<Item = Candidates<'i>> + 'i, mut rest: Filter) -> Self {
        let authors = rest.authors.take_if(|authors| authors.len() > FEW_AUTHORS);
        Source {
            ranges: Box::new(ranges),
            range: None,
            rest,
            authors: authors.map(HashSet::from_iter),
            found: Vec::new(),
            visited: 0,
        }
    }

    /// Looks at as many candidates. Returns whether the answer is found: `limit` matches of each
    /// range, or all.
    fn advance(&mut self, candidates: usize, limit: usize) -> bool {
        for _ in 0..candidates {
            let Some((range, matches)) = &mut self.range else {
                match self.ranges.next() {
                    Some(range) => self.range = Some((range, 0)),
                    None => return true,
                }
                continue;
            };
            let Some(stored) = range.next().filter(|_| *matches < limit) else {
                self.range = None;
                continue;
            };
            self.visited += 1;
            let of_author = || self.authors.as_ref().is_none_or(|set| set.contains(&stored.head().pubkey));
            if of_author() && self.rest.matches_flat(stored.event()) {
                *matches += 1;
                self.found.push(stored);
            }
        }
        false
    }
}

/// Brings events in the order of answers, each once.
pub(super) fn sort_and_deduplicate(found: &mut Vec<Arc<StoredEvent>>) {
    found.sort_unstable_by_key(|stored| stored.key());
    found.dedup_by(|a, b| a.head().id == b.head().id);
}
