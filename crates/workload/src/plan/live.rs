//! Plans live subscriptions, whose filters are drawn from what will be published.

use codecs::{Filter, TagFilter};
use corpus::Random;

use super::{
    Live, Workload,
    index::Index,
    sessions::{eligible, position},
};
use crate::scenario::LiveFilter;

/// Plans live subscriptions. Filters that draw nothing at random are shared.
pub(super) struct LivePlanner<'p, 'e> {
    /// The events of the plan's publications, in their order.
    published: &'p Index<'e>,
    filters: Vec<Sources<'p>>,
}

/// A filter, with the lists that it draws from.
struct Sources<'p> {
    live: &'p LiveFilter,
    authors: Vec<[u8; 32]>,
    values: Vec<String>,
    shared: Option<u32>,
}

impl<'p, 'e> LivePlanner<'p, 'e> {
    pub(super) fn new(published: &'p Index<'e>, filters: &'p [LiveFilter]) -> Self {
        let sources = |live: &'p LiveFilter| {
            let authors = live.authors.map_or_else(Vec::new, |_| published.authors(None));
            let values = |tag| eligible(tag, published.values(tag.name, None, None));
            Sources { live, authors, values: live.tag.as_ref().map_or_else(Vec::new, values), shared: None }
        };
        LivePlanner { published, filters: filters.iter().map(sources).collect() }
    }

    /// Adds a client's live filters to the plan, with the publications that match. Clients share filters
    /// that draw nothing at random. Returns their places.
    pub(super) fn filters(&mut self, plan: &mut Workload, random: &mut Random) -> Vec<u32> {
        let filters = self.filters.iter_mut().map(|sources| {
            if let Some(shared) = sources.shared {
                return shared;
            }
            let filter = sources.filter(random);
            let matching = self.published.matching(&filter).into_iter();
            let matches = matching.map(|publication| publication as usize).collect();
            let place = position(plan.live.len()).expect("fewer filters than 2^32 fit into memory");
            plan.live.push(Live { filter, matches });
            sources.shared = sources.live.takes_from_anyone().then_some(place);
            place
        });
        filters.collect()
    }
}

impl Sources<'_> {
    fn filter(&self, random: &mut Random) -> Filter {
        let LiveFilter { kinds, authors, tag } = self.live;
        let authors = authors.map(|count| {
            let mut authors = self.authors.clone();
            random.draw(&mut authors, count).to_vec()
        });
        let tags = tag.iter().map(|tag| {
            let mut places: Vec<_> = (0..self.values.len()).collect();
            let drawn = random.draw(&mut places, tag.values).iter().map(|place| self.values[*place].clone());
            TagFilter { letter: tag.name, values: drawn.collect() }
        });
        let (kinds, tags) = (kinds.clone(), tags.collect());
        Filter { kinds, authors, tags, limit: Some(0), ..Filter::default() }
    }
}
