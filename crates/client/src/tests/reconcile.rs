//! A reconciliation (NIP-77) against a scripted relay.

use negentropy::{Id, Negentropy, NegentropyStorageVector};

use super::*;
use workload::Reconciliation;

/// Stored events `0..4`, of which the client has two; publication 0 as event 4 of somebody else;
/// publication 1 as event 5, which only this client has.
fn plan() -> Workload {
    let role = |task| Role::new(None, Speaks::default(), task);
    let publication =
        |connection, event, closed| Publication { at: Duration::ZERO, connection, event, closed };
    let reconciliation = Reconciliation {
        filter: Filter { kinds: Some(vec![1]), ..Filter::default() },
        has: vec![0, 1],
        lacks: vec![2, 3],
        own: vec![5],
        frame_bytes: 4_096,
        chunk: 2,
    };
    let session = super::plan().sessions.remove(0);
    Workload {
        events: Arc::new(super::plan().events[..6].to_vec()),
        stored: 4,
        roles: vec![role(Task::Publisher { window: 1 }), role(Task::Reconciler)],
        publications: vec![publication(0, 4, false), publication(1, 5, true)],
        sessions: vec![Session {
            connection: 1,
            steps: Vec::new(),
            live: Vec::new(),
            reconciliation: Some(reconciliation),
            ..session
        }],
        ..Workload::default()
    }
    .indexed()
    .unwrap()
}

/// The messages of the relay to the reconciling client.
struct Script {
    /// The events that take part on the relay's side.
    has: Vec<Event<'static>>,
    /// In place of the NEG-MSG that follows from `has`.
    compared: Option<Messages>,
    /// To the REQs for missing events.
    fetched: Messages,
    /// To the EVENT that only the client had.
    answers: Messages,
    late: Messages,
}

fn honest(events: &[Event<'static>]) -> Script {
    Script {
        has: events[..5].to_vec(),
        compared: None,
        fetched: vec![
            delivery("f0-0", &events[2]),
            delivery("f0-0", &events[3]),
            delivery("f0-1", &events[4]),
            eose("f0-0"),
            eose("f0-1"),
        ],
        answers: vec![ok(&events[5], true, "")],
        late: Vec::new(),
    }
}

fn neg_msg(subscription: &'static str, message: Vec<u8>) -> RelayMessage<'static> {
    RelayMessage::NegMsg { subscription: subscription.into(), message: message.into() }
}

fn neg_err() -> RelayMessage<'static> {
    RelayMessage::NegErr { subscription: "n0".into(), text: "blocked: too much".into() }
}

/// The relay's answer to NEG-OPEN.
fn compare(has: &[Event<'static>], open: &[u8]) -> Vec<u8> {
    let mut storage = NegentropyStorageVector::new();
    for event in has {
        storage.insert(u64::try_from(event.created_at).unwrap(), Id::from_byte_array(event.id)).unwrap();
    }
    storage.seal().unwrap();
    Negentropy::owned(storage, 4_096).unwrap().reconcile(open).unwrap()
}

fn play(script: Script) -> Counts {
    let mut table = Table::for_plan(plan(), Format::JSON);
    table.clients[0].on_due(Due::Publication(0), 0);
    let accepted = ok(&table.shared.workload.events[4].clone(), true, "");
    table.say(0, vec![accepted], MS);
    table.clients[1].on_due(Due::Session(0), MS);
    let mut sent = table.sent(1);
    let Some(ClientMessage::NegOpen { message, .. }) = sent.pop() else { panic!("{sent:?}") };
    let compared = script.compared.unwrap_or_else(|| vec![neg_msg("n0", compare(&script.has, &message))]);
    table.say(1, compared, 2 * MS);
    while table.clients[1].has_backlog() {
        table.clients[1].on_room(2 * MS);
    }
    table.say(1, script.fetched, 3 * MS);
    table.say(1, script.answers, 3 * MS);
    table.say(1, script.late, 4 * MS);
    table.close()
}

#[track_caller]
fn check(spoil: impl Fn(&mut Script, &[Event<'static>]), expected: &[(&str, u64)]) {
    let events = Arc::clone(&plan().events);
    let mut script = honest(&events);
    spoil(&mut script, &events);
    let counts = play(script);
    assert_eq!(damage(&counts), expected);
    assert_eq!(counts.balanced().is_err(), is_damage(expected), "{:?}", counts.balanced());
}

/// The damage when the difference does not become known.
const NOT_KNOWN: [(&str, u64); 2] = [("lost", 2), ("failed", 1)];

#[test]
fn an_honest_relay_brings_what_the_client_lacks_and_takes_what_only_it_has() {
    let counts = play(honest(&plan().events));
    assert_eq!((damage(&counts), counts.balanced()), (vec![], Ok(())));
    assert_eq!((counts.deliveries, counts.acked, counts.requests_completed), (3, 2, 1));
    assert_eq!((counts.reconciliations, counts.negentropy_rounds), (1, 1));
}

#[test]
fn a_fetched_event_is_judged_as_a_stored_one() {
    check(|script, _| without(&mut script.fetched, 0), &[("lost", 1)]);
    check(|script, _| again(&mut script.fetched, 1), &[("doubled", 1)]);
    // After EOSE of its fetch, before and after the end of the session.
    check(|script, events| script.fetched.insert(4, delivery("f0-0", &events[2])), &[("doubled", 1)]);
    check(|script, events| script.late.push(delivery("f0-1", &events[4])), &[("doubled", 1)]);
    check(|script, _| script.fetched.swap(1, 3), &[("lost", 1), ("unexpected", 1)]);
    let altered = |script: &mut Script, n: usize| {
        let RelayMessage::Event { event, .. } = &mut script.fetched[n] else { panic!("not a delivery") };
        event.to_mut().content = "altered".into();
    };
    check(|script, _| altered(script, 0), &[("lost", 1), ("altered", 1)]);
    let invented = |events: &[Event<'static>]| Event { id: [99; 32], ..events[2].clone() };
    check(|script, events| script.fetched.push(delivery("f0-0", &invented(events))), &[("invented", 1)]);
    for subscription in ["f0-1", "f0-2", "f1-0", "n0", "s0-0-0"] {
        check(
            |script, events| script.fetched[0] = delivery(subscription, &events[2]),
            &[("lost", 1), ("misrouted", 1)],
        );
    }
    check(|script, _| again(&mut script.fetched, 3), &[("answers", 1)]);
    check(|script, _| without(&mut script.fetched, 4), &[("failed", 1)]);
}

#[test]
fn a_refused_fetch_costs_what_it_asked_for() {
    let closed = || RelayMessage::Closed { subscription: "f0-0".into(), text: "error: no".into() };
    check(
        |script, _| {
            script.fetched.splice(..2, [closed()]);
            without(&mut script.fetched, 2);
        },
        &[("lost", 2), ("failed", 1)],
    );
    check(|script, _| script.fetched.push(closed()), &[]);
}

#[test]
fn a_relay_that_refuses_a_reconciliation_loses_what_it_owed() {
    let not_known_not_sent = [&NOT_KNOWN[..], &[("not sent", 1)]].concat();
    let refused = |script: &mut Script, _: &[Event<'static>]| {
        script.compared = Some(vec![neg_err()]);
        script.fetched.clear();
        script.answers.clear();
    };
    check(refused, &not_known_not_sent);
    // The client knows the difference: its NEG-CLOSE and this NEG-ERR crossed.
    check(|script, _| script.late.push(neg_err()), &[]);
    check(|script, _| script.fetched.insert(0, neg_err()), &[]);
    check(
        |script, events| {
            refused(script, events);
            script.compared = Some(vec![neg_msg("n0", b"\x61\x00\x00\x07".to_vec())]);
        },
        &[("lost", 2), ("undecodable", 1), ("failed", 1), ("not sent", 1)],
    );
}

#[test]
fn a_reconciliation_that_does_not_end_fails() {
    let silent = |script: &mut Script, compared: Messages| {
        script.compared = Some(compared);
        script.fetched.clear();
        script.answers.clear();
    };
    check(|script, _| silent(script, vec![]), &[("lost", 2), ("failed", 1), ("not sent", 1)]);
    for other in ["n1", "s0-0-0", "nobody"] {
        let answer = |events: &[Event<'static>]| vec![neg_msg(other, compare(&events[..5], &[0x61]))];
        check(
            |script, events| silent(script, answer(events)),
            &[("lost", 2), ("answers", 1), ("failed", 1), ("not sent", 1)],
        );
        let err = RelayMessage::NegErr { subscription: other.into(), text: "".into() };
        check(
            |script, _| silent(script, vec![err.clone()]),
            &[("lost", 2), ("answers", 1), ("failed", 1), ("not sent", 1)],
        );
    }
    check(|script, _| script.late.push(neg_msg("n0", vec![0x61])), &[("answers", 1)]);
}

#[test]
fn the_difference_that_a_relay_names_is_judged() {
    // An event that was accepted before NEG-OPEN and is not named.
    check(
        |script, _| {
            script.has.remove(4);
            without(&mut script.fetched, 4);
            without(&mut script.fetched, 2);
        },
        &[("lost", 1)],
    );
    // An event that nobody published, and one that the relay said it had.
    let nobody = |events: &[Event<'static>]| Event { id: [99; 32], ..events[0].clone() };
    check(|script, events| script.has.push(nobody(events)), &[("unexpected", 1)]);
    check(|script, _| _ = script.has.remove(0), &[("unexpected", 1)]);
}
