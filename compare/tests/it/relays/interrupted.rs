//! Runs that their user ends amid a block.

use std::{
    fs,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use report::ResultFile;
use tempfile::TempDir;

use super::{COMPARE, own};
use crate::{
    common::{only_folder, relay_of},
    few::few_events,
    ran::send,
    scrape::{address, scrape},
};

/// What a run said, its table, its result and its JUnit file.
type Left = (String, String, ResultFile, String);

/// A run by its process, which leads a group.
fn pid(run: &Child) -> Pid {
    Pid::from_raw(i32::try_from(run.id()).unwrap())
}

/// Ends a run against a relay with a fault amid its first block, once events were delivered.
fn cut_short(end: impl FnOnce(&Child), fault: &str) -> Left {
    let out = TempDir::new().unwrap();
    let (results, junit) = (out.path().join("results"), out.path().join("junit.xml"));
    let mut run = Command::new(COMPARE)
        .args(["run", "--scenario", "note-stream", "--rounds", "1", "--seconds", "60", "--corpus"])
        .arg(few_events())
        .args(["--relay", &format!("{} --fault {fault}", own("old")), "--metrics-listen", "0", "--out"])
        .arg(&results)
        .arg("--junit")
        .arg(&junit)
        .args(["--", "--rate", "100"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let (address, lines) = address(run.stderr.take().unwrap());
    let said = thread::spawn(move || lines.collect::<Vec<_>>().join("\n"));
    let deadline = Instant::now() + Duration::from_secs(120);
    let mut before = None;
    loop {
        assert!(Instant::now() < deadline, "no delivery in the first block");
        // On a busy machine an answer may come too late.
        if let Some((blocks, deliveries)) = progress(&address)
            && blocks == 0
            && deliveries > *before.get_or_insert(deliveries)
        {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    end(&run);
    let status = run.wait().unwrap();
    let said = said.join().unwrap();
    assert_eq!(status.code(), Some(130), "{said}");
    let folder = only_folder(&results);
    let table = fs::read_to_string(folder.join("summary.md")).unwrap();
    (said, table, ResultFile::read(&folder).unwrap(), fs::read_to_string(junit).unwrap())
}

/// Blocks that ended and events that were delivered, as the metrics have them.
fn progress(address: &str) -> Option<(u64, u64)> {
    let text = scrape(address)?;
    let sum = |sample: &str| {
        let value = |line: &str| line.strip_prefix(sample)?.rsplit(' ').next()?.parse::<u64>().ok();
        text.lines().filter_map(value).sum()
    };
    Some((sum("nsim_blocks_total"), sum("nsim_deliveries_total")))
}

#[test]
fn a_block_that_ctrl_c_cut_short_is_interrupted_and_lost_nothing() {
    // What a relay will not send is, as long as a run lasts, like what is on its way.
    let (said, table, result, junit) = cut_short(|run| killpg(pid(run), Signal::SIGINT).unwrap(), "lose=20%");
    let text = format!("{said}\n{table}\n{junit}");
    for wrong in ["does not balance", "1 off", "invalid:", "1 of 1 blocks invalid", "<failure"] {
        assert!(!text.contains(wrong), "{wrong}: {text}");
    }
    assert!(table.contains("Incomplete: interrupted") && table.contains(", 1 interrupted."), "{table}");
    assert!(table.contains("json+none: interrupted\n"), "{table}");
    assert_eq!(junit.matches("no block was played to its end").count(), 2, "{junit}");
    let blocks: Vec<_> = result.cells.iter().flat_map(|cell| &cell.blocks).collect();
    let [block] = blocks[..] else { panic!("{} blocks", blocks.len()) };
    let record = block.record.as_ref().unwrap();
    assert!(
        record.status == measure::Status::Interrupted && record.counts.deliveries > 0,
        "{:?}",
        record.status
    );
    assert!(record.counts.balanced().is_err(), "{:?}", record.counts);
}

#[test]
fn a_relay_that_dies_while_its_user_ends_the_run_is_told_of() {
    let end = |run: &Child| {
        send(Signal::SIGKILL, relay_of(run.id()));
        killpg(pid(run), Signal::SIGINT).unwrap();
    };
    let (said, table, ..) = cut_short(end, "delay=1ms");
    assert!(table.contains(" ended before it was asked to: signal: 9"), "{said}\n{table}");
}
