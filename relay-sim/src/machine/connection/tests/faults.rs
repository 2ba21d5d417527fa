//! Every fault that is planted in deliveries is seen, to the count.

use std::collections::HashMap;

use codecs::TagFilter;
use nix::time::{ClockId, clock_gettime};

use super::*;
use crate::fault::Fault;

/// Events of several shapes, half of them with a tag that some subscriptions ask for.
fn events() -> Vec<Event<'static>> {
    let tags = |n: u16| match n % 4 {
        0 => vec![],
        1 => vec![vec!["t".into(), "x".into()]],
        2 => vec![vec!["e".into(), "ab".repeat(32).into()], vec!["t".into(), "y".into()]],
        _ => vec![vec!["t".into(), "x".into()], vec!["p".into(), "cd".repeat(32).into(), "".into()]],
    };
    let shaped = |n: u16| {
        let [high, low] = n.to_be_bytes();
        let mut id = [low; 32];
        id[0] = high;
        let content = if n.is_multiple_of(7) { Cow::Borrowed("") } else { format!("event {n} ü").into() };
        Event { id, kind: [1, 2, 7][usize::from(n % 3)], tags: tags(n), content, ..event(0) }
    };
    (0..300).map(shaped).collect()
}

fn filters() -> [(&'static str, Filter); 3] {
    let x = vec![TagFilter { letter: 't', values: vec!["x".to_owned()] }];
    [
        ("all", Filter::default()),
        ("x", Filter { tags: x, ..Filter::default() }),
        ("kind 2", Filter { kinds: Some(vec![2]), ..Filter::default() }),
    ]
}

/// Counts of what went wrong, as a client that knows every event sees it: lost, doubled, altered,
/// invented, misrouted.
fn found(deliveries: &[(String, Event<'static>)], subscriptions: &[(&str, Filter)]) -> [u64; 5] {
    let events: HashMap<_, _> = events().into_iter().map(|event| (event.id, event)).collect();
    let mut times = HashMap::new();
    for (name, filter) in subscriptions {
        for event in events.values().filter(|event| filter.matches(event)) {
            times.insert((*name, event.id), 0_u64);
        }
    }
    let (mut altered, mut invented, mut misrouted) = (0, 0, 0);
    for (name, event) in deliveries {
        let Some(published) = events.get(&event.id) else {
            invented += 1;
            continue;
        };
        let Some(times) = times.get_mut(&(name.as_str(), event.id)) else {
            misrouted += 1;
            continue;
        };
        *times += 1;
        altered += u64::from(published != event);
    }
    let doubled = times.values().map(|times| times.saturating_sub(1)).sum();
    let lost = times.values().filter(|times| **times == 0).count() as u64 - misrouted;
    [lost, doubled, altered, invented, misrouted]
}

fn planted(totals: &Totals) -> [u64; 5] {
    let Totals { planted_lost, planted_doubled, planted_altered, .. } = *totals;
    [planted_lost, planted_doubled, planted_altered, totals.planted_invented, totals.planted_misrouted]
}

/// Plays the events to one reader, half of them stored and half of them live.
fn play(faults: &[&str], format: Format, batched: bool, subscriptions: &[(&'static str, Filter)]) -> Totals {
    let label = format!("{faults:?} {format} {batched}");
    let relay = relay(|config| {
        config.faults = faults.iter().map(|fault| fault.parse::<Fault>().unwrap()).collect();
    });
    let events = events();
    let (stored, live) = events.split_at(150);
    relay.preload(stored);
    let mut publisher = Client::open(&relay, Format::JSON, false);
    let mut reader = Client::open(&relay, format, batched);
    let mut deliveries = Vec::new();
    for (name, filter) in subscriptions {
        reader.request(name, filter.clone());
    }
    for (n, event) in live.iter().enumerate() {
        publisher.publish(event);
        if n % 50 == 0 {
            deliveries.extend(reader.deliveries().0);
        }
    }
    deliveries.extend(reader.deliveries().0);
    reader.time.instant += Duration::from_secs(1);
    reader.connection.on_timer(reader.time.instant);
    deliveries.extend(reader.deliveries().0);
    let totals = relay.totals();
    assert_eq!(totals.unencodable, 0, "{label}");
    assert_eq!(found(&deliveries, subscriptions), planted(&totals), "{label}");
    assert_eq!(totals.deliveries_stored + totals.deliveries_live, deliveries.len() as u64, "{label}");
    totals
}

#[test]
fn every_planted_fault_is_seen_and_no_other() {
    const KINDS: [&str; 5] = ["lose=20%", "double=20%", "alter=20%", "invent=20%", "misroute=20%"];
    for batched in [false, true] {
        for format in ["json", "proto-binary", "notepack"].map(|name| name.parse().unwrap()) {
            assert_eq!(planted(&play(&[], format, batched, &filters())), [0; 5]);
            for (kind, fault) in KINDS.iter().enumerate() {
                let planted = planted(&play(&[fault], format, batched, &filters()));
                for (other, count) in planted.into_iter().enumerate() {
                    // Of 550 deliveries.
                    let expected = if kind == other { 70..150 } else { 0..1 };
                    assert!(expected.contains(&count), "{fault} {format}: {planted:?}");
                }
            }
        }
        for format in Format::all() {
            let all = planted(&play(&KINDS, format, batched, &filters()));
            assert!(all.iter().all(|count| *count > 20), "{format}: {all:?}");
        }
    }
}

#[test]
fn faults_hit_the_same_deliveries_whenever_they_are_sent_and_others_with_another_seed() {
    let lost = |fault: &str, batched| play(&[fault], Format::JSON, batched, &filters()).planted_lost;
    assert_eq!(lost("lose=20%", false), lost("lose=20%:seed=1", true));
    assert_ne!(lost("lose=20%", false), lost("lose=20%:seed=4", false));
    let Totals { deliveries_stored, deliveries_live, .. } = play(&[], Format::JSON, false, &filters());
    assert_eq!(lost("lose=100%", false), deliveries_stored + deliveries_live);
}

#[test]
fn without_another_subscription_nobody_gets_what_is_misrouted() {
    let relay = relay(|config| config.faults = vec!["misroute=100%".parse().unwrap()]);
    let mut reader = Client::open(&relay, Format::JSON, false);
    reader.request("all", Filter::default());
    reader.request("nobody", Filter::default());
    reader.hear();
    Client::open(&relay, Format::JSON, false).publish(&event(1));
    assert_eq!(names(&reader.hear()), ["EVENT nobody-", "EVENT nobody-"]);
}

#[test]
fn every_event_that_is_sent_burns_also_in_a_batch() {
    const EVENTS: u8 = 100;
    let spent = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap();
    for batched in [false, true] {
        let relay = relay(|config| config.faults = vec!["burn=1ms".parse().unwrap()]);
        relay.preload(&(0..EVENTS).map(event).collect::<Vec<_>>());
        let mut reader = Client::open(&relay, Format::JSON, batched);
        reader.request("all", Filter::default());
        let before = spent();
        let (deliveries, messages) = reader.deliveries();
        let burnt = spent() - before;
        assert_eq!((deliveries.len(), messages < deliveries.len()), (EVENTS.into(), batched));
        // A portion may still be owed.
        assert!(burnt >= Duration::from_millis(u64::from(EVENTS) - 1), "{burnt:?}, batched: {batched}");
    }
}
