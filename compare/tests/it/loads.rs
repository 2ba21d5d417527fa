//! Relay CPU above the floor.

use measure::MemoryRecord;

use crate::common::{PLAIN, Run, record, result};
use report::{AboveFloor, Derived, ResultFile};

/// JSON costs 10 shares, CBOR 6, the floor 2; a share drifts over the rounds.
fn with_floor(floor: impl Fn(u32) -> u64) -> ResultFile {
    result("standard", 8, &["json+none", "cbor-packed+none", "floor"], |id, round, _| {
        let shares = match id {
            "floor" => floor(round),
            "cbor-packed+none" => 6,
            _ => 10,
        };
        let run = Run { relay_us_per_event: shares * u64::from(10 + round), ..PLAIN };
        let id = if id == "floor" { "json+none" } else { id };
        let mut record = record(id, 1 + u64::from(round), run);
        record.memory = Some(MemoryRecord {
            connections: 20,
            client_before_bytes: 0,
            client_after_bytes: 0,
            relay_before_bytes: None,
            relay_after_bytes: None,
            relay_peak_bytes: Some(64 << 20),
            relay_file_bytes: None,
            gateway_before_bytes: None,
            gateway_after_bytes: None,
        });
        record
    })
}

fn above(result: &ResultFile, cell: &str) -> Option<AboveFloor> {
    let found = Derived::from_result(result).cells.into_iter().find(|one| one.id == cell);
    found.and_then(|cell| cell.relay_cpu_above_floor)
}

fn near(found: Option<f64>, wanted: f64) -> bool {
    found.is_some_and(|found| (found - wanted).abs() < 1e-9)
}

#[test]
fn relay_cpu_above_the_floor_has_its_quotient_and_interval() {
    let result = with_floor(|_| 2);
    let cbor = above(&result, "cbor-packed+none").unwrap();
    assert!(near(cbor.ratio, 0.5) && cbor.cpu_ns > 0.0, "{cbor:?}");
    let (low, high) = cbor.interval.unwrap();
    assert!(near(Some(low), 0.5) && near(Some(high), 0.5), "{cbor:?}");
    // The anchor has no reference, and the floor is not above itself.
    let json = above(&result, "json+none").unwrap();
    assert!((json.ratio, json.interval) == (None, None) && json.cpu_ns > cbor.cpu_ns, "{json:?}");
    assert_eq!(above(&result, "floor"), None);
    let summary = report::summary(&result);
    assert!(
        summary.contains("relay above floor µs/event") && summary.contains("×0.50 [0.50, 0.50]"),
        "{summary}"
    );
}

#[test]
fn a_round_below_the_floor_takes_the_interval_and_is_not_left_out() {
    let cbor = above(&with_floor(|round| if round == 3 { 7 } else { 2 }), "cbor-packed+none").unwrap();
    assert!(cbor.interval.is_none() && cbor.ratio.is_some_and(|ratio| ratio < 0.5), "{cbor:?}");
    // All blocks together lie below it: no quotient, and a cost that says so.
    let result = with_floor(|_| 7);
    let cbor = above(&result, "cbor-packed+none").unwrap();
    assert!((cbor.ratio, cbor.interval) == (None, None) && cbor.cpu_ns < 0.0, "{cbor:?}");
    assert!(report::summary(&result).contains("| -"), "a negative cost");
}
