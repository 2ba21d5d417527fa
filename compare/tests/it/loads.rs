//! Relay CPU above the floor, and curves against the load.

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
    assert!(!report::terminal(&result, false).contains("above floor"), "a narrow table has no room for it");
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

/// The same cells at loads 1 and 4, where a cell costs less and waits longer.
pub(crate) fn at_two_loads() -> ResultFile {
    let mut result = with_floor(|_| 2);
    for mut cell in result.cells.clone() {
        cell.id.push_str("+load-4");
        cell.cell.load = "4".to_owned();
        for record in cell.blocks.iter_mut().filter_map(|block| block.record.as_mut()) {
            record.cell.load = "4".to_owned();
            record.active_ns /= 4;
        }
        result.cells.push(cell);
    }
    result
}

#[test]
fn curves_are_drawn_from_two_loads_on_and_the_floor_has_a_line_of_its_own() {
    let heading = "<h2>mixed-day against its load</h2>";
    assert!(!report::html(&with_floor(|_| 2)).unwrap().contains(heading));
    let page = report::html(&at_two_loads()).unwrap();
    let curves = page.split(heading).nth(1).expect("curves");
    let curves = curves.split("<h2>").next().unwrap();
    let captions: Vec<&str> =
        curves.split("<figcaption>").skip(1).filter_map(|rest| rest.split("</figcaption>").next()).collect();
    assert_eq!(
        captions,
        [
            "Relay CPU against deliveries per second",
            "p50 of response against deliveries per second",
            "p99 of response against deliveries per second",
            "Peak memory of the relay against deliveries per second"
        ]
    );
    // JSON, CBOR and the floor, without the control, in each figure.
    assert_eq!(curves.matches("<polyline ").count(), 12);
    assert_eq!(curves.matches("stroke-dasharray=\"1 3\"").count(), 4);
    assert_eq!(curves.matches("<title>floor: ").count(), 8);
    assert!(curves.contains("at 10,000 deliveries per second"), "4 × 4,000 in 1.6 s");
}

#[test]
fn figures_of_a_hostile_file_have_no_place_that_is_no_number() {
    let mut result = at_two_loads();
    for record in result.cells.iter_mut().flat_map(|cell| &mut cell.blocks).filter_map(|b| b.record.as_mut())
    {
        (record.active_ns, record.traffic.to_client.wire_bytes) = (0, u64::MAX / 1_000);
    }
    let page = report::html(&result).unwrap();
    let drawn: Vec<&str> =
        page.split("<svg ").skip(1).filter_map(|rest| rest.split("</svg>").next()).collect();
    assert!(!drawn.is_empty() && drawn.iter().all(|svg| !svg.contains("NaN") && !svg.contains("inf")));
}
