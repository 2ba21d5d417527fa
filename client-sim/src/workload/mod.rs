//! The whole plan of a run, computed from corpus, scenario and seed before any clock starts: which events the relay
//! holds, who publishes what when, who asks for what when, and which deliveries must follow.

mod select;
mod stored;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    hash::{BuildHasherDefault, Hasher},
    time::Duration,
};

use anyhow::{bail, ensure};
use codecs::{Event, Filter, Format, KindClass};
use corpus::{Corpus, fresh};
use rand::{RngCore, seq::SliceRandom};

use crate::{
    client::Due,
    scenario::{LiveFilter, Request, Scenario, Step},
    schedule,
    workload::{select::select, stored::StoredIndex},
};

/// Relays answer a request without a limit with 500 events at least (PROTOCOL: default_limit), so a plan that
/// expected more would blame the relay for it.
const MAX_EXPECTED: usize = 500;

/// The plan of a run.
#[derive(Debug)]
pub struct Workload {
    /// Every event that may be on the wire: those the relay holds first, then those published.
    pub events: Vec<Event<'static>>,
    /// `events[..stored]` are put into the relay before the clock starts.
    pub stored: usize,
    /// What each connection does.
    pub roles: Vec<Role>,
    /// In the order in which they are due.
    pub publications: Vec<Publication>,
    /// In the order in which they are due.
    pub sessions: Vec<Session>,
    /// How many events were made from corpus events as templates, because there were too few or the relay must not
    /// have them yet.
    pub fresh: usize,
    /// Corpus events that are not streamed, and why.
    pub set_aside: BTreeMap<&'static str, usize>,
    index: HashMap<[u8; 32], u32, BuildHasherDefault<IdHasher>>,
    /// For each published event, its place in `publications`.
    publication_of: Vec<usize>,
}

/// What a connection does.
#[derive(Debug)]
pub enum Role {
    /// Publishes events.
    Publisher,
    /// Reads live events, one subscription for each filter.
    Subscriber(Vec<Filter>),
    /// Asks for stored events.
    Requester,
}

/// An event to publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Publication {
    /// When it is due, from the start.
    pub at: Duration,
    /// Who publishes it.
    pub connection: usize,
    /// Which event.
    pub event: u32,
}

/// A client that asks for stored events, step by step.
#[derive(Debug)]
pub struct Session {
    /// When it is due, from the start.
    pub at: Duration,
    /// Who asks.
    pub connection: usize,
    /// Requests that are sent together, step after step.
    pub steps: Vec<Vec<PlannedRequest>>,
}

/// One REQ and the events that must answer it.
#[derive(Debug)]
pub struct PlannedRequest {
    /// What is asked.
    pub filter: Filter,
    /// Which events must come, in ascending order.
    pub expected: Vec<u32>,
}

impl Workload {
    /// Plans `scenario` over those events of `corpus` that each of `formats` can hold: runs in any of these formats
    /// stream the same events.
    ///
    /// # Errors
    /// When the corpus has no events of a kind that the scenario needs.
    pub fn plan(
        scenario: &Scenario,
        corpus: &Corpus,
        seed: u64,
        formats: &[Format],
    ) -> anyhow::Result<Workload> {
        let window = Duration::from_secs_f64(scenario.seconds);
        let (eligible, set_aside) = select(corpus, formats);
        let mut plan = Workload {
            events: Vec::new(),
            stored: 0,
            roles: Vec::new(),
            publications: Vec::new(),
            sessions: Vec::new(),
            fresh: 0,
            set_aside,
            index: HashMap::default(),
            publication_of: Vec::new(),
        };
        let asked: HashSet<u16> =
            scenario.request.iter().flat_map(|r| &r.step).flat_map(|s| &s.kinds).copied().collect();
        let is_stored =
            |event: &Event<'_>| asked.contains(&event.kind) && event.class() != KindClass::Ephemeral;
        plan.events.extend(eligible.iter().filter(|e| is_stored(e)).map(|e| (*e).clone()));
        plan.stored = plan.events.len();
        plan.plan_publications(scenario, &eligible, window, seed)?;
        plan.plan_subscriptions(scenario, seed);
        plan.plan_sessions(scenario, window, seed)?;
        for (position, event) in (0..).zip(&plan.events) {
            plan.index.insert(event.id, position);
        }
        ensure!(plan.index.len() == plan.events.len(), "the plan holds an event twice");
        Ok(plan)
    }

    /// The event with this id.
    pub fn find(&self, id: &[u8; 32]) -> Option<u32> {
        self.index.get(id).copied()
    }

    /// The publication of an event, if it is one that is published.
    pub fn publication_of(&self, event: u32) -> Option<usize> {
        let published = (event as usize).checked_sub(self.stored)?;
        self.publication_of.get(published).copied()
    }

    /// When the first thing is due.
    pub fn first_due(&self) -> Duration {
        let publication = self.publications.first().map(|p| p.at);
        publication.into_iter().chain(self.sessions.first().map(|s| s.at)).min().unwrap_or_default()
    }

    /// When the last thing is due.
    pub fn last_due(&self) -> Duration {
        let publication = self.publications.last().map(|p| p.at);
        let session = self.sessions.last().map(|s| s.at);
        publication.max(session).unwrap_or_default()
    }

    /// Everything that the chosen connections do, in the order in which it is due.
    pub fn timeline(&self, chosen: impl Fn(usize) -> bool) -> Vec<(Duration, usize, Due)> {
        let publications =
            (0..).zip(&self.publications).map(|(n, p)| (p.at, p.connection, Due::Publication(n)));
        let sessions = (0..).zip(&self.sessions).map(|(n, s)| (s.at, s.connection, Due::Session(n)));
        let mut timeline: Vec<_> =
            publications.chain(sessions).filter(|(_, connection, _)| chosen(*connection)).collect();
        timeline.sort_by_key(|(at, _, _)| *at);
        timeline
    }

    /// How many deliveries each publication causes when the relay accepts it.
    pub fn fan_out(&self) -> Vec<u32> {
        let filters: Vec<&Filter> = self.live_filters().collect();
        let matches = |event: &Event<'_>| filters.iter().filter(|f| f.matches(event)).count();
        self.publications
            .iter()
            .map(|p| {
                u32::try_from(matches(&self.events[p.event as usize])).expect("fewer subscriptions than 2^32")
            })
            .collect()
    }

    /// The filters of every live subscription, connection by connection.
    pub fn live_filters(&self) -> impl Iterator<Item = &Filter> {
        self.roles
            .iter()
            .filter_map(|role| match role {
                Role::Subscriber(filters) => Some(filters),
                Role::Publisher | Role::Requester => None,
            })
            .flatten()
    }

    fn plan_publications(
        &mut self,
        scenario: &Scenario,
        eligible: &[&Event<'static>],
        window: Duration,
        seed: u64,
    ) -> anyhow::Result<()> {
        let mut unused: Vec<&Event<'static>> = eligible.to_vec();
        unused.shuffle(&mut schedule::stream(seed, u64::from(u32::MAX), 0));
        for (population, publish) in (0..).zip(&scenario.publish) {
            let first = self.roles.len();
            let mut due = Vec::new();
            for c in 0..publish.connections {
                let mut rng = schedule::stream(seed, population, c);
                let times = schedule::arrivals(publish.arrival, publish.connections, c, window, &mut rng);
                due.extend(times.into_iter().map(|at| (at, first + c)));
                self.roles.push(Role::Publisher);
            }
            due.sort_unstable();

            let wanted = |event: &Event<'_>| publish.kinds.as_ref().is_none_or(|k| k.contains(&event.kind));
            let templates: Vec<_> = eligible.iter().copied().filter(|e| wanted(e)).collect();
            if templates.is_empty() {
                bail!("the corpus has no event of kinds {:?} to publish", publish.kinds);
            }
            let mut events: Vec<Event<'static>> = Vec::with_capacity(due.len());
            // What a session asks for must be known beforehand, so beside sessions only new events are published.
            if scenario.request.is_empty() {
                unused.retain(|event| {
                    let take = events.len() < due.len() && wanted(event);
                    if take {
                        events.push((*event).clone());
                    }
                    !take
                });
            }
            let missing = due.len() - events.len();
            self.fresh += missing;
            events.extend(fresh::events(&templates, missing, seed ^ (population + 1)));
            for ((at, connection), event) in due.into_iter().zip(events) {
                let position = u32::try_from(self.events.len())?;
                self.events.push(event);
                self.publications.push(Publication { at, connection, event: position });
            }
        }
        self.publications.sort_unstable();
        self.publication_of = vec![0; self.publications.len()];
        for (n, publication) in self.publications.iter().enumerate() {
            self.publication_of[publication.event as usize - self.stored] = n;
        }
        Ok(())
    }

    fn plan_subscriptions(&mut self, scenario: &Scenario, seed: u64) {
        let mut authors: Vec<_> =
            self.publications.iter().map(|p| self.events[p.event as usize].pubkey).collect();
        authors.sort_unstable();
        authors.dedup();
        for (population, subscribe) in (1 << 16..).zip(&scenario.subscribe) {
            for c in 0..subscribe.connections {
                let mut rng = schedule::stream(seed, population, c);
                let mut filter = |live: &LiveFilter| Filter {
                    kinds: Some(live.kinds.clone()),
                    authors: live.authors.map(|n| authors.partial_shuffle(&mut rng, n).0.to_vec()),
                    limit: Some(0),
                    ..Filter::default()
                };
                self.roles.push(Role::Subscriber(subscribe.filter.iter().map(&mut filter).collect()));
            }
        }
    }

    fn plan_sessions(&mut self, scenario: &Scenario, window: Duration, seed: u64) -> anyhow::Result<()> {
        let stored = StoredIndex::new(&self.events[..self.stored]);
        for (population, request) in (2 << 16..).zip(&scenario.request) {
            let authors = request.step.iter().map(|step| stored.authors(&step.kinds)).collect::<Vec<_>>();
            for (step, authors) in request.step.iter().zip(&authors) {
                ensure!(!authors.is_empty(), "the corpus has no event of kinds {:?} to ask for", step.kinds);
            }
            for c in 0..request.connections {
                let connection = self.roles.len();
                self.roles.push(Role::Requester);
                let mut rng = schedule::stream(seed, population, c);
                for at in schedule::arrivals(request.arrival, request.connections, c, window, &mut rng) {
                    let steps = plan_steps(request, &authors, &stored, &mut rng)?;
                    self.sessions.push(Session { at, connection, steps });
                }
            }
        }
        self.sessions.sort_by_key(|session| (session.at, session.connection));
        Ok(())
    }
}

fn plan_steps(
    request: &Request,
    authors: &[Vec<[u8; 32]>],
    stored: &StoredIndex,
    rng: &mut impl RngCore,
) -> anyhow::Result<Vec<Vec<PlannedRequest>>> {
    let mut steps = Vec::with_capacity(request.step.len());
    for (step, authors) in request.step.iter().zip(authors) {
        let mut asked = draw_authors(step, authors, rng);
        asked.shuffle(rng);
        let mut requests = Vec::new();
        for chunk in asked.chunks(step.chunk.unwrap_or(step.authors)) {
            let expected = stored.expected(chunk, &step.kinds);
            ensure!(
                expected.len() <= MAX_EXPECTED,
                "a request would be answered with {} events, but relays send {MAX_EXPECTED} unless asked for more: \
                 lower chunk or known",
                expected.len()
            );
            let filter = Filter {
                kinds: Some(step.kinds.clone()),
                authors: Some(chunk.to_vec()),
                ..Filter::default()
            };
            requests.push(PlannedRequest { filter, expected });
        }
        steps.push(requests);
    }
    Ok(steps)
}

/// Authors the relay has events of, and keys it has never seen for the rest.
fn draw_authors(step: &Step, authors: &[[u8; 32]], rng: &mut impl RngCore) -> Vec<[u8; 32]> {
    let known = step.known.unwrap_or(step.authors).min(authors.len());
    let mut asked: Vec<_> =
        rand::seq::index::sample(rng, authors.len(), known).iter().map(|i| authors[i]).collect();
    asked.resize_with(step.authors, || {
        let mut key = [0; 32];
        rng.fill_bytes(&mut key);
        key
    });
    asked
}

/// Event ids are SHA-256 hashes: eight of their bytes are a hash already.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(head) = bytes.first_chunk() {
            self.0 = u64::from_le_bytes(*head);
        }
    }

    fn write_usize(&mut self, _length: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(scenario: &str, seed: u64) -> Workload {
        let formats: Vec<_> = Format::core().collect();
        Workload::plan(&Scenario::load(scenario).unwrap(), &Corpus::bundled(), seed, &formats).unwrap()
    }

    #[test]
    fn the_same_seed_gives_the_same_plan_and_another_seed_another() {
        let summary = |w: &Workload| {
            let ids: Vec<_> = w.publications.iter().map(|p| (p.at, w.events[p.event as usize].id)).collect();
            let asked: Vec<_> = w.sessions.iter().map(|s| s.steps[0][0].filter.clone()).collect();
            (ids, asked)
        };
        for scenario in ["note-stream", "profile-hydration"] {
            assert_eq!(summary(&plan(scenario, 1)), summary(&plan(scenario, 1)), "{scenario}");
            assert_ne!(summary(&plan(scenario, 1)), summary(&plan(scenario, 2)), "{scenario}");
        }
    }

    #[test]
    fn a_session_expects_exactly_the_stored_events_that_match() {
        let workload = plan("follow-list-burst", 1);
        assert_eq!(workload.sessions.len(), 100, "50 clients, two bursts");
        for session in &workload.sessions {
            assert_eq!(session.steps[0][0].expected.len(), 1, "one follow list");
            assert_eq!(session.steps[1].len(), 2, "two chunks");
            for request in session.steps.iter().flatten() {
                let matching: Vec<u32> = (0..)
                    .zip(&workload.events[..workload.stored])
                    .filter(|(_, event)| request.filter.matches(event))
                    .map(|(n, _)| n)
                    .collect();
                assert_eq!(request.expected, matching);
            }
        }
    }

    #[test]
    fn every_publication_is_an_event_of_its_own_and_knows_who_gets_it() {
        let workload = plan("mixed-day", 1);
        let ids: HashSet<_> = workload.events.iter().map(|e| e.id).collect();
        assert_eq!(ids.len(), workload.events.len());
        assert!(workload.publications.is_sorted());
        for (n, publication) in workload.publications.iter().enumerate() {
            assert_eq!(workload.publication_of(publication.event), Some(n));
            assert_eq!(
                workload.find(&workload.events[publication.event as usize].id),
                Some(publication.event)
            );
        }
        assert!(workload.fan_out().iter().sum::<u32>() > 0, "somebody reads");
        assert_eq!(workload.publication_of(0), None, "stored events are not published");
    }
}
