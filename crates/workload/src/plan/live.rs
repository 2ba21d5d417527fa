//! Plans live subscriptions, whose filters are drawn from what will be published.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
};

use codecs::{Event, Filter, TagFilter};
use corpus::Random;
use fixedbitset::FixedBitSet;

use super::{
    Live, Workload,
    sessions::{eligible, position},
    stored::conditions,
};
use crate::scenario::LiveFilter;

/// Authors and tag values that occur in the events to be published, and where.
pub(super) struct Published {
    authors: Vec<[u8; 32]>,
    /// Values by tag letter, the most frequent first.
    values: BTreeMap<char, Vec<String>>,
    /// The publications of each author.
    by_author: HashMap<[u8; 32], Vec<usize>>,
    /// The publications with each value of a tag.
    by_value: BTreeMap<char, HashMap<String, Vec<usize>>>,
}

impl Published {
    /// `events` are those of the plan, which need not hold them itself.
    pub(super) fn from_plan(plan: &Workload, events: &[Event<'static>]) -> Self {
        let mut by_author: HashMap<_, Vec<usize>> = HashMap::new();
        let mut by_value: BTreeMap<char, HashMap<String, Vec<usize>>> = BTreeMap::new();
        for (n, publication) in plan.publications.iter().enumerate() {
            let event = &events[publication.event as usize];
            by_author.entry(event.pubkey).or_default().push(n);
            for (letter, value) in conditions(event) {
                by_value.entry(letter).or_default().entry(value.to_owned()).or_default().push(n);
            }
        }
        let mut authors: Vec<_> = by_author.keys().copied().collect();
        authors.sort_unstable();
        let by_frequency = |by_value: &HashMap<String, Vec<usize>>| {
            let mut counted: Vec<_> = by_value.iter().map(|(v, of)| (Reverse(of.len()), v)).collect();
            counted.sort_unstable();
            counted.into_iter().map(|(_, value)| value.clone()).collect()
        };
        let values = by_value.iter().map(|(letter, by_value)| (*letter, by_frequency(by_value))).collect();
        Published { authors, values, by_author, by_value }
    }

    /// The publications that match a filter. Looks only at filters with one of its authors or values.
    /// Comparing each filter with each publication would cost the square of the load.
    fn matches(&self, filter: &Filter, plan: &Workload, events: &[Event<'static>]) -> FixedBitSet {
        let is_match = |n: &usize| filter.matches(&events[plan.publications[*n].event as usize]);
        match (&filter.authors, filter.tags.first()) {
            (Some(authors), _) => {
                let theirs = authors.iter().filter_map(|author| self.by_author.get(author));
                theirs.flatten().copied().filter(is_match).collect()
            }
            (None, Some(tag)) => {
                let with = self.by_value.get(&tag.letter);
                let with = with.into_iter().flat_map(|with| tag.values.iter().filter_map(|v| with.get(v)));
                with.flatten().copied().filter(is_match).collect()
            }
            (None, None) => (0..plan.publications.len()).filter(is_match).collect(),
        }
    }
}

/// Plans live subscriptions. Filters that draw nothing at random are shared.
pub(super) struct LivePlanner<'p> {
    published: &'p Published,
    filters: &'p [LiveFilter],
    shared: Vec<Option<u32>>,
    /// The events of the plan, while the plan does not hold them itself.
    pub(super) events: Option<&'p [Event<'static>]>,
}

impl<'p> LivePlanner<'p> {
    pub(super) fn new(published: &'p Published, filters: &'p [LiveFilter]) -> Self {
        LivePlanner { published, filters, shared: vec![None; filters.len()], events: None }
    }

    /// Adds a client's live filters to the plan, with the publications that match. Clients share filters
    /// that draw nothing at random. Returns their places.
    pub(super) fn filters(&mut self, plan: &mut Workload, random: &mut Random) -> Vec<u32> {
        let filters = self.filters.iter().enumerate().map(|(n, live)| {
            if let Some(shared) = self.shared[n] {
                return shared;
            }
            let filter = self.filter(live, random);
            let matches = self.published.matches(&filter, plan, self.events.unwrap_or(&plan.events));
            let place = position(plan.live.len()).expect("fewer filters than 2^32 fit into memory");
            plan.live.push(Live { filter, matches });
            self.shared[n] = live.takes_from_anyone().then_some(place);
            place
        });
        filters.collect()
    }

    fn filter(&self, live: &LiveFilter, random: &mut Random) -> Filter {
        let authors = live.authors.map(|count| {
            let mut authors = self.published.authors.clone();
            random.draw(&mut authors, count).to_vec()
        });
        let tags = live.tag.iter().map(|tag| {
            let values = self.published.values.get(&tag.name).map_or(&[][..], Vec::as_slice);
            let mut places = eligible(tag, (0..values.len()).collect());
            let drawn = random.draw(&mut places, tag.values).iter().map(|place| values[*place].clone());
            TagFilter { letter: tag.name, values: drawn.collect() }
        });
        Filter {
            kinds: live.kinds.clone(),
            authors,
            tags: tags.collect(),
            limit: Some(0),
            ..Filter::default()
        }
    }
}
