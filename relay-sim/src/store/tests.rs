//! The rules of the store as stories, and its indexes against a plain scan.

use std::cmp::Reverse;

use codecs::{Event, Format, TagFilter};

use super::{index::MAX_CHUNK, *};
use crate::{
    config::Config,
    testing::{Random, event},
};

mod disk;

const ME: [u8; 32] = [7; 32];

/// The limit of a filter, 500 without one.
fn limit(filter: &Filter) -> usize {
    filter.limit.map_or(500, |limit| usize::try_from(limit).unwrap())
}

/// One step of a story: an event, and what becomes of it.
type Step = (Event<'static>, Outcome);

fn tag(name: &'static str, value: String) -> Vec<std::borrow::Cow<'static, str>> {
    vec![name.into(), value.into()]
}

fn deletion(id: u8, created_at: i64, tags: Vec<(&'static str, String)>) -> Event<'static> {
    let tags = tags.into_iter().map(|(name, value)| tag(name, value)).collect();
    Event { kind: DELETION, created_at, tags, ..event(id) }
}

fn hex_id(id: u8) -> String {
    hex::encode(&event(id).id)
}

/// Plays the steps and then asks for everything: only `left` may be there, in that order.
fn check(title: &str, steps: Vec<Step>, left: &[u8]) {
    let mut store = Store::new(1 << 20);
    for (n, (event, expected)) in steps.into_iter().enumerate() {
        let outcome = insert(&mut store, &event);
        assert_eq!(outcome, expected, "{title}: step {n}");
    }
    assert_eq!(ids(&mut store, &[Filter::default()]), left, "{title}");
    assert_eq!(ids(&mut store, &[Filter { authors: Some(vec![ME, [8; 32]]), ..Filter::default() }]), left);
    assert_eq!(store.len(), left.len(), "{title}");
}

fn insert(store: &mut Store, event: &Event<'_>) -> Outcome {
    store.insert(&Arc::new(StoredEvent::new(event, store.encodings())))
}

fn ids(store: &mut Store, filters: &[Filter]) -> Vec<u8> {
    store.query(filters, limit).iter().map(|stored| stored.head().id[0]).collect()
}

#[test]
fn each_class_of_kinds_keeps_what_nip_01_says() {
    use Outcome::{Deleted, Duplicate, Ephemeral, Stored, Superseded};
    let of = |kind, id, created_at| Event { kind, created_at, ..event(id) };
    let d =
        |id, created_at, d: &str| Event { tags: vec![tag("d", d.to_owned())], ..of(30_000, id, created_at) };
    let by = |pubkey, event| Event { pubkey, ..event };
    let address = |kind: u16, d: &str| format!("{kind}:{}:{d}", hex::encode(&ME));
    check("regular events pile up", vec![(of(1, 1, 5), Stored), (of(1, 2, 6), Stored)], &[2, 1]);
    check("a known id is a duplicate", vec![(of(1, 1, 5), Stored), (of(1, 1, 5), Duplicate)], &[1]);
    check("ephemeral events are not kept", vec![(of(20_000, 1, 5), Ephemeral)], &[]);
    for kind in [0, 3, 10_000, 19_999, 30_000, 39_999] {
        check("the newest is kept", vec![(of(kind, 1, 5), Stored), (of(kind, 2, 6), Stored)], &[2]);
        check("an older one is refused", vec![(of(kind, 1, 5), Stored), (of(kind, 2, 4), Superseded)], &[1]);
        check("a tie keeps the lowest id", vec![(of(kind, 2, 5), Stored), (of(kind, 1, 5), Stored)], &[1]);
        check("whichever comes first", vec![(of(kind, 1, 5), Stored), (of(kind, 2, 5), Superseded)], &[1]);
    }
    check(
        "authors replace only their own",
        vec![(of(0, 1, 5), Stored), (by([8; 32], of(0, 2, 6)), Stored)],
        &[2, 1],
    );
    check("kinds do not replace each other", vec![(of(0, 1, 5), Stored), (of(3, 2, 6), Stored)], &[2, 1]);
    check(
        "addressable events differ by d, and none is the empty one",
        vec![
            (d(1, 5, "a"), Stored),
            (d(2, 5, "b"), Stored),
            (of(30_000, 3, 5), Stored),
            (d(4, 6, ""), Stored),
            (d(5, 6, "a"), Stored),
        ],
        &[4, 5, 2],
    );
    check(
        "an event that was superseded is refused again",
        vec![(of(0, 1, 5), Stored), (of(0, 2, 6), Stored), (of(0, 1, 5), Superseded)],
        &[2],
    );
    check(
        "a deleted event stays away",
        vec![(of(1, 1, 5), Stored), (deletion(9, 6, vec![("e", hex_id(1))]), Stored), (of(1, 1, 5), Deleted)],
        &[9],
    );
    check(
        "a deletion may come first",
        vec![(deletion(9, 6, vec![("e", hex_id(1))]), Stored), (of(1, 1, 5), Deleted)],
        &[9],
    );
    check(
        "nobody deletes what is not theirs",
        vec![
            (of(1, 1, 5), Stored),
            (by([8; 32], deletion(8, 6, vec![("e", hex_id(1)), ("e", hex_id(2))])), Stored),
            (of(1, 2, 5), Stored),
        ],
        &[8, 1, 2],
    );
    check(
        "a deletion cannot be deleted",
        vec![
            (deletion(1, 5, vec![]), Stored),
            (deletion(2, 6, vec![("e", hex_id(1)), ("e", hex_id(3))]), Stored),
            (deletion(3, 7, vec![]), Stored),
        ],
        &[3, 2, 1],
    );
    check(
        "an address is deleted up to the deletion's time",
        vec![
            (d(1, 5, "a"), Stored),
            (deletion(9, 6, vec![("a", address(30_000, "a"))]), Stored),
            (d(2, 6, "a"), Deleted),
            (d(3, 7, "a"), Stored),
            (deletion(8, 6, vec![("a", address(30_000, "a"))]), Stored),
        ],
        &[3, 8, 9],
    );
    check(
        "an address may hold colons",
        vec![(d(1, 5, "x:y"), Stored), (deletion(9, 6, vec![("a", address(30_000, "x:y"))]), Stored)],
        &[9],
    );
    check(
        "a deleted version makes room for any other",
        vec![(of(0, 1, 5), Stored), (deletion(9, 6, vec![("e", hex_id(1))]), Stored), (of(0, 2, 4), Stored)],
        &[9, 2],
    );
    check(
        "malformed tags of a deletion are passed over",
        vec![
            (of(1, 1, 5), Stored),
            (
                deletion(
                    9,
                    6,
                    vec![
                        ("e", "not hex".into()),
                        ("a", "1:2".into()),
                        ("a", "70000::".into()),
                        ("a", format!("1:{}:", hex::encode(&ME))),
                        ("e", String::new()),
                    ],
                ),
                Stored,
            ),
        ],
        &[9, 1],
    );
}

/// 200 events by 5 authors in 4 kinds, two in each second.
fn filled() -> (Store, Vec<Event<'static>>) {
    let mut store = Store::new(1 << 20);
    let events: Vec<_> = (0..200)
        .map(|n: u8| Event {
            pubkey: [n % 5; 32],
            kind: [1, 6, 7, 1_984][usize::from(n % 4)],
            created_at: i64::from(n / 2),
            tags: vec![tag("t", format!("{}", n % 3)), tag("p", format!("{}", n % 7))],
            ..event(n)
        })
        .collect();
    for event in &events {
        assert_eq!(insert(&mut store, event), Outcome::Stored);
    }
    (store, events)
}

/// The cost of a REQ, as candidates that are looked at, follows from what it returns and not from
/// what is stored.
fn check_cost(events: u32) {
    let mut store = Store::new(usize::MAX);
    let person = |n: u32| format!("{n:064x}");
    for n in 0..events {
        let mut id = [0; 32];
        id[..4].copy_from_slice(&n.wrapping_mul(0x9e37_79b1).to_be_bytes());
        // Half are one author's, a tenth is of a rare kind, everybody is named by ten events in a
        // row, and one tag is in all.
        let mut pubkey = [1; 32];
        if n % 2 == 1 {
            pubkey[..4].copy_from_slice(&(n / 100).to_be_bytes());
        }
        let event = Event {
            id,
            pubkey,
            kind: if n % 10 == 3 { 7 } else { 1 },
            created_at: n.into(),
            tags: vec![
                tag("p", person(n / 10)),
                tag("t", "nostr".to_owned()),
                tag("x", format!("{}", n % 4)),
            ],
            content: "".into(),
            sig: [0; 64],
        };
        assert_eq!(insert(&mut store, &event), Outcome::Stored);
    }
    let condition = |letter, value: &str| TagFilter { letter, values: vec![value.to_owned()] };
    let (p, t, x) = (condition('p', &person(events / 20)), condition('t', "nostr"), condition('x', "1"));
    let id = events.wrapping_div(2).wrapping_mul(0x9e37_79b1).to_be_bytes();
    let mut named = [0; 32];
    named[..4].copy_from_slice(&id);
    let tags =
        |tags: &[&TagFilter]| Filter { tags: tags.iter().map(|&t| t.clone()).collect(), ..Filter::default() };
    let (one, seven) = (Some(vec![1]), Some(vec![7]));
    let busy = Some(vec![[1; 32]]);
    for (what, filter, returns) in [
        ("id", Filter { ids: Some(vec![named]), ..Filter::default() }, 1),
        ("#p", tags(&[&p]), 10),
        ("#p and kind", Filter { kinds: one.clone(), ..tags(&[&p]) }, 9),
        ("#p and a rare kind", Filter { kinds: seven.clone(), ..tags(&[&p]) }, 1),
        ("#p and #t", tags(&[&t, &p]), 10),
        ("#p and a busy author", Filter { authors: busy.clone(), ..tags(&[&p]) }, 5),
        ("#t and kind", Filter { kinds: one, ..tags(&[&t]) }, 500),
        ("#t and #x", tags(&[&t, &x]), 500),
        ("#t", tags(&[&t]), 500),
        ("author and kind", Filter { authors: busy.clone(), kinds: seven, ..Filter::default() }, 0),
        ("author", Filter { authors: busy, ..Filter::default() }, 500),
        ("all", Filter::default(), 500),
    ] {
        let found = store.query(&[filter], limit).len();
        let visited = store.index.take_visited();
        assert_eq!(found, returns, "{what} of {events}");
        // Two or three indexes by turns of 16, and with #x every fourth candidate matches.
        assert!(
            visited <= 4 * returns as u64 + 4 * 16,
            "{what} of {events}: {visited} candidates for {found}"
        );
    }
}

#[test]
fn a_request_costs_what_it_returns_of_5_000_events_and_of_50_000() {
    check_cost(5_000);
    check_cost(50_000);
}

#[test]
fn filters_add_up_each_with_its_own_limit() {
    let (mut store, _) = filled();
    let of = |kind, limit| Filter { kinds: Some(vec![kind]), limit: Some(limit), ..Filter::default() };
    assert_eq!(ids(&mut store, &[of(1, 2), of(7, 1), of(1, 1)]), [198, 196, 192]);
    assert_eq!(store.count(&[of(1, 2), of(7, 1), of(1, 1)]), 100);
}

#[test]
fn limits_are_filled_in_and_clamped() {
    let config = Config { default_limit: 10, max_limit: 20, ..Config::default() };
    for (limit, expected) in [(None, 10), (Some(0), 0), (Some(15), 15), (Some(21), 20), (Some(u64::MAX), 20)]
    {
        assert_eq!(config.limit_of(&Filter { limit, ..Filter::default() }), expected);
    }
}

#[test]
fn a_full_store_refuses_and_forgets_nothing() {
    let first = Arc::new(StoredEvent::new(&event(1), &Arc::default()));
    let mut store = Store::new(first.held_bytes() * 3 / 2);
    assert_eq!(store.insert(&first), Outcome::Stored);
    assert_eq!(insert(&mut store, &event(2)), Outcome::Full);
    assert_eq!(store.insert(&first), Outcome::Duplicate);
    assert_eq!(ids(&mut store, &[Filter::default()]), [1]);
}

#[test]
fn bytes_that_came_from_the_publisher_count_towards_the_store() {
    let all: Arc<AllEncodings> = Arc::default();
    let stored = StoredEvent::received(&event(1), (Format::JSON, &[b'x'; 1_000]), &all);
    assert!(all.bytes.load(Ordering::Relaxed) >= 1_000);
    assert_eq!(stored.encoded(Format::JSON, Format::JSON.spec().library).unwrap().bytes.len(), 1_000);
    drop(stored);
    assert_eq!(all.bytes.load(Ordering::Relaxed), 0);
}

#[test]
fn encodings_count_towards_the_store_as_long_as_their_event_lives() {
    let all = Arc::default();
    let first = Arc::new(StoredEvent::new(&event(1), &all));
    let mut store = Store::new(first.held_bytes() * 5 / 2);
    let stored = Arc::new(StoredEvent::new(&event(1), store.encodings()));
    assert_eq!(store.insert(&stored), Outcome::Stored);
    let count = || store.encodings().bytes.load(Ordering::Relaxed);
    assert_eq!(count(), 0, "nobody asked for it");
    let formats: Vec<_> = Format::all().collect();
    let mut expected = 0;
    for format in formats.iter().chain(&formats) {
        let encoded = stored.encoded(*format, format.spec().library).unwrap();
        stored.count_compressed(encoded);
        assert!(count() >= expected + encoded.bytes.len() || expected == count(), "{format}");
        expected = count();
    }
    assert!(expected > formats.len() * 100);
    assert_eq!(insert(&mut store, &event(2)), Outcome::Full, "{expected} bytes of encodings leave no room");
    store.remove(&event(1).id);
    drop(stored);
    assert_eq!(store.encodings().bytes.load(Ordering::Relaxed), 0);
    let second = Arc::new(StoredEvent::new(&event(2), store.encodings()));
    assert_eq!(store.insert(&second), Outcome::Stored);
}

/// Random events of few authors, kinds, tags and times come and go: replaced, deleted, expired and
/// removed. Random filters find what a scan of those that are left finds.
#[test]
fn random_filters_give_what_a_scan_gives_while_random_events_come_and_go() {
    for seed in 0..8 {
        // Few times have lists of one second that are longer than a chunk, many have them in any order.
        let (times, values) = if seed % 2 == 0 { (3, 2) } else { (100_000, 40) };
        let mut random = Random::new(seed, 0..times, values);
        let mut store = Store::new(64 << 20);
        let mut kept: Vec<Event<'static>> = Vec::new();
        for n in 0..12 * MAX_CHUNK {
            let now = random.below(200) as u64;
            let event = random.event(now);
            if insert(&mut store, &event) == Outcome::Stored {
                kept.retain(|earlier| earlier.id != event.id);
                kept.push(event);
            }
            if random.below(20) == 0 && !kept.is_empty() {
                store.remove(&kept[random.below(kept.len())].id);
            }
            if n % MAX_CHUNK == MAX_CHUNK - 1 {
                store.expire(random.below(100) as u64);
                kept.retain(|event| store.contains(&event.id));
                kept.sort_by_key(|event| (Reverse(event.created_at), event.id));
                assert_eq!(store.count(&[Filter::default()]), kept.len(), "seed {seed}");
                for _ in 0..40 {
                    let filter = random.filter();
                    let matching = kept.iter().filter(|event| filter.matches(event));
                    let most = limit(&filter);
                    let found = store.query(std::slice::from_ref(&filter), limit);
                    let expected: Vec<_> = matching.take(most).map(|event| event.id).collect();
                    let found: Vec<_> = found.iter().map(|stored| stored.head().id).collect();
                    assert_eq!(found, expected, "seed {seed}: {filter:?}");
                }
            }
        }
        for event in kept {
            store.remove(&event.id);
        }
        assert!(store.index.is_empty(), "seed {seed}");
    }
}

#[test]
fn what_has_expired_is_gone_and_its_address_is_free() {
    let expiring =
        |id, kind, at: &str| Event { kind, tags: vec![tag("expiration", at.to_owned())], ..event(id) };
    let mut store = Store::new(1 << 20);
    for event in [
        expiring(1, 1, "100"),
        expiring(2, 0, "200"),
        expiring(3, 1, "18446744073709551615"),
        expiring(4, 1, "soon"),
        event(5),
    ] {
        assert_eq!(insert(&mut store, &event), Outcome::Stored);
    }
    let older =
        Arc::new(StoredEvent::new(&Event { created_at: 1, ..expiring(6, 0, "300") }, store.encodings()));
    for (now, left) in
        [(99, &[1, 2, 3, 4, 5][..]), (100, &[2, 3, 4, 5]), (199, &[2, 3, 4, 5]), (200, &[3, 4, 5])]
    {
        store.expire(now);
        assert_eq!(ids(&mut store, &[Filter::default()]), left, "{now}");
        assert_eq!(store.len(), left.len());
        let outcome = if now < 200 { Outcome::Superseded } else { Outcome::Stored };
        assert_eq!(store.insert(&older), outcome, "{now}");
    }
    store.remove(&event(3).id);
    store.expire(u64::MAX);
    assert_eq!(ids(&mut store, &[Filter::default()]), [4, 5]);
    assert!(store.expiring.is_empty() && store.addresses.is_empty());
}

#[test]
fn many_equal_authors_and_kinds_cost_no_more_than_one() {
    let mut store = Store::new(1 << 20);
    for id in 0..100 {
        let event = Event { kind: 1, created_at: i64::from(id), ..event(id) };
        insert(&mut store, &event);
    }
    let repeated =
        Filter { authors: Some(vec![ME; 2_000]), kinds: Some(vec![1; 2_000]), ..Filter::default() };
    let distinct = Filter { kinds: Some((0..2_000).collect()), ..repeated.clone() };
    // Of many kinds the author's own list is gone through, too, by turns.
    for (filter, visited) in [(repeated, 100), (distinct, 200)] {
        assert_eq!(store.query(&[filter], limit).len(), 100);
        assert!(store.index.take_visited() <= visited);
    }
}
