//! Pages in a browser that is only numbers.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use measure::{CorpusRecord, Status};
use report::{
    Derived, Header, ResultFile, Role, Verdict,
    metric::Metric,
    result::{
        Browser, BrowserBlock, BrowserCell, BrowserConfig, BrowserSoftware, BrowserStep, DEVICE, EventSet,
        Part,
    },
};

use crate::common::host;

const ROUNDS: u32 = 8;

/// A cell that costs so many nanoseconds an event, with deviations by the round and the place.
fn cell(part: Part, row: &str, role: Role, ns: u64, places: &[u32]) -> BrowserCell {
    let block = |round: u32, position: u32| {
        let drift = 1_000 + u64::from(round) * 50 + u64::from(position % 3) * 2;
        let main_ns = ns * drift;
        let warm = BrowserStep {
            events: 1_000,
            messages: 0,
            main_ns,
            renderer_ns: main_ns * 11 / 10,
            network_ns: main_ns / 10,
            wall_ns: main_ns * 2,
            inside_ns: main_ns,
        };
        let cold = BrowserStep { events: 100, ..warm.clone() };
        BrowserBlock {
            round,
            position,
            started_after_ns: 0,
            process_ns: 1,
            cold: (part != Part::EndToEnd).then_some(cold),
            warm: Some(warm),
            heap_bytes: Some(3_000_000),
            link_bytes: None,
            peak_bytes: Some(90_000_000),
            why: Vec::new(),
        }
    };
    BrowserCell {
        id: format!("{row}-of-{part:?}:{}", if role == Role::Control { "json-control" } else { row }),
        part,
        events: "mixed".to_owned(),
        role,
        row: row.to_owned(),
        format: row.split(':').next().unwrap().to_owned(),
        implementation: "library".to_owned(),
        library: None,
        hex: "native".to_owned(),
        compression: "none".to_owned(),
        batched: part == Part::EndToEnd && role == Role::Cell,
        input_bytes: (part == Part::Decode).then_some(1_234_000),
        script_bytes: 4_000,
        script_gzip_bytes: 1_500,
        blocks: (0..ROUNDS).flat_map(|round| places.iter().map(move |place| block(round, *place))).collect(),
    }
}

pub(crate) fn result() -> ResultFile {
    let decode = |row, role, ns, places: &[u32]| cell(Part::Decode, row, role, ns, places);
    let socket = |row, role, ns, places: &[u32]| cell(Part::EndToEnd, row, role, ns, places);
    let beside = |row, role, ns, places: &[u32]| cell(Part::InProportion, row, role, ns, places);
    let mut slow = decode("msgpack:msgpackr", Role::Cell, 20, &[5]);
    slow.blocks[0].why.push("the kernel counted 3.0 ms of the main thread and the browser 2.0".to_owned());
    let cells = vec![
        decode("json", Role::Anchor, 10, &[0, 4, 6]),
        decode("json", Role::Control, 10, &[1]),
        decode("dannypack:tuned", Role::Cell, 15, &[2]),
        decode("dannypack:head", Role::Cell, 2, &[3]),
        slow,
        socket("json", Role::Anchor, 30, &[7, 10]),
        socket("json", Role::Control, 30, &[8]),
        socket("dannypack:tuned", Role::Cell, 9, &[9]),
        beside("json", Role::Anchor, 10, &[11, 14]),
        beside("json", Role::Control, 10, &[12]),
        beside("verify:noble", Role::Cell, 1_990, &[13]),
    ];
    let config = BrowserConfig {
        parts: vec![Part::Decode, Part::EndToEnd, Part::InProportion],
        formats: vec!["dannypack".to_owned(), "msgpack".to_owned()],
        rounds: ROUNDS,
        step_ms: 300,
        seed: 1,
        corpus: None,
        skip_invalid: false,
        link: None,
    };
    let software = BrowserSoftware {
        client: "browser".to_owned(),
        product: "Chrome/156.0.8078.79".to_owned(),
        v8: "15.6.1".to_owned(),
        user_agent: "Mozilla/5.0".to_owned(),
        flags: vec!["--headless".to_owned()],
        sandbox: true,
        has_to_hex: true,
        clock_ns: Some(5_000),
    };
    let events =
        vec![EventSet { name: "mixed".to_owned(), events: 1_000, json_bytes: 1_800_000, set_aside: 0 }];
    let libraries = BTreeMap::from([("msgpackr".to_owned(), "2.1.3".to_owned())]);
    let ids = cells.iter().map(|cell| cell.id.clone()).collect();
    let header = Header {
        command: vec!["compare".to_owned(), "browser".to_owned()],
        git: None,
        host: host(),
        started_utc: "2026-11-22T10:00:00Z".to_owned(),
        status: Status::Complete,
        config: config.as_run(),
        selftest: None,
    };
    let corpus = CorpusRecord {
        name: "sample.pb.gz".to_owned(),
        sha256: "00".repeat(32),
        events: 5_000,
        invalid_skipped: 0,
        origin: "generated".to_owned(),
        kinds: BTreeMap::new(),
    };
    let found = Browser { config, software, libraries, events, cells, not_measured: Vec::new() };
    ResultFile::of_browser(header, found, vec![ids], corpus)
}

/// The same of a device, which has wall times alone.
pub(crate) fn of_device() -> ResultFile {
    let mut result = result();
    let browser = result.browser.as_mut().unwrap();
    browser.software = BrowserSoftware {
        client: DEVICE.to_owned(),
        product: "A Phone/1.0".to_owned(),
        v8: "unknown".to_owned(),
        user_agent: "A Phone/1.0".to_owned(),
        flags: Vec::new(),
        sandbox: false,
        has_to_hex: true,
        clock_ns: Some(100_000),
    };
    browser.not_measured = vec!["live, for the device found no connection".to_owned()];
    for block in browser.cells.iter_mut().flat_map(|cell| &mut cell.blocks) {
        (block.heap_bytes, block.peak_bytes) = (None, None);
        for step in [&mut block.cold, &mut block.warm].into_iter().flatten() {
            *step = BrowserStep {
                events: step.events,
                messages: step.messages,
                wall_ns: step.wall_ns,
                ..BrowserStep::default()
            };
        }
    }
    result
}

#[test]
fn each_row_is_divided_by_its_neighbouring_anchors_and_judged() {
    let derived = Derived::from_result(&result());
    let of = |row: &str, metric: Metric| {
        let is_it = |c: &&report::Comparison| c.cell.ends_with(row) && c.metric == metric;
        derived.comparisons.iter().find(is_it).unwrap()
    };
    for (row, metric, ratio, verdict) in [
        ("Decode:dannypack:tuned", Metric::PageMain, 1.5, Verdict::Worse),
        ("Decode:dannypack:tuned", Metric::PageCold, 1.5, Verdict::Worse),
        ("Decode:dannypack:head", Metric::PageRenderer, 0.2, Verdict::Better),
        ("Decode:json-control", Metric::PageMain, 1.0, Verdict::Same),
        ("EndToEnd:dannypack:tuned", Metric::PageAndNetwork, 0.3, Verdict::Better),
        ("EndToEnd:dannypack:tuned", Metric::PageWall, 0.3, Verdict::Better),
        ("InProportion:verify:noble", Metric::PageMain, 199.0, Verdict::Worse),
    ] {
        let found = of(row, metric);
        assert!((found.ratio / ratio - 1.0).abs() < 0.01, "{row}: {found}");
        assert_eq!((found.verdict, found.rounds), (verdict, ROUNDS), "{row}: {found}");
    }
    // A block that does not count has no part in a ratio.
    assert_eq!(of("Decode:msgpack:msgpackr", Metric::PageMain).rounds, ROUNDS - 1);
    let figures = derived.pages.iter().find(|page| page.id.ends_with("Decode:msgpack:msgpackr")).unwrap();
    assert_eq!((figures.blocks, figures.usable_blocks), (8, 7));
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

/// What only results with CPU times say.
const OF_CPU: [&str; 4] = ["main µs/event", "heap MB", "CPU of the main thread", "kernel's clocks"];

fn metrics(result: &ResultFile) -> BTreeSet<&'static str> {
    Derived::from_result(result).comparisons.iter().map(|c| c.metric.short()).collect()
}

#[test]
fn summary_page_and_terminal_say_what_was_found_and_of_which_browser() {
    let expected = [
        "Chrome/156.0.8078.79",
        "Decoding, mixed events",
        "REQ to EOSE over a WebSocket, mixed events",
        " % of decoding and verify:noble.",
        "dannypack:tuned",
        "×1.50",
        "120 blocks",
        // Of 1,000 events.
        "1,234",
    ];
    let summary = texts_say(&result(), &expected, &["packet B/event"]);
    for said in
        ["msgpackr 2.1.3", "1 left out", "round 1, msgpack:msgpackr-of-Decode:msgpack:msgpackr: the kernel"]
    {
        assert!(summary.contains(said), "{said:?} is not in\n{summary}");
    }
}

#[test]
fn a_device_has_wall_times_alone_and_the_report_says_why() {
    let result = of_device();
    assert_eq!(metrics(&result), BTreeSet::from(["first 100, wall time", "wall time"]));
    let expected = [
        "Pages on a device, wall clock only (A Phone/1.0)",
        "Not measured: live, for the device found no connection.",
        "Wall time against JSON.parse",
        "wall µs/event",
    ];
    let summary = texts_say(&result, &expected, &OF_CPU);
    assert!(summary.contains("in steps of 100 µs") && summary.contains("a page cannot read CPU time"));
    assert!(!report::unlike(&result, &self::result()).is_empty());
}

#[test]
fn over_a_link_reports_have_times_and_bytes_and_no_cpu() {
    let mut result = result();
    let browser = result.browser.as_mut().unwrap();
    browser.config.link = Some("slow-4g (down 1.6mbit)".to_owned());
    browser.cells.retain(|cell| cell.part == Part::EndToEnd);
    for block in browser.cells.iter_mut().flat_map(|cell| &mut cell.blocks) {
        let events = block.warm.as_ref().unwrap().events;
        block.link_bytes = Some(2_345 * events);
    }
    assert_eq!(metrics(&result), BTreeSet::from(["wall time"]));
    let expected =
        ["one REQ each over an emulated link, slow-4g (down", "wall µs/event", "packet B/event", "2,345"];
    texts_say(&result, &expected, &OF_CPU);
    let reasons = report::unlike(&result, &self::result());
    assert!(reasons.iter().any(|reason| reason.contains("over slow-4g")), "{reasons:?}");
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
    other.browser.as_mut().unwrap().software.product = "Chrome/157.0.0.0".to_owned();
    let reasons = report::unlike(&before, &other);
    assert!(reasons.len() == 1 && reasons[0].contains("Chrome/157.0.0.0"), "{reasons:?}");
    // Blocks beyond the rounds would cost the statistics the cube of their number.
    let text = fs::read_to_string(folder.path().join(report::RESULT_FILE)).unwrap();
    let text = text.replace("\"round\": 7", "\"round\": 4000000000");
    fs::write(folder.path().join(report::RESULT_FILE), text).unwrap();
    assert!(ResultFile::read(folder.path()).unwrap_err().to_string().contains("beyond its rounds"));
}
