//! Plans requests for stored events, and the answers that must come.

use anyhow::{Context, ensure};
use codecs::{Filter, TagFilter};
use corpus::Random;

use super::{
    PlannedRequest,
    index::{Index, named},
};
use crate::scenario::{Draw, Request, Step, TagChoice};

/// Plans the requests of the sessions of one population.
pub(super) struct Asker<'s, 'e> {
    stored: &'s Index<'e>,
    steps: Vec<StepSources<'s>>,
}

/// A step, with the lists that it draws from.
struct StepSources<'s> {
    step: &'s Step,
    authors: Vec<[u8; 32]>,
    values: Vec<String>,
}

impl<'s, 'e> Asker<'s, 'e> {
    /// # Errors
    /// When the relay would hold no event that a step could request.
    pub(super) fn new(stored: &'s Index<'e>, request: &'s Request) -> anyhow::Result<Self> {
        let steps =
            request.step.iter().map(|step| StepSources::new(stored, step)).collect::<Result<_, _>>()?;
        Ok(Asker { stored, steps })
    }

    /// Draws the requests of a session, step after step.
    ///
    /// # Errors
    /// When the plan cannot tell which events a relay must send.
    pub(super) fn session(&self, random: &mut Random) -> anyhow::Result<Vec<Vec<PlannedRequest>>> {
        let mut steps: Vec<Vec<PlannedRequest>> = Vec::new();
        for asked in &self.steps {
            let mut filters = Vec::new();
            for _ in 0..asked.step.times.unwrap_or(1) {
                filters.extend(asked.filters(self.stored, random));
            }
            if let Some(pages) = asked.step.pages {
                for filter in filters {
                    steps.extend(self.paged(&filter, pages)?.into_iter().map(|page| vec![page]));
                }
                continue;
            }
            let requests = filters
                .into_iter()
                .map(|filter| self.request(asked.step, filter))
                .collect::<anyhow::Result<Vec<_>>>()?;
            match steps.last_mut().filter(|_| asked.step.with_previous) {
                Some(last) => last.extend(requests),
                None => steps.push(requests),
            }
        }
        Ok(steps)
    }

    fn request(&self, step: &Step, mut filter: Filter) -> anyhow::Result<PlannedRequest> {
        if let Some(newest) = step.newest {
            let matching = self.stored.answer(&Filter { limit: None, ..filter.clone() });
            // `since` includes its second (NIP-01). With 0 wanted, or no stored event, it lies
            // after the newest one.
            let oldest = newest.checked_sub(1).and_then(|n| matching.get(n).or(matching.last()));
            let since = oldest.map(|position| self.stored.created_at(*position));
            filter.since = Some(since.unwrap_or(self.stored.newest + 1));
        }
        self.planned(filter)
    }

    fn planned(&self, filter: Filter) -> anyhow::Result<PlannedRequest> {
        let mut expected = self.stored.certain_answer(&filter)?;
        expected.sort_unstable();
        Ok(PlannedRequest { filter, expected })
    }

    /// Plans pages from the newest event back in time. The `until` of a page is the second of the
    /// last event of the page before, so that no event of that second is missed and some come
    /// twice. A page without a new event is the last.
    fn paged(&self, filter: &Filter, pages: usize) -> anyhow::Result<Vec<PlannedRequest>> {
        let mut planned: Vec<PlannedRequest> = Vec::new();
        let mut until = filter.until;
        for _ in 0..pages {
            let page = Filter { until, ..filter.clone() };
            let Some(oldest) = self.stored.answer(&page).last().map(|p| self.stored.created_at(*p)) else {
                break;
            };
            if planned.last().is_some_and(|earlier| earlier.filter.until == Some(oldest)) {
                break;
            }
            planned.push(self.planned(page)?);
            until = Some(oldest);
        }
        Ok(planned)
    }
}

impl<'s> StepSources<'s> {
    fn new(stored: &Index<'_>, step: &'s Step) -> anyhow::Result<Self> {
        let kinds = step.kinds.as_deref();
        let authors = if step.authors.is_some() { stored.authors(kinds) } else { Vec::new() };
        let nothing = || {
            let tag = step.tag.as_ref().map_or_else(String::new, |tag| format!(" with a tag {}", tag.name));
            format!("the corpus has no event to ask for of {}{tag}", named(kinds))
        };
        ensure!(step.authors.is_none() || !authors.is_empty(), nothing());
        let values = match &step.tag {
            // With authors, the values depend on the authors that a session draws.
            Some(tag) if step.authors.is_none() => eligible(tag, stored.values(tag.name, kinds, None)),
            _ => Vec::new(),
        };
        let anything = step.tag.is_none() || step.authors.is_some() || !values.is_empty();
        ensure!(anything, nothing());
        Ok(StepSources { step, authors, values })
    }

    /// Draws the filters of one round of this step, one for each chunk.
    fn filters(&self, stored: &Index<'_>, random: &mut Random) -> Vec<Filter> {
        let step = self.step;
        let base = Filter {
            kinds: step.kinds.clone(),
            limit: step.limit,
            // Without authors a filter may match events published meanwhile; `until` excludes
            // these, which are newer.
            until: step.authors.is_none().then_some(stored.newest),
            ..Filter::default()
        };
        let Some(count) = step.authors else {
            let Some(tag) = &step.tag else { return vec![base] };
            let values = draw(&self.values, tag.values, step.known, random, |random| {
                codecs::hex::encode(&random.bytes32())
            });
            let chunks = values.chunks(step.chunk.unwrap_or(tag.values));
            let condition = |values: &[String]| vec![TagFilter { letter: tag.name, values: values.to_vec() }];
            return chunks.map(|chunk| Filter { tags: condition(chunk), ..base.clone() }).collect();
        };
        let asked = draw(&self.authors, count, step.known, random, Random::bytes32);
        let of_authors = |authors: &[[u8; 32]], random: &mut Random| {
            let tags = step.tag.iter().map(|tag| {
                let values = eligible(tag, stored.values(tag.name, step.kinds.as_deref(), Some(authors)));
                let values = draw(&values, tag.values.min(values.len().max(1)), None, random, |random| {
                    codecs::hex::encode(&random.bytes32())
                });
                TagFilter { letter: tag.name, values }
            });
            Filter { authors: Some(authors.to_vec()), tags: tags.collect(), ..base.clone() }
        };
        asked.chunks(step.chunk.unwrap_or(count)).map(|chunk| of_authors(chunk, random)).collect()
    }
}

/// The values that a choice draws from. `values` must have the most frequent first.
pub(super) fn eligible<T>(tag: &TagChoice, mut values: Vec<T>) -> Vec<T> {
    if tag.draw == Draw::Popular {
        values.truncate((values.len() / 4).max(tag.values));
    }
    values
}

/// Draws `count` values in random order: `known` from the list, as far as it goes, and the rest
/// made up.
fn draw<T: Clone>(
    list: &[T],
    count: usize,
    known: Option<usize>,
    random: &mut Random,
    make_up: impl Fn(&mut Random) -> T,
) -> Vec<T> {
    let mut places: Vec<usize> = (0..list.len()).collect();
    let known = random.draw(&mut places, known.unwrap_or(count));
    let mut drawn: Vec<T> = known.iter().map(|place| list[*place].clone()).collect();
    drawn.resize_with(count, || make_up(random));
    random.shuffle(&mut drawn);
    drawn
}

/// A position in 32 bits.
pub(super) fn position(n: usize) -> anyhow::Result<u32> {
    u32::try_from(n).context("a plan holds fewer than 2^32 events")
}
