//! Sums over a plan, known before the run: clients, requests, deliveries, bytes.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    num::NonZeroU16,
};

use codecs::{ClientMessage, Codec, Filter, Format, RelayMessage};
use serde::Serialize;

use crate::{
    plan::{Role, Task, Workload},
    recorded::Says,
    scenario::{Connect, Scenario},
};

/// Sums over a plan, or over an agent's share of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PlanFacts {
    /// Users; one that reads from several relays has several connections.
    pub users: u64,
    /// The most clients connected at one time.
    pub connections: u64,
    /// Connections made over the whole run.
    pub connections_made: u64,
    /// Events published.
    pub published: u64,
    /// Sessions.
    pub sessions: u64,
    /// Requests for stored events.
    pub requests: u64,
    /// Deliveries that answer those requests.
    pub stored_deliveries: u64,
    /// Deliveries to live subscriptions that last as long as the run.
    pub live_deliveries: u64,
    /// Of these, deliveries of events that the same agent publishes: one clock times both ends.
    pub live_deliveries_timed: u64,
    /// The most publications, closed loops and sessions that are due within one second of the plan.
    pub due_per_s_max: u64,
    /// All requests as JSON messages.
    pub request_json_bytes: u64,
    /// All delivered events in JSON, without the messages around them.
    pub delivered_json_bytes: u64,
    /// All published events, likewise.
    pub published_json_bytes: u64,
}

/// Averages of a plan over the seconds in which work is started.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PerSecond {
    /// The load of the scenario.
    pub load: f64,
    /// The most clients connected at one time.
    pub clients: u64,
    /// Sessions that start.
    pub sessions_per_s: f64,
    /// Events published.
    pub publishes_per_s: f64,
    /// Deliveries that are known before the run.
    pub deliveries_per_s: f64,
}

impl PlanFacts {
    /// These sums divided by the seconds of the scenario.
    pub fn per_second(&self, scenario: &Scenario) -> PerSecond {
        let each = |count: u64| count as f64 / scenario.seconds;
        PerSecond {
            load: scenario.load,
            clients: self.connections,
            sessions_per_s: each(self.sessions),
            publishes_per_s: each(self.published),
            deliveries_per_s: each(self.deliveries()),
        }
    }

    /// Adds up a plan.
    pub fn from_workload(workload: &Workload) -> PlanFacts {
        PlanFacts::by_agent(workload, NonZeroU16::MIN).pop().expect("one agent has one share")
    }

    /// Adds up the share of each of `of` agents, by [`Workload::agents`]. Of a plan for one agent
    /// the others have their users and connections alone. All but
    /// [`PlanFacts::live_deliveries_timed`] and [`PlanFacts::due_per_s_max`] add up to the facts of
    /// the whole.
    pub fn by_agent(workload: &Workload, of: NonZeroU16) -> Vec<PlanFacts> {
        let agents = workload.agents(of);
        let made = connections_made(workload, of).into_iter();
        let facts = made.map(|connections_made| PlanFacts { connections_made, ..PlanFacts::default() });
        let mut facts: Vec<PlanFacts> = facts.collect();
        let event_bytes = event_json_bytes(workload);
        add_connections(workload, &agents, &mut facts);
        add_sessions(workload, &agents, &event_bytes, &mut facts);
        add_turns(workload, &agents, &event_bytes, &mut facts);
        for publication in &workload.publications {
            let facts = &mut facts[agents[publication.connection]];
            facts.published += 1;
            facts.published_json_bytes += event_bytes[publication.event as usize];
        }
        add_live(workload, &agents, &event_bytes, &mut facts);
        let mut seconds: HashMap<(usize, u64), u64> = HashMap::new();
        for (at, connection, _) in workload.timeline(|_| true) {
            let agent = agents[connection];
            let due = seconds.entry((agent, at.as_secs())).or_default();
            *due += 1;
            facts[agent].due_per_s_max = facts[agent].due_per_s_max.max(*due);
        }
        facts
    }

    /// Deliveries that are known before the run.
    pub fn deliveries(&self) -> u64 {
        self.stored_deliveries + self.live_deliveries
    }

    /// The mean size in JSON of a delivered event, or of a published one where nothing is
    /// delivered.
    pub fn event_json_bytes(&self) -> Option<f64> {
        let (bytes, events) = self.event_json_sums(self.deliveries() > 0);
        (events > 0).then(|| bytes as f64 / events as f64)
    }

    /// Bytes in JSON and number of the delivered events, or of the published ones where the whole
    /// plan delivers none.
    pub(crate) fn event_json_sums(&self, delivers: bool) -> (u64, u64) {
        if delivers {
            (self.delivered_json_bytes, self.deliveries())
        } else {
            (self.published_json_bytes, self.published)
        }
    }
}

/// Connections that each of `of` agents makes over the whole run.
pub fn connections_made(workload: &Workload, of: NonZeroU16) -> Vec<u64> {
    /// More handshakes per second than a core of clients makes.
    const LOOPED_PER_S: f64 = 20_000.0;
    let agents = workload.agents(of);
    let mut made = vec![0; usize::from(of.get())];
    for (role, agent) in workload.roles.iter().zip(&agents) {
        made[*agent] += u64::from(role.connects_before());
    }
    for turn in workload.turns.iter().filter(|turn| turn.says == Says::Connect) {
        made[agents[turn.connection]] += 1;
    }
    for session in &workload.sessions {
        let connects = matches!(
            workload.roles[session.connection].task,
            Task::Requester { connect: Connect::Again | Connect::PerSession }
        );
        made[agents[session.connection]] += u64::from(connects);
    }
    let connects =
        |role: &Role| matches!(role.task, Task::Requester { connect: Connect::Again | Connect::PerSession });
    if let Some(until) = workload.until.filter(|_| workload.roles.iter().any(connects)) {
        made.iter_mut().for_each(|made| *made += measure::whole::<u64>(until.as_secs_f64() * LOOPED_PER_S));
    }
    let elsewhere = workload.elsewhere.iter().flat_map(|others| &others.made);
    made.iter_mut().zip(elsewhere).for_each(|(made, more)| *made += more);
    made
}

/// Bytes of each event in JSON.
pub(crate) fn event_json_bytes(workload: &Workload) -> Vec<u64> {
    let json = Format::JSON.spec().library;
    let bytes = |event| encoded_bytes(|out| json.encode_event(event, out).is_ok());
    workload.events.iter().map(bytes).collect()
}

/// Bytes of a request in JSON.
pub(crate) fn request_json_bytes(message: &ClientMessage<'_>) -> u64 {
    encoded_bytes(|out| Format::JSON.spec().library.encode_client(message, out).is_ok())
}

fn add_connections(workload: &Workload, agents: &[usize], facts: &mut [PlanFacts]) {
    let mut users = HashSet::new();
    for (user, agent) in workload.users().into_iter().zip(agents) {
        let facts = &mut facts[*agent];
        facts.users += u64::from(users.insert(user));
        facts.connections += 1;
    }
}

fn add_sessions(workload: &Workload, agents: &[usize], event_bytes: &[u64], facts: &mut [PlanFacts]) {
    for session in &workload.sessions {
        let facts = &mut facts[agents[session.connection]];
        facts.sessions += 1;
        for request in session.steps.iter().flatten() {
            facts.requests += 1;
            facts.request_json_bytes += request_json_bytes(&message(&request.filter));
        }
        let answers = session.steps.iter().flatten().flat_map(|request| &request.expected);
        let lacks = session.reconciliation.iter().flat_map(|reconciliation| &reconciliation.lacks);
        for event in answers.chain(lacks) {
            facts.stored_deliveries += 1;
            facts.delivered_json_bytes += event_bytes[*event as usize];
        }
    }
}

/// Adds what recorded clients ask for, and what came to them.
fn add_turns(workload: &Workload, agents: &[usize], event_bytes: &[u64], facts: &mut [PlanFacts]) {
    for turn in workload.turns.iter().filter(|turn| turn.is_request()) {
        let facts = &mut facts[agents[turn.connection]];
        if let Says::Message(message) = &turn.says {
            facts.requests += 1;
            facts.request_json_bytes += request_json_bytes(message);
        }
        for event in &turn.expected {
            let publication = workload.publication_of(*event);
            let publisher = publication.map(|n| workload.publications[n].connection);
            let is_own = publisher.is_some_and(|publisher| agents[publisher] == agents[turn.connection]);
            facts.stored_deliveries += u64::from(publisher.is_none());
            facts.live_deliveries += u64::from(publisher.is_some());
            facts.live_deliveries_timed += u64::from(is_own);
            facts.delivered_json_bytes += event_bytes[*event as usize];
        }
    }
}

/// Adds deliveries to subscribers that stay for the whole run and read at full speed, as
/// [`Workload::fan_out`] counts them.
fn add_live(workload: &Workload, agents: &[usize], event_bytes: &[u64], facts: &mut [PlanFacts]) {
    let mut subscriptions: Vec<HashMap<usize, u64>> = vec![HashMap::new(); workload.live.len()];
    for (role, agent) in workload.roles.iter().zip(agents).filter(|(role, _)| !role.reads_slowly()) {
        for filter in role.filters() {
            *subscriptions[*filter as usize].entry(*agent).or_default() += 1;
        }
    }
    for (live, subscriptions) in workload.live.iter().zip(subscriptions).filter(|(_, of)| !of.is_empty()) {
        let (mut deliveries, mut bytes) = (0, 0);
        let mut published_by: HashMap<usize, u64> = HashMap::new();
        for publication in live.matches.ones() {
            let publication = &workload.publications[publication];
            deliveries += 1;
            bytes += event_bytes[publication.event as usize];
            *published_by.entry(agents[publication.connection]).or_default() += 1;
        }
        for (agent, count) in subscriptions {
            let facts = &mut facts[agent];
            facts.live_deliveries += count * deliveries;
            facts.delivered_json_bytes += count * bytes;
            facts.live_deliveries_timed += count * published_by.get(&agent).copied().unwrap_or(0);
        }
    }
}

/// The payload bytes of a plan's messages in one format, to the relay and to the clients. Live
/// deliveries to sessions are left out: their number depends on when the stays begin.
pub(crate) fn payload(workload: &Workload, codec: &dyn Codec) -> (u64, u64) {
    let (mut to_relay, mut to_client) = (0, 0);
    let client = |message: &ClientMessage<'_>| encoded_bytes(|out| codec.encode_client(message, out).is_ok());
    let relay = |message: &RelayMessage<'_>| encoded_bytes(|out| codec.encode_relay(message, out).is_ok());
    let deliveries = deliveries(workload);
    for (place, (event, deliveries)) in workload.events.iter().zip(deliveries).enumerate() {
        let message = Cow::Borrowed(event);
        if place >= workload.stored {
            to_relay += client(&ClientMessage::Event(message.clone()));
            to_client += relay(&RelayMessage::Ok { id: event.id, accepted: true, text: "".into() });
        }
        if deliveries > 0 {
            let subscription = "live-0".into();
            to_client += deliveries * relay(&RelayMessage::Event { subscription, event: message });
        }
    }
    let subscription = || "s0-0-0".into();
    for request in requests(workload) {
        to_relay += client(&request) + client(&ClientMessage::Close { subscription: subscription() });
        let hints = codecs::EoseHints::default();
        to_client += relay(&RelayMessage::Eose { subscription: subscription(), hints });
    }
    (to_relay, to_client)
}

/// How often each event is delivered.
fn deliveries(workload: &Workload) -> Vec<u64> {
    let mut deliveries = vec![0; workload.events.len()];
    let expected = workload.sessions.iter().flat_map(|session| &session.steps).flatten();
    let lacking = workload.sessions.iter().filter_map(|session| session.reconciliation.as_ref());
    let stored = expected.flat_map(|request| &request.expected).chain(lacking.flat_map(|one| &one.lacks));
    for event in stored.chain(workload.turns.iter().flat_map(|turn| &turn.expected)) {
        deliveries[*event as usize] += 1;
    }
    for (publication, fan_out) in workload.publications.iter().zip(workload.fan_out()) {
        deliveries[publication.event as usize] += u64::from(fan_out);
    }
    deliveries
}

/// Bytes of what is encoded; the plan chose only events that every format encodes.
fn encoded_bytes(encode: impl FnOnce(&mut Vec<u8>) -> bool) -> u64 {
    let mut out = Vec::new();
    if encode(&mut out) { out.len() as u64 } else { 0 }
}

fn requests(workload: &Workload) -> impl Iterator<Item = ClientMessage<'static>> {
    let requests = workload.sessions.iter().flat_map(|session| &session.steps).flatten();
    let again = workload.turns.iter().filter(|turn| turn.is_request()).filter_map(|turn| match &turn.says {
        Says::Message(message) => Some(ClientMessage::clone(message)),
        Says::Connect | Says::Prove | Says::Leave => None,
    });
    requests.map(|request| message(&request.filter)).chain(again)
}

/// The request with a filter.
pub(crate) fn message(filter: &Filter) -> ClientMessage<'static> {
    ClientMessage::Req { subscription: "s0-0-0".into(), filters: vec![filter.clone()] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PLANS;

    /// Sums over agents, with the whole's in place of figures that do not add up.
    fn sum(shares: &[PlanFacts], whole: &PlanFacts) -> PlanFacts {
        let sum = |of: fn(&PlanFacts) -> u64| shares.iter().map(of).sum();
        PlanFacts {
            users: sum(|facts| facts.users),
            connections: sum(|facts| facts.connections),
            connections_made: sum(|facts| facts.connections_made),
            published: sum(|facts| facts.published),
            sessions: sum(|facts| facts.sessions),
            requests: sum(|facts| facts.requests),
            stored_deliveries: sum(|facts| facts.stored_deliveries),
            live_deliveries: sum(|facts| facts.live_deliveries),
            request_json_bytes: sum(|facts| facts.request_json_bytes),
            delivered_json_bytes: sum(|facts| facts.delivered_json_bytes),
            published_json_bytes: sum(|facts| facts.published_json_bytes),
            live_deliveries_timed: whole.live_deliveries_timed,
            due_per_s_max: whole.due_per_s_max,
        }
    }

    #[test]
    fn facts_of_agents_add_up_to_those_of_the_plan() {
        let mut apart = 0;
        for (scenario, plan) in &*PLANS {
            let whole = PlanFacts::from_workload(plan);
            assert_eq!(whole.live_deliveries_timed, whole.live_deliveries, "one process has one clock");
            assert_eq!(whole.live_deliveries, plan.fan_out().into_iter().map(u64::from).sum::<u64>());
            for of in [2, 64].map(|of| NonZeroU16::new(of).unwrap()) {
                let shares = PlanFacts::by_agent(plan, of);
                assert_eq!(shares.len(), usize::from(of.get()));
                assert_eq!(sum(&shares, &whole), whole, "{scenario}, {of} agents");
                let timed: u64 = shares.iter().map(|facts| facts.live_deliveries_timed).sum();
                assert!(timed <= whole.live_deliveries);
                apart += u64::from(timed < whole.live_deliveries);
                let peaks = || shares.iter().map(|facts| facts.due_per_s_max);
                assert!(peaks().max() <= Some(whole.due_per_s_max));
                assert!(peaks().sum::<u64>() >= whole.due_per_s_max);
            }
        }
        assert!(apart > 0, "some events come to another agent than publishes them");
    }
}
