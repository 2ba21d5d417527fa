//! Relays that refuse or withhold some events, or bound rates, sizes, dates, subscriptions and
//! connections. The doctor names it beforehand. A scenario that passes the doctor loses nothing. A run
//! accounts for each refusal.

use std::{
    collections::{BTreeSet, HashSet, VecDeque},
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use measure::{Counts, RunRecord};
use serde_json::{Value, json};
use wire::Connection;

use crate::{
    between::{Between, connect},
    common::{Relay, program},
    events::write_few,
    ran::{Ran, Runs},
    scenarios,
    setup::Setup,
};

/// Fate of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// As the relay behind says.
    Passed,
    /// OK false with these words, and the relay behind does not see it.
    Refused(&'static str),
    /// The same, and no OK.
    Ignored,
    /// The relay behind sees it, and no OK comes.
    Unanswered,
}

const BLOCKED: Fate = Fate::Refused("blocked: event kind is blocked");

/// What a relay does otherwise than the one behind it.
#[derive(Debug, Clone)]
struct Manners {
    /// By kind and number of an event.
    fate: fn(u64, u64) -> Fate,
    /// Kinds that it delivers only to clients that answered its challenge, which follows a request for
    /// nothing else.
    withheld: &'static [u64],
    accepts_auth: bool,
    /// Bytes of a message with an event.
    bytes: usize,
    /// Seconds of an event's age, and ahead.
    dates_s: (i64, i64),
    /// Events within a second, and the words beyond.
    per_s: (usize, &'static str),
    subscriptions: usize,
    connections: usize,
    /// Whether every second connection leads to another relay.
    apart: bool,
    /// Whether it gives back no stored events.
    forgets: bool,
    /// How long it takes for an EOSE.
    eose: Duration,
    /// Whether it delivers nothing live.
    is_mute: bool,
    /// Zero bits of each id (NIP-13).
    work_bits: u32,
    /// The public keys that may write; all without.
    writers: Option<HashSet<String>>,
}

const PLAIN: Manners = Manners {
    fate: |_, _| Fate::Passed,
    withheld: &[],
    accepts_auth: true,
    bytes: usize::MAX,
    dates_s: (i64::MAX / 2, i64::MAX / 2),
    per_s: (usize::MAX, ""),
    subscriptions: usize::MAX,
    connections: usize::MAX,
    apart: false,
    forgets: false,
    eose: Duration::ZERO,
    is_mute: false,
    work_bits: 0,
    writers: None,
};

/// What its connections share.
#[derive(Debug, Default)]
struct State {
    number: AtomicU64,
    recent: Mutex<VecDeque<Instant>>,
    open: AtomicUsize,
}

/// A relay with these manners, and the one to which its odd connections may lead.
fn picky(manners: Manners) -> (Between, Relay) {
    let (shared, other) = (Arc::new((manners, State::default())), Relay::start(&[]));
    let url = other.url.clone();
    let between = Between::start(move |client, relay, connection| {
        let (shared, url) = (Arc::clone(&shared), url.clone());
        async move {
            let (manners, state) = &*shared;
            let relay = if manners.apart && connection % 2 == 1 { connect(&url).await } else { relay };
            if state.open.fetch_add(1, Ordering::Relaxed) < manners.connections {
                carry(client, relay, manners, state).await;
            }
            state.open.fetch_sub(1, Ordering::Relaxed);
        }
    });
    (between, other)
}

fn work_bits(event: &Value) -> u32 {
    let head = u64::from_str_radix(&event["id"].as_str().unwrap()[..16], 16).unwrap();
    head.leading_zeros()
}

fn now_s() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()).unwrap()
}

impl Manners {
    fn lets_write(&self, event: &Value) -> bool {
        let author = event["pubkey"].as_str().unwrap();
        self.writers.as_ref().is_none_or(|writers| writers.contains(author))
    }

    fn judge(&self, event: &Value, bytes: usize, state: &State) -> Fate {
        let number = state.number.fetch_add(1, Ordering::Relaxed);
        let mut recent = state.recent.lock().unwrap();
        while recent.front().is_some_and(|at| at.elapsed() > Duration::from_secs(1)) {
            recent.pop_front();
        }
        if recent.len() >= self.per_s.0 {
            return Fate::Refused(self.per_s.1);
        }
        recent.push_back(Instant::now());
        let ahead_s = event["created_at"].as_i64().unwrap() - now_s();
        match () {
            () if !self.lets_write(event) => Fate::Refused("restricted: not on the list"),
            () if work_bits(event) < self.work_bits => Fate::Refused("pow: too few bits"),
            () if bytes > self.bytes => Fate::Refused("invalid: event too large"),
            () if -ahead_s > self.dates_s.0 => Fate::Refused("invalid: too old"),
            () if ahead_s > self.dates_s.1 => Fate::Refused("invalid: created_at too late"),
            () => (self.fate)(event["kind"].as_u64().unwrap(), number),
        }
    }

    /// Whether a request asks for nothing but withheld kinds.
    fn restricts(&self, filter: &Value) -> bool {
        let kinds = filter["kinds"].as_array();
        kinds.is_some_and(|kinds| kinds.iter().all(|kind| self.withheld.contains(&kind.as_u64().unwrap())))
    }
}

async fn carry(mut client: Connection, mut relay: Connection, manners: &Manners, state: &State) {
    let (mut silent, mut subscriptions, mut proven) = (Vec::new(), HashSet::new(), false);
    let mut opening = HashSet::new();
    loop {
        let mut said: Vec<Value> = Vec::new();
        tokio::select! {
            asked = client.next() => {
                let Some(Ok(asked)) = asked else { return };
                let message: Value = serde_json::from_slice(&asked.payload).unwrap();
                let name = &message[1];
                let passes = match message[0].as_str().unwrap() {
                    "EVENT" => match manners.judge(&message[1], asked.payload.len(), state) {
                        Fate::Passed => true,
                        Fate::Ignored => false,
                        Fate::Refused(why) => {
                            said.push(json!(["OK", message[1]["id"], false, why]));
                            false
                        }
                        Fate::Unanswered => {
                            silent.push(message[1]["id"].clone());
                            true
                        }
                    },
                    "AUTH" => {
                        proven = manners.accepts_auth && manners.lets_write(&message[1]);
                        said.push(json!(["OK", message[1]["id"], proven, if proven { "" } else { "error: no serviceUrl" }]));
                        false
                    }
                    "REQ" if manners.restricts(&message[2]) && !proven => {
                        said.push(json!(["AUTH", "a challenge"]));
                        said.push(json!(["CLOSED", name, "auth-required: kinds of private messages"]));
                        false
                    }
                    "REQ" if subscriptions.len() >= manners.subscriptions && !subscriptions.contains(name) => {
                        said.push(json!(["CLOSED", name, "blocked: too many subscriptions"]));
                        false
                    }
                    "REQ" => {
                        subscriptions.insert(name.clone());
                        opening.insert(name.clone());
                        true
                    }
                    "CLOSE" => {
                        subscriptions.remove(name);
                        true
                    }
                    _ => true,
                };
                if passes {
                    relay.feed(asked.payload).await.unwrap();
                    relay.flush().await.unwrap();
                }
            }
            answer = relay.next() => {
                let Some(Ok(answer)) = answer else { return };
                let message: Value = serde_json::from_slice(&answer.payload).unwrap();
                let withheld = message[0] == "EVENT"
                    && !proven
                    && manners.withheld.contains(&message[2]["kind"].as_u64().unwrap());
                if message[0] == "EOSE" {
                    opening.remove(&message[1]);
                    tokio::time::sleep(manners.eose).await;
                }
                let is_stored = message[0] == "EVENT" && opening.contains(&message[1]);
                let is_live = message[0] == "EVENT" && !is_stored;
                let is_kept_back = withheld || (manners.forgets && is_stored) || (manners.is_mute && is_live);
                if is_kept_back || (message[0] == "OK" && silent.contains(&message[1])) {
                    continue;
                }
                said.push(message);
            }
        }
        for message in said {
            client.feed(message.to_string().into()).await.unwrap();
        }
        client.flush().await.ok();
    }
}

/// Scenarios of a file each: what is published by several and read live; notes that one reads by several
/// subscriptions; clients that prove who they are; reads of stored notes in sessions that overlap; and
/// clients that find their difference from the relay.
const SCENARIOS: &str = r#"
# all
seconds = 0.5
[[publish]]
connections = 2
arrival = { shape = "poisson", rate_per_s = 80 }
[[publish]]
connections = 1
arrival = { shape = "closed", rounds = 30 }
window = 4
[[subscribe]]
connections = 2
filter = [{}]
# notes
seconds = 0.3
[[publish]]
connections = 1
arrival = { shape = "poisson", rate_per_s = 50 }
kinds = [1]
[[subscribe]]
connections = 1
filter = [{ kinds = [1] }, { kinds = [1] }, { kinds = [1] }]
# inbox
seconds = 0.3
auth = true
[[request]]
connections = 2
arrival = { shape = "burst", period_ms = 100 }
step = [{ kinds = [4], authors = 1 }]
# reads
seconds = 0.3
[[request]]
connections = 2
arrival = { shape = "poisson", rate_per_s = 80 }
step = [{ kinds = [1], authors = 1 }]
# reconcile
seconds = 0.2
[[reconcile]]
connections = 2
arrival = { shape = "burst", period_ms = 200 }
have = 0.9
extra = 3
frame_bytes = 64000
"#;

/// A run by answers that nobody gave, and one by those that were kept.
const UNASKED: [&str; 2] = ["--doctor", "unasked.json"];
const EXAMINED: [&str; 2] = ["--doctor", "doctor.json"];

fn setup() -> Setup {
    let setup = Setup::new("", write_few);
    for (name, text) in SCENARIOS.split("\n# ").filter_map(|scenario| scenario.split_once('\n')) {
        let head = "question = \"What comes of it?\"\nlearn = \"What.\"\n";
        setup.write(&format!("{name}.toml"), &format!("{head}{text}\n"));
    }
    setup
}

/// The same with a scenario that is made from one of them.
fn setup_with(name: &str, from: &str, changed: impl FnOnce(String) -> String) -> Setup {
    let setup = setup();
    setup.write(name, &changed(fs::read_to_string(setup.path(from)).unwrap()));
    setup
}

impl Setup {
    /// Dates the events so that the newest is of that second.
    fn redate(&self, newest_s: i64) {
        let mut events = corpus::Corpus::read(&self.path("events.jsonl")).unwrap().events;
        let newest = events.iter().map(|event| event.created_at).max().unwrap();
        for (n, event) in events.iter_mut().enumerate() {
            event.created_at += newest_s - newest;
            corpus::sign_as(event, &format!("author {n}"));
        }
        corpus::write(&self.path("events.jsonl"), &events).unwrap();
    }

    fn against(&self, url: &str, scenario: &str, extra: &[&str]) -> (Ran, Option<Counts>) {
        let record = self.path("record.json");
        fs::remove_file(&record).ok();
        let mut command = program();
        command.args(["--url", url, "--scenario", scenario, "--corpus", "events.jsonl"]);
        let output = command.args(["--record", "record.json"]).args(extra).current_dir(self.path("")).ran();
        (output, RunRecord::read(&record).ok().map(|record| record.counts))
    }

    /// A run without a fault; returns what it said.
    fn plays(&self, url: &str, scenario: &str, extra: &[&str]) -> (String, Counts) {
        let (output, counts) = self.against(url, scenario, extra);
        let said = output.to_string();
        // Allows 3: late answers on a busy machine make a run invalid.
        output.measured();
        let counts = counts.unwrap();
        assert_eq!((counts.balanced(), counts.acked), (Ok(()), counts.planned), "{said}");
        assert_eq!(counts.requests_failed, 0, "{said}");
        (said, counts)
    }

    fn doctor(&self, url: &str, scenarios: &[&str], flags: &[&str]) -> Ran {
        let mut command = program();
        command.args(["doctor", "--compressions", "none", "--url", url, "--corpus", "events.jsonl"]);
        command.args(scenarios.iter().flat_map(|name| ["--scenario", *name]));
        command.args(flags).current_dir(self.path("")).ran()
    }

    /// What the doctor finds, which is kept for runs: it may take seconds.
    fn examined(&self, url: &str, scenarios: &[&str]) -> Found {
        let output = self.doctor(url, scenarios, &["--json"]);
        self.write("doctor.json", &output.out);
        let found = Found(serde_json::from_str(&output.out).unwrap_or_else(|_| panic!("{output}")));
        let can_be_played = (0..scenarios.len()).all(|n| found.reasons(n).is_empty());
        assert_eq!(output.code, Some(if can_be_played { 0 } else { 1 }), "{output}");
        found
    }

    /// The doctor refuses the scenario, so does a run, and one that is forced to play fails.
    fn is_refused(&self, url: &str, scenario: &str, says: &str) -> Found {
        let found = self.examined(url, &[scenario]);
        assert!(found.reasons(0).iter().any(|reason| reason.contains(says)), "{says}: {found:?}");
        let (output, counts) = self.against(url, scenario, &EXAMINED);
        assert_eq!((output.code, counts), (Some(1), None), "{output}");
        assert!(output.said.contains(says), "{output}");
        let (output, _) = self.against(url, scenario, &[&UNASKED[..], &["--drain-seconds", "1"]].concat());
        assert!(!matches!(output.code, Some(0 | 3)), "{output}");
        found
    }
}

/// What the doctor found.
#[derive(Debug)]
struct Found(Value);

fn texts(of: &Value) -> Vec<String> {
    of.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

impl Found {
    /// Why this one of the scenarios cannot be played.
    fn reasons(&self, scenario: usize) -> Vec<String> {
        texts(&self.0["scenarios"][scenario]["reasons"])
    }

    /// Settings of this software for what was found.
    fn names(&self, setting: &str) -> bool {
        texts(&self.0["settings"]).iter().any(|line| line.contains(setting))
    }
}

#[test]
fn what_a_relay_withholds_refuses_or_never_answers_is_set_aside_in_its_words() {
    let setup = setup();
    let fate = |kind, _| match kind {
        3 => BLOCKED,
        1059 => Fate::Unanswered,
        _ => Fate::Passed,
    };
    let (relay, _other) = picky(Manners { fate, withheld: &[4, 7], ..PLAIN });
    let found = setup.examined(&relay.url, &["all.toml", "notes.toml"]);
    assert!(found.reasons(0).is_empty() && found.reasons(1).is_empty(), "{found:?}");
    assert!(found.names("relay.auth.restrictedReadKinds") && found.names("writePolicy"), "{found:?}");
    let (text, counts) = setup.plays(&relay.url, "all.toml", &EXAMINED);
    let says = [
        "kinds 4, 7: withheld: \"auth-required: kinds of private messages\"",
        "kind 3: refused: \"blocked: event kind is blocked\"",
        "kind 1059: the relay sends no OK",
    ];
    assert!(counts.deliveries == 2 * counts.acked && says.iter().all(|says| text.contains(says)), "{text}");
    // No request is for withheld kinds, not even the first.
    let (relay, _other) = picky(Manners { withheld: &[1], ..PLAIN });
    setup.plays(&relay.url, "all.toml", &[]);
}

#[test]
fn a_kind_that_comes_in_for_others_that_are_set_aside_was_tried_too() {
    let setup = setup();
    let events = corpus::Corpus::read(&setup.path("events.jsonl")).unwrap().events;
    let of = |kind, count| events.iter().filter(move |event| event.kind == kind).take(count).cloned();
    // The plan of this seed takes them in turn, and comes to the deletion where it has notes alone.
    let chosen: Vec<_> = of(7, 17).chain(of(1, 29)).chain(of(5, 1)).collect();
    corpus::write(&setup.path("events.jsonl"), &chosen).unwrap();
    let fate = |kind, _| if kind == 1 { Fate::Passed } else { BLOCKED };
    let (relay, _other) = picky(Manners { fate, ..PLAIN });
    let (text, _) = setup.plays(&relay.url, "all.toml", &["--seed", "1"]);
    assert!(text.contains("kinds 5, 7: refused"), "{text}");
}

#[test]
fn refusals_of_the_rate_are_no_rules_on_events() {
    let setup = setup();
    // What is to be read is stored at the relay's rate.
    for (words, scenario) in
        [("pow: 20 bits needed", "notes.toml"), ("rate-limited: slow down", "reads.toml")]
    {
        let (relay, _other) = picky(Manners { per_s: (8, words), ..PLAIN });
        let table = setup.doctor(&relay.url, &["all.toml"], &[]).ended(0).out;
        assert!(table.contains(&format!("a bound on the rate, which a run may meet: {words}")), "{table}");
        assert!(!table.contains("it refuses") && table.contains("sets aside: 0 of"), "{table}");
        let (relay, _other) = picky(Manners { per_s: (60, words), ..PLAIN });
        setup.plays(&relay.url, scenario, &[]);
    }
}

#[test]
fn what_is_too_large_too_old_or_dated_too_far_ahead_is_set_aside() {
    let setup = setup();
    setup.redate(now_s() + 3_000);
    let (relay, _other) = picky(Manners { bytes: 2_000, dates_s: (500_000, 900), ..PLAIN });
    let table = setup.doctor(&relay.url, &["all.toml"], &[]).out;
    let (text, _) = setup.plays(&relay.url, "all.toml", &[]);
    let [large, late] = ["bytes as JSON: \"invalid: event too large\"", "\"invalid: created_at too late\""];
    for says in [large, "created_at after ", late] {
        assert!(table.contains(says) && text.contains(says), "{table}{text}");
    }
}

#[test]
fn what_stands_against_a_scenario_is_told_before_the_run_with_the_setting() {
    let open = |inbox: String| inbox.replace("auth = true\n", "").replace("authors = 1", "authors = 2");
    let no_service_url = Manners { withheld: &[4], accepts_auth: false, ..PLAIN };
    let apart = "more than one relay answers behind this address";
    let cases = [
        (
            Manners { subscriptions: 2, ..PLAIN },
            "notes.toml",
            "it takes 2 subscriptions at one time, and the scenario needs 3: \"blocked: too many",
            "relay.maxSubsPerConnection",
        ),
        (
            Manners { connections: 3, ..PLAIN },
            "all.toml",
            "it takes 3 connections at one time, and the scenario needs 5",
            "RelayBuilder::max_connections",
        ),
        (Manners { apart: true, ..PLAIN }, "all.toml", apart, ""),
        // A connection cannot ask back while it listens.
        (Manners { apart: true, subscriptions: 1, ..PLAIN }, "all.toml", apart, ""),
        (Manners { forgets: true, ..PLAIN }, "inbox.toml", "accepted and not given back", ""),
        (
            Manners { is_mute: true, ..PLAIN },
            "notes.toml",
            "accepted and not delivered to live subscriptions",
            "",
        ),
        (
            no_service_url,
            "inbox.toml",
            "it does not accept AUTH (NIP-42): \"error: no serviceUrl\"",
            "relay.auth.serviceUrl",
        ),
        // It is not called too wide.
        (
            Manners { withheld: &[4], ..PLAIN },
            "open.toml",
            "it takes no request for kind 4: \"auth-required: ",
            "relay.auth.restrictedReadKinds",
        ),
    ];
    thread::scope(|scope| {
        for (manners, scenario, says, setting) in cases {
            scope.spawn(move || {
                let (setup, (relay, _other)) = (setup_with("open.toml", "inbox.toml", open), picky(manners));
                let found = setup.is_refused(&relay.url, scenario, says);
                assert!(setting.is_empty() || found.names(setting), "{setting}: {found:?}");
                assert!(!found.reasons(0).concat().contains(" entries"), "{found:?}");
            });
        }
    });
}

#[test]
fn sessions_wait_for_each_other_where_a_relay_takes_few_subscriptions() {
    let setup = setup();
    let eose = Duration::from_millis(15);
    let (relay, _other) = picky(Manners { subscriptions: 1, eose, ..PLAIN });
    let (text, counts) = setup.plays(&relay.url, "reads.toml", &[]);
    assert!(counts.requests > 10, "{counts:?}");
    assert!(text.contains("sessions of a connection wait for each other: \"blocked: too many"), "{text}");
    // Without the answers of the doctor they do not.
    let (output, counts) = setup.against(&relay.url, "reads.toml", &UNASKED);
    assert!(counts.is_some_and(|counts| counts.requests_failed > 0), "{output}");
}

#[test]
fn a_relay_that_only_stores_or_only_delivers_plays_what_reads_it_so() {
    let setup = setup();
    let (relay, _other) = picky(Manners { forgets: true, ..PLAIN });
    let table = setup.doctor(&relay.url, &["notes.toml"], &[]).ended(0).out;
    assert!(table.contains("kind 1 delivered live: played") && table.contains("sets aside: 0 of"), "{table}");
    let (text, counts) = setup.plays(&relay.url, "notes.toml", &[]);
    assert!(text.contains("gives back no kind 1: this scenario reads them live"), "{text}");
    assert_eq!(counts.deliveries, 3 * counts.acked, "{text}");
    let (relay, _other) = picky(Manners { is_mute: true, ..PLAIN });
    let found = setup.examined(&relay.url, &["notes.toml", "reconcile.toml"]);
    let is_told = found.reasons(0)[0].contains("not delivered to live");
    assert!(is_told && found.reasons(1).is_empty(), "{found:?}");
    let (text, counts) = setup.plays(&relay.url, "reconcile.toml", &EXAMINED);
    assert!(counts.reconciliations > 0 && !text.contains("not delivered"), "{text}");
}

#[test]
fn a_challenge_may_come_with_a_restricted_request_and_its_answer_is_tried() {
    let setup = setup();
    let (relay, _other) = picky(Manners { withheld: &[4], ..PLAIN });
    let table = setup.doctor(&relay.url, &["inbox.toml"], &[]).ended(0).out;
    assert!(table.contains("kind 4 taken and given back after AUTH"), "{table}");
    let (text, counts) = setup.plays(&relay.url, "inbox.toml", &[]);
    assert!(text.contains("sends no challenge (NIP-42) on connecting"), "{text}");
    let is_heard = counts.deliveries > 0 && counts.answers_unexpected == 0;
    assert!(is_heard, "what was refused came after AUTH: {counts:?}");
}

#[test]
fn a_relay_lets_write_whom_explain_names_or_a_file_of_keys_has() {
    let setup = setup();
    let flags = ["--pubkeys", "--seed", "7", "--corpus", "events.jsonl"];
    let named = program().args(["explain", "inbox.toml"]).args(flags).current_dir(setup.path("")).ran();
    let named: HashSet<String> = named.out.lines().map(str::to_owned).collect();
    assert!(named.iter().all(|key| key.len() == 64), "{named:?}");
    let (relay, _other) = picky(Manners { withheld: &[4], writers: Some(named), ..PLAIN });
    setup.plays(&relay.url, "inbox.toml", &["--seed", "7"]);
    let (output, counts) = setup.against(&relay.url, "inbox.toml", &["--seed", "8"]);
    assert_eq!((output.code, counts), (Some(1), None), "{output}");
    assert!(output.said.contains("restricted: not on the list"), "{output}");
    let flags = ["--keys", "keys"];
    let give = |count: u32| {
        let keys: Vec<String> = (1..=count).map(|key| format!("{key:064x}")).collect();
        setup.write("keys", &keys.join("\n"));
    };
    give(3);
    let (output, counts) = setup.against(&relay.url, "all.toml", &flags);
    assert_eq!((output.code, counts), (Some(2), None), "{output}");
    assert!(output.said.contains("for a rehearsal, and --keys has 3: give "), "{output}");
    give(400);
    let given = corpus::Keys::read(&setup.path("keys")).unwrap();
    let writers = Some(given.public().map(|key| codecs::hex::encode(&key)).collect());
    let (relay, _other) = picky(Manners { writers, ..PLAIN });
    for scenario in ["all.toml", "reconcile.toml"] {
        setup.plays(&relay.url, scenario, &flags);
    }
}

#[test]
fn a_relay_that_asks_for_work_is_given_it_before_the_start() {
    let setup = setup();
    let (relay, _other) = picky(Manners { work_bits: 7, ..PLAIN });
    let reasons = setup.examined(&relay.url, &["notes.toml"]).reasons(0).concat();
    assert!(reasons.contains("\"pow: too few bits\"; --pow BITS"), "{reasons}");
    setup.plays(&relay.url, "reconcile.toml", &["--pow", "7"]);
    let (output, _) = setup.against(&relay.url, "notes.toml", &["--pow", "21"]);
    assert!(output.code == Some(2) && output.said.contains("doubles the work"), "{output}");
}

#[test]
fn what_comes_wrong_before_the_start_is_named_and_fails_the_run_and_what_is_missing_does_not() {
    for (fault, wrong) in
        [("lose", ""), ("alter", "altered"), ("invent", "invented"), ("misroute", "misrouted")]
    {
        // The second connection stores the events and asks for them.
        let relay = Relay::start(&["--fault", &format!("{fault}:connection=2")]);
        let (output, counts) = setup().against(&relay.url, "reads.toml", &UNASKED);
        let (said, counts) = (output.to_string(), counts.unwrap());
        let wrong_before = counts.deliveries_wrong_before_start;
        let of_run = Counts { deliveries_wrong_before_start: 0, ..counts };
        assert!(of_run.deliveries > 0 && of_run.balanced() == Ok(()), "{said}");
        if wrong.is_empty() {
            // Allows 3: late answers on a busy machine make a run invalid.
            assert!(wrong_before == 0 && matches!(output.code, Some(0 | 3)), "{said}");
        } else {
            assert!(wrong_before > 0 && output.code == Some(4), "{said}");
            assert!(said.contains(&format!("before the start {wrong} 1 of ")), "{said}");
        }
    }
}

#[test]
fn what_is_refused_unanswered_or_waits_behind_it_has_its_own_count_in_a_run() {
    let flags = [&UNASKED[..], &["--drain-seconds", "1"]].concat();
    let fate = |_, number: u64| match number {
        0..12 if number.is_multiple_of(3) => BLOCKED,
        0..12 => Fate::Passed,
        _ => Fate::Ignored,
    };
    let (relay, _other) = picky(Manners { fate, ..PLAIN });
    let (output, counts) = setup().against(&relay.url, "all.toml", &flags);
    let counts = counts.unwrap();
    assert_eq!((counts.acked, counts.rejected, counts.unknown), (8, 4, 0), "{output}");
    // The closed loop has four unanswered at a time, and what is due by the clock was sent.
    assert!(counts.not_sent > 0 && counts.not_sent <= 30 - 4, "{counts:?}");
    assert_eq!(counts.planned, 12 + counts.timed_out + counts.not_sent, "{counts:?}");
    // A relay that swallows an event owes its deliveries all the same.
    let owed = 2 * (counts.acked + counts.timed_out);
    assert_eq!((output.code, counts.deliveries + counts.deliveries_lost), (Some(4), owed), "{counts:?}");
    let named = format!("lost {}: kind ", counts.deliveries_lost);
    assert!(output.to_string().contains(&named), "{output}");
}

#[test]
fn what_the_doctor_and_earlier_runs_left_on_a_relay_is_no_fault_of_a_reconciliation() {
    let setup = setup_with("some.toml", "reconcile.toml", |all| format!("{all}kinds = [1, 7]\n"));
    let balances = |url: &str, scenario: &str, flags: &[&str]| {
        let (output, counts) = setup.against(url, scenario, flags);
        let counts = counts.unwrap_or_else(|| panic!("{output}"));
        assert_eq!(counts.balanced(), Ok(()), "{output}");
        assert_eq!((counts.reconciliations, counts.deliveries_unexpected), (2, 0), "{counts:?}");
        output.to_string()
    };
    let relay = Relay::start(&["--keep-expired"]);
    let text = balances(&relay.url, "reconcile.toml", &[]);
    assert!(text.contains("events beside those of the run"), "of its own probes: {text}");
    assert!(setup.examined(&relay.url, &["reconcile.toml"]).reasons(0).is_empty());
    balances(&relay.url, "reconcile.toml", &EXAMINED);
    // Without deletions everything is left until it expires.
    let fate = |kind, _| if kind == 5 { BLOCKED } else { Fate::Passed };
    let (relay, _other) = picky(Manners { fate, ..PLAIN });
    for _ in 0..2 {
        balances(&relay.url, "some.toml", &[]);
    }
}

#[test]
fn a_relay_that_does_not_reconcile_so_many_events_is_told_so_before_the_start() {
    let relay = Relay::start(&["--keep-expired", "--max-reconcile-events", "100"]);
    let (output, counts) = setup().against(&relay.url, "reconcile.toml", &[]);
    assert_eq!((output.code, counts), (Some(1), None), "{output}");
    let why = "the relay does not reconcile the events of the run; the relay said NEG-ERR n0: blocked: ";
    assert!(output.to_string().contains(why), "{output}");
}

/// The defaults of strfry.conf (<https://github.com/hoytech/strfry>): sizes, dates, subscriptions, the
/// kinds that it keeps back without AUTH, and no `relay.auth.serviceUrl`.
fn strfry() -> Manners {
    Manners {
        withheld: &[4, 1059],
        accepts_auth: false,
        bytes: 65_536,
        dates_s: (94_608_000, 900),
        subscriptions: 20,
        ..PLAIN
    }
}

#[test]
fn defaults_of_strfry_play_every_scenario_or_the_setting_is_named() {
    let all = scenarios::setup();
    let (relay, _other) = picky(strfry());
    let mut found = all.examined(&relay.url, &[]).0;
    found["url"] = "".into();
    all.write("doctor.json", &found.to_string());
    let settings = texts(&found["settings"]);
    let set_by = |reason: &str| {
        settings.iter().any(|setting| {
            let (word, of) = setting.strip_prefix("settings for \"").unwrap().split_once("\": ").unwrap();
            reason.split(": ").next().unwrap().contains(word) && of.contains("strfry: ")
        })
    };
    let played = AtomicUsize::new(0);
    scenarios::for_every_scenario(|n, name| {
        assert_eq!(found["scenarios"][n]["scenario"], name);
        let mut reasons = texts(&found["scenarios"][n]["reasons"]);
        // The corpus has too few events for the whole scenario, and enough for the smaller one.
        reasons.retain(|reason| !reason.starts_with("cannot play scenario"));
        if !reasons.is_empty() {
            return assert!(reasons.iter().any(|reason| set_by(reason)), "{name}: {reasons:?} {settings:?}");
        }
        let (setup, (relay, _other)) = (scenarios::setup(), picky(strfry()));
        let answers = all.path("doctor.json").display().to_string();
        let flags = ["--url", &relay.url, "--doctor", &answers, "--seconds", "0.4"];
        let (ran, record) = scenarios::run(&setup, name, &[&flags[..], &scenarios::smaller(name)].concat());
        let ran = ran.measured();
        let counts = record.unwrap().counts;
        assert_eq!((counts.balanced(), counts.rejected, counts.requests_failed), (Ok(()), 0, 0), "{ran}");
        played.fetch_add(1, Ordering::Relaxed);
    });
    assert!(played.into_inner() >= 14, "{}", found["scenarios"]);
}

/// Manners from a seed, of which two in three are plain, and a scenario.
fn drawn(seed: u64) -> (Manners, &'static str) {
    let mut state = seed;
    let mut below = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap() % bound
    };
    let scenario = ["notes.toml", "all.toml", "reads.toml"][below(3)];
    // The first is plain.
    let mut rarely = |bound: usize| if below(3) == 0 { below(bound) } else { 0 };
    let fates: [fn(u64, u64) -> Fate; 4] = [
        |_, _| Fate::Passed,
        |kind, _| if kind % 3 == 0 { BLOCKED } else { Fate::Passed },
        |kind, _| if kind == 7 { Fate::Unanswered } else { Fate::Passed },
        |kind, _| if kind == 1 { Fate::Passed } else { BLOCKED },
    ];
    let withheld: [&[u64]; 4] = [&[], &[4, 1059], &[1], &[0, 3, 5, 7]];
    let manners = Manners {
        fate: fates[rarely(4)],
        withheld: withheld[rarely(4)],
        bytes: [usize::MAX, 5_000, 1_000][rarely(3)],
        dates_s: [PLAIN.dates_s, (400_000, 900), (i64::MAX / 2, 60)][rarely(3)],
        per_s: [PLAIN.per_s, (100, "rate-limited: wait"), (80, "pow: 24 bits needed")][rarely(3)],
        subscriptions: [usize::MAX, 1, 2][rarely(3)],
        connections: [usize::MAX, 5, 3][rarely(3)],
        apart: rarely(4) == 1,
        forgets: rarely(4) == 1,
        eose: Duration::from_millis([0, 15][rarely(2)]),
        ..PLAIN
    };
    (manners, scenario)
}

/// Asks the doctor about the relay of a seed, and plays. Returns why it may not, which a forced run
/// proves; `None` where it may, and nothing is lost.
fn examine(seed: u64) -> Option<String> {
    let (setup, (manners, scenario)) = (setup(), drawn(seed));
    setup.redate(now_s() + 600);
    let (relay, _other) = picky(manners.clone());
    let examined = setup.doctor(&relay.url, &[scenario], &["--json"]);
    let found: Value = serde_json::from_str(&examined.out).unwrap_or_default();
    let reason = found["scenarios"][0]["reasons"][0].as_str();
    let flags = if reason.is_some() { &UNASKED[..] } else { &[] };
    let (output, counts) = setup.against(&relay.url, scenario, flags);
    // Allows 3: late answers on a busy machine make a run invalid.
    let played = counts.filter(|_| matches!(output.code, Some(0 | 3)));
    let is_whole = |counts: Counts| counts.balanced() == Ok(()) && counts.requests_failed == 0;
    let is_harmed = |counts: Counts| {
        let Counts { rejected, timed_out, requests_failed, subscriptions_closed, .. } = counts;
        rejected + timed_out + requests_failed + subscriptions_closed + counts.deliveries_lost > 0
    };
    let is_right = match reason {
        None => played.is_some_and(is_whole),
        Some(_) => played.is_none_or(is_harmed),
    };
    assert!(found.is_object() && is_right, "seed {seed}, {scenario}: {manners:?}\n{examined}\n{output}");
    reason.map(str::to_owned)
}

/// Examines the relays of these seeds. Returns how many play, and why others may not.
fn examine_all(seeds: &[u64]) -> (usize, BTreeSet<String>) {
    // They mostly wait.
    const AT_ONCE: usize = 4;
    let examine = |seeds: &[u64]| {
        thread::scope(|scope| {
            let all: Vec<_> = seeds.iter().map(|seed| scope.spawn(move || examine(*seed))).collect();
            all.into_iter().map(|examined| examined.join().ok()).collect::<Vec<_>>()
        })
    };
    let found: Vec<_> = seeds.chunks(AT_ONCE).flat_map(examine).collect();
    assert!(found.iter().all(Option::is_some), "one of them prints its seed");
    let played = found.iter().filter(|found| **found == Some(None)).count();
    (played, found.into_iter().flatten().flatten().collect())
}

#[test]
fn what_the_doctor_lets_through_loses_nothing_and_what_it_refuses_fails() {
    let (played, refused) = examine_all(&[1, 2, 3, 4]);
    assert!(played > 0 && !refused.is_empty(), "{played} play; {refused:?}");
}

/// Run with `cargo test -p client-sim --test it picky::campaign -- --ignored --nocapture`. `PICKY_SEED` is
/// the first seed, `PICKY_SEEDS` their number.
#[test]
#[ignore = "a campaign of minutes: CONTRIBUTING.md has the command"]
fn campaign_of_picky_relays() {
    let number =
        |name, default| std::env::var(name).ok().and_then(|seed| seed.parse::<u64>().ok()).unwrap_or(default);
    let (first, count) = (number("PICKY_SEED", 1), number("PICKY_SEEDS", 100));
    let (played, refused) = examine_all(&(first..first + count).collect::<Vec<_>>());
    println!("{played} of {count} relays play; refused: {refused:#?}");
    // A few may all play, or all be refused.
    let is_mixed = played as u64 * 3 >= count && !refused.is_empty();
    assert!(count < 20 || is_mixed, "{played} of {count}: {refused:?}");
}
