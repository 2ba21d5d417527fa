//! AUTH (NIP-42) of a subscriber with a scripted relay.

use super::*;

fn challenge() -> RelayMessage<'static> {
    RelayMessage::Auth { challenge: "a challenge".into() }
}

/// A client that has sent its AUTH, with the signed event.
fn proving() -> (Table, Event<'static>) {
    let mut table = Table::connected(Shared::new(Workload { auth: true, ..plan() }), Format::JSON);
    assert!(table.sent(1).is_empty(), "nothing is sent before the challenge");
    table.say(1, vec![challenge()], MS);
    assert!(table.clients[1].has_backlog());
    table.clients[1].on_room(MS);
    let Some(ClientMessage::Auth(proof)) = table.sent(1).pop() else { panic!("no AUTH") };
    (table, proof.into_owned())
}

fn why(client: &mut Client) -> String {
    let failed = std::iter::from_fn(|| client.next_action())
        .find_map(|action| if let Action::Fail(why) = action { Some(why) } else { None });
    failed.expect("the client fails")
}

#[test]
fn a_signed_challenge_opens_the_subscriptions() {
    let (mut table, proof) = proving();
    assert_eq!(proof.first_tag_value("challenge"), Some("a challenge"));
    assert_eq!(proof.first_tag_value("relay"), Some("ws://127.0.0.1"));
    assert_eq!(proof.verify(codecs::VerifyLevel::Full), Ok(()));
    table.say(1, vec![ok(&proof, true, "")], 2 * MS);
    assert_eq!(table.sent(1).len(), 2, "two live subscriptions");
    table.say(1, vec![eose("live-0"), eose("live-1")], 3 * MS);
    assert!(table.clients[1].is_ready());
    // The same OK again answers nothing.
    table.say(1, vec![ok(&proof, true, "")], 3 * MS);
    assert_eq!(table.clients[1].report().counts.answers_unexpected, 1);
}

#[test]
fn a_challenge_that_comes_twice_is_signed_once() {
    let (mut table, proof) = proving();
    table.say(1, vec![challenge()], MS);
    assert!(!table.clients[1].has_backlog(), "AUTH is on its way");
    table.say(1, vec![ok(&proof, true, ""), challenge()], 2 * MS);
    assert_eq!(table.sent(1).len(), 2, "two live subscriptions, and no second AUTH");
    assert_eq!(table.clients[1].report().counts.answers_unexpected, 2);
}

#[test]
fn a_relay_that_refuses_auth_ends_the_client_with_its_words() {
    let (mut table, proof) = proving();
    table.say(1, vec![ok(&proof, false, "restricted: not you")], 2 * MS);
    assert_eq!(why(&mut table.clients[1]), "the relay refused AUTH: restricted: not you");
    assert!(!table.clients[1].is_ready());
}

#[test]
fn ok_for_another_event_is_no_answer_to_auth() {
    let (mut table, proof) = proving();
    table.say(1, vec![ok(&Event { id: [1; 32], ..proof }, true, "")], 2 * MS);
    assert!(table.sent(1).is_empty(), "no subscription is opened");
    assert_eq!(table.clients[1].report().counts.answers_unexpected, 1);
    let deadline = table.clients[1].next_wake_ns().unwrap();
    table.clients[1].on_timer(deadline);
    assert!(why(&mut table.clients[1]).contains("OK to AUTH (NIP-42) did not come"));
}

#[test]
fn a_client_goes_on_without_a_challenge_and_answers_one_that_comes_with_a_refusal() {
    let mut table = Table::connected(Shared::new(Workload { auth: true, ..plan() }), Format::JSON);
    let deadline = table.clients[1].next_wake_ns().unwrap();
    table.clients[1].on_timer(deadline);
    assert_eq!(table.sent(1).len(), 2, "two live subscriptions");
    assert!(table.clients[1].report().ungreeted);
    let closed = |id: &'static str| RelayMessage::Closed { subscription: id.into(), text: REFUSAL.into() };
    table.say(1, vec![challenge(), closed("live-0"), eose("live-1")], deadline);
    table.clients[1].on_room(deadline);
    let Some(ClientMessage::Auth(proof)) = table.sent(1).pop() else { panic!("no AUTH") };
    table.say(1, vec![ok(&proof, true, "")], deadline);
    let again = table.sent(1);
    assert!(matches!(&again[..], [ClientMessage::Req { subscription, .. }] if subscription == "live-0"));
    table.say(1, vec![closed("live-0")], deadline);
    assert!(
        why(&mut table.clients[1]).contains("the relay refused a live subscription"),
        "AUTH changed nothing"
    );
}

#[test]
fn what_is_refused_in_the_middle_is_sent_again_after_auth() {
    let plan = Workload { auth: true, ungreeted: true, ..plan() };
    let mut table = Table::subscribed(Shared::new(plan), Format::JSON);
    table.clients[0].on_due(Due::Publication(0), MS);
    table.sent(0);
    let event = table.shared.workload.events[4].clone();
    table.say(0, vec![challenge(), ok(&event, false, REFUSAL)], 2 * MS);
    table.clients[0].on_room(2 * MS);
    let Some(ClientMessage::Auth(proof)) = table.sent(0).pop() else { panic!("no AUTH") };
    table.say(0, vec![ok(&proof, true, "")], 3 * MS);
    assert!(matches!(&table.sent(0)[..], [ClientMessage::Event(again)] if again.id == event.id));
    assert_eq!(table.shared.fate(0), crate::shared::Fate::Planned);
    table.say(0, vec![ok(&event, true, "")], 4 * MS);
    assert_eq!(table.shared.fate(0), crate::shared::Fate::Acked);
}

const REFUSAL: &str = "auth-required: kinds of private messages";
