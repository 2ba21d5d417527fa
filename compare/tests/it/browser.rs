//! Pages in a browser that is only numbers.

use std::collections::{BTreeMap, BTreeSet};

use measure::{
    Cell, Counts, CpuTime, FirstEvents, FlowRecord, PageRecord, ReasonKind, RunRecord, TrafficRecord,
    Validity, ValidityClass,
};
use report::{
    Derived, ResultFile, Role, Verdict,
    metric::Metric,
    result::{Block, Browser, CellResult, Config, Foreign},
};

use crate::common::{PLAIN, header, link, record};

const ROUNDS: u32 = 8;
const EVENTS: u64 = 1_000;

/// A block that costs so many nanoseconds an event, with deviations by the round and the place.
fn block(cell: &Cell, ns: u64, round: u32, position: u32) -> Block {
    let ns = ns * (1_000 + u64::from(round) * 50 + u64::from(position % 3) * 2);
    let to_client = FlowRecord { messages: 0, payload_bytes: 1_234 * EVENTS, wire_bytes: 1_234 * EVENTS };
    let record = RunRecord {
        cell: cell.clone(),
        counts: Counts { deliveries_expected: EVENTS, deliveries: EVENTS, ..Counts::default() },
        traffic: TrafficRecord { to_client, ..TrafficRecord::default() },
        client_cpu: CpuTime { total_ns: ns * EVENTS * 11 / 10, user_ns: None, system_ns: None },
        validity: Validity::default(),
        page: Some(PageRecord {
            main_ns: Some(ns * EVENTS),
            wall_ns: 2 * ns * EVENTS,
            first: (cell.scenario != "end-to-end").then_some(FirstEvents { events: 100, ns: 300 * ns }),
            heap_bytes: Some(3_000_000),
            script_gzip_bytes: 1_500,
        }),
        relay: None,
        relay_cpu: None,
        usable_cores: None,
        throughput: None,
        encodings: None,
        first_delivery: None,
        latency: BTreeMap::new(),
        ..record("json+none", 1, PLAIN)
    };
    Block { round, position, exit_code: Some(0), record: Some(record), ..Block::default() }
}

fn cell(load: &str, row: &str, role: Role, ns: u64, places: &[u32]) -> CellResult {
    let cell = Cell {
        scenario: load.to_owned(),
        format: row.split(':').next().unwrap().to_owned(),
        code: row.to_owned(),
        ..cell::Cell::default().recorded()
    };
    let name = if role == Role::Control { "json-control" } else { row };
    let rounds = (0..ROUNDS).flat_map(|round| places.iter().map(move |place| (round, *place)));
    CellResult {
        id: format!("{name}+{load}"),
        role,
        rate_per_s: None,
        utilisation: None,
        blocks: rounds.map(|(round, place)| block(&cell, ns, round, place)).collect(),
        cell,
    }
}

pub(crate) fn result() -> ResultFile {
    let (decode, sockets, beside) = ("decode-mixed", "end-to-end", "in-proportion");
    let mut slow = cell(decode, "msgpack:msgpackr", Role::Cell, 20, &[5]);
    let hidden = slow.blocks[0].record.as_mut().unwrap();
    hidden.validity.add(ValidityClass::Invalid, ReasonKind::PageHidden {});
    let cells = vec![
        cell(decode, "json", Role::Anchor, 10, &[0, 4, 6]),
        cell(decode, "json", Role::Control, 10, &[1]),
        cell(decode, "dannypack:tuned", Role::Cell, 15, &[2]),
        cell(decode, "dannypack:head", Role::Cell, 2, &[3]),
        slow,
        cell(sockets, "json", Role::Anchor, 30, &[7, 10]),
        cell(sockets, "json", Role::Control, 30, &[8]),
        cell(sockets, "dannypack:tuned", Role::Cell, 9, &[9]),
        cell(beside, "json", Role::Anchor, 10, &[11, 14]),
        cell(beside, "json", Role::Control, 10, &[12]),
        cell(beside, "verify:noble", Role::Cell, 1_990, &[13]),
    ];
    let browser = Browser {
        client: "browser".to_owned(),
        product: "Chromium 156.0.8078.79".to_owned(),
        flags: vec!["--headless=new".to_owned()],
        has_to_hex: true,
        clock_ns: 5_000,
        step_ms: 300,
        libraries: BTreeMap::from([("msgpackr".to_owned(), "2.1.3".to_owned())]),
        events: BTreeMap::from([("mixed".to_owned(), EVENTS)]),
    };
    let config = Config {
        scenarios: vec!["decode".to_owned()],
        profile: "browser".to_owned(),
        rounds: ROUNDS,
        seconds: 1,
        seed: 1,
        foreign: Some(Foreign::default()),
        browser: Some(browser),
        ..Config::default()
    };
    let round: Vec<String> = cells.iter().map(|cell| cell.id.clone()).collect();
    let schedule = vec![round; ROUNDS as usize];
    let command = vec!["compare".to_owned(), "browser".to_owned()];
    ResultFile { command, ..header(config) }.with_cells(cells, schedule)
}

fn records(result: &mut ResultFile) -> impl Iterator<Item = &mut RunRecord> {
    result.cells.iter_mut().flat_map(|cell| &mut cell.blocks).filter_map(|block| block.record.as_mut())
}

#[test]
fn each_row_is_divided_by_its_neighbouring_anchors_and_judged() {
    let derived = Derived::from_result(&result());
    let of = |id: &str, metric: Metric| {
        let is_it = |c: &&report::Comparison| c.cell == id && c.metric == metric;
        derived.comparisons.iter().find(is_it).unwrap()
    };
    for (id, metric, ratio, verdict) in [
        ("dannypack:tuned+decode-mixed", Metric::PageMain, 1.5, Verdict::Worse),
        ("dannypack:tuned+decode-mixed", Metric::PageCold, 1.5, Verdict::Worse),
        ("dannypack:head+decode-mixed", Metric::ClientCpu, 0.2, Verdict::Better),
        ("json-control+decode-mixed", Metric::PageMain, 1.0, Verdict::Same),
        ("dannypack:tuned+end-to-end", Metric::PageMain, 0.3, Verdict::Better),
        ("dannypack:tuned+end-to-end", Metric::PageWall, 0.3, Verdict::Better),
        ("verify:noble+in-proportion", Metric::PageMain, 199.0, Verdict::Worse),
    ] {
        let found = of(id, metric);
        assert!((found.ratio / ratio - 1.0).abs() < 0.01, "{id}: {found}");
        assert_eq!((found.verdict, found.rounds), (verdict, ROUNDS), "{id}: {found}");
    }
    // A block that does not count has no part in a ratio.
    assert_eq!(of("msgpack:msgpackr+decode-mixed", Metric::PageMain).rounds, ROUNDS - 1);
    let figures = |id: &str| derived.cells.iter().find(|cell| cell.id == id).unwrap();
    let slow = figures("msgpack:msgpackr+decode-mixed");
    assert_eq!((slow.blocks, slow.usable_blocks), (8, 7));
    assert_eq!(slow.figures[&Metric::WireBytes], 1_234.0);
    // A time that the clock was too coarse for is none, and no zero.
    assert_eq!(figures("json+end-to-end").figures.get(&Metric::PageCold), None);
}

#[test]
fn a_first_step_that_one_block_lacks_is_that_of_the_others() {
    let mut result = result();
    records(&mut result).next().unwrap().page.as_mut().unwrap().first = None;
    let derived = Derived::from_result(&result);
    assert!(derived.cells[0].figures[&Metric::PageCold] > 0.0);
}

/// Asserts what a summary and a terminal say of a result; returns the summary.
fn texts_say(result: &ResultFile, expected: &[&str], others: &[&str]) -> String {
    let texts = [report::summary(result), report::terminal(result, false)];
    for text in &texts {
        for expected in expected {
            assert!(text.contains(expected), "{expected:?} is not in\n{text}");
        }
        for other in others {
            assert!(!text.contains(other), "{other:?} is in\n{text}");
        }
    }
    texts[0].clone()
}

/// What only results with CPU times have columns of.
const OF_CPU: [&str; 3] = ["main µs/event", "client µs/event", "heap MB"];

fn metrics(result: &ResultFile) -> BTreeSet<&'static str> {
    Derived::from_result(result).comparisons.iter().map(|c| c.metric.short()).collect()
}

#[test]
fn summary_page_and_terminal_say_what_was_found_and_of_which_browser() {
    let expected = [
        "Chromium 156.0.8078.79",
        "decode-mixed",
        "in-proportion",
        "dannypack:tuned",
        "1.50",
        "120 blocks",
        "main µs/event",
        // Bytes of an event.
        "1,234",
    ];
    let summary = texts_say(&result(), &expected, &["IP B/event", "relay µs/event"]);
    for said in
        ["msgpackr 2.1.3", "1 left out", "round 1, msgpack:msgpackr+decode-mixed: the page was hidden"]
    {
        assert!(summary.contains(said), "{said:?} is not in\n{summary}");
    }
    assert!(report::Report::from_result(&result()).html().unwrap().contains("dannypack:tuned"));
}

#[test]
fn over_a_link_reports_have_times_and_bytes_and_no_cpu() {
    let mut result = result();
    result.cells.retain(|cell| cell.cell.scenario == "end-to-end");
    for cell in &mut result.cells {
        cell.cell.link = "slow-4g".to_owned();
    }
    for record in records(&mut result) {
        record.cell.link = "slow-4g".to_owned();
        record.link = Some(link(EVENTS * 500));
    }
    assert_eq!(metrics(&result), BTreeSet::from(["IP bytes", "wall time"]));
    let summary = texts_say(&result, &["over slow-4g", "wall µs/event", "IP B/event"], &OF_CPU[..2]);
    assert!(summary.contains("down 1.6mbit"), "{summary}");
    let reasons = report::unlike(&result, &self::result());
    assert!(reasons.iter().any(|reason| reason.contains("slow-4g")), "{reasons:?}");
}

#[test]
fn a_result_is_read_back_and_compares_with_its_like_alone() {
    let folder = tempfile::tempdir().unwrap();
    let before = result();
    before.write(folder.path()).unwrap();
    assert_eq!(ResultFile::read(folder.path()).unwrap(), before);
    assert_eq!(report::unlike(&before, &before), Vec::<String>::new());
    assert!(!report::diff(&before, &before).any(Verdict::Worse));
    let mut other = before.clone();
    other.config.browser.as_mut().unwrap().product = "Chromium 157.0.0.0".to_owned();
    let reasons = report::unlike(&before, &other);
    assert!(reasons.len() == 1 && reasons[0].contains("Chromium 157.0.0.0"), "{reasons:?}");
}
