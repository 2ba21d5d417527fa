//! Where are the events that match a filter?
//!
//! Events are listed by what filters ask for, newest first with ties by lowest id: by kind, by author and
//! kind, and by one-letter tag. Lists of several kinds are merged while they are read. Authors and tags
//! are found by hash. An entry has the part of its event that mostly decides the order.
//!
//! If several lists hold all matches, the one with the fewest other events between them is not known
//! beforehand. They are searched by turns. The first that has found enough, or has no more, gives the
//! answer. So a filter visits few times as many candidates as it does in the best of its lists.

use std::{
    cmp::{Ordering, Reverse},
    collections::BinaryHeap,
    hash::Hash,
    slice,
    sync::Arc,
    vec,
};

use ahash::{HashSet, RandomState};
use codecs::{EventHead, Filter};
use hashbrown::{HashTable, hash_table::Entry};

use super::{by_id::ById, stored::StoredEvent};

/// Entries of a list that lie side by side: few enough that one is put between them quickly.
pub(super) const MAX_CHUNK: usize = 64;

/// Maps that authors and tags are spread over: when one grows, the pause is a small part of what one
/// map for all would take.
const MAPS: usize = 64;

/// Candidates of one list before the next has its turn.
const TURN: usize = 16;

/// Authors of a filter beyond which they are looked up by hash.
const FEW_AUTHORS: usize = 8;

/// The events by what filters ask for, except their ids.
#[derive(Debug)]
pub(super) struct Index {
    all: ByKind,
    /// Events of an author, by the hash of its key. Two authors with one hash share lists; a look at
    /// the event tells them apart.
    authors: [HashTable<(u64, ByKind)>; MAPS],
    /// Events with a tag, by the hash of its letter and value. The filter tells those with one hash
    /// apart.
    tags: [HashTable<(u64, List)>; MAPS],
    hasher: RandomState,
    /// Candidates that were looked at so far: what filters cost.
    visited: u64,
}

/// A list for each kind, by kind.
#[derive(Debug, Default)]
struct ByKind(Vec<(u16, List)>);

impl ByKind {
    fn place(&self, kind: u16) -> Result<usize, usize> {
        self.0.binary_search_by_key(&kind, |(kind, _)| *kind)
    }

    fn insert(&mut self, kind: u16, placed: Placed) {
        match self.place(kind) {
            Ok(place) => self.0[place].1.insert(placed),
            Err(place) => self.0.insert(place, (kind, List::One(placed))),
        }
    }

    /// Removes an event. Returns whether nothing is left.
    fn remove(&mut self, kind: u16, placed: &Placed) -> bool {
        if let Ok(place) = self.place(kind)
            && self.0[place].1.remove(placed)
        {
            self.0.remove(place);
        }
        self.0.is_empty()
    }
}

/// Events in the opposite order of answers, so that a new one mostly goes to the end.
#[derive(Debug)]
enum List {
    One(Placed),
    /// In chunks of at most [`MAX_CHUNK`], none of them empty.
    Many(Vec<Vec<Placed>>),
}

/// The part of an event that mostly decides the order.
type Start = (i64, Reverse<u64>);

/// A stored event in the order of a list.
#[derive(Debug, Clone)]
struct Placed {
    /// Time, and the beginning of the id. Where both are equal, the events themselves are looked at.
    start: Start,
    stored: Arc<StoredEvent>,
}

impl Placed {
    fn from_event(stored: &Arc<StoredEvent>) -> Placed {
        let event = stored.head();
        let id_start = event.id.first_chunk().map_or(0, |start| u64::from_be_bytes(*start));
        Placed { start: (event.created_at, Reverse(id_start)), stored: Arc::clone(stored) }
    }
}

impl Ord for Placed {
    fn cmp(&self, other: &Placed) -> Ordering {
        let of_ids = || other.stored.head().id.cmp(&self.stored.head().id);
        self.start.cmp(&other.start).then_with(of_ids)
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

/// How many chunks have begun. To look at the last one first spares a new event the search.
fn begun(chunks: &[Vec<Placed>], has_begun: impl Fn(&Placed) -> bool) -> usize {
    match chunks.last() {
        Some(last) if has_begun(&last[0]) => chunks.len(),
        _ => chunks.partition_point(|chunk| has_begun(&chunk[0])),
    }
}

impl List {
    /// Adds an event, unless it is there: one may have a tag twice.
    fn insert(&mut self, placed: Placed) {
        let chunks = match self {
            List::One(one) if *one == placed => return,
            List::One(one) => {
                let mut both = vec![one.clone(), placed];
                both.sort_unstable();
                *self = List::Many(vec![both]);
                return;
            }
            List::Many(chunks) => chunks,
        };
        let place = begun(chunks, |first| *first <= placed).saturating_sub(1);
        let chunk = &mut chunks[place];
        let at = match chunk.last() {
            Some(last) if *last < placed => chunk.len(),
            _ => match chunk.binary_search(&placed) {
                Ok(_) => return,
                Err(at) => at,
            },
        };
        if chunk.len() < MAX_CHUNK {
            chunk.insert(at, placed);
            return;
        }
        // What comes in order fills its chunks.
        let mut next = chunk.split_off(if at == MAX_CHUNK { at } else { MAX_CHUNK / 2 });
        match at.checked_sub(chunk.len()) {
            Some(at) => next.insert(at, placed),
            None => chunk.insert(at, placed),
        }
        chunks.insert(place + 1, next);
    }

    /// Removes an event. Returns whether the list is empty then.
    fn remove(&mut self, placed: &Placed) -> bool {
        let chunks = match self {
            List::One(one) => return one == placed,
            List::Many(chunks) => chunks,
        };
        let place = begun(chunks, |first| first <= placed).saturating_sub(1);
        let chunk = &mut chunks[place];
        if let Ok(at) = chunk.binary_search(placed) {
            chunk.remove(at);
            if chunk.len() <= chunk.capacity() / 4 {
                chunk.shrink_to(chunk.len() * 2);
            }
        }
        if chunk.is_empty() {
            chunks.remove(place);
        }
        chunks.is_empty()
    }

    /// Its events of a filter's times, of which those of this author are meant.
    fn within<'i>(&'i self, filter: &Filter, author: Option<&'i [u8; 32]>) -> Listed<'i> {
        let until = filter.until.unwrap_or(i64::MAX);
        let (before, chunk) = match self {
            List::One(one) => (&[][..], slice::from_ref(one)),
            List::Many(chunks) => {
                let chunks = &chunks[..begun(chunks, |first| first.start.0 <= until)];
                chunks.split_last().map_or((&[][..], &[][..]), |(last, before)| (before, &last[..]))
            }
        };
        let chunk = &chunk[..chunk.partition_point(|placed| placed.start.0 <= until)];
        Listed { author, before, chunk, since: filter.since.unwrap_or(i64::MIN) }
    }
}

impl Default for Index {
    fn default() -> Self {
        Index {
            all: ByKind::default(),
            authors: std::array::from_fn(|_| HashTable::new()),
            tags: std::array::from_fn(|_| HashTable::new()),
            hasher: RandomState::default(),
            visited: 0,
        }
    }
}

impl Index {
    pub(super) fn add(&mut self, stored: &Arc<StoredEvent>) {
        let EventHead { pubkey, kind, .. } = stored.head();
        let placed = Placed::from_event(stored);
        for (map, key) in tag_keys(&self.hasher, stored) {
            match self.tags[map].entry(key, |list| list.0 == key, |list| list.0) {
                Entry::Occupied(mut list) => list.get_mut().1.insert(placed.clone()),
                Entry::Vacant(new) => _ = new.insert((key, List::One(placed.clone()))),
            }
        }
        let (map, key) = key(&self.hasher, pubkey);
        match self.authors[map].entry(key, |lists| lists.0 == key, |lists| lists.0) {
            Entry::Occupied(mut lists) => lists.get_mut().1.insert(*kind, placed.clone()),
            Entry::Vacant(new) => {
                _ = new.insert((key, ByKind(vec![(*kind, List::One(placed.clone()))])));
            }
        }
        self.all.insert(*kind, placed);
    }

    pub(super) fn remove(&mut self, stored: &Arc<StoredEvent>) {
        let EventHead { pubkey, kind, .. } = stored.head();
        let placed = Placed::from_event(stored);
        for (map, key) in tag_keys(&self.hasher, stored) {
            if let Ok(mut list) = self.tags[map].find_entry(key, |list| list.0 == key)
                && list.get_mut().1.remove(&placed)
            {
                list.remove();
            }
        }
        let (map, key) = key(&self.hasher, pubkey);
        if let Ok(mut lists) = self.authors[map].find_entry(key, |lists| lists.0 == key)
            && lists.get_mut().1.remove(*kind, &placed)
        {
            lists.remove();
        }
        self.all.remove(*kind, &placed);
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
        let Index { all, authors, tags, .. } = self;
        all.0.is_empty() && authors.iter().all(HashTable::is_empty) && tags.iter().all(HashTable::is_empty)
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
        let tags = || Filter { tags: filter.tags.clone(), ..Filter::default() };
        let mut sources = Vec::new();
        match (&filter.authors, &filter.kinds) {
            (Some(authors), None) => {
                let merged = move |author| merged(self.of_author(author), Some(author), filter);
                sources.push(Source::new(authors.iter().map(merged), tags()));
            }
            (Some(authors), Some(kinds)) => {
                let of_author = move |author| {
                    let lists = self.of_author(author).iter();
                    let wanted = lists.filter(move |(kind, _)| kinds.binary_search(kind).is_ok());
                    wanted.map(move |(_, list)| Candidates::Listed(list.within(filter, Some(author))))
                };
                sources.push(Source::new(authors.iter().flat_map(of_author), tags()));
            }
            (None, Some(kinds)) => {
                let places = kinds.iter().filter_map(move |kind| self.all.place(*kind).ok());
                let of_kind =
                    move |place: usize| Candidates::Listed(self.all.0[place].1.within(filter, None));
                sources.push(Source::new(places.map(of_kind), tags()));
            }
            (None, None) if filter.tags.is_empty() => {
                sources.push(Source::new(std::iter::once(merged(&self.all.0, None, filter)), tags()));
            }
            (None, None) => {}
        }
        for condition in &filter.tags {
            let of_value = move |value: &'i String| {
                let (map, key) = key(&self.hasher, (condition.letter, value.as_str()));
                let (_, list) = self.tags[map].find(key, |list| list.0 == key)?;
                Some(Candidates::Listed(list.within(filter, None)))
            };
            sources.push(Source::new(condition.values.iter().filter_map(of_value), filter.clone()));
        }
        sources
    }

    /// The lists of an author.
    fn of_author(&self, author: &[u8; 32]) -> &[(u16, List)] {
        let (map, key) = key(&self.hasher, author);
        self.authors[map].find(key, |lists| lists.0 == key).map_or(&[], |(_, lists)| &lists.0)
    }
}

/// The events of several kinds, as [`List::within`] has those of one.
fn merged<'i>(lists: &'i [(u16, List)], author: Option<&'i [u8; 32]>, filter: &Filter) -> Candidates<'i> {
    let mut lists: Vec<_> = lists.iter().map(|(_, list)| list.within(filter, author)).collect();
    let heads = lists.iter_mut().enumerate().filter_map(|(place, list)| Some((list.next()?, place)));
    Candidates::Merged { heads: heads.collect(), lists }
}

/// The map of an author or a tag, and the hash in it.
fn key(hasher: &RandomState, of: impl Hash) -> (usize, u64) {
    let hash = hasher.hash_one(of);
    // Bits by which a map of fewer than 2^32 entries does not place them.
    (usize::try_from((hash >> 32) % MAPS as u64).expect("fewer than MAPS"), hash)
}

/// The keys of an event's one-letter tags.
fn tag_keys(hasher: &RandomState, stored: &StoredEvent) -> impl Iterator<Item = (usize, u64)> {
    stored.event().tags().filter_map(|mut values| {
        let (name, value) = (values.next()?, values.next()?);
        let mut letters = name.chars();
        let letter = letters.next().filter(|_| letters.next().is_none())?;
        Some(key(hasher, (letter, value)))
    })
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
    /// Several lists as one: the next event of each, and where the rest of its list is.
    Merged {
        heads: BinaryHeap<(&'i Placed, usize)>,
        lists: Vec<Listed<'i>>,
    },
}

impl<'i> Iterator for Candidates<'i> {
    type Item = &'i Arc<StoredEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Candidates::Named(named) => named.next(),
            Candidates::Listed(listed) => Some(&listed.next()?.stored),
            Candidates::Merged { heads, lists } => {
                let (newest, place) = heads.pop()?;
                heads.extend(lists[place].next().map(|head| (head, place)));
                Some(&newest.stored)
            }
        }
    }
}

/// What is left of a range of a list.
#[derive(Debug)]
struct Listed<'i> {
    /// Whose events it is of, where that is not plain.
    author: Option<&'i [u8; 32]>,
    before: &'i [Vec<Placed>],
    chunk: &'i [Placed],
    since: i64,
}

impl<'i> Iterator for Listed<'i> {
    type Item = &'i Placed;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            while let Some((placed, before)) = self.chunk.split_last() {
                if placed.start.0 < self.since {
                    return None;
                }
                self.chunk = before;
                if self.author.is_none_or(|author| placed.stored.head().pubkey == *author) {
                    return Some(placed);
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
