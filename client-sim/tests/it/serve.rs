//! A process serves the relay of a plan whose shares others play, and reads what it spends.

use std::{
    iter,
    net::TcpListener,
    time::{Duration, Instant},
};

use measure::{Merge, MergeError, RelayRecord, RunRecord, Status};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::{
    agent::{Agent, start_all},
    common::program,
    few::few_events,
    ran::{Runs, send},
};

/// Plays notes for two seconds with these flags, with a record of this name.
fn start(folder: &TempDir, name: &str, flags: &[&str]) -> Agent {
    let mut command = program();
    command.args(["--scenario", "note-stream", "--seed", "7", "--seconds", "2", "--rate", "60"]);
    command.args(["--block-id", "a", "--quiet", "--corpus"]).arg(few_events());
    Agent::start(command.args(flags), folder.path().join(name))
}

/// An address that was free a moment ago.
fn free() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Two players and their relay, ready for the start.
fn prepared(folder: &TempDir, address: &str, settings: &[&str]) -> (Agent, [Agent; 2]) {
    let mut server = start(folder, "relay", &[&["--serve", address], settings].concat());
    let said = server.prepared();
    let url = said["url"].as_str().unwrap().to_owned();
    assert_eq!(url, format!("ws://{address}"));
    let players = ["0/2", "1/2"].map(|share| {
        let flags = ["--share", share, "--relay-at", &url];
        start(folder, &share.replace('/', "-"), &[&flags, settings].concat())
    });
    let players = players.map(|mut player| {
        assert_eq!(player.prepared()["plan_sha256"], said["plan_sha256"], "one plan");
        player
    });
    (server, players)
}

/// Plays a block, and returns the records of the players and of the relay.
fn play(address: &str, settings: &[&str]) -> (Vec<RunRecord>, RelayRecord) {
    let folder = TempDir::new().unwrap();
    let (mut server, mut players) = prepared(&folder, address, settings);
    start_all(iter::once(&mut server).chain(&mut players));
    for player in players {
        player.end().ran.measured();
    }
    server.say("stop\n");
    server.end().ran.ended(0);
    let record = |name: &str| RunRecord::read(&folder.path().join(name)).unwrap();
    (vec![record("0-2"), record("1-2")], RelayRecord::read(&folder.path().join("relay")).unwrap())
}

fn merged(records: Vec<RunRecord>, relay: &RelayRecord) -> Result<RunRecord, MergeError> {
    let mut merge = Merge::default();
    records.into_iter().try_for_each(|record| merge.add(record))?;
    merge.finish_with(relay)
}

#[test]
fn a_served_relay_is_part_of_the_record_of_its_players() {
    // The same address for each block, as players must be told it before.
    let address = free();
    let cases: [&[&str]; 2] = [&["--verify", "id"], &["--verify", "id", "--floor"]];
    for settings in cases {
        let (records, relay) = play(&address, settings);
        let alone = RunRecord::merge(records.clone()).unwrap();
        assert_eq!((&alone.relay, alone.relay_cpu), (&None, None), "no player may read it");
        let merged = merged(records.clone(), &relay).unwrap();
        assert_eq!((merged.counts.balanced(), &merged.status), (Ok(()), &Status::Complete));
        assert!(merged.counts.acked >= 100 && merged.counts.deliveries > 0, "{:?}", merged.counts);
        let process = merged.relay.as_ref().unwrap();
        assert_eq!((process.software.as_str(), process.own), ("relay-sim", true));
        assert_eq!(process.environment, None, "players and relay have one machine");
        assert!(process.written_bytes.is_some() && process.stored_bytes.is_none(), "{process:?}");
        let cpu = merged.relay_cpu.unwrap();
        assert!(cpu.total_ns > 1_000_000 && cpu.total_ns < 2 * merged.elapsed_ns, "{cpu:?}");
        assert_eq!(merged.usable_cores.unwrap().relay, Some(1));
        let memory = merged.memory.unwrap();
        assert!(memory.relay_peak_bytes >= memory.relay_after_bytes && memory.relay_after_bytes.is_some());
        assert_eq!((merged.cell.verify.as_str(), merged.cell.reencode.as_str()), ("id", "always"));
        let encoded = merged.encodings.map(|encodings| encodings.cached + encodings.cold);
        let is_floor = settings.contains(&"--floor");
        assert_eq!((process.is_floor, encoded.is_none()), (is_floor, is_floor), "it counts nothing");
        assert!(encoded.is_none_or(|encoded| encoded >= merged.counts.deliveries), "{encoded:?}");
        assert_eq!((&merged.cell, &merged.latency), (&alone.cell, &alone.latency));
        if !is_floor {
            the_part_of_another_relay_makes_no_record(&records, &relay);
        }
    }
}

fn the_part_of_another_relay_makes_no_record(records: &[RunRecord], relay: &RelayRecord) {
    let merge = |change: fn(&mut RelayRecord)| {
        let mut relay = relay.clone();
        change(&mut relay);
        merged(records.to_vec(), &relay)
    };
    type Change = fn(&mut RelayRecord);
    let refused: [(Change, &str); 6] = [
        (|relay| relay.block_id = Some("b".to_owned()), "differs from the agents': block_id"),
        (|relay| relay.plan_sha256 = "00".to_owned(), "differs from the agents': plan_sha256"),
        (|relay| relay.tool.version = "0".to_owned(), "differs from the agents': tool"),
        (|relay| relay.cores = u64::MAX, "counts more than 2^48 of something"),
        (|relay| relay.process.written_bytes = Some(u64::MAX), "counts more than 2^48 of something"),
        (
            |relay| relay.process.faults = vec!["a".repeat(1 << 10); 17],
            "has more than 16 KiB of reasons and machine",
        ),
    ];
    for (change, why) in refused {
        assert_eq!(merge(change).unwrap_err().to_string(), format!("the relay's part {why}"));
    }
    let late = merge(|relay| relay.cpu = measure::CpuReadings::default()).unwrap();
    assert_eq!(late.relay_cpu, None, "unknown, and not zero");
    let elsewhere = merge(|relay| relay.environment.kernel = Some("another".to_owned())).unwrap();
    let machine = elsewhere.relay.unwrap().environment.unwrap();
    assert_eq!(machine.kernel.as_deref(), Some("another"));
    let busy = merge(|relay| relay.cpu_pressure_percent = Some(99.0)).unwrap().validity;
    assert!(busy.blames_host() && busy.to_string().contains("the relay's host: host busy: "));
}

#[test]
fn a_relay_whose_players_all_end_early_is_part_of_their_record() {
    let folder = TempDir::new().unwrap();
    let (mut server, mut players) = prepared(&folder, &free(), &[]);
    start_all(iter::once(&mut server).chain(&mut players));
    std::thread::sleep(Duration::from_millis(1_300));
    for mut player in players {
        player.say("stop\n");
        player.end().ran.ended(5);
    }
    server.say("stop\n");
    server.end().ran.ended(0);
    let records = ["0-2", "1-2"].map(|name| RunRecord::read(&folder.path().join(name)).unwrap());
    let relay = RelayRecord::read(&folder.path().join("relay")).unwrap();
    let merged = merged(records.to_vec(), &relay).unwrap();
    assert!(matches!(merged.status, Status::Incomplete { .. }), "{:?}", merged.status);
    assert!(merged.relay_cpu.is_some_and(|cpu| cpu.total_ns > 0), "{:?}", merged.relay_cpu);
}

#[test]
fn a_relay_that_is_lost_or_stopped_before_the_start_leaves_no_part() {
    type Loss = fn(&mut Agent);
    // The start is 700 ms ahead; before it a player has no record.
    let losses: [(Loss, u64, &str, i32); 3] = [
        (
            |server| send(Signal::SIGKILL, measure::children(server.child.id())[0]),
            1_300,
            "the relay was lost: the relay's process",
            5,
        ),
        (|server| server.say("stop\n"), 100, "stopped before the start: the coordinator said stop", 1),
        (|server| server.stdin = None, 100, "stopped before the start: standard input ended", 1),
    ];
    for (lose, after_ms, says, of_players) in losses {
        let (folder, address) = (TempDir::new().unwrap(), free());
        let (mut server, mut players) = prepared(&folder, &address, &[]);
        start_all(iter::once(&mut server).chain(&mut players));
        std::thread::sleep(Duration::from_millis(after_ms));
        let since = Instant::now();
        lose(&mut server);
        server.end().ran.ended(1).saying(&[says]);
        assert!(since.elapsed() < Duration::from_secs(3), "{:?}", since.elapsed());
        assert!(!folder.path().join("relay").exists());
        for player in players {
            player.end().ran.ended(of_players);
        }
        TcpListener::bind(&address).expect("nobody listens there any more");
    }
}

#[test]
fn a_relay_whose_agent_falls_silent_stops_amid_the_plan() {
    let (folder, address) = (TempDir::new().unwrap(), free());
    let (mut server, mut players) = prepared(&folder, &address, &[]);
    start_all(iter::once(&mut server).chain(&mut players));
    server.say("on\n");
    let silent = Instant::now();
    server.end().ran.ended(0);
    assert!(silent.elapsed() <= Duration::from_secs(2), "{:?}", silent.elapsed());
    for player in players {
        player.end().ran.ended(5);
    }
    TcpListener::bind(&address).expect("nobody listens there any more");
}

#[test]
fn a_served_relay_needs_a_seed_a_record_and_no_other_relay() {
    let serve = ["--scenario", "note-stream", "--serve", "127.0.0.1:1"];
    let cases: [(&[&str], &str); 5] = [
        (&["--record", "x"], "--seed"),
        (&["--seed", "1"], "--record"),
        (&["--seed", "1", "--record", "x", "--url", "ws://127.0.0.1:1"], "--url"),
        (&["--seed", "1", "--record", "x", "--share", "0/1"], "--share"),
        (&["--seed", "1", "--record", "x", "--link", "4g"], "--link"),
    ];
    for (flags, says) in cases {
        program().args(serve).args(flags).ran().ended(2).saying(&[says]);
    }
}
