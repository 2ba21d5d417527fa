//! Plans publications: which events, on which connection, when.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use anyhow::ensure;
use codecs::Event;
use corpus::{
    REHEARSAL_KEYS, Random, Weighted,
    fresh::{self, Keep},
};

use super::{Flood, Publication, Role, Task, Workload, index, sessions::position};
use crate::{
    scenario::{Arrival, Hot, Publish, Scenario, Shares, scaled},
    schedule,
};

/// Default window of a closed loop: how many events may be unanswered.
const DEFAULT_WINDOW: usize = 64;

impl Workload {
    pub(super) fn plan_publications(
        &mut self,
        scenario: &Scenario,
        eligible: &[&Event<'static>],
        seed: u64,
    ) -> anyhow::Result<()> {
        let newest = index::newest(&*self.events);
        let mut unused: Vec<&Event<'static>> = eligible.to_vec();
        schedule::stream(seed, "unused", 0).shuffle(&mut unused);
        for (population, publish) in scenario.publish.iter().enumerate() {
            let due = self.plan_publishers(scenario, population, publish, seed);
            let mut random = schedule::stream(seed, "publish events", population);
            let mut maker = Maker::new(publish, eligible, scenario.load, &mut random)?;
            let mut events: Vec<Event<'static>> = Vec::with_capacity(due.len());
            // The answers of sessions must be known beforehand, so that beside sessions only new
            // events are published.
            let unchanged = publish.shares.is_none() && publish.hot.is_none() && !scenario.only_new;
            if scenario.request.is_empty() && unchanged {
                let most = due.len().div_ceil(copies(scenario.load));
                unused.retain(|event| {
                    let take = events.len() < most && publish.has(event);
                    if take {
                        events.push((*event).clone());
                    }
                    !take
                });
            }
            let missing = due.len() - events.len();
            self.fresh += missing;
            let later = (!scenario.request.is_empty()).then_some(newest);
            let templates: Vec<_> = (0..missing).map(|n| maker.template(n, later, &mut random)).collect();
            let templates: Vec<_> = templates.iter().map(Cow::as_ref).collect();
            let seed = seed ^ (population as u64 + 1);
            let kept = Keep { values: maker.hot_values(), times: later.is_some(), ..Keep::default() };
            events.extend(self.make(scenario, &templates, missing, (seed, kept)));
            let closed = matches!(publish.arrival, Arrival::Closed { .. });
            for ((at, connection), event) in due.into_iter().zip(events) {
                let event_position = position(self.events.len())?;
                Arc::make_mut(&mut self.events).push(event);
                self.publications.push(Publication { at, connection, event: event_position, closed });
            }
        }
        self.plan_reconciliations(scenario, eligible, seed)?;
        self.publications.sort_unstable();
        self.find_floods()
    }

    /// New events, signed as the scenario has it; counts the keys that they take.
    pub(super) fn make(
        &mut self,
        scenario: &Scenario,
        templates: &[&Event<'_>],
        count: usize,
        (seed, kept): (u64, Keep),
    ) -> Vec<Event<'static>> {
        let kept =
            Keep { signing: scenario.signing.clone(), first_key: REHEARSAL_KEYS + self.authors, ..kept };
        let made = fresh::events_keeping(templates, count, seed, &kept);
        if scenario.signing.keys.is_some() {
            self.authors += made.iter().map(|event| event.pubkey).collect::<HashSet<_>>().len();
        }
        made
    }

    /// The most events that are due, over all agents, within any second. Those of a closed loop are
    /// due at its start.
    pub fn published_per_s_max(&self) -> usize {
        /// Instants a second apart by their rate are so within rounding.
        const SECOND: Duration = Duration::from_micros(999_999);
        let mut first = 0;
        let within = self.publications.iter().enumerate().map(|(n, last)| {
            while self.publications[first].at + SECOND <= last.at {
                first += 1;
            }
            n + 1 - first
        });
        within.max().unwrap_or(0)
    }

    /// Adds the connections of a population; returns the instants at which events are due, with the
    /// connection of each.
    fn plan_publishers(
        &mut self,
        scenario: &Scenario,
        population: usize,
        publish: &Publish,
        seed: u64,
    ) -> Vec<(Duration, usize)> {
        let spans = scenario.spans(publish.phases.as_deref());
        let label = self.label(publish.name.as_deref());
        let mut due = Vec::new();
        for c in 0..publish.connections {
            let mut random = schedule::stream(seed, &format!("publish {population}"), c);
            let times = schedule::arrivals(publish.arrival, publish.connections, c, &spans, &mut random);
            due.extend(times.into_iter().map(|at| (at, self.roles.len())));
            let window = publish.window.unwrap_or(DEFAULT_WINDOW);
            let speaks = self.speaks(publish.format, publish.compression, publish.link.as_ref());
            self.roles.push(Role::new(label, speaks, Task::Publisher { window }));
        }
        due.sort_unstable();
        due
    }

    /// Finds the closed loop of each connection, whose publications stand together because they are
    /// due at the same instant.
    fn find_floods(&mut self) -> anyhow::Result<()> {
        let mut n = 0;
        for chunk in self.publications.chunk_by(|a, b| a.closed && b.closed && a.connection == b.connection) {
            let first = &chunk[0];
            // A reconciling client publishes its own events after the reconciliation, not by the
            // clock.
            if first.closed && !matches!(self.roles[first.connection].task, Task::Reconciler) {
                let (at, connection) = (first.at, first.connection);
                self.floods.push(Flood {
                    at,
                    connection,
                    first: position(n)?,
                    count: position(chunk.len())?,
                });
            }
            n += chunk.len();
        }
        Ok(())
    }
}

/// How many copies of the corpus's authors publish at a load, the last of them in part.
fn copies(load: f64) -> usize {
    measure::whole(load.ceil())
}

/// Events to choose from.
type Pool<'e> = Vec<&'e Event<'static>>;

/// Chooses the corpus events that serve as templates of new ones. At a load above 1 several copies of the
/// templates run side by side, each with its own authors and hot notes. So an author publishes as much as
/// at load 1, and a filter matches as much.
struct Maker<'e> {
    load: f64,
    /// The events to choose from, with their share: by kind where there are shares, otherwise in
    /// one list.
    pools: Vec<(f64, Pool<'e>)>,
    /// The templates of authors who are part of the last copy.
    last: Vec<Pool<'e>>,
    /// How many each copy took of each pool.
    taken: Vec<Vec<usize>>,
    /// The tag, and the notes of each copy.
    hot: Option<(String, Vec<Vec<String>>)>,
    /// Templates that differ in their time alone, by a hash of the rest.
    alike: HashMap<u64, Vec<[u8; 32]>>,
}

impl<'e> Maker<'e> {
    fn new(
        publish: &Publish,
        eligible: &[&'e Event<'static>],
        load: f64,
        random: &mut Random,
    ) -> anyhow::Result<Self> {
        let pool = |chosen: &dyn Fn(&Event<'_>) -> bool| -> Pool<'e> {
            eligible.iter().copied().filter(|event| chosen(event)).collect()
        };
        let pools = match &publish.shares {
            None => vec![(1.0, pool(&|event| publish.has(event)))],
            Some(Shares(shares)) => {
                shares.iter().map(|(kind, share)| (*share, pool(&|event| event.kind == *kind))).collect()
            }
        };
        ensure!(
            pools.iter().all(|(_, events)| !events.is_empty()),
            "the corpus lacks events of a kind to publish; events by kind: {:?}, wanted kinds: {:?}",
            eligible.iter().fold(BTreeMap::<u16, usize>::new(), |mut kinds, event| {
                *kinds.entry(event.kind).or_default() += 1;
                kinds
            }),
            match &publish.shares {
                Some(Shares(shares)) => shares.keys().copied().collect(),
                None => publish.kinds.clone().unwrap_or_default(),
            },
        );
        let (copies, part) = (copies(load), load - (copies(load) - 1) as f64);
        let hot = publish.hot.as_ref().map(|Hot { tag, values }| {
            let mut notes = |count: usize| -> Vec<String> {
                (0..count).map(|_| codecs::hex::encode(&random.bytes32())).collect()
            };
            let mut of_copies: Vec<_> = (1..copies).map(|_| notes(*values)).collect();
            of_copies.push(notes(scaled(*values as f64, part)));
            (tag.to_string(), of_copies)
        });
        let last = pools.iter().map(|(_, pool)| of_some_authors(pool, part)).collect();
        Ok(Maker { load, last, taken: vec![vec![0; pools.len()]; copies], pools, hot, alike: HashMap::new() })
    }

    /// The copy that the nth event belongs to: each in turn, the last as often as it is part.
    fn copy(&self, n: usize) -> usize {
        measure::whole(n as f64 % self.load)
    }

    /// The next template of a copy's pool.
    fn next(&mut self, copy: usize, pool: usize) -> &'e Event<'static> {
        let is_last = copy + 1 == self.taken.len();
        let events = if is_last { &self.last[pool] } else { &self.pools[pool].1 };
        let taken = &mut self.taken[copy][pool];
        let template = events[*taken % events.len()];
        *taken += 1;
        template
    }

    /// Ids of the few notes that new events refer to.
    fn hot_values(&self) -> HashSet<String> {
        self.hot.iter().flat_map(|(_, of_copies)| of_copies.iter().flatten()).cloned().collect()
    }

    /// The template of the nth new event; with `later`, dated right after that second.
    fn template(&mut self, n: usize, later: Option<i64>, random: &mut Random) -> Cow<'e, Event<'static>> {
        let pool = Weighted::new(self.pools.iter().map(|(share, _)| *share)).draw(random);
        let copy = self.copy(n);
        let mut template = Cow::Borrowed(self.next(copy, pool));
        if let Some((name, of_copies)) = &self.hot {
            let values = &of_copies[copy];
            let note = Weighted::new((1..=values.len()).map(|rank| 1.0 / rank as f64)).draw(random);
            let event = template.to_mut();
            let is_reference = |tag: &&mut Vec<Cow<'static, str>>| tag.len() > 1 && tag[0] == *name;
            match event.tags.iter_mut().rev().find(is_reference) {
                Some(tag) => tag[1] = values[note].clone().into(),
                None => event.tags.push(vec![name.clone().into(), values[note].clone().into()]),
            }
        }
        if let Some(newest) = later {
            let event = template.to_mut();
            // A corpus may be of this second, so the next one is the latest that relays take for
            // sure. Events that say the same need seconds of their own, or they are the same event.
            let alike = self.alike.entry(said(event)).or_default();
            let nth = alike.iter().position(|id| *id == event.id).unwrap_or(alike.len());
            if nth == alike.len() {
                alike.push(event.id);
            }
            event.created_at = newest + 1 + i64::try_from(nth).unwrap_or(0);
        }
        template
    }
}

/// A hash of an event without its time.
fn said(event: &Event<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (event.pubkey, event.kind, &event.tags, &event.content).hash(&mut hasher);
    hasher.finish()
}

/// The events of this share of their authors; all where these have none.
fn of_some_authors<'e>(events: &Pool<'e>, share: f64) -> Pool<'e> {
    let is_in = |event: &&&Event<'_>| {
        let [head, ..] = event.pubkey.as_chunks::<4>().0 else { return true };
        share >= 1.0 || f64::from(u32::from_le_bytes(*head)) < share * f64::from(u32::MAX)
    };
    let some: Pool<'e> = events.iter().filter(is_in).copied().collect();
    if some.is_empty() { events.clone() } else { some }
}

#[cfg(test)]
mod tests {
    use codecs::Format;
    use corpus::{Corpus, sign_as};

    use super::*;
    use crate::inputs::plan_over;

    /// A corpus may have been captured this second, and relays refuse what is dated ahead.
    #[test]
    fn new_events_are_dated_right_after_the_stored_ones_and_are_never_the_same() {
        let mut corpus = Corpus::bundled();
        // Three times the same words of one author.
        for n in [10, 20, 30] {
            let event = &mut corpus.events[n];
            (event.kind, event.tags, event.content) = (1, Vec::new(), "gm".into());
            sign_as(event, "somebody");
        }
        let corpus = Corpus::from_events(corpus.name, corpus.events);
        for name in ["mixed-day", "follow-list-burst"] {
            let scenario = Scenario::load_with(name, &[]).unwrap();
            let workload = plan_over(&scenario, &corpus, 1, &[Format::JSON]).unwrap();
            let is_new: HashSet<_> = workload.publications.iter().map(|made| made.event as usize).collect();
            let (new, stored): (Vec<_>, Vec<_>) =
                workload.events.iter().enumerate().partition(|(place, _)| is_new.contains(place));
            let newest = stored.iter().map(|(_, event)| event.created_at).max().unwrap();
            let seconds: HashSet<_> = new.iter().map(|(_, event)| event.created_at - newest).collect();
            assert!(seconds.iter().all(|after| (1..=10).contains(after)), "{name}: {seconds:?}");
            assert_eq!(
                new.iter().map(|(_, event)| event.id).collect::<HashSet<_>>().len(),
                new.len(),
                "{name}"
            );
        }
    }
}
