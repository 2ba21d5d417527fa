//! Searches against relays that are only numbers, and the pilots that search.

use std::time::Duration;

use anyhow::Result;
use cell::Factor;
use codecs::Format;
use compare::{
    CellSpec,
    generator::{Generator, Played, Task},
    pilot,
    search::{self, search},
};
use measure::{Latency, ReasonKind, RunRecord, Slice, Slices, Status, ValidityClass};
use report::{
    Derived, Report, ResultFile,
    bracket::{End, Limit},
    result::{
        AtLoad1, Chosen, Config, Probe, ProbeOutcome, Purpose, Role, Search, SearchConfig, SearchedLinks,
    },
};

use crate::common::{
    Left, PLAIN, Run, Scripted, config as run, header, interrupted, link, matrix, measured, record,
};
use crate::site::data;

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
    let run = Run { latency_us, relay_us_per_event: 200, client_us_per_event: 200, ..PLAIN };
    record("json+none", 1, run)
}

/// A relay that answers within milliseconds up to its limit and much later beyond.
fn up_to(sustains: u32, rate_per_s: u32) -> RunRecord {
    answered(if rate_per_s <= sustains { 1_000 } else { 30_000 })
}

fn config() -> SearchConfig {
    SearchConfig {
        slo: "p99<10ms, lost=0".to_owned(),
        start_per_s: 100,
        limit_per_s: 100_000,
        precision: 0.05,
        curve: true,
        ..SearchConfig::default()
    }
}

/// Probes of two seconds.
fn probes() -> Config {
    Config { scenarios: vec!["note-stream".to_owned()], ..run("search", 1) }
}

fn cells() -> Vec<CellSpec> {
    let mut cells = matrix(&["cbor+none"]);
    cells.remove(1); // the control
    cells
}

fn found(relay: impl FnMut(usize, u32, u32) -> Option<RunRecord>) -> search::Found {
    searched(&cells(), &config(), &relays(&cells(), relay), |_, _| ())
}

fn searched(
    cells: &[CellSpec],
    config: &SearchConfig,
    generator: &dyn Generator,
    mut tell: impl FnMut(&str, &Probe),
) -> search::Found {
    let folder = tempfile::tempdir().unwrap();
    search(cells, (&probes(), config), (generator, folder.path()), &mut |_, cell, probe| tell(cell, probe))
        .unwrap()
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
    let generator = Scripted::new(|task: &Task<'_>| {
        let load = task.cell.cell.load;
        assert_eq!(task.cell.cell.rate_per_s, None, "the scenario's own");
        let mut record = answered(if load <= 7.5 { 1_000 } else { 30_000 });
        record.cell.load = load.to_string();
        record.connections = 16;
        // Half of what was asked for.
        record.counts.deliveries = measure::whole(load * 400.0 * 2.0 / 2.0);
        record.counts.deliveries_expected = record.counts.deliveries;
        measured(record)
    });
    let found = searched(&cells(), &config, &generator, |_, _| ());
    for cell in &found.search.cells {
        let capacity = f64::from(Limit::from_probes(&config, cell).capacity_per_s.unwrap());
        assert!((capacity / (7.5 * 400.0 / 2.0)).ln().abs() < 0.03, "{capacity}");
        assert!(cell.probes.iter().all(|probe| {
            let load = f64::from(probe.rate_per_s) / 400.0;
            probe.played.is_some_and(|played| (played.load - load).abs() < 1e-4)
        }));
    }
    let summary = report::summary(&result_of(config, found));
    assert!(summary.contains("# note-stream: the most deliveries/s under p99<10ms, lost=0\n"), "{summary}");
    let heading = "| 95 % interval | publishes/s | connections | load |";
    assert!(summary.contains(heading) && summary.contains(" | 16 | 7."), "{summary}");
    assert!(summary.contains("deliveries per second, at which note-stream"), "{summary}");
}

fn limits(found: &search::Found) -> Vec<Limit> {
    found.search.cells.iter().map(|cell| Limit::from_probes(&config(), cell)).collect()
}

#[test]
fn each_cell_gets_its_capacity_and_a_curve_below_the_lowest() {
    let (cells, mut order) = (cells(), Vec::new());
    let relays = relays(&cells, |cell, rate, _| Some(up_to([900, 3_000][cell], rate)));
    let found = searched(&cells, &config(), &relays, |cell, _| order.push(cell.to_owned()));
    assert!(found.finished);
    for ((cell, limit), sustains) in found.search.cells.iter().zip(limits(&found)).zip([900.0, 3_000.0]) {
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
    for (cell, limit) in missed.search.cells.iter().zip(limits(&missed)) {
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
        (0..2_000).for_each(|_| lag.record(ms * 1_000_000));
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
            assert!(summary.contains("| json+none | at least "), "{summary}");
        }
    }
    // The last events are sent a tenth of the block late.
    let late = found(|_, rate, _| {
        let record = answered(1_000);
        let more = if rate > 1_000 { record.elapsed_ns / 10 } else { 0 };
        Some(RunRecord { elapsed_ns: record.elapsed_ns + more, ..record })
    });
    let is_generators =
        |limit: Limit| limit.end == End::GeneratorLimit && limit.last_pass_per_s <= Some(1_000);
    assert!(limits(&late).into_iter().all(is_generators), "{:?}", limits(&late));
}

#[test]
fn a_client_that_had_to_be_stopped_is_the_generators_limit_and_is_not_repeated() {
    let failure = || Some("the client did not end within 153 s and was stopped".to_owned());
    // Clients do not get through beyond this rate, and are stopped.
    let clients = Scripted::new(|task| match rate(task) {
        ..=1_000 => measured(answered(1_000)),
        _ => (None, Played { failure: failure(), ..Played::default() }),
    });
    let found = searched(&cells(), &config(), &clients, |_, _| ());
    for cell in &found.search.cells {
        let at_rate = |rate| cell.probes.iter().filter(|probe| probe.rate_per_s == rate).count();
        assert_eq!(at_rate(1_600), 1, "{:?}", cell.probes);
    }
    for limit in limits(&found) {
        assert_eq!((limit.end, limit.capacity_per_s), (End::GeneratorLimit, None));
        assert!(limit.last_pass_per_s.unwrap() > 900, "{limit:?}");
    }
}

#[test]
fn probes_are_equally_long_and_too_few_answers_are_said_at_once() {
    let found = found(|_, rate, seconds| {
        assert_eq!(seconds, 2);
        let mut record = up_to(50, rate);
        let mut response = Latency::new();
        // Ten above p99 are the fewest that state it.
        (0..19 * u64::from(rate))
            .for_each(|_| response.record(if rate <= 50 { 1_000_000 } else { 30_000_000 }));
        record.latency.insert("response".to_owned(), response);
        Some(record)
    });
    for (cell, limit) in found.search.cells.iter().zip(limits(&found)) {
        assert_eq!((limit.end, limit.capacity_per_s, cell.probes.len()), (End::TooFewAnswers, None, 2));
        assert_eq!(cell.probes[1].why, ["950 answers in 2 s are too few for p99<10ms"]);
    }
    let summary = report::summary(&result(found));
    assert!(summary.contains("take a longer --probe-seconds"), "{summary}");
}

#[test]
fn a_relay_that_waits_before_it_answers_is_said_so_with_the_slo_that_it_can_keep() {
    let found = found(|_, _, _| {
        let mut record = answered(68_000);
        record.elapsed_ns += 100_000_000;
        Some(record)
    });
    for (cell, limit) in found.search.cells.iter().zip(limits(&found)) {
        assert_eq!((limit.end, cell.probes.len()), (End::Delayed, 3), "{cell:?}");
        // The ledger is kept where the SLO was missed.
        assert!(cell.probes.iter().all(|probe| probe.counts.is_some_and(|counts| counts.deliveries > 0)));
    }
    let summary = report::summary(&result(found));
    assert!(summary.contains("json+none answers as late at any rate: p99 is 101 ms at 25/s"), "{summary}");
    assert!(summary.contains("--slo 'p99<210ms, lost=0'"), "{summary}");
}

fn result(found: search::Found) -> ResultFile {
    result_of(config(), found)
}

fn result_of(config: SearchConfig, found: search::Found) -> ResultFile {
    let command = ["compare", "search"].map(str::to_owned).to_vec();
    let status = if found.finished { Status::Complete } else { Status::Interrupted };
    let header = header(probes());
    ResultFile { command, status, search: Some(Search { config, cells: found.search.cells }), ..header }
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
    assert_eq!(read.search.as_ref().unwrap().cells, found.search.cells);
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
    let probes = &data(&Report::from_result(&read).html().unwrap())[0]["search"];
    assert_eq!((&probes["x"], &probes["y"]), (&"published events per second".into(), &"p99 ms".into()));
    let first = probes["cells"][0][1].as_array().unwrap();
    assert!(
        first.iter().any(|point| point[0] == f64::from(fail)) && probes["cells"][0][0] == "json+none",
        "{probes}"
    );
    assert!(first.iter().any(|point| point[0] == f64::from(pass)), "{probes}");
}

#[test]
fn what_was_found_before_an_interruption_is_kept_and_called_unfinished() {
    let mut probes = 0;
    let found = found(|cell, rate, _| {
        probes += 1;
        (probes <= 5).then(|| up_to([900, 3_000][cell], rate))
    });
    assert!(!found.finished);
    assert_eq!(found.search.cells.iter().map(|cell| cell.probes.len()).sum::<usize>(), 5);
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

/// What a pilot of the rate chooses for relays that use so much of a core at a rate.
fn chosen_rate(cells: &[CellSpec], used: impl Fn(usize, u32) -> RunRecord) -> Result<Option<Chosen>> {
    let question = pilot::of_rate();
    let probes = pilot::probes("note-stream", &run("quick", 1), &question);
    let generator = relays(cells, |cell, rate, _| Some(used(cell, rate)));
    let folder = tempfile::tempdir().unwrap();
    let chosen = pilot::choose(cells, (&probes, &question), (&generator, folder.path()), &mut |_, _, _| ())?;
    Ok(chosen.and_then(pilot::weakest))
}

#[test]
fn at_the_rate_of_a_comparison_the_weakest_cell_uses_at_most_60_percent_of_its_cores() {
    let mut cells = matrix(&["json+deflate", "cbor+none", "cbor+deflate", "proto+none"]);
    cells.retain(|cell| cell.role != Role::Control);
    for capacities in [[4_000, 850, 5_000, 1_000, 3_000], [300, 850, 5_000, 1_000, 3_000]] {
        let chosen = chosen_rate(&cells, |cell, rate| busy(capacities[cell], rate)).unwrap().unwrap();
        let (at, lowest) = capacities.iter().enumerate().min_by_key(|(_, capacity)| **capacity).unwrap();
        assert_eq!(chosen.cell, cells[at].id);
        let share = f64::from(chosen.rate_per_s.unwrap()) / f64::from(*lowest);
        assert!((0.48..=0.6).contains(&share), "{share} of {lowest}: {chosen:?}");
        assert!(chosen.probes.len() <= 6, "{chosen:?}");
    }
    // Half of the core whatever the rate, the other half at 1,000/s: 60 % at 200/s, where 60 % of
    // what is sustained would be 80 % of the core.
    let chosen = chosen_rate(&cells[..1], |_, rate| busy(2_000, 1_000 + rate)).unwrap().unwrap();
    assert!((120..=200).contains(&chosen.rate_per_s.unwrap()), "{chosen:?}");
    let error = chosen_rate(&cells, |_, _| busy(1, 1_000)).unwrap_err().to_string();
    assert!(error.contains("has no probe with at most 60 % of its cores"), "{error}");
}

#[test]
fn each_cell_gets_the_load_of_its_share_and_a_control_that_of_its_anchor() {
    // 4 % of a core for being there, and so much for each load.
    let used = |id: &str, load: f64| 0.04 + load * if id.starts_with("cbor") { 0.01 } else { 0.08 };
    let mut cells = pilot::at_shares(&matrix(&["cbor+none"]), &[0.07, 0.3, 0.07]);
    let one = AtLoad1 { deliveries_per_s: 4_000.0 };
    let question = pilot::of_share(0.3, one);
    let probes = pilot::probes("note-stream", &run("quick", 1), &question);
    let own: Vec<CellSpec> = (cells.iter())
        .filter(|cell| cell.role != Role::Control && cell.utilisation == Some(0.3))
        .cloned()
        .collect();
    let ids: Vec<&str> = own.iter().map(|cell| cell.id.as_str()).collect();
    assert_eq!(ids, ["json+none+30-percent", "cbor+none+30-percent"]);
    assert!(cells.iter().any(|cell| cell.id == "cbor+none+7-percent"));
    let played = |task: &Task<'_>| {
        let mut record = record("json+none", 1, PLAIN);
        let busy = Duration::from_nanos(record.elapsed_ns).mul_f64(used(&task.cell.id, task.cell.cell.load));
        record.relay_cpu.as_mut().unwrap().total_ns = busy.as_nanos().try_into().unwrap();
        record
    };
    let folder = tempfile::tempdir().unwrap();
    let choose = |generator: &dyn Generator| {
        pilot::choose(&own, (&probes, &question), (generator, folder.path()), &mut |_, _, _| ())
    };
    let chosen = choose(&Scripted::new(|task| measured(played(task)))).unwrap().unwrap();
    for found in &chosen {
        let reached = used(&found.cell, found.load.unwrap());
        assert!((reached / 0.3 - 1.0).abs() <= 0.05 && found.probes.len() <= 4, "{reached}: {found:?}");
        assert!(found.line(None).contains(" for 30.0 % of its relay's cores"), "{}", found.line(None));
    }
    pilot::give(&mut cells, &chosen);
    let load_of = |role: Role| {
        let of = |cell: &&CellSpec| cell.role == role && cell.utilisation == Some(0.3);
        cells.iter().find(of).unwrap().cell.load
    };
    let (anchor, control, cell) = (load_of(Role::Anchor), load_of(Role::Control), load_of(Role::Cell));
    assert!((anchor - control).abs() < 1e-9 && cell > 2.0 * anchor, "{anchor} {control} {cell}");
    let silent = Scripted::new(|task| measured(RunRecord { relay_cpu: None, ..played(task) }));
    let error = choose(&silent).unwrap_err().to_string();
    assert!(
        error.contains("json+none+30-percent") && error.contains("does not tell its CPU time"),
        "{error}"
    );
    assert_eq!(choose(&Scripted::new(|_| interrupted())).unwrap(), None);
}

fn bandwidths() -> SearchConfig {
    SearchConfig {
        slo: String::new(),
        links: Some(SearchedLinks { uplink_share: 0.25, rtts_ns: vec![30_000_000, 150_000_000] }),
        start_per_s: 1_000,
        limit_per_s: 100_000,
        curve: false,
        ..config()
    }
}

/// Users' sessions over a link: JSON needs twice the bytes, CBOR one round trip more, which are
/// `more` ms of the 120 that it saves where it is 150.
fn over_link(task: &Task<'_>, more: f64) -> Left {
    let text = (Factor::Link.row().write)(&task.cell.cell);
    let (down, rest) = text.strip_prefix("down=").unwrap().split_once(':').unwrap();
    let mbit = match down.strip_suffix("mbit") {
        Some(mbit) => mbit.parse().unwrap(),
        None => down.strip_suffix("kbit").unwrap().parse::<f64>().unwrap() / 1e3,
    };
    let rtt_ms: f64 = rest.rsplit_once("rtt=").unwrap().1.strip_suffix("ms").unwrap().parse().unwrap();
    let is_json = task.cell.cell.format == Format::JSON;
    let (mbit_sent, round_trips) = if is_json { (12.0, 4.0) } else { (6.0, 4.0 + more) };
    let seconds = mbit_sent / mbit + round_trips * rtt_ms / 1e3;
    let mut session = Latency::new();
    (0..40).for_each(|_| session.record(Duration::from_secs_f64(seconds).as_nanos().try_into().unwrap()));
    let mut record = record("json+none", 1, PLAIN);
    record.latency.insert("session".to_owned(), session);
    record.link = Some(link(1_000));
    measured(record)
}

/// Even at 6 ÷ (`more` × round trip): of one round trip beyond the highest bandwidth at 30 ms, and
/// at 40 Mbit/s at 150 ms.
pub(crate) fn break_even(more: f64) -> ResultFile {
    let generator = Scripted::new(|task| over_link(task, more));
    result_of(bandwidths(), searched(&cells(), &bandwidths(), &generator, |_, _| ()))
}

#[test]
fn two_cells_break_even_at_a_bandwidth_or_one_is_faster_throughout() {
    let result = break_even(1.0);
    let [near, far] = &Derived::from_result(&result).limits[..] else { panic!("two round trips") };
    assert_eq!((near.end, far.end), (End::RateLimit, End::Slo));
    assert!((f64::from(far.capacity_per_s.unwrap()) / 40e3).ln().abs() < 0.03, "{far:?}");
    let summary = report::summary(&result);
    assert!(summary.contains("# note-stream: break-even bandwidths\n"), "{summary}");
    let near = "| cbor+none ÷ json+none, 30 ms | – | – | ";
    assert!(
        summary.contains(near) && summary.contains("the first is faster up to 100 Mbit/s, by "),
        "{summary}"
    );
    assert!(summary.contains("the first is faster below, the second above, by "), "{summary}");
}

#[test]
fn a_late_emulator_decides_nothing_and_is_named() {
    let generator = Scripted::new(|task| {
        let (record, left) = over_link(task, 1.0);
        let late = |mut record: RunRecord| {
            let late = ReasonKind::LinkLate { ns_p99: 9_000_000, may_be_ns: 1_000_000 };
            record.validity.add(ValidityClass::Invalid, late);
            record
        };
        (record.map(late), left)
    });
    let found = searched(&cells(), &bandwidths(), &generator, |_, _| ());
    let limits: Vec<End> =
        found.search.cells.iter().map(|cell| Limit::from_probes(&bandwidths(), cell).end).collect();
    assert_eq!(limits, [End::Disturbed; 2]);
    let summary = report::summary(&result_of(bandwidths(), found));
    assert!(summary.contains("the host: the emulator of links was late"), "{summary}");
}
