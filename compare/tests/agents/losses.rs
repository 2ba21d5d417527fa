//! Runs that end early: a killed or stopped agent, a killed coordinator, an interrupted wait for
//! agents.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use corpus::Corpus;
use measure::{RunRecord, Status};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::site::{Process, said, site, site_of_bundled_events};

#[test]
#[ignore = "needs nats-server"]
fn a_lost_agent_ends_the_run_and_keeps_what_the_others_have_over_nats() {
    let site = site_of_bundled_events();
    let (mut first, mut second) = (site.agent(0, 2, &[]), site.agent(1, 2, &[]));
    let coordinator = Process(site.run(2, 20).spawn().unwrap());
    site.reaches("running");
    second.0.kill().unwrap();
    assert_eq!(first.end(Duration::from_millis(2_500)), Some(5));
    let mut coordinator = coordinator;
    assert_eq!(coordinator.end(Duration::from_secs(8)), Some(5));
    let running = site.result_folder().join("running");
    let kept: Vec<_> = fs::read_dir(running).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let kept: Vec<String> = kept.into_iter().map(|name| name.to_string_lossy().into_owned()).collect();
    assert!(matches!(&kept[..], [one] if one.ends_with(".agent-0.partial.json")), "{kept:?}");
    let text = fs::read_to_string(site.result_folder().join("running").join(&kept[0])).unwrap();
    let record: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(record["status"]["state"], "incomplete");
    assert_eq!(record["corpus"]["sha256"], Corpus::bundled().fingerprint.to_string());
    assert_eq!(second.end(Duration::from_secs(1)), None, "killed");
}

fn signal(process: &Process, signal: Signal) {
    kill(Pid::from_raw(process.0.id().try_into().unwrap()), signal).unwrap();
}

/// Processes that a process started and that have not ended, whether anybody waited for them or
/// not.
fn children(parent: &Process) -> usize {
    let parent = parent.0.id().to_string();
    let is_child = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // Behind the name are state and parent (proc_pid_stat(5)).
        let mut fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split(' ');
        fields.next() != Some("Z") && fields.next() == Some(parent.as_str())
    };
    let pids = fs::read_dir("/proc").unwrap();
    let pids = pids.filter_map(|entry| entry.unwrap().file_name().to_string_lossy().parse().ok());
    pids.filter(is_child).count()
}

#[test]
#[ignore = "needs nats-server"]
fn a_stopped_agents_player_does_not_go_on_over_nats() {
    let site = site();
    let (mut first, mut second) = (site.agent(0, 2, &[]), site.agent(1, 2, &[]));
    let mut coordinator = Process(site.run(2, 20).spawn().unwrap());
    site.reaches("running");
    assert_eq!(children(&second), 1, "its player");
    signal(&second, Signal::SIGSTOP);
    let stopped = Instant::now();
    while children(&second) > 0 {
        // A second of silence, and time for an unoptimised player to write its record.
        let after = stopped.elapsed();
        assert!(after < Duration::from_millis(2_500), "its player loads the relay after {after:?}");
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(first.end(Duration::from_millis(2_500)), Some(5));
    assert_eq!(coordinator.end(Duration::from_secs(8)), Some(5));
    signal(&second, Signal::SIGCONT);
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
    for index in 0..2 {
        let own = site.folder.path().join(format!("run-000-000.agent-{index}.partial.json"));
        let own = RunRecord::read(&own).unwrap();
        assert!(matches!(own.status, Status::Incomplete { .. }) && own.share.is_some(), "{:?}", own.status);
    }
    assert!(!site.result_folder().join("result.json").exists());
    assert_eq!(fs::read_dir(site.result_folder().join("running")).unwrap().count(), 0);
    let again = site.run(2, 1).output().unwrap();
    assert_eq!(again.status.code(), Some(1));
    assert!(
        said(&again).contains("its coordinator was killed") && said(&again).contains("take another --run")
    );
}

#[test]
#[ignore = "needs nats-server"]
fn an_interrupted_wait_for_agents_leaves_the_runs_name_free_over_nats() {
    let site = site();
    for _ in 0..2 {
        let mut coordinator = Process(site.run(1, 1).spawn().unwrap());
        site.reaches("open");
        assert!(
            coordinator.0.try_wait().unwrap().is_none(),
            "it waits, and does not say that the run is taken"
        );
        signal(&coordinator, Signal::SIGINT);
        assert_eq!(coordinator.end(Duration::from_secs(5)), Some(1));
    }
}
