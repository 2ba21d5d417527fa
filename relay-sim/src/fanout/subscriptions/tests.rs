use super::*;
use crate::testing::{Random, event};

fn matched(subscriptions: &mut Subscriptions, event: &Event<'_>) -> Vec<String> {
    let mut names = Vec::new();
    subscriptions.matching(event, |subscription| names.push(subscription.name.clone()));
    names.sort();
    names
}

fn assert_nothing_is_left(subscriptions: &Subscriptions) {
    let Subscriptions { slots, index, .. } = subscriptions;
    assert!(slots.is_empty() && index.places.is_empty() && index.tags == 0);
}

#[test]
fn the_index_finds_what_looking_at_every_filter_finds() {
    for seed in 0..10 {
        let mut random = Random::new(seed, 999..1_002, 4);
        random.letters.push('é');
        let outbox = Outbox::new(0);
        let mut subscriptions = Subscriptions::default();
        let mut open: Vec<(Arc<Subscription>, Vec<Filter>)> = Vec::new();
        let mut ended: Vec<Arc<Subscription>> = Vec::new();
        let mut found = 0;
        for step in 0..1_000 {
            match random.below(5) {
                0 if !open.is_empty() => {
                    let (closed, _) = open.swap_remove(random.below(open.len()));
                    subscriptions.remove(&closed);
                    assert!(closed.ended());
                    ended.push(closed);
                    // Again, when its slot may be a successor's.
                    subscriptions.remove(&ended[random.below(ended.len())]);
                }
                0..3 => {
                    let filters: Vec<_> = (0..=random.below(3)).map(|_| random.filter()).collect();
                    let name = step.to_string();
                    let added = subscriptions.add(name, Format::JSON, Arc::clone(&outbox), filters.clone());
                    open.push((added, filters));
                }
                _ => {
                    let event = random.event(0);
                    let matches = |filters: &[Filter]| filters.iter().any(|filter| filter.matches(&event));
                    let mut expected: Vec<_> = open
                        .iter()
                        .filter(|(_, filters)| matches(filters))
                        .map(|(subscription, _)| subscription.name.clone())
                        .collect();
                    expected.sort();
                    found += expected.len();
                    let context = format!("seed {seed}, step {step}: {event:?}");
                    assert_eq!(matched(&mut subscriptions, &event), expected, "{context}");
                }
            }
        }
        assert!(found > 1_000, "seed {seed}: so few matches ({found}) prove nothing");
        open.iter().for_each(|(subscription, _)| subscriptions.remove(subscription));
        assert_nothing_is_left(&subscriptions);
    }
}

#[test]
fn an_event_looks_at_the_feeds_that_have_its_author_however_many_there_are() {
    const AUTHORS_OF_A_FEED: usize = 200;
    let key = |author: usize| {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&author.to_le_bytes());
        key
    };
    for feeds in [1_000, 10_000] {
        let outbox = Outbox::new(0);
        let mut subscriptions = Subscriptions::default();
        // As many authors as feeds, so that each author is in 200 of them.
        let step = feeds / AUTHORS_OF_A_FEED;
        let feed = |n: usize| {
            let authors = (0..AUTHORS_OF_A_FEED).map(|k| key((n + k * step) % feeds)).collect();
            Filter { authors: Some(authors), kinds: Some(vec![1, 6]), ..Filter::default() }
        };
        let mut open: Vec<_> = (0..feeds)
            .map(|n| subscriptions.add(n.to_string(), Format::JSON, Arc::clone(&outbox), vec![feed(n)]))
            .collect();
        let cost = |subscriptions: &mut Subscriptions, event: &Event<'_>| {
            (matched(subscriptions, event).len(), subscriptions.take_looked_at())
        };
        let note = Event { pubkey: key(7), ..event(1) };
        assert_eq!(cost(&mut subscriptions, &note), (200, 200), "{feeds} feeds");
        let other_kind = Event { kind: 7, ..note.clone() };
        assert_eq!(cost(&mut subscriptions, &other_kind), (0, 200), "{feeds} feeds");
        let stranger = Event { pubkey: [0xff; 32], ..note.clone() };
        assert_eq!(cost(&mut subscriptions, &stranger), (0, 0), "{feeds} feeds");
        // Half of the feeds that have author 7 end: those of the other half are looked at.
        open.retain(|feed| {
            let n: usize = feed.name.parse().unwrap();
            let ends = (n + feeds - 7).is_multiple_of(2 * step);
            if ends {
                subscriptions.remove(feed);
            }
            !ends
        });
        assert_eq!(cost(&mut subscriptions, &note), (100, 100), "{feeds} feeds");
    }
}
