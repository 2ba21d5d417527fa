//! The generator keeps its promises, and so does the bundled sample.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use codecs::{Event, VerifyLevel};
use corpus::{
    Corpus, Fingerprint, Origin,
    generate::{self, Generator, Mix},
};

use crate::json;

#[test]
fn the_bundled_sample_is_what_the_generator_makes() {
    let bundled = Corpus::bundled();
    // After a change to the generator: the command in data/README.md, then its fingerprint here.
    assert_eq!(Fingerprint::from_events(&generate::events(5_000, 1, |_| ())), bundled.fingerprint);
    assert_eq!(
        bundled.fingerprint.to_string(),
        "660b008375e50b9248ec6af26e3c1d10e2b2d6cb9e0353633d8d08e24f02a838"
    );
    assert_eq!(bundled.name, "sample.pb.gz");
}

#[test]
fn a_relay_that_loads_the_sample_keeps_every_event() {
    check_that_a_relay_keeps_all(&Corpus::bundled().events);
}

#[test]
fn a_relay_that_loads_generated_events_keeps_every_one() {
    // More relay lists than authors, so that some have a key of their own.
    let mix = Mix { kinds: [(10_002, 20), (5, 1), (30_078, 1), (1, 2)].into() };
    check_that_a_relay_keeps_all(&Generator::new(&mix, 5_200, 4).events(|_| ()));
}

fn check_that_a_relay_keeps_all(events: &[Event<'_>]) {
    let ids: HashSet<_> = events.iter().map(|event| codecs::hex::encode(&event.id)).collect();
    let mut newest = BTreeMap::new();
    for event in events {
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
fn strict_events_are_taken_by_common_relays_and_otherwise_as_many_and_as_varied() {
    let refused = |events: &[Event<'_>]| {
        let why = |event: &Event<'_>| corpus::rules::COMMON.refuses(event, json_bytes(event));
        events.iter().filter_map(why).collect::<BTreeSet<_>>()
    };
    let usual = generate::events(3_000, 1, |_| ());
    let strict = Generator::new(&Mix::audit(), 3_000, 1).strict().events(|_| ());
    assert_eq!(refused(&usual).len(), 2, "large events and odd references: {:?}", refused(&usual));
    assert_eq!(refused(&strict), BTreeSet::new());
    assert_eq!(
        Corpus::from_events(String::new(), usual.clone()).kinds(),
        Corpus::from_events(String::new(), strict.clone()).kinds()
    );
    let largest = strict.iter().map(json_bytes).max().unwrap();
    assert!((55_000..=65_536).contains(&largest), "cut to what is taken and no further: {largest}");
    assert_eq!(origin(&strict), Origin::Generated);
    strict.iter().for_each(|event| event.verify(VerifyLevel::Full).unwrap());
    check_that_a_relay_keeps_all(&strict);
}

fn origin(events: &[Event<'static>]) -> Origin {
    Corpus::from_events(String::new(), events.to_vec()).origin
}

fn json_bytes(event: &Event<'_>) -> u64 {
    json(event).len() as u64
}

/// A dictionary is tried on events of the sample: of them it has learned nothing.
#[test]
fn events_elsewhere_share_no_author_id_or_day_with_the_sample() {
    let events = Generator::new(&Mix::audit(), 5_000, 1).elsewhere().events(|_| ());
    assert_eq!(origin(&events), Origin::Generated);
    events[..1_000].iter().for_each(|event| event.verify(VerifyLevel::Full).unwrap());
    let sample = Corpus::bundled();
    // Ids and keys, also in tags and content.
    let named = |events: &[Event<'_>]| {
        let mut named = HashSet::new();
        for event in events {
            named.extend([event.id, event.pubkey].map(|bytes| codecs::hex::encode(&bytes)));
            let values = event.tags.iter().flatten();
            named.extend(values.filter(|value| value.len() == 64).map(ToString::to_string));
        }
        named
    };
    let (theirs, ours) = (named(&events), named(&sample.events));
    assert!(ours.len() > 20_000 && theirs.len() > 10_000, "{} {}", ours.len(), theirs.len());
    assert_eq!(theirs.intersection(&ours).count(), 0);
    let last = events.iter().map(|event| event.created_at).max().unwrap();
    let first = sample.events.iter().map(|event| event.created_at).min().unwrap();
    assert!(last / 86_400 < first / 86_400, "{last} {first}");
}

#[test]
fn events_of_any_number_are_valid_in_order_and_recognized_and_follow_the_seed() {
    for count in [0, 1, 2, 50, 1_001] {
        let mut told = 0;
        let events = generate::events(count, 3, |done| told = done);
        assert_eq!((events.len(), told), (count, count));
        events.iter().for_each(|event| event.verify(VerifyLevel::Full).unwrap());
        assert!(events.is_sorted_by_key(|event| event.created_at));
        assert_eq!(origin(&events) == Origin::Generated, count > 0);
    }
    let of_seed = |seed| Fingerprint::from_events(&generate::events(50, seed, |_| ()));
    assert_ne!(of_seed(3), of_seed(4));
}

#[test]
fn a_failing_reader_ends_the_work() {
    let generator = Generator::new(&Mix::audit(), u64::MAX, 1);
    let mut blocks = 0;
    let result = generator.stream(|_| {
        blocks += 1;
        if blocks == 3 { Err("disk full") } else { Ok(()) }
    });
    assert_eq!((result, blocks), (Err("disk full"), 3));
}
