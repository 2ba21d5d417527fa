//! The blocks of this machine, with a client of a few lines, which writes canned records.

use std::{
    collections::BTreeMap,
    fs,
    future::{Future, pending},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::common::{PLAIN, config, matrix, record};
use compare::{
    BlockOrder,
    progress::Progress,
    run::{self, Outcome, Request, Stopped},
    this_machine::ThisMachine,
};
use measure::Status;
use report::Role;

/// Copies `canned.json` to the file behind `--record` with this run's names and seed in it, then
/// does what the test wants. The arguments are kept in `arguments`, one run a line.
const CLIENT: &str = r#"#!/bin/sh
here=$(dirname "$0")
echo "$@" >> "$here/arguments"
while [ $# -gt 0 ]; do
  case "$1" in
    --cell) cell=$2 ;;
    --seed) seed=$2 ;;
    --record) record=$2 ;;
  esac
  shift
done
of() { echo "$cell" | sed -e "s/.*\"$1\":\"\([^\"]*\)\".*/\1/"; }
format=$(of format)
compression=$(of compression)
write() {
  sed -e "s/FORMAT/$format/" -e "s/COMPRESSION/$compression/" -e "s/\"seed\": 424242/\"seed\": $seed/" \
    "$here/canned.json" > "$record"
}
"#;

struct Fake {
    folder: tempfile::TempDir,
    client: PathBuf,
}

impl Fake {
    fn new(behaviour: &str) -> Fake {
        let folder = tempfile::tempdir().unwrap();
        let client = folder.path().join("client");
        fs::write(&client, format!("{CLIENT}{behaviour}\n")).unwrap();
        fs::set_permissions(&client, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(folder.path().join("running")).unwrap();
        record("FORMAT+COMPRESSION", 424_242, PLAIN).write(&folder.path().join("canned.json")).unwrap();
        Fake { folder, client }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, rounds: u32, interrupt: impl Future<Output = ()>) -> Outcome {
        let mut config = config("quick", rounds);
        config.corpus = Some("events.jsonl".to_owned());
        config.client_args = vec!["--workers".to_owned(), "2".to_owned()];
        let mut cells = matrix(&["cbor+deflate"]);
        cells.retain(|cell| cell.role != Role::Control);
        let plan = BlockOrder::with_spare(&cells, rounds, config.seed);
        let folder = self.path("running");
        let request = Request {
            generator: &ThisMachine::new(&self.client, &config, BTreeMap::new()).unwrap(),
            config: &config,
            cells: &cells,
            plan: &plan,
            folder: &folder,
            keep: None,
        };
        let mut progress = Progress::new(plan.blocks(), Duration::from_secs(1), true);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run::run(&request, &mut progress, interrupt)).unwrap()
    }
}

fn wait_for(file: &Path) -> impl Future<Output = ()> {
    let file = file.to_owned();
    async move {
        while !file.exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[test]
fn every_cell_of_every_round_is_measured_and_kept() {
    let fake = Fake::new("write");
    let outcome = fake.run(3, pending());
    assert_eq!((outcome.status, outcome.stopped), (Status::Complete, None));
    // In each round the anchor, the cell, the anchor again.
    assert_eq!(outcome.blocks.iter().map(|(cell, _)| *cell).collect::<Vec<_>>(), [0, 1, 0].repeat(3));
    for (cell, block) in &outcome.blocks {
        let record = block.record.as_ref().unwrap();
        assert_eq!(record.cell.format, ["json", "cbor-schemaless"][*cell]);
        assert_eq!(record.seed, 1 + u64::from(block.round));
        assert!(block.usable().is_some() && block.failure.is_none() && block.process_ns > 0);
    }
    let starts: Vec<u64> = outcome.blocks.iter().map(|(_, block)| block.started_after_ns).collect();
    assert!(starts.is_sorted(), "{starts:?}");
    assert_eq!(fs::read_dir(fake.path("running")).unwrap().count(), 0);
    let arguments = fs::read_to_string(fake.path("arguments")).unwrap();
    let first = arguments.lines().find(|line| line.contains(r#""format":"json""#)).unwrap();
    let cell = serde_json::json!(matrix(&[])[0].cell);
    let expected = format!(
        "role:client --cell {cell} --comparable-with cbor-schemaless,json --corpus events.jsonl --seed 1 --seconds 2 \
         --record "
    );
    assert!(first.starts_with(&expected), "{first}");
    assert!(first.ends_with("json+none.json --quiet --workers 2"), "{first}");
}

#[test]
fn lost_events_and_a_lost_relay_are_kept_with_the_clients_words() {
    for (code, words) in [(4, "events were lost or altered"), (5, "the relay was lost")] {
        let outcome = Fake::new(&format!("write; echo 'only 99 of 100' >&2; exit {code}")).run(1, pending());
        for (_, block) in &outcome.blocks {
            let failure = block.failure.as_ref().unwrap();
            assert!(failure.contains(words) && failure.contains("only 99 of 100"), "{failure}");
            assert!(block.record.is_some() && block.usable().is_none());
        }
    }
}

#[test]
fn a_client_that_refuses_its_arguments_ends_the_run_at_once() {
    let outcome = Fake::new("echo 'error: unknown scenario' >&2; exit 2").run(3, pending());
    assert_eq!((outcome.stopped, outcome.blocks.len()), (Some(Stopped::Usage), 1));
    let failure = outcome.blocks[0].1.failure.as_ref().unwrap();
    assert!(failure.contains("exit code 2") && failure.contains("unknown scenario"), "{failure}");
}

#[test]
fn a_missing_broken_or_foreign_record_is_a_failure_that_says_so() {
    for (behaviour, words) in [
        ("exit 0", "wrote no record"),
        ("echo '[}' > \"$record\"", "is not a record"),
        ("echo '{' > \"$record\"", "is cut short"),
        ("echo '{\"schema_version\": \"9.0\"}' > \"$record\"", "schema version 9.0"),
        ("format=xml; write", "measured format \"xml\" where"),
        ("seed=7; write", "measured seed 7 where"),
    ] {
        let outcome = Fake::new(behaviour).run(1, pending());
        let (_, block) = &outcome.blocks[0];
        let failure = block.failure.as_ref().unwrap();
        assert!(block.record.is_none() && failure.contains(words), "{failure}");
    }
}

#[test]
fn an_interrupt_stops_the_client_and_keeps_what_was_measured() {
    // The second run would take a minute; asked to stop, it writes what it has, as the client does.
    let slow = "[ $(wc -l < \"$here/arguments\") -eq 1 ] && { write; exit 0; }
trap 'write; exit 130' TERM; : > \"$here/waiting\"
i=0; while [ $i -lt 600 ]; do sleep 0.1; i=$((i + 1)); done";
    let fake = Fake::new(slow);
    let began = Instant::now();
    let outcome = fake.run(3, wait_for(&fake.path("waiting")));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(outcome.stopped, Some(Stopped::Interrupted));
    assert_eq!(outcome.status, Status::Interrupted);
    let usable: Vec<bool> = outcome.blocks.iter().map(|(_, block)| block.usable().is_some()).collect();
    assert_eq!(usable, [true, false]);
    assert!(outcome.blocks[1].1.record.is_some());
}

#[test]
fn a_block_that_is_over_when_its_client_would_be_stopped_counts() {
    let late = "[ $(wc -l < \"$here/arguments\") -eq 1 ] && { write; exit 0; }
: > \"$here/waiting\"; sleep 0.2; write";
    let fake = Fake::new(late);
    let outcome = fake.run(3, wait_for(&fake.path("waiting")));
    assert_eq!((outcome.stopped, outcome.blocks.len()), (Some(Stopped::Interrupted), 2));
    for (_, block) in &outcome.blocks {
        assert!(block.usable().is_some() && block.failure.is_none(), "{:?}", block.failure);
    }
}

#[test]
fn a_flood_on_stderr_neither_blocks_the_client_nor_fills_memory() {
    let flood = "i=0; while [ $i -lt 20000 ]; do echo 'a line that is long enough to fill a pipe' >&2; i=$((i + 1)); done
echo last words >&2; exit 1";
    let outcome = Fake::new(flood).run(1, pending());
    let failure = outcome.blocks[0].1.failure.as_ref().unwrap();
    assert!(failure.ends_with("last words") && failure.len() < 6_000, "{} bytes", failure.len());
}
