//! A relay in Python spoils a known number of deliveries; the ledger must count each one exactly,
//! as the fault that it is.

use measure::{Counts, Exit};

use crate::{python::Relay, setup::Setup};

/// The number of deliveries that the relay spoils.
const SPOILED: u64 = 7;

/// Exit code, ledger, what was written and the lines of `--ledger`.
struct Played {
    code: Option<i32>,
    counts: Counts,
    text: String,
    ledger: Vec<serde_json::Value>,
}

fn play(fault: &str) -> Played {
    let relay = Relay::start(&[fault, &SPOILED.to_string()]);
    let setup = Setup::built_in("note-stream", None);
    let file = |name: &str| setup.path(name).display().to_string();
    // Of a rehearsal it would spoil some, too.
    let files = ["--doctor", &file("unasked.json"), "--ledger", &file("ledger.jsonl")];
    let flags = ["--seconds", "1", "--rate", "100", "--drain-seconds", "2", "--url", &relay.1];
    let ran = setup.run(&[&flags[..], &files].concat());
    let record = setup.record_if_any().unwrap_or_else(|| panic!("{ran}"));
    let ledger = std::fs::read_to_string(setup.path("ledger.jsonl")).unwrap();
    let ledger = ledger.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    Played { code: ran.code, counts: record.counts, text: ran.said + &ran.out, ledger }
}

#[test]
#[ignore = "needs python3 with websockets"]
fn a_relay_that_is_silent_to_limit_0_is_asked_with_limit_1() {
    let Played { code, counts, text, ledger } = play("mute");
    // A busy machine makes times invalid, never a ledger.
    assert!(code == Some(0) || Exit::Invalid.is(code), "{text}");
    assert_eq!((counts.balanced(), counts.deliveries, ledger.len()), (Ok(()), 800, 0), "{text}");
    assert!(text.contains("live subscriptions ask with limit 1"), "{text}");
}

#[test]
#[ignore = "needs python3 with websockets"]
fn live_subscriptions_that_a_python_relay_ends_are_no_loss() {
    let Played { code, counts, text, .. } = play("close");
    // It delivers less than the scenario expects, and loses nothing.
    assert_eq!((Exit::Invalid.is(code), counts.balanced()), (true, Ok(())), "{text}");
    assert_eq!((counts.subscriptions_closed, counts.deliveries_lost), (SPOILED, 0));
    assert_eq!(counts.deliveries + counts.deliveries_cut_off, 800);
    assert!(text.contains("the relay ended 7 live subscriptions (CLOSED)"), "{text}");
}

#[test]
#[ignore = "needs python3 with websockets"]
fn deliveries_that_a_python_relay_spoils_are_counted_exactly() {
    for fault in ["none", "lose", "double", "alter", "invent", "misroute"] {
        let Played { code, counts, text, ledger } = play(fault);
        let found = [
            counts.deliveries_lost,
            counts.deliveries_duplicated,
            counts.deliveries_altered,
            counts.deliveries_invented,
            counts.deliveries_misrouted,
        ];
        let n = SPOILED;
        let expected = match fault {
            "lose" => [n, 0, 0, 0, 0],
            "double" => [0, n, 0, 0, 0],
            // An altered or misrouted delivery is a lost one too.
            "alter" => [n, 0, n, 0, 0],
            "invent" => [0, 0, 0, n, 0],
            "misroute" => [n, 0, 0, 0, n],
            _ => [0; 5],
        };
        assert_eq!(
            (found, counts.deliveries_unexpected, counts.answers_unexpected),
            (expected, 0, 0),
            "{fault}"
        );
        assert_eq!(ledger.len() as u64, expected.iter().sum::<u64>(), "{fault}: one line a wrong delivery");
        assert!(ledger.iter().all(|line| line["id"].as_str().unwrap().len() == 64), "{ledger:?}");
        assert_eq!(text.contains(" 1 of 7: "), fault != "none", "{text}");
        assert_eq!(counts.deliveries + counts.deliveries_lost, 800, "{fault}: 100 notes to 8 subscribers");
        assert_eq!(Exit::Unbalanced.is(code), fault != "none", "{fault} ended with {code:?}");
    }
}
