//! Relays that take some events and not others: the doctor says so beforehand, and a run that they
//! refuse something accounts for it.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

#[path = "common/between.rs"]
mod between;
mod common;
#[path = "common/events.rs"]
mod events;

use std::{
    path::PathBuf,
    process::Output,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use between::Between;
use common::{Relay, program};
use measure::{Counts, RunRecord};
use serde_json::{Value, json};
use wire::Connection;

/// Fate of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// As the relay behind says.
    Passed,
    /// OK false, and the relay behind does not see it.
    Refused,
    /// The same, and no OK.
    Ignored,
    /// The relay behind sees it, and no OK comes.
    Unanswered,
}

/// A relay that judges events by their kind and their number.
fn picky(fate: impl Fn(u64, u64) -> Fate + Copy + Send + 'static) -> Between {
    let number = Arc::new(AtomicU64::new(0));
    Between::start(move |client, relay, _| {
        let number = Arc::clone(&number);
        carry(client, relay, move |kind| fate(kind, number.fetch_add(1, Ordering::Relaxed)))
    })
}

async fn carry(mut client: Connection, mut relay: Connection, fate: impl Fn(u64) -> Fate) {
    let mut silent = Vec::new();
    loop {
        tokio::select! {
            asked = client.next() => {
                let Some(Ok(asked)) = asked else { return };
                let message: Value = serde_json::from_slice(&asked.payload).unwrap();
                let fate = if message[0] == "EVENT" { fate(message[1]["kind"].as_u64().unwrap()) } else { Fate::Passed };
                if fate == Fate::Refused {
                    let refusal = json!(["OK", message[1]["id"], false, "blocked: event kind is blocked"]);
                    client.feed(refusal.to_string().into()).await.unwrap();
                    client.flush().await.ok();
                }
                if fate == Fate::Unanswered {
                    silent.push(message[1]["id"].clone());
                }
                if matches!(fate, Fate::Passed | Fate::Unanswered) {
                    relay.feed(asked.payload).await.unwrap();
                    relay.flush().await.unwrap();
                }
            }
            answer = relay.next() => {
                let Some(Ok(answer)) = answer else { return };
                let message: Value = serde_json::from_slice(&answer.payload).unwrap();
                if message[0] == "OK" && silent.contains(&message[1]) {
                    continue;
                }
                client.feed(answer.payload).await.unwrap();
                client.flush().await.ok();
            }
        }
    }
}

const SCENARIO: &str = r#"
question = "What comes of what a relay refuses?"
learn = "What."
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

[[subscribe.filter]]
"#;

/// A scenario that writes notes alone.
const NOTES: &str = r#"
question = "Does it take notes?"
learn = "Whether."
seconds = 0.3

[[publish]]
connections = 1
arrival = { shape = "poisson", rate_per_s = 50 }
kinds = [1]

[[subscribe]]
connections = 1

[[subscribe.filter]]
kinds = [1]
"#;

/// A scenario of clients that find their difference from the relay.
const RECONCILE: &str = r#"
question = "What is named?"
learn = "What."
seconds = 0.2

[[reconcile]]
connections = 2
arrival = { shape = "burst", period_ms = 200 }
have = 0.9
extra = 3
frame_bytes = 64000
"#;

struct Setup(tempfile::TempDir);

impl Setup {
    fn new() -> Setup {
        let setup = Setup(tempfile::tempdir().unwrap());
        events::write_few(&setup.path("events.jsonl"));
        std::fs::write(setup.path("all.toml"), SCENARIO).unwrap();
        std::fs::write(setup.path("notes.toml"), NOTES).unwrap();
        std::fs::write(setup.path("reconcile.toml"), RECONCILE).unwrap();
        std::fs::write(setup.path("some.toml"), format!("{RECONCILE}kinds = [1, 7]\n")).unwrap();
        std::fs::write(setup.path("unasked.json"), "{}").unwrap();
        setup
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, url: &str, scenario: &str, extra: &[&str]) -> (Output, Option<Counts>) {
        let record = self.path("record.json");
        std::fs::remove_file(&record).ok();
        let mut command = program();
        command.args(["--url", url, "--corpus"]).arg(self.path("events.jsonl"));
        command.arg("--scenario").arg(self.path(scenario)).arg("--record").arg(&record).args(extra);
        let output = command.output().unwrap();
        (output, RunRecord::read(&record).ok().map(|record| record.counts))
    }

    fn doctor(&self, url: &str, scenarios: &[&str]) -> Output {
        let mut command = program();
        command.args(["doctor", "--url", url, "--corpus"]).arg(self.path("events.jsonl"));
        for scenario in scenarios {
            command.arg("--scenario").arg(self.path(scenario));
        }
        command.output().unwrap()
    }

    fn unasked(&self) -> [String; 2] {
        ["--doctor".to_owned(), self.path("unasked.json").display().to_string()]
    }
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

#[test]
fn a_relay_without_ok_for_ephemeral_events_is_played_and_its_doctor_agrees() {
    let setup = Setup::new();
    let relay = picky(|kind, _| match kind {
        20_000..30_000 => Fate::Unanswered,
        _ => Fate::Passed,
    });
    let output = setup.doctor(&relay.url, &["all.toml", "notes.toml"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let (output, counts) = setup.run(&relay.url, "all.toml", &[]);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", said(&output));
    let counts = counts.unwrap();
    assert_eq!((counts.balanced(), counts.acked), (Ok(()), counts.planned), "{}", said(&output));
}

#[test]
fn a_relay_of_some_kinds_is_told_with_kinds_and_scenarios_before_a_run_fails() {
    let setup = Setup::new();
    let relay = picky(|kind, _| if matches!(kind, 1 | 29_999) { Fate::Passed } else { Fate::Refused });
    let output = setup.doctor(&relay.url, &["all.toml", "notes.toml"]);
    let table = said(&output);
    assert_eq!(output.status.code(), Some(1), "{table}");
    let refusal = "cannot be played\n      it takes no events of kinds 0, 3, 4, ";
    assert!(table.contains(refusal) && table.contains("blocked: event kind is blocked"), "{table}");
    assert!(table.contains("notes") && table.matches("can be played").count() == 1, "{table}");
    assert_eq!(table.matches("settings for publishing: ").count(), 1, "{table}");
    let (output, counts) = setup.run(&relay.url, "all.toml", &[]);
    assert_eq!((output.status.code(), counts), (Some(1), None), "{}", said(&output));
    assert!(said(&output).contains("it takes no events of kinds 0, 3, 4, "), "{}", said(&output));
    let (output, counts) = setup.run(&relay.url, "notes.toml", &[]);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", said(&output));
    assert_eq!(counts.unwrap().balanced(), Ok(()), "{}", said(&output));
}

#[test]
fn what_a_relay_refuses_in_a_run_is_refused_and_all_else_is_sent_and_answered() {
    let setup = Setup::new();
    let unasked = setup.unasked();
    let unasked = unasked.each_ref().map(String::as_str);
    let relay = picky(|_, number| if number.is_multiple_of(3) { Fate::Refused } else { Fate::Passed });
    let (output, counts) = setup.run(&relay.url, "all.toml", &unasked);
    let counts = counts.unwrap();
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", said(&output));
    assert_eq!(counts.balanced(), Ok(()), "{}", said(&output));
    assert_eq!(counts.rejected, counts.planned.div_ceil(3), "{counts:?}");
    assert_eq!((counts.not_sent, counts.timed_out, counts.unknown), (0, 0, 0), "{counts:?}");
    assert_eq!(counts.deliveries, 2 * counts.acked, "{counts:?}");
}

#[test]
fn what_waits_behind_events_without_an_answer_was_not_sent() {
    let setup = Setup::new();
    let unasked = setup.unasked();
    let flags = [&unasked.each_ref().map(String::as_str)[..], &["--drain-seconds", "1"]].concat();
    let relay = picky(|_, number| if number < 12 { Fate::Passed } else { Fate::Ignored });
    let (output, counts) = setup.run(&relay.url, "all.toml", &flags);
    let counts = counts.unwrap();
    assert_eq!((counts.acked, counts.rejected, counts.unknown), (12, 0, 0), "{}", said(&output));
    // The closed loop has four unanswered at a time, and what is due by the clock was sent.
    assert!(counts.not_sent > 0 && counts.not_sent <= 30 - 4, "{counts:?}");
    assert_eq!(counts.planned, 12 + counts.timed_out + counts.not_sent, "{counts:?}");
    // A relay that swallows an event owes its deliveries all the same.
    assert_eq!((output.status.code(), counts.deliveries_lost), (Some(4), 2 * counts.timed_out), "{counts:?}");
}

#[test]
fn what_the_doctor_and_earlier_runs_left_on_a_relay_is_no_fault_of_a_reconciliation() {
    let setup = Setup::new();
    let balances = |url: &str, scenario: &str| {
        let (output, counts) = setup.run(url, scenario, &[]);
        let counts = counts.unwrap_or_else(|| panic!("{}", said(&output)));
        assert_eq!(counts.balanced(), Ok(()), "{}", said(&output));
        assert_eq!((counts.reconciliations, counts.deliveries_unexpected), (2, 0), "{counts:?}");
        said(&output)
    };
    let relay = Relay::start(&["--keep-expired"]);
    let text = balances(&relay.url, "reconcile.toml");
    assert!(text.contains("events beside those of the run"), "of its own probes: {text}");
    let output = setup.doctor(&relay.url, &["reconcile.toml"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    balances(&relay.url, "reconcile.toml");
    // Without deletions everything is left until it expires.
    let relay = picky(|kind, _| if kind == 5 { Fate::Refused } else { Fate::Passed });
    for _ in 0..2 {
        balances(&relay.url, "some.toml");
    }
}

#[test]
fn a_relay_that_does_not_reconcile_so_many_events_is_told_so_before_the_start() {
    let setup = Setup::new();
    let relay = Relay::start(&["--keep-expired", "--max-reconcile-events", "100"]);
    let (output, counts) = setup.run(&relay.url, "reconcile.toml", &[]);
    assert_eq!((output.status.code(), counts), (Some(1), None), "{}", said(&output));
    let why = "the relay does not reconcile the events of the run; the relay said NEG-ERR n0: blocked: ";
    assert!(said(&output).contains(why), "{}", said(&output));
}
