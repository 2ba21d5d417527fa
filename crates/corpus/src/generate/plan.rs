//! Plans author, kind and time of every event before any is made.
//!
//! Events are planned in blocks that do not depend on each other, so that all cores make them and
//! memory holds a few.

use std::collections::BTreeMap;

use super::{Mix, calibration::Calibration};
use crate::{
    keys::AUTHOR_KEYS,
    random::{Random, Weighted},
};

/// Events in a block: enough that each commoner kind follows its distribution inside one, some 10
/// MB of memory.
pub(super) const BLOCK: usize = 1_000;

/// 2025-09-20, when the audited archive begins. It spans eight days. A larger corpus has a second
/// per event, because two reactions of one author in one second could be the same event.
const FIRST_CREATED_AT: i64 = 1_758_326_400;
const SPAN_SECONDS: u64 = 8 * 86_400;

/// A year earlier.
const FIRST_CREATED_AT_ELSEWHERE: i64 = FIRST_CREATED_AT - 365 * 86_400;

/// A planned event.
#[derive(Debug, Clone)]
pub(super) struct Planned {
    pub(super) kind: u16,
    /// Index among all events, from 0.
    pub(super) index: u64,
    pub(super) created_at: i64,
    pub(super) author: Author,
    /// Place in the distribution of sizes of its kind, 0..1.
    pub(super) content_place: f64,
    /// Place in the distribution of tag counts of its kind, 0..1.
    pub(super) tags_place: f64,
}

/// The signer of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Author {
    /// One of the authors, by rank of activity.
    Known(usize),
    /// A key used once: gift wraps, and lists after every author has one.
    Once,
}

/// The plan of all blocks.
#[derive(Debug)]
pub(super) struct EventPlan {
    count: u64,
    seed: u64,
    first_created_at: i64,
    /// One cycle of kinds, which repeats until all events have one. Each kind is spread evenly, so every
    /// stretch of events has the mix.
    deck: Vec<u16>,
    /// For each kind of which an author has one event: the order in which the authors publish it.
    once: BTreeMap<u16, Vec<usize>>,
    authors: Authors,
}

impl EventPlan {
    pub(super) fn new(mix: &Mix, count: u64, seed: u64) -> EventPlan {
        let deck = deck(mix);
        let mut random = Random::new("relay-sim list authors", seed);
        let once = mix.kinds.keys().filter(|&&kind| has_one_per_author(kind)).map(|&kind| {
            let mut authors: Vec<_> = (0..AUTHOR_KEYS).collect();
            random.shuffle(&mut authors);
            (kind, authors)
        });
        let once = once.collect();
        let authors = Authors::new(count);
        EventPlan { count, seed, first_created_at: FIRST_CREATED_AT, deck, once, authors }
    }

    /// The plan with its last event at this time.
    pub(super) fn ending(self, last: i64) -> EventPlan {
        EventPlan {
            first_created_at: last.saturating_sub(self.seconds(self.count.saturating_sub(1))),
            ..self
        }
    }

    /// Time of an event after the first.
    fn seconds(&self, index: u64) -> i64 {
        let span = SPAN_SECONDS.max(self.count);
        let seconds = u128::from(index) * u128::from(span) / u128::from(self.count.max(1));
        i64::try_from(seconds).expect("about as many as events")
    }

    /// A plan with other random numbers whose events are older.
    pub(super) fn elsewhere(self, seed: u64) -> EventPlan {
        EventPlan { first_created_at: FIRST_CREATED_AT_ELSEWHERE, seed, ..self }
    }

    pub(super) fn blocks(&self) -> u64 {
        self.count.div_ceil(BLOCK as u64)
    }

    /// One block's events in order of time.
    pub(super) fn block(&self, block: u64) -> Vec<Planned> {
        let start = block * BLOCK as u64;
        let end = self.count.min(start + BLOCK as u64);
        let mut random = Random::new("relay-sim plan", self.seed ^ block.rotate_left(32));
        let mut ordinals = self.before(start);
        let mut places: BTreeMap<u16, Vec<(f64, f64)>> = BTreeMap::new();
        let kinds: Vec<u16> = (start..end).map(|index| self.kind(index)).collect();
        for &kind in &kinds {
            places.entry(kind).or_default().push((0.0, 0.0));
        }
        for places in places.values_mut() {
            let strata = strata(places.len(), &mut random).into_iter().zip(strata(places.len(), &mut random));
            places.iter_mut().zip(strata).for_each(|(place, drawn)| *place = drawn);
        }
        let mut planned = Vec::with_capacity(kinds.len());
        for kind in kinds {
            let ordinal = ordinals.entry(kind).or_insert(0);
            let author = match self.once.get(&kind) {
                _ if kind == 1059 => Author::Once,
                Some(authors) => {
                    let position = usize::try_from(*ordinal).unwrap_or(usize::MAX);
                    authors.get(position).map_or(Author::Once, |&author| Author::Known(author))
                }
                None => Author::Known(self.authors.draw(&mut random)),
            };
            *ordinal += 1;
            let (content_place, tags_place) =
                places.get_mut(&kind).and_then(Vec::pop).expect("one for each event of the kind");
            planned.push(Planned { kind, index: 0, created_at: 0, author, content_place, tags_place });
        }
        random.shuffle(&mut planned);
        for (planned, index) in planned.iter_mut().zip(start..) {
            planned.index = index;
            planned.created_at = self.first_created_at.saturating_add(self.seconds(index));
        }
        planned
    }

    fn kind(&self, index: u64) -> u16 {
        self.deck[usize::try_from(index % self.deck.len() as u64).expect("below a length")]
    }

    /// Number of events of each kind before `index`.
    fn before(&self, index: u64) -> BTreeMap<u16, u64> {
        let length = self.deck.len() as u64;
        let (rounds, rest) = (index / length, usize::try_from(index % length).expect("below a length"));
        let mut counts = BTreeMap::new();
        for (position, &kind) in self.deck.iter().enumerate() {
            *counts.entry(kind).or_insert(0) += rounds + u64::from(position < rest);
        }
        counts
    }
}

/// The kinds of the mix in an order that spreads each evenly: a kind with n of N events has every N/n-th
/// place, after a random first one.
fn deck(mix: &Mix) -> Vec<u16> {
    let mut random = Random::new("relay-sim kinds", 0);
    let mut places: Vec<(f64, u16)> = Vec::new();
    for (&kind, &n) in &mix.kinds {
        let start = random.unit();
        places.extend((0..n).map(|i| ((i as f64 + start) / n as f64, kind)));
    }
    assert!(!places.is_empty(), "a mix names a kind");
    places.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    places.into_iter().map(|(_, kind)| kind).collect()
}

/// Whether a relay keeps only the newest event of this kind and author (NIP-01).
pub(super) fn has_one_per_author(kind: u16) -> bool {
    matches!(kind, 0 | 3 | 10_000..=19_999)
}

/// One random place in each of `n` equal parts of 0..1, shuffled: even a few events follow the
/// distribution.
fn strata(n: usize, random: &mut Random) -> Vec<f64> {
    let mut places: Vec<_> = (0..n).map(|i| (i as f64 + random.unit()) / n as f64).collect();
    random.shuffle(&mut places);
    places
}

/// Skewed activity: ten authors write a sixth of real events, and 100 events have 56 authors.
#[derive(Debug)]
struct Authors {
    pool: usize,
    by_activity: Weighted,
}

impl Authors {
    fn new(count: u64) -> Authors {
        let pool = usize::try_from(count).unwrap_or(AUTHOR_KEYS).clamp(100, AUTHOR_KEYS);
        let by_activity = Weighted::new((1..=pool).map(|rank| 1.0 / rank as f64));
        Authors { pool, by_activity }
    }

    fn draw(&self, random: &mut Random) -> usize {
        if random.chance(0.5) { self.by_activity.draw(random) } else { random.below(self.pool) }
    }
}

impl Mix {
    /// The kinds of an audit of the 50,000 events of the binostr archive, eight days of September
    /// 2025.
    pub fn audit() -> Mix {
        Mix { kinds: Calibration::get().kind_counts.clone() }
    }

    /// The kinds of 561 events that one relay sent live in 13 minutes of March 2025: fewer notes
    /// and follow lists, more reactions and deletions than in the archive.
    pub fn live() -> Mix {
        Mix { kinds: Calibration::get().live_kind_counts.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_events_share_a_second_however_many_there_are() {
        for count in [2_000, 690_000, 5_000_000] {
            let plan = EventPlan::new(&Mix::audit(), count, 1);
            let last = plan.blocks() - 1;
            let planned = [last - 1, last].into_iter().flat_map(|block| plan.block(block));
            let seconds: Vec<_> = planned.map(|planned| planned.created_at).collect();
            assert!(seconds.windows(2).all(|pair| pair[0] < pair[1]), "{count} events");
        }
    }
}
