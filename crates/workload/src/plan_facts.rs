//! Sums over a plan, known before the run: clients, requests, deliveries, bytes.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
    num::NonZeroU16,
};

use codecs::{ClientMessage, Codec, Filter, Format, RelayMessage};
use serde::Serialize;

use crate::{
    plan::{Role, Session, Workload},
    recorded::Says,
    scenario::Scenario,
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
        let mut users = HashSet::new();
        for (user, agent) in workload.users().into_iter().zip(&agents) {
            facts[*agent].users += u64::from(users.insert(user));
            facts[*agent].connections += 1;
        }
        for publication in &workload.publications {
            let facts = &mut facts[agents[publication.connection]];
            facts.published += 1;
            facts.published_json_bytes += event_bytes[publication.event as usize];
        }
        for session in &workload.sessions {
            let facts = &mut facts[agents[session.connection]];
            facts.sessions += 1;
            for request in session.steps.iter().flatten() {
                facts.add_request(&message(&request.filter));
            }
            session.stored().for_each(|event| facts.add_stored(event_bytes[*event as usize]));
        }
        for turn in workload.turns.iter().filter(|turn| turn.is_request()) {
            let agent = agents[turn.connection];
            let facts = &mut facts[agent];
            if let Says::Message(message) = &turn.says {
                facts.add_request(message);
            }
            for event in &turn.expected {
                let bytes = event_bytes[*event as usize];
                match workload.publication_of(*event).map(|n| workload.publications[n].connection) {
                    Some(publisher) => facts.add_live(1, bytes, agents[publisher] == agent),
                    None => facts.add_stored(bytes),
                }
            }
        }
        for (agent, facts) in facts.iter_mut().enumerate() {
            let fan_out = workload.fan_out_to(|connection| agents[connection] == agent);
            for (publication, copies) in workload.publications.iter().zip(fan_out) {
                let bytes = event_bytes[publication.event as usize];
                facts.add_live(copies.into(), bytes, agents[publication.connection] == agent);
            }
        }
        let mut seconds: HashMap<(usize, u64), u64> = HashMap::new();
        for (at, connection, _) in workload.timeline(|_| true) {
            let agent = agents[connection];
            let due = seconds.entry((agent, at.as_secs())).or_default();
            *due += 1;
            facts[agent].due_per_s_max = facts[agent].due_per_s_max.max(*due);
        }
        facts
    }

    fn add_request(&mut self, message: &ClientMessage<'_>) {
        self.requests += 1;
        self.request_json_bytes += request_json_bytes(message);
    }

    fn add_stored(&mut self, bytes: u64) {
        self.stored_deliveries += 1;
        self.delivered_json_bytes += bytes;
    }

    fn add_live(&mut self, copies: u64, bytes: u64, is_timed: bool) {
        self.live_deliveries += copies;
        self.live_deliveries_timed += if is_timed { copies } else { 0 };
        self.delivered_json_bytes += copies * bytes;
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
        made[agents[session.connection]] += u64::from(workload.roles[session.connection].connects_anew());
    }
    if let Some(until) = workload.until.filter(|_| workload.roles.iter().any(Role::connects_anew)) {
        made.iter_mut().for_each(|made| *made += measure::whole::<u64>(until.as_secs_f64() * LOOPED_PER_S));
    }
    let elsewhere = workload.elsewhere.iter().flat_map(|others| &others.made);
    made.iter_mut().zip(elsewhere).for_each(|(made, more)| *made += more);
    made
}

/// Bytes of each event in JSON.
pub(crate) fn event_json_bytes(workload: &Workload) -> Vec<u64> {
    workload.events.iter().map(|event| corpus::json(event).len() as u64).collect()
}

/// Bytes of a request in JSON.
pub(crate) fn request_json_bytes(message: &ClientMessage<'_>) -> u64 {
    encoded_bytes(|out| Format::JSON.spec().library.encode_client(message, out).is_ok())
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
    let stored = workload.sessions.iter().flat_map(Session::stored);
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

    /// The sums of this name over agents.
    fn sum(shares: &[PlanFacts], name: &str) -> u64 {
        let values = shares.iter().map(|share| serde_json::to_value(share).unwrap()[name].as_u64().unwrap());
        values.sum()
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
                for (name, value) in serde_json::to_value(&whole).unwrap().as_object().unwrap() {
                    let adds_up = !["live_deliveries_timed", "due_per_s_max"].contains(&name.as_str());
                    assert!(!adds_up || sum(&shares, name) == *value, "{scenario}, {of} agents: {name}");
                }
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
