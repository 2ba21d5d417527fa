//! The plan of a run, computed from corpus, scenario and seed before any clock starts: which events
//! the relay holds, who publishes and requests what and when, and which deliveries must follow.

mod agents;
mod fan_in;
mod fingerprint;
mod index;
mod live;
mod memory;
mod publications;
mod reconcile;
mod select;
mod sessions;
#[cfg(test)]
mod tests;
mod turns;

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet},
    hash::{BuildHasherDefault, Hasher},
    sync::Arc,
    time::Duration,
};

use anyhow::ensure;
use codecs::{Event, Filter, Format};
use corpus::{Corpus, Keys, REHEARSAL_KEYS, fresh::Keep};
use fixedbitset::FixedBitSet;
use link::Link;
use terms::Compression;

#[cfg(test)]
pub(crate) use self::agents::tests::PLANS;
pub use self::agents::{Elsewhere, Share};
use crate::{
    plan::{
        index::Index,
        live::LivePlanner,
        select::select,
        sessions::{Asker, position},
    },
    recorded::{Says, Turn},
    scenario::{Access, Arrival, Connect, Request, Scenario, is_among},
    schedule,
};

/// The plan of a run.
#[derive(Debug, Clone, Default)]
pub struct Workload {
    /// Every event that may be on the wire: first those that the relay holds, then those that are
    /// published.
    pub events: Arc<Vec<Event<'static>>>,
    /// How many of `events` the relay holds before the clock starts.
    pub stored: usize,
    /// The task of each connection.
    pub roles: Vec<Role>,
    /// The names of the populations that have one.
    pub labels: Vec<String>,
    /// The links of populations that have one of their own, each once.
    pub links: Vec<Link>,
    /// Publications, in the order in which they are due.
    pub publications: Vec<Publication>,
    /// Closed-loop publications, connection by connection.
    pub floods: Vec<Flood>,
    /// Sessions, in the order in which they are due.
    pub sessions: Vec<Session>,
    /// The filters of live subscriptions.
    pub live: Vec<Live>,
    /// What recorded clients do beside their publications, in the order of the recording.
    pub turns: Vec<Turn>,
    /// When closed loops end, from the start, where time ends them: sessions then begin again with
    /// the first, and publications that were not sent by then are not begun.
    pub until: Option<Duration>,
    /// Spans from the start of the run whose latencies are left out.
    pub warm_up: Vec<(Duration, Duration)>,
    /// How many clients read from several relays.
    pub readers: usize,
    /// The most bytes of a negentropy message, where clients reconcile.
    pub frame_bytes: Option<usize>,
    /// Whether clients answer AUTH challenges (NIP-42), the first before anything else.
    pub auth: bool,
    /// The keys by which clients answer; throw-away keys without.
    pub keys: Option<Keys>,
    /// How many of these the authors of events take.
    pub authors: usize,
    /// Whether the relay sends no challenge on connecting, so that clients do not wait for it.
    pub ungreeted: bool,
    /// The subscriptions that the relay takes on a connection, where overlapping sessions may have
    /// more: they wait for each other.
    pub most_subscriptions: Option<usize>,
    /// Whether an event may come twice to a subscription, once before EOSE and once after.
    pub tolerates_seam: bool,
    /// How many events were newly made after corpus events, because those are too few or the relay
    /// may have them already.
    pub fresh: usize,
    /// How many corpus events are not streamed, by reason.
    pub set_aside: BTreeMap<Cow<'static, str>, usize>,
    /// Ids of events that the external relay had before the run and the plan does not know:
    /// reconciliations name them.
    pub foreign: HashSet<[u8; 32]>,
    /// Whether clients report such ids.
    pub reports_foreign: bool,
    /// Tasks of other agents; `None` in a whole plan. Sessions and live subscriptions are then
    /// those of one agent, and of clients that reconcile or read from several relays.
    pub elsewhere: Option<Elsewhere>,
    /// Hash of what sessions and live subscriptions follow from.
    pub inputs: [u8; 32],
    /// The place of each event in `events`, by its id.
    pub index: HashMap<[u8; 32], u32, BuildHasherDefault<IdHasher>>,
    /// For each published event, its place in `publications`.
    pub publication_of: Vec<usize>,
}

/// The task of a connection, and the population that it belongs to.
#[derive(Debug, Clone)]
pub struct Role {
    /// The place of its population's name in [`Workload::labels`].
    pub label: Option<usize>,
    /// Its format and compression, and its link, instead of the run's.
    pub speaks: Speaks,
    /// The task.
    pub task: Task,
    /// Decodes every n-th delivery and counts the others, as a light reader.
    pub decode_every: Option<u32>,
}

/// Format, compression and link of a population; `None` is what the run is played with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Speaks {
    /// The wire format.
    pub format: Option<Format>,
    /// The compression.
    pub compression: Option<Compression>,
    /// The link.
    pub over: Over,
}

/// Which link the users of a population have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Over {
    /// That of the run, if it has one.
    #[default]
    Run,
    /// None, also in a run over links.
    Nothing,
    /// One of [`Workload::links`], by its place.
    Own(usize),
}

/// A connection of a client that reads from several relays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The client's number, below [`Workload::readers`].
    pub reader: usize,
    /// Whether the client looks at the id of an event before it decodes the rest.
    pub peeks: bool,
}

/// The task of a connection.
#[derive(Debug, Clone)]
pub enum Task {
    /// Publishes events; `window` bounds the unanswered ones of a closed loop.
    Publisher { window: usize },
    /// Reads live events.
    Subscriber {
        /// The filters of its subscriptions, as places in [`Workload::live`].
        filters: Vec<u32>,
        /// How fast it reads until all other work is done; `None` for full speed.
        read_bytes_per_s: Option<u64>,
    },
    /// Requests stored events.
    Requester { connect: Connect },
    /// Requests stored events, some of which other connections of the same client bring too.
    Reader(Reading),
    /// Reconciles its events with the relay (NIP-77).
    Reconciler,
    /// Does what a recorded client did, in its [`Workload::turns`] and publications.
    Recorded,
}

/// Something that a connection does at a planned instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// Publish `publications[n]`.
    Publication(u32),
    /// Begin `floods[n]`.
    Flood(u32),
    /// Start `sessions[n]`.
    Session(u32),
    /// Take `turns[n]`.
    Turn(u32),
}

/// The filter of one or more live subscriptions.
#[derive(Debug, Clone)]
pub struct Live {
    /// The filter, with limit 0.
    pub filter: Filter,
    /// The publications that match the filter.
    pub matches: FixedBitSet,
}

/// An event to publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Publication {
    /// When it is due, from the start; in a closed loop, when the first one is.
    pub at: Duration,
    /// The connection that publishes it.
    pub connection: usize,
    /// The event, as a place in [`Workload::events`].
    pub event: u32,
    /// Whether it belongs to a closed loop, which waits for answers.
    pub closed: bool,
}

/// The closed-loop publications of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flood {
    /// When the first is due.
    pub at: Duration,
    /// The connection that publishes them.
    pub connection: usize,
    /// The place of the first in [`Workload::publications`].
    pub first: u32,
    /// How many publications.
    pub count: u32,
}

/// A session: requests for stored events, step by step, and perhaps a stay for live ones.
#[derive(Debug, Clone, Default)]
pub struct Session {
    /// When it is due, from the start; in a closed loop, when the first one is.
    pub at: Duration,
    /// The connection that it belongs to.
    pub connection: usize,
    /// Requests that are sent together, step after step.
    pub steps: Vec<Vec<PlannedRequest>>,
    /// A reconciliation, instead of steps.
    pub reconciliation: Option<Reconciliation>,
    /// Live subscriptions that follow, as places in [`Workload::live`].
    pub live: Vec<u32>,
    /// How long these are kept.
    pub stay: Duration,
    /// In a closed loop, the session that follows this one; the first again where time ends loops.
    pub next: Option<u32>,
    /// The pause before that session.
    pub think: Duration,
    /// Whether this session follows another.
    pub follows: bool,
}

/// A planned reconciliation (NIP-77): the events of the client and those of the relay.
#[derive(Debug, Clone)]
pub struct Reconciliation {
    /// The filter of the events that take part.
    pub filter: Filter,
    /// Stored events that the client has, in ascending order.
    pub has: Vec<u32>,
    /// Stored events that the client lacks, in ascending order.
    pub lacks: Vec<u32>,
    /// Events that only the client has, and publishes.
    pub own: Vec<u32>,
    /// The most bytes of a negentropy message.
    pub frame_bytes: usize,
    /// Ids in one REQ.
    pub chunk: usize,
}

/// One REQ and the events that must answer it.
#[derive(Debug, Clone)]
pub struct PlannedRequest {
    /// The filter of the REQ.
    pub filter: Filter,
    /// The events that must come, in ascending order.
    pub expected: Vec<u32>,
}

impl Workload {
    /// Plans a share of `scenario` over those events of `corpus` that each of `formats` can hold and
    /// the relay takes by its rules: runs in any of these formats stream the same events. Requests and
    /// live subscriptions of other agents are left out, so that the cost of a plan grows with the
    /// share, beside all publications and a role for each connection.
    ///
    /// # Errors
    /// When the corpus has no events of a kind that the scenario needs, or the plan needs more than
    /// its part of the memory of this process.
    pub fn plan_share(
        scenario: &Scenario,
        corpus: &Corpus,
        seed: u64,
        formats: &[Format],
        share: Share,
    ) -> anyhow::Result<Workload> {
        if let Some(replay) = &scenario.replay {
            return Workload::plan_replay(scenario, replay, seed, formats, share);
        }
        let formats: Vec<Format> = formats.iter().copied().chain(scenario.formats()).collect();
        let (eligible, set_aside) = select(&corpus.events, &formats, &scenario.rules);
        memory::check(scenario, &eligible, share)?;
        let mut plan = Workload {
            set_aside,
            warm_up: scenario.warm_up(),
            until: scenario.saturated.then(|| Duration::from_secs_f64(scenario.seconds)),
            auth: scenario.auth,
            keys: scenario.signing.keys.clone(),
            elsewhere: Elsewhere::new(scenario, share),
            inputs: fingerprint::inputs(scenario, seed),
            ..Workload::default()
        };
        let stored: Vec<_> = eligible.iter().copied().filter(|event| scenario.stores(event)).collect();
        plan.stored = stored.len();
        plan.events = Arc::new(if scenario.signing.is_plain() {
            stored.into_iter().cloned().collect()
        } else {
            let kept = Keep { times: true, ..Keep::default() };
            plan.make(scenario, &stored, stored.len(), (seed, kept))
        });
        plan.plan_publications(scenario, &eligible, seed)?;
        let events = Arc::clone(&plan.events);
        let published = Index::new(plan.publications.iter().map(|one| &events[one.event as usize]), true);
        plan.plan_subscriptions(scenario, &published, seed);
        plan.plan_sessions(scenario, &published, seed)?;
        plan.check_keys(scenario)?;
        plan.indexed()
    }

    /// # Errors
    /// When the user gives fewer keys than the plan takes.
    fn check_keys(&self, scenario: &Scenario) -> anyhow::Result<()> {
        let given = scenario.signing.keys.as_ref().map_or(usize::MAX, Keys::count);
        let needed = self.authors + REHEARSAL_KEYS;
        ensure!(
            needed <= given,
            "it takes {needed} keys, one for each author of its events and {REHEARSAL_KEYS} for a rehearsal, and --keys has \
             {given}: give {} more, or play fewer seconds",
            needed - given
        );
        Ok(())
    }

    /// Builds the index of events by id, once all events are in the plan.
    ///
    /// # Errors
    /// When the plan holds an event twice.
    pub fn indexed(mut self) -> anyhow::Result<Workload> {
        for (position, event) in (0..).zip(self.events.iter()) {
            self.index.insert(event.id, position);
        }
        ensure!(self.index.len() == self.events.len(), "the plan holds an event twice");
        self.publication_of = vec![0; self.publications.len()];
        for (n, publication) in self.publications.iter().enumerate() {
            self.publication_of[publication.event as usize - self.stored] = n;
        }
        Ok(self)
    }

    /// A plan that publishes the stored events of this one: a single connection sends a request
    /// with `limit`, to check the format of the answer, publishes, and sends such a request again,
    /// so that the relay has indexed what it stored. Unless it `stores`, it publishes nothing.
    pub fn preparation(&self, limit: u64, stores: bool) -> Workload {
        const WINDOW: usize = 64;
        let count = if stores { self.stored } else { 0 };
        let count = u32::try_from(count).expect("a plan holds fewer than 2^32 events");
        let publication = |event| Publication { at: Duration::ZERO, connection: 0, event, closed: true };
        // A relay may refuse requests for kinds that it withholds, which no plan has.
        let kind = self.events.first().map_or(1, |event| event.kind);
        let nothing = Filter { kinds: Some(vec![kind]), limit: Some(limit), ..Filter::default() };
        let nothing = || {
            let session = Session::once(Duration::ZERO, 0);
            let request = PlannedRequest { filter: nothing.clone(), expected: Vec::new() };
            Session { steps: vec![vec![request]], ..session }
        };
        Workload {
            roles: vec![Role::new(None, Speaks::default(), Task::Publisher { window: WINDOW })],
            publications: (0..count).map(publication).collect(),
            floods: vec![Flood { at: Duration::ZERO, connection: 0, first: 0, count }],
            sessions: vec![nothing(), nothing()],
            stored: 0,
            ungreeted: false,
            ..self.for_one_connection()
        }
    }

    /// The events of this plan, and how clients prove who they are, for one that has nothing to do
    /// yet.
    fn for_one_connection(&self) -> Workload {
        Workload {
            events: Arc::clone(&self.events),
            stored: self.stored,
            auth: self.auth,
            keys: self.keys.clone(),
            ungreeted: self.ungreeted,
            ..Workload::default()
        }
    }

    /// Whether any client answers a challenge.
    pub fn proves(&self) -> bool {
        self.auth || self.turns.iter().any(|turn| turn.says == Says::Prove)
    }

    /// The most subscriptions that sessions of one connection have at one time, if none that is due
    /// ends before the next.
    pub fn overlapping_subscriptions(&self) -> usize {
        let mut connections: HashMap<usize, (usize, usize)> = HashMap::new();
        for session in &self.sessions {
            let (due, widest) = connections.entry(session.connection).or_default();
            *due += usize::from(!session.follows);
            *widest = session.subscriptions().max(*widest);
        }
        connections.into_values().map(|(due, widest)| due * widest).max().unwrap_or(0)
    }

    /// The stored events that sessions ask for, in ascending order; all where other agents' may ask
    /// for any.
    pub fn asked(&self) -> Vec<u32> {
        if self.elsewhere.is_some() {
            return (0..).take(self.stored).collect();
        }
        let again = self.turns.iter().flat_map(|turn| &turn.expected);
        let again = again.filter(|event| (**event as usize) < self.stored);
        let mut asked: Vec<u32> =
            self.sessions.iter().flat_map(Session::stored).chain(again).copied().collect();
        asked.sort_unstable();
        asked.dedup();
        asked
    }

    /// A plan of `passes` sessions of one connection that speaks this, each of which requests these
    /// stored events once, by their ids.
    ///
    /// # Errors
    /// When the plan holds an event twice.
    pub fn passes(&self, asked: &[u32], passes: u32, speaks: Speaks) -> anyhow::Result<Workload> {
        /// Relays send 100 events for a filter without a limit, and more.
        const CHUNK: usize = 100;
        let request = |chunk: &[u32]| {
            let ids = chunk.iter().map(|event| self.events[*event as usize].id).collect();
            let filter = Filter { ids: Some(ids), ..Filter::default() };
            vec![PlannedRequest { filter, expected: chunk.to_vec() }]
        };
        let pass = |_| {
            let session = Session::once(Duration::ZERO, 0);
            Session { steps: asked.chunks(CHUNK).map(request).collect(), ..session }
        };
        let plan = Workload {
            roles: vec![Role::new(None, speaks, Task::Requester { connect: Connect::Before })],
            sessions: (0..passes).map(pass).collect(),
            ..self.for_one_connection()
        };
        plan.indexed()
    }

    /// A plan of one reconciliation for each filter over which this plan reconciles, by a client
    /// that has all that is stored; it finds what else the relay has. `None` where none reconciles.
    ///
    /// # Errors
    /// When the plan holds an event twice.
    pub fn reconciling_all(&self) -> anyhow::Result<Option<Workload>> {
        let mut filters: Vec<&Reconciliation> = Vec::new();
        for planned in self.sessions.iter().filter_map(|session| session.reconciliation.as_ref()) {
            if !filters.iter().any(|other| other.filter == planned.filter) {
                filters.push(planned);
            }
        }
        let session = |planned: &Reconciliation| {
            let mut has = [&planned.has[..], &planned.lacks].concat();
            has.sort_unstable();
            let reconciliation = Reconciliation { has, lacks: vec![], own: vec![], ..planned.clone() };
            Session { reconciliation: Some(reconciliation), ..Session::once(Duration::ZERO, 0) }
        };
        let plan = Workload {
            roles: vec![Role::new(None, Speaks::default(), Task::Reconciler)],
            sessions: filters.into_iter().map(session).collect(),
            reports_foreign: true,
            ..self.for_one_connection()
        };
        if plan.sessions.is_empty() { Ok(None) } else { plan.indexed().map(Some) }
    }

    /// Formats and compressions of populations, each once, whatever their links; the run's own are
    /// the default.
    pub fn spoken(&self) -> Vec<Speaks> {
        let mut spoken = Vec::new();
        for role in &self.roles {
            let speaks = Speaks { over: Over::Run, ..role.speaks };
            if !spoken.contains(&speaks) {
                spoken.push(speaks);
            }
        }
        spoken
    }

    /// Format, compression and link of a population; [`Workload::links`] gains a new one.
    pub(crate) fn speaks(
        &mut self,
        format: Option<Format>,
        compression: Option<Compression>,
        access: Option<&Access>,
    ) -> Speaks {
        let over = match access {
            None => Over::Run,
            Some(Access::None) => Over::Nothing,
            Some(Access::Link(link)) => {
                let place = self.links.iter().position(|known| known == &**link);
                Over::Own(place.unwrap_or_else(|| {
                    self.links.push(Link::clone(link));
                    self.links.len() - 1
                }))
            }
        };
        Speaks { format, compression, over }
    }

    /// The link of a connection's user, where the run has this one.
    pub(crate) fn link_of<'l>(&'l self, connection: usize, run: Option<&'l Link>) -> Option<&'l Link> {
        match self.roles[connection].speaks.over {
            Over::Run => run,
            Over::Nothing => None,
            Over::Own(place) => self.links.get(place),
        }
    }

    /// The number of each connection's user: connections of one client that reads from several
    /// relays are of one user.
    pub fn users(&self) -> Vec<usize> {
        let mut others = self.readers..;
        let user = |role: &Role| match role.task {
            Task::Reader(reading) => reading.reader,
            _ => others.next().unwrap_or(usize::MAX),
        };
        self.roles.iter().map(user).collect()
    }

    /// The event with this id.
    pub fn find(&self, id: &[u8; 32]) -> Option<u32> {
        self.index.get(id).copied()
    }

    /// The publication of an event; `None` for a stored one.
    pub fn publication_of(&self, event: u32) -> Option<usize> {
        let published = (event as usize).checked_sub(self.stored)?;
        self.publication_of.get(published).copied()
    }

    /// When the first thing is due.
    pub fn first_due(&self) -> Duration {
        let publication = self.publications.first().map(|p| p.at);
        let elsewhere = self.elsewhere.as_ref().and_then(|others| others.first);
        let turn = self.turns.iter().map(|turn| turn.at).min();
        let firsts = [publication, self.sessions.first().map(|s| s.at), turn, elsewhere];
        firsts.into_iter().flatten().min().unwrap_or_default()
    }

    /// When the last thing is due.
    pub fn last_due(&self) -> Duration {
        let publication = self.publications.last().map(|p| p.at);
        let session = self.sessions.iter().map(|s| s.at + s.stay).max();
        let elsewhere = self.elsewhere.as_ref().map(|others| others.end);
        let turn = self.turns.iter().map(|turn| turn.at).max();
        publication.max(session).max(turn).max(elsewhere).max(self.until).unwrap_or_default()
    }

    /// Whether any publication or session belongs to a closed loop.
    pub fn is_closed(&self) -> bool {
        self.until.is_some()
            || self.publications.iter().any(|publication| publication.closed)
            || self.sessions.iter().any(|session| session.follows)
            || self.elsewhere.as_ref().is_some_and(|others| others.follows)
    }

    /// Whether the latency of what was due at this instant is recorded.
    pub fn is_measured(&self, at_ns: u64) -> bool {
        self.warm_up.is_empty() || {
            let at = Duration::from_nanos(at_ns);
            !self.warm_up.iter().any(|(from, to)| (*from..*to).contains(&at))
        }
    }

    /// What connections do at planned instants, earliest first: the instant since the start, the connection
    /// and the work. `chosen` tells which connections.
    pub fn timeline(&self, chosen: impl Fn(usize) -> bool) -> Vec<(Duration, usize, Due)> {
        let publications = (0..).zip(&self.publications).filter(|(_, p)| !p.closed);
        let publications = publications.map(|(n, p)| (p.at, p.connection, Due::Publication(n)));
        let floods = (0..).zip(&self.floods).map(|(n, f)| (f.at, f.connection, Due::Flood(n)));
        let sessions = (0..).zip(&self.sessions).filter(|(_, s)| !s.follows);
        let sessions = sessions.map(|(n, s)| (s.at, s.connection, Due::Session(n)));
        let turns = (0..).zip(&self.turns).map(|(n, t)| (t.at, t.connection, Due::Turn(n)));
        // Turns first: the first of a recorded connection is to connect.
        let mut timeline: Vec<_> = turns
            .chain(publications)
            .chain(floods)
            .chain(sessions)
            .filter(|(_, connection, _)| chosen(*connection))
            .collect();
        timeline.sort_by_key(|(at, _, _)| *at);
        timeline
    }

    /// How many deliveries each accepted publication causes, at subscribers that stay for the whole
    /// run and read at full speed.
    pub fn fan_out(&self) -> Vec<u32> {
        self.fan_out_to(|_| true)
    }

    /// The same, to the chosen connections alone.
    pub fn fan_out_to(&self, chosen: impl Fn(usize) -> bool) -> Vec<u32> {
        let mut fan_out = vec![0; self.publications.len()];
        let mut subscribers = vec![0; self.live.len()];
        let roles = self.roles.iter().enumerate().filter(|(connection, _)| chosen(*connection));
        for role in roles.map(|(_, role)| role).filter(|role| !role.reads_slowly()) {
            for filter in role.filters() {
                subscribers[*filter as usize] += 1;
            }
        }
        for (live, count) in self.live.iter().zip(subscribers).filter(|(_, count)| *count > 0) {
            for publication in live.matches.ones() {
                fan_out[publication] += count;
            }
        }
        fan_out
    }

    /// The place of a population's name in [`Workload::labels`], which gains new names.
    fn label(&mut self, name: Option<&str>) -> Option<usize> {
        let name = name?;
        Some(self.labels.iter().position(|label| label == name).unwrap_or_else(|| {
            self.labels.push(name.to_owned());
            self.labels.len() - 1
        }))
    }

    /// The stored events of these kinds, in ascending order.
    fn stored_of(&self, kinds: Option<&[u16]>) -> Vec<u32> {
        let stored = (0..).zip(&self.events[..self.stored]);
        stored.filter(|(_, event)| is_among(event, kinds)).map(|(n, _)| n).collect()
    }

    /// Whether another agent has a connection, in a plan without its own clients of several relays.
    fn is_elsewhere(&self, connection: usize) -> bool {
        self.elsewhere.as_ref().is_some_and(|others| others.has(connection))
    }

    fn plan_subscriptions(&mut self, scenario: &Scenario, published: &Index<'_>, seed: u64) {
        for (population, subscribe) in scenario.subscribe.iter().enumerate() {
            let label = self.label(subscribe.name.as_deref());
            let speaks = self.speaks(subscribe.format, subscribe.compression, subscribe.link.as_ref());
            let mut planner = LivePlanner::new(published, &subscribe.filter);
            for c in 0..subscribe.connections {
                let mut random = schedule::stream(seed, &format!("subscribe {population}"), c);
                let filters = if self.is_elsewhere(self.roles.len()) {
                    Vec::new()
                } else {
                    planner.filters(self, &mut random)
                };
                let task = Task::Subscriber { filters, read_bytes_per_s: subscribe.read_bytes_per_s };
                let decode_every = subscribe.decode_every;
                self.roles.push(Role { decode_every, ..Role::new(label, speaks, task) });
            }
        }
    }

    fn plan_sessions(&mut self, scenario: &Scenario, published: &Index<'_>, seed: u64) -> anyhow::Result<()> {
        let events = Arc::clone(&self.events);
        let stored = Index::new(&events[..self.stored], false);
        for (population, request) in scenario.request.iter().enumerate() {
            let asker = Asker::new(&stored, request)?;
            let mut planner = LivePlanner::new(published, &request.live);
            self.plan_population(scenario, (population, request), &asker, &mut planner, seed)?;
        }
        self.plan_fan_in(scenario, seed)?;
        self.sessions.sort_by_key(|session| (session.at, session.connection));
        self.link_sessions()
    }

    fn plan_population(
        &mut self,
        scenario: &Scenario,
        (population, request): (usize, &Request),
        asker: &Asker<'_, '_>,
        planner: &mut LivePlanner<'_, '_>,
        seed: u64,
    ) -> anyhow::Result<()> {
        let spans = scenario.spans(request.phases.as_deref());
        let label = self.label(request.name.as_deref());
        let speaks = self.speaks(request.format, request.compression, request.link.as_ref());
        for c in 0..request.connections {
            let connection = self.roles.len();
            let role = Role::new(label, speaks, Task::Requester { connect: request.connect });
            self.roles.push(Role { decode_every: request.decode_every, ..role });
            let mut random = schedule::stream(seed, &format!("request {population}"), c);
            let due = schedule::arrivals(request.arrival, request.connections, c, &spans, &mut random);
            if let Some(others) = self.elsewhere.as_mut().filter(|others| others.has(connection)) {
                others.add(connection, request, &due);
                continue;
            }
            for due in due.into_iter().enumerate() {
                let (steps, live) = (asker.session(&mut random)?, planner.filters(self, &mut random));
                let stay = Duration::from_millis(request.stay_ms.unwrap_or(0));
                let session = Session::new(request.arrival, connection, due);
                self.sessions.push(Session { steps, live, stay, ..session });
            }
        }
        Ok(())
    }

    /// Links the sessions of each closed loop, which stand together because they are due at the same
    /// instant. Where time ends loops, the first follows the last, and sessions without work are passed
    /// over: a loop of them would never wait.
    fn link_sessions(&mut self) -> anyhow::Result<()> {
        let has_work = |session: &Session| !session.steps.is_empty() || session.reconciliation.is_some();
        let is_endless = self.until.is_some();
        let mut first = 0;
        for of_loop in self.sessions.chunk_by_mut(|_, next| next.follows) {
            let followers: Vec<usize> =
                (0..of_loop.len()).filter(|n| !is_endless || has_work(&of_loop[*n])).collect();
            for (n, session) in of_loop.iter_mut().enumerate() {
                let again = followers.first().filter(|_| is_endless);
                let next = followers.get(followers.partition_point(|follower| *follower <= n)).or(again);
                session.next = next.map(|next| position(first + next)).transpose()?;
            }
            first += of_loop.len();
        }
        Ok(())
    }
}

impl Session {
    /// Makes a session without requests that is due once.
    pub fn once(at: Duration, connection: usize) -> Self {
        Session { at, connection, ..Session::default() }
    }

    /// The stored events that must come.
    pub(crate) fn stored(&self) -> impl Iterator<Item = &u32> {
        let expected = self.steps.iter().flatten().flat_map(|request| &request.expected);
        expected.chain(self.reconciliation.iter().flat_map(|reconciliation| &reconciliation.lacks))
    }

    /// The most subscriptions that it has at one time.
    pub fn subscriptions(&self) -> usize {
        let steps = self.steps.iter().map(Vec::len).max().unwrap_or(0);
        let fetches =
            self.reconciliation.as_ref().map_or(0, |one| one.lacks.len().div_ceil(one.chunk.max(1)));
        steps.max(self.live.len()).max(fetches)
    }

    /// Makes a session without requests, due by an arrival.
    fn new(arrival: Arrival, connection: usize, (round, at): (usize, Duration)) -> Self {
        let session = Session::once(at, connection);
        match arrival {
            Arrival::Closed { think_ms, .. } => {
                Session { think: Duration::from_millis(think_ms), follows: round > 0, ..session }
            }
            _ => session,
        }
    }
}

impl Role {
    /// A connection of the population with this place among the labels.
    pub fn new(label: Option<usize>, speaks: Speaks, task: Task) -> Role {
        Role { label, speaks, task, decode_every: None }
    }

    /// The filters of its live subscriptions, as places in [`Workload::live`].
    pub fn filters(&self) -> &[u32] {
        if let Task::Subscriber { filters, .. } = &self.task { filters } else { &[] }
    }

    /// Whether it reads slowly until all other work is done.
    pub fn reads_slowly(&self) -> bool {
        matches!(self.task, Task::Subscriber { read_bytes_per_s: Some(_), .. })
    }

    /// Whether each of its sessions makes a connection.
    pub(crate) fn connects_anew(&self) -> bool {
        matches!(self.task, Task::Requester { connect: Connect::Again | Connect::PerSession })
    }

    /// Whether it is connected before the clock starts.
    pub fn connects_before(&self) -> bool {
        !matches!(self.task, Task::Requester { connect: Connect::PerSession } | Task::Recorded)
    }
}

/// Hashes an event id by its first eight bytes: an id is a SHA-256 hash (NIP-01).
#[derive(Default)]
pub struct IdHasher(u64);

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
