//! Tests of what a load multiplies, and what it leaves as it is.

use std::time::Duration;

use codecs::Format;
use corpus::Corpus;

use crate::{Workload, inputs::plan_over, plan_facts::PlanFacts, scenario::Scenario};

/// A sum over a plan, with its name.
type Sum = (&'static str, fn(&PlanFacts) -> u64);

const SUMS: [Sum; 6] = [
    ("publications", |facts| facts.published),
    ("sessions", |facts| facts.sessions),
    ("requests", |facts| facts.requests),
    ("stored deliveries", |facts| facts.stored_deliveries),
    ("live deliveries", |facts| facts.live_deliveries),
    ("bytes of deliveries", |facts| facts.delivered_json_bytes),
];

fn scenario(name: &str, load: f64) -> Scenario {
    let mut scenario = super::scenario(name);
    if name == "publish-flood" {
        scenario.set_seconds(0.4).unwrap();
    }
    scenario.set_load(load);
    scenario
}

fn plan(scenario: &Scenario, corpus: &Corpus) -> Workload {
    plan_over(scenario, corpus, 1, &[Format::JSON]).unwrap()
}

/// Fails unless the sums of a plan are so many times those of another. Arrivals are random, some of
/// two hundred.
fn assert_times(load: f64, (one, other): (&Workload, &Workload), name: &str) {
    let (one, other) = (PlanFacts::from_workload(one), PlanFacts::from_workload(other));
    for (what, sum) in SUMS {
        let (one, other) = (sum(&one) as f64, sum(&other) as f64);
        assert!((other - load * one).abs() <= 0.15 * load * one, "{name}, {load}, {what}: {one}, {other}");
    }
}

/// The number of connections of each population, in the order of a plan's connections.
fn populations(scenario: &Scenario) -> Vec<usize> {
    scenario.populations().map(|population| population.connections).collect()
}

/// The instants at which each connection of each population is due to publish, and to begin, leave
/// and repeat a session.
fn due(scenario: &Scenario, plan: &Workload) -> Vec<Vec<Vec<Duration>>> {
    let mut due = vec![Vec::new(); plan.roles.len()];
    for publication in &plan.publications {
        due[publication.connection].push(publication.at);
    }
    for session in &plan.sessions {
        due[session.connection].extend([session.at, session.at + session.stay, session.at + session.think]);
    }
    let mut due = due.into_iter();
    let of = |connections| due.by_ref().take(connections).collect();
    let populations = populations(scenario).into_iter().map(of).collect();
    assert_eq!(due.next(), None, "every connection is one of a population");
    populations
}

#[test]
fn a_load_multiplies_every_scenario_and_leaves_each_client_its_pace() {
    let corpus = Corpus::bundled();
    for name in Scenario::names() {
        let (one, two) = (scenario(name, 1.0), scenario(name, 2.0));
        let (plan_one, plan_two) = (plan(&one, &corpus), plan(&two, &corpus));
        assert_times(2.0, (&plan_one, &plan_two), name);
        for (one, two) in due(&one, &plan_one).into_iter().zip(due(&two, &plan_two)) {
            assert!(two.len() == 2 * one.len() || one == two || two.iter().all(Vec::is_empty), "{name}");
            for (one, two) in one.into_iter().zip(two) {
                assert_eq!(one.len(), two.len(), "{name}");
                let gaps = |due: &[Duration]| -> Vec<Duration> {
                    due.windows(2).map(|pair| pair[1].abs_diff(pair[0])).collect()
                };
                let same = gaps(&one).into_iter().zip(gaps(&two));
                assert!(same.into_iter().all(|(one, two)| one.abs_diff(two).as_micros() <= 1), "{name}");
            }
        }
    }
}

#[test]
fn a_part_of_a_load_is_a_part_of_the_authors_and_their_events() {
    let corpus = Corpus::bundled();
    for (name, rate) in [("mixed-day", 300.0), ("reaction-storm", 100.0), ("note-stream", 100.0)] {
        let at = |load| {
            let mut scenario = scenario(name, load);
            scenario.set_publish_rate(rate * load).unwrap();
            plan(&scenario, &corpus)
        };
        let one = at(1.0);
        for load in [0.6, 2.5] {
            assert_times(load, (&one, &at(load)), name);
        }
    }
    let least = scenario("mixed-day", 1e-6);
    assert_eq!(populations(&least), [1; 4], "one client at least");
    let plan = plan(&least, &corpus);
    assert_eq!((plan.publications.len(), plan.sessions.len()), (0, 0));
}

#[test]
fn subscribers_that_take_from_anyone_keep_their_number() {
    assert_eq!(populations(&scenario("slow-consumer", 3.0)), [24, 90, 8, 2]);
    assert_eq!(populations(&scenario("mixed-day", 3.0)), [60, 120, 120, 60]);
}
