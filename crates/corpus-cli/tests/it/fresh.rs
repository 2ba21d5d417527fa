//! Fresh events: new to everybody, and among themselves what their templates are among themselves.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
};

use codecs::{Event, Format, Implementation, VerifyLevel, hex};
use corpus::{
    Corpus, Fingerprint,
    fresh::{self, Keep},
    json,
};

fn refs<'e>(events: &'e [Event<'static>]) -> Vec<&'e Event<'static>> {
    events.iter().collect()
}

fn embedded(text: &str) -> Option<Event<'static>> {
    let codec = Format::JSON.codec(Implementation::Library).unwrap();
    text.starts_with('{').then(|| codec.decode_event(text.as_bytes()).ok().map(Event::into_owned)).flatten()
}

/// Every lowercase 64-digit word of an event's tags and content, in order.
fn hashes(event: &Event<'_>) -> Vec<String> {
    let values = event.tags.iter().flat_map(|tag| tag.iter().skip(1));
    let is_hash = |word: &&str| {
        word.len() == 64 && word.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let words = |text: &str| -> Vec<String> {
        text.split(|c: char| !c.is_ascii_alphanumeric()).filter(is_hash).map(str::to_owned).collect()
    };
    // Fresh ones are written as this project writes JSON, with other spaces and another order of
    // fields than in some.
    let in_order = |text: &str| words(&embedded(text).map_or_else(|| text.to_owned(), |event| json(&event)));
    values.chain([&event.content]).flat_map(|text| in_order(text)).collect()
}

/// References of the events, without their keys and ids: the place of an event, the first
/// place of an author, or the first mention of whatever else.
fn structure(events: &[Event<'static>]) -> Vec<Vec<String>> {
    let ids: HashMap<_, _> = events.iter().enumerate().map(|(n, e)| (hex::encode(&e.id), n)).collect();
    let mut authors = HashMap::new();
    for (n, event) in events.iter().enumerate() {
        authors.entry(hex::encode(&event.pubkey)).or_insert(n);
    }
    let mut others = HashMap::new();
    let mut name = |hash: String| match (ids.get(&hash), authors.get(&hash)) {
        (Some(n), _) => format!("event {n}"),
        (None, Some(n)) => format!("author {n}"),
        (None, None) => {
            let next = others.len();
            format!("other {}", others.entry(hash).or_insert(next))
        }
    };
    let author = |event: &Event<'_>| format!("by author {}", authors[&hex::encode(&event.pubkey)]);
    events
        .iter()
        .map(|event| [author(event)].into_iter().chain(hashes(event).into_iter().map(&mut name)).collect())
        .collect()
}

/// Checks two rounds of fresh events against their templates.
fn check(templates: &[Event<'static>]) {
    let count = templates.len();
    let made = fresh::events(&refs(templates), 2 * count, 7);
    let before = structure(templates);
    let inside = before.iter().flatten().filter(|what| what.starts_with("event")).count();
    assert!(inside > count / 50, "only {inside} references to events of the set: nothing would be tested");
    let mut seen: HashSet<_> = templates.iter().flat_map(hashes).collect();
    seen.extend(templates.iter().flat_map(|event| [hex::encode(&event.id), hex::encode(&event.pubkey)]));
    for round in made.chunks(count) {
        for (n, (now, before)) in structure(round).iter().zip(&before).enumerate() {
            let differs = now.iter().zip(before).find(|(now, before)| now != before);
            assert!(differs.is_none() && now.len() == before.len(), "event {n}: {differs:?}");
        }
        let new: HashSet<_> = round
            .iter()
            .flat_map(|event| {
                event.verify(VerifyLevel::Full).unwrap();
                hashes(event).into_iter().chain([hex::encode(&event.id), hex::encode(&event.pubkey)])
            })
            .collect();
        let repeated = new.intersection(&seen).count();
        assert_eq!(repeated, 0, "keys or ids of an earlier round");
        seen.extend(new);
    }
    for (event, template) in made.iter().zip(templates.iter().cycle()) {
        assert_eq!(event.kind, template.kind);
        assert_eq!(
            event.tags.iter().map(Vec::len).collect::<Vec<_>>(),
            template.tags.iter().map(Vec::len).collect::<Vec<_>>()
        );
    }
}

#[test]
fn references_resolve_among_fresh_events_as_among_their_templates() {
    check(&Corpus::bundled().events[..2_000]);
}

#[test]
#[ignore = "needs mix.pb.gz in the folder REAL_EVENTS"]
fn references_of_real_events_resolve_too() {
    let folder = PathBuf::from(std::env::var_os("REAL_EVENTS").expect("REAL_EVENTS names a folder"));
    check(&Corpus::read(&folder.join("mix.pb.gz")).unwrap().events);
}

#[test]
fn events_inside_events_are_fresh_valid_and_the_same_ones() {
    let templates: Vec<_> = Corpus::bundled()
        .events
        .into_iter()
        .filter(|event| [1, 6, 9735].contains(&event.kind))
        .take(1_500)
        .collect();
    let made = fresh::events(&refs(&templates), templates.len(), 3);
    let by_id: HashMap<_, _> = made.iter().map(|event| (event.id, event)).collect();
    let (mut reposts, mut requests) = (0, 0);
    for (event, template) in made.iter().zip(&templates) {
        let inner = |event: &Event<'_>| match event.kind {
            6 => embedded(&event.content),
            9735 => event.first_tag_value("description").and_then(embedded),
            _ => None,
        };
        assert_eq!(inner(event).is_some(), inner(template).is_some());
        let (Some(inner), Some(old)) = (inner(event), inner(template)) else { continue };
        inner.verify(VerifyLevel::Full).unwrap();
        assert!(inner.id != old.id && inner.pubkey != old.pubkey && inner.content.len() == old.content.len());
        if event.kind == 6 {
            let named = event.first_tag_value("e").map(str::to_owned);
            assert_eq!(
                named.as_deref(),
                Some(hex::encode(&inner.id).as_str()),
                "the repost names what it holds"
            );
            if let Some(note) = by_id.get(&inner.id) {
                assert_eq!(json(note), event.content);
                reposts += 1;
            }
        } else {
            let sender = event.first_tag_value("P");
            assert!(sender.is_none_or(|sender| sender == hex::encode(&inner.pubkey)));
            assert_eq!(event.first_tag_value("p"), inner.first_tag_value("p"));
            requests += 1;
        }
    }
    assert!(
        reposts > 5 && requests > 10,
        "{reposts} reposts and {requests} zap requests are too few to test"
    );
}

#[test]
fn sizes_stay_where_ciphertext_and_short_references_are_renewed() {
    let templates = Corpus::bundled().events;
    let made = fresh::events(&refs(&templates), templates.len(), 3);
    let (mut encrypted, mut nostr) = (0, 0);
    for (event, template) in made.iter().zip(&templates) {
        assert_eq!(json(event).len(), json(template).len(), "kind {}", template.kind);
        if matches!(event.kind, 4 | 1059) && event.content.len() > 40 {
            assert_ne!(event.content, template.content, "kind {}", event.kind);
            encrypted += 1;
        }
        let references = |event: &Event<'_>| -> Vec<String> {
            let found = event.content.split("nostr:").skip(1).filter_map(|text| text.get(..63));
            found.map(str::to_owned).collect()
        };
        if event.kind == 1 {
            let (new, old) = (references(event), references(template));
            assert_eq!(new.len(), old.len());
            assert!(
                new.iter().zip(&old).all(|(new, old)| new != old && new[..5] == old[..5]),
                "{new:?} {old:?}"
            );
            nostr += new.len();
        }
    }
    assert!(encrypted > 500 && nostr > 100, "{encrypted} {nostr}");
}

#[test]
fn a_shorter_draw_is_the_beginning_of_a_longer_one() {
    let corpus = Corpus::bundled();
    let templates = refs(&corpus.events[..90]);
    let events = fresh::events(&templates, 200, 42);
    assert_eq!(
        Fingerprint::from_events(&events),
        Fingerprint::from_events(&fresh::events(&templates, 200, 42))
    );
    assert_eq!(events[..50], fresh::events(&templates, 50, 42));
    assert_ne!(events[0].pubkey, fresh::events(&templates, 1, 43)[0].pubkey);
    let ids: HashSet<_> = templates.iter().map(|event| event.id).chain(events.iter().map(|e| e.id)).collect();
    assert_eq!(ids.len(), 290);
    // Many rounds, which cores share, and of which none is dated ahead of its templates.
    let many = fresh::events(&templates[..3], 300, 42);
    let is_earlier = |(made, from): (&Event<'_>, &&Event<'_>)| made.created_at < from.created_at;
    assert!(many.iter().zip(templates[..3].iter().cycle()).all(is_earlier));
    assert_eq!(many[..30], fresh::events(&templates[..3], 30, 42));
}

#[test]
fn a_template_given_twice_makes_two_events() {
    let corpus = Corpus::bundled();
    let templates = [&corpus.events[0], &corpus.events[0], &corpus.events[1]];
    let events = fresh::events(&templates, 9, 1);
    assert_eq!(events.iter().map(|event| event.id).collect::<HashSet<_>>().len(), 9);
}

#[test]
fn what_is_kept_stays() {
    let corpus = Corpus::bundled();
    let hot = "ab".repeat(32);
    let mut template = corpus.events.iter().find(|event| event.kind == 7).unwrap().clone();
    template.tags = vec![vec!["e".into(), hot.clone().into()], vec!["e".into(), "cd".repeat(32).into()]];
    let kept = Keep { values: HashSet::from([hot.clone()]), times: true, ..Keep::default() };
    let made = fresh::events_keeping(&[&template], 3, 1, &kept);
    assert!(made.iter().all(|event| event.created_at == template.created_at));
    assert!(made.iter().all(|event| event.tags[0][1] == hot && event.tags[1][1] != "cd".repeat(32)));
    assert_eq!(made.iter().map(|event| &event.tags[1][1]).collect::<HashSet<_>>().len(), 3);
}

#[test]
fn made_up_ids_that_name_each_other_end() {
    let corpus = Corpus::bundled();
    let mut events: Vec<_> = corpus.events.iter().filter(|event| event.kind == 1).take(4).cloned().collect();
    for (n, event) in (0_u8..).zip(&mut events) {
        event.id = [n + 1; 32];
        // 0 -> 1 -> 2 -> 0, and 3 -> 0; 3 also names itself.
        let named = [vec![1], vec![2], vec![0], vec![0, 3]];
        let tag = |other: &u8| vec!["e".into(), hex::encode(&[other + 1; 32]).into()];
        event.tags = named[usize::from(n)].iter().map(tag).collect();
    }
    let made = fresh::events(&refs(&events), 8, 1);
    for (event, template) in made.iter().zip(events.iter().cycle()) {
        event.verify(VerifyLevel::Full).unwrap();
        assert!(event.tags.iter().zip(&template.tags).all(|(new, old)| new[1] != old[1]));
    }
    assert_eq!(made[3].tags[0][1], made[2].tags[0][1], "still the same one in all places");
}
