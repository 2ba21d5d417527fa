//! Sampling and fresh events: reproducible, and what they claim to be.

use std::collections::HashSet;

use codecs::VerifyLevel;
use corpus::{Corpus, Fingerprint, Sampler, fresh};

#[test]
fn a_sample_has_no_repeats_and_a_longer_one_begins_with_it() {
    let corpus = Corpus::bundled();
    let sampler = Sampler::new(7);
    let all = sampler.indices(&corpus.events, usize::MAX);
    assert_eq!(all.iter().collect::<HashSet<_>>().len(), corpus.events.len());
    assert_eq!(sampler.indices(&corpus.events, 100), all[..100]);
    assert_ne!(Sampler::new(8).indices(&corpus.events, 100), all[..100]);
    let events = sampler.take(&corpus.events, 100);
    assert!(events.iter().zip(&all).all(|(event, &i)| **event == corpus.events[i]));
}

#[test]
fn the_sequence_of_a_seed_never_changes() {
    // Results name a seed; other numbers here would make older results irreproducible.
    let corpus = Corpus::bundled();
    assert_eq!(Sampler::new(1).indices(&corpus.events[..100], 8), [59, 71, 80, 10, 74, 40, 76, 21]);
}

#[test]
fn the_kind_filter_keeps_only_those_kinds() {
    let corpus = Corpus::bundled();
    let lists = Sampler::new(1).kinds(&[3, 10002]).take(&corpus.events, usize::MAX);
    let kinds = corpus.kinds();
    assert_eq!(lists.len(), kinds[&3] + kinds[&10002]);
    assert!(lists.iter().all(|event| [3, 10002].contains(&event.kind)));
    assert!(Sampler::new(1).kinds(&[]).take(&corpus.events, 5).is_empty());
}

#[test]
fn fresh_events_are_valid_and_new() {
    let corpus = Corpus::bundled();
    let templates = Sampler::new(3).take(&corpus.events, 90);
    let events = fresh::events(&templates, 200, 42);
    let mut ids: HashSet<_> = templates.iter().map(|event| event.id).collect();
    for (i, event) in events.iter().enumerate() {
        let template = templates[i % templates.len()];
        event.verify(VerifyLevel::Full).unwrap();
        assert!(ids.insert(event.id), "event {i} repeats an id");
        assert_ne!(event.pubkey, template.pubkey);
        assert_eq!(
            (event.kind, &event.tags, &event.content),
            (template.kind, &template.tags, &template.content)
        );
    }
    assert_eq!(Fingerprint::of(&events), Fingerprint::of(&fresh::events(&templates, 200, 42)));
    assert_eq!(events[..50], fresh::events(&templates, 50, 42));
    assert_ne!(events[0].pubkey, fresh::events(&templates, 1, 43)[0].pubkey);
}

#[test]
fn fresh_authors_are_as_busy_as_those_of_the_templates() {
    let corpus = Corpus::bundled();
    let templates: Vec<_> = corpus.events.iter().take(300).collect();
    let events = fresh::events(&templates, 600, 1);
    let authors = |events: &mut dyn Iterator<Item = [u8; 32]>| events.collect::<HashSet<_>>().len();
    let before = authors(&mut templates.iter().map(|event| event.pubkey));
    assert_eq!(authors(&mut events.iter().take(300).map(|event| event.pubkey)), before);
    assert_eq!(authors(&mut events.iter().map(|event| event.pubkey)), 2 * before);
}

#[test]
fn a_template_given_twice_makes_two_events() {
    let corpus = Corpus::bundled();
    let templates = [&corpus.events[0], &corpus.events[0], &corpus.events[1]];
    let events = fresh::events(&templates, 9, 1);
    assert_eq!(events.iter().map(|event| event.id).collect::<HashSet<_>>().len(), 9);
}

#[test]
fn no_fresh_events_need_no_templates() {
    assert!(fresh::events(&[], 0, 1).is_empty());
}
