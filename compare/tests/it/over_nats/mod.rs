//! `compare run --agents` and `compare agent` as processes, over a real NATS server.

mod account;
mod events;
mod foreign;
mod losses;
#[path = "../../../../crates/agents/tests/over_nats/nats.rs"]
mod nats;
mod relay;
mod secure;
pub(crate) mod site;
mod watching;

use std::{fs, path::Path, process::Command, time::Duration};

use agents::{Commanded, Play, Player, Said};
use futures::future::join_all;
use measure::RunRecord;
use tokio::sync::{mpsc, watch};

use self::site::{Process, but, relay, site};
use crate::ran::Runs;

/// A coordinator's block for a player of `compare agent`.
fn batched_block(url: &str) -> Play {
    let word = |word: &str| word.to_owned();
    Play {
        url: url.parse().ok(),
        scenario: word("note-stream"),
        answers: word("{}"),
        cell: [("format", "cbor-packed"), ("compression", "zstd"), ("batching", "on"), ("verify", "unknown")]
            .map(|(name, value)| (word(name), word(value)))
            .into(),
        comparable_with: vec![word("json"), word("cbor-packed")],
        live: true,
        rate_per_s: Some(50),
        seed: 1,
        seconds: 2,
        block_id: word("7e"),
        ..Play::default()
    }
}

#[tokio::test]
async fn players_take_every_flag_of_a_block_and_their_records_make_one() {
    let (_relay, url) = relay(&[]);
    let block = batched_block(&url);
    let program = env!("CARGO_BIN_EXE_compare").into();
    let process = agents::Process { program, arguments: vec!["role:client".into()] };
    let (mut tell, mut heard, mut plays) = (Vec::new(), Vec::new(), Vec::new());
    for index in 0..2 {
        let (commands, told) = mpsc::channel(4);
        let (says, said) = watch::channel(Said::default());
        plays.push(process.play(Box::new(block.clone()), index, 2, told, says));
        tell.push(commands);
        heard.push(said);
    }
    let conduct = async {
        for said in &mut heard {
            said.wait_for(|said| said.facts.is_some()).await.unwrap();
        }
        assert_eq!(heard[0].borrow().facts, heard[1].borrow().facts);
        let at_ns = agents::now_ns() + 800_000_000;
        for commands in &tell {
            commands.send(Commanded::Start { at_ns }).await.unwrap();
        }
    };
    let (endings, ()) = tokio::join!(join_all(plays), conduct);
    let records = endings.into_iter().map(|ending| {
        let ending = ending.unwrap();
        // Allows 3: a busy machine may make the timing of a short run invalid, but never its
        // ledger.
        assert!(matches!(ending.exit_code, Some(0 | 3)), "{:?}", ending.exit_code);
        serde_json::from_slice::<RunRecord>(&ending.record).unwrap()
    });
    let records: Vec<RunRecord> = records.collect();
    let merged = RunRecord::merge(records.iter().cloned()).unwrap();
    let of_block = |record: &RunRecord| record.share.as_ref().unwrap().block_id.as_deref() == Some("7e");
    assert!(records.iter().all(of_block));
    for (record, said) in records.iter().zip(&heard) {
        let last = said.borrow().counts;
        assert_eq!((last.connections, last.deliveries), (0, record.counts.deliveries), "told to the end");
    }
    assert_eq!(merged.cell.batching, "by the relay");
    assert_eq!((merged.agents.len(), merged.counts.balanced()), (2, Ok(())));
    assert!(merged.counts.acked >= 50, "{:?}", merged.counts);
}

#[test]
#[ignore = "needs nats-server"]
fn an_agent_refuses_what_its_command_line_does_not_allow_over_nats() {
    let site = site();
    // A population that does not keep to --rates, beside one that does.
    let bursts = "[[publish]]\nconnections = 5\narrival = { shape = \"burst\", period_ms = 200 }\n";
    let stream = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scenarios/note-stream.toml");
    let file = site.folder.path().join("bursts.toml");
    fs::write(&file, fs::read_to_string(stream).unwrap() + bursts).unwrap();
    for (flag, most, scenario) in [
        ("--max-rate", "49", "note-stream".as_ref()),
        ("--max-rate", "50", file.as_os_str()),
        ("--max-connections", "1", "note-stream".as_ref()),
    ] {
        let mut agent = site.agent(0, 1, &[flag, most]);
        but(&site.run(1, 1), "--scenario", scenario).ran().ended(5);
        let results = fs::read_dir(site.folder.path().join("results")).unwrap();
        assert_eq!(results.count(), 0, "nothing was measured");
        assert_eq!(agent.end(Duration::from_secs(5)), Some(5));
    }
}

#[test]
#[ignore = "needs nats-server"]
fn clocks_seconds_apart_start_within_the_bound_over_nats() {
    let site = site();
    let mut agents = [("0", "4"), ("1", "-4")].map(|(index, seconds)| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--time", "--fork", &format!("--monotonic={seconds}")]);
        let agent = site.compare("agent");
        command.arg(agent.get_program()).args(agent.get_args());
        command.args(["--index", index, "--of", "2", "--allow-target", &site.relay]);
        Process(command.current_dir(site.folder.path()).spawn().unwrap())
    });
    site.run(2, 1).ran().measured();
    for (cell, record) in site.records() {
        assert_eq!((record.agents.len(), record.counts.balanced()), (2, Ok(())), "{cell:#}");
        for agent in &record.agents {
            // Without an offset it would refuse its start, or begin seconds late.
            assert!(agent.started_late_ns < 1_000_000_000, "{agent:?}");
            let clock = agent.clock.unwrap();
            assert!(clock.start_bound_ns <= 5_000_000, "{clock:?}");
            // All are one clock, which does not drift from itself.
            assert!(clock.drift_ns.unsigned_abs() <= clock.drift_bound_ns, "{clock:?}");
        }
    }
    for agent in &mut agents {
        assert_eq!(agent.end(Duration::from_secs(5)), Some(0));
    }
}
