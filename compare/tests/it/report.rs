//! Reports are functions of result files: these results are made by hand, so every number in a
//! report is known.

use std::{collections::BTreeMap, fs, io::Write, path::Path, process::Command};

use crate::common::{self, PLAIN, Run, record, result};
use expect_test::expect_file;
use flate2::{Compression, write::GzEncoder};
use measure::{PopulationRecord, Quantile, ReasonKind, RunRecord, Status, ValidityClass};
use report::{
    DERIVED_FILE, Derived, Git, RESULT_FILE, ResultFile, Verdict,
    merged::Merged,
    metric::{Metric, ShownIn},
    result::{Oracle, SELFTESTS, SelfTest},
};

pub(crate) const CELLS: [&str; 5] =
    ["json+none", "json+deflate", "cbor-packed+none", "cbor-packed+deflate", "proto+none"];

/// Twelve rounds in which JSON's cost drifts, cbor-packed costs a fixed share of it, and proto is
/// JSON with noise.
pub(crate) fn measured(id: &str, round: u32, _position: u32) -> measure::RunRecord {
    let drift = 100 + u64::from(round);
    let share = |percent: u64| Run {
        wire_bytes_per_event: 900 * percent / 100,
        relay_us_per_event: 60 * drift * percent / 10_000,
        client_us_per_event: 30 * drift * percent / 10_000,
        latency_us: 10 * drift,
        ..PLAIN
    };
    let run = match id {
        "json+none" | "json-control" => share(100),
        "json+deflate" => Run { relay_us_per_event: 90 * drift / 100, ..share(40) },
        "cbor-packed+none" => share(60),
        "cbor-packed+deflate" => Run { relay_us_per_event: 85 * drift / 100, ..share(38) },
        _ => Run { relay_us_per_event: 50 + u64::from(round * 7 % 12) * 2, ..share(100) },
    };
    record(id, 1 + u64::from(round), run)
}

/// A result with one of everything that can go wrong with a block.
pub(crate) fn troubled() -> ResultFile {
    let mut result = result("quick", 3, &CELLS, measured);
    // The cells are the anchor, its control, json+deflate, cbor-packed, cbor-packed+deflate, proto.
    let invalid = &mut result.cells[3].blocks[1];
    let validity = &mut invalid.record.as_mut().unwrap().validity;
    validity.add(ValidityClass::Invalid, ReasonKind::CpuPressure { percent: 71.0 });
    let suspect = &mut result.cells[0].blocks[0].record.as_mut().unwrap().validity;
    suspect.add(ValidityClass::Suspect, ReasonKind::CpuPressure { percent: 31.0 });
    let lost = &mut result.cells[4].blocks[0];
    (lost.exit_code, lost.failure) = (Some(4), Some("events were lost or altered".to_owned()));
    let record = lost.record.as_mut().unwrap();
    (record.counts.deliveries, record.counts.deliveries_lost) = (3_999, 1);
    let why = record.counts.balanced().unwrap_err();
    record.validity.add(ValidityClass::Invalid, ReasonKind::Unbalanced { why });
    let dead = &mut result.cells[5].blocks[2];
    (dead.exit_code, dead.failure, dead.record) =
        (Some(1), Some("the client ended with exit code 1; it wrote:\nerror: no relay".to_owned()), None);
    result.status = Status::Interrupted;
    result
}

#[test]
fn the_summary_reads_as_committed() {
    expect_file!["snapshots/standard.md"]
        .assert_eq(&report::summary(&result("standard", 12, &CELLS, measured)));
    expect_file!["snapshots/troubled.md"].assert_eq(&report::summary(&troubled()));
    expect_file!["snapshots/standard.txt"]
        .assert_eq(&report::terminal(&result("standard", 12, &CELLS, measured), false));
}

#[test]
fn a_result_survives_its_file_and_renders_the_same() {
    let folder = tempfile::tempdir().unwrap();
    for result in [result("standard", 2, &CELLS, measured), troubled()] {
        result.write(folder.path()).unwrap();
        let back = ResultFile::read(folder.path()).unwrap();
        assert_eq!(back, result);
        assert_eq!(report::summary(&back), report::summary(&result));
        // Published ones are packed.
        let plain = folder.path().join(RESULT_FILE);
        let packed = fs::File::create(folder.path().join("result.json.gz")).unwrap();
        let mut packer = GzEncoder::new(packed, Compression::fast());
        packer.write_all(&fs::read(&plain).unwrap()).unwrap();
        packer.finish().unwrap();
        fs::remove_file(plain).unwrap();
        assert_eq!(ResultFile::read(folder.path()).unwrap(), result);
    }
}

#[test]
fn the_report_command_needs_only_the_result_file() {
    let folder = tempfile::tempdir().unwrap();
    let result = troubled();
    result.write(folder.path()).unwrap();
    let mut plain = Command::new(env!("CARGO_BIN_EXE_compare"));
    let output = plain.arg("report").arg(folder.path()).env_remove("COLUMNS").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), report::terminal(&result, false));
    assert_eq!(fs::read_to_string(folder.path().join("summary.md")).unwrap(), report::summary(&result));
    let derived = fs::read_to_string(folder.path().join(DERIVED_FILE)).unwrap();
    assert_eq!(serde_json::from_str::<Derived>(&derived).unwrap(), Derived::from_result(&result));
    let rows = fs::read_to_string(folder.path().join("observations.csv")).unwrap();
    for row in ["cell,round,place,validity,metric,value", "json+none,0,"] {
        assert!(rows.lines().any(|line| line.starts_with(row)), "{rows}");
    }
    let invalid = rows.lines().filter(|line| line.contains(",invalid,response_ns_p99,")).count();
    assert_eq!(invalid, 2, "one on a busy host, one with an event lost");
}

#[test]
fn quantiles_are_of_merged_samples() {
    // Two blocks of which one is ten times slower: the median of all samples lies between, and is
    // not a mean.
    let records: Vec<_> = [100, 1_000]
        .map(|latency_us| record("json+none", 1, Run { latency_us, deliveries: 20_000, ..PLAIN }))
        .to_vec();
    let merged = Merged::from_records(&records);
    assert_eq!(merged.latency["response"].len(), 40_000);
    // The fast block ends at 150 µs, the slow one begins at 500 µs: a quarter of all lies below 100
    // µs.
    let ns = |q| merged.quantile("response", q).ns().unwrap();
    assert!(ns(0.25).abs_diff(100_000) < 500, "{}", ns(0.25));
    assert!(ns(0.75).abs_diff(1_000_000) < 5_000, "{}", ns(0.75));
    assert!(matches!(merged.quantile("response", 0.99), Quantile::Exact(_)));
    assert!(matches!(merged.quantile("response", 0.999), Quantile::Bracketed(_)));
    assert_eq!(merged.quantile("eose", 0.5), Quantile::Missing);
}

/// The table as a map from cell id to its fields by heading.
fn fields(result: &ResultFile) -> BTreeMap<String, BTreeMap<String, String>> {
    let summary = report::summary(result);
    let from = summary.find("| format").unwrap();
    let markdown = summary[from..].split("\n\n").next().unwrap();
    let split = |line: &str| {
        line.trim_matches('|').split('|').map(|field| field.trim().to_owned()).collect::<Vec<_>>()
    };
    let mut lines = markdown.lines().map(split);
    let headings = lines.next().unwrap();
    let rows = lines.skip(1).map(|row| {
        let id = if row[0] == "json-control" { row[0].clone() } else { format!("{}+{}", row[0], row[1]) };
        (id, headings.iter().cloned().zip(row).collect())
    });
    rows.collect()
}

#[test]
fn the_slow_tail_of_throughput_is_p1_where_every_cell_has_intervals_enough_and_else_p10() {
    let mut result = result("standard", 12, &CELLS, measured);
    let tails = |result: &ResultFile| {
        let fields = fields(result);
        let of = |id: &str, tail: &str| fields[id].get(tail).cloned().unwrap_or_default();
        ["p1 /s", "p10 /s"].map(|tail| ["json+none", "cbor-packed+none"].map(|id| of(id, tail)))
    };
    // 576 intervals and 192: 57 and 19 below p10, 5 and 1 below p1.
    assert_eq!(tails(&result), [["", ""], ["[2,501]", "[2,501] ×1.00"]]);
    assert!(Derived::from_result(&result).cells.iter().all(|cell| {
        cell.figures.contains_key(&Metric::ThroughputP10) && !cell.figures.contains_key(&Metric::ThroughputP1)
    }));

    // Six times as many: 34 and 11 below p1.
    for block in result.cells.iter_mut().flat_map(|cell| &mut cell.blocks) {
        let throughput = block.record.as_mut().unwrap().throughput.as_mut().unwrap();
        let once = throughput.clone();
        (0..5).for_each(|_| throughput.envelopes_per_s.merge(&once.envelopes_per_s));
    }
    assert_eq!(tails(&result), [["[2,501]", "[2,501] ×1.00"], ["", ""]]);

    // One cell has too few, so all show p10.
    result.cells.last_mut().unwrap().blocks.truncate(6);
    assert_eq!(tails(&result), [["", ""], ["2,501", "2,501 ×1.00"]]);
}

#[test]
fn a_block_is_divided_by_the_anchors_next_to_it() {
    // From the fifth place on the machine is twice as slow. Cells in the middle of either half do
    // not see it.
    let result = result("standard", 6, &CELLS, |id, round, position| {
        let relay_us_per_event = if position < 4 { 50 } else { 100 };
        record(id, 1 + u64::from(round), Run { relay_us_per_event, ..PLAIN })
    });
    let fields = fields(&result);
    let ratios: Vec<&str> =
        fields.values().filter_map(|row| Some(row["relay µs/event"].split_once('×')?.1)).collect();
    assert_eq!(ratios.len(), 5);
    // Places 1 to 3 stand between the fast anchor at 0 and the slow one at 4, half as dear and as
    // dear: the mean of the logarithms is that of √½; 5 and 6 stand between slow ones.
    let per_round: Vec<f64> = ratios.iter().map(|ratio| ratio.parse().unwrap()).collect();
    assert!(per_round.iter().all(|ratio| (0.70..=1.0).contains(ratio)), "{ratios:?}");
    let of_position = |position: u32| if position < 4 { 0.71 } else { 1.0 };
    for cell in &result.cells[1..] {
        let each: Vec<f64> = cell.blocks.iter().map(|block| of_position(block.position)).collect();
        // Of 21 pairs the eleventh, their means taken in logarithms.
        let mut pairs: Vec<f64> = (0..6)
            .flat_map(|i| each[i..].iter().map(move |other| (i, other)))
            .map(|(i, other)| (each[i] * other).sqrt())
            .collect();
        pairs.sort_by(f64::total_cmp);
        let expected = pairs[10];
        let id = if cell.id == "json-control" { "json-control" } else { cell.id.as_str() };
        let shown: f64 = fields[id]["relay µs/event"].split_once('×').unwrap().1.parse().unwrap();
        assert!((shown - expected).abs() < 0.011, "{id}: {shown}, expected {expected}");
    }
}

#[test]
fn one_anchor_with_a_hiccup_does_not_decide_what_a_p99_is_compared_with() {
    // The anchors at 0 and 3 are a tenth and ten times as slow as what stands between them. Pooled,
    // their p99 would be the slow one's, and everything ten times better than JSON.
    let result = result("standard", 6, &["json+none", "cbor-packed+none"], |id, round, position| {
        let latency_us = match position {
            0 => 1_000,
            3 => 100_000,
            _ => 10_000,
        };
        record(id, 1 + u64::from(round), Run { latency_us, ..PLAIN })
    });
    let fields = fields(&result);
    for id in ["json-control", "cbor-packed+none"] {
        for column in ["p50 ms", "p99 ms"] {
            assert!(fields[id][column].ends_with("×1.00"), "{id}: {}", fields[id][column]);
        }
    }
}

#[test]
fn publishes_count_where_nothing_is_delivered() {
    let result = result("quick", 1, &["json+none"], |id, _, _| {
        let mut record = record(id, 1, PLAIN);
        (record.counts.deliveries, record.counts.deliveries_expected) = (0, 0);
        record.latency = BTreeMap::from([("publish_ok".to_owned(), record.latency["response"].clone())]);
        record
    });
    let fields = fields(&result);
    // 1,000 acknowledged publishes in 1.6 s, 900 × 4,000 bytes between them.
    let figures = &Derived::from_result(&result).cells[0].figures;
    assert!((figures[&Metric::EnvelopesPerSecond] - 625.0).abs() < 1e-9);
    assert_eq!(fields["json+none"]["wire B/event"], "3,600");
    assert!(fields["json+none"]["p50 ms"].starts_with("0.999"));
    assert!(report::summary(&result).contains("are of `publish_ok`"));
}

#[test]
fn without_the_base_there_are_no_ratios() {
    let mut result = result("quick", 1, &["json+none", "cbor+none"], |id, _, _| record(id, 1, PLAIN));
    result.cells[0].blocks.iter_mut().for_each(|block| block.record = None);
    let fields = fields(&result);
    assert_eq!(fields["cbor+none"]["wire B/event"], "900");
    assert_eq!(fields["json+none"]["wire B/event"], "–");
    assert!(report::summary(&result).contains("there are no ratios"));
}

#[test]
fn logs_hold_one_interval_for_each_usable_block() {
    let folder = tempfile::tempdir().unwrap();
    report::write_intervals(&troubled(), std::time::SystemTime::UNIX_EPOCH, folder.path()).unwrap();
    let intervals = |cell: &str| {
        let text = fs::read_to_string(folder.path().join(format!("hlog/{cell}.hlog"))).unwrap();
        let of = |tag: &str| text.lines().filter(|line| line.starts_with(tag)).count();
        assert_eq!(of("Tag=throughput,"), of("Tag=response,"));
        assert_eq!(of("Tag=throughput_wire_bytes,"), of("Tag=response,"));
        of("Tag=response,")
    };
    assert_eq!((intervals("json+none"), intervals("cbor-packed+none"), intervals("proto+none")), (9, 2, 2));
}

#[test]
fn nothing_made_of_an_incomplete_result_looks_whole() {
    let mut result = result("standard", 12, &CELLS, measured);
    assert_eq!(Derived::from_result(&result).incomplete, None);
    let reason = "agent 1 was lost";
    result.status = Status::Incomplete { reason: reason.to_owned() };
    result.cells[3].blocks[11].record = None;
    for text in [report::summary(&result), report::terminal(&result, false)] {
        // Folded on a terminal.
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&format!("Incomplete: {reason}.")), "{text}");
        assert!(text.contains("The ledger balances in every block with a record: "), "{text}");
    }
    assert_eq!(Derived::from_result(&result).incomplete.as_deref(), Some(reason));
    let folder = tempfile::tempdir().unwrap();
    result.write(folder.path()).unwrap();
    let document = "<!-- generated: . json+none -->\nold\n<!-- end of generated -->\n";
    let refused = format!("{:#}", report::splice(document, folder.path()).unwrap_err());
    assert!(refused.contains("the result is incomplete, ") && refused.ends_with(reason), "{refused}");
}

/// A test of the instrument of which these oracles passed, but the failed one.
pub(crate) fn tested(result: &mut ResultFile, names: &[&str], failed: Option<&str>, quick: bool) {
    let oracle = |name: &&str| Oracle {
        name: (*name).to_owned(),
        done: "what was done".to_owned(),
        limit: "what had to be seen".to_owned(),
        measured: "what was seen".to_owned(),
        values: BTreeMap::new(),
        passed: failed != Some(*name),
        seconds: 1.0,
    };
    result.selftest = Some(SelfTest {
        schema_version: result.schema_version.clone(),
        tool: result.tool.clone(),
        git: result.git.clone(),
        host: result.host.clone(),
        started_utc: result.started_utc.clone(),
        quick,
        oracles: names.iter().map(oracle).collect(),
        untested: failed.map(|_| "links: this host has no namespaces".to_owned()),
    });
}

#[test]
fn a_failed_test_of_the_instrument_stands_before_every_number() {
    let mut result = result("standard", 12, &CELLS, measured);
    assert!(report::summary(&result).contains("Not tested for this result"));
    tested(&mut result, &["stall", "cpu"], Some("cpu"), true);
    {
        let text = report::summary(&result);
        let warning = text.find("The instrument failed its own tests: cpu.").unwrap();
        assert!(warning < text.find("×0.60").unwrap());
        for says in [
            "2 of 12 run, 1 passed (the short form, commit 01234567",
            "Left out: starved, delay, saturated, bytes, workers, killed, ledger, links, wrong-link, late-link. \
             Not",
            "what had to be seen",
            "Not tested: links: this host has no namespaces",
        ] {
            assert!(text.contains(says), "{says}: {text}");
        }
        assert!(!text.contains("Another commit was tested"), "{text}");
    }
    result.selftest.as_mut().unwrap().git = Some(Git { commit: "abcdef0123456789".to_owned(), dirty: false });
    let warning = "Another commit was tested: the self-test is of commit abcdef01, the result of commit 01234567 \
                   with local changes.";
    assert!(report::summary(&result).contains(warning));
    tested(&mut result, &SELFTESTS, None, false);
    let all = report::summary(&result);
    assert!(all.contains("14 of 14 run, all passed") && !all.contains("Left out"), "{all}");
}

#[test]
fn a_busy_host_and_a_relay_that_misbehaved_are_named_before_every_number() {
    let mut result = result("quick", 6, &CELLS, measured);
    assert!(!report::summary(&result).contains("too busy"));
    for (cell, block) in [(0, 0), (3, 1), (4, 1)] {
        let record = result.cells[cell].blocks[block].record.as_mut().unwrap();
        record.validity.add(ValidityClass::Invalid, ReasonKind::CpuPressure { percent: 71.0 });
    }
    let relay = &mut result.cells[2].blocks[0].record.as_mut().unwrap().relay;
    relay.as_mut().unwrap().faults = vec!["burn=20000ns".to_owned()];
    for text in [report::summary(&result), report::terminal(&result, false)] {
        assert!(text.contains("The host was too busy in 3 of ") && text.contains("idle"), "{text}");
        assert!(text.contains("A relay misbehaved on purpose (burn=20000ns)"), "{text}");
    }
}

/// Blocks of twelve seconds in which a cell's latency and backlog are what these functions say of
/// (round, second).
fn by_the_second(
    latency_us: impl Fn(&str, u32, u64) -> u64,
    in_flight: impl Fn(&str, u64) -> u64,
) -> ResultFile {
    let ids = ["json+none", "cbor-packed+none", "proto+none"];
    result("standard", 8, &ids, |id, round, _| {
        let mut record = record(id, 1 + u64::from(round), PLAIN);
        let seconds = (0..12).map(|second| measure::Slice {
            samples: 300,
            latency_ns_p50: Some(latency_us(id, round, second) * 1_000),
            in_flight: in_flight(id, second),
        });
        record.slices = Some(measure::Slices { of: "response".to_owned(), seconds: seconds.collect() });
        record
    })
}

fn latency_verdicts(result: &ResultFile, cell: &str) -> Vec<Verdict> {
    let of_cell = report::comparisons(result).into_iter().filter(|c| c.cell == cell);
    of_cell.filter(|c| c.metric.is_latency()).map(|c| c.verdict).collect()
}

/// Between -3 % and 3 %, other in each round and second.
fn noise(round: u32, second: u64) -> u64 {
    970 + (u64::from(round) * 37 + second * 53 + second * second * 17) % 61
}

#[test]
fn what_the_machine_does_to_single_blocks_is_no_trend() {
    // Each block drifts by a third, up in one round and down in the next.
    let drift = |_: &str, round: u32, second: u64| {
        let at = if round.is_multiple_of(2) { second } else { 11 - second };
        noise(round, second) * (100 + 3 * at) / 100
    };
    let result = by_the_second(drift, |_, _| 3);
    let derived = Derived::from_result(&result);
    assert!(derived.cells.iter().all(|cell| cell.steady.as_ref().unwrap().is_steady()), "{derived:?}");
    assert!(report::summary(&result).contains("Steady state over 12 s: 4 of 4 cells."));
    assert_eq!(latency_verdicts(&result, "proto+none"), [Verdict::Same; 2]);
}

#[test]
fn a_cell_that_gets_slower_throughout_its_blocks_is_unsteady_and_stays() {
    let slower = |id: &str, round: u32, second: u64| match id {
        "proto+none" => noise(round, second) * (100 + 4 * second) / 100,
        _ => noise(round, second),
    };
    let result =
        by_the_second(slower, |id, second| if id == "cbor-packed+none" { 5 + 20 * second } else { 3 });
    let derived = Derived::from_result(&result);
    let steady = |id: &str| derived.cells.iter().find(|cell| cell.id == id).unwrap().steady.clone().unwrap();
    assert!(steady("json+none").is_steady(), "{:?}", steady("json+none"));
    assert_eq!(steady("proto+none").reasons.len(), 2, "trend and halves: {:?}", steady("proto+none"));
    assert_eq!(steady("cbor-packed+none").reasons, ["what is in flight grows from 55 to 175"]);
    assert_eq!(latency_verdicts(&result, "proto+none"), [Verdict::Unsteady; 2]);
    let summary = report::summary(&result);
    assert!(summary.contains("Steady state over 12 s: 2 of 4 cells; unsteady"), "{summary}");
    assert!(summary.contains("×1.00 [1.00, 1.00] unsteady"), "{summary}");
    // Nothing is left out, and what latency does not touch keeps its verdict.
    assert!(summary.contains("| proto | none | ×1.00 [1.00, 1.00] same |"), "{summary}");
    let json = serde_json::to_value(&derived).unwrap();
    assert!(json["cells"].as_array().unwrap().iter().all(|cell| cell["steady"]["seconds"] == 12));
    // That of the reference reaches what is compared with it.
    let slower = |id: &str, round: u32, second: u64| match id {
        "json+none" | "json-control" => noise(round, second) * (100 + 4 * second) / 100,
        _ => noise(round, second),
    };
    assert_eq!(latency_verdicts(&by_the_second(slower, |_, _| 3), "proto+none"), [Verdict::Unsteady; 2]);
}

#[test]
fn where_allocations_were_counted_they_are_judged_and_time_is_not() {
    let result = result("standard", 12, &["json+none", "cbor-packed+none"], |id, round, _| {
        let mut record = record(id, 1 + u64::from(round), PLAIN);
        let of = |count: u64, bytes: u64| measure::Allocations { count: count * 4_000, bytes: bytes * 4_000 };
        let relay = if id == "cbor-packed+none" { of(3, 700) } else { of(6, 1_400) };
        record.allocations = Some(measure::AllocationsRecord { client: of(10, 2_000), relay: Some(relay) });
        record
    });
    let judged: Vec<(Metric, String)> = report::comparisons(&result)
        .into_iter()
        .filter(|c| c.cell == "cbor-packed+none")
        .map(|c| (c.metric, c.to_string()))
        .collect();
    let says = |text: &str| text.to_owned();
    assert_eq!(
        judged,
        [
            (Metric::WireBytes, says("×1.00 [1.00, 1.00] same")),
            (Metric::RelayAllocations, says("×0.50 [0.50, 0.50] better")),
            (Metric::ClientAllocations, says("×1.00 [1.00, 1.00] same")),
        ]
    );
    let summary = report::summary(&result);
    assert!(summary.contains("> **Allocations were counted, which slows both ends"), "{summary}");
    assert!(
        summary.contains("| cbor-packed | none | 3.00 ×0.50 | 10.0 ×1.00 | 700 ×0.50 | 2,000 ×1.00 |"),
        "{summary}"
    );
    assert!(!report::summary(&common::result("standard", 12, &CELLS, measured)).contains("### Allocations"));
}

#[test]
fn bounds_of_a_scenario_are_judged_over_all_blocks() {
    let result = result("standard", 6, &["json+none", "cbor-packed+none"], |id, round, _| {
        let latency_us = if id == "cbor-packed+none" { 4_000 } else { 1_000 };
        let mut record = record(id, 1 + u64::from(round), Run { latency_us, ..PLAIN });
        let bound = |metric: &str, max| measure::LatencyBound {
            metric: metric.to_owned(),
            quantile: 0.99,
            min_ms: None,
            max_ms: Some(max),
        };
        record.latency_bounds = vec![bound("response", 5.0), bound("eose", 5.0)];
        record
    });
    let derived = Derived::from_result(&result);
    let found: Vec<(&str, &str, bool)> =
        derived.slos.iter().map(|one| (one.cell.as_str(), one.bound.as_str(), one.met)).collect();
    // Nobody waited for EOSE, so nothing is said of it; and the control is no cell.
    let bound = "response_ms_p99<=5";
    assert_eq!(found, [("json+none", bound, true), ("cbor-packed+none", bound, false)]);
    let summary = report::summary(&result);
    assert!(
        summary.contains("| cbor-packed+none | response_ms_p99<=5 | 5.96 ms | **missed** |"),
        "{summary}"
    );
}

#[test]
fn an_slo_of_the_command_line_is_judged_from_the_result_alone() {
    let mut result = result("standard", 6, &["json+none", "cbor-packed+none"], measured);
    result.config.slo = Some("p50<1ns, lost=0".to_owned());
    let met: Vec<bool> = Derived::from_result(&result).slos.iter().map(|one| one.met).collect();
    assert_eq!(met, [false, true, false, true]);
    result.config.slo = Some("be nice".to_owned());
    let derived = Derived::from_result(&result);
    assert_eq!(derived.slos.len(), 2);
    assert!(derived.slos.iter().all(|one| !one.met && one.bound == "be nice"));
}

/// Twelve rounds in which the relay of proto+none is busy for this share of its core.
fn with_busy_proto(percent: u64) -> ResultFile {
    result("standard", 12, &["json+none", "cbor-packed+none", "proto+none"], |id, round, _| {
        let mut record = record(id, 1 + u64::from(round), PLAIN);
        if id == "proto+none" {
            record.relay_cpu.as_mut().unwrap().total_ns = record.active_ns * percent / 100;
        }
        record
    })
}

#[test]
fn a_relay_at_95_percent_of_its_core_has_no_latency_verdict_and_one_at_85_has() {
    let verdicts = |result: &ResultFile, metric: Metric| -> Vec<Verdict> {
        let of_proto = report::comparisons(result).into_iter().filter(|c| c.cell == "proto+none");
        of_proto.filter(|c| c.metric == metric).map(|c| c.verdict).collect()
    };
    for (percent, latency) in [(95, Verdict::Saturated), (85, Verdict::Same)] {
        let result = with_busy_proto(percent);
        assert_eq!(verdicts(&result, Metric::LatencyP50), [latency], "{percent} %");
        assert_eq!(verdicts(&result, Metric::LatencyP99), [latency], "{percent} %");
        // Saturation is no reason to leave out blocks, bytes or CPU.
        assert_eq!(verdicts(&result, Metric::WireBytes), [Verdict::Same]);
        assert_eq!(verdicts(&result, Metric::RelayCpu), [Verdict::Worse]);
        let derived = Derived::from_result(&result);
        let proto = derived.cells.iter().find(|cell| cell.id == "proto+none").unwrap();
        assert_eq!((proto.blocks, proto.usable_blocks), (12, 12));
        assert_eq!(proto.saturated.is_empty(), percent == 85, "{proto:?}");
        let summary = report::summary(&result);
        let says = "Saturation: 1 of 4 cells, whose latencies have no other verdict: \
                    proto+none (the relay used 95 % of its cores).";
        assert_eq!(summary.contains(says), percent == 95, "{summary}");
    }
}

#[test]
fn a_saturated_reference_or_generator_withholds_the_verdict_too() {
    let mut result = with_busy_proto(85);
    let anchor = &mut result.cells[0];
    assert_eq!(anchor.id, "json+none");
    for block in &mut anchor.blocks {
        let record = block.record.as_mut().unwrap();
        record.client_cpu.total_ns = record.active_ns * 95 / 100;
    }
    assert_eq!(latency_verdicts(&result, "cbor-packed+none"), [Verdict::Saturated; 2]);
    // A relay elsewhere, whose cores nobody knows, is not judged.
    for block in &mut result.cells[0].blocks {
        let record = block.record.as_mut().unwrap();
        (record.usable_cores, record.pinned) = (None, None);
    }
    assert_eq!(latency_verdicts(&result, "cbor-packed+none"), [Verdict::Same; 2]);
}

#[test]
fn a_late_generator_takes_away_time_and_leaves_bytes() {
    let mut result = result("standard", 6, &["json+none", "cbor-packed+none"], measured);
    let spoil = |result: &mut ResultFile, cell: usize| {
        let block = result.cells[cell].blocks.iter_mut().find(|block| block.round == 2).unwrap();
        let record = block.record.as_mut().unwrap();
        let late = ReasonKind::SendLag { ns_p99: 60_000_000, burst_ns: 0, sends: 1 };
        record.validity.add(ValidityClass::Invalid, late);
    };
    spoil(&mut result, 2);
    let of = |result: &ResultFile, metric: Metric| {
        let mut found = report::comparisons(result).into_iter();
        let found = found.find(|c| c.cell == "cbor-packed+none" && c.metric == metric).unwrap();
        (found.rounds, found.verdict)
    };
    // Five rounds of time have no interval; six of bytes have.
    assert_eq!(of(&result, Metric::WireBytes), (6, Verdict::Better));
    assert_eq!(of(&result, Metric::RelayCpu), (5, Verdict::Inconclusive));
    // Five rounds in which it was not late are the lucky ones.
    assert_eq!(of(&result, Metric::LatencyP50), (5, Verdict::Saturated));
    let derived = Derived::from_result(&result);
    assert_eq!((derived.cells[2].usable_blocks, derived.cells[2].counted_blocks), (5, 6));
    // An anchor that was late still divides bytes.
    spoil(&mut result, 0);
    assert_eq!(of(&result, Metric::WireBytes), (6, Verdict::Better));
    // A ledger that is off takes everything.
    let record = result.cells[2].blocks[0].record.as_mut().unwrap();
    record.validity.add(ValidityClass::Invalid, ReasonKind::NothingPlanned {});
    assert_eq!(of(&result, Metric::WireBytes), (5, Verdict::Inconclusive));
}

#[test]
fn generated_blocks_of_a_document_are_made_anew() {
    let result = result("standard", 12, &CELLS, measured);
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("x")).unwrap();
    result.write(&folder.path().join("x")).unwrap();
    let document = "before\n<!-- generated: x json+none\n     cbor-packed+none -->\nold\n<!-- end of generated -->\n\
                    between\n<!-- generated: x -->\nold<!-- end of generated -->\nbehind\n";
    let text = report::splice(document, folder.path()).unwrap();
    assert!(
        text.starts_with("before\n<!-- generated: x json+none") && text.ends_with("-->\nbehind\n"),
        "{text}"
    );
    assert!(!text.contains("old"), "{text}");
    // Lines of the terminal's output, and nothing else.
    let lines = text.split_once("between\n<!-- generated: x -->\n\n```\n").unwrap().1;
    let lines = lines.split_once("```\n\n<!-- end").unwrap().0;
    let shown = report::terminal(&result, false);
    assert!(lines.lines().all(|line| shown.lines().any(|other| other.starts_with(line))), "{lines}");
    assert!(lines.contains("cbor-packed"), "{lines}");
    assert!(
        text.contains("| json | none | 900 | 62.9 | 1 | 1 | 1 |\n| cbor-packed | none | 540 | -25.5 | "),
        "{text}"
    );
    assert_eq!(report::splice(&text, folder.path()).unwrap(), text);
    for (document, says) in [
        ("nothing", "no generated block"),
        ("<!-- generated: x json+none", "has no  -->"),
        ("<!-- generated: x json+none -->", "has no <!-- end of generated -->"),
        ("<!-- generated: x xml --><!-- end of generated -->", "no cell \"xml\"; it has json+none"),
        ("<!-- generated: y --><!-- end of generated -->", "there is no "),
    ] {
        let error = format!("{:#}", report::splice(document, folder.path()).unwrap_err());
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn generated_blocks_of_documents_are_those_of_the_published_results() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for name in
        ["README.md", "results/README.md", "docs/nip/objections.md", "docs/guides/is-my-change-slower.md"]
    {
        let file = root.join(name);
        let document = fs::read_to_string(&file).unwrap();
        let fresh = report::splice(&document, file.parent().unwrap()).unwrap();
        assert!(fresh == document, "run: cargo run -p compare -- report --splice {name}");
    }
}

/// The blocks of the standard result, over a link.
fn over(link: &str, change: impl Fn(&mut RunRecord)) -> ResultFile {
    let mut result = result("standard", 6, &CELLS, measured);
    for cell in &mut result.cells {
        cell.cell.link = link.to_owned();
        for record in cell.blocks.iter_mut().filter_map(|block| block.record.as_mut()) {
            record.cell.link = link.to_owned();
            record.link = Some(common::link(1_234 * record.counts.deliveries));
            let waited = record.latency["response"].clone();
            for metric in ["session", "first_event", "fiftieth_event", "eose", "handshake"] {
                record.latency.insert(metric.to_owned(), waited.clone());
            }
            change(record);
        }
    }
    result
}

#[test]
fn over_links_there_are_waits_and_bytes_of_packets_and_no_cpu_times() {
    // Seconds of a block in which sessions begin early: no trend, since none waits for another.
    let result = over("slow-4g", |record| {
        let latency_ns_p50 = |n: u64| Some(1_000_000_000 / (n + 1));
        let second = |n| measure::Slice { samples: 100, latency_ns_p50: latency_ns_p50(n), in_flight: 5 };
        let seconds = (0..12).map(second).collect();
        record.slices = Some(measure::Slices { of: "response".to_owned(), seconds });
    });
    let (text, shown) = (report::summary(&result), report::terminal(&result, false));
    for says in ["### Links", "CPU times are left out", "down 1.6mbit", "cubic", "2,468", "are of `session`"]
    {
        assert!(text.contains(says), "{says}: {text}");
    }
    for heading in ["p50 ms", "first ms", "50th ms", "EOSE ms", "handshake ms", "IP B/event"] {
        assert!(
            text.contains(&format!("| {heading} |")) && shown.contains(heading),
            "{heading}: {text}{shown}"
        );
    }
    for judged in ["p50", "first event p50", "50th event p50", "EOSE p50", "IP bytes", "handshake p50"] {
        assert!(text.contains(&format!("| {judged} |")), "{judged}: {text}");
    }
    assert!(
        !text.contains("relay µs") && !text.contains("### CPU") && !shown.contains("µs/event"),
        "{text}{shown}"
    );
    assert!(text.contains("Steady state: not looked for; sessions") && !text.contains("unsteady)"), "{text}");
    let widest = shown.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(widest <= 120, "{widest} columns: {shown}");
    let derived = Derived::from_result(&result);
    let cpu = [Metric::RelayCpu, Metric::ClientCpu, Metric::BothCpu];
    assert!(derived.cells.iter().all(|cell| cpu.iter().all(|metric| !cell.figures.contains_key(metric))));
    assert!(derived.comparisons.iter().all(|one| !cpu.contains(&one.metric)));
    for metric in Metric::shown_in(ShownIn::VerdictsOverLinks) {
        assert!(derived.comparisons.iter().any(|one| one.metric == metric), "{metric:?}");
    }
    // Each link is a load of its own, with its own anchor.
    let mut both = over("wifi", |_| {});
    both.cells.extend(result.cells);
    let text = report::summary(&both);
    assert!(text.contains("## mixed-day over wifi") && text.contains("## mixed-day over slow-4g"), "{text}");
    let unlike = report::unlike(&over("wifi", |_| {}), &over("slow-4g", |_| {}));
    assert!(unlike[0].contains(", link wifi") && unlike[0].contains(", link slow-4g"), "{unlike:?}");
}

/// Ten connections with the counts of all.
pub(crate) fn population(record: &RunRecord, name: &str, link: Option<&str>) -> PopulationRecord {
    PopulationRecord {
        name: Some(name.to_owned()),
        format: "json".to_owned(),
        compression: "none".to_owned(),
        link: link.map(str::to_owned),
        decode_every: None,
        connections: 10,
        counts: record.counts,
        to_relay: record.traffic.to_relay,
        to_client: record.traffic.to_client,
    }
}

#[test]
fn links_of_populations_have_rows_of_their_own() {
    let result = over(measure::NO_LINK, |record| {
        let flow = || measure::LinkFlow {
            packets: 100,
            forwarded: 98,
            forwarded_bytes: 50_000,
            tail_dropped: 1,
            lost: 1,
            ..measure::LinkFlow::default()
        };
        let part = |link: &str| measure::LinkPart {
            link: link.to_owned(),
            parameters: format!("as {link}"),
            connections: 10,
            down: flow(),
            up: flow(),
        };
        let link = record.link.as_mut().unwrap();
        link.parts = vec![part("wifi"), part("slow-4g")];
        link.parameters = "wifi (as wifi), slow-4g (as slow-4g)".to_owned();
        record.populations = [("home", "wifi"), ("road", "slow-4g")]
            .map(|(name, link)| population(record, name, Some(link)))
            .to_vec();
    });
    let text = report::summary(&result);
    for says in [
        "by population: wifi (as wifi), slow-4g (as slow-4g)",
        "### Links apart",
        "| json | none | slow-4g | 10 | 5.00 | 5.00 | 2.00 |",
        "| population | speaks | over | link |",
        "| home | json | none | wifi |",
        "| road | json | none | slow-4g |",
    ] {
        assert!(text.contains(says), "{says}: {text}");
    }
    assert!(text.contains("session p50 ms"), "{text}");
    assert!(!text.contains("relay µs"), "no CPU times where populations have links: {text}");
}

#[test]
fn clients_that_read_lightly_have_no_client_cpu_and_no_verdict_on_it() {
    let lightly = |id: &str, round: u32, position: u32| {
        let mut record = measured(id, round, position);
        record.counts.deliveries_unread = 3_960;
        let mirror = population(&record, "mirror", None);
        record.populations = vec![PopulationRecord { decode_every: Some(100), ..mirror }];
        record
    };
    let full = report::summary(&result("standard", 6, &CELLS, measured));
    let light = result("standard", 6, &CELLS, lightly);
    let text = report::summary(&light);
    assert!(text.contains("client CPU is no evidence and gets no verdict"), "{text}");
    assert!(text.contains("- Light readers: ") && !full.contains("Light readers"), "{text}");
    assert!(text.contains("| mirror | json | none | 10 | 6000 | 24000 | 240 |"), "{text}");
    let judged = |result: &ResultFile| {
        let all = report::comparisons(result);
        let of = |metric| all.iter().filter(|one| one.metric == metric).count();
        (of(Metric::RelayCpu), of(Metric::ClientCpu))
    };
    let (relay, client) = judged(&light);
    assert!(relay > 0 && client == 0, "{relay} verdicts on relay CPU, {client} on client CPU");
}
