//! Runs that end early: a killed or stopped agent, a killed or interrupted coordinator.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use measure::Status;
use nix::sys::signal::Signal;
use report::ResultFile;

use super::site::{Process, site};
use crate::{
    common::compare,
    ran::{Runs, send},
};

#[test]
#[ignore = "needs nats-server"]
fn an_agent_lost_after_a_block_that_counts_leaves_that_block_alone_over_nats() {
    let site = site();
    let (mut first, mut second) = (site.agent(0, 2, &[]), site.agent(1, 2, &[]));
    let mut run = Process(site.run(2, 2).arg("--keep-agent-records").spawn().unwrap());
    // Of the first block, then of the second: each waits for its start as armed, for longer than a
    // look at the state takes.
    for state in ["running", "armed", "running"] {
        site.reaches(state);
    }
    second.0.kill().unwrap();
    assert_eq!(first.end(Duration::from_millis(2_500)), Some(5));
    assert_eq!(run.end(Duration::from_secs(8)), Some(5));
    let folder = site.result_folder();
    let result = ResultFile::read(&folder).unwrap();
    let [anchor, control] = &result.cells[..] else { panic!("{:?}", result.cells) };
    let ([played], [lost]) = (&anchor.blocks[..], &control.blocks[..]) else { panic!("{:?}", result.cells) };
    let record = played.record.as_ref().unwrap();
    assert_eq!((record.agents.len(), record.counts.balanced()), (2, Ok(())));
    assert_eq!(record.status, Status::Complete);
    let failure = lost.failure.as_ref().unwrap();
    assert!(lost.record.is_none() && failure.contains("agent 1 is lost"), "{failure}");
    let names = fs::read_dir(folder.join("running")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    assert_eq!(names, ["000-000-json+none.agent-0.json", "000-000-json+none.agent-1.json"]);
    let warning = format!("warning: {0} is incomplete: the run over agents was aborted: ", folder.display());
    compare().arg("diff").args([&folder, &folder]).ran().saying(&[&warning]);
}

/// Processes that a process started and that have not ended, whether anybody waited for them or
/// not.
fn children(parent: &Process) -> usize {
    let lives = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Behind the name is the state (proc_pid_stat(5)).
        stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with('Z'))
    };
    measure::children(parent.0.id()).iter().filter(|pid| lives(pid)).count()
}

#[test]
#[ignore = "needs nats-server"]
fn a_stopped_agents_player_does_not_go_on_over_nats() {
    let site = site();
    let (mut first, mut second) = (site.agent(0, 2, &[]), site.agent(1, 2, &[]));
    let mut coordinator = Process(site.run(2, 20).spawn().unwrap());
    site.reaches("running");
    assert_eq!(children(&second), 1, "its player");
    send(Signal::SIGSTOP, second.0.id());
    let stopped = Instant::now();
    while children(&second) > 0 {
        // A second of silence, and time for an unoptimised player to write its record.
        let after = stopped.elapsed();
        assert!(after < Duration::from_millis(2_500), "its player loads the relay after {after:?}");
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(first.end(Duration::from_millis(2_500)), Some(5));
    assert_eq!(coordinator.end(Duration::from_secs(8)), Some(5));
    send(Signal::SIGCONT, second.0.id());
    assert_eq!(second.end(Duration::from_secs(5)), Some(5));
}

#[test]
#[ignore = "needs nats-server"]
fn a_killed_coordinator_leaves_nothing_that_looks_whole_over_nats() {
    let site = site();
    let mut agents = [site.agent(0, 2, &[]), site.agent(1, 2, &[])];
    let mut coordinator = Process(site.run(2, 20).spawn().unwrap());
    site.reaches("running");
    coordinator.0.kill().unwrap();
    assert_eq!(coordinator.end(Duration::from_secs(1)), None, "killed");
    for agent in &mut agents {
        assert_eq!(agent.end(Duration::from_millis(2_500)), Some(5));
    }
    assert!(!site.result_folder().join("result.json").exists());
    assert_eq!(fs::read_dir(site.result_folder().join("running")).unwrap().count(), 0);
    // Its name is free, also after an interrupted wait for agents.
    for _ in 0..2 {
        let mut again = Process(site.run(2, 1).spawn().unwrap());
        site.reaches("open");
        assert!(again.0.try_wait().unwrap().is_none(), "it waits, and does not say that the run is taken");
        send(Signal::SIGINT, again.0.id());
        assert_eq!(again.end(Duration::from_secs(5)), Some(1));
    }
}
