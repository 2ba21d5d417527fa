//! Small random plans: every role, few events, so that a run takes a fraction of a millisecond.

use std::{sync::Arc, time::Duration};

use codecs::{Event, Filter, TagFilter, hex};
use corpus::Random;

use workload::{
    Due, Flood, Live, PlannedRequest, Publication, Reading, Reconciliation, Role, Session, Speaks, Task,
    Workload, scenario::Connect,
};

/// When the newest stored event was written; what is published is newer.
const NEWEST_STORED: i64 = 1_700_000_000;

/// Regular kinds (NIP-01): the relay keeps each of their events.
const KINDS: [u16; 3] = [1, 7, 1_111];

const AUTHORS: usize = 4;

/// A random plan.
pub(super) fn plan(random: &mut Random) -> Workload {
    // With more than 31 events a reconciliation takes several rounds.
    let stored = if random.below(6) == 0 { 60 + random.below(100) } else { random.below(20) };
    let published = random.below(25);
    let mut plan = Workload { stored, ..Workload::default() };
    plan.events = Arc::new((0..stored + published).map(|n| event(random, n, n < stored)).collect());
    plan_live(&mut plan, random);
    plan_publishers(&mut plan, random);
    for _ in 0..1 + random.below(3) {
        plan_subscriber(&mut plan, random);
    }
    for _ in 0..random.below(4) {
        plan_requester(&mut plan, random);
    }
    for _ in 0..random.below(3) {
        plan_reconciler(&mut plan, random);
    }
    if random.below(3) == 0 {
        plan_reader(&mut plan, random);
    }
    plan.auth = random.below(8) == 0;
    plan.tolerates_seam = random.below(2) == 0;
    plan.sessions.sort_by_key(|session| (session.at, session.connection, session.follows));
    for n in 0..plan.sessions.len() {
        let next = plan.sessions.get(n + 1).is_some_and(|next| next.follows);
        plan.sessions[n].next = next.then(|| u32::try_from(n + 1).unwrap());
    }
    // Publications in the order in which they are due; live filters match by their place in it.
    let matches = |live: &Live, publications: &[Publication]| {
        let all = publications.iter().enumerate();
        let matching = all.filter(|(_, p)| live.filter.matches(&plan.events[p.event as usize]));
        matching.map(|(n, _)| n).collect()
    };
    let live: Vec<_> = plan.live.iter().map(|live| matches(live, &plan.publications)).collect();
    for (live, matches) in plan.live.iter_mut().zip(live) {
        live.matches = matches;
    }
    plan.indexed().unwrap()
}

fn event(random: &mut Random, n: usize, is_stored: bool) -> Event<'static> {
    let age = i64::try_from(random.below(1_000)).unwrap();
    let author = u8::try_from(random.below(AUTHORS)).unwrap();
    Event {
        id: random.bytes32(),
        pubkey: [author + 1; 32],
        created_at: if is_stored { NEWEST_STORED - age } else { NEWEST_STORED + 1 + age },
        kind: KINDS[random.below(KINDS.len())],
        tags: vec![
            // First, because a relay that alters tags alters the first.
            vec!["p".into(), hex::encode(&[author + 1; 32]).into()],
            vec!["t".into(), format!("topic {}", random.below(3)).into()],
        ],
        content: format!("event {n}").into(),
        sig: [7; 64],
    }
}

/// A filter that may match anything, or nothing.
fn filter(random: &mut Random) -> Filter {
    let mut filter = Filter::default();
    if random.below(2) == 0 {
        filter.kinds = Some(vec![KINDS[random.below(KINDS.len())]]);
    }
    if random.below(2) == 0 {
        let author = |random: &mut Random| [u8::try_from(random.below(AUTHORS)).unwrap() + 1; 32];
        filter.authors = Some(vec![author(random), author(random)]);
    }
    if random.below(4) == 0 {
        let topic = format!("topic {}", random.below(3));
        filter.tags = vec![TagFilter { letter: 't', values: vec![topic] }];
    }
    filter
}

fn plan_live(plan: &mut Workload, random: &mut Random) {
    for _ in 0..1 + random.below(4) {
        let filter = Filter { limit: Some(0), ..filter(random) };
        plan.live.push(Live { filter, matches: fixedbitset::FixedBitSet::new() });
    }
}

fn some_live(plan: &Workload, random: &mut Random) -> Vec<u32> {
    (0..1 + random.below(3)).map(|_| u32::try_from(random.below(plan.live.len())).unwrap()).collect()
}

fn plan_publishers(plan: &mut Workload, random: &mut Random) {
    let publishers = 1 + random.below(2);
    let floods = random.below(3) == 0;
    for _ in 0..publishers {
        let task = Task::Publisher { window: 1 + random.below(4) };
        plan.roles.push(Role::new(None, Speaks::default(), task));
    }
    for event in plan.stored..plan.events.len() {
        let connection = random.below(publishers);
        let at = if floods { Duration::from_millis(5) } else { milliseconds(random, 100) };
        let event = u32::try_from(event).unwrap();
        plan.publications.push(Publication { at, connection, event, closed: floods });
    }
    plan.publications.sort_unstable();
    if floods {
        let mut first = 0;
        for chunk in plan.publications.chunk_by(|a, b| a.connection == b.connection) {
            let (count, connection) = (u32::try_from(chunk.len()).unwrap(), chunk[0].connection);
            plan.floods.push(Flood { at: chunk[0].at, connection, first, count });
            first += count;
        }
    }
}

fn plan_subscriber(plan: &mut Workload, random: &mut Random) {
    let filters = some_live(plan, random);
    let read_bytes_per_s = match random.below(6) {
        0 => Some(0),
        1 => Some(20_000),
        _ => None,
    };
    let task = Task::Subscriber { filters, read_bytes_per_s };
    plan.roles.push(Role::new(None, Speaks::default(), task));
}

fn plan_requester(plan: &mut Workload, random: &mut Random) {
    let connection = plan.roles.len();
    let connect = [Connect::Before, Connect::Again, Connect::PerSession][random.below(3)];
    plan.roles.push(Role::new(None, Speaks::default(), Task::Requester { connect }));
    let closed = random.below(3) == 0;
    let first = milliseconds(random, 50);
    for round in 0..random.below(4) {
        let mut steps = Vec::new();
        for _ in 0..random.below(3) {
            steps.push((0..1 + random.below(3)).map(|_| request(plan, random)).collect());
        }
        let session = Session {
            steps,
            live: if random.below(2) == 0 { some_live(plan, random) } else { Vec::new() },
            stay: milliseconds(random, 60),
            think: milliseconds(random, 5),
            follows: closed && round > 0,
            ..Session::once(if closed { first } else { milliseconds(random, 80) }, connection)
        };
        plan.sessions.push(session);
    }
}

/// A client that has some of the stored events, and events that nobody else has.
fn plan_reconciler(plan: &mut Workload, random: &mut Random) {
    let connection = plan.roles.len();
    plan.roles.push(Role::new(None, Speaks::default(), Task::Reconciler));
    for _ in 0..1 + random.below(2) {
        let filter = filter(random);
        let matching =
            (0..).zip(&plan.events[..plan.stored]).filter(|(_, event)| filter.matches(event)).map(|(n, _)| n);
        let (has, lacks) = matching.partition(|_| random.below(3) > 0);
        let at = milliseconds(random, 80);
        let mut own = Vec::new();
        for _ in 0..random.below(4) {
            let mut event = event(random, plan.events.len(), false);
            event.kind = filter.kinds.as_ref().map_or(event.kind, |kinds| kinds[0]);
            event.pubkey = filter.authors.as_ref().map_or(event.pubkey, |authors| authors[0]);
            for tag in &filter.tags {
                event.tags[0][1] = tag.values[0].clone().into();
            }
            let place = u32::try_from(plan.events.len()).unwrap();
            Arc::make_mut(&mut plan.events).push(event);
            plan.publications.push(Publication { at, connection, event: place, closed: true });
            own.push(place);
        }
        let chunk = 1 + random.below(5);
        let reconciliation = Reconciliation { filter, has, lacks, own, frame_bytes: 4_096, chunk };
        plan.sessions.push(Session { reconciliation: Some(reconciliation), ..Session::once(at, connection) });
    }
}

/// A client that reads some stored events from several relays.
fn plan_reader(plan: &mut Workload, random: &mut Random) {
    let (first, relays) = (plan.roles.len(), 2 + random.below(2));
    let reading = Reading { reader: plan.readers, peeks: random.below(2) == 0 };
    plan.roles.extend((0..relays).map(|_| Role::new(None, Speaks::default(), Task::Reader(reading))));
    plan.readers += 1;
    let at = milliseconds(random, 60);
    let mut brings = vec![Vec::new(); relays];
    for event in (0..).take(plan.stored.min(12)) {
        let different = 1 + random.below(relays);
        let from = random.below(relays);
        (0..different).for_each(|n| brings[(from + n) % relays].push(event));
    }
    // Protobuf cannot tell an empty list of ids from an absent one.
    for (relay, expected) in brings.into_iter().enumerate().filter(|(_, brings)| !brings.is_empty()) {
        let ids = Some(expected.iter().map(|event| plan.events[*event as usize].id).collect());
        let request = PlannedRequest { filter: Filter { ids, ..Filter::default() }, expected };
        plan.sessions.push(Session { steps: vec![vec![request]], ..Session::once(at, first + relay) });
    }
}

fn request(plan: &Workload, random: &mut Random) -> PlannedRequest {
    let filter = Filter { until: Some(NEWEST_STORED), ..filter(random) };
    let expected = (0..).zip(&plan.events[..plan.stored]).filter(|(_, event)| filter.matches(event));
    PlannedRequest { expected: expected.map(|(n, _)| n).collect(), filter }
}

fn milliseconds(random: &mut Random, below: usize) -> Duration {
    Duration::from_millis(u64::try_from(random.below(below)).unwrap())
}

/// Everything that is due at planned instants, with whose it is.
pub(super) fn timeline(plan: &Workload) -> Vec<(u64, usize, Due)> {
    let timeline = plan.timeline(|_| true);
    timeline.into_iter().map(|(at, client, due)| (workload::schedule::nanos(at), client, due)).collect()
}
