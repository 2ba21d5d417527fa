//! The search against relays that are only numbers.

use anyhow::Result;
use compare::{
    Block, CellSpec, Header, ResultFile,
    bracket::{End, Limit},
    report::{self, Derived},
    result::{Probe, ProbeOutcome, Purpose, SearchConfig},
    search::{self, Prober, search},
    slo::Slo,
};
use measure::{Status, ValidityClass};

use crate::common::{PLAIN, Run, host, matrix, record};

/// A relay that answers within a millisecond up to its limit and within a minute beyond.
struct Relays {
    sustains: Vec<u32>,
    /// Where the host gives up, whatever the relay does.
    host_busy_from: u32,
    /// Where decoding fills the generator's core.
    generator_full_from: u32,
    /// When the user has had enough.
    probes_until_interrupted: u32,
}

impl Prober for Relays {
    fn probe(&mut self, cell: usize, rate_per_s: u32) -> Result<Option<Block>> {
        if self.probes_until_interrupted == 0 {
            return Ok(None);
        }
        self.probes_until_interrupted -= 1;
        let latency_us = if rate_per_s <= self.sustains[cell] { 1_000 } else { 30_000 };
        let mut record = record("json+none", 1, Run { latency_us, deliveries: 40_000, ..PLAIN });
        if rate_per_s >= self.host_busy_from {
            record
                .validity
                .add(ValidityClass::Invalid, "host busy: CPU pressure (some, 10 s) 71.0 %".to_owned());
        }
        if rate_per_s >= self.generator_full_from {
            record.client_cpu.total_ns = record.elapsed_ns * 96 / 100;
        }
        Ok(Some(Block {
            round: 0,
            position: 0,
            seed: 1,
            started_after_ns: 0,
            process_ns: 1,
            exit_code: Some(0),
            failure: None,
            record: Some(record),
        }))
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
    let mut relays = Relays {
        sustains: vec![900, 3_000],
        host_busy_from: u32::MAX,
        generator_full_from: u32::MAX,
        probes_until_interrupted: u32::MAX,
    };
    let mut order = Vec::new();
    let mut tell = |cell: &str, _: &Probe| order.push(cell.to_owned());
    let found = search(&cells(), &config, &slo, &mut relays, &mut tell).unwrap();
    assert!(found.finished);
    for (cell, sustains) in found.cells.iter().zip([900, 3_000]) {
        let limit = Limit::of(&config, cell);
        let (pass, fail) = (limit.last_pass_per_s.unwrap(), limit.first_fail_per_s.unwrap());
        assert!(
            pass <= sustains && sustains < fail && f64::from(fail) <= f64::from(pass) * 1.05,
            "{limit:?}"
        );
        assert_eq!((limit.end, limit.pass_confirmed, limit.fail_confirmed), (End::Slo, 3, 3));
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
    let mut relays = Relays {
        sustains: vec![50_000, 50_000],
        host_busy_from: 2_000,
        generator_full_from: u32::MAX,
        probes_until_interrupted: u32::MAX,
    };
    let found = search(&cells(), &config, &slo, &mut relays, &mut |_: &str, _: &Probe| ()).unwrap();
    for cell in found.cells {
        let limit = Limit::of(&config, &cell);
        assert_eq!(limit.end, End::GeneratorLimit);
        assert!(
            limit.last_pass_per_s.unwrap() < 2_000 && limit.first_fail_per_s.unwrap() >= 2_000,
            "{limit:?}"
        );
        assert!(cell.probes.iter().all(|probe| probe.outcome != ProbeOutcome::Fail));
    }
}

#[test]
fn a_bound_that_is_missed_with_a_full_generator_is_the_generators() {
    let config = config();
    let slo: Slo = config.slo.parse().unwrap();
    for (full_from, end) in [(900, End::GeneratorLimit), (u32::MAX, End::Slo)] {
        let mut relays = Relays {
            sustains: vec![1_000, 1_000],
            host_busy_from: u32::MAX,
            generator_full_from: full_from,
            probes_until_interrupted: u32::MAX,
        };
        let found = search(&cells(), &config, &slo, &mut relays, &mut |_: &str, _: &Probe| ()).unwrap();
        for cell in found.cells {
            let limit = Limit::of(&config, &cell);
            // Up to the relay's limit the bound holds beside a full generator, too.
            assert!(limit.last_pass_per_s.unwrap() > 900, "{limit:?}");
            assert_eq!(limit.end, end);
        }
    }
}

fn result(found: search::Found) -> ResultFile {
    let config = config();
    let header = Header {
        command: ["compare", "search"].map(str::to_owned).to_vec(),
        git: None,
        host: host(),
        started_utc: "2026-11-21T08:05:00Z".to_owned(),
        status: match found.finished {
            true => Status::Complete,
            false => Status::Incomplete { reason: "interrupted".to_owned() },
        },
        config: config.as_run(),
        selftest: None,
    };
    ResultFile::of_search(header, config, found.cells, None)
}

#[test]
fn a_search_is_a_result_that_is_rendered_from_its_file() {
    let (config, cells) = (config(), cells());
    let slo: Slo = config.slo.parse().unwrap();
    let mut relays = Relays {
        sustains: vec![900, 3_000],
        host_busy_from: u32::MAX,
        generator_full_from: u32::MAX,
        probes_until_interrupted: u32::MAX,
    };
    let found = search(&cells, &config, &slo, &mut relays, &mut |_: &str, _: &Probe| ()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    result(found.clone()).write(folder.path()).unwrap();
    let read = ResultFile::read(folder.path()).unwrap();
    assert_eq!(read.search.as_ref().unwrap().cells, found.cells);
    let limit = &Derived::of(&read).limits[0];
    let (pass, fail) = (limit.last_pass_per_s.unwrap(), limit.first_fail_per_s.unwrap());
    let summary = report::summary(&read);
    assert!(summary.contains("# note-stream: the highest rate under p99<10ms, lost=0\n"), "{summary}");
    assert!(
        summary
            .contains(&format!("| json+none | {pass}/s | {fail}/s | 3/3 passed, 3/3 did not | p99<10ms |")),
        "{summary}"
    );
    assert!(summary.contains("## p99 against rate\n\n| cell | p99 ms at 90/s |"), "{summary}");
    let terminal = report::terminal(&read, false);
    assert!(terminal.contains("cbor+none") && terminal.contains("p99 ms at"), "{terminal}");
    let page = report::html(&read).unwrap();
    let says = format!("json+none: p99 1.49 ms at {pass} events/s, the highest that passed</title>");
    assert!(page.contains(&says), "{page}");
    assert!(page.contains(&format!("at {fail} events/s, the lowest that did not</title>")));
}

#[test]
fn what_was_found_before_an_interruption_is_kept_and_called_unfinished() {
    let (config, cells) = (config(), cells());
    let slo: Slo = config.slo.parse().unwrap();
    let mut relays = Relays {
        sustains: vec![900, 3_000],
        host_busy_from: u32::MAX,
        generator_full_from: u32::MAX,
        probes_until_interrupted: 5,
    };
    let found = search(&cells, &config, &slo, &mut relays, &mut |_: &str, _: &Probe| ()).unwrap();
    assert!(!found.finished);
    assert_eq!(found.cells.iter().map(|cell| cell.probes.len()).sum::<usize>(), 5);
    for cell in &found.cells {
        let limit = Limit::of(&config, cell);
        assert_eq!((limit.end, limit.first_fail_per_s), (End::Unfinished, None));
        assert!(limit.last_pass_per_s.unwrap() >= 200, "{limit:?}");
    }
    let summary = report::summary(&result(found));
    assert!(summary.contains("Incomplete: interrupted") && summary.contains("– not finished"), "{summary}");
}
