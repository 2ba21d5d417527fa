//! Sampling: reproducible, and what it claims to be.

use std::collections::HashSet;

use corpus::{Corpus, Sampler};

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
