//! The generator keeps its promises, and the bundled sample is what it makes.

use std::collections::{BTreeMap, HashSet};

use codecs::VerifyLevel;
use corpus::{Corpus, Fingerprint, Origin, generate};

#[test]
fn the_bundled_sample_is_what_the_generator_makes() {
    // After a deliberate change: cargo run --release -p corpus -- generate --events 5000 --seed 1 --out data/sample.pb.gz
    let events = generate::events(5_000, 1, |_| ()).unwrap();
    let bundled = Corpus::bundled();
    assert!(events == bundled.events, "data/sample.pb.gz is not what the generator makes; see above");
    assert_eq!(bundled.name, "sample.pb.gz");
}

#[test]
fn the_bundled_sample_is_valid_and_large_enough() {
    let corpus = Corpus::bundled();
    assert!(corpus.events.len() >= 5_000);
    assert_eq!(corpus.duplicates_dropped, 0);
    assert_eq!(corpus.origin, Origin::Generated);
    for event in &corpus.events {
        event.verify(VerifyLevel::Full).unwrap();
    }
}

#[test]
fn the_bundled_sample_has_the_kind_mix_of_the_audit() {
    let kinds = Corpus::bundled().kinds();
    // Per 5,000, from an audit of 50,000 real events.
    for (kind, expected) in
        [(1, 2112), (7, 595), (4, 430), (3, 285), (0, 257), (10002, 214), (1059, 175), (9735, 78)]
    {
        assert!(kinds[&kind].abs_diff(expected) <= 1, "kind {kind}: {} instead of {expected}", kinds[&kind]);
    }
}

#[test]
fn the_bundled_follow_lists_spread_over_three_decades() {
    let corpus = Corpus::bundled();
    let mut lengths = Vec::new();
    for event in corpus.events.iter().filter(|event| event.kind == 3) {
        let follows: Vec<_> = event.tags.iter().filter(|tag| tag[0] == "p").map(|tag| &tag[1]).collect();
        assert_eq!(follows.iter().collect::<HashSet<_>>().len(), follows.len(), "nobody is followed twice");
        lengths.push(follows.len());
    }
    lengths.sort_unstable();
    assert!(lengths.len() >= 100);
    let median = lengths[lengths.len() / 2];
    assert!((30..=60).contains(&median), "median {median}");
    assert!(lengths.iter().filter(|&&n| n >= 1_000).count() >= 5, "{lengths:?}");
    let longest = lengths[lengths.len() - 1];
    assert!((1_900..=2_000).contains(&longest), "longest {longest}");
}

#[test]
fn a_relay_that_loads_the_sample_keeps_every_event() {
    let corpus = Corpus::bundled();
    let ids: HashSet<_> = corpus.events.iter().map(|event| codecs::hex::encode(&event.id)).collect();
    let mut newest = BTreeMap::new();
    for event in &corpus.events {
        let address = match event.kind {
            0 | 3 | 10_000..=19_999 => Some((event.kind, event.pubkey, String::new())),
            30_000..=39_999 => {
                let d = event.first_tag_value("d").expect("addressable events have a d tag");
                Some((event.kind, event.pubkey, d.to_owned()))
            }
            _ => None,
        };
        if let Some(address) = address {
            assert!(
                newest.insert(address, event.id).is_none(),
                "an event of kind {} is replaced",
                event.kind
            );
        }
        assert!(!(20_000..30_000).contains(&event.kind), "relays do not store ephemeral events");
        for tag in &event.tags {
            if event.kind == 5 && tag[0] == "e" {
                assert!(!ids.contains(&*tag[1]), "a deletion deletes an event of the sample");
            }
            if tag[0] == "expiration" {
                assert!(tag[1].parse::<u64>().unwrap() > 4_000_000_000, "an event of the sample expires");
            }
        }
    }
}

#[test]
fn events_of_a_seed_never_change() {
    let fingerprint =
        |count, seed| Fingerprint::of(&generate::events(count, seed, |_| ()).unwrap()).to_string();
    let small = fingerprint(200, 1);
    assert_eq!(small, fingerprint(200, 1));
    assert_ne!(small, fingerprint(200, 2));
    assert_eq!(small, "d9b911a9be640f31d31c952482dc1552bf6efa43e4873dbbbb82dc27699e7ed6");
}

#[test]
fn sizes_at_the_edges_work_and_too_many_is_an_error() {
    for count in [0, 1, 2, 50] {
        let mut told = 0;
        let events = generate::events(count, 3, |done| told = done).unwrap();
        assert_eq!((events.len(), told), (count, count));
    }
    let error = generate::events(1_000_000, 1, |_| ()).unwrap_err().to_string();
    assert!(error.contains("at most 71884 events"), "{error}");
}
