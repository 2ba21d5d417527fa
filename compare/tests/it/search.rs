//! The search against relays that are only numbers.

use anyhow::Result;
use compare::{
    Block, CellSpec,
    search::{End, Probe, ProbeOutcome, Prober, Purpose, SearchConfig, search},
    slo::Slo,
};
use measure::Verdict;

use crate::common::{PLAIN, Run, matrix, record};

/// A relay that answers within a millisecond up to its limit and within a minute beyond.
struct Relays {
    sustains: Vec<u32>,
    /// Where the host gives up, whatever the relay does.
    host_busy_from: u32,
}

impl Prober for Relays {
    fn probe(&mut self, cell: usize, rate_per_s: u32) -> Result<Block> {
        let latency_us = if rate_per_s <= self.sustains[cell] { 1_000 } else { 30_000 };
        let mut record = record("json+none", 1, Run { latency_us, deliveries: 40_000, ..PLAIN });
        if rate_per_s >= self.host_busy_from {
            record.validity.add(Verdict::Invalid, "host busy: CPU pressure (some, 10 s) 71.0 %".to_owned());
        }
        Ok(Block {
            round: 0,
            position: 0,
            seed: 1,
            started_after_ns: 0,
            process_ns: 1,
            exit_code: Some(0),
            failure: None,
            record: Some(record),
        })
    }
}

fn config() -> SearchConfig {
    SearchConfig {
        scenario: "note-stream".to_owned(),
        slo: "p99<10ms, lost=0".to_owned(),
        start_per_s: 100,
        limit_per_s: 100_000,
        probe_seconds: 2,
        precision: 0.05,
        confirmations: 3,
        curve: true,
        seed: 1,
        corpus: None,
        client_args: Vec::new(),
    }
}

fn cells() -> Vec<CellSpec> {
    let mut cells = matrix(&["cbor+none"]);
    cells.remove(1); // the control
    cells
}

#[test]
fn each_cell_gets_its_bracket_repeated_and_a_curve_below_the_lowest() {
    let config = config();
    let slo: Slo = config.slo.parse().unwrap();
    let mut relays = Relays { sustains: vec![900, 3_000], host_busy_from: u32::MAX };
    let mut order = Vec::new();
    let mut tell = |cell: &str, _: &Probe| order.push(cell.to_owned());
    let found = search(&cells(), &config, &slo, &mut relays, &mut tell).unwrap();
    for (cell, sustains) in found.iter().zip([900, 3_000]) {
        let (pass, fail) = (cell.last_pass_per_s.unwrap(), cell.first_fail_per_s.unwrap());
        assert!(pass <= sustains && sustains < fail && f64::from(fail) <= f64::from(pass) * 1.05, "{cell:?}");
        assert_eq!((cell.end, cell.pass_confirmed, cell.fail_confirmed), (End::Slo, 3, 3));
        let curve: Vec<_> = cell.probes.iter().filter(|probe| probe.purpose == Purpose::Curve).collect();
        assert_eq!(curve.len(), 6);
        assert!(curve.iter().all(|probe| probe.rate_per_s < 900 && probe.p99_ns.is_some()));
        let missed = cell.probes.iter().find(|probe| probe.outcome == ProbeOutcome::Fail).unwrap();
        assert_eq!(missed.why, ["p99<10ms"]);
    }
    // Nobody is measured alone while the other waits.
    assert!(
        order[..4].iter().any(|cell| cell == "json+none")
            && order[..4].iter().any(|cell| cell == "cbor+none")
    );
}

#[test]
fn an_invalid_probe_is_never_the_relays_failure() {
    let config = config();
    let slo: Slo = config.slo.parse().unwrap();
    let mut relays = Relays { sustains: vec![50_000, 50_000], host_busy_from: 2_000 };
    let found = search(&cells(), &config, &slo, &mut relays, &mut |_: &str, _: &Probe| ()).unwrap();
    for cell in found {
        assert_eq!(cell.end, End::GeneratorLimit);
        assert!(cell.last_pass_per_s.unwrap() < 2_000 && cell.first_fail_per_s.unwrap() >= 2_000, "{cell:?}");
        assert!(cell.probes.iter().all(|probe| probe.outcome != ProbeOutcome::Fail));
    }
}
