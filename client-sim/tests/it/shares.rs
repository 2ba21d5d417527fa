//! Several processes play shares of one plan against one relay, and their records make one.

use std::{
    collections::BTreeSet,
    process::Command,
    time::{Duration, Instant},
};

use codecs::{ClientMessage, Filter, Format, Implementation, RelayMessage};
use measure::{Counts, Latency, LiveCounts, RunRecord, Status, ValidityClass};
use wire::{Compression, Offer, WireLimits};

use crate::{
    agent::{Agent, monotonic_ns, start_all},
    common::Relay,
    events::write_few,
    ran::Runs,
    setup::Setup,
};

/// Deliveries here do not depend on time: no stays, no reconciliations.
const TIMELESS: &str = r#"
question = "Do shares make the whole?"
learn = "Whether they do."
seconds = 2

[[publish]]
connections = 9
arrival = { shape = "poisson", rate_per_s = 100 }

[[subscribe]]
name = "readers"
connections = 8

[[subscribe.filter]]
kinds = [1, 7, 3]

[[request]]
connections = 10
arrival = { shape = "burst", period_ms = 500 }

[[request.step]]
kinds = [3]
authors = 1

[[request.step]]
kinds = [1, 3]
authors = 20
known = 5
chunk = 10

[expect]
connections = { min = 27, max = 27 }
published = { min = 150 }
"#;

/// Deliveries here follow from instants, which other agents know by plan alone.
const TIMED: &str = r#"
question = "Is what another agent publishes owed to a stay, a slow reader, a reconciliation?"
learn = "Whether it is."
seconds = 2

[[publish]]
connections = 4
arrival = { shape = "poisson", rate_per_s = 60 }
kinds = [1]

[[subscribe]]
connections = 3
read_bytes_per_s = 20000

[[subscribe.filter]]
kinds = [1]

[[request]]
connections = 6
arrival = { shape = "poisson", rate_per_s = 8 }
connect = "per-session"
stay_ms = 400

[[request.step]]
kinds = [1]
authors = 1

[[request.live]]
kinds = [1]
"#;

/// No agent knows when another's is done.
const CLOSED_LOOP: &str = r#"
[[publish]]
connections = 2
arrival = { shape = "closed", rounds = 20 }
window = 4
kinds = [1]
"#;

/// All is due at time zero, but for one population.
const AT_ONCE: &str = r#"
question = "Does a share miss what comes early, or leave what comes late?"
learn = "Whether it does."
seconds = 2

[[publish]]
connections = 2
arrival = { shape = "burst", period_ms = 5000 }
kinds = [1]

[[subscribe]]
connections = 2

[[subscribe.filter]]
kinds = [1]

[[publish]]
connections = 1
arrival = { shape = "constant", rate_per_s = 50 }
kinds = [7]
"#;

/// Clients find what other agents' clients published before.
const SYNCED: &str = r#"
question = "May a relay name what another agent published?"
learn = "Whether it may."
seconds = 2

[[publish]]
connections = 3
arrival = { shape = "poisson", rate_per_s = 60 }

[[reconcile]]
connections = 3
arrival = { shape = "burst", period_ms = 1000 }
have = 0.9
extra = 4
frame_bytes = 64000
"#;

fn setup(scenario: &str) -> Setup {
    Setup::new(scenario, write_few)
}

/// A run of the plan against a relay that is not asked before.
fn against(setup: &Setup, url: &str, flags: &[&str]) -> Command {
    let mut command = setup.plan();
    command.args(["--url", url, "--doctor"]).arg(setup.path("unasked.json")).args(flags);
    command
}

fn share(setup: &Setup, url: &str, share: &str, extra: &[&str]) -> Agent {
    let extra = [&["--share", share, "--progress-json"], extra].concat();
    Agent::start(&mut against(setup, url, &extra), setup.path(&share.replace('/', "-")))
}

/// Plays the plan over so many agents, and returns their records.
fn play(setup: &Setup, relay: &Relay, of: u16, seed: &str) -> Vec<RunRecord> {
    play_told(setup, relay, of, seed).into_iter().map(|(record, _)| record).collect()
}

/// The same with what each agent told while it played.
fn play_told(setup: &Setup, relay: &Relay, of: u16, seed: &str) -> Vec<(RunRecord, Vec<LiveCounts>)> {
    let mut agents: Vec<Agent> = (0..of)
        .map(|index| {
            let flags = ["--seed", seed, "--block-id", "a"];
            share(setup, &relay.url, &format!("{index}/{of}"), &flags)
        })
        .collect();
    let prepared: BTreeSet<String> = agents.iter_mut().map(|agent| agent.prepared().to_string()).collect();
    assert_eq!(prepared.len(), 1, "all play one plan over one corpus: {prepared:?}");
    start_all(&mut agents);
    let records = agents.into_iter().map(|agent| {
        let ended = agent.end();
        ended.ran.measured();
        (RunRecord::read(&ended.record).unwrap(), ended.told)
    });
    records.collect()
}

fn relay() -> Relay {
    Relay::start(&["--keep-expired", "--default-limit", "100000", "--max-limit", "100000"])
}

/// The ids of all events that a relay holds.
fn held(relay: &Relay) -> BTreeSet<[u8; 32]> {
    let offer = Offer { formats: vec![Format::JSON], batched: false, compression: Compression::None };
    let codec = Format::JSON.codec(Implementation::Library).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut peer = wire::connect(&relay.url, &offer, &WireLimits::default()).await.unwrap();
        let mut request = Vec::new();
        let all = ClientMessage::Req { subscription: "all".into(), filters: vec![Filter::default()] };
        codec.encode_client(&all, &mut request).unwrap();
        peer.feed(request.into()).await.unwrap();
        peer.flush().await.unwrap();
        let mut ids = BTreeSet::new();
        loop {
            let message = peer.next().await.unwrap().unwrap();
            match codec.decode_relay(&message.payload).unwrap() {
                RelayMessage::Event { event, .. } => assert!(ids.insert(event.id)),
                RelayMessage::Eose { .. } => return ids,
                other => panic!("{other:?}"),
            }
        }
    })
}

/// The ledger without what depends on the moment: a live event that comes between EOSE and CLOSE.
fn timeless(counts: Counts) -> Counts {
    Counts { deliveries_after_close: 0, ..counts }
}

/// How many samples a metric has; none where it is absent.
fn samples(record: &RunRecord, metric: &str) -> u64 {
    record.latency.get(metric).map_or(0, Latency::len)
}

#[test]
fn any_number_of_agents_sends_the_same_events_with_the_same_ledger() {
    let setup = setup(TIMELESS);
    let alone = relay();
    let file = setup.path("alone");
    against(&setup, &alone.url, &["--seed", "7"]).arg("--record").arg(&file).ran().measured();
    let whole = RunRecord::read(&file).unwrap();
    whole.counts.balanced().unwrap();
    let ids = held(&alone);
    assert!(ids.len() as u64 > whole.counts.planned && whole.counts.deliveries > whole.counts.planned);
    for of in [1, 2, 7] {
        let relay = relay();
        let (records, told): (Vec<_>, Vec<_>) = play_told(&setup, &relay, of, "7").into_iter().unzip();
        for (record, told) in records.iter().zip(&told) {
            record.counts.balanced().unwrap();
            assert!(told.len() >= 2 && told.is_sorted_by(|one, next| next.follows(one)), "{told:?}");
            assert!(told.iter().rev().skip(1).all(|counts| counts.connections == record.connections));
            let last = told.last().unwrap();
            assert_eq!((last.connections, last.sent), (0, record.counts.planned));
            assert_eq!(last.deliveries, record.counts.deliveries, "the last line has all");
            assert_eq!(last.latency.samples(), samples(record, "response"));
            assert_eq!((&record.status, record.relay.is_none()), (&Status::Complete, true));
            let share = record.share.as_ref().unwrap();
            assert!(share.started_late_ns < 500_000_000, "{share:?}");
            assert!(share.handshake_ns_min.is_some_and(|ns| ns > 0 && ns < 5_000_000_000), "{share:?}");
        }
        let merged = RunRecord::merge(records.iter().cloned()).unwrap();
        assert_eq!(timeless(merged.counts), timeless(whole.counts), "{of} agents");
        assert_eq!(held(&relay), ids, "{of} agents");
        assert_eq!((merged.connections, merged.agents.len()), (whole.connections, usize::from(of)));
        assert_eq!(merged.validity.counts, ValidityClass::Valid, "{:?}", merged.validity.reasons);
        // Expectations that agents of 27 users are too few for are judged over all of them.
        assert!(!merged.validity.to_string().contains("expected at"));
        let publications = merged.traffic.to_relay.messages;
        assert_eq!(publications, whole.traffic.to_relay.messages, "{of} agents");
        for (metric, latency) in &merged.latency {
            let each = records.iter().map(|record| samples(record, metric));
            assert_eq!(latency.len(), each.sum::<u64>(), "{metric}, {of} agents");
        }
        assert_eq!(samples(&merged, "publish_ok"), whole.counts.acked);
        assert_eq!(samples(&merged, "eose"), whole.counts.requests_completed);
        // One clock times both ends of a delivery, or nobody does.
        let (timed, all) = (samples(&merged, "response"), samples(&whole, "response"));
        assert!(if of == 1 { timed == all } else { 0 < timed && timed < all }, "{timed} of {all}");
        let rates = &merged.throughput.as_ref().unwrap().envelopes_per_s;
        let longest =
            records.iter().filter_map(|record| Some(record.throughput.as_ref()?.envelopes_per_s.max_ns()));
        assert!(rates.len() > 3 && rates.max_ns() >= longest.max().unwrap(), "envelopes add up by interval");
    }
}

/// The ledger of three agents together, each of which balances.
fn ledger_of_three(scenario: &str) -> Counts {
    let records = play(&setup(scenario), &relay(), 3, "7");
    for record in &records {
        record.counts.balanced().unwrap();
    }
    let merged = RunRecord::merge(records).unwrap();
    let counts = merged.counts;
    assert_eq!((counts.balanced(), merged.status), (Ok(()), Status::Complete));
    assert_eq!(counts.acked, counts.planned);
    counts
}

#[test]
fn what_other_agents_publish_is_owed_to_stays_and_to_subscribers() {
    let closed = TIMED.replace("read_bytes_per_s = 20000", "") + CLOSED_LOOP;
    for scenario in [TIMED, &closed] {
        let counts = ledger_of_three(scenario);
        // Three subscribers, slow or not, get everything. A stay of 0.4 s has some 24 events in it,
        // of which its own agent publishes a third.
        assert_eq!(counts.readers_cut_off, 0);
        assert!(counts.deliveries > 3 * counts.planned + 14 * counts.requests, "{counts:?}");
    }
}

#[test]
fn slow_readers_beside_a_closed_loop_are_refused() {
    let setup = setup(&format!("{TIMED}{CLOSED_LOOP}"));
    let flags = ["--seed", "7", "--share", "0/2"];
    let refused = against(&setup, "ws://127.0.0.1:1", &flags).ran().ended(2);
    refused.saying(&["slow readers (read_bytes_per_s) beside a closed loop"]);
}

#[test]
fn a_share_is_refused_whose_plan_publishes_or_connects_more_than_allowed() {
    // Due in the second from 0.2 s on are 40, in the plan's first second 32.
    let ramped = r#"
question = "Does load count?"
learn = "Whether it does."

[[phase]]
name = "calm"
seconds = 0.7
load = [1, 1]

[[phase]]
name = "rush"
seconds = 0.5
load = [3, 3]

[[publish]]
connections = 2
arrival = { shape = "constant", rate_per_s = 20 }
"#;
    let looped = format!("{AT_ONCE}{CLOSED_LOOP}");
    let in_a_loop = "the plan publishes in a closed loop";
    let (rate, connections) = ("--max-rate", "--max-connections");
    // Users go to the agents in turn: of AT_ONCE three to the first and two to the second; of TIMED
    // six to the second, of which three connect anew for each of their sessions.
    for (scenario, share, flag, most, refusal) in [
        (AT_ONCE, "0/2", rate, "52", None),
        (AT_ONCE, "0/2", rate, "51", Some("up to 52 events in a second")),
        (ramped, "0/2", rate, "40", None),
        (ramped, "0/2", rate, "39", Some("up to 40 events in a second")),
        (&looped, "0/2", rate, "1000", Some(in_a_loop)),
        (SYNCED, "0/2", rate, "1000", Some(in_a_loop)),
        (AT_ONCE, "0/2", connections, "3", None),
        (AT_ONCE, "0/2", connections, "2", Some("this share of the plan makes 3 connections")),
        (AT_ONCE, "1/2", connections, "2", None),
        (TIMED, "1/2", connections, "4", Some("this share of the plan makes ")),
        (TIMED, "1/2", connections, "100", None),
    ] {
        let flags = ["--seed", "7", "--share", share, flag, most];
        let output = against(&setup(scenario), "ws://127.0.0.1:1", &flags).ran();
        match refusal {
            Some(says) => output.ended(2).saying(&[says]),
            // Nobody is there to play against.
            None => output.ended(1),
        };
    }
}

#[test]
fn a_share_hears_what_comes_before_its_start_and_stays_to_the_end_of_the_plan() {
    let setup = setup(AT_ONCE);
    let relay = relay();
    // Agents 0 and 1 publish at time zero, agent 2 all the time; agents 3 and 4 subscribe.
    let mut agents: Vec<Agent> =
        (0..5).map(|index| share(&setup, &relay.url, &format!("{index}/5"), &["--seed", "7"])).collect();
    agents.iter_mut().for_each(|agent| drop(agent.prepared()));
    let start_ns = monotonic_ns() + 700_000_000;
    // Another machine's clock.
    let late_ns = |index| if index == 3 { 30_000_000 } else { 0 };
    for (index, agent) in agents.iter_mut().enumerate() {
        agent.say(&format!("start {}\n", start_ns + late_ns(index)));
    }
    let ends = agents.into_iter().map(|agent| {
        let ended = agent.end();
        let record = RunRecord::read(&ended.record).unwrap();
        ended.ran.measured();
        (record.counts.deliveries, monotonic_ns() - start_ns)
    });
    let ends: Vec<(u64, u64)> = ends.collect();
    let deliveries: Vec<u64> = ends.iter().map(|(deliveries, _)| *deliveries).collect();
    assert_eq!(deliveries, [0, 0, 0, 2, 2]);
    assert!(ends[0].1 > 1_900_000_000, "its own work was done at once, the last event is due at 1.98 s");
}

#[test]
fn a_reconciliation_may_name_what_other_agents_published() {
    let counts = ledger_of_three(SYNCED);
    assert_eq!(counts.reconciliations, 6);
    let extra = 6 * 4;
    assert!(counts.deliveries > extra && counts.planned > extra, "{counts:?}");
}

#[test]
fn a_share_whose_agent_goes_falls_silent_or_says_stop_sends_nothing_more_and_keeps_what_it_measured() {
    type Stop = fn(&mut Agent);
    let setup = setup(TIMELESS);
    let stops: [(Stop, &str); 4] = [
        (|agent| agent.stdin = None, "standard input ended"),
        (|agent| agent.say("stop\n"), "the coordinator said stop"),
        (|agent| agent.say("go on\n"), "an unknown order: \"go on\""),
        (|_| {}, "the agent is silent"),
    ];
    for (stop, says) in stops {
        let relay = relay();
        let mut agent = share(&setup, &relay.url, "0/1", &["--seed", "7", "--seconds", "30"]);
        agent.prepared();
        agent.say(&format!("start {}\n", monotonic_ns() + 600_000_000));
        // Longer than the silence that it bears.
        for _ in 0..8 {
            agent.say("on\n");
            std::thread::sleep(Duration::from_millis(200));
        }
        assert!(agent.child.try_wait().unwrap().is_none(), "it plays while it hears of its agent");
        let (stopped, before) = (Instant::now(), held(&relay).len());
        stop(&mut agent);
        let ended = agent.end();
        assert!(stopped.elapsed() < Duration::from_secs(2), "{says}: {:?}", stopped.elapsed());
        ended.ran.ended(5).saying(&[says]);
        let record = RunRecord::read(&ended.record).unwrap();
        assert!(matches!(&record.status, Status::Incomplete { reason } if reason.contains(says)));
        let counts = record.counts;
        assert!(counts.acked > 20 && counts.unknown + counts.not_sent > counts.acked, "{counts:?}");
        let after = held(&relay);
        assert!(after.len() - before < 200, "100 events a second were due");
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(held(&relay), after);
    }
}

#[test]
fn what_another_agent_does_not_send_is_lost_here() {
    let setup = setup(TIMELESS);
    let relay = relay();
    let flags = ["--seed", "7", "--drain-seconds", "1"];
    let [mut plays, mut leaves] = ["0/2", "1/2"].map(|part| share(&setup, &relay.url, part, &flags));
    assert_eq!(plays.prepared(), leaves.prepared());
    plays.say(&format!("start {}\n", monotonic_ns() + 700_000_000));
    leaves.stdin = None;
    let [left, played] = [leaves, plays].map(Agent::end);
    left.ran.ended(1);
    played.ran.ended(4);
    let played = RunRecord::read(&played.record).unwrap();
    assert_eq!(played.status, Status::Complete);
    assert!(played.counts.acked == played.counts.planned && played.counts.deliveries_lost > 0);
}

#[test]
fn nothing_is_published_before_the_start_nor_without_one() {
    let setup = setup(TIMELESS);
    let relay = relay();
    let mut agent = share(&setup, &relay.url, "0/1", &["--seed", "7"]);
    agent.prepared();
    let stored = held(&relay);
    agent.say(&format!("start {}\n", monotonic_ns() - 1_000_000_000));
    let ended = agent.end();
    ended.ran.ended(1).saying(&["ms ahead, and must be 500 ms ahead or more"]);
    assert!(!ended.record.exists());

    let mut agent = share(&setup, &relay.url, "0/1", &["--seed", "7"]);
    agent.prepared();
    agent.stdin = None;
    let ended = agent.end();
    ended.ran.ended(1).saying(&["stopped before the start: standard input ended"]);
    assert!(!ended.record.exists() && held(&relay) == stored);

    let mut agent = share(&setup, &relay.url, "1/2", &["--seed", "8"]);
    agent.say(&"stop".repeat(1_000));
    let ended = agent.end();
    ended.ran.ended(1).saying(&["a line beyond 1 KiB"]);
    assert!(!ended.record.exists());
}

#[test]
fn a_share_needs_a_relay_that_others_share_a_seed_and_an_index_below_its_number() {
    let setup = setup(TIMELESS);
    let url = ["--url", "ws://127.0.0.1:1"];
    let cases: [(&[&str], &str); 5] = [
        (&["--share", "0/2", "--seed", "1"], "--url"),
        (&["--share", "0/2", "--url", url[1]], "--seed"),
        (&["--share", "2/2", "--seed", "1", "--url", url[1]], "expected I/N"),
        (&["--share", "0/65536", "--seed", "1", "--url", url[1]], "expected I/N"),
        (&["--share", "0/2", "--seed", "1", "--url", url[1], "--relay-pid", "1"], "--relay-pid"),
    ];
    for (flags, says) in cases {
        setup.plan().args(flags).ran().ended(2).saying(&[says]);
    }
}
