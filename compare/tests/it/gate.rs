//! When a relay is worse than the first.

use std::path::Path;

use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;

use crate::common::{PLAIN, Run, record, result};
use report::{
    Derived, FailOn, Judged, ResultFile, between_relays,
    result::{Block, CellResult, RelayCommand, Role},
};

/// Two relays, of which the new one takes so many microseconds an event, and the old one 50.
fn two_relays(new_us: u64) -> ResultFile {
    let mut result = result("standard", 12, &["json+none", "cbor-packed+none"], |id, round, _| {
        let us = if id == "cbor-packed+none" { new_us } else { 50 };
        // Rounds differ, relays within a round do not.
        let run = Run { relay_us_per_event: us * u64::from(10 + round), ..PLAIN };
        record("json+none", 1 + u64::from(round), run)
    });
    for cell in &mut result.cells {
        let relay = if cell.id == "cbor-packed+none" { "new" } else { "old" };
        cell.id = cell.id.replace("cbor-packed", "json") + "+" + relay;
        cell.cell.format = "json".to_owned();
        cell.cell.relay = relay.to_owned();
    }
    let command = |name: &str| RelayCommand {
        name: name.to_owned(),
        command: format!("./{name} {{port}}"),
        ..RelayCommand::default()
    };
    result.config.relays = ["old", "new"].map(command).to_vec();
    result
}

fn failing(result: &ResultFile, fail_on: Option<&str>) -> Vec<String> {
    let fail_on: Option<FailOn> = fail_on.map(|text| text.parse().unwrap());
    let judged = between_relays(result, &Derived::from_result(result).comparisons, fail_on.as_ref());
    judged.iter().filter(|judged| judged.fails).map(Judged::to_string).collect()
}

#[test]
fn a_relay_that_is_decided_to_cost_more_fails_and_is_named() {
    let slower = two_relays(55);
    let named = "relay CPU of json+none+new is ×1.10 [1.10, 1.10] of json+none+old";
    assert_eq!(failing(&slower, None), [named]);
    assert_eq!(failing(&slower, Some("relay CPU>3%, p99>10%")), [named]);
    assert_eq!(failing(&slower, Some("relay CPU>20%")), [""; 0], "worse, by less than the bound");
    assert_eq!(failing(&slower, Some("p99>0%")), [""; 0], "another metric");
}

/// A table says "not significant" of it, because the interval begins within the band.
#[test]
fn a_relay_that_costs_more_for_certain_fails_though_the_interval_begins_within_the_band() {
    let run = |percent: u32, certain: u32| {
        let mut result = two_relays(50);
        let new = result.cells.iter_mut().find(|cell| cell.cell.relay == "new").unwrap();
        for block in &mut new.blocks {
            let round = block.round;
            let cpu = block.record.as_mut().unwrap().relay_cpu.as_mut().unwrap();
            let more = if round < certain { percent + round % 3 } else { 0 };
            cpu.total_ns = cpu.total_ns * (1_000 + u64::from(more)) / 1_000;
        }
        failing(&result, None)
    };
    assert_eq!(run(24, 12), ["relay CPU of json+none+new is ×1.02 [1.02, 1.03] of json+none+old"]);
    assert_eq!(run(14, 12), [""; 0], "certain, but within the band");
    assert_eq!(run(60, 6), [""; 0], "half of the rounds shows nothing");
}

#[test]
fn so_few_rounds_that_chance_may_do_it_fail_nothing() {
    let mut slower = two_relays(99);
    for cell in &mut slower.cells {
        cell.blocks.retain(|block| block.round < 7);
    }
    assert_eq!(failing(&slower, None), [""; 0], "all metrics in seven rounds");
    assert_eq!(failing(&slower, Some("relay CPU>3%")).len(), 1, "one metric in seven rounds");
}

#[test]
fn each_load_adds_to_what_may_fail() {
    let mut slower = two_relays(99);
    for cell in &mut slower.cells {
        cell.blocks.retain(|block| block.round < 8);
    }
    assert_eq!(failing(&slower, None).len(), 1, "one load in eight rounds");
    let mut other = slower.cells.clone();
    for cell in &mut other {
        cell.id += "-other";
        "other".clone_into(&mut cell.cell.scenario);
    }
    slower.cells.extend(other);
    assert_eq!(failing(&slower, None), [""; 0], "two loads in eight rounds");
}

#[test]
fn the_same_relay_or_a_cheaper_one_passes() {
    for us in [50, 40] {
        assert_eq!(failing(&two_relays(us), None), [""; 0], "{us}");
    }
    // Formats of one relay are no relays.
    let formats = result("standard", 10, &["json+none", "cbor-packed+none"], |id, round, _| {
        let run = Run { relay_us_per_event: if id == "json+none" { 50 } else { 90 }, ..PLAIN };
        record(id, 1 + u64::from(round), run)
    });
    assert_eq!(failing(&formats, None), [""; 0]);
}

/// The old relay grants no takeover of uploads, the new one does, and compresses by zstd, too. To
/// compress an event takes 64 µs, by deflate the new relay so many.
fn granted_differently(new_us: u64) -> ResultFile {
    const OLD: &str = "deflate:upload_takeover=no";
    // Cells of the matrix that stand for those of the relays.
    let cells = [
        ("json+none", "old", "none", 50),
        ("json-control", "old", "none", 50),
        ("json+deflate", "old", OLD, 64),
        ("cbor-packed+none", "new", "none", 50),
        ("cbor-packed+deflate", "new", "deflate", new_us),
        ("cbor+deflate", "new", "zstd", 64),
    ];
    let of = |id: &str| *cells.iter().find(|cell| cell.0 == id).unwrap();
    let ids = cells.map(|cell| cell.0);
    let mut result = result("standard", 12, &ids, |id, round, _| {
        let run = Run { relay_us_per_event: of(id).3 * u64::from(10 + round), ..PLAIN };
        record("json+none", 1 + u64::from(round), run)
    });
    for cell in &mut result.cells {
        let (_, relay, compression, _) = of(&cell.id);
        if cell.role == Role::Cell || cell.role == Role::Anchor {
            cell.id = format!("json+{compression}+{relay}");
        }
        (cell.cell.format, cell.cell.relay) = ("json".to_owned(), relay.to_owned());
        cell.cell.compression = compression.to_owned();
    }
    result.config.relays = two_relays(50).config.relays;
    result
}

#[test]
fn relays_are_judged_by_what_they_send_and_never_by_a_cell_that_the_first_has_not() {
    let equal = granted_differently(64);
    assert_eq!(failing(&equal, None), [""; 0], "compressed beside compressed");
    let slower = granted_differently(71);
    let named = "relay CPU of json+deflate+new is ×1.11 [1.11, 1.11] of json+deflate:upload_takeover=no+old";
    assert_eq!(failing(&slower, None), [named]);
    // What the old relay does not grant stands beside its own relay's JSON alone.
    let comparisons = Derived::from_result(&equal).comparisons;
    let references = |id: &str| -> Vec<&str> {
        let of = comparisons.iter().filter(|one| one.cell == id && one.metric.short() == "relay CPU");
        of.map(|one| &*one.reference).collect()
    };
    assert_eq!(references("json+zstd+new"), ["json+none+new"]);
    assert_eq!(references("json+none+new"), ["json+none+old"]);
}

/// A run of two relays, drawn from blocks of equal ones: each round has four that followed each
/// other, in any order. The CPU time of the new one is multiplied.
fn drawn_run(equal: &ResultFile, rounds: u32, percent: u64, random: &mut ChaCha8Rng) -> ResultFile {
    let mut played: Vec<&Block> = equal.cells.iter().flat_map(|cell| &cell.blocks).collect();
    played.sort_by_key(|block| (block.round, block.position));
    let empty = |cell: &CellResult| CellResult { blocks: Vec::new(), ..cell.clone() };
    let mut result = ResultFile { cells: equal.cells.iter().map(empty).collect(), ..equal.clone() };
    result.config.rounds = rounds;
    let with_role = |role: Role| equal.cells.iter().position(|cell| cell.role == role).unwrap();
    let [anchor, control, new] = [Role::Anchor, Role::Control, Role::Cell].map(with_role);
    for round in 0..rounds {
        let from = random.random_range(0..=played.len() - 4);
        let mut blocks: Vec<Block> = played[from..from + 4].iter().map(|block| (*block).clone()).collect();
        blocks.shuffle(random);
        for (position, (mut block, cell)) in (0..).zip(blocks.into_iter().zip([anchor, new, control, new])) {
            (block.round, block.position) = (round, position);
            if let Some(record) = block.record.as_mut().filter(|_| cell == new) {
                let cpu = record.relay_cpu.as_mut().unwrap();
                cpu.total_ns = cpu.total_ns * percent / 100;
            }
            result.cells[cell].blocks.push(block);
        }
    }
    result
}

/// How many of so many drawn runs fail.
fn failed(runs: u64, rounds: u32, percent: u64) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/equal-relays");
    let equal = ResultFile::read(&folder).unwrap();
    let fails = |seed: &u64| {
        let mut random = ChaCha8Rng::seed_from_u64(*seed);
        !failing(&drawn_run(&equal, rounds, percent, &mut random), None).is_empty()
    };
    (0..runs).filter(fails).count()
}

/// Twelve rounds are what a run has unless told otherwise, 80 what ten minutes hold.
#[test]
#[ignore = "two minutes: cargo test --release -p compare --test it -- --ignored campaign_equal_relays"]
fn campaign_equal_relays_seldom_fail_and_five_percent_more_cpu_is_found() {
    for rounds in [12, 80] {
        let false_alarms = failed(100, rounds, 100);
        println!("{false_alarms} of 100 runs of {rounds} rounds fail");
        assert!(false_alarms <= 1, "{false_alarms} of 100 runs of {rounds} rounds");
    }
    let found = failed(20, 80, 105);
    println!("{found} of 20 runs with 5 % more CPU fail");
    assert!(found >= 18, "{found} of 20");
}
