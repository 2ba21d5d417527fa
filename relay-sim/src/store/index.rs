//! Where are the events that match a filter?
//!
//! Every index is one ordered tree, newest first with ties by lowest id within what it is by:
//! author and kind, one-letter tag, kind, or nothing. A filter's matches are in a few ranges of one
//! of them. A tree for each author would cost most authors more memory than their events do. An
//! entry has as much of its event as mostly decides an order: what is small stays in the caches.
//!
//! Where several indexes hold all matches, which one has fewest others between them is not known
//! beforehand: each is gone through by turns, and the first that has found enough, or has no more,
//! gives the answer. So a filter visits few times as many candidates as it does in the best of its
//! indexes.

use std::{
    cmp::{Ordering, Reverse},
    collections::{BTreeSet, btree_set::Range},
    ops::RangeInclusive,
    sync::Arc,
    vec,
};

use ahash::{HashMap, HashSet, RandomState};
use codecs::{Event, EventHead, Filter};

use super::stored::StoredEvent;

/// New events that are indexed together: enough that neighbours in a tree come together, few enough
/// that the pause stays short.
pub(super) const MAX_UNINDEXED: usize = 1_024;

/// Tags that are brought into their index together: one follow list alone may have thousands.
const TAGS_TOGETHER: usize = 16 << 10;

/// Candidates of one index before the next has its turn.
const TURN: usize = 16;

/// Kinds up to which a filter's authors are looked up kind by kind.
const FEW_KINDS: usize = 16;

/// Authors of a filter beyond which they are looked up by hash.
const FEW_AUTHORS: usize = 8;

/// The events by what filters ask for, except their ids.
#[derive(Debug)]
pub(super) struct Index {
    /// The latest events, which are in none of the trees yet.
    unindexed: Vec<Arc<StoredEvent>>,
    by_time: BTreeSet<Placed>,
    by_kind: BTreeSet<(u16, Placed)>,
    by_author: BTreeSet<(Words, u16, Placed)>,
    /// By [`tag_hash`]: tags of one hash are told apart when their events are looked at.
    by_tag: BTreeSet<(u64, Placed)>,
    tag_hasher: RandomState,
    /// No events: they have the first id and the last one, for the ends of ranges.
    ends: [Arc<StoredEvent>; 2],
    /// Candidates that were looked at so far: what filters cost.
    visited: u64,
}

/// A stored event in the order of answers.
#[derive(Debug, Clone)]
struct Placed {
    created_at: Reverse<i64>,
    /// The beginning of the id. Where it is equal, too, the events themselves are looked at.
    id_start: u64,
    stored: Arc<StoredEvent>,
}

impl Placed {
    fn from_event(stored: &Arc<StoredEvent>) -> Placed {
        Placed::at(stored.head().created_at, stored)
    }

    /// The place of the event if it were of this time.
    fn at(created_at: i64, stored: &Arc<StoredEvent>) -> Placed {
        let [id_start, ..] = words(&stored.head().id);
        Placed { created_at: Reverse(created_at), id_start, stored: Arc::clone(stored) }
    }
}

impl Ord for Placed {
    fn cmp(&self, other: &Placed) -> Ordering {
        let of_ids = || self.stored.head().id.cmp(&other.stored.head().id);
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

impl Default for Index {
    fn default() -> Self {
        let end = |byte| {
            let (id, pubkey, sig) = ([byte; 32], [0; 32], [0; 64]);
            let end = Event { id, pubkey, created_at: 0, kind: 0, tags: vec![], content: "".into(), sig };
            Arc::new(StoredEvent::new(&end, &Arc::default()))
        };
        Index {
            unindexed: Vec::new(),
            by_time: BTreeSet::new(),
            by_kind: BTreeSet::new(),
            by_author: BTreeSet::new(),
            by_tag: BTreeSet::new(),
            tag_hasher: RandomState::default(),
            ends: [end(0), end(0xff)],
            visited: 0,
        }
    }
}

impl Index {
    pub(super) fn add(&mut self, stored: &Arc<StoredEvent>) {
        self.unindexed.push(Arc::clone(stored));
        if self.unindexed.len() == MAX_UNINDEXED {
            self.catch_up();
        }
    }

    pub(super) fn remove(&mut self, stored: &Arc<StoredEvent>) {
        self.catch_up();
        let (placed, event) = (Placed::from_event(stored), stored.head());
        self.by_time.remove(&placed);
        self.by_kind.remove(&(event.kind, placed.clone()));
        self.by_author.remove(&(words(&event.pubkey), event.kind, placed.clone()));
        for tag in tag_hashes(&self.tag_hasher, stored) {
            self.by_tag.remove(&(tag, placed.clone()));
        }
    }

    /// The newest matches of a filter, `limit` at most, each once and in order. `events` are all,
    /// by id.
    pub(super) fn newest(
        &mut self,
        filter: &Filter,
        events: &HashMap<[u8; 32], Arc<StoredEvent>>,
        limit: usize,
    ) -> Vec<Arc<StoredEvent>> {
        let bounds = &Bounds::from_filter(filter, &self.ends);
        if limit == 0 || bounds.newest > bounds.oldest {
            return Vec::new(); // a range from `until` to a later `since` would panic
        }
        self.catch_up();
        let filter = &without_repeats(filter);
        let mut sources = self.sources(filter, bounds, events);
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

    /// The indexes that hold every match.
    fn sources<'i, 'f: 'i>(
        &'i self,
        filter: &'f Filter,
        bounds: &'f Bounds,
        events: &'i HashMap<[u8; 32], Arc<StoredEvent>>,
    ) -> Vec<Source<'i>> {
        if let Some(ids) = &filter.ids {
            let named = ids.iter().filter_map(|id| events.get(id)).filter(|event| bounds.contain(event));
            let mut named: Vec<_> = named.collect();
            named.sort_unstable_by_key(|event| event.key());
            named.dedup_by_key(|event| event.key()); // a client may name one twice
            let rest = Filter { ids: None, ..filter.clone() };
            return vec![Source::new(std::iter::once(Candidates::Named(named.into_iter())), rest)];
        }
        let tags = || Filter { tags: filter.tags.clone(), ..Filter::default() };
        let of_author = move |author: [u8; 32], kind: u16| {
            let author = words(&author);
            Candidates::Author(self.by_author.range(bounds.within(|end| (author, kind, end))))
        };
        let mut sources = match (&filter.authors, &filter.kinds) {
            // Each author's own kinds are fewer than many that were asked for.
            (Some(authors), Some(kinds)) if kinds.len() > FEW_KINDS => {
                let asked = move |kind: &u16| kinds.binary_search(kind).is_ok();
                let ranges = authors
                    .iter()
                    .flat_map(move |a| self.kinds_of(*a).filter(asked).map(move |kind| of_author(*a, kind)));
                vec![Source::new(ranges, tags())]
            }
            (Some(authors), Some(kinds)) => {
                let ranges =
                    authors.iter().flat_map(move |a| kinds.iter().map(move |kind| of_author(*a, *kind)));
                vec![Source::new(ranges, tags())]
            }
            (Some(authors), None) => {
                let ranges =
                    authors.iter().flat_map(move |a| self.kinds_of(*a).map(move |kind| of_author(*a, kind)));
                vec![Source::new(ranges, tags())]
            }
            (None, Some(kinds)) => {
                let of_kind =
                    move |kind: &u16| Candidates::Kind(self.by_kind.range(bounds.within(|end| (*kind, end))));
                vec![Source::new(kinds.iter().map(of_kind), tags())]
            }
            (None, None) if filter.tags.is_empty() => {
                let all = Candidates::Time(self.by_time.range(bounds.within(|end| end)));
                vec![Source::new(std::iter::once(all), tags())]
            }
            (None, None) => Vec::new(),
        };
        for condition in &filter.tags {
            let of_value = move |value: &String| {
                let tag = tag_hash(&self.tag_hasher, condition.letter, value);
                Candidates::Tag(self.by_tag.range(bounds.within(|end| (tag, end))))
            };
            let rest = Filter { since: None, until: None, ..filter.clone() };
            sources.push(Source::new(condition.values.iter().map(of_value), rest));
        }
        sources
    }

    /// The kinds that an author's stored events have, each found by one step into the tree.
    fn kinds_of(&self, author: [u8; 32]) -> impl Iterator<Item = u16> {
        let author = words(&author);
        let first_from = move |kind: u16| {
            let newest = Placed::at(i64::MAX, &self.ends[0]);
            let (found, kind, _) = self.by_author.range((author, kind, newest)..).next()?;
            (*found == author).then_some(*kind)
        };
        std::iter::successors(first_from(0), move |kind| first_from(kind.checked_add(1)?))
    }

    /// Brings the trees up to date. One after the other and each in its own order: event by event,
    /// large trees push each other out of the processor's caches, and that costs more than all else
    /// that is done with a new event.
    fn catch_up(&mut self) {
        let Index { unindexed, by_time, by_kind, by_author, by_tag, tag_hasher, .. } = self;
        let mut tags: Vec<(u64, u32)> = Vec::new();
        let mut add_tags = |tags: &mut Vec<(u64, u32)>| {
            tags.sort_unstable();
            by_tag.extend(
                tags.drain(..).map(|(tag, place)| (tag, Placed::from_event(&unindexed[place as usize]))),
            );
        };
        for (place, stored) in (0..).zip(&*unindexed) {
            tags.extend(tag_hashes(tag_hasher, stored).map(|tag| (tag, place)));
            if tags.len() >= TAGS_TOGETHER {
                add_tags(&mut tags);
            }
        }
        add_tags(&mut tags);
        by_time.extend(in_order_of(unindexed, |stored| stored.key().0).map(Placed::from_event));
        by_kind.extend(
            in_order_of(unindexed, |stored| stored.head().kind)
                .map(|stored| (stored.head().kind, Placed::from_event(stored))),
        );
        by_author.extend(in_order_of(unindexed, |stored| words(&stored.head().pubkey)[0]).map(|stored| {
            let EventHead { pubkey, kind, .. } = stored.head();
            (words(pubkey), *kind, Placed::from_event(stored))
        }));
        unindexed.clear();
    }
}

/// Events in the order of a value that is mostly another for each, so that neighbours in a tree
/// come together. Numbers are sorted in place of the events, which are looked at once.
fn in_order_of<T: Ord>(
    events: &[Arc<StoredEvent>],
    value: impl Fn(&StoredEvent) -> T,
) -> impl Iterator<Item = &Arc<StoredEvent>> {
    let mut order: Vec<(T, u32)> = events.iter().map(|stored| value(stored)).zip(0..).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, place)| &events[place as usize])
}

/// A key in words that compare as its bytes do. The first tells two authors apart by one
/// instruction, where a comparison of bytes is a call.
type Words = [u64; 4];

fn words(key: &[u8; 32]) -> Words {
    let (words, _) = key.as_chunks::<8>();
    std::array::from_fn(|n| u64::from_be_bytes(words[n]))
}

/// The filter with each author, kind and tag value once, in order: a range for each pair of 2,000
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

/// The times of a filter.
#[derive(Debug)]
struct Bounds {
    newest: Placed,
    oldest: Placed,
}

impl Bounds {
    fn from_filter(filter: &Filter, [first, last]: &[Arc<StoredEvent>; 2]) -> Bounds {
        Bounds {
            newest: Placed::at(filter.until.unwrap_or(i64::MAX), first),
            oldest: Placed::at(filter.since.unwrap_or(i64::MIN), last),
        }
    }

    /// The range of an index between both ends, each behind what the index is by.
    fn within<T>(&self, behind: impl Fn(Placed) -> T) -> RangeInclusive<T> {
        behind(self.newest.clone())..=behind(self.oldest.clone())
    }

    fn contain(&self, event: &Arc<StoredEvent>) -> bool {
        (&self.newest..=&self.oldest).contains(&&Placed::from_event(event))
    }
}

/// A range of an index, in order.
#[derive(Debug)]
enum Candidates<'i> {
    Named(vec::IntoIter<&'i Arc<StoredEvent>>),
    Time(Range<'i, Placed>),
    Kind(Range<'i, (u16, Placed)>),
    Author(Range<'i, (Words, u16, Placed)>),
    Tag(Range<'i, (u64, Placed)>),
}

impl<'i> Iterator for Candidates<'i> {
    type Item = &'i Arc<StoredEvent>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Candidates::Named(named) => named.next(),
            Candidates::Time(range) => range.next().map(|placed| &placed.stored),
            Candidates::Kind(range) => range.next().map(|(_, placed)| &placed.stored),
            Candidates::Author(range) => range.next().map(|(_, _, placed)| &placed.stored),
            Candidates::Tag(range) => range.next().map(|(_, placed)| &placed.stored),
        }
    }
}

/// Ranges of one index that hold every match of a filter.
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

/// The hash that stands for a one-letter tag and its value.
fn tag_hash(hasher: &RandomState, letter: char, value: &str) -> u64 {
    hasher.hash_one((letter, value))
}

/// The tags of an event that filters may ask for.
fn tag_hashes(hasher: &RandomState, stored: &StoredEvent) -> impl Iterator<Item = u64> {
    stored.event().tags().filter_map(|mut values| {
        let (name, value) = (values.next()?, values.next()?);
        let mut letters = name.chars();
        let letter = letters.next().filter(|_| letters.next().is_none())?;
        Some(tag_hash(hasher, letter, value))
    })
}

/// Brings events in the order of answers, each once.
pub(super) fn sort_and_deduplicate(found: &mut Vec<Arc<StoredEvent>>) {
    found.sort_unstable_by_key(|stored| stored.key());
    found.dedup_by(|a, b| a.head().id == b.head().id);
}
