//! Which events of a stream take part.

use std::collections::BTreeMap;

use crate::random::Random;

/// Draws from a stream of unknown length, all equally likely, and holds no more than it
/// draws. The same seed draws the same ones on every machine, and a longer draw holds the shorter
/// one.
#[derive(Debug)]
pub struct Reservoir<T> {
    count: usize,
    random: Random,
    seen: u64,
    /// Items with the smallest draws so far, by draw and index in the stream.
    kept: BTreeMap<(u64, u64), T>,
}

impl<T> Reservoir<T> {
    /// A reservoir that draws `count` items.
    pub fn new(count: usize, seed: u64) -> Reservoir<T> {
        let random = Random::new("relay-sim reservoir", seed);
        Reservoir { count, random, seen: 0, kept: BTreeMap::new() }
    }

    /// Offers the next one.
    pub fn add(&mut self, item: T) {
        self.add_with(|| item);
    }

    /// Offers the next one, which is made only if it is drawn.
    pub(crate) fn add_with(&mut self, item: impl FnOnce() -> T) {
        let drawn = (self.random.bits(), self.seen);
        self.seen += 1;
        let is_full = self.kept.len() >= self.count;
        if is_full && self.kept.last_key_value().is_none_or(|(largest, _)| *largest <= drawn) {
            return;
        }
        self.kept.insert(drawn, item());
        if is_full {
            self.kept.pop_last();
        }
    }

    /// How many were offered.
    pub fn offered(&self) -> u64 {
        self.seen
    }

    /// Items drawn so far, in no order.
    pub(crate) fn drawn(&self) -> impl Iterator<Item = &T> {
        self.kept.values()
    }

    /// The drawn items in the order of the stream.
    pub fn finish(self) -> Vec<T> {
        let mut drawn: Vec<_> = self.kept.into_iter().collect();
        drawn.sort_by_key(|((_, place), _)| *place);
        drawn.into_iter().map(|(_, item)| item).collect()
    }
}
