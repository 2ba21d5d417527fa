//! The program as a counter of instructions plays it, without the counter.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use std::process::{Command, Output};

fn count(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_client-sim")).arg("role:count").args(args).output().unwrap()
}

fn cell(id: &str, format: &str, compression: &str, batching: &str) -> String {
    format!(
        r#"{{"id":"{id}","cell":{{"format":"{format}","compression":"{compression}","batching":"{batching}","verify":"id","client-verify":"none"}}}}"#
    )
}

/// The sections with what they are divided by, behind the line that says what built the program.
fn sections(output: &Output) -> Vec<(String, u64)> {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let build = lines.next().unwrap();
    assert!(build["rustc"].as_str().unwrap().starts_with("rustc 1.") && build["optimised"].is_boolean());
    let section = |line: serde_json::Value| {
        Some((line["section"].as_str()?.to_owned(), line["units"].as_u64().unwrap()))
    };
    lines.filter_map(section).collect()
}

#[test]
fn a_stream_is_played_in_halves_and_every_delivery_is_accounted_for() {
    let at_rate = |cell: String| cell.replace("}}", r#","rate":"500"}}"#);
    let plain = at_rate(cell("plain", "json", "none", "off"));
    let packed = at_rate(cell("packed", "dannypack", "deflate-shared", "on:ms=5:n=16"));
    let args = ["--scenario", "note-stream", "--seconds", "0.1", "--cell", &plain, "--cell", &packed];
    let found = sections(&count(&args));
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["plain young", "plain steady", "packed young", "packed steady"]);
    // Fifty notes to eight subscribers; a ledger that does not balance is an error.
    assert_eq!((found[0].1 + found[1].1, found[2].1 + found[3].1), (400, 400));
    assert_eq!(found, sections(&count(&args)), "the same again");
}

#[test]
fn stored_events_are_sent_before_their_scenario_begins() {
    let cell = cell("a", "cbor-packed", "zstd", "off");
    let found = sections(&count(&["--scenario", "follow-list-burst", "--cell", &cell]));
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a first_delivery", "a later_delivery", "a young", "a steady"]);
    assert!(found[0].1 > 100 && found[0].1 == found[1].1, "{found:?}");
    assert!(found[2].1 > found[0].1, "several clients ask for the same event: {found:?}");
}

#[test]
fn a_plan_without_a_second_half_is_refused() {
    let cell = cell("a", "json", "none", "off");
    let output = count(&["--scenario", "follow-list-burst", "--seconds", "0.001", "--cell", &cell]);
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.starts_with("role:count: "), "{text}");
}

#[test]
fn populations_speak_what_their_scenario_says() {
    let (plain, checked) = (
        cell("a", "dannypack", "none", "off"),
        cell("b", "dannypack", "none", "off").replace(r#""client-verify":"none""#, r#""client-verify":"id""#),
    );
    let args = ["--scenario", "two-formats", "--seconds", "0.5", "--cell", &plain, "--cell", &checked];
    let found = sections(&count(&args));
    let of = |id: &str| found.iter().filter(|(name, _)| name.starts_with(id)).map(|(_, units)| units).sum();
    let (plain, checked): (u64, u64) = (of("a "), of("b "));
    assert!(plain > 0 && plain == checked, "a ledger that does not balance is an error: {found:?}");
}

/// A batch brings several events, and a greeting (AUTH) none.
#[test]
fn stored_events_are_counted_as_events_however_they_come() {
    for scenario in ["follow-list-burst", "dm-inbox-sync"] {
        let (single, batched) =
            (cell("single", "json", "none", "off"), cell("batched", "json", "none", "on:ms=5"));
        let found = sections(&count(&["--scenario", scenario, "--cell", &single, "--cell", &batched]));
        let stored = |id: &str| {
            let of_stored = |(name, _): &&(String, u64)| name.starts_with(id) && name.ends_with("_delivery");
            found.iter().filter(of_stored).map(|(_, units)| *units).collect::<Vec<_>>()
        };
        let expected = stored("single");
        assert!(expected.len() == 2 && expected[0] > 10 && expected[0] == expected[1], "{found:?}");
        assert_eq!(stored("batched"), expected, "{scenario}");
    }
}
