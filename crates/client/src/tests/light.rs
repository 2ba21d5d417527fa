//! Light readers against relays that lose, double and invent deliveries, from seeds: the ledger is
//! exact by count, whatever they decode.

use corpus::Random;

use super::*;

const SEEDS: u64 = 200;

/// Light readers decode every third delivery.
const EVERY: u32 = 3;

/// Publications of the plan; each matches one of the subscriber's two filters.
const PUBLISHED: u32 = 60;

/// Stored events that the session asks for, in two requests of one step.
const STORED: u32 = 40;

fn event(n: u32) -> Event<'static> {
    let mut id = [7; 32];
    id[..4].copy_from_slice(&n.to_le_bytes());
    let kind = if n.is_multiple_of(2) { 1 } else { 7 };
    let created_at = 1_700_000_000 + i64::from(n);
    Event { id, pubkey: [9; 32], created_at, kind, tags: vec![], content: "note".into(), sig: [3; 64] }
}

/// A publisher, a light subscriber and a light requester.
fn plan() -> Workload {
    let light = |task| Role { decode_every: Some(EVERY), ..Role::new(None, Speaks::default(), task) };
    let live = |kind: usize| Live {
        filter: Filter { kinds: Some(vec![[1, 7][kind]]), limit: Some(0), ..Filter::default() },
        matches: (0..PUBLISHED as usize).filter(|n| n % 2 == kind).collect(),
    };
    let request = |kind: u32| PlannedRequest {
        filter: Filter { kinds: Some(vec![[1, 7][kind as usize]]), ..Filter::default() },
        expected: (0..STORED).filter(|n| n % 2 == kind).collect(),
    };
    let steps = vec![vec![request(0), request(1)]];
    Workload {
        events: Arc::new((0..STORED + PUBLISHED).map(event).collect()),
        stored: STORED as usize,
        roles: vec![
            Role::new(None, Speaks::default(), Task::Publisher { window: 1 }),
            light(Task::Subscriber { filters: vec![0, 1], read_bytes_per_s: None }),
            light(Task::Requester { connect: Connect::Before }),
        ],
        publications: (STORED..STORED + PUBLISHED)
            .map(|event| Publication { at: Duration::from_millis(1), connection: 0, event, closed: false })
            .collect(),
        sessions: vec![Session { steps, ..Session::once(Duration::ZERO, 2) }],
        live: vec![live(0), live(1)],
        ..Workload::default()
    }
    .indexed()
    .unwrap()
}

/// A run of the plan against a relay with faults, and what the relay did.
struct Played {
    counts: Counts,
    /// Deliveries that the relay sent, doubled and invented ones among them.
    sent: u64,
    lost: u64,
    doubled: u64,
    invented: u64,
    /// Whether the run waits for nothing more.
    is_done: bool,
}

/// Probabilities, in percent, that the relay spoils a delivery or refuses a publication.
#[derive(Clone, Copy, Default)]
struct Faults {
    lose: usize,
    double: usize,
    invent: usize,
    refuse: usize,
    alter: usize,
}

struct Play {
    table: Table,
    random: Random,
    faults: Faults,
    played: Played,
}

impl Play {
    fn from_seed(seed: u64, faults: Faults) -> Played {
        let mut table = Table::connected(Shared::new(plan()), Format::JSON);
        table.say(1, vec![eose("live-1"), eose("live-0")], 0);
        let played =
            Played { counts: Counts::default(), sent: 0, lost: 0, doubled: 0, invented: 0, is_done: false };
        let random = Random::new("light", seed);
        Play { table: table.start(), random, faults, played }.play()
    }

    fn play(mut self) -> Played {
        let events = Arc::clone(&self.table.shared.workload.events);
        self.table.clients[2].on_due(Due::Session(0), 0);
        for (n, event) in events[..STORED as usize].iter().enumerate() {
            let subscription = ["s0-0-0", "s0-0-1"][n % 2];
            self.deliver(2, subscription, event);
        }
        self.hear(2, &eose("s0-0-0"));
        self.hear(2, &eose("s0-0-1"));
        for (n, event) in (0..).zip(&events[STORED as usize..]) {
            self.table.clients[0].on_due(Due::Publication(n), MS);
            let accepted = !self.hits(self.faults.refuse);
            if accepted {
                self.deliver(1, ["live-0", "live-1"][n as usize % 2], event);
            }
            self.table.say(0, vec![ok(event, accepted, "")], 2 * MS);
        }
        self.played.is_done = self.table.shared.is_done();
        Played { counts: self.table.close(), ..self.played }
    }

    fn hits(&mut self, percent: usize) -> bool {
        self.random.below(100) < percent
    }

    fn deliver(&mut self, client: usize, subscription: &'static str, event: &Event<'static>) {
        if self.hits(self.faults.lose) {
            self.played.lost += 1;
            return;
        }
        let mut event = event.clone();
        if self.hits(self.faults.alter) {
            event.content = "altered".into();
        }
        let doubled = self.hits(self.faults.double);
        for _ in 0..1 + usize::from(doubled) {
            self.played.sent += 1;
            self.hear(client, &delivery(subscription, &event));
        }
        self.played.doubled += u64::from(doubled);
        if self.hits(self.faults.invent) {
            self.played.sent += 1;
            self.played.invented += 1;
            event.id[31] = 1;
            self.hear(client, &delivery(subscription, &event));
        }
    }

    /// Brings a message to a client as the owner of its connection does.
    fn hear(&mut self, client: usize, message: &RelayMessage<'_>) {
        let mut payload = Vec::new();
        codec(Format::JSON).encode_relay(message, &mut payload).unwrap();
        let client = &mut self.table.clients[client];
        if client.counts_from().is_some_and(|from| payload.len() >= from) {
            client.on_unread(3 * MS);
        } else {
            client.on_message(&payload, 3 * MS);
        }
    }
}

#[test]
fn an_honest_relay_balances_and_every_nth_delivery_is_decoded() {
    for seed in 0..SEEDS {
        let Played { counts, sent, is_done, .. } =
            Play::from_seed(seed, Faults { refuse: 10, ..Faults::default() });
        assert_eq!((damage_but_refusals(&counts), counts.balanced()), (vec![], Ok(())), "seed {seed}");
        assert_eq!((counts.deliveries, counts.requests_completed), (sent, 2), "seed {seed}");
        let decoded = counts.deliveries - counts.deliveries_unread;
        // One of three, each client's first ones counted apart.
        assert!(decoded.abs_diff(sent / u64::from(EVERY)) <= 2, "seed {seed}: {decoded} of {sent}");
        assert!(is_done, "seed {seed}: nothing is waited for");
    }
}

#[test]
fn a_loss_is_found_to_the_count_and_so_is_what_comes_beside() {
    for seed in 0..SEEDS {
        let Played { counts, lost, .. } =
            Play::from_seed(seed, Faults { lose: 10, refuse: 10, ..Faults::default() });
        assert_eq!(counts.deliveries_lost, lost, "seed {seed}: {counts:?}");
        assert_eq!(counts.balanced().is_err(), lost > 0, "seed {seed}");
        let Played { counts, doubled, invented, .. } =
            Play::from_seed(seed, Faults { double: 10, invent: 10, refuse: 10, ..Faults::default() });
        let found = counts.deliveries_duplicated + counts.deliveries_invented + counts.deliveries_unexpected;
        assert_eq!((found, counts.deliveries_lost), (doubled + invented, 0), "seed {seed}: {counts:?}");
        assert_eq!(counts.balanced().is_err(), found > 0, "seed {seed}");
    }
}

#[test]
fn what_is_lost_and_what_is_doubled_cancel_unless_they_are_decoded() {
    let mut cancelled = 0;
    for seed in 0..SEEDS {
        let faults = Faults { lose: 10, double: 10, ..Faults::default() };
        let Played { counts, lost, doubled, sent, .. } = Play::from_seed(seed, faults);
        let Counts { deliveries_lost, deliveries_duplicated, deliveries_unexpected, .. } = counts;
        let surplus = deliveries_duplicated + deliveries_unexpected;
        assert!(deliveries_lost <= lost && surplus <= doubled, "seed {seed}: {counts:?}");
        // Each message is one of these, and each owed delivery came or is lost.
        assert_eq!(counts.deliveries + surplus, sent, "seed {seed}: {counts:?}");
        assert_eq!(lost - deliveries_lost, doubled - surplus, "seed {seed}: {counts:?}");
        cancelled += lost - deliveries_lost;
    }
    assert!(cancelled > 0, "the docs say that such faults are missed");
}

#[test]
fn an_altered_event_is_found_where_it_is_decoded() {
    let (mut found, mut sent) = (0, 0);
    for seed in 0..SEEDS {
        let played = Play::from_seed(seed, Faults { alter: 100, ..Faults::default() });
        let counts = played.counts;
        // What was decoded never came as it should have; the rest counts as if it had.
        assert_eq!(counts.deliveries_altered, counts.deliveries_lost, "seed {seed}");
        assert_eq!(counts.deliveries, counts.deliveries_unread, "seed {seed}");
        assert!(counts.balanced().is_err(), "seed {seed}");
        found += counts.deliveries_altered;
        sent += played.sent;
    }
    assert!(found.abs_diff(sent / u64::from(EVERY)) <= 2 * SEEDS, "{found} of {sent}");
}

#[test]
fn a_subscription_that_the_relay_ends_is_owed_nothing_more() {
    let mut table = Table::connected(Shared::new(plan()), Format::JSON);
    table.say(1, vec![eose("live-1"), eose("live-0")], 0);
    let mut table = table.start();
    let events = Arc::clone(&table.shared.workload.events);
    let outstanding = table.shared.outstanding();
    for _ in 0..4 {
        let client = &mut table.clients[1];
        let from = client.counts_from();
        match from {
            Some(_) => client.on_unread(MS),
            None => table.say(1, vec![delivery("live-0", &events[STORED as usize])], MS),
        }
    }
    let closed =
        |id: &'static str| RelayMessage::Closed { subscription: id.into(), text: "error: no".into() };
    table.say(1, vec![closed("live-0"), closed("live-1")], 2 * MS);
    let open = outstanding - table.shared.outstanding();
    for n in 0..PUBLISHED {
        table.clients[0].on_due(Due::Publication(n), MS);
        table.say(0, vec![ok(&events[(STORED + n) as usize], true, "")], 2 * MS);
    }
    let counts = table.close();
    assert_eq!((counts.deliveries_unexpected, counts.subscriptions_closed), (0, 2), "{counts:?}");
    assert_eq!(counts.deliveries + counts.deliveries_cut_off, u64::from(PUBLISHED), "{counts:?}");
    assert_eq!(counts.deliveries, 4, "what came before CLOSED is accounted for");
    assert!(open >= i64::from(PUBLISHED) - 4, "the run waits for none of them");
}

#[test]
fn before_the_start_and_without_an_open_request_every_message_is_decoded() {
    let mut table = Table::connected(Shared::new(plan()), Format::JSON);
    assert!(table.clients.iter().all(|client| client.counts_from().is_none()));
    table.say(1, vec![eose("live-1"), eose("live-0")], 0);
    let table = table.start();
    // Connection 0 publishes, 1 has its subscriptions open, 2 has asked for nothing yet.
    assert_eq!(table.clients[0].counts_from(), None);
    assert!(table.clients[1].counts_from().is_some());
    assert_eq!(table.clients[2].counts_from(), None);
    assert!(!table.clients[0].reads_lightly() && table.clients[2].reads_lightly());
}

/// What is wrong with a run in which the relay may refuse events.
fn damage_but_refusals(counts: &Counts) -> Vec<(&'static str, u64)> {
    damage(counts).into_iter().filter(|(name, _)| *name != "refused").collect()
}
