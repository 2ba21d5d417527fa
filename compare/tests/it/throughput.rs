//! The first table of a run at the limit, from blocks that a script plays to its text, Markdown and
//! CSV.

use cell::{Factor, Saturate};
use compare::{CellSpec, Matrix, cells, generator::Task};
use measure::{Full, RunRecord, Saturated};
use report::{Report, ResultFile, Role};

use crate::common::{self, Left, PLAIN, Run, Scripted, config, interrupted, measured, record};

const ROUNDS: u32 = 3;

/// JSON and packed CBOR with and without deflate, at the limit of the relay and of the clients.
fn at_the_limit() -> Vec<CellSpec> {
    let matrix = Matrix::default()
        .with(Factor::Saturate, ["relay", "clients"])
        .with(Factor::Format, ["json", "cbor-packed"])
        .with(Factor::Compression, ["none", "deflate"]);
    let mut cells = cells(&matrix).unwrap();
    cells.retain(|cell| cell.role != Role::Floor);
    cells
}

/// Costs that drift from round to round, alike for all; CBOR takes 0.8 of JSON's CPU and 0.6 of its
/// bytes, deflate fifty times the relay's CPU. The relay that deflates is never full.
pub(crate) fn block(task: &Task<'_>) -> RunRecord {
    let cell = &task.cell.cell;
    let (is_cbor, is_deflated) = (cell.format.name() == "cbor-packed", cell.compression.label() == "deflate");
    let cpu = u64::from(100 + 10 * task.round) * if is_cbor { 4 } else { 5 } / 10;
    let run = Run {
        wire_bytes_per_event: if is_cbor { 540 } else { 900 } / if is_deflated { 3 } else { 1 },
        relay_us_per_event: cpu * if is_deflated { 50 } else { 1 },
        client_us_per_event: cpu,
        ..PLAIN
    };
    let mut record = record("json+none", 1, run);
    let asked = cell.saturate.unwrap();
    let full = match asked {
        Saturate::Relay if is_deflated && is_cbor => Full::Neither,
        Saturate::Relay => Full::Relay,
        Saturate::Clients => Full::Clients,
    };
    if asked == Saturate::Relay {
        record.counts.deliveries_unread = record.counts.deliveries / 2;
    }
    record.saturated = Some(Saturated {
        asked: asked.name().to_owned(),
        full,
        relay_utilisation: Some(0.95),
        relay_fullest_thread: None,
        client_utilisation: 0.95,
    });
    record
}

/// What a script leaves of the plan, as a result.
pub(crate) fn played(script: impl FnMut(&Task<'_>) -> Left) -> ResultFile {
    let folder = tempfile::tempdir().unwrap();
    let (generator, cells, config) = (Scripted::new(script), at_the_limit(), config("quick", ROUNDS));
    common::play(folder.path(), &generator, &cells, config, None, None).unwrap().result
}

/// The lines of a text that begin with a format.
pub(crate) fn rows(text: &str) -> Vec<Vec<String>> {
    let is_row = |line: &&str| line.starts_with("json ") || line.starts_with("cbor-packed ");
    let fields = |line: &str| {
        let fields = line.split("  ").map(str::trim).filter(|field| !field.is_empty());
        fields.map(str::to_owned).collect()
    };
    text.lines().filter(is_row).map(fields).collect()
}

#[test]
fn the_first_screen_is_what_a_core_sends_in_bytes_and_reads() {
    let result = played(|task| measured(block(task)));
    let text = report::terminal_of(&result, false, Some(80));
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    // 4,000 envelopes a block at 50, 55 and 60 µs: 18.2k, each ratio the quotient of two figures.
    let expected = [
        ["json", "18.2k", "364 ×0.02±.00"],
        ["cbor-packed", "22.7k ×1.25±.00", "≥455"],
        ["json", "900", "300 ×0.33±.00"],
        ["cbor-packed", "540 ×0.60±.00", "180 ×0.20±.00"],
        ["json", "18.2k", "18.2k ×1.00±.00"],
        ["cbor-packed", "22.7k ×1.25±.00", "22.7k ×1.25±.00"],
    ];
    assert_eq!(rows(&text), expected, "{text}");
    let folded = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for said in [
        "mixed-day envelopes/s that one relay core sends (× JSON without compression, ± is its 95 % interval)",
        "≥ is a lower bound and no throughput: the relay had CPU time to spare",
        "A/A control, JSON against itself: envelopes/s that one relay core sends ×1.00±.00",
        "Per relay core, cbor-packed sends 1.25 times as many envelopes as JSON, in 0.60 of the bytes; JSON with \
         deflate 1/50 as many as JSON alone, in 0.33 of the bytes.",
    ] {
        assert!(folded.contains(said), "{said}\n{text}");
    }
    assert!(!text.contains("Light readers") && !text.contains("every verdict is inconclusive"), "{text}");
    // What else was measured follows.
    let wide = report::terminal(&result, true);
    assert!(wide.starts_with(text.lines().next().unwrap()) && wide.contains("relay µs/event"), "{wide}");
}

#[test]
fn csv_has_the_numbers_of_the_table_and_markdown_its_fields() {
    let result = played(|task| measured(block(task)));
    let shown: Vec<String> =
        rows(&report::terminal(&result, false)).into_iter().flat_map(|row| row[1..].to_vec()).collect();
    let csv = Report::from_result(&result).csv().unwrap();
    let mut lines = csv.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let headings = lines.next().unwrap();
    let column = |name: &str| headings.iter().position(|heading| *heading == name).unwrap();
    let lines: Vec<_> = lines.collect();
    assert_eq!(lines.len(), shown.len());
    for line in &lines {
        let number = |name: &str| line[column(name)].parse::<f64>().unwrap();
        // Envelopes = envelopes per core-second × core-seconds.
        assert!((number("value") * number("by") / number("divided") - 1.0).abs() < 1e-9, "{line:?}");
        if !line[column("ratio")].is_empty() {
            let json = lines.iter().find(|other| {
                let same = other[column("quantity")] == line[column("quantity")];
                same && other[column("format")] == "json" && other[column("compression")] == "none"
            });
            let json: f64 = json.unwrap()[column("value")].parse().unwrap();
            assert!((number("value") / json - number("ratio")).abs() < 1e-9, "{line:?}");
            assert!(number("ratio_low") <= number("ratio") && number("ratio") <= number("ratio_high"));
        }
    }
    let summary = report::summary(&result);
    assert!(summary.find("one relay core sends").unwrap() < summary.find("relay µs/event").unwrap());
    for field in shown {
        assert!(summary.contains(&format!("| {field} |")), "{field}\n{summary}");
    }
    // Its own pace has no such table.
    let paced = common::result("quick", 1, &["json+none"], |id, _, _| record(id, 1, PLAIN));
    assert_eq!(Report::from_result(&paced).csv(), None);
}

#[test]
fn a_row_says_in_words_what_stands_behind_the_gateway() {
    let mut result = played(|task| measured(block(task)));
    for cell in result.cells.iter_mut().filter(|cell| cell.cell.format == "cbor-packed") {
        cell.cell.via = "gateway".to_owned();
    }
    let csv = Report::from_result(&result).csv().unwrap();
    let named = |name: &str| csv.lines().filter(|line| line.contains(name)).count();
    assert!(named("\"cbor-packed, behind the gateway\"") > 0 && named(",json,none,") > 0, "{csv}");
}

#[test]
fn ctrl_c_keeps_the_table_so_far() {
    let mut number = 0;
    let result = played(|task| {
        number += 1;
        if number <= 6 { measured(block(task)) } else { interrupted() }
    });
    let text = report::terminal(&result, false);
    assert!(text.contains("Incomplete: interrupted"), "{text}");
    // All of one load, in one round: without intervals, and nothing of the other load.
    let one_load = rows(&text);
    assert!(matches!(one_load.len(), 2 | 4), "{text}");
    assert!(one_load.iter().any(|row| row[0] == "cbor-packed" && row[1].ends_with("×1.25")), "{text}");
}

#[test]
fn where_json_was_not_full_nothing_is_a_multiple_of_it() {
    let result = played(|task| {
        let mut record = block(task);
        if task.cell.cell.format.name() == "json" {
            record.saturated.as_mut().unwrap().full = Full::Neither;
        }
        measured(record)
    });
    let rows = rows(&report::terminal(&result, false));
    assert_eq!(rows[0], ["json", "≥18.2k", "≥364"]);
    assert_eq!(rows[1], ["cbor-packed", "22.7k", "≥455"]);
    assert_eq!(rows[2], ["json", "900", "300 ×0.33±.00"], "bytes need no limit");
}
