//! Recorded clients before a relay that is slower than the recorded one, or answers in another order.

use super::*;
use workload::{Says, Turn};

const LATE: u64 = 5_000 * MS;

/// What a client says; the REQ whose EOSE it waits for, by its place behind the connect; and whether
/// the recorded one got its EOSE.
type Spoken = (ClientMessage<'static>, Option<u32>, bool);

/// A client whose connection comes late, with all that it was to say on it, and to leave. Each REQ
/// asks for the first event.
fn recorded(spoken: Vec<Spoken>) -> Table {
    let last = spoken.iter().rposition(|(.., answered)| *answered);
    let leave = (Says::Leave, last.map(|n| u32::try_from(n + 1).unwrap()), false);
    let says = |(message, after, answered)| match message {
        ClientMessage::Auth(_) => (Says::Prove, after, answered),
        message => (Says::Message(Box::new(message)), after, answered),
    };
    let all = [(Says::Connect, None, false)].into_iter().chain(spoken.into_iter().map(says)).chain([leave]);
    let turns = (0..).zip(all).map(|(ms, (says, after, answered))| {
        let mut turn =
            Turn { at: Duration::from_millis(ms), connection: 0, says, after, answered, expected: vec![] };
        turn.expected.extend(turn.is_request().then_some(0));
        turn
    });
    let turns: Vec<_> = turns.collect();
    let roles = vec![Role::new(None, Speaks::default(), Task::Recorded)];
    let due = 1..u32::try_from(turns.len()).unwrap();
    let plan = Workload { turns, roles, sessions: vec![], publications: vec![], live: vec![], ..plan() };
    let shared = Arc::new(Shared::new(plan.indexed().unwrap()));
    let mut client = Client::new(Arc::clone(&shared), codec(Format::JSON), 0, ("ws://127.0.0.1", 0));
    client.start(0);
    client.on_due(Due::Turn(0), 0);
    assert!(std::iter::from_fn(|| client.next_action()).any(|action| action == Action::Connect));
    client.on_connected(LATE);
    due.for_each(|n| client.on_due(Due::Turn(n), LATE));
    Table { shared, clients: vec![client], format: Format::JSON }
}

impl Table {
    /// What the recorded client did since the last call: messages in JSON, and its leaving.
    fn did(&mut self) -> Vec<String> {
        let actions = std::iter::from_fn(|| self.clients[0].next_action());
        let texts = actions.filter_map(|action| match action {
            Action::Send(payload) => Some(String::from_utf8(payload.to_vec()).unwrap()),
            Action::Close => Some("leaves".to_owned()),
            _ => None,
        });
        texts.collect()
    }

    fn brings(&mut self, subscription: &'static str) {
        let event = self.shared.workload.events[0].clone();
        self.say(0, vec![delivery(subscription, &event), eose(subscription)], LATE);
    }
}

fn asks(id: &'static str) -> ClientMessage<'static> {
    ClientMessage::Req { subscription: id.into(), filters: vec![Filter::default()] }
}

fn closes(id: &'static str) -> ClientMessage<'static> {
    ClientMessage::Close { subscription: id.into() }
}

#[test]
fn a_late_client_closes_and_leaves_behind_the_eose_that_the_recorded_one_had() {
    let spoken = vec![(asks("a"), None, true), (closes("a"), Some(1), false), (asks("b"), Some(1), true)];
    let mut table = recorded(spoken);
    assert_eq!(table.did(), [r#"["REQ","a",{}]"#]);
    table.clients[0].on_timer(2 * LATE);
    assert_eq!(table.did(), [""; 0], "however late it is");
    table.brings("a");
    assert_eq!(table.did(), [r#"["CLOSE","a"]"#, r#"["REQ","b",{}]"#]);
    table.clients[0].on_timer(3 * LATE);
    assert_eq!(table.did(), [""; 0]);
    table.brings("b");
    assert_eq!(table.did(), ["leaves"]);
    assert!(table.shared.is_done());
    let counts = table.close();
    assert_eq!((counts.requests, counts.requests_completed, counts.deliveries_diverged), (2, 2, 0));
}

#[test]
fn a_request_ends_behind_its_own_eose_where_another_comes_first() {
    for (end, text, answered) in
        [(closes("a"), r#"["CLOSE","a"]"#, false), (asks("a"), r#"["REQ","a",{}]"#, true)]
    {
        let mut table =
            recorded(vec![(asks("a"), None, true), (asks("b"), None, true), (end, Some(2), answered)]);
        assert_eq!(table.did(), [r#"["REQ","a",{}]"#, r#"["REQ","b",{}]"#]);
        table.brings("b");
        assert_eq!(table.did(), [""; 0], "{text}");
        table.brings("a");
        assert_eq!(table.did()[0], text);
    }
}

#[test]
fn a_request_that_was_closed_before_its_eose_is_closed_at_once_and_owed_none() {
    let mut table = recorded(vec![(asks("a"), None, false), (closes("a"), None, false)]);
    assert_eq!(table.did(), [r#"["REQ","a",{}]"#, r#"["CLOSE","a"]"#, "leaves"]);
    assert!(table.shared.is_done());
    let counts = table.close();
    assert_eq!((counts.requests, counts.requests_failed, counts.deliveries_diverged), (0, 0, 1));
}

#[test]
fn a_challenge_is_answered_when_the_recorded_client_did_and_what_follows_waits_for_its_ok() {
    let proof = ClientMessage::Auth(Cow::Owned(plan().events[0].clone()));
    let spoken = vec![(asks("a"), None, true), (proof, Some(1), false), (asks("b"), Some(1), true)];
    let challenge = |text: &'static str| RelayMessage::Auth { challenge: text.into() };
    let mut table = recorded(spoken.clone());
    table.say(0, vec![challenge("first"), challenge("second")], LATE);
    assert_eq!((table.did(), table.clients[0].has_backlog()), (vec![r#"["REQ","a",{}]"#.to_owned()], false));
    table.brings("a");
    table.clients[0].on_room(LATE);
    let Some(ClientMessage::Auth(proof)) = table.sent(0).pop() else { panic!("no AUTH, or more") };
    let proof = proof.into_owned();
    assert_eq!(proof.first_tag_value("challenge"), Some("second"));
    table.say(0, vec![ok(&proof, true, "")], LATE);
    assert_eq!(table.did(), [r#"["REQ","b",{}]"#]);
    table.brings("b");
    assert_eq!(table.did(), ["leaves"]);
    assert_eq!(table.close().answers_unexpected, 0);
    // A relay that never sends OK keeps nobody waiting for ever.
    let mut table = recorded(spoken.clone());
    table.say(0, vec![challenge("first")], LATE);
    table.brings("a");
    table.clients[0].on_room(LATE);
    table.clients[0].on_timer(2 * LATE);
    assert!(!table.did().contains(&r#"["REQ","b",{}]"#.to_owned()));
    table.clients[0].on_timer(4 * LATE);
    assert_eq!(table.did(), [r#"["REQ","b",{}]"#]);
    // A relay that sends no challenge keeps nobody waiting.
    let mut table = recorded(spoken);
    table.brings("a");
    assert_eq!(table.did(), [r#"["REQ","a",{}]"#, r#"["REQ","b",{}]"#]);
}
