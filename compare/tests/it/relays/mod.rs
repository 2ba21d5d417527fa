//! Relays that a run starts beside each other, and the process that keeps each.

mod interrupted;
mod keeper;
mod others;

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use report::{DERIVED_FILE, Derived, ResultFile, bracket::End};
use tempfile::TempDir;

use crate::{
    common::{compare, only_folder},
    few::few_events,
    ran::{Ran, Runs},
};

const COMPARE: &str = env!("CARGO_BIN_EXE_compare");

/// A run of few notes a second, which a debug build keeps. What gets lost is waited for a second.
fn run(out: &Path, args: &[&str]) -> Ran {
    compare()
        .args(["run", "--scenario", "note-stream", "--rounds", "1", "--seconds", "1", "--corpus"])
        .arg(few_events())
        .arg("--out")
        .arg(out)
        .args(args)
        .args(["--", "--rate", "50", "--drain-seconds", "1"])
        .ran()
}

/// A relay of this project as somebody else's.
fn own(name: &str) -> String {
    format!("{name}={COMPARE} role:relay --listen {{address}}")
}

#[test]
fn two_relays_are_started_for_each_block_and_compared_by_name() {
    let out = TempDir::new().unwrap();
    let junit = out.path().join("junit.xml");
    let results = out.path().join("results");
    let relays = ["--relay", &own("old"), "--relay", &own("new"), "--relay", "floor"];
    let flags = ["--compressions", "none", "--junit", junit.to_str().unwrap()];
    let said = run(&results, &[&relays[..], &flags].concat()).measured().said;
    let folder = only_folder(&results);
    let result = ResultFile::read(&folder).unwrap();
    let ids: Vec<&str> = result.cells.iter().map(|cell| cell.id.as_str()).collect();
    assert_eq!(ids, ["json+none+old", "json-control+old", "floor", "json+none+new"], "{said}");
    let names: Vec<&str> = result.config.relays.iter().map(|relay| &*relay.name).collect();
    assert_eq!(names, ["old", "new", "floor"]);
    let hashed = result.config.relays.iter().map(|relay| relay.programs.len());
    assert_eq!(hashed.collect::<Vec<_>>(), [1, 1, 0], "each program is hashed, but the floor is ours");
    let plans = || result.cells.iter().map(|cell| cell.blocks[0].record.as_ref().unwrap().counts.deliveries);
    assert_eq!(plans().collect::<BTreeSet<_>>().len(), 1, "all play one plan");
    for cell in &result.cells {
        let record = cell.blocks[0].record.as_ref().unwrap();
        record.counts.balanced().unwrap();
        assert!(
            record.counts.deliveries > 0 && record.relay_cpu.as_ref().unwrap().total_ns > 0,
            "{}",
            cell.id
        );
        let relay = record.relay.as_ref().unwrap();
        assert_eq!(relay.own, cell.id == "floor", "{}", cell.id);
        assert_eq!(relay.is_floor, relay.own, "{}", cell.id);
        assert_eq!(relay.stored_bytes.is_some(), !relay.own, "{}: the floor has no folder", cell.id);
        assert!(relay.written_bytes.is_some(), "{}", cell.id);
    }
    let table = fs::read_to_string(folder.join("summary.md")).unwrap();
    assert!(table.contains(" | relay |"), "{table}");
    let junit = fs::read_to_string(junit).unwrap();
    // On a busy machine nothing else may be compared.
    assert!(junit.contains("wire bytes of json+none+new against json+none+old"), "{junit}");
    assert!(junit.contains("ledger of json+none+new"), "{junit}");
    assert!(!junit.contains("floor against"), "{junit}");
    assert!(table.contains("| floor |"), "{table}");
}

#[test]
fn a_relay_stands_in_the_table_behind_the_gateway_too_with_what_it_does_not_speak() {
    let out = TempDir::new().unwrap();
    let plain = format!("{} --format json --compression none", own("plain"));
    let flags = ["--relay", &plain, "--via", "none,gateway", "--compression", "none,zstd-dict"];
    run(out.path(), &flags).measured().saying(&["json+zstd-dict+direct is not measured"]);
    let folder = only_folder(out.path());
    let result = ResultFile::read(&folder).unwrap();
    let ids: Vec<&str> = result.cells.iter().map(|cell| cell.id.as_str()).collect();
    let expected = ["json+none+direct", "json-control+direct", "json+none+gateway", "json+zstd-dict+gateway"];
    assert_eq!(ids, expected);
    for cell in &result.cells {
        let record = cell.blocks[0].record.as_ref().unwrap();
        record.counts.balanced().unwrap();
        assert_eq!(record.cell.via == "gateway", cell.id.ends_with("+gateway"), "{}", cell.id);
        let [all, own] = [record.relay_cpu, record.gateway_cpu].map(|cpu| cpu.map_or(0, |cpu| cpu.total_ns));
        assert!(own < all && (own > 0) == cell.id.ends_with("+gateway"), "{}: {own} of {all}", cell.id);
    }
    let table = fs::read_to_string(folder.join("summary.md")).unwrap();
    for heading in ["| format | compression | via |", "| gateway KiB/connection |"] {
        assert!(table.contains(heading), "{heading}: {table}");
    }
}

#[test]
fn a_relay_that_does_not_start_is_named_with_what_it_wrote_and_the_fix() {
    let out = TempDir::new().unwrap();
    let refused = |relay: &str, says: &[&str]| {
        assert_ne!(run(out.path(), &["--relay", relay]).saying(says).code, Some(0));
        assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0, "nothing was measured");
    };
    refused(
        "old=sh -c 'printf \"no space left\\033[2J\" >&2; exit 3' {address}",
        &["relay old ended before it listened", "exit status: 3", "it wrote:", r"  no space left\u{1b}[2J"],
    );
    refused("old=/nowhere/relay {address}", &["/nowhere/relay does not start: No such file"]);
    // Tests run in the folder of their package, the relay in one of its own.
    refused(
        "old=sh -c 'cat \"$1\" && exit 1' {port} Cargo.toml",
        &["Cargo.toml is a path from here", "give the whole path"],
    );
    refused("old=./relay --port 7777", &["the command has to say where to listen"]);
}

#[test]
fn a_relay_whose_program_is_replaced_ends_the_run() {
    let folder = TempDir::new().unwrap();
    let script = folder.path().join("relay");
    // Each start makes it another file.
    let text = format!("#!/bin/sh\necho '#' >> \"$0\"; exec {COMPARE} role:relay --listen \"$1\"\n");
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let relay = format!("new={} {{address}}", script.display());
    let says = format!("relay new: {} is another program", script.display());
    run(&folder.path().join("results"), &["--relay", &relay]).ended(5).saying(&[&says]);
}

/// A control group that holds so few bytes, by version 1 or 2.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    fn of(bytes: u32) -> MemoryGroup {
        let (all, name) = (Path::new("/sys/fs/cgroup"), format!("memory-test-{}", std::process::id()));
        let is_second =
            fs::read_to_string(all.join("cgroup.controllers")).is_ok_and(|names| names.contains("memory"));
        let (group, limit) = match is_second {
            true => {
                // Groups below the root have it already on systems that use it.
                let _ = fs::write(all.join("cgroup.subtree_control"), "+memory");
                (MemoryGroup(all.join(name)), "memory.max")
            }
            false => (MemoryGroup(all.join("memory").join(name)), "memory.limit_in_bytes"),
        };
        fs::create_dir(&group.0).unwrap();
        fs::write(group.0.join(limit), bytes.to_string()).unwrap();
        group
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // It stays while one of its processes does.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
#[ignore = "needs a control group that it may make below /sys/fs/cgroup"]
fn a_relay_that_the_kernel_kills_for_memory_is_named_with_the_fix() {
    let (out, group) = (TempDir::new().unwrap(), MemoryGroup::of(20_000_000));
    let procs = group.0.join("cgroup.procs");
    // Outside of the group it would end by a limit of its own.
    let grows = format!("ulimit -v 1000000; echo $$ > {} && exec tail /dev/zero", procs.display());
    let says =
        ["relay old ended before it listened", "out of memory", "raise the memory limit of its control"];
    let ran = run(out.path(), &["--relay", &format!("old=sh -c '{grows}' {{address}}")]).saying(&says);
    assert!(ran.code != Some(0) && fs::read_dir(out.path()).unwrap().count() == 0, "{ran}");
}

#[test]
fn what_each_relay_sustains_is_told_in_deliveries_and_publishes_a_second() {
    let out = TempDir::new().unwrap();
    let said = compare()
        .args(["search", "--scenario", "note-stream", "--relay", &own("old"), "--relay", &own("new")])
        .args(["--slo", "p50<2s", "--start", "200", "--limit", "200", "--probe-seconds", "2", "--no-curve"])
        .arg("--corpus")
        .arg(few_events())
        .arg("--out")
        .arg(out.path())
        .ran()
        .ended(0)
        .said;
    let folder = only_folder(out.path());
    let table = fs::read_to_string(folder.join("summary.md")).unwrap();
    let headings = "| 95 % interval | publishes/s | connections | load |";
    assert!(table.contains(headings), "{table}");
    let result = ResultFile::read(&folder).unwrap();
    let search = result.search.as_ref().unwrap();
    let at_load_1 = search.config.at_load_1.unwrap().deliveries_per_s;
    let played = search.cells[0].probes[0].played.unwrap();
    assert!((played.load * at_load_1 - 200.0).abs() < 1.0, "{played:?} of {at_load_1}");
    assert!(folder.join("report.html").exists());
    let limits = Derived::from_result(&result).limits;
    let ids: Vec<&str> = limits.iter().map(|limit| &*limit.cell).collect();
    assert_eq!(ids, ["json+none+old", "json+none+new"]);
    for limit in &limits {
        // Eight subscribers to each note.
        let row = format!("| {} | at least ", limit.cell);
        let row = table.lines().find(|line| line.starts_with(&row));
        assert!(row.is_some_and(|row| row.contains(" | 25/s |")), "{row:?} in {table}\n{said}");
        assert_eq!((limit.last_pass_per_s, limit.end), (Some(200), End::RateLimit), "{said}");
    }
    let derived = fs::read_to_string(folder.join(DERIVED_FILE)).unwrap();
    assert!(derived.contains("\"last_pass_per_s\": 200"), "{derived}");
}

#[test]
fn a_relay_that_loses_deliveries_is_named_and_the_one_beside_it_is_not() {
    let out = TempDir::new().unwrap();
    let lossy = format!("{} --fault lose=20%", own("lossy"));
    let junit = out.path().join("junit.xml");
    let results = out.path().join("results");
    let relays = ["--relay", &own("whole"), "--relay", &lossy, "--junit", junit.to_str().unwrap()];
    run(&results, &relays).ended(4);
    let result = ResultFile::read(&only_folder(&results)).unwrap();
    for cell in &result.cells {
        let counts = cell.blocks[0].record.as_ref().unwrap().counts;
        assert_eq!(counts.deliveries_lost > 0, cell.id == "json+none+lossy", "{}: {counts:?}", cell.id);
    }
    let junit = fs::read_to_string(junit).unwrap();
    assert!(junit.contains("round 1: deliveries_lost is "), "{junit}");
    assert_eq!(junit.matches("<failure").count(), 1, "{junit}");
}
