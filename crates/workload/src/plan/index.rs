//! Events by the conditions of filters: those that the relay holds before the clock starts, with its
//! answers, and those that are published.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use anyhow::ensure;
use codecs::{Event, Filter};

/// Most events that a filter without a limit may match. `relay-sim` sends 500 for such a filter
/// (`--default-limit`; `default_limit` of NIP-11), so that a plan that expected more would count
/// correct answers as losses.
const MAX_EXPECTED: usize = 500;

/// A list of events, indexed by the conditions of filters. Comparing each filter with each event would
/// cost the square of the load.
pub(super) struct Index<'e> {
    events: Vec<&'e Event<'static>>,
    by_author: BTreeMap<([u8; 32], u16), Vec<u32>>,
    by_kind: BTreeMap<u16, Vec<u32>>,
    /// By tag name of one letter, then by value.
    by_tag: HashMap<char, HashMap<&'e str, Vec<u32>>>,
    /// The latest `created_at`.
    pub(super) newest: i64,
}

impl<'e> Index<'e> {
    /// Events that name a value twice count twice where values are ordered by how frequent they are, if
    /// this `counts_repeats`.
    pub(super) fn new(events: impl IntoIterator<Item = &'e Event<'static>>, counts_repeats: bool) -> Self {
        let events: Vec<_> = events.into_iter().collect();
        let (mut by_author, mut by_kind) = (BTreeMap::<_, Vec<u32>>::new(), BTreeMap::<_, Vec<u32>>::new());
        let mut by_tag: HashMap<_, HashMap<_, Vec<u32>>> = HashMap::new();
        for (position, event) in (0..).zip(&events) {
            by_author.entry((event.pubkey, event.kind)).or_default().push(position);
            by_kind.entry(event.kind).or_default().push(position);
            for (letter, value) in conditions(event) {
                let positions = by_tag.entry(letter).or_default().entry(value).or_default();
                if counts_repeats || positions.last() != Some(&position) {
                    positions.push(position);
                }
            }
        }
        Index { newest: newest(events.iter().copied()), events, by_author, by_kind, by_tag }
    }

    /// The authors of events of these kinds, in a fixed order.
    pub(super) fn authors(&self, kinds: Option<&[u16]>) -> Vec<[u8; 32]> {
        let wanted = |kind: &u16| kinds.is_none_or(|kinds| kinds.contains(kind));
        let mut authors: Vec<_> =
            self.by_author.keys().filter(|(_, kind)| wanted(kind)).map(|(author, _)| *author).collect();
        authors.dedup();
        authors
    }

    /// The values of a tag in events of these kinds and authors, the most frequent first.
    pub(super) fn values(
        &self,
        letter: char,
        kinds: Option<&[u16]>,
        authors: Option<&[[u8; 32]]>,
    ) -> Vec<String> {
        let filter = Filter {
            kinds: kinds.map(<[u16]>::to_vec),
            authors: authors.map(<[[u8; 32]]>::to_vec),
            ..Filter::default()
        };
        let mut counted: Vec<(Reverse<usize>, &str)> = self
            .by_tag
            .get(&letter)
            .into_iter()
            .flatten()
            .map(|(value, positions)| {
                let matching = positions.iter().filter(|p| filter.matches(self.events[**p as usize]));
                (Reverse(matching.count()), *value)
            })
            .filter(|(Reverse(count), _)| *count > 0)
            .collect();
        counted.sort_unstable();
        counted.into_iter().map(|(_, value)| value.to_owned()).collect()
    }

    /// The events that match a filter, whatever its limit; one may come twice.
    pub(super) fn matching(&self, filter: &Filter) -> Vec<u32> {
        let mut found = self.candidates(filter);
        found.retain(|position| filter.matches(self.events[*position as usize]));
        found
    }

    /// The events that must answer a filter, up to its limit: newest first, ties by lowest id
    /// (NIP-01).
    pub(super) fn answer(&self, filter: &Filter) -> Vec<u32> {
        let mut found = self.matching(filter);
        found.sort_unstable_by_key(|position| {
            let event = self.events[*position as usize];
            (Reverse(event.created_at), event.id)
        });
        found.dedup();
        if let Some(limit) = filter.limit {
            found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        }
        found
    }

    /// As [`Index::answer`], for a filter that every relay answers alike.
    ///
    /// # Errors
    /// When a relay may send fewer events than match.
    pub(super) fn certain_answer(&self, filter: &Filter) -> anyhow::Result<Vec<u32>> {
        let found = self.answer(filter);
        ensure!(
            filter.limit.is_some() || found.len() <= MAX_EXPECTED,
            "a request would be answered with {} events, but relays send {MAX_EXPECTED} unless asked for more: \
             give it a limit, or lower its chunk or known",
            found.len()
        );
        Ok(found)
    }

    /// The `created_at` of the event at a position.
    pub(super) fn created_at(&self, position: u32) -> i64 {
        self.events[position as usize].created_at
    }

    /// A superset of the events that match, from one index. One may come twice.
    fn candidates(&self, filter: &Filter) -> Vec<u32> {
        let all = |lists: &mut dyn Iterator<Item = &Vec<u32>>| lists.flatten().copied().collect();
        match (&filter.authors, filter.tags.first(), &filter.kinds) {
            (Some(authors), _, Some(kinds)) => {
                let mut keys = authors.iter().flat_map(|author| kinds.iter().map(|kind| (*author, *kind)));
                all(&mut keys.by_ref().filter_map(|key| self.by_author.get(&key)))
            }
            (Some(authors), _, None) => {
                let mut ranges = authors
                    .iter()
                    .flat_map(|author| self.by_author.range((*author, 0)..=(*author, u16::MAX)))
                    .map(|(_, positions)| positions);
                all(&mut ranges)
            }
            (None, Some(tag), _) => {
                let by_value = self.by_tag.get(&tag.letter);
                let mut lists =
                    tag.values.iter().filter_map(|value| by_value.and_then(|map| map.get(value.as_str())));
                all(&mut lists)
            }
            (None, None, Some(kinds)) => all(&mut kinds.iter().filter_map(|kind| self.by_kind.get(kind))),
            (None, None, None) => (0..).take(self.events.len()).collect(),
        }
    }
}

/// Kinds as a sentence has them.
pub(super) fn named(kinds: Option<&[u16]>) -> String {
    kinds.map_or_else(|| "any kind".to_owned(), corpus::rules::of_kinds)
}

/// The latest `created_at`; 0 without events.
pub(super) fn newest<'e>(events: impl IntoIterator<Item = &'e Event<'static>>) -> i64 {
    events.into_iter().map(|event| event.created_at).max().unwrap_or(0)
}

/// The tags of an event that filters can match (NIP-01): single-letter names with the first value.
fn conditions<'e>(event: &'e Event<'_>) -> impl Iterator<Item = (char, &'e str)> {
    event.tags.iter().filter_map(|tag| {
        let (name, value) = (tag.first()?, tag.get(1)?);
        let letter = name.chars().next().filter(|c| c.is_ascii_alphabetic() && name.len() == 1)?;
        Some((letter, value.as_ref()))
    })
}
