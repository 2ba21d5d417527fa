//! Tests that the program lists and explains every scenario, and plays it with a balanced ledger.

use std::{collections::HashMap, fs, sync::LazyLock, thread};

use codecs::{Event, KindClass};
use corpus::Corpus;
use measure::{Counts, RunRecord, Status, ValidityClass};

use crate::{
    common::{Relay, program},
    ran::{Ran, Runs},
    setup::Setup,
};

/// Events of each kind in the test corpus: enough for every draw, few enough for a debug build.
const EVENTS_OF_A_KIND: usize = 25;

/// Changes that, with a shorter time, make a scenario small enough for a debug build on a busy
/// machine.
const SMALLER: &[(&str, &[&str])] = &[
    ("duplicate-fan-in", &["fan_in.clients=2", "fan_in.events=60", "fan_in.chunk=7"]),
    ("negentropy-sync", &["reconcile.frame_bytes=4096", "reconcile.have=0.5", "reconcile.chunk=40"]),
    (
        "firehose-mirror",
        &["publish.day.arrival.rate_per_s=100", "request.step.limit=40", "request.step.pages=3"],
    ),
    ("follow-list-burst", &["request.lists.connections=5"]),
    ("home-feed-cold-start", &["request.connections=8", "publish.arrival.rate_per_s=30"]),
    ("long-form-read", &["request.connections=6"]),
    ("mixed-day", &["subscribe.connections=6", "request.opener.connections=6"]),
    ("note-stream", &["publish.arrival.rate_per_s=200"]),
    ("publish-flood", &["publish.ramp.arrival.rate_per_s=100"]),
    ("reaction-storm", &["subscribe.connections=20", "publish.arrival.rate_per_s=60"]),
    ("reconnect-storm", &["request.connections=20"]),
    ("relay-list-discovery", &["request.many.connections=4", "request.chunked.connections=2"]),
    ("one-format", &["subscribe.old-reader.connections=4", "request.old-opener.connections=4"]),
    ("two-formats", &["subscribe.old-reader.connections=4", "request.old-opener.connections=4"]),
    ("slow-consumer", &["subscribe.fast.connections=5", "publish.arrival.rate_per_s=60"]),
];

static EVENTS: LazyLock<Vec<Event<'static>>> = LazyLock::new(|| {
    let mut events = Corpus::bundled().events;
    let mut kinds: HashMap<u16, usize> = HashMap::new();
    events.retain(|event| {
        let count = kinds.entry(event.kind).or_default();
        *count += 1;
        *count <= EVENTS_OF_A_KIND && event.class() != KindClass::Ephemeral
    });
    events
});

pub(crate) fn setup() -> Setup {
    Setup::new("", |file| corpus::write(file, &EVENTS).unwrap())
}

pub(crate) fn run(setup: &Setup, scenario: &str, extra: &[&str]) -> (Ran, Option<RunRecord>) {
    let played = Setup::built_in(scenario, Some(&setup.path("events.jsonl")));
    (played.run(extra), played.record_if_any())
}

/// The flags that make a scenario smaller.
pub(crate) fn smaller(scenario: &str) -> Vec<&'static str> {
    let found = SMALLER.iter().find(|(name, _)| *name == scenario);
    found.iter().flat_map(|(_, sets)| sets.iter()).flat_map(|set| ["--set", set]).collect()
}

/// Every scenario, by two threads: a run mostly waits.
pub(crate) fn for_every_scenario(play: impl Fn(usize, &str) + Sync) {
    let names: Vec<_> = workload::scenario::Scenario::names().into_iter().enumerate().collect();
    thread::scope(|scope| {
        for half in names.chunks(names.len().div_ceil(2)) {
            scope.spawn(|| half.iter().for_each(|(n, name)| play(*n, name)));
        }
    });
}

#[test]
fn every_scenario_plays_with_a_balanced_ledger() {
    for_every_scenario(|_, scenario| {
        let record = small(scenario, "notepack", "library", &[]);
        assert_eq!(record.status, Status::Complete, "{scenario}");
        let counts = record.counts;
        assert!(counts.deliveries + counts.acked > 0, "{scenario} did nothing: {counts:?}");
        assert_eq!((counts.requests_failed, counts.rejected, counts.timed_out), (0, 0, 0), "{scenario}");
        let expected: &[&str] = match scenario {
            "home-feed-cold-start" => &["first_event", "handshake", "session", "eose.home"],
            "dm-inbox-sync" => &["auth", "handshake"],
            "slow-consumer" => &["response.fast", "response.slow", "response.stalled"],
            "reconnect-storm" => &["handshake", "session"],
            "publish-flood" => &["publish_ok.ramp", "publish_ok.flood"],
            "negentropy-sync" => &["reconcile", "publish_ok", "session"],
            _ => &[],
        };
        for metric in expected {
            assert!(record.latency.contains_key(*metric), "{scenario} lacks {metric}");
        }
    });
}

/// Plays the smaller scenario at a limit.
fn saturated(scenario: &str, extra: &[&str]) -> (Ran, RunRecord) {
    let setup = setup();
    let mut flags = vec!["--verify", "none", "--drain-seconds", "5"];
    let is_published = !workload::scenario::Scenario::load(scenario).unwrap().publish.is_empty();
    if is_published && !extra.contains(&"--rate") {
        flags.extend(["--rate", "300"]);
    }
    flags.extend(smaller(scenario));
    flags.extend(extra);
    let (output, record) = run(&setup, scenario, &flags);
    let record = record.unwrap_or_else(|| panic!("{scenario}: {}", output.said));
    (output, record)
}

#[test]
fn every_scenario_plays_at_the_limit_with_a_balanced_ledger_until_time_ends_it() {
    for_every_scenario(|n, scenario| {
        let whom = ["relay", "clients"][n % 2];
        let (output, record) = saturated(scenario, &["--seconds", "1", &format!("--saturate={whom}")]);
        output.measured();
        let counts = record.counts;
        counts.balanced().unwrap_or_else(|why| panic!("{scenario}: {why}"));
        assert_eq!(record.status, Status::Complete, "{scenario}");
        assert_eq!((counts.requests_failed, counts.rejected, counts.timed_out), (0, 0, 0), "{scenario}");
        assert_eq!((counts.not_sent, counts.deliveries_cut_off), (0, 0), "{scenario}");
        assert!(counts.deliveries + counts.acked > 0, "{scenario} did nothing: {counts:?}");
        let full = record.saturated.as_ref().unwrap();
        assert_eq!((full.asked.as_str(), record.cell.saturate.as_str()), (whom, whom), "{scenario}");
        assert!(
            full.client_utilisation > 0.0 && full.relay_utilisation.unwrap() > 0.0,
            "{scenario}: {full:?}"
        );
        let relay = record.relay_cpu.unwrap();
        let sum = record.envelopes_per_core_s(&relay) * relay.total_ns as f64 / 1e9;
        assert!((sum - counts.envelopes() as f64).abs() < 1e-3, "{scenario}: {sum}");
        assert_eq!(counts.deliveries_unread > 0, whom == "relay" && counts.deliveries > 64, "{scenario}");
        if counts.requests > 0 {
            assert!(
                record.elapsed_ns >= 900_000_000,
                "{scenario}: time ends sessions, {}",
                record.elapsed_ns
            );
        }
    });
}

#[test]
fn sessions_begin_again_and_what_time_does_not_reach_is_no_loss() {
    let (_, once) = saturated("follow-list-burst", &["--seconds", "0.1", "--saturate"]);
    let (_, looped) = saturated("follow-list-burst", &["--seconds", "1", "--saturate"]);
    assert!(looped.counts.requests > 2 * once.counts.requests, "{:?} {:?}", once.counts, looped.counts);
    assert_eq!(looped.throughput.unwrap().interval_ns % 10_000_000, 0);
    // Each OK comes after half a second: a window of 64 is answered twice.
    let slow = [
        "--seconds",
        "1",
        "--saturate=clients",
        "--rate",
        "1000",
        "--relay-fault",
        "late-ok=500ms",
        "--wide",
    ];
    let (output, record) = saturated("note-stream", &slow);
    let counts = record.counts;
    counts.balanced().unwrap();
    assert!(counts.not_begun > 0 && counts.not_begun + counts.acked == counts.planned, "{counts:?}");
    let said = output.out;
    let not_begun = counts.not_begun.to_string();
    assert!(said.lines().any(|line| line.contains("not begun") && line.contains(&not_begun)), "{said}");
}

#[test]
fn a_stall_is_no_throughput_and_a_loss_is_found_by_count() {
    let stall = ["--seconds", "4", "--saturate", "--relay-fault", "stall=1s@500ms"];
    let (_, record) = saturated("follow-list-burst", &stall);
    record.counts.balanced().unwrap();
    let saturated_by = record.saturated.unwrap();
    assert!(saturated_by.full != measure::Full::Relay, "{saturated_by:?}");
    assert!(record.validity.to_string().contains("no throughput of the relay"));
    let throughput = record.throughput.unwrap();
    assert_eq!(throughput.envelopes_per_s.quantile_ns(0.2).ns(), Some(0), "{throughput:?}");

    let lost = ["--seconds", "1", "--saturate", "--relay-fault", "lose=1%"];
    let (output, record) = saturated("note-stream", &lost);
    output.ended(4);
    let planted = record.relay.unwrap().planted.unwrap();
    assert!(
        planted.lost > 0 && record.counts.deliveries_lost == planted.lost,
        "{:?} {planted:?}",
        record.counts
    );
}

#[test]
fn limits_that_are_not_the_relays_are_refused_by_name() {
    let setup = setup();
    for (extra, says) in [
        (&["--saturate", "--client-verify", "full"][..], "--saturate=clients, or leave them out"),
        (&["--saturate", "--set", "subscribe.link=wifi"], "--saturate over links"),
        (&["--saturate=relay", "--link", "wifi"], "cannot be used with"),
        (&["--saturate=both"], "expected none, relay, clients"),
    ] {
        let (output, record) = run(&setup, "note-stream", &[&["--seconds", "1"], extra].concat());
        assert!(record.is_none() && output.said.contains(says), "{output}");
    }
}

/// Plays the smaller scenario in a format, by an implementation, with more changes.
fn small(scenario: &str, format: &str, implementation: &str, sets: &[&str]) -> RunRecord {
    let setup = setup();
    let mut extra = vec!["--format", format, "--implementation", implementation, "--seconds", "0.4"];
    extra.extend(["--verify", "none"]);
    extra.extend(smaller(scenario));
    extra.extend(sets.iter().flat_map(|set| ["--set", set]));
    let (output, record) = run(&setup, scenario, &extra);
    output.measured();
    let record = record.unwrap();
    record.counts.balanced().unwrap_or_else(|why| panic!("{scenario} over {format}: {why}"));
    record
}

/// The files differ in `format` alone, so that their runs differ in nothing else.
#[test]
fn one_format_is_the_plan_of_two_formats() {
    let population = |name| -> toml::Table {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios");
        let text = fs::read_to_string(format!("{folder}/{name}.toml")).unwrap();
        let mut table: toml::Table = toml::from_str(&text).unwrap();
        for words in ["question", "learn", "sources"] {
            table.remove(words);
        }
        table
    };
    let mut two = population("two-formats");
    let mut formats = 0;
    for kind in ["publish", "subscribe", "request"] {
        for population in two[kind].as_array_mut().unwrap() {
            formats += usize::from(population.as_table_mut().unwrap().remove("format").is_some());
        }
    }
    assert_eq!((formats, two), (3, population("one-format")));
}

#[test]
fn populations_that_speak_two_formats_and_compressions_have_a_ledger_each() {
    let sets = ["subscribe.old-reader.compression=deflate", "publish.old-author.compression=zstd"];
    for reencode in ["always", "never-if-canonical"] {
        let setup = setup();
        let mut extra = vec!["--format", "dannypack", "--seconds", "0.4", "--reencode", reencode];
        extra.extend(smaller("two-formats"));
        extra.extend(sets.iter().flat_map(|set| ["--set", set]));
        let (output, record) = run(&setup, "two-formats", &extra);
        output.measured();
        let record = record.unwrap();
        assert_eq!(record.cell.format, "dannypack");
        let speak = |name: &str, format: &str, compression: &str| {
            let found = record.populations.iter().find(|found| found.name.as_deref() == Some(name)).unwrap();
            assert_eq!((found.format.as_str(), found.compression.as_str()), (format, compression), "{name}");
            found.counts.balanced().unwrap_or_else(|why| panic!("{name}: {why}"));
            assert!(found.counts.acked + found.counts.deliveries > 0, "{name} did nothing");
            assert!(found.to_client.wire_bytes > 0, "{name}");
            (found.counts, found.connections)
        };
        let populations = [
            speak("old-author", "json", "zstd"),
            speak("new-author", "dannypack", "none"),
            speak("old-reader", "json", "deflate"),
            speak("new-reader", "dannypack", "none"),
            speak("old-opener", "json", "none"),
            speak("new-opener", "dannypack", "none"),
        ];
        assert_eq!(record.populations.len(), populations.len());
        assert_eq!(populations.iter().map(|(_, connections)| connections).sum::<u64>(), record.connections);
        assert_eq!(populations.iter().map(|(counts, _)| *counts).sum::<Counts>(), record.counts);
        // Both formats of the relay: an event that went to both was not spliced for one of them.
        let encodings = record.encodings.unwrap();
        assert!(encodings.cold > 0, "{encodings:?}");
        assert_eq!(encodings.spliced > 0, reencode != "always", "{encodings:?}");
    }
}

#[test]
fn populations_cannot_speak_two_compressions_between_which_a_relay_cannot_choose() {
    let setup = setup();
    let sets =
        ["subscribe.old-reader.compression=deflate", "subscribe.new-reader.compression=deflate:level=1"];
    let extra: Vec<&str> = sets.iter().flat_map(|set| ["--set", *set]).collect();
    let (output, record) = run(&setup, "two-formats", &extra);
    output.ended(2).saying(&["cannot speak deflate with some clients and deflate:level=1"]);
    assert!(record.is_none());
    let (output, _) = run(&setup, "two-formats", &["--set", "publish.old-author.format=xml"]);
    output.saying(&[r#"unknown format "xml""#]);
}

#[test]
fn what_a_client_has_from_another_relay_is_recognised_where_the_implementation_can_peek() {
    for (format, implementation, on_duplicate, share_peeked) in [
        ("json", "tuned", "peek", 1),
        ("dannypack", "library", "peek", 1),
        ("json", "library", "peek", 0),
        ("json", "tuned", "decode", 0),
    ] {
        let on_duplicate = format!("fan_in.on_duplicate={on_duplicate}");
        let sets = ["fan_in.duplicates=0.57", &on_duplicate];
        let counts = small("duplicate-fan-in", format, implementation, &sets).counts;
        // 60 events are 43 % of what comes, so 80 come again; 2 clients.
        assert_eq!((counts.deliveries, counts.repeats), (2 * 140, 2 * 80), "{format}");
        assert!(counts.repeats_peeked <= counts.repeats);
        // Two connections may read the same event at once; then the second one decodes it too.
        let expected = share_peeked * counts.repeats;
        assert!(counts.repeats_peeked.abs_diff(expected) <= expected / 4, "{format}: {counts:?}");
    }
}

#[test]
fn clients_that_reconcile_end_with_the_union_in_more_formats() {
    for (format, sets) in [
        ("cbor-schemaless", &["reconcile.extra=5"] as &[&str]),
        ("proto-string", &["reconcile.have=0", "reconcile.extra=0"]),
        ("capnp", &["reconcile.have=1", "reconcile.extra=3"]),
    ] {
        let counts = small("negentropy-sync", format, "library", sets).counts;
        assert_eq!((counts.reconciliations, counts.requests_completed), (4, 4), "{format}: {counts:?}");
        assert_eq!(counts.acked, counts.planned, "{format}: {counts:?}");
        assert!(counts.negentropy_rounds >= 4 && counts.negentropy_bytes > 0, "{format}: {counts:?}");
    }
}

#[test]
fn scenarios_are_listed_with_their_questions_and_explained_before_anything_runs() {
    let listed = program().arg("scenarios").ran().out;
    let setup = setup();
    for scenario in workload::scenario::Scenario::names() {
        let line = listed.lines().find(|line| line.split(' ').next() == Some(scenario)).unwrap();
        assert!(line.ends_with('?'), "{line}");
    }
    let mut explain = program();
    explain.args(["explain", "slow-consumer", "--set", "subscribe.fast.connections=12", "--corpus"]);
    let plan = explain.arg(setup.path("events.jsonl")).ran().ended(0).out;
    for words in [
        "30 clients connected at once",
        "10 clients read slowly",
        "proto-binary",
        "deliveries_per_published is",
    ] {
        assert!(plan.contains(words), "{words:?} is missing in:\n{plan}");
    }
}

#[test]
fn each_load_is_explained_by_what_it_asks_for_in_a_second() {
    let setup = setup();
    let explain = |extra: &[&str]| {
        let mut command = program();
        command.args(["explain", "note-stream", "--set", "publish.arrival.rate_per_s=50", "--corpus"]);
        command.arg(setup.path("events.jsonl")).args(extra).ran()
    };
    let table = explain(&["--load", "0.5,1,4"]).out;
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["load", "clients", "sessions/s", "publishes/s", "deliveries/s"]);
    // Eight subscribers take from anyone.
    assert_eq!(rows[1], ["0.5", "9", "0.0", "25.0", "200.0"]);
    assert_eq!(rows[2], ["1", "9", "0.0", "50.0", "400.0"]);
    assert_eq!(rows[3], ["4", "12", "0.0", "200.0", "1600.0"]);
    assert_eq!(rows.len(), 4, "{table}");
    let json = |extra: &[&str]| -> serde_json::Value {
        serde_json::from_str(&explain(&[extra, &["--json"]].concat()).out).unwrap()
    };
    let steps = json(&["--load", "1,4"]);
    let one = json(&["--load", "4"]);
    assert_eq!((&steps[1], &steps[1]["deliveries_per_s"]), (&one["per_second"], &1600.0.into()));
    assert_ne!(one["plan_sha256"], json(&[])["plan_sha256"]);
    for wrong in [&["--load", "0"] as &[&str], &["--load", "1,-4"], &["--load", "1,2", "--agents", "2"]] {
        explain(wrong).ended(2);
    }
}

#[test]
fn agents_are_told_before_anything_runs_what_each_does() {
    let setup = setup();
    let explain = |extra: &[&str]| {
        let mut command = program();
        command.args(["explain", "--scenario", "mixed-day", "--seconds", "1", "--corpus"]);
        command.arg(setup.path("events.jsonl")).args(extra).ran()
    };
    let json =
        |extra: &[&str]| -> serde_json::Value { serde_json::from_str(&explain(extra).ended(0).out).unwrap() };
    let table = explain(&["--agents", "130"]).out;
    let all = json(&["--agents", "130", "--json"]);
    let shares = table.split_once("\nPlan ").unwrap().1.split_once("\nPayload").unwrap().0;
    assert!(shares.lines().all(|line| line.chars().count() <= 100), "{shares}");
    assert!(table.contains(all["plan_sha256"].as_str().unwrap()), "{table}");
    assert!(table.contains("Agents with nothing to do: 10, because there are 120 users."), "{table}");
    let agents = all["agents"].as_array().unwrap();
    assert_eq!(agents.len(), 130);
    for key in ["connections", "published", "requests", "stored_deliveries", "live_deliveries"] {
        let sum: u64 = agents.iter().map(|agent| agent[key].as_u64().unwrap()).sum();
        assert!(sum > 0 && sum == all["plan"][key], "{key}: {sum} of {}", all["plan"][key]);
    }
    let alone = json(&["--json"]);
    assert_eq!((&alone["plan_sha256"], &alone["plan"]), (&all["plan_sha256"], &all["plan"]));
    assert!(alone.get("agents").is_none());
    assert_ne!(json(&["--json", "--seed", "2"])["plan_sha256"], all["plan_sha256"]);
    for wrong in [&["--agents", "0"] as &[&str], &["--agents", "65536"], &["note-stream"]] {
        explain(wrong).ended(2);
    }
}

#[test]
fn a_run_that_misses_what_its_scenario_expects_is_no_evidence() {
    let setup = setup();
    let small = ["--seconds", "0.2", "--verify", "none", "--set", "publish.arrival.rate_per_s=100"];
    let mut extra = small.to_vec();
    extra.extend(["--set", "expect.deliveries_per_published.min=9"]);
    let (output, record) = run(&setup, "note-stream", &extra);
    output.ended(3);
    let validity = record.unwrap().validity;
    assert_eq!(validity.class, ValidityClass::Invalid);
    let reason = "deliveries_per_published is 8.0, expected at least 9";
    assert!(validity.to_string().contains(reason), "{validity}");
    let (output, record) = run(&setup, "note-stream", &["--set", "publish.arrival.rate=100"]);
    output.ended(2).saying(&["unknown field `rate`"]);
    assert_eq!(record, None);
}

#[test]
fn a_reader_that_the_relay_gives_up_is_counted_hears_why_and_is_not_blamed_on_it() {
    for read_bytes_per_s in [0, 400_000] {
        let setup = setup();
        // One after the other, so that a slow machine is slow and no more; in all 8 MB of follow lists,
        // where outbox and send buffer hold 4.5.
        let stalled = format!(
            r#"
        question = "Who gives up first?"
        learn = "That the relay does."
        seconds = 1
        publish = [{{ connections = 1, arrival = {{ shape = "closed", rounds = 800 }}, window = 4, kinds = [3] }}]
        subscribe = [{{ connections = 2, read_bytes_per_s = {read_bytes_per_s}, filter = [{{}}] }}]
    "#
        );
        setup.write("plan.toml", &stalled);
        let relay = Relay::start(&["--outbox-bytes", "500000"]);
        let ran = setup.run(&["--url", &relay.url, "--format", "json", "--compression", "none"]).measured();
        let counts = setup.record().counts;
        counts.balanced().unwrap();
        assert_eq!(counts.readers_cut_off, 2, "{ran}");
        assert!(counts.deliveries_cut_off > 0);
        if read_bytes_per_s > 0 {
            ran.saying(&["to a slow reader, closed with 1013: slow consumer"]);
        }
    }
}
