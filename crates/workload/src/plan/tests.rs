mod load;

use std::collections::HashSet;

use super::*;
use crate::inputs::plan_over;

/// A part of the bundled corpus: planning with all of it takes longer without optimisation.
pub(crate) fn few(events: usize) -> Corpus {
    let mut corpus = Corpus::bundled();
    corpus.events.truncate(events);
    corpus
}

pub(crate) fn scenario(name: &str) -> Scenario {
    let mut scenario = Scenario::load(name).unwrap();
    scenario.set_publish_rate(100.0).ok(); // where it has one: a signature is slow without optimisation
    scenario
}

fn plan(name: &str, seed: u64) -> Workload {
    let formats: Vec<_> = Format::core().collect();
    plan_over(&scenario(name), &few(700), seed, &formats).unwrap()
}

#[test]
fn a_session_expects_exactly_the_stored_events_that_match() {
    let workload = plan("follow-list-burst", 1);
    let lists: Vec<_> = workload.sessions.iter().filter(|session| session.steps.len() == 2).collect();
    assert_eq!(lists.len(), 100, "50 clients, two bursts");
    for session in lists {
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
fn each_pass_requests_every_stored_event_that_sessions_ask_for_once() {
    for scenario in ["follow-list-burst", "negentropy-sync"] {
        let workload = plan(scenario, 1);
        let asked = workload.asked();
        assert!(!asked.is_empty() && asked.iter().all(|event| (*event as usize) < workload.stored));
        for session in &workload.sessions {
            let lacks = session.reconciliation.iter().flat_map(|one| &one.lacks);
            let expected = session.steps.iter().flatten().flat_map(|request| &request.expected);
            assert!(expected.chain(lacks).all(|event| asked.binary_search(event).is_ok()), "{scenario}");
        }
        let passes = workload.passes(&asked, 3, Speaks::default()).unwrap();
        assert_eq!((passes.sessions.len(), passes.publications.len()), (3, 0));
        for session in &passes.sessions {
            let requests = || session.steps.iter().flatten();
            let sent: Vec<u32> = requests().flat_map(|request| request.expected.clone()).collect();
            assert_eq!(sent, asked, "{scenario}");
            for request in requests() {
                let matches = |event: &u32| request.filter.matches(&passes.events[*event as usize]);
                assert!(request.expected.iter().all(matches), "{scenario}");
            }
        }
    }
    assert!(plan("note-stream", 1).asked().is_empty());
}

#[test]
fn every_publication_is_an_event_of_its_own_and_knows_who_gets_it() {
    let workload = plan("mixed-day", 1);
    let ids: HashSet<_> = workload.events.iter().map(|e| e.id).collect();
    assert_eq!(ids.len(), workload.events.len());
    assert!(workload.publications.is_sorted());
    for (n, publication) in workload.publications.iter().enumerate() {
        assert_eq!(workload.publication_of(publication.event), Some(n));
        assert_eq!(workload.find(&workload.events[publication.event as usize].id), Some(publication.event));
    }
    assert!(workload.fan_out().iter().sum::<u32>() > 0, "somebody reads");
    assert_eq!(workload.publication_of(0), None, "stored events are not published");
}
