//! Plans live subscriptions, whose filters are drawn from what will be published.

use std::collections::{BTreeMap, HashMap};

use codecs::{Event, Filter, TagFilter};
use corpus::Random;

use super::{
    Live, Workload,
    sessions::{eligible, position},
    stored::conditions,
};
use crate::scenario::LiveFilter;

/// Authors and tag values that occur in the events to be published.
pub(super) struct Published {
    authors: Vec<[u8; 32]>,
    /// Values by tag letter, the most frequent first.
    values: BTreeMap<char, Vec<String>>,
}

impl Published {
    pub(super) fn of(workload: &Workload) -> Self {
        Published::of_events(&workload.events[workload.stored..])
    }

    pub(super) fn of_events(events: &[Event<'static>]) -> Self {
        let mut authors: Vec<_> = events.iter().map(|event| event.pubkey).collect();
        authors.sort_unstable();
        authors.dedup();
        let mut counts: BTreeMap<char, HashMap<&str, usize>> = BTreeMap::new();
        for (letter, value) in events.iter().flat_map(conditions) {
            *counts.entry(letter).or_default().entry(value).or_default() += 1;
        }
        let by_frequency = |counts: HashMap<&str, usize>| {
            let mut counted: Vec<_> = counts.into_iter().map(|(v, n)| (std::cmp::Reverse(n), v)).collect();
            counted.sort_unstable();
            counted.into_iter().map(|(_, value)| value.to_owned()).collect()
        };
        let values = counts.into_iter().map(|(letter, counts)| (letter, by_frequency(counts))).collect();
        Published { authors, values }
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

    pub(super) fn filters(&mut self, plan: &mut Workload, random: &mut Random) -> Vec<u32> {
        let filters = self.filters.iter().enumerate().map(|(n, live)| {
            if let Some(shared) = self.shared[n] {
                return shared;
            }
            let filter = self.filter(live, random);
            let events = self.events.unwrap_or(&plan.events);
            let publications = plan.publications.iter().enumerate();
            let matches = publications.filter(|(_, p)| filter.matches(&events[p.event as usize]));
            let matches = matches.map(|(n, _)| n).collect();
            let place = position(plan.live.len()).expect("fewer filters than 2^32 fit into memory");
            plan.live.push(Live { filter, matches });
            self.shared[n] = (live.authors.is_none() && live.tag.is_none()).then_some(place);
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
            let values = self.published.values.get(&tag.name).cloned().unwrap_or_default();
            let mut values = eligible(tag, values);
            TagFilter { letter: tag.name, values: random.draw(&mut values, tag.values).to_vec() }
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
