//! Light readers against relays that misbehave: what docs/methodology.md says that they find, and
//! what they miss.

use corpus::Corpus;
use measure::{Counts, ValidityClass};

use crate::{ran::Ran, setup::Setup};

/// Light readers decode every fourth delivery.
const EVERY: u64 = 4;

/// Each delivery is owed, and none is stored and live at once: nobody publishes what sessions ask
/// for.
const SCENARIO: &str = r#"
question = "What do light readers find?"
learn = "Nothing about formats."
seconds = 0.5

[[publish]]
connections = 2
arrival = { shape = "constant", rate_per_s = 300 }
kinds = [1]

[[subscribe]]
name = "reader"
connections = 3
decode_every = 4

[[subscribe.filter]]
kinds = [1]

[[subscribe.filter]]
kinds = [7]

[[request]]
name = "opener"
connections = 2
arrival = { shape = "burst", period_ms = 100 }
decode_every = 4

[[request.step]]
kinds = [0]
authors = 20

[[request.step]]
kinds = [0]
authors = 20
chunk = 5
"#;

fn prepare(scenario: &str) -> Setup {
    let mut events = Corpus::bundled().events;
    let mut notes = 0;
    events.retain(|event| {
        notes += usize::from(event.kind == 1);
        event.kind == 0 || (event.kind == 1 && notes <= 300)
    });
    Setup::new(scenario, |file| corpus::write(file, &events).unwrap())
}

fn play(setup: &Setup, flags: &[&str]) -> Ran {
    setup.run(&[&["--verify", "none", "--drain-seconds", "1"], flags].concat())
}

/// Plays against a relay with this fault; returns the ledger and the exit code.
fn misled(setup: &Setup, fault: &str) -> (Counts, Option<i32>) {
    let code = play(setup, &["--relay-fault", fault]).code;
    (setup.record().counts, code)
}

/// What came and nobody was owed, decoded or not.
fn surplus(counts: &Counts) -> u64 {
    counts.deliveries_duplicated + counts.deliveries_invented + counts.deliveries_unexpected
}

fn decoded(counts: &Counts) -> u64 {
    counts.deliveries - counts.deliveries_unread
}

#[test]
fn an_honest_relay_balances_under_every_compression_and_the_record_says_how_much_was_decoded() {
    let setup = prepare(SCENARIO);
    for compression in wire::Compression::NAMES {
        let shown = play(&setup, &["--compression", compression]).measured().out;
        let record = setup.record();
        let counts = record.counts;
        assert_eq!(counts.balanced(), Ok(()), "{compression}");
        assert_eq!((counts.requests_failed, counts.deliveries_lost), (0, 0), "{compression}");
        // Where events are small and compressed well, more than every fourth is.
        assert!(decoded(&counts) >= counts.deliveries / EVERY, "{compression}: {counts:?}");
        assert!(counts.deliveries_unread > counts.deliveries / 2, "{compression}: {counts:?}");
        let readers: Vec<_> = record.populations.iter().filter(|one| one.decode_every.is_some()).collect();
        assert_eq!(readers.len(), 2, "{compression}");
        let unread: u64 = readers.iter().map(|one| one.counts.deliveries_unread).sum();
        assert_eq!(unread, counts.deliveries_unread, "{compression}");
        assert!(shown.contains("no evidence: light readers"), "{shown}");
        // Latencies are of what was decoded; the ends of requests are all timed.
        assert!(record.latency["response"].len() <= decoded(&counts), "{compression}");
        assert_eq!(record.latency["eose"].len(), counts.requests, "{compression}");
        assert!(!record.latency.contains_key("first_event"), "{compression}");
    }
}

#[test]
fn what_is_short_is_decoded_and_judged_as_full_readers_do() {
    let setup = prepare(SCENARIO);
    let full = prepare(&SCENARIO.replace("decode_every = 4\n", ""));
    for fault in ["double-eose", "notice-storm=3", "closed-storm=2:message=9-"] {
        let [light, full] = [&setup, &full].map(|setup| misled(setup, fault));
        assert!(full.0.answers_unexpected > 0 || full.0.requests_failed > 0, "{fault}: {:?}", full.0);
        let judged = |counts: &Counts| {
            let Counts { deliveries_expected, deliveries_lost, deliveries_unexpected, .. } = *counts;
            let answers = (counts.requests_failed, counts.answers_unexpected);
            // How much a subscription had when it was closed depends on the moment.
            let lost =
                if fault.starts_with("closed") { u64::from(deliveries_lost > 0) } else { deliveries_lost };
            (deliveries_expected, lost, deliveries_unexpected, answers)
        };
        assert_eq!(judged(&light.0), judged(&full.0), "{fault}");
        // A busy machine makes times of either invalid (3), which says nothing of the ledger.
        let is_unbalanced = |code: Option<i32>| code == Some(4);
        assert_eq!(is_unbalanced(light.1), is_unbalanced(full.1), "{fault}: {:?} {:?}", light.1, full.1);
    }
}

#[test]
fn what_comes_behind_its_eose_is_lost_and_unexpected_unless_the_next_request_counts_it() {
    let (light, code) = misled(&prepare(SCENARIO), "early-eose");
    let full = misled(&prepare(&SCENARIO.replace("decode_every = 4\n", "")), "early-eose").0;
    assert_eq!((full.deliveries_lost, light.deliveries_lost), (full.deliveries_unexpected, surplus(&light)));
    assert!(light.deliveries_lost > 0 && light.deliveries_lost < full.deliveries_lost, "{light:?} {full:?}");
    assert_eq!(code, Some(4));
}

#[test]
fn few_decoded_deliveries_make_a_run_suspect() {
    let setup = prepare(&SCENARIO.replace("decode_every = 4", "decode_every = 100000"));
    play(&setup, &[]);
    let record = setup.record();
    assert!(record.validity.class >= ValidityClass::Suspect);
    let reasons = record.validity.to_string();
    assert!(reasons.contains("lower decode_every"), "{reasons}");
}

#[test]
fn what_cannot_be_counted_is_refused_with_the_way_out() {
    let setup = prepare(SCENARIO);
    let stay = "[[request.live]]\nkinds = [1]\n";
    for (flags, scenario, reason) in [
        (&["--batching", "on"] as &[&str], SCENARIO.to_owned(), "beside --batching"),
        (&["--client-verify", "id"], SCENARIO.to_owned(), "beside --client-verify"),
        (&[], SCENARIO.replace("decode_every = 4", "decode_every = 1"), "decode_every must be 2 to 1000000"),
        (&[], SCENARIO.replace("connections = 3", "connections = 3\nread_bytes_per_s = 0"), "not both"),
        (
            &[],
            SCENARIO.replace("period_ms = 100 }", "period_ms = 100 }\nstay_ms = 100") + stay,
            "decode_every beside [[request.live]]",
        ),
    ] {
        setup.write("plan.toml", &scenario);
        play(&setup, flags).ended(2).saying(&[reason]);
        assert!(!setup.path("record.json").exists());
    }
}
