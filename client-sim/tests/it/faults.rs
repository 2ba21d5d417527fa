//! Faults between relay and clients, and the limits of both: what docs/faults.md promises.

use std::{fs, process::Command, thread};

use measure::{RunRecord, Status, ValidityClass};

use crate::{
    common::program,
    few::few_events,
    ran::{Ran, Runs},
    setup::Setup,
};

/// Notes that a run plans, at 100 a second, to eight readers.
const NOTES: u64 = 200;

/// A run against a relay with a fault of the network.
struct Played {
    fault: &'static str,
    code: Option<i32>,
    record: RunRecord,
    said: String,
    /// Lines of `--ledger`.
    named: u64,
}

fn setup() -> Setup {
    Setup::built_in("note-stream", Some(few_events()))
}

fn play(fault: &'static str) -> Played {
    let setup = setup();
    let ledger = setup.path("ledger.jsonl");
    let mut flags = vec!["--seconds", "2", "--rate", "100", "--quiet", "--drain-seconds", "3"];
    flags.extend(["--relay-fault", fault, "--ledger", ledger.to_str().unwrap()]);
    let Ran { code, said, .. } = setup.run(&flags);
    let record = setup.record_if_any().unwrap_or_else(|| panic!("{said}"));
    let named = fs::read_to_string(ledger).map_or(0, |ledger| ledger.lines().count() as u64);
    assert_eq!(record.counts.planned, NOTES);
    Played { fault, code, record, said, named }
}

/// Plays each at the same time: most of it is waiting.
fn play_all<const N: usize>(faults: [&'static str; N]) -> [Played; N] {
    thread::scope(|scope| {
        faults.map(|fault| scope.spawn(move || play(fault))).map(|play| play.join().unwrap())
    })
}

#[test]
fn a_slow_network_loses_nothing_and_is_latency() {
    let least_p99_ms = [90, 300, 0];
    let played = play_all(["delay=100ms", "slow=30000", "fragment=64"]);
    for (Played { fault, code, record, said, named }, p99_ms) in played.into_iter().zip(least_p99_ms) {
        // Allows 3: late answers on a busy machine make a run invalid.
        assert!(matches!(code, Some(0 | 3)), "{fault}: {said}");
        let found = (record.counts.balanced(), &record.status, named);
        assert_eq!(found, (Ok(()), &Status::Complete, 0), "{fault}");
        assert_eq!(record.counts.deliveries, 8 * NOTES, "{fault}");
        let p99_ns = record.latency["response"].quantile_ns(0.99).ns().unwrap();
        assert!(p99_ns >= p99_ms * 1_000_000, "{fault}: p99 {p99_ns} ns: the fault was there");
    }
}

#[test]
fn a_connection_that_ends_or_falls_silent_leaves_its_notes_unknown() {
    for Played { fault, code, record, said, named } in play_all(["reset:message=50", "half-open:message=50"])
    {
        let counts = record.counts;
        assert!(counts.deliveries > 0, "{fault}: {counts:?}");
        assert_eq!(named, counts.deliveries_lost, "{fault}: one line a lost delivery");
        if fault.starts_with("reset") {
            assert_eq!(code, Some(5), "{fault}: {said}");
            assert!(matches!(record.status, Status::Incomplete { .. }), "{fault}: {:?}", record.status);
            assert!(counts.unknown + counts.not_sent > 0, "{fault}: {counts:?}");
        } else {
            // Nothing but silence tells the client: the run is over after its patience.
            assert!(matches!(code, Some(3 | 4)), "{fault}: {code:?}: {said}");
            assert_eq!(record.status, Status::Complete, "{fault}: the relay had its time to answer");
            assert!(counts.timed_out > 0, "{fault}: {counts:?}");
        }
        let answered = counts.acked + counts.timed_out + counts.unknown + counts.not_sent;
        assert_eq!(answered, NOTES, "{fault}: every note has its fate: {counts:?}");
    }
}

/// The program in a shell that limits what it may use.
fn limited(ulimit: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{ulimit} && exec \"$0\" \"$@\"")]).arg(program().get_program());
    shell
}

#[test]
fn a_plan_that_does_not_fit_into_memory_is_refused_before_it_is_made() {
    let rate = ["--rate", "10000000", "--max-rate", "20000000"];
    for extra in [&rate[..2], &rate[..], &["--load", "5000"]] {
        limited("ulimit -v 8000000")
            .args(["--scenario", "note-stream", "--seconds", "4"])
            .args(extra)
            .ran()
            .ended(2)
            .saying(&["about 40000000 publications", "may have 3.8 GiB"])
            .saying(&["publications would fit: lower --load, --rate or --seconds"]);
    }
}

#[test]
fn too_few_descriptors_for_the_plan_are_named_before_it_begins() {
    for (extra, connections, needed) in [
        (["--scenario=note-stream", "--set=subscribe.connections=200"], 201, 265),
        (["--scenario=follow-list-burst", "--load=4"], 220, 284),
    ] {
        let needs = format!("{connections} connections need {needed} descriptors");
        limited("ulimit -n 100").args(extra).ran().ended(2).saying(&[&needs, "may open 100 here"]);
    }
}

#[test]
fn a_run_that_logs_every_message_is_suspect_by_client_and_relay() {
    let setup = setup();
    let play = |level: Option<&str>| {
        let mut client = setup.command(&["--rate", "40", "--seconds", "0.3", "--quiet"]);
        client.env_remove("RUST_LOG").envs(level.map(|level| ("RUST_LOG", level))).ran();
        setup.record()
    };
    for (level, shown, count) in [
        (Some("trace"), "trace", 2),
        (Some("relay_sim=debug"), "debug", 2),
        (Some("warn,tungstenite=trace"), "trace", 2),
        (Some("info"), "info", 0),
        (Some("no level, =at all"), "warn", 0),
        (None, "warn", 0),
    ] {
        let record = play(level);
        let of_relay = record.relay.as_ref().unwrap().log_level.as_deref();
        assert_eq!((record.log_level.as_deref(), of_relay), (Some(shown), Some(shown)), "{level:?}");
        let said = record.validity.to_string();
        assert_eq!(said.matches("log level of").count(), count, "{level:?}: {:?}", record.validity);
        assert!(count == 0 || record.validity.class >= ValidityClass::Suspect, "{level:?}");
    }
}

#[test]
fn a_limit_of_file_sizes_costs_the_record_and_not_the_summary() {
    let folder = tempfile::tempdir().unwrap();
    let output = limited("ulimit -f 16")
        .args(["--scenario", "note-stream", "--seconds", "1", "--record", "record.json", "--corpus"])
        .arg(few_events())
        .current_dir(folder.path())
        .ran();
    assert!(output.code.is_some_and(|code| code != 0), "{output}");
    let output = output.saying(&["record.json", "File too large"]);
    assert!(output.out.contains("publications accepted"), "{output}");
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "no torn file");
}
