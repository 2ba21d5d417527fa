//! The search against relays that are only numbers.

use anyhow::Result;
use compare::{
    CellSpec,
    generator::{Generator, Played, Task},
    rate,
    search::{self, Probes, search},
};
use measure::{Latency, ReasonKind, RunRecord, Slice, Slices, Status, ValidityClass};
use report::{
    Derived, Header, ResultFile,
    bracket::{End, Limit},
    result::{AtLoad1, ChosenRate, Probe, ProbeOutcome, Purpose, Role, Search, SearchConfig},
    slo::Slo,
};

use crate::common::{Left, PLAIN, Run, Scripted, host, interrupted, matrix, measured, record};

/// Plays (cell, rate, seconds) as a function says; `None` when the user has had enough.
fn relays(
    cells: &[CellSpec],
    mut relay: impl FnMut(usize, u32, u32) -> Option<RunRecord>,
) -> Scripted<impl FnMut(&Task<'_>) -> Left> {
    Scripted::new(move |task| match relay(index(cells, task), rate(task), task.seconds) {
        Some(record) => measured(record),
        None => interrupted(),
    })
}

fn index(cells: &[CellSpec], task: &Task<'_>) -> usize {
    cells.iter().position(|cell| cell.id == task.cell.id).unwrap()
}

fn rate(task: &Task<'_>) -> u32 {
    task.cell.cell.whole_rate_per_s().unwrap()
}

/// A block with this latency, whose processes used less than their cores.
fn answered(latency_us: u64) -> RunRecord {
    let run =
        Run { latency_us, deliveries: 40_000, relay_us_per_event: 20, client_us_per_event: 20, ..PLAIN };
    record("json+none", 1, run)
}

/// A relay that answers within milliseconds up to its limit and much later beyond.
fn up_to(sustains: u32, rate_per_s: u32) -> RunRecord {
    answered(if rate_per_s <= sustains { 1_000 } else { 30_000 })
}

fn config() -> SearchConfig {
    SearchConfig {
        scenario: "note-stream".to_owned(),
        slo: "p99<10ms, lost=0".to_owned(),
        start_per_s: 100,
        limit_per_s: 100_000,
        probe_seconds: 2,
        precision: 0.05,
        curve: true,
        seed: 1,
        ..SearchConfig::default()
    }
}

fn cells() -> Vec<CellSpec> {
    let mut cells = matrix(&["cbor+none"]);
    cells.remove(1); // the control
    cells
}

fn found(relay: impl FnMut(usize, u32, u32) -> Option<RunRecord>) -> search::Found {
    searched(&relays(&cells(), relay), |_, _| ())
}

fn searched(generator: &dyn Generator, mut tell: impl FnMut(&str, &Probe)) -> search::Found {
    let (config, cells, folder) = (config(), cells(), tempfile::tempdir().unwrap());
    let slo: Slo = config.slo.parse().unwrap();
    let mut probes = Probes::new(generator, &cells, &config, folder.path()).unwrap();
    search(&cells, &config, &slo, &mut probes, &mut tell).unwrap()
}

fn chosen(
    cells: &[CellSpec],
    config: &SearchConfig,
    relay: impl FnMut(usize, u32, u32) -> Option<RunRecord>,
) -> Result<Option<ChosenRate>> {
    let (generator, folder) = (relays(cells, relay), tempfile::tempdir().unwrap());
    let mut probes = Probes::new(&generator, cells, config, folder.path()).unwrap();
    rate::choose(cells, config, &mut probes, &mut |_, _| ())
}

#[test]
fn a_search_of_loads_finds_deliveries_per_second_and_says_what_was_played() {
    // Demand of note-stream at 50 notes a second, to eight subscribers.
    let config = SearchConfig {
        at_load_1: Some(AtLoad1 { deliveries_per_s: 400.0 }),
        start_per_s: 400,
        curve: false,
        ..config()
    };
    let (cells, folder) = (cells(), tempfile::tempdir().unwrap());
    let generator = Scripted::new(|task: &Task<'_>| {
        let load = task.cell.cell.load;
        assert_eq!(task.cell.cell.rate_per_s, None, "the scenario's own");
        let mut record = answered(if load <= 7.5 { 1_000 } else { 30_000 });
        record.cell.load = load.to_string();
        record.connections = 16;
        measured(record)
    });
    let mut probes = Probes::new(&generator, &cells, &config, folder.path()).unwrap();
    let found = search(&cells, &config, &config.slo.parse().unwrap(), &mut probes, &mut |_, _| ()).unwrap();
    for cell in &found.cells {
        let capacity = f64::from(Limit::from_probes(&config, cell).capacity_per_s.unwrap());
        assert!((capacity / (7.5 * 400.0)).ln().abs() < 0.03, "{capacity}");
        assert!(cell.probes.iter().all(|probe| {
            let load = f64::from(probe.rate_per_s) / 400.0;
            probe.played.is_some_and(|played| (played.load - load).abs() < 1e-4)
        }));
    }
    let summary = report::summary(&result_of(config, found));
    assert!(summary.contains("# note-stream: the most deliveries/s under p99<10ms, lost=0\n"), "{summary}");
    let heading = "| 95 % interval | delivered/s | publishes/s | connections | load |";
    assert!(summary.contains(heading), "{summary}");
    assert!(summary.contains(" | 16 | 7."), "{summary}");
    assert!(summary.contains("deliveries per second, at which note-stream"), "{summary}");
}

fn limits(found: &search::Found) -> Vec<Limit> {
    found.cells.iter().map(|cell| Limit::from_probes(&config(), cell)).collect()
}

#[test]
fn each_cell_gets_its_capacity_and_a_curve_below_the_lowest() {
    let (cells, mut order) = (cells(), Vec::new());
    let relays = relays(&cells, |cell, rate, _| Some(up_to([900, 3_000][cell], rate)));
    let found = searched(&relays, |cell, _| order.push(cell.to_owned()));
    assert!(found.finished);
    for ((cell, limit), sustains) in found.cells.iter().zip(limits(&found)).zip([900.0, 3_000.0]) {
        let (low, high) = limit.interval_per_s.unwrap();
        let off = (f64::from(limit.capacity_per_s.unwrap()) / sustains).ln().abs();
        assert!(limit.end == End::Slo && off < 0.03, "{limit:?}");
        assert!(f64::from(low) <= sustains * 1.01 && sustains <= f64::from(high) * 1.01, "{limit:?}");
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
fn a_busy_host_says_nothing_about_a_miss_and_takes_nothing_from_what_is_kept() {
    let busy = |mut record: RunRecord| {
        record.validity.add(ValidityClass::Invalid, ReasonKind::CpuPressure { percent: 71.0 });
        record
    };
    let kept = found(|_, rate, _| Some(if rate <= 900 { busy(up_to(900, rate)) } else { up_to(900, rate) }));
    for limit in limits(&kept) {
        assert_eq!(limit.end, End::Slo);
        assert!((870..=930).contains(&limit.capacity_per_s.unwrap()), "{limit:?}");
    }
    let missed = found(|_, rate, _| Some(if rate > 900 { busy(up_to(900, rate)) } else { up_to(900, rate) }));
    for (cell, limit) in missed.cells.iter().zip(limits(&missed)) {
        assert_eq!((limit.end, limit.capacity_per_s), (End::Disturbed, None));
        assert!(cell.probes.iter().all(|probe| probe.outcome != ProbeOutcome::Fail));
    }
    assert!(report::summary(&result(missed)).contains("The host was too busy for json+none, cbor+none"));
}

#[test]
fn a_miss_is_the_relays_or_the_generators() {
    fn full(record: &mut RunRecord) {
        record.client_cpu.total_ns = record.elapsed_ns * 96 / 100;
    }
    fn late(record: &mut RunRecord, ms: u64) {
        let mut lag = Latency::new();
        (0..20_000).for_each(|_| lag.record(ms * 1_000_000));
        record.latency.insert("send_lag".to_owned(), lag);
    }
    fn grows(record: &mut RunRecord) {
        let second = |at: u64| Slice { samples: 100, latency_ns_p50: None, in_flight: at * 50 };
        record.slices = Some(Slices { of: "response".to_owned(), seconds: (0..10).map(second).collect() });
    }
    fn drops(record: &mut RunRecord) {
        (record.counts.dropped_by_generator, record.counts.acked) = (10, record.counts.acked - 10);
    }
    // Beyond the limit p99 is 44.7 ms under an SLO of 10 ms.
    type Change = fn(&mut RunRecord);
    let cases: [(&str, Change, End); 8] = [
        ("nothing else", |_| (), End::Slo),
        ("a full generator", full, End::GeneratorLimit),
        ("a late generator", |record| late(record, 40), End::GeneratorLimit),
        ("a generator less late than the miss", |record| late(record, 20), End::Slo),
        ("a late generator, and a growing queue", |record| (late(record, 40), grows(record)).0, End::Slo),
        (
            "a full generator, and a growing queue",
            |record| (full(record), grows(record)).0,
            End::GeneratorLimit,
        ),
        (
            "both full",
            |record| {
                full(record);
                record.relay_cpu.as_mut().unwrap().total_ns = record.elapsed_ns * 95 / 100;
            },
            End::Slo,
        ),
        ("events that the generator dropped", drops, End::Slo),
    ];
    for (what, change, end) in cases {
        let found = found(|_, rate, _| {
            let mut record = up_to(1_000, rate);
            if rate > 1_000 {
                change(&mut record);
            }
            Some(record)
        });
        for limit in limits(&found) {
            assert_eq!(limit.end, end, "{what}");
            assert_eq!(limit.capacity_per_s.is_some(), end == End::Slo, "{what}");
            assert!(limit.last_pass_per_s.unwrap() > 900, "{what}: {limit:?}");
        }
        if end == End::GeneratorLimit {
            let summary = report::summary(&result(found));
            assert!(summary.contains("The generator ended the search of json+none, cbor+none"), "{summary}");
            assert!(summary.contains("| json+none | over "), "{summary}");
        }
    }
}

#[test]
fn a_client_that_had_to_be_stopped_is_the_generators_limit_and_is_not_repeated() {
    let failure = || Some("the client did not end within 153 s and was stopped".to_owned());
    // Clients do not get through beyond this rate, and are stopped.
    let clients = Scripted::new(|task| match rate(task) {
        ..=1_000 => measured(answered(1_000)),
        _ => (None, Played { failure: failure(), ..Played::default() }),
    });
    let found = searched(&clients, |_, _| ());
    for cell in &found.cells {
        let at_rate = |rate| cell.probes.iter().filter(|probe| probe.rate_per_s == rate).count();
        assert_eq!(at_rate(1_600), 1, "{:?}", cell.probes);
    }
    for limit in limits(&found) {
        assert_eq!((limit.end, limit.capacity_per_s), (End::GeneratorLimit, None));
        assert!(limit.last_pass_per_s.unwrap() > 900, "{limit:?}");
    }
}

#[test]
fn a_generator_that_does_not_send_what_was_planned_passes_nothing() {
    let found = found(|_, rate, _| {
        let mut record = answered(1_000);
        if rate > 1_000 {
            // The last events were sent a tenth of the block late.
            record.elapsed_ns = record.elapsed_ns * 11 / 10;
        }
        Some(record)
    });
    for limit in limits(&found) {
        assert_eq!(limit.end, End::GeneratorLimit);
        assert!(limit.last_pass_per_s.unwrap() <= 1_000, "{limit:?}");
    }
}

#[test]
fn a_probe_is_long_enough_for_its_quantile() {
    let mut asked = Vec::new();
    found(|_, rate, seconds| {
        asked.push((rate, seconds));
        let answers = u64::from(rate) * u64::from(seconds);
        let mut record = up_to(900, rate);
        record.latency.insert("response".to_owned(), {
            let mut response = Latency::new();
            (0..answers).for_each(|_| response.record(if rate <= 900 { 1_000_000 } else { 30_000_000 }));
            response
        });
        Some(record)
    });
    // Nobody knows before the first probes of the two cells how many answers come.
    assert_eq!(asked[..2], [(100, 2), (100, 2)]);
    for (rate, seconds) in &asked[2..] {
        let answers = rate * seconds;
        assert!(*seconds == 60 || answers >= 10_000, "{answers} answers to {rate}/s in {seconds} s");
        assert!(*seconds == 2 || answers < 10_000 + rate, "{rate}/s for {seconds} s");
    }
}

fn result(found: search::Found) -> ResultFile {
    result_of(config(), found)
}

fn result_of(config: SearchConfig, found: search::Found) -> ResultFile {
    let header = Header {
        command: ["compare", "search"].map(str::to_owned).to_vec(),
        git: None,
        host: host(),
        started_utc: "2026-11-21T08:05:00Z".to_owned(),
        status: if found.finished { Status::Complete } else { Status::Interrupted },
        config: config.as_run(),
        selftest: None,
    };
    ResultFile::of_search(header, Search { config, cells: found.cells }, None)
}

/// A search of two relays that sustain so much.
pub(crate) fn sustaining(rates: [u32; 2]) -> ResultFile {
    result(found(|cell, rate, _| Some(up_to(rates[cell], rate))))
}

#[test]
fn a_search_is_a_result_that_is_rendered_from_its_file() {
    let found = found(|cell, rate, _| Some(up_to([900, 3_000][cell], rate)));
    let folder = tempfile::tempdir().unwrap();
    result(found.clone()).write(folder.path()).unwrap();
    let read = ResultFile::read(folder.path()).unwrap();
    assert_eq!(read.search.as_ref().unwrap().cells, found.cells);
    let limit = &Derived::from_result(&read).limits[0];
    let (pass, fail) = (limit.last_pass_per_s.unwrap(), limit.first_fail_per_s.unwrap());
    let ((low, high), capacity) = (limit.interval_per_s.unwrap(), limit.capacity_per_s.unwrap());
    let summary = report::summary(&read);
    assert!(summary.contains("# note-stream: the highest rate under p99<10ms, lost=0\n"), "{summary}");
    let row =
        format!("| json+none | {capacity}/s | {low}–{high}/s | {} | the relay: p99<10ms |", limit.probes);
    assert!(summary.contains(&row), "{summary}");
    assert!(summary.contains("## p99 against rate\n\n| cell | p99 ms at 9"), "{summary}");
    let terminal = report::terminal(&read, false);
    assert!(terminal.contains("cbor+none") && terminal.contains("p99 ms at"), "{terminal}");
    let page = report::html(&read).unwrap();
    let says = format!("json+none: p99 1.49 ms at {pass} events/s, the highest that passed</title>");
    assert!(page.contains(&says), "{page}");
    assert!(page.contains(&format!("at {fail} events/s, the lowest that did not</title>")));
}

#[test]
fn a_floor_that_does_not_rise_above_the_cells_is_told() {
    let floored = |floor: u32| {
        let mut found = found(|cell, rate, _| Some(up_to([900, floor][cell], rate)));
        "floor".clone_into(&mut found.cells[1].cell);
        report::summary(&result(found))
    };
    assert!(floored(910).contains("The capacity of the floor, a relay without Nostr work, is"));
    assert!(!floored(3_000).contains("The capacity of the floor"));
}

#[test]
fn what_was_found_before_an_interruption_is_kept_and_called_unfinished() {
    let mut probes = 0;
    let found = found(|cell, rate, _| {
        probes += 1;
        (probes <= 5).then(|| up_to([900, 3_000][cell], rate))
    });
    assert!(!found.finished);
    assert_eq!(found.cells.iter().map(|cell| cell.probes.len()).sum::<usize>(), 5);
    for limit in limits(&found) {
        assert_eq!((limit.end, limit.first_fail_per_s), (End::Unfinished, None));
        assert!(limit.last_pass_per_s.unwrap() >= 200, "{limit:?}");
    }
    let summary = report::summary(&result(found));
    assert!(summary.contains("Incomplete: interrupted") && summary.contains("| not finished |"), "{summary}");
}

/// A relay whose CPU time is proportional to the rate, full at its capacity.
fn busy(capacity: u32, rate_per_s: u32) -> RunRecord {
    let mut record = answered(1_000);
    let (capacity, rate_per_s) = (u64::from(capacity), u64::from(rate_per_s));
    record.relay_cpu.as_mut().unwrap().total_ns = record.elapsed_ns * rate_per_s.min(capacity) / capacity;
    record.elapsed_ns = record.elapsed_ns * rate_per_s.max(capacity) / capacity;
    record
}

#[test]
fn at_the_rate_of_a_comparison_the_weakest_cell_uses_at_most_60_percent_of_its_cores() {
    let mut cells = matrix(&["json+deflate", "cbor+none", "cbor+deflate", "proto+none"]);
    cells.retain(|cell| cell.role != Role::Control);
    for (seed, capacities) in [(1, [4_000, 850, 5_000, 1_000, 3_000]), (2, [300, 850, 5_000, 1_000, 3_000])] {
        let config = SearchConfig { limit_per_s: 100_000, seed, ..config() };
        let relay = |cell: usize, rate, _| Some(busy(capacities[cell], rate));
        let chosen = chosen(&cells, &config, relay).unwrap().unwrap();
        let (at, lowest) = capacities.iter().enumerate().min_by_key(|(_, capacity)| **capacity).unwrap();
        assert_eq!(chosen.weakest, cells[at].id);
        let share = f64::from(chosen.rate_per_s) / f64::from(*lowest);
        assert!((0.5..=0.6).contains(&share), "{share} of {lowest}: {chosen:?}");
        // Every cell is probed, and those that are stronger only once or twice.
        assert!(cells.iter().all(|cell| chosen.probes.iter().any(|(id, _)| *id == cell.id)));
        assert!(chosen.probes.len() < 100, "{}", chosen.probes.len());
    }
}

#[test]
fn a_cell_whose_sessions_take_cpu_time_at_any_rate_gets_a_lower_one() {
    // Half of the core whatever the rate, the other half at 1,000/s: 60 % at 200/s, where 60 % of
    // what is sustained would be 80 % of the core.
    let chosen = chosen(&cells()[..1], &config(), |_, rate, _| Some(busy(2_000, 1_000 + rate)));
    let chosen = chosen.unwrap().unwrap();
    assert!((150..=200).contains(&chosen.rate_per_s), "{chosen:?}");
}

#[test]
fn no_rate_is_chosen_where_a_cell_sustains_none_or_the_user_has_had_enough() {
    let nothing = |_, _, _| Some(busy(1, 1_000));
    let error = chosen(&cells(), &config(), nothing).unwrap_err().to_string();
    assert!(error.contains("keeps no rate") && error.contains("--rates a number"), "{error}");
    assert_eq!(chosen(&cells(), &config(), |_, _, _| None).unwrap(), None);
}
