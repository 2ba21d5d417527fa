//! A publisher, a subscriber and a requester against a scripted relay: each fault of a relay is
//! counted as such.

mod auth;
mod bytes;
mod light;
mod reconcile;
mod turns;

use std::{borrow::Cow, collections::HashMap, sync::Arc, time::Duration};

use codecs::{
    ClientMessage, Codec, EoseHints, Event, Filter, Format, Implementation, RelayMessage, VerifyLevel,
};
use fixedbitset::FixedBitSet;
use measure::Counts;

use super::{Action, Client, Report};
use crate::{ledger, recorder::Sample, shared::Shared};
use workload::{
    Due, Live, PlannedRequest, Publication, Role, Session, Speaks, Task, Timing, Workload, scenario::Connect,
};

const MS: u64 = 1_000_000;
const STAY: Duration = Duration::from_millis(5);

/// Stored events `0..4`, two of each of two authors; publications of kinds 1, 1 and 7 as events
/// `4..7`.
fn plan() -> Workload {
    let event = |n: u8| Event {
        id: [n + 1; 32],
        pubkey: [if n < 2 { 101 } else { 102 }; 32],
        created_at: 1_700_000_000 + i64::from(n),
        kind: if n == 6 { 7 } else { 1 },
        tags: vec![vec!["t".into(), "tests".into()]],
        content: format!("event {n}").into(),
        sig: [n; 64],
    };
    let live = |kind: u16, matches: [bool; 3]| Live {
        filter: Filter { kinds: Some(vec![kind]), limit: Some(0), ..Filter::default() },
        matches: (0..3).filter(|n| matches[*n]).collect(),
    };
    let request = |author: u8, expected: [u32; 2]| PlannedRequest {
        filter: Filter { authors: Some(vec![[author; 32]]), until: Some(1_700_000_003), ..Filter::default() },
        expected: expected.to_vec(),
    };
    let role = |task| Role::new(None, Speaks::default(), task);
    Workload {
        events: Arc::new((0..7).map(event).collect()),
        stored: 4,
        roles: vec![
            role(Task::Publisher { window: 1 }),
            role(Task::Subscriber { filters: vec![0, 1], read_bytes_per_s: None }),
            role(Task::Requester { connect: Connect::Before }),
        ],
        publications: (4..7)
            .map(|event| Publication { at: Duration::from_millis(1), connection: 0, event, closed: false })
            .collect(),
        sessions: vec![Session {
            at: Duration::ZERO,
            connection: 2,
            steps: vec![vec![request(101, [0, 1]), request(102, [2, 3])]],
            reconciliation: None,
            live: vec![0],
            stay: STAY,
            next: None,
            think: Duration::ZERO,
            follows: false,
        }],
        live: vec![live(1, [true, true, false]), live(7, [false, false, true])],
        ..Workload::default()
    }
    .indexed()
    .unwrap()
}

type Messages = Vec<RelayMessage<'static>>;

/// The messages of the relay, by client and time.
struct Script {
    /// To the requester, while it asks for stored events.
    stored: Messages,
    /// To the publisher.
    answers: Messages,
    /// To the subscriber.
    live: Messages,
    /// To the requester, while it stays.
    stay: Messages,
    /// To the requester, after it closed its subscriptions.
    late: Messages,
    /// To the subscriber, at the end, in bytes.
    raw: Vec<Vec<u8>>,
}

fn delivery(subscription: &'static str, event: &Event<'static>) -> RelayMessage<'static> {
    RelayMessage::Event { subscription: subscription.into(), event: Cow::Owned(event.clone()) }
}

fn eose(subscription: &'static str) -> RelayMessage<'static> {
    RelayMessage::Eose { subscription: subscription.into(), hints: EoseHints::default() }
}

fn ok(event: &Event<'_>, accepted: bool, text: &'static str) -> RelayMessage<'static> {
    RelayMessage::Ok { id: event.id, accepted, text: text.into() }
}

/// The messages of a relay without faults.
fn honest(events: &[Event<'static>]) -> Script {
    Script {
        stored: vec![
            delivery("s0-0-0", &events[0]),
            delivery("s0-0-1", &events[2]),
            delivery("s0-0-0", &events[1]),
            eose("s0-0-0"),
            delivery("s0-0-1", &events[3]),
            eose("s0-0-1"),
            eose("v0-0"),
        ],
        answers: events[4..].iter().map(|event| ok(event, true, "")).collect(),
        live: vec![
            delivery("live-0", &events[4]),
            delivery("live-1", &events[6]),
            delivery("live-0", &events[5]),
        ],
        stay: vec![delivery("v0-0", &events[4]), delivery("v0-0", &events[5])],
        late: Vec::new(),
        raw: Vec::new(),
    }
}

fn codec(format: Format) -> &'static dyn Codec {
    format.codec(Implementation::Library).unwrap()
}

struct Table {
    shared: Arc<Shared>,
    clients: Vec<Client>,
    format: Format,
}

impl Table {
    fn new(format: Format) -> Table {
        Table::subscribed(Shared::new(plan()), format)
    }

    fn subscribed(shared: Shared, format: Format) -> Table {
        let mut table = Table::connected(shared, format);
        assert!(!table.clients[1].is_ready(), "its live subscriptions have no EOSE");
        table.say(1, vec![eose("live-1"), eose("live-0")], 0);
        table.start()
    }

    /// Clients of a plan without live subscriptions.
    fn for_plan(workload: Workload, format: Format) -> Table {
        Table::connected(Shared::new(workload), format).start()
    }

    fn connected(shared: Shared, format: Format) -> Table {
        let shared = Arc::new(shared);
        let client = |id| Client::new(Arc::clone(&shared), codec(format), id, ("ws://127.0.0.1", 0));
        let mut clients: Vec<Client> = (0..shared.workload.roles.len()).map(client).collect();
        for client in &mut clients {
            client.open(0);
            assert_eq!(client.next_action(), Some(Action::Connect));
            client.on_connected(0);
        }
        Table { shared, clients, format }
    }

    fn start(mut self) -> Table {
        assert!(self.clients.iter().all(Client::is_ready));
        self.clients.iter_mut().for_each(|client| client.start(0));
        self
    }

    /// Messages that a client sent since the last call.
    fn sent(&mut self, client: usize) -> Vec<ClientMessage<'static>> {
        let codec = codec(self.format);
        let actions = std::iter::from_fn(|| self.clients[client].next_action());
        let messages = actions.filter_map(|action| match action {
            Action::Send(payload) => Some(codec.decode_client(&payload).unwrap().into_owned()),
            _ => None,
        });
        messages.collect()
    }

    fn say(&mut self, client: usize, messages: Messages, now_ns: u64) {
        let codec = codec(self.format);
        for message in messages {
            let mut payload = Vec::new();
            codec.encode_relay(&message, &mut payload).unwrap();
            self.clients[client].on_message(&payload, now_ns);
        }
    }

    /// Plays the plan against a relay that keeps to the script.
    fn play(mut self, script: Script) -> Counts {
        self.clients[2].on_due(Due::Session(0), 0);
        self.say(2, script.stored, MS / 2);
        for n in 0..3 {
            self.clients[0].on_due(Due::Publication(n), MS);
        }
        self.say(0, script.answers, 2 * MS);
        self.say(1, script.live, 3 * MS);
        self.say(2, script.stay, 3 * MS);
        self.clients[2].on_timer(8 * MS);
        self.say(2, script.late, 9 * MS);
        for payload in script.raw {
            self.clients[1].on_message(&payload, 9 * MS);
        }
        self.close()
    }

    fn close(self) -> Counts {
        let reports: Vec<_> = self.clients.into_iter().map(Client::finish).collect();
        ledger::close(&self.shared, &reports.iter().collect::<Vec<_>>(), true)
    }
}

/// The counts that are 0 in a run without faults.
fn damage(counts: &Counts) -> Vec<(&'static str, u64)> {
    [
        ("lost", counts.deliveries_lost),
        ("doubled", counts.deliveries_duplicated),
        ("altered", counts.deliveries_altered),
        ("misrouted", counts.deliveries_misrouted),
        ("invented", counts.deliveries_invented),
        ("unexpected", counts.deliveries_unexpected),
        ("after close", counts.deliveries_after_close),
        ("answers", counts.answers_unexpected),
        ("undecodable", counts.decode_errors),
        ("failed", counts.requests_failed),
        ("refused", counts.rejected),
        ("unanswered", counts.timed_out),
        ("not sent", counts.not_sent),
        ("dropped", counts.dropped_by_generator),
        ("closed", counts.subscriptions_closed),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
    .collect()
}

/// Whether these counts keep the ledger from balancing.
fn is_damage(expected: &[(&str, u64)]) -> bool {
    let harmless =
        ["after close", "answers", "failed", "refused", "unanswered", "not sent", "dropped", "closed"];
    expected.iter().any(|(name, _)| !harmless.contains(name))
}

#[test]
fn a_session_that_the_generator_did_not_begin_is_owed_nothing() {
    let mut plan = plan();
    plan.sessions[0].next = Some(1);
    plan.sessions.push(Session { follows: true, next: None, ..plan.sessions[0].clone() });
    let shared = Shared::new(plan);
    let outstanding = shared.outstanding();
    shared.drop_session(0);
    assert_eq!(shared.outstanding(), outstanding - 2, "nor does the one that follows begin");
    let counts = ledger::close(&shared, &[&Report::default(); 3], true);
    assert_eq!((counts.sessions_dropped_by_generator, counts.requests), (2, 0));
    assert_eq!((counts.deliveries_expected, counts.deliveries_lost), (0, 0), "{counts:?}");
    counts.balanced().unwrap();
}

#[test]
fn an_honest_relay_balances_in_every_format() {
    for format in Format::all() {
        let events = Arc::clone(&plan().events);
        let counts = Table::new(format).play(honest(&events));
        assert_eq!((damage(&counts), counts.balanced()), (vec![], Ok(())), "{format}");
        assert_eq!(
            (counts.deliveries, counts.acked, counts.requests_completed),
            (4 + 3 + 2, 3, 2),
            "{format}"
        );
    }
}

#[track_caller]
fn check(spoil: impl Fn(&mut Script, &[Event<'static>]), expected: &[(&str, u64)]) {
    let events = Arc::clone(&plan().events);
    let mut script = honest(&events);
    spoil(&mut script, &events);
    let counts = Table::new(Format::JSON).play(script);
    assert_eq!(damage(&counts), expected);
    assert_eq!(counts.balanced().is_err(), is_damage(expected), "{:?}", counts.balanced());
}

fn without(messages: &mut Messages, n: usize) {
    messages.remove(n);
}

fn again(messages: &mut Messages, n: usize) {
    messages.insert(n, messages[n].clone());
}

#[test]
fn stored_events_oldest_first_are_counted_where_nip_01_asks_for_another_order() {
    let events = Arc::clone(&plan().events);
    for (limit, newest_first, out_of_order) in [(None, false, 0), (Some(2), false, 1), (Some(2), true, 0)] {
        let mut plan = plan();
        plan.sessions[0].steps[0][0].filter.limit = limit;
        let mut script = honest(&events);
        if newest_first {
            script.stored.swap(0, 2);
        }
        let counts = Table::subscribed(Shared::new(plan), Format::JSON).play(script);
        assert_eq!((counts.deliveries_out_of_order, counts.balanced()), (out_of_order, Ok(())), "{limit:?}");
    }
}

#[test]
fn live_events_behind_later_ones_of_their_publisher_are_counted_and_no_damage() {
    let events = Arc::clone(&plan().events);
    let mut script = honest(&events);
    script.live.swap(0, 2);
    script.stay.swap(0, 1);
    let counts = Table::new(Format::JSON).play(script);
    assert_eq!((counts.deliveries_live_out_of_order, counts.balanced()), (2, Ok(())));
    // Of the same client, but of two subscriptions.
    let mut script = honest(&events);
    script.live.swap(0, 1);
    let counts = Table::new(Format::JSON).play(script);
    assert_eq!((counts.deliveries_live_out_of_order, damage(&counts)), (0, vec![]));
}

#[test]
fn sessions_wait_for_each_other_where_the_relay_takes_few_subscriptions() {
    let mut plan = plan();
    plan.sessions[0].live.clear();
    plan.sessions = vec![plan.sessions[0].clone(); 3];
    plan.most_subscriptions = Some(2);
    assert_eq!((plan.sessions[0].subscriptions(), plan.overlapping_subscriptions()), (2, 6));
    let mut table = Table::subscribed(Shared::new(plan), Format::JSON);
    table.sent(2);
    for n in 0..3 {
        table.clients[2].on_due(Due::Session(n), 0);
    }
    for n in 0..3 {
        let sent = table.sent(2);
        let asked = sent.iter().filter_map(|message| match message {
            ClientMessage::Req { subscription, .. } => Some(subscription.to_string()),
            _ => None,
        });
        let names = [format!("s{n}-0-0"), format!("s{n}-0-1")];
        assert_eq!(asked.collect::<Vec<_>>(), names, "{sent:?}");
        for name in names {
            let end = RelayMessage::Eose { subscription: name.into(), hints: EoseHints::default() };
            table.say(2, vec![end], MS);
        }
        table.clients[2].on_timer(2 * MS);
    }
    assert_eq!(table.close().requests_completed, 6);
}

#[test]
fn a_session_without_a_connection_at_the_end_is_no_loss() {
    let mut plan = plan();
    plan.roles[2] = Role::new(None, Speaks::default(), Task::Requester { connect: Connect::PerSession });
    let shared = Arc::new(Shared::new(plan));
    let mut requester = Client::new(Arc::clone(&shared), codec(Format::JSON), 2, ("ws://127.0.0.1", 0));
    requester.open(0);
    requester.start(0);
    requester.on_due(Due::Session(0), 0);
    let reports = [&Report::default(), &Report::default(), &requester.finish()];
    let counts = ledger::close(&shared, &reports, true);
    assert_eq!((counts.sessions_not_connected, counts.requests, counts.deliveries_expected), (1, 0, 0));
    assert_eq!(damage(&counts), [("not sent", 3)]);
    counts.balanced().unwrap();
}

#[test]
fn a_lost_delivery_is_lost_wherever_it_was_due() {
    check(|script, _| without(&mut script.live, 0), &[("lost", 1)]);
    check(|script, _| without(&mut script.stored, 0), &[("lost", 1)]);
    check(|script, _| script.stay.clear(), &[("lost", 2)]);
}

#[test]
fn a_doubled_delivery_is_counted_live_stored_and_across_eose() {
    check(|script, _| again(&mut script.live, 1), &[("doubled", 1)]);
    check(|script, _| again(&mut script.stored, 0), &[("doubled", 1)]);
    check(|script, _| again(&mut script.stay, 1), &[("doubled", 1)]);
    // After the EOSE of its request, before and after the end of the session.
    check(|script, events| script.stored.insert(4, delivery("s0-0-0", &events[1])), &[("doubled", 1)]);
    check(|script, events| script.late.push(delivery("s0-0-1", &events[3])), &[("doubled", 1)]);
}

#[test]
fn a_copy_across_eose_is_tolerated_where_the_plan_says_so() {
    let seam = |spoil: &dyn Fn(&mut Script, &[Event<'static>])| {
        let events = Arc::clone(&plan().events);
        let mut script = honest(&events);
        spoil(&mut script, &events);
        let mut table =
            Table::connected(Shared::new(Workload { tolerates_seam: true, ..plan() }), Format::JSON);
        table.say(1, vec![eose("live-1"), eose("live-0")], 0);
        let counts = table.start().play(script);
        (counts.deliveries_duplicated_at_seam, damage(&counts))
    };
    assert_eq!(seam(&|script, events| script.late.push(delivery("s0-0-1", &events[3]))), (1, vec![]));
    let thrice = |script: &mut Script, events: &[Event<'static>]| {
        script.late.extend(vec![delivery("s0-0-1", &events[3]); 2]);
    };
    assert_eq!(seam(&thrice), (1, vec![("doubled", 1)]));
    assert_eq!(seam(&|script, _| again(&mut script.stored, 0)), (0, vec![("doubled", 1)]));
    assert_eq!(seam(&|script, _| again(&mut script.stay, 0)), (0, vec![("doubled", 1)]));
    // A live event that came with the stored ones of a stay, before its EOSE.
    let early = |script: &mut Script, events: &[Event<'static>]| {
        script.stored.insert(6, delivery("v0-0", &events[4]));
    };
    assert_eq!(seam(&early), (1, vec![]));
}

#[test]
fn of_a_session_that_ended_nothing_is_kept_but_what_a_later_answer_may_change() {
    let events = Arc::clone(&plan().events);
    // The refusal of the second publication comes when the session has ended.
    for (answered, kept) in [(3, 0), (1, 1)] {
        let mut table = Table::new(Format::JSON);
        let script = honest(&events);
        table.clients[2].on_due(Due::Session(0), 0);
        table.say(2, script.stored, MS / 2);
        (0..3).for_each(|n| table.clients[0].on_due(Due::Publication(n), MS));
        table.say(0, script.answers[..answered].to_vec(), 2 * MS);
        table.say(1, script.live, 3 * MS);
        table.say(2, script.stay, 3 * MS);
        table.clients[2].on_timer(8 * MS);
        let report = table.clients[2].report();
        assert_eq!(report.stays.iter().map(|stay| stay.seen.len()).sum::<usize>(), kept, "{report:?}");
        assert_eq!((report.stays.len(), report.counts.deliveries), (kept, 4 + 2 - kept as u64));
        let late = [ok(&events[5], false, "blocked: no"), ok(&events[6], true, "")];
        table.say(0, if answered == 1 { late.to_vec() } else { vec![] }, 9 * MS);
        let counts = table.close();
        let unexpected = if answered == 1 { vec![("unexpected", 2), ("refused", 1)] } else { vec![] };
        assert_eq!(damage(&counts), unexpected);
        assert_eq!(counts.deliveries, 4 + 3 + 2 - 2 * kept as u64, "{counts:?}");
    }
}

#[test]
fn a_stay_that_asks_with_limit_1_is_sent_one_stored_event() {
    let play = |early: &[usize]| {
        let mut workload = plan();
        workload.live[0].filter.limit = Some(1);
        let events = Arc::clone(&workload.events);
        let mut script = honest(&events);
        for event in early {
            script.stored.insert(6, delivery("v0-0", &events[*event]));
        }
        let mut table = Table::connected(Shared::new(workload), Format::JSON);
        table.say(1, vec![eose("live-1"), eose("live-0")], 0);
        damage(&table.start().play(script))
    };
    assert_eq!(play(&[0]), []);
    assert_eq!(play(&[0, 1]), [("unexpected", 1)]);
    assert_eq!(play(&[4]), []);
    assert_eq!(play(&[6]), [("misrouted", 1)]);
}

#[test]
fn wrong_deliveries_are_named_with_what_the_relay_said() {
    let mut table = Table::new(Format::JSON);
    let shared = Arc::clone(&table.shared);
    let events = Arc::clone(&shared.workload.events);
    let mut script = honest(&events);
    script.stored[0] = delivery("s0-0-1", &events[0]);
    script.stored[3] = closed("s0-0-0");
    script.answers[2] = ok(&events[6], false, "blocked: not today");
    table.say(1, vec![RelayMessage::Notice { text: "slow down".into() }], 0);
    script.live.remove(0);
    let counts = table.play(script);
    let found =
        [("lost", 2), ("misrouted", 1), ("unexpected", 1), ("answers", 1), ("failed", 1), ("refused", 1)];
    assert_eq!(damage(&counts), found);
    let named = shared.incidents.named();
    let [of_request, of_live, misrouted, unexpected] = &named.lines().collect::<Vec<_>>()[..] else {
        panic!("{named}")
    };
    assert!(of_request.contains("lost 1 of 2: 0101"), "{of_request}");
    assert!(of_request.ends_with("the relay said CLOSED error: no more"), "{of_request}");
    assert!(of_request.contains(r#"for s0-0-0 {"authors":["6565"#), "{of_request}");
    assert!(of_live.contains("lost 2 of 2: 0505"), "{of_live}");
    assert!(of_live.ends_with("on connection 1; the relay said NOTICE slow down"), "{of_live}");
    assert!(misrouted.contains("misrouted 1 of 1: 0101"), "{misrouted}");
    assert!(misrouted.contains("of kind 1 for s0-0-1"), "{misrouted}");
    assert!(unexpected.contains("of kind 7 for live-1"), "{unexpected}");
    assert!(unexpected.ends_with("the relay said OK false: blocked: not today"), "{unexpected}");
}

#[test]
fn a_stored_event_that_comes_behind_its_eose_is_lost_and_unexpected() {
    check(|script, _| script.stored.swap(2, 3), &[("lost", 1), ("unexpected", 1)]);
}

#[test]
fn a_change_of_any_field_is_an_alteration() {
    let changes: [fn(&mut Event<'static>); 8] = [
        |event| event.pubkey[31] ^= 1,
        |event| event.created_at += 1,
        |event| event.kind += 1,
        |event| event.tags[0][1] = "other".into(),
        |event| event.tags[0].push("".into()),
        |event| event.tags.clear(),
        |event| event.content = Cow::Borrowed("event 4 "),
        |event| event.sig[0] ^= 1,
    ];
    for change in changes {
        let spoil = |messages: &mut Messages, n: usize| {
            let RelayMessage::Event { event, .. } = &mut messages[n] else { panic!("not a delivery") };
            change(event.to_mut());
        };
        check(|script, _| spoil(&mut script.live, 0), &[("lost", 1), ("altered", 1)]);
        check(|script, _| spoil(&mut script.stored, 1), &[("lost", 1), ("altered", 1)]);
        check(|script, _| spoil(&mut script.stay, 0), &[("lost", 1), ("altered", 1)]);
    }
}

#[test]
fn what_fails_a_clients_own_check_is_altered_though_it_is_what_was_published() {
    let mut events = (*plan().events).clone();
    // Signed by nobody; the last event has the id of another text, too.
    events[..6].iter_mut().for_each(|event| event.id = event.compute_id());
    for (level, altered) in [(VerifyLevel::None, 0), (VerifyLevel::Id, 1), (VerifyLevel::Full, 9)] {
        for keeps_bytes in [false, true] {
            let workload = Workload { events: Arc::new(events.clone()), index: HashMap::default(), ..plan() };
            let mut shared = Shared::new(workload.indexed().unwrap());
            shared.verify = level;
            if keeps_bytes {
                shared.keep_bytes();
            }
            let counts = Table::subscribed(shared, Format::JSON).play(honest(&events));
            assert_eq!((counts.deliveries_altered, counts.deliveries), (altered, 9 - altered), "{level}");
            assert_eq!(counts.balanced().is_ok(), altered == 0, "{level}");
        }
    }
}

#[test]
fn an_event_that_nobody_published_is_invented() {
    let invented = |subscription, events: &[Event<'static>]| {
        delivery(subscription, &Event { id: [99; 32], ..events[4].clone() })
    };
    for subscription in ["live-0", "live-9", "nobody"] {
        check(|script, events| script.live.push(invented(subscription, events)), &[("invented", 1)]);
    }
    check(|script, events| script.stored.insert(0, invented("s0-0-0", events)), &[("invented", 1)]);
    check(|script, events| script.stay.push(invented("v0-0", events)), &[("invented", 1)]);
}

#[test]
fn an_event_under_the_id_of_a_subscription_that_did_not_ask_for_it_is_misrouted() {
    for subscription in ["live-1", "live-2", "nobody", "s0-0-0", "v0-0", "n0", "f0-0"] {
        check(
            |script, events| script.live[0] = delivery(subscription, &events[4]),
            &[("lost", 1), ("misrouted", 1)],
        );
    }
    // A stored event on another request, on a request of a later step, on a session that does not
    // exist.
    for subscription in ["s0-0-1", "s0-1-0", "s1-0-0", "v0-1"] {
        check(
            |script, events| script.stored[0] = delivery(subscription, &events[0]),
            &[("lost", 1), ("misrouted", 1)],
        );
    }
    check(|script, events| script.stay.push(delivery("v0-0", &events[6])), &[("misrouted", 1)]);
    check(|script, events| script.late.push(delivery("v0-0", &events[6])), &[("misrouted", 1)]);
}

#[test]
fn a_stored_event_on_a_live_subscription_that_matches_is_unexpected() {
    check(|script, events| script.live.push(delivery("live-0", &events[0])), &[("unexpected", 1)]);
}

#[test]
fn a_live_event_on_its_way_when_its_subscription_closed_is_no_damage() {
    check(|script, events| script.late.push(delivery("v0-0", &events[4])), &[("after close", 1)]);
    let during = |script: &mut Script, events: &[Event<'static>]| {
        script.stored.insert(4, delivery("s0-0-0", &events[5]));
    };
    // Another author wrote this event: under this subscription id it can only be misrouted.
    check(during, &[("misrouted", 1)]);
}

#[test]
fn eose_twice_is_an_answer_to_nothing_and_eose_never_a_request_that_failed() {
    for subscription in ["s0-0-0", "v0-0"] {
        check(|script, _| script.stay.push(eose(subscription)), &[("answers", 1)]);
    }
    for subscription in ["live-0", "live-7", "nobody", "n0", "f0-0", "s0-9-0"] {
        check(|script, _| script.live.push(eose(subscription)), &[("answers", 1)]);
    }
    check(
        |script, _| {
            script.stored.truncate(5);
            script.stay.clear();
        },
        &[("failed", 1)],
    );
}

fn closed(subscription: &'static str) -> RelayMessage<'static> {
    RelayMessage::Closed { subscription: subscription.into(), text: "error: no more".into() }
}

#[test]
fn closed_costs_what_it_closes_and_nothing_else() {
    // After EOSE it says nothing (NIP-01), and for what was not opened it is passed over.
    check(|script, _| script.stored.insert(4, closed("s0-0-0")), &[]);
    for subscription in ["s0-0-1", "v0-0"] {
        check(|script, _| script.late.push(closed(subscription)), &[]);
    }
    for subscription in ["s0-0-2", "v0-1", "v9-0", "live-7", "n0", "n9", "f0-0", "nobody"] {
        check(|script, _| script.late.push(closed(subscription)), &[("answers", 1)]);
    }
    // Before EOSE it refuses one request: the rest of the session goes on.
    check(|script, _| script.stored[3] = closed("s0-0-0"), &[("failed", 1)]);
    check(
        |script, _| {
            script.stored[3] = closed("s0-0-0");
            script.stored.remove(0);
        },
        &[("lost", 1), ("failed", 1)],
    );
    check(
        |script, events| {
            script.stored[3] = closed("s0-0-0");
            script.stored.remove(0);
            script.stored.extend([delivery("s0-0-0", &events[0]), delivery("s0-0-0", &events[1])]);
        },
        &[("lost", 1), ("doubled", 1), ("unexpected", 1), ("failed", 1)],
    );
    check(
        |script, _| {
            script.stored[3] = closed("s0-0-0");
            script.stored.push(eose("s0-0-0"));
        },
        &[("answers", 1), ("failed", 1)],
    );
}

#[test]
fn a_refused_publication_that_is_delivered_ends_no_run_before_the_others() {
    // The session, and the first publication with its delivery.
    const LEFT: i64 = 1 + 2;
    for refusal in [(false, "blocked: no"), (false, "mute: nobody"), (true, "duplicate: have it")] {
        for refused_first in [true, false] {
            let mut table = Table::new(Format::JSON);
            let events = Arc::clone(&table.shared.workload.events);
            for n in 0..3 {
                table.clients[0].on_due(Due::Publication(n), MS);
            }
            for event in &events[5..] {
                let live = if event.kind == 7 { "live-1" } else { "live-0" };
                let mut said = [(0, ok(event, refusal.0, refusal.1)), (1, delivery(live, event))];
                if !refused_first {
                    said.reverse();
                }
                said.into_iter().for_each(|(client, message)| table.say(client, vec![message], 2 * MS));
            }
            assert_eq!(table.shared.outstanding(), LEFT, "{refusal:?}, first: {refused_first}");
            let counts = table.close();
            assert_eq!((counts.rejected, counts.deliveries_unexpected, counts.timed_out), (2, 2, 1));
        }
    }
}

#[test]
fn a_publication_that_was_never_due_is_not_sent_and_one_without_an_answer_is_unanswered() {
    let mut table = Table::new(Format::JSON);
    table.clients[0].on_due(Due::Publication(1), MS);
    let counts = table.close();
    assert_eq!((counts.planned, counts.timed_out, counts.not_sent), (3, 1, 2));
}

#[test]
fn a_live_subscription_that_the_relay_ended_is_owed_nothing_more() {
    let cut_off = |spoil: fn(&mut Script, &[Event<'static>])| {
        let events = Arc::clone(&plan().events);
        let mut script = honest(&events);
        spoil(&mut script, &events);
        let counts = Table::new(Format::JSON).play(script);
        assert_eq!(counts.subscriptions_closed, 1);
        (damage(&counts).len() == 1, counts.deliveries_cut_off)
    };
    assert_eq!(cut_off(|script, _| script.live.push(closed("live-0"))), (true, 0));
    assert_eq!(cut_off(|script, _| script.live = vec![closed("live-1"), closed("live-1")]), (false, 1));
    assert_eq!(cut_off(|script, _| script.live[1] = closed("live-1")), (true, 1));
    assert_eq!(cut_off(|script, _| script.stay = vec![closed("v0-0")]), (true, 2));
    // A relay that refuses the subscription at once.
    let refused = |script: &mut Script, _: &[Event<'static>]| {
        script.stored[6] = closed("v0-0");
        script.stay.clear();
    };
    assert_eq!(cut_off(refused), (true, 2));
    // After its CLOSED nothing may come.
    check(|script, _| script.live.insert(0, closed("live-1")), &[("unexpected", 1), ("closed", 1)]);
    check(|script, _| script.stay.insert(1, closed("v0-0")), &[("unexpected", 1), ("closed", 1)]);
}

#[test]
fn a_relay_that_ends_every_subscription_does_not_hold_the_run() {
    let mut table = Table::new(Format::JSON);
    table.clients[2].on_due(Due::Session(0), 0);
    let events = Arc::clone(&table.shared.workload.events);
    let script = honest(&events);
    table.say(2, script.stored, MS / 2);
    table.say(1, vec![closed("live-0")], MS / 2);
    (0..3).for_each(|n| table.clients[0].on_due(Due::Publication(n), MS));
    table.say(0, vec![ok(&events[4], false, "blocked: no")], MS);
    table.say(0, script.answers[1..].to_vec(), MS);
    table.say(1, vec![closed("live-1"), closed("live-1")], 2 * MS);
    table.say(2, vec![closed("v0-0")], 3 * MS);
    table.clients[2].on_timer(8 * MS);
    assert_eq!((table.shared.outstanding(), table.shared.is_done()), (0, true));
}

#[test]
fn ok_twice_false_or_for_another_event_is_counted() {
    check(|script, _| again(&mut script.answers, 0), &[("answers", 1)]);
    check(|script, events| script.answers.push(ok(&events[0], true, "")), &[("answers", 1)]);
    check(|script, _| without(&mut script.answers, 2), &[("unanswered", 1)]);
    // A refused event must not be delivered, and neither must a duplicate.
    for (accepted, text) in [(false, "blocked: not today"), (true, "duplicate: have it")] {
        check(
            |script, events| {
                script.answers[2] = ok(&events[6], accepted, text);
                without(&mut script.live, 1);
            },
            &[("refused", 1)],
        );
        check(
            |script, events| script.answers[2] = ok(&events[6], accepted, text),
            &[("unexpected", 1), ("refused", 1)],
        );
    }
}

#[test]
fn a_message_cut_off_anywhere_is_not_taken_for_a_delivery() {
    for format in Format::all() {
        let events = Arc::clone(&plan().events);
        let codec = codec(format);
        let mut payload = Vec::new();
        codec.encode_relay(&delivery("live-0", &events[4]), &mut payload).unwrap();
        let cuts: Vec<usize> = (1..payload.len()).step_by(7).collect();
        let mut script = honest(&events);
        script.raw = cuts.iter().map(|cut| payload[..*cut].to_vec()).collect();
        let counts = Table::new(format).play(script);
        assert_eq!(damage(&counts), [("undecodable", cuts.len() as u64)], "{format}");
    }
}

#[test]
fn a_relay_that_is_silent_or_talks_for_ever_is_given_up_when_its_time_to_set_up_is_over() {
    for talks in [false, true] {
        let mut table = Table::connected(Shared::new(plan()), Format::JSON);
        let stored = table.shared.workload.events[0].clone();
        table.say(1, vec![eose("live-0")], 0);
        for second in 1..60 {
            if talks {
                table.say(1, vec![delivery("live-1", &stored)], second * 1_000 * MS);
            }
            table.clients[1].on_timer(second * 1_000 * MS);
        }
        assert!(!actions(&mut table.clients[1]).iter().any(|action| matches!(action, Action::Fail(_))));
        assert_eq!(table.clients[1].next_wake_ns(), Some(60_000 * MS));
        table.clients[1].on_timer(60_000 * MS);
        let request = r#"EOSE of ["REQ","live-1",{"kinds":[7],"limit":0}]"#;
        let why = format!("for 60 s {request} did not come");
        assert_eq!(actions(&mut table.clients[1]), [Action::Fail(why)]);
    }
}

fn actions(client: &mut Client) -> Vec<Action> {
    std::iter::from_fn(|| client.next_action()).collect()
}

#[test]
fn a_slow_reader_that_is_cut_off_ends_and_any_other_client_fails() {
    let mut workload = plan();
    workload.roles[1].task = Task::Subscriber { filters: vec![0], read_bytes_per_s: Some(1_000) };
    let mut table = Table::connected(Shared::new(workload), Format::JSON);
    for (mut client, fails) in table.clients.drain(..2).zip([true, false]) {
        client.start(0);
        actions(&mut client);
        client.on_disconnected("reset by peer");
        assert_eq!(matches!(client.next_action(), Some(Action::Fail(_))), fails);
        assert_eq!(client.finish().cut_off.is_some(), !fails);
    }
}

#[test]
fn a_reader_that_has_everything_is_not_behind_again_when_its_connection_ends() {
    let mut workload = plan();
    for role in 0..2 {
        workload.roles[role].task = Task::Subscriber { filters: vec![1], read_bytes_per_s: Some(1_000) };
    }
    workload.publications.clear();
    workload.sessions.clear();
    workload.live.iter_mut().for_each(|live| live.matches = FixedBitSet::new());
    let mut table = Table::connected(Shared::new(workload), Format::JSON);
    let mut client = table.clients.remove(0);
    client.start(0);
    client.on_timer(100 * MS);
    client.on_disconnected("closed");
    assert_eq!(client.finish().cut_off, None);
    assert!(!table.shared.is_done(), "the other reader has read nothing");
}

#[test]
fn what_does_not_decode_before_the_start_ends_the_run_with_the_reason() {
    let mut table = Table::connected(Shared::new(plan()), Format::JSON);
    table.clients[1].on_message(b"[not json", MS);
    let actions = actions(&mut table.clients[1]);
    let Some(Action::Fail(why)) = actions.last() else { panic!("{actions:?}") };
    assert!(why.contains("does not decode"), "{why}");
}

#[test]
fn samples_are_taken_up_to_what_else_is_to_be_done() {
    let mut client = Table::new(Format::JSON).clients.remove(1);
    actions(&mut client);
    let sample = |now_ns| Sample { timing: Timing::Response, since_ns: 0, now_ns, apart: false };
    client.actions.extend([Action::Record(sample(1)), Action::Close, Action::Record(sample(2))]);
    assert_eq!(client.next_sample(), Some(sample(1)));
    assert_eq!(client.next_sample(), None, "the connection is closed first");
    assert!(client.has_work());
    assert_eq!(client.next_action(), Some(Action::Close));
    assert_eq!(client.next_sample(), Some(sample(2)));
    assert!(!client.has_work());
}
