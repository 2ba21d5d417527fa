//! When a relay is worse than the first.

use crate::common::{PLAIN, Run, record, result};
use report::{Derived, FailOn, Judged, ResultFile, between_relays, result::RelayCommand};

/// Two relays, of which the new one takes so many microseconds an event, and the old one 50.
fn two_relays(new_us: u64) -> ResultFile {
    let mut result = result("standard", 10, &["json+none", "cbor-packed+none"], |id, round, _| {
        let us = if id == "cbor-packed+none" { new_us } else { 50 };
        // Rounds differ, relays within a round do not.
        let run = Run { relay_us_per_event: us * u64::from(10 + round), ..PLAIN };
        record("json+none", 1 + u64::from(round), run)
    });
    for cell in &mut result.cells {
        let relay = if cell.id == "cbor-packed+none" { "new" } else { "old" };
        cell.id = cell.id.replace("cbor-packed", "json") + "+" + relay;
        cell.cell.format = "json".to_owned();
        cell.cell.relay = relay.to_owned();
    }
    let command = |name: &str| RelayCommand { name: name.to_owned(), command: format!("./{name} {{port}}") };
    result.config.relays = ["old", "new"].map(command).to_vec();
    result
}

fn failing(result: &ResultFile, fail_on: Option<&str>) -> Vec<String> {
    let fail_on: Option<FailOn> = fail_on.map(|text| text.parse().unwrap());
    let judged = between_relays(result, &Derived::from_result(result).comparisons, fail_on.as_ref());
    judged.iter().filter(|judged| judged.fails).map(Judged::to_string).collect()
}

#[test]
fn a_relay_that_is_decided_to_cost_more_fails_and_is_named() {
    let slower = two_relays(55);
    let named = "relay CPU of json+none+new is ×1.10 [1.10, 1.10] of json+none+old";
    assert_eq!(failing(&slower, None), [named]);
    assert_eq!(failing(&slower, Some("relay CPU>3%, p99>10%")), [named]);
    assert_eq!(failing(&slower, Some("relay CPU>20%")), [""; 0], "worse, by less than the bound");
    assert_eq!(failing(&slower, Some("p99>0%")), [""; 0], "another metric");
}

#[test]
fn the_same_relay_or_a_cheaper_one_passes() {
    for us in [50, 40] {
        assert_eq!(failing(&two_relays(us), None), [""; 0], "{us}");
    }
    // Formats of one relay are no relays.
    let formats = result("standard", 10, &["json+none", "cbor-packed+none"], |id, round, _| {
        let run = Run { relay_us_per_event: if id == "json+none" { 50 } else { 90 }, ..PLAIN };
        record(id, 1 + u64::from(round), run)
    });
    assert_eq!(failing(&formats, None), [""; 0]);
}
