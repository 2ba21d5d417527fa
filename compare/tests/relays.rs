//! Relays that a run starts beside each other, and the process that keeps each.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

#[path = "../../client-sim/tests/common/few.rs"]
mod few;

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use few::few_events;
use report::ResultFile;
use tempfile::TempDir;

const COMPARE: &str = env!("CARGO_BIN_EXE_compare");

fn run(out: &Path, args: &[&str]) -> Output {
    Command::new(COMPARE)
        .args(["run", "--scenario", "note-stream", "--rounds", "1", "--seconds", "1", "--corpus"])
        .arg(few_events())
        .arg("--out")
        .arg(out)
        .args(args)
        .output()
        .unwrap()
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
    let run = run(
        &results,
        &[
            "--relay",
            &own("old"),
            "--relay",
            &own("new"),
            "--relay",
            "floor",
            "--compressions",
            "none,deflate",
            "--junit",
            junit.to_str().unwrap(),
        ],
    );
    let said = String::from_utf8_lossy(&run.stderr);
    // A busy machine may make a block invalid (3); one round decides nothing (0).
    assert!(matches!(run.status.code(), Some(0 | 3)), "{:?}\n{said}", run.status);
    let folder = fs::read_dir(&results).unwrap().next().unwrap().unwrap().path();
    let result = ResultFile::read(&folder).unwrap();
    let ids: Vec<&str> = result.cells.iter().map(|cell| cell.id.as_str()).collect();
    assert_eq!(
        ids,
        [
            "json+none+old",
            "json-control+old",
            "floor",
            "json+none+new",
            "json+deflate+old",
            "json+deflate+new"
        ],
        "{said}"
    );
    let names: Vec<&str> = result.config.relays.iter().map(|relay| &*relay.name).collect();
    assert_eq!(names, ["old", "new", "floor"]);
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
        assert_eq!(relay.software.ends_with("--floor"), relay.own, "{}", cell.id);
    }
    let table = fs::read_to_string(folder.join("summary.md")).unwrap();
    assert!(table.contains("| format | compression | relay |"), "{table}");
    let junit = fs::read_to_string(junit).unwrap();
    // On a busy machine nothing else may be compared.
    assert!(junit.contains("wire bytes of json+deflate+new against json+deflate+old"), "{junit}");
    assert!(junit.contains("ledger of json+none+new"), "{junit}");
    assert!(!junit.contains("floor against"), "{junit}");
    assert!(table.contains("| floor |"), "{table}");
}

#[test]
fn a_relay_that_does_not_start_is_named_with_what_it_wrote_and_the_fix() {
    let out = TempDir::new().unwrap();
    let refused = |relay: &str, says: &[&str]| {
        let run = run(out.path(), &["--relay", relay]);
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(!run.status.success(), "{said}");
        says.iter().for_each(|words| assert!(said.contains(words), "{words} in {said}"));
        assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0, "nothing was measured");
    };
    refused(
        "old=sh -c 'echo no space left >&2; exit 3' {address}",
        &["relay old ended before it listened", "exit status: 3", "it wrote:\nno space left"],
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
fn names_that_come_twice_and_flags_of_our_own_relay_are_refused() {
    let out = TempDir::new().unwrap();
    for (args, says) in [
        (vec!["--relay", "a=x {port}", "--relay", "a=y {port}"], "two relays are named a"),
        (vec!["--relay", "floor", "--relay", "a=x {port}"], "name a relay before it"),
        (vec!["--relay", "a=x {port}", "--verify", "none"], "--verify is for relays of our own"),
        (vec!["--relay", "a=x {port}", "--url", "ws://127.0.0.1:1"], "cannot be used with"),
        (vec!["--fail-on", "p99>3%"], "--relay"),
        (vec!["--relay", "a=x {port}", "--fail-on", "memory>3%"], "known: relay CPU"),
    ] {
        let run = run(out.path(), &args);
        let said = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{said}");
        assert!(said.contains(says), "{says} in {said}");
    }
}

/// A keeper with a command of the shell, which says `ready` when it is.
struct Keeper {
    child: Child,
    stdin: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    mark: String,
}

impl Keeper {
    /// Every process of `script` has `mark` in its command line.
    fn start(mark: &str, script: &str) -> Keeper {
        let mark = format!("{mark}-{}", std::process::id());
        let mut child = Command::new(COMPARE)
            .args(["role:relay-keeper", "sh", "-c", script, &mark])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Keeper { stdin: child.stdin.take(), child, output, mark }
    }

    /// Processes of the command that live.
    fn alive(&self) -> usize {
        let lines = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            (pid != self.child.id()).then(|| fs::read(format!("/proc/{pid}/cmdline")).ok())?
        });
        lines.filter(|line| String::from_utf8_lossy(line).contains(&self.mark)).count()
    }

    fn wait_for(&self, processes: usize) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.alive() != processes {
            assert!(Instant::now() < deadline, "{} of {processes} processes live", self.alive());
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn last_line(&mut self) -> serde_json::Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn end(mut self) -> serde_json::Value {
        drop(self.stdin.take());
        let said = self.last_line();
        assert!(self.child.wait().unwrap().success());
        assert_eq!(self.alive(), 0, "nothing is left");
        said
    }
}

/// A process that stays, with the mark in its command line.
const STAYS: &str = "sh -c 'while :; do sleep 0.05; done' \"$0\"";

#[test]
fn a_relay_that_ends_on_sigterm_is_not_killed_with_what_it_started() {
    let keeper = Keeper::start("obeys", &format!("{STAYS} & {STAYS} & wait"));
    keeper.wait_for(3);
    let said = keeper.end();
    assert_eq!((&said["by_itself"], &said["was_killed"]), (&false.into(), &false.into()), "{said}");
    assert!(said["how"].as_str().unwrap().contains("signal: 15"), "{said}");
}

#[test]
fn a_relay_that_ignores_sigterm_is_killed() {
    let keeper = Keeper::start("ignores", "trap '' TERM; while :; do sleep 0.05; done");
    keeper.wait_for(1);
    let said = keeper.end();
    assert_eq!((&said["by_itself"], &said["was_killed"]), (&false.into(), &true.into()), "{said}");
}

#[test]
fn a_relay_that_goes_into_the_background_is_kept_and_ended() {
    let keeper = Keeper::start("forks", &format!("setsid {STAYS} & sleep 0.5; exit 0"));
    keeper.wait_for(2);
    keeper.wait_for(1);
    let said = keeper.end();
    assert_eq!((&said["by_itself"], &said["how"]), (&false.into(), &"exit status: 0".into()), "{said}");
}

#[test]
fn a_relay_that_ends_by_itself_is_told_of_with_the_last_of_a_gigabyte() {
    let mut keeper =
        Keeper::start("writes", "head -c 1000000000 /dev/zero | tr '\\0' x; echo; echo last; exit 7");
    let said = keeper.last_line();
    assert_eq!((&said["by_itself"], &said["how"]), (&true.into(), &"exit status: 7".into()), "{said}");
    assert_eq!(said["output_bytes"], 1_000_000_006);
    let output = said["output"].as_str().unwrap();
    assert!(output.len() <= 4_096 && output.ends_with("x\nlast"), "{output}");
}

#[test]
fn what_a_relay_writes_at_its_end_is_told_however_short_it_lives() {
    for _ in 0..100 {
        let said = Keeper::start("brief", "echo first; echo last >&2; exit 3").last_line();
        assert_eq!((&said["output"], &said["output_bytes"]), (&"first\nlast".into(), &11.into()), "{said}");
    }
}

#[test]
fn a_keeper_whose_parent_is_killed_ends_its_relay() {
    let (input, held) = std::io::pipe().unwrap();
    let mut parent = Command::new("sleep").arg("600").stdout(held).spawn().unwrap();
    let keeper = Command::new(COMPARE)
        .args(["role:relay-keeper", "sh", "-c", "while :; do sleep 0.05; done"])
        .stdin(input)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    parent.kill().unwrap();
    parent.wait().unwrap();
    let said = keeper.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("\"by_itself\":false"), "{said}");
}
