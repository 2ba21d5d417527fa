//! Demand of a plan on the users' links, known before the run: how long they are busy, and how many
//! packets a second the emulator must carry.
//!
//! Bytes are those of JSON without compression, because other cells ask for less. Transfers share
//! a user's link one after the other; slow start is left out, and so are live events that sessions
//! stay for.

use std::collections::HashMap;

use link::{Demand, Link};

use crate::{
    plan::{Session, Workload},
    plan_facts,
};

/// Bytes of `["EVENT","s0-0-0",…]` around an event, with the frame's head.
const ENVELOPE_BYTES: u64 = 30;

/// Bytes of an OK or an EOSE.
const ANSWER_BYTES: u64 = 90;

/// The rate of a user without a link: as fast as packets pass the emulator.
const UNSHAPED_BITS_PER_S: f64 = 100e6;

/// Round trips of the handshakes of TCP and WebSocket.
const HANDSHAKE_ROUND_TRIPS: f64 = 2.0;

/// Round trips of a reconciliation that finds a difference.
const RECONCILIATION_ROUND_TRIPS: f64 = 3.0;

/// Adds up a plan over links: `run` is the link of populations without one of their own.
pub fn for_workload(workload: &Workload, run: Option<&Link>) -> Demand {
    let mut links = Links::from_workload(workload, run);
    links.publications();
    links.sessions();
    links.turns();
    links.demand
}

/// The links while a plan is added up.
struct Links<'w> {
    workload: &'w Workload,
    /// Bytes of each event.
    events: Vec<u64>,
    /// The user of each connection, and the link of each, down and up.
    users: Vec<usize>,
    ways: Vec<[Way; 2]>,
    /// When the link of a user is free again, in seconds from the start, down and up.
    free_s: HashMap<usize, [f64; 2]>,
    demand: Demand,
}

/// One direction of a link.
#[derive(Clone, Copy)]
struct Way {
    bits_per_s: f64,
    delay_s: f64,
}

const DOWN: usize = 0;
const UP: usize = 1;

impl<'w> Links<'w> {
    fn from_workload(workload: &'w Workload, run: Option<&Link>) -> Links<'w> {
        let events = plan_facts::event_json_bytes(workload).into_iter();
        let way = |way: &link::Direction| Way {
            bits_per_s: way.capacity.mean_bits_per_s().map_or(UNSHAPED_BITS_PER_S, |rate| rate as f64),
            delay_s: way.delay_ns as f64 / 1e9,
        };
        let unshaped = [way(&link::Direction::UNSHAPED); 2];
        let ways = |connection| match workload.link_of(connection, run) {
            Some(link) => [way(&link.down), way(&link.up)],
            None => unshaped,
        };
        Links {
            workload,
            events: events.map(|bytes| bytes + ENVELOPE_BYTES).collect(),
            users: workload.users(),
            ways: (0..workload.roles.len()).map(ways).collect(),
            free_s: HashMap::new(),
            demand: Demand::default(),
        }
    }

    /// Carries bytes over a connection's link; when they are at the other end.
    fn carry(&mut self, connection: usize, way: usize, at_s: f64, bytes: u64) -> f64 {
        let Way { bits_per_s, delay_s } = self.ways[connection][way];
        let free_s = &mut self.free_s.entry(self.users[connection]).or_default()[way];
        let from_s = free_s.max(at_s);
        let to_s = from_s + Demand::carried_s(bytes, bits_per_s);
        *free_s = to_s;
        self.demand.add(bytes, from_s, to_s);
        to_s + delay_s
    }

    fn round_trip_s(&self, connection: usize) -> f64 {
        self.ways[connection].iter().map(|way| way.delay_s).sum()
    }

    fn lasts_until(&mut self, end_s: f64) {
        self.demand.lasts = self.demand.lasts.max(seconds(end_s));
    }

    /// Publications, their answers, and their deliveries to subscribers that stay for the run.
    fn publications(&mut self) {
        let workload = self.workload;
        let mut subscribers = vec![Vec::new(); workload.live.len()];
        for (connection, role) in workload.roles.iter().enumerate() {
            role.filters().iter().for_each(|filter| subscribers[*filter as usize].push(connection));
        }
        let mut deliveries = vec![Vec::new(); workload.publications.len()];
        for (filter, live) in workload.live.iter().enumerate().filter(|(n, _)| !subscribers[*n].is_empty()) {
            live.matches.ones().for_each(|publication| deliveries[publication].push(filter));
        }
        for (publication, filters) in workload.publications.iter().zip(deliveries) {
            let bytes = self.events[publication.event as usize];
            let there_s = self.carry(publication.connection, UP, publication.at.as_secs_f64(), bytes);
            let answered_s = self.carry(publication.connection, DOWN, there_s, ANSWER_BYTES);
            self.lasts_until(answered_s);
            for connection in filters.into_iter().flat_map(|filter| &subscribers[filter]) {
                let here_s = self.carry(*connection, DOWN, there_s, bytes);
                self.lasts_until(here_s);
            }
        }
    }

    /// Sessions; one that follows another begins when that one has ended.
    fn sessions(&mut self) {
        let workload = self.workload;
        let mut ended_s: HashMap<usize, f64> = HashMap::new();
        for session in &workload.sessions {
            let before_s = ended_s.get(&session.connection).filter(|_| session.follows);
            let at_s = before_s.map_or(session.at.as_secs_f64(), |s| s + session.think.as_secs_f64());
            let steps_s = self.session(session, at_s);
            self.demand.session = self.demand.session.max(seconds(steps_s - at_s));
            let stay_s = if session.live.is_empty() { 0.0 } else { session.stay.as_secs_f64() };
            let end_s = steps_s + stay_s + self.round_trip_s(session.connection);
            ended_s.insert(session.connection, end_s);
            self.lasts_until(end_s);
        }
    }

    /// Requests of recorded clients, with all that came to each as its answer.
    fn turns(&mut self) {
        for turn in self.workload.turns.iter().filter(|turn| turn.is_request()) {
            let asked: u64 = turn.filters().iter().map(request_bytes).sum();
            let answers = self.bytes(&turn.expected);
            let there_s = self.carry(turn.connection, UP, turn.at.as_secs_f64(), asked);
            let here_s = self.carry(turn.connection, DOWN, there_s, answers + ANSWER_BYTES);
            self.lasts_until(here_s);
        }
    }

    /// When the steps of a session have ended that begins at an instant.
    fn session(&mut self, session: &Session, at_s: f64) -> f64 {
        let connection = session.connection;
        let round_trip_s = self.round_trip_s(connection);
        let mut now_s = at_s;
        if self.workload.roles[connection].connects_anew() {
            now_s += HANDSHAKE_ROUND_TRIPS * round_trip_s;
        }
        for step in &session.steps {
            let asked: u64 = step.iter().map(|request| request_bytes(&request.filter)).sum();
            let answers: u64 = step.iter().map(|request| self.bytes(&request.expected)).sum();
            let there_s = self.carry(connection, UP, now_s, asked);
            now_s = self.carry(connection, DOWN, there_s, answers + ANSWER_BYTES * step.len() as u64);
        }
        if let Some(reconciliation) = &session.reconciliation {
            let (own, lacks) = (self.bytes(&reconciliation.own), self.bytes(&reconciliation.lacks));
            now_s += RECONCILIATION_ROUND_TRIPS * round_trip_s;
            let there_s = self.carry(connection, UP, now_s, own);
            now_s = self.carry(connection, DOWN, there_s, lacks);
        }
        now_s
    }

    fn bytes(&self, events: &[u32]) -> u64 {
        events.iter().map(|event| self.events[*event as usize]).sum()
    }
}

fn request_bytes(filter: &codecs::Filter) -> u64 {
    plan_facts::request_json_bytes(&plan_facts::message(filter))
}

fn seconds(seconds: f64) -> std::time::Duration {
    std::time::Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(std::time::Duration::MAX)
}

#[cfg(test)]
mod tests {
    use codecs::Format;
    use corpus::Corpus;

    use super::*;
    use crate::{inputs::plan_over, scenario::Scenario};

    const SCENARIO: &str = r#"
question = "How long?"
learn = "How long."
seconds = 1.0

[[request]]
name = "reader"
connections = 4
arrival = { shape = "spread", over_ms = 1 }
connect = "per-session"

[[request.step]]
kinds = [1]
authors = 200
limit = 100
"#;

    fn demand(text: &str, run: Option<&str>) -> (Demand, Workload) {
        let scenario = Scenario::parse("x", text).unwrap();
        let workload = plan_over(&scenario, &Corpus::bundled(), 1, &[Format::JSON]).unwrap();
        let link = run.map(|link| link.parse().unwrap());
        (for_workload(&workload, link.as_ref()), workload)
    }

    #[test]
    fn a_session_takes_its_bytes_at_the_rate_and_its_round_trips() {
        let (slow, workload) = demand(SCENARIO, Some("down=1mbit,up=1mbit,rtt=200ms"));
        let payload = |session: &Session| {
            let bytes = |event: &u32| corpus::json(&workload.events[*event as usize]).len();
            session.steps[0][0].expected.iter().map(bytes).sum::<usize>() as f64
        };
        let most = workload.sessions.iter().map(payload).fold(0.0, f64::max);
        let least_s = most * 8.0 / 1e6 + 3.0 * 0.2;
        let session_s = slow.session.as_secs_f64();
        // Requests, headers and envelopes come to that.
        assert!((least_s..least_s * 1.35 + 0.3).contains(&session_s), "{session_s} for {least_s}");
        assert!(slow.lasts > slow.session);
        // Four users at a megabit each: full packets, half as many acknowledgements.
        let peak = slow.peak_packets_per_s();
        assert!((400.0..600.0).contains(&peak), "{peak}");
        let (fast, _) = demand(SCENARIO, Some("down=10mbit,up=10mbit,rtt=200ms"));
        assert!(fast.session < slow.session && fast.peak_packets_per_s() > 4.0 * peak);
    }

    #[test]
    fn a_population_of_its_own_link_is_added_up_over_that() {
        let own = SCENARIO.replace("name = \"reader\"", "link = \"down=1mbit,up=1mbit,rtt=200ms\"");
        let (slow, _) = demand(SCENARIO, Some("down=1mbit,up=1mbit,rtt=200ms"));
        assert_eq!(demand(&own, None).0, slow);
        assert_eq!(demand(&own, Some("wifi")).0, slow);
        assert!(demand(SCENARIO, Some("wifi")).0.session < slow.session);
    }

    #[test]
    fn rounds_of_a_closed_loop_follow_each_other() {
        let closed = SCENARIO.replace(
            "{ shape = \"spread\", over_ms = 1 }",
            "{ shape = \"closed\", rounds = 3, think_ms = 500 }",
        );
        let (three, _) = demand(&closed, Some("slow-3g"));
        let one = closed.replace("rounds = 3", "rounds = 1");
        let (one, _) = demand(&one, Some("slow-3g"));
        assert!(three.lasts.as_secs_f64() > 2.0 * one.lasts.as_secs_f64() + 0.9, "{three:?} {one:?}");
    }
}
