use std::{collections::VecDeque, net::Ipv4Addr, thread};

use codecs::hex;

use super::*;
use crate::{
    fanout::{Delivery, Queued},
    testing::{UNIX_SECONDS as NOW, event, proof, relay, signed},
};

fn peer(relay: &Arc<Relay>) -> (Peer, Arc<Outbox>) {
    let outbox = Outbox::new(relay.config.outbox_bytes);
    let local = Ipv4Addr::LOCALHOST.into();
    let peer = Peer::new(Arc::clone(relay), Format::JSON, Arc::clone(&outbox), local, [0; 16]);
    (peer, outbox)
}

fn queued(outbox: &Outbox) -> VecDeque<Delivery> {
    let mut queued = VecDeque::new();
    outbox.take(&mut queued);
    let delivery = |queued| match queued {
        Queued::Event(delivery) => delivery,
        Queued::Answer(answered) => panic!("nothing waits for a disk here: {answered:?}"),
    };
    queued.into_iter().map(delivery).collect()
}

fn publish(peer: &mut Peer, event: Event<'static>) -> (bool, String) {
    match peer.answer(ClientMessage::Event(Cow::Owned(event)), NOW) {
        Answer::Message(RelayMessage::Ok { accepted, text, .. }) => (accepted, text.into_owned()),
        other => panic!("expected OK, got {other:?}"),
    }
}

fn request(peer: &mut Peer, name: &str, filters: Vec<Filter>) -> Result<Vec<u8>, String> {
    match peer.answer(ClientMessage::Req { subscription: name.to_owned().into(), filters }, NOW) {
        Answer::Stored(_, events) => Ok(events.iter().map(|stored| stored.head().id[0]).collect()),
        Answer::Message(RelayMessage::Closed { text, .. }) => Err(text.into_owned()),
        other => panic!("expected stored events or CLOSED, got {other:?}"),
    }
}

/// Which live events a session would send now.
fn live(outbox: &Outbox) -> Vec<(String, u8)> {
    queued(outbox)
        .into_iter()
        .filter(|delivery| !delivery.subscription.ended())
        .map(|delivery| (delivery.subscription.name.clone(), delivery.event.head().id[0]))
        .collect()
}

#[test]
fn what_the_relay_has_is_a_duplicate_before_it_is_verified() {
    for level in [VerifyLevel::Id, VerifyLevel::Full] {
        let relay = relay(|config| config.verify = level);
        let (mut peer, _outbox) = peer(&relay);
        let known = signed(event(1));
        assert_eq!(publish(&mut peer, known.clone()), (true, String::new()), "{level}");
        // That a broken copy passes shows that nothing was verified.
        let broken = Event { content: "broken".into(), sig: [0; 64], ..known.clone() };
        let (accepted, text) = publish(&mut peer, broken.clone());
        assert!(accepted && text.starts_with("duplicate: "), "{level}: {text}");
        assert_eq!(relay.totals().events_duplicate, 1);
        let deletion =
            Event { kind: 5, tags: vec![vec!["e".into(), hex::encode(&known.id).into()]], ..event(2) };
        assert_eq!(publish(&mut peer, signed(deletion)), (true, String::new()), "{level}");
        let (accepted, text) = publish(&mut peer, broken);
        assert!(!accepted && text.starts_with("invalid: "), "{level}: what is not there is verified: {text}");
    }
}

#[test]
fn a_refused_event_gets_its_reason() {
    let (mut peer, _outbox) = peer(&relay(|_| {}));
    let at = |id, kind, created_at| Event { kind, created_at, ..event(id) };
    let deletion = Event { tags: vec![vec!["e".into(), hex::encode(&event(3).id).into()]], ..at(4, 5, 7) };
    for (event, accepted, expected) in [
        (at(1, 0, 11), true, ""),
        (at(1, 0, 11), true, "duplicate: already have this event"),
        (at(2, 0, 10), false, "duplicate: have a newer event"),
        (at(3, 1, 5), true, ""),
        (deletion, true, ""),
        (at(3, 1, 5), false, "blocked: its author deleted this event"),
        (at(5, 20_001, 5), true, ""),
        (at(6, CLIENT_AUTH, 5), false, "invalid: kind 22242 belongs into AUTH, not EVENT (NIP-42)"),
    ] {
        assert_eq!(publish(&mut peer, event), (accepted, expected.to_owned()));
    }
}

#[test]
fn requests_over_a_limit_are_closed_and_end_their_predecessor() {
    let relay = relay(|config| config.max_subscriptions = 2);
    let (mut reader, outbox) = peer(&relay);
    let all = || vec![Filter::default()];
    let unknown = || vec![Filter { unknown: Some("colour".into()), ..Filter::default() }];
    assert_eq!(request(&mut reader, "a", all()), Ok(vec![]));
    assert_eq!(request(&mut reader, "b", all()), Ok(vec![]));
    assert!(request(&mut reader, "c", all()).unwrap_err().starts_with("rate-limited: "));
    assert_eq!(request(&mut reader, "a", all()), Ok(vec![]), "a replacement is no addition");
    assert!(request(&mut reader, "a", unknown()).unwrap_err().starts_with("unsupported: "));
    assert!(request(&mut reader, "", all()).unwrap_err().starts_with("invalid: "));
    assert!(request(&mut reader, &"x".repeat(65), all()).unwrap_err().starts_with("invalid: "));
    publish(&mut reader, event(1));
    assert_eq!(live(&outbox), [("b".into(), 1)]);
}

/// 10,000 events are published from two threads while a third opens subscriptions: each of those
/// gets every event exactly once, stored or live.
#[test]
fn no_event_is_lost_or_doubled_around_eose() {
    const EVENTS: u32 = 10_000;
    let relay = relay(|config| {
        config.default_limit = usize::MAX;
        config.max_limit = usize::MAX;
    });
    let publish_all = |first: u32| {
        let (mut peer, _outbox) = peer(&relay);
        for n in (first..EVENTS).step_by(2) {
            let mut id = [0; 32];
            id[..4].copy_from_slice(&n.to_be_bytes());
            publish(&mut peer, Event { id, ..event(0) });
        }
    };
    let readers: Vec<_> = thread::scope(|scope| {
        let publishers = [0, 1].map(|first| scope.spawn(move || publish_all(first)));
        let mut readers = Vec::new();
        while !publishers.iter().all(thread::ScopedJoinHandle::is_finished) {
            let (mut peer, outbox) = peer(&relay);
            let filters = vec![Filter { kinds: Some(vec![1]), ..Filter::default() }];
            let Answer::Stored(_, stored) =
                peer.answer(ClientMessage::Req { subscription: "r".into(), filters }, NOW)
            else {
                panic!("a plain REQ is served")
            };
            readers.push((peer, outbox, stored));
            thread::sleep(std::time::Duration::from_millis(10));
        }
        readers
    });
    assert!(readers.len() >= 2);
    let mut raced = 0;
    for (_peer, outbox, stored) in readers {
        let live = queued(&outbox);
        let mut ids: Vec<_> =
            stored.iter().map(|s| s.head().id).chain(live.iter().map(|d| d.event.head().id)).collect();
        raced += usize::from((1..EVENTS as usize).contains(&stored.len()));
        assert_eq!(ids.len(), EVENTS as usize);
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), EVENTS as usize);
    }
    assert!(raced > 0, "no REQ fell between two publishes");
}

#[test]
fn auth_proves_an_author_for_this_connection_and_challenge() {
    let relay = relay(|config| config.auth = true);
    let (mut peer, _outbox) = peer(&relay);
    let Some(RelayMessage::Auth { challenge }) = peer.greeting() else { panic!("expected a challenge") };
    let here = "ws://127.0.0.1:7777/";
    for wrong in [
        proof("another", here, NOW),
        proof(&challenge, "wss://elsewhere.example", NOW),
        proof(&challenge, here, NOW + 601),
        Event { sig: [1; 64], ..proof(&challenge, here, NOW) },
    ] {
        let answer = peer.authenticate(&wrong, NOW);
        assert!(matches!(&answer, Answer::Message(RelayMessage::Ok { accepted: false, .. })), "{answer:?}");
    }
    let protected = Event { tags: vec![vec!["-".into()]], ..event(9) };
    let (accepted, text) = publish(&mut peer, protected.clone());
    assert!(!accepted && text.starts_with("auth-required: "), "{text}");
    let right = proof(&challenge, here, NOW + 600);
    let answer = peer.authenticate(&right, NOW);
    assert!(matches!(&answer, Answer::Message(RelayMessage::Ok { accepted: true, .. })), "{answer:?}");
    let (accepted, text) = publish(&mut peer, protected.clone());
    assert!(!accepted && text.starts_with("restricted: "), "it is somebody else's: {text}");
    assert_eq!(publish(&mut peer, Event { pubkey: right.pubkey, ..protected }), (true, String::new()));
}

#[test]
fn a_repost_may_name_a_protected_event_and_not_embed_it() {
    let (mut peer, _outbox) = peer(&relay(|_| {}));
    let embedding = |tags: &str| format!(r#"{{"id":"","kind":1,"tags":{tags},"content":"secret"}}"#);
    let protected = Event { tags: vec![vec!["-".into()]], ..event(9) };
    let (accepted, text) = publish(&mut peer, protected);
    assert!(!accepted && text.starts_with("blocked: "), "AUTH would not help: {text}");
    for (n, kind, content, accepts) in [
        (1, 6, embedding(r#"[["p","x"],["-"]]"#), false),
        (2, 16, embedding(r#"[["-"]]"#), false),
        (3, 6, embedding(r#"[["-","x"],["t","-"]]"#), true),
        (4, 6, String::new(), true),
        (5, 6, r#"["-"]"#.to_owned(), true),
        (6, 1, embedding(r#"[["-"]]"#), true),
    ] {
        let (accepted, text) = publish(&mut peer, Event { kind, content: content.into(), ..event(n) });
        assert_eq!((accepted, text.starts_with("blocked: ")), (accepts, !accepts), "{n}: {text}");
    }
}
