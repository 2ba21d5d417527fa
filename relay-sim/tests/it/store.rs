//! The program with a store on disk: whole after a crash, and at work with a full disk.

use std::{collections::HashSet, path::Path, process::Command, thread, time::Duration};

use codecs::{Event, Format, RelayMessage};
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::{
    common::{Client, PATIENCE, event_json, note},
    processes::{Program, announced, announced_by, stop},
};

fn start(directory: &Path, more: &[&str]) -> Program {
    let directory = directory.to_str().unwrap();
    announced(&[&["--store", directory, "--verify", "none", "--max-limit", "100000"], more].concat())
}

/// Publishes events without waiting and returns the ids that were answered OK true, until the relay
/// is gone or all are answered; and the reasons of those that were refused.
async fn publish(
    Client { mut conn, .. }: Client,
    events: &[Event<'static>],
) -> (HashSet<[u8; 32]>, Vec<String>) {
    let (mut accepted, mut refused) = (HashSet::new(), Vec::new());
    for event in events {
        if conn.feed(format!(r#"["EVENT",{}]"#, event_json(event)).into()).await.is_err() {
            break;
        }
    }
    let _ = conn.flush().await; // the relay may be gone
    while accepted.len() + refused.len() < events.len() {
        let Ok(Some(Ok(message))) = tokio::time::timeout(PATIENCE, conn.next()).await else { break };
        match Format::JSON.spec().library.decode_relay(&message.payload).unwrap() {
            RelayMessage::Ok { id, accepted: true, .. } => _ = accepted.insert(id),
            RelayMessage::Ok { text, .. } => refused.push(text.into_owned()),
            other => panic!("{other:?}"),
        }
    }
    (accepted, refused)
}

/// The ids of all stored notes.
async fn stored(url: &str) -> HashSet<[u8; 32]> {
    let mut client = Client::json(url).await;
    client.send_bytes(br#"["REQ","a",{"kinds":[1],"limit":100000}]"#.to_vec()).await;
    let mut ids = HashSet::new();
    loop {
        let message = tokio::time::timeout(PATIENCE, client.conn.next()).await.unwrap().unwrap().unwrap();
        match Format::JSON.spec().library.decode_relay(&message.payload).unwrap() {
            RelayMessage::Event { event, .. } => assert!(ids.insert(event.id)),
            _ => return ids,
        }
    }
}

/// A note that no other call makes; its id is no hash.
fn unsigned(round: u32, n: u32) -> Event<'static> {
    let mut id = [7; 32];
    id[..4].copy_from_slice(&round.to_be_bytes());
    id[4..8].copy_from_slice(&n.to_be_bytes());
    Event { id, content: "x".repeat(200 + n as usize % 300).into(), ..note(0, i64::from(n)) }
}

/// Kills the relay in the midst of writes, starts it anew and looks for all that it acknowledged.
async fn kill(rounds: u32) {
    const EVENTS: u32 = 2_000;
    let directory = tempfile::tempdir().unwrap();
    let mut random = StdRng::seed_from_u64(rounds.into());
    let mut acknowledged = HashSet::new();
    let mut cut_short = 0;
    for round in 0..rounds {
        let (mut child, url, _stdout) = start(directory.path(), &["--at-rest", "dannypack"]);
        let missing = acknowledged.difference(&stored(&url).await).count();
        assert_eq!(missing, 0, "round {round}: of {} acknowledged events", acknowledged.len());
        let events: Vec<_> = (0..EVENTS).map(|n| unsigned(round, n)).collect();
        let client = Client::json(&url).await;
        let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
        let after = Duration::from_millis(random.random_range(1..150));
        let killer = thread::spawn(move || {
            thread::sleep(after);
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        });
        let (accepted, refused) = publish(client, &events).await;
        killer.join().unwrap();
        child.wait().unwrap();
        assert_eq!(refused, [""; 0]);
        cut_short += u32::from(accepted.len() < events.len());
        acknowledged.extend(accepted);
    }
    let (child, url, stdout) = start(directory.path(), &[]);
    let missing = acknowledged.difference(&stored(&url).await).count();
    eprintln!(
        "{rounds} kills, {cut_short} amid writes: {} acknowledged, {missing} missing",
        acknowledged.len()
    );
    assert_eq!(missing, 0);
    assert!(cut_short > 0 && !acknowledged.is_empty(), "{cut_short} kills came amid writes");
    stop(child, stdout);
}

#[tokio::test]
async fn what_was_acknowledged_survives_kill_9() {
    kill(8).await;
}

#[tokio::test]
#[ignore = "needs seven minutes: 100 kills"]
async fn campaign_what_was_acknowledged_survives_100_kills() {
    kill(100).await;
}

#[tokio::test]
async fn a_full_disk_refuses_events_and_serves_the_others() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let mut command = Command::new("sh");
    // Blocks of 512 bytes. The signal's default would end the relay where a full disk does not.
    let script = "trap '' XFSZ && ulimit -f 8192 && exec \"$0\" \"$@\"";
    command.args(["-c", script, env!("CARGO_BIN_EXE_relay-sim")]);
    let args = ["--store", path, "--verify", "none", "--max-limit", "100000"];
    let (child, url, stdout) = announced_by(command, &args);
    let mut acknowledged = HashSet::new();
    let mut refusals = Vec::new();
    for round in 0..20 {
        let events: Vec<_> = (0..1_000).map(|n| unsigned(round, n)).collect();
        let (accepted, refused) = publish(Client::json(&url).await, &events).await;
        assert_eq!(accepted.len() + refused.len(), events.len(), "every event is answered");
        acknowledged.extend(accepted);
        refusals.extend(refused);
        if round > 0 && refusals.len() > 1_500 {
            break;
        }
    }
    assert!(!acknowledged.is_empty() && !refusals.is_empty(), "{} {}", acknowledged.len(), refusals.len());
    assert!(
        refusals.iter().all(|text| text.starts_with("error: ") && text.contains("--store")),
        "{:?}",
        refusals[0]
    );
    assert_eq!(stored(&url).await, acknowledged, "the relay still serves");
    stop(child, stdout);
    let (child, url, stdout) = start(directory.path(), &[]);
    assert_eq!(stored(&url).await, acknowledged, "and finds the same again");
    stop(child, stdout);
}
