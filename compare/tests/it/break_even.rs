//! The search for break-even bandwidths over links that are only numbers.

use std::{fs, time::Duration};

use cell::Factor;
use codecs::Format;
use compare::{
    CellSpec,
    bandwidths::Grid,
    generator::{Played, Task},
    progress::Progress,
    run::{self, Request},
};
use measure::{Latency, ReasonKind, RunRecord, Status, ValidityClass};
use report::{
    Block, Derived, Header, ResultFile, Role,
    crossing::versus,
    result::{BreakEven, BreakEvenConfig},
};

use crate::common::{PLAIN, Scripted, host, link, matrix, record};

fn config() -> BreakEvenConfig {
    BreakEvenConfig {
        scenario: "home-feed-cold-start".to_owned(),
        down_bits_per_s: [1, 5, 25, 100].map(|mbit| mbit * 1_000_000).to_vec(),
        uplink_share: 0.25,
        rtts_ns: vec![30_000_000, 150_000_000],
        rounds: 9,
        seconds: 5,
        seed: 1,
        corpus: None,
        client_args: vec!["--workers".to_owned(), "1".to_owned()],
    }
}

/// json+none and cbor+none.
fn cells() -> Vec<CellSpec> {
    let mut cells = matrix(&["cbor+none"]);
    cells.retain(|cell| cell.role != Role::Control);
    cells
}

/// A user's session: bytes of either format, and a second round trip of the smaller one.
fn session_ms(format: &str, down_mbit: f64, rtt_ms: f64) -> f64 {
    let (mbit, round_trips) = if format == "json" { (12.0, 4.0) } else { (6.0, 5.0) };
    1_000.0 * mbit / down_mbit + round_trips * rtt_ms
}

fn link_text(cell: &CellSpec) -> String {
    (Factor::Link.row().write)(&cell.cell)
}

/// A block of this cell over this link; times deviate by the round and the place.
fn measured(cell: &CellSpec, round: u32, place: usize) -> Block {
    let is_json = cell.cell.format == Format::JSON;
    let link_of = link_text(cell);
    let (down, rest) = link_of.strip_prefix("down=").unwrap().split_once(':').unwrap();
    let mbit = match down.strip_suffix("mbit") {
        Some(mbit) => mbit.parse().unwrap(),
        None => down.strip_suffix("kbit").unwrap().parse::<f64>().unwrap() / 1e3,
    };
    let rtt_ms: f64 = rest.rsplit_once("rtt=").unwrap().1.strip_suffix("ms").unwrap().parse().unwrap();
    let deviation = 1.0 + 0.001 * f64::from(round) + 0.0005 * f64::from(u32::try_from(place % 3).unwrap());
    let mut session = Latency::new();
    let ms = session_ms(cell.cell.format.name(), mbit, rtt_ms) * deviation;
    (0..40).for_each(|_| session.record(Duration::from_secs_f64(ms / 1e3).as_nanos().try_into().unwrap()));
    let mut record = record(if is_json { "json+none" } else { "cbor+none" }, 1, PLAIN);
    record.latency.insert("session".to_owned(), session);
    record.connections = 20;
    record.link = Some(link(20 * if is_json { 1_500_000 } else { 750_000 }));
    block(round, Some(record))
}

fn block(round: u32, record: Option<RunRecord>) -> Block {
    Block {
        round,
        position: 0,
        seed: 1,
        started_after_ns: 0,
        process_ns: 8_000_000_000,
        exit_code: Some(0),
        failure: record.is_none().then(|| "it wrote:\nno namespaces".to_owned()),
        interrupted: false,
        record,
    }
}

fn found(mut change: impl FnMut(&CellSpec, &mut Block)) -> BreakEven {
    let (config, cells) = (config(), cells());
    let grid = Grid::new(&config, &cells).unwrap();
    let mut blocks = Vec::new();
    for (round, order) in (0..).zip(&grid.plan().rounds) {
        for place in order {
            let mut block = measured(&grid.blocks[*place], round, *place);
            change(&grid.blocks[*place], &mut block);
            blocks.push((*place, block));
        }
    }
    grid.found(&blocks)
}

fn result_of(found: BreakEven) -> ResultFile {
    let header = Header {
        command: ["compare", "search", "--metric", "break-even-bandwidth"].map(str::to_owned).to_vec(),
        git: None,
        host: host(),
        started_utc: "2026-11-22T20:00:00Z".to_owned(),
        status: Status::Complete,
        config: found.config.as_run(),
        selftest: None,
    };
    ResultFile::of_break_even(header, found, None)
}

/// JSON needs twice the bytes, CBOR one round trip more: at 30 ms they are even at 200 Mbit/s,
/// beyond the grid, and at 150 ms at 40 Mbit/s.
pub(crate) fn result() -> ResultFile {
    result_of(found(|_, _| ()))
}

/// The same, but CBOR takes so many times as long.
pub(crate) fn slower(times: f64) -> ResultFile {
    result_of(found(|cell, block| {
        let session = block.record.as_mut().unwrap().latency.get_mut("session").unwrap();
        if cell.cell.format != Format::JSON {
            let seconds = session.quantile_ns(0.5).ns().unwrap() as f64 * times / 1e9;
            let ns = Duration::from_secs_f64(seconds).as_nanos().try_into().unwrap();
            *session = Latency::new();
            (0..40).for_each(|_| session.record(ns));
        }
    }))
}

#[test]
fn every_cell_meets_every_link_once_a_round_beside_the_others() {
    let (config, cells) = (config(), cells());
    let grid = Grid::new(&config, &cells).unwrap();
    let links: Vec<String> = grid.blocks.iter().map(link_text).collect();
    assert_eq!(links.len(), 2 * 4 * 2);
    assert_eq!(links[0], "down=1mbit:up=250kbit:rtt=30ms");
    assert_eq!(links[15], "down=100mbit:up=25mbit:rtt=150ms");
    assert_eq!(grid.blocks[15].id, "cbor+none+down=100mbit:up=25mbit:rtt=150ms");
    let plan = grid.plan();
    assert_eq!((plan.rounds.len(), plan.blocks()), (9, 9 * 16));
    let mut json_first = 0;
    for order in &plan.rounds {
        let mut places = order.clone();
        places.sort_unstable();
        assert_eq!(places, (0..16).collect::<Vec<_>>());
        for pair in order.chunks(2) {
            assert_eq!(pair[0] / 2, pair[1] / 2, "cells of one link run one after another");
            json_first += usize::from(pair[0] < pair[1]);
        }
    }
    assert!((18..54).contains(&json_first), "{json_first} of 72");
    assert_ne!(plan.rounds[0], plan.rounds[1]);
    assert_eq!(plan, grid.plan());
    let slow = BreakEvenConfig { down_bits_per_s: vec![2_000, 1_000_000], ..config };
    assert!(Grid::new(&slow, &cells).unwrap_err().contains("out of range"), "an uplink of 500 bit/s");
}

#[test]
fn sentences_say_where_it_is_even_and_where_nowhere() {
    let result = result();
    let text = report::summary(&result);
    assert!(
        text.contains("- 30 ms, cbor+none against json+none: no break-even between 1 Mbit/s and 100 Mbit/s: cbor+none is faster throughout, by 12 to 49 %"),
        "{text}"
    );
    assert!(text.contains("- 150 ms, cbor+none against json+none: break-even at "), "{text}");
    assert!(
        text.contains("(between 25 Mbit/s and 100 Mbit/s): cbor+none is faster below it, json+none above"),
        "{text}"
    );
    assert!(text.contains("144 blocks of 5 s in 9 rounds, 0 left out."), "{text}");
    assert!(text.contains("each uplink 25 % of its downlink"), "{text}");
    assert!(report::terminal(&result, false).contains("\nsession p50 in ms by downlink in Mbit/s\n"));
    let derived = Derived::from_result(&result);
    let [_, far] = derived.break_even.as_slice() else { panic!("{:?}", derived.break_even) };
    let at = far.crossings[0].bits_per_s.unwrap();
    let (low, high) = far.crossings[0].interval_bits_per_s.unwrap();
    assert!((at / 40e6).ln().abs() < 0.03 && low <= 40e6 && 40e6 <= high, "{at} [{low}, {high}]");
}

#[test]
fn what_is_undecided_is_said_so() {
    // Above 5 Mbit/s cells take the same time but for chance, at the short round trip.
    let mut turn = 0;
    let same = found(|cell, block| {
        let link = link_text(cell);
        if link.ends_with("rtt=30ms") && !link.starts_with("down=1mbit") && !link.starts_with("down=5mbit") {
            turn += 1;
            let mut session = Latency::new();
            (0..40).for_each(|_| session.record(500_000_000 + 1_000_000 * (turn * 7 % 10)));
            block.record.as_mut().unwrap().latency.insert("session".to_owned(), session);
        }
    });
    let text = report::summary(&result_of(same));
    let finding = text.lines().find(|line| line.contains("- 30 ms")).unwrap();
    assert!(
        finding.contains("cbor+none is faster from 1 Mbit/s to 5 Mbit/s")
            && finding.contains("undecided from 25 Mbit/s up (differences of at most "),
        "{finding}"
    );
    let few = found(|_, block| {
        if block.round > 4 {
            block.record = None;
        }
    });
    let text = report::summary(&result_of(few));
    assert!(text.contains("no bandwidth has six rounds in which both count"), "{text}");
}

#[test]
fn a_late_emulator_decides_nothing_and_is_named() {
    let late = found(|cell, block| {
        if link_text(cell).starts_with("down=100mbit") {
            let record = block.record.as_mut().unwrap();
            let late = ReasonKind::LinkLate { ns_p99: 9_000_000, may_be_ns: 1_000_000 };
            record.validity.add(ValidityClass::Invalid, late);
            let link = record.link.as_mut().unwrap();
            (0..2_000).for_each(|_| link.lateness.record(9_000_000));
        }
    });
    let blocks = || late.cells.iter().flat_map(|cell| &cell.blocks);
    assert!(blocks().all(|block| (block.down_bits_per_s < 100_000_000) == block.time_ns_p50.is_some()));
    let text = report::summary(&result_of(late.clone()));
    assert!(text.contains("The emulator was late in 36 blocks, from 100 Mbit/s up"), "{text}");
    assert!(text.contains("## Blocks left out") && text.contains("- and 16 more, see result.json"), "{text}");
    assert!(text.contains("undecided from 100 Mbit/s up"), "{text}");
}

#[test]
fn the_result_is_read_back_with_its_picture_and_its_page() {
    let folder = tempfile::tempdir().unwrap();
    let result = result();
    result.write(folder.path()).unwrap();
    assert_eq!(ResultFile::read(folder.path()).unwrap(), result);
    report::write_pictures(&result, folder.path()).unwrap();
    let svg = fs::read_to_string(folder.path().join("time-against-bandwidth.svg")).unwrap();
    // A line for each cell and round trip, a point for each bandwidth, a ring and its interval.
    assert_eq!(svg.matches("<polyline ").count(), 4);
    assert_eq!(svg.matches(" r=\"3.5\"").count(), 16);
    assert_eq!(svg.matches("take equally long at ").count(), 1, "{svg}");
    assert!(svg.contains("prefers-color-scheme:dark") && svg.ends_with("</svg>\n"));
    assert!(svg.contains("json+none: 12,1") && svg.contains("at 1 Mbit/s and 30 ms round trip"), "{svg}");
    let page = report::html(&result).unwrap();
    assert!(page.contains("class=\"picture\"") && page.contains("<h2>Break-even bandwidths</h2>"));
    assert!(report::summary(&result).contains("](time-against-bandwidth.svg)"));
    // An incomplete result has no picture beside it.
    let status = Status::Interrupted;
    let interrupted = ResultFile { status, ..result };
    assert!(!report::summary(&interrupted).contains(".svg"));
}

#[test]
fn a_planted_break_even_is_found_by_playing_the_grid() {
    let (config, cells, folder) = (config(), cells(), tempfile::tempdir().unwrap());
    let grid = Grid::new(&config, &cells).unwrap();
    let (plan, as_run) = (grid.plan(), config.as_run());
    let place = |task: &Task<'_>| grid.blocks.iter().position(|cell| cell.id == task.cell.id).unwrap();
    let generator = Scripted::new(|task| {
        let block = measured(task.cell, task.round, place(task));
        (block.record, Played { exit_code: Some(0), ..Played::default() })
    });
    let request = Request {
        generator: &generator,
        config: &as_run,
        cells: &grid.blocks,
        plan: &plan,
        folder: folder.path(),
        keep: None,
    };
    let mut progress = Progress::new(plan.blocks(), Duration::from_secs(1), true);
    let outcome = run::run_until_signal(&request, &mut progress).unwrap();
    assert_eq!((outcome.status, outcome.blocks.len()), (Status::Complete, 9 * 2 * 4 * 2));
    let found = versus(&grid.found(&outcome.blocks));
    let [near, far] = found.as_slice() else { panic!("{found:?}") };
    assert!(near.crossings.is_empty(), "at 30 ms it is beyond the grid: {near:?}");
    let [crossing] = far.crossings.as_slice() else { panic!("{far:?}") };
    assert!((crossing.bits_per_s.unwrap() / 40e6).ln().abs() < 0.03, "{crossing:?}");
}
