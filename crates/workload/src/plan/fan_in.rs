//! Plans clients that read the same events from several relays: which connection brings which
//! events.

use anyhow::ensure;
use codecs::{Event, Filter};
use corpus::Random;

use super::{PlannedRequest, Reading, Role, Session, Task, Workload, index::named};
use crate::{
    scenario::{FanIn, OnDuplicate, Scenario},
    schedule,
};

impl Workload {
    /// Adds the connections and sessions of clients that read from several relays.
    ///
    /// # Errors
    /// When the relay would hold too few events for each session of a client to have different
    /// ones.
    pub(super) fn plan_fan_in(&mut self, scenario: &Scenario, seed: u64) -> anyhow::Result<()> {
        for (population, fan_in) in scenario.fan_in.iter().enumerate() {
            let eligible = self.stored_of(fan_in.kinds.as_deref());
            let label = self.label(fan_in.name.as_deref());
            let peeks = fan_in.on_duplicate == OnDuplicate::Peek;
            for client in 0..fan_in.clients {
                let mut random = schedule::stream(seed, &format!("fan-in {population}"), client);
                let spans = scenario.spans(fan_in.phases.as_deref());
                let due = schedule::arrivals(fan_in.arrival, fan_in.clients, client, &spans, &mut random);
                let needed = due.len() * fan_in.events;
                ensure!(
                    needed <= eligible.len(),
                    "{} sessions of {} events need {needed} of {}; there are {}",
                    due.len(),
                    fan_in.events,
                    named(fan_in.kinds.as_deref()),
                    eligible.len()
                );
                let first = self.roles.len();
                let reader = self.readers;
                let task = || Task::Reader(Reading { reader, peeks });
                let speaks = self.speaks(fan_in.format, fan_in.compression, fan_in.link.as_ref());
                let roles: Vec<_> = (0..fan_in.relays).map(|_| Role::new(label, speaks, task())).collect();
                self.roles.extend(roles);
                self.readers += 1;
                let mut drawn = eligible.clone();
                let drawn = random.draw(&mut drawn, needed).to_vec();
                for (due, events_of) in due.into_iter().enumerate().zip(drawn.chunks(fan_in.events)) {
                    let brings = share_out(fan_in, events_of, &mut random);
                    for (relay, brings) in brings.into_iter().enumerate() {
                        let requests = requests(fan_in, &brings, &self.events);
                        let steps = if requests.is_empty() { Vec::new() } else { vec![requests] };
                        let session = Session::new(fan_in.arrival, first + relay, due);
                        self.sessions.push(Session { steps, ..session });
                    }
                }
            }
        }
        Ok(())
    }
}

/// Draws what each relay brings: every event from one relay, and some of them again from others.
fn share_out(fan_in: &FanIn, events: &[u32], random: &mut Random) -> Vec<Vec<u32>> {
    let mut brings = vec![Vec::new(); fan_in.relays];
    let mut again = Vec::new();
    for event in events {
        let first = random.below(fan_in.relays);
        brings[first].push(*event);
        again.extend((0..fan_in.relays).filter(|relay| *relay != first).map(|relay| (relay, *event)));
    }
    for (relay, event) in random.draw(&mut again, repeats(events.len(), fan_in.duplicates)) {
        brings[*relay].push(*event);
    }
    brings
}

/// How many deliveries must repeat one of `events` for repeats to be this share of all deliveries.
fn repeats(events: usize, share: f64) -> usize {
    measure::whole((events as f64 * share / (1.0 - share)).round())
}

/// The requests to one relay in a session.
fn requests(fan_in: &FanIn, brings: &[u32], events: &[Event<'static>]) -> Vec<PlannedRequest> {
    let requests = brings.chunks(fan_in.chunk).map(|chunk| {
        let mut expected = chunk.to_vec();
        expected.sort_unstable();
        let ids = chunk.iter().map(|event| events[*event as usize].id).collect();
        PlannedRequest { filter: Filter { ids: Some(ids), ..Filter::default() }, expected }
    });
    requests.collect()
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{HashMap, HashSet},
        time::Duration,
    };

    use codecs::Format;

    use super::*;
    use crate::{inputs::plan_over, plan::tests::few};

    fn plan(set: &[&str]) -> Workload {
        let set: Vec<_> = set.iter().map(|set| (*set).to_owned()).collect();
        let scenario = Scenario::load_with("duplicate-fan-in", &set).unwrap();
        plan_over(&scenario, &few(700), 1, &[Format::JSON]).unwrap()
    }

    /// The events of one client's sessions, by the instant at which they are due.
    fn of_client(workload: &Workload, client: usize) -> HashMap<Duration, Vec<u32>> {
        let mut rounds: HashMap<_, Vec<u32>> = HashMap::new();
        for session in &workload.sessions {
            let Task::Reader(Reading { reader, .. }) = workload.roles[session.connection].task else {
                panic!()
            };
            if reader == client {
                let events = session.steps.iter().flatten().flat_map(|request| &request.expected);
                rounds.entry(session.at).or_default().extend(events);
            }
        }
        rounds
    }

    #[test]
    fn each_event_comes_once_from_a_relay_and_the_stated_share_comes_again() {
        for share in [0.0, 0.14, 0.36, 0.57, 0.75] {
            let set = ["fan_in.events=60".to_owned(), format!("fan_in.duplicates={share}")];
            let workload = plan(&set.each_ref().map(String::as_str));
            let mut repeats = 0;
            for client in 0..4 {
                let rounds = of_client(&workload, client);
                assert_eq!(rounds.len(), 2, "two bursts");
                let mut met = HashSet::new();
                for events in rounds.values() {
                    let different: HashSet<_> = events.iter().collect();
                    assert_eq!(different.len(), 60);
                    assert!(different.iter().all(|event| met.insert(**event)), "no event in two sessions");
                    let again = events.len() - different.len();
                    repeats += again as u64;
                    let found = again as f64 / events.len() as f64;
                    assert!((found - share).abs() < 0.01, "{share}: {found}");
                }
            }
            assert_eq!(workload.repeats(|_| true), repeats);
        }
    }

    #[test]
    fn too_few_events_are_an_error_that_counts_them() {
        let scenario = Scenario::load("duplicate-fan-in").unwrap();
        let error = format!("{:#}", plan_over(&scenario, &few(300), 1, &[Format::JSON]).unwrap_err());
        assert!(error.contains("need 1200 of kinds 0, 1, 7; there are"), "{error}");
    }
}
