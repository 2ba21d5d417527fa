//! The relay that a run starts by itself, and the addresses at which agents reach relays.

use std::{fs, io::Read, net::TcpListener, time::Duration};

use nix::sys::signal::Signal;
use serde_json::Value;

use super::site::{Process, but, free, site, site_of, write_mixed};
use crate::{
    common::{compare, relay_of},
    help::words,
    ran::{Runs, send},
};

#[test]
#[ignore = "needs nats-server"]
fn without_a_relay_the_coordinator_starts_one_for_each_block_over_nats() {
    let (site, address) = (site(), free());
    let target = format!("ws://{address}");
    let mut agents =
        [0, 1].map(|index| site.player(index, 2, &["--allow-target", &target, "--max-rate", "50"]));
    let flags = ["--relay-listen", &address, "--batching", "off,on:ms=2:n=9", "--verify", "id"];
    site.run_with(2, 1, &flags).ran().measured();
    let records = site.records();
    let roles: Vec<&str> = records.iter().map(|(cell, _)| cell["role"].as_str().unwrap()).collect();
    assert!(["anchor", "control", "floor", "cell"].iter().all(|role| roles.contains(role)), "{roles:?}");
    for (cell, record) in &records {
        assert_eq!((record.agents.len(), record.counts.balanced()), (2, Ok(())), "{cell:#}");
        assert!(record.counts.acked >= 50, "{:?}", record.counts);
        assert!(record.relay_cpu.is_some_and(|cpu| cpu.total_ns > 0), "{:?}", record.relay_cpu);
        assert_eq!(record.usable_cores.unwrap().relay, Some(1), "without it no cell is saturated");
        assert!(record.memory.unwrap().relay_peak_bytes.is_some());
        let relay = record.relay.as_ref().unwrap();
        let is_floor = cell["role"] == "floor";
        assert_eq!((relay.own, relay.is_floor), (true, is_floor));
        assert_eq!((record.encodings.is_none(), record.cell.verify.as_str()), (is_floor, "id"));
        let batching =
            if cell["id"].as_str().unwrap().contains(".batched") { "ms=2 n=9 bytes=65536" } else { "none" };
        assert_eq!(record.cell.batching, batching);
    }
    let pids: Vec<_> = records.iter().map(|(_, record)| record.relay.as_ref().unwrap().pid).collect();
    assert!(pids.iter().all(|pid| pids.iter().filter(|one| *one == pid).count() == 1), "a relay a block");
    let text = fs::read_to_string(site.result_folder().join("derived.json")).unwrap();
    let derived: Value = serde_json::from_str(&text).unwrap();
    for cell in derived["cells"].as_array().unwrap() {
        // A busy machine may leave no block to tell times from.
        let is_known = cell["usable_blocks"] == 0 || cell["utilisation"]["relay"].is_number();
        assert!(is_known, "{cell:#}");
    }
    for agent in &mut agents {
        assert_eq!(agent.end(Duration::from_secs(5)), Some(0));
    }
    assert!(!site.result_folder().join("running").exists(), "no record is left over");
}

#[test]
#[ignore = "needs nats-server"]
fn an_agent_on_a_machine_of_its_own_starts_the_relay_of_a_day_of_many_kinds_over_nats() {
    let (site, address) = (site_of(write_mixed), free());
    let (_, port) = address.rsplit_once(':').unwrap();
    // Another name for the address, as where it is behind a service.
    let url = format!("ws://localhost:{port}");
    let player = |index| site.player(index, 3, &["--allow-target", &url]);
    let host = site.attend(3, &["--relay-listen", &address, "--relay-url", &url]);
    let mut agents = [host, player(0), player(1), player(2)];
    let mut run = but(&site.run_with(3, 1, &["--relay-agents", "1"]), "--scenario", "mixed-day".as_ref());
    run.ran().measured();
    for (cell, record) in site.records() {
        assert_eq!((record.agents.len(), record.counts.balanced()), (3, Ok(())), "{cell:#}");
        let counts = record.counts;
        assert_eq!((counts.rejected, counts.requests_failed, counts.timed_out), (0, 0, 0), "{cell:#}");
        assert!(counts.acked > 20 && counts.deliveries > 0 && counts.requests_completed > 0, "{counts:?}");
        assert!(record.relay_cpu.is_some_and(|cpu| cpu.total_ns > 0) && record.relay.unwrap().own);
    }
    for agent in &mut agents {
        assert_eq!(agent.end(Duration::from_secs(5)), Some(0));
    }
}

#[test]
#[ignore = "needs nats-server"]
fn a_relay_that_is_killed_ends_the_run_without_a_result_over_nats() {
    let (site, address) = (site(), free());
    let target = format!("ws://{address}");
    let mut agents = [0, 1].map(|index| site.player(index, 2, &["--allow-target", &target]));
    let mut coordinator = Process(site.run_with(2, 20, &["--relay-listen", &address]).spawn().unwrap());
    site.reaches("running");
    send(Signal::SIGKILL, relay_of(coordinator.0.id()));
    for agent in &mut agents {
        assert_eq!(agent.end(Duration::from_secs(3)), Some(5));
    }
    assert_eq!(coordinator.end(Duration::from_secs(8)), Some(5));
    let results = fs::read_dir(site.folder.path().join("results")).unwrap();
    let whole = results.filter(|folder| folder.as_ref().unwrap().path().join("result.json").exists());
    assert_eq!(whole.count(), 0, "nothing looks whole");
    let mut text = String::new();
    coordinator.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(
        text.contains("the run over agents was aborted") && text.contains("the relay was lost"),
        "{text}"
    );
    TcpListener::bind(&address).expect("nothing of it is left");
}

#[test]
fn no_password_travels_to_agents() {
    let secret = "ws://me:s3cret@127.0.0.1:1";
    let cases: [&[&str]; 3] = [
        &["run", "--agents", "1", "--relay-listen", "127.0.0.1:1", "--relay-url", secret],
        &["run", "--agents", "1", "--url", secret],
        &["agent", "--of", "1", "--relay-listen", "127.0.0.1:1", "--relay-url", secret],
    ];
    for flags in cases {
        let output = compare().args(flags).args(["--nats", "nats://127.0.0.1:1"]).ran().ended(2);
        let output = output.saying(&["leave out its user and password"]);
        assert!(!output.said.contains("s3cret"), "{output}");
    }
    let share =
        words("role:client --scenario note-stream --seed 1 --record x --serve 127.0.0.1:0 --relay-at");
    let served = compare().args(share).arg(secret).ran().ended(2).saying(&["leave out"]);
    assert!(!served.said.contains("s3cret"), "{served}");
}

#[test]
fn agents_are_given_no_file_with_invalid_events() {
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("bad.jsonl");
    fs::write(&bad, "{}\n").unwrap();
    let run =
        ["run", "--agents", "1", "--relay-listen", "127.0.0.1:1", "--nats", "nats://127.0.0.1:1", "--corpus"];
    for (flags, says) in [(&["--skip-invalid"][..], "`corpus convert --skip-invalid`"), (&[], "line 1")] {
        compare().args(run).arg(&bad).args(flags).current_dir(&folder).ran().ended(2).saying(&[says]);
    }
}

#[test]
fn an_address_that_agents_cannot_reach_is_refused_before_anything_is_measured() {
    let cases: [(&[&str], &str); 6] = [
        (&["run", "--agents", "1", "--relay-listen", "0.0.0.0:7777"], "--relay-url"),
        (&["run", "--agents", "1", "--relay-listen", "127.0.0.1:0"], "port 0"),
        (&["run", "--agents", "1", "--relay-listen", "127.0.0.1:1", "--url", "ws://127.0.0.1:1"], "--url"),
        (&["run", "--agents", "1", "--relay-agents", "1", "--relay-listen", "127.0.0.1:1"], "--relay-agents"),
        (&["run", "--agents", "1", "--rates", "auto"], "--rates"),
        (&["agent", "--of", "1", "--relay-listen", "0.0.0.0:7777"], "--relay-url"),
    ];
    for (flags, says) in cases {
        compare().args(flags).args(["--nats", "nats://127.0.0.1:1"]).ran().ended(2).saying(&[says]);
    }
    let elsewhere = ["run", "--agents", "1", "--nats", "nats://192.0.2.1:4222"];
    compare().args(elsewhere).ran().saying(&["--relay-listen ADDRESS:PORT"]);
}
