//! Runs over a real NATS server: what is played together, what a loss does, who is refused.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod events;
mod losses;
mod nats;
mod site;

use std::time::Duration;

use agents::{Attendance, NatsError, Phase, Play, coordinate};
use tokio::time::sleep;

use crate::site::{
    agent, agents, attendance, block, finish, nats, open, open_with_relay, play, reaches, records, server,
    spec,
};

const EXAMPLE: &str = include_str!("../../nats-server.conf");

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn blocks_of_two_runs_at_once_start_together_and_every_record_comes_once_over_nats() {
    let nats = nats("");
    let play = async |name, of, blocks| {
        let agents = agents(&nats.url, name, of);
        let run = open(&nats.url, name, of).await.unwrap();
        run.ready().await.unwrap();
        for _ in 0..blocks {
            let (records, clocks) = records(&run, block(1)).await;
            assert_eq!(records.len(), usize::from(of));
            // All of them have this machine's clock, whose offset from itself is 0.
            let starts: Vec<u64> = records.iter().map(|record| record["at_ns"].as_u64().unwrap()).collect();
            let bound_ns = clocks.iter().map(|clock| clock.start_bound_ns).max().unwrap();
            let spread_ns = starts.iter().max().unwrap() - starts.iter().min().unwrap();
            assert!(spread_ns <= 2 * bound_ns && bound_ns <= 5_000_000, "{spread_ns} {bound_ns}");
            assert!(clocks.iter().all(|clock| clock.drift_ns.unsigned_abs() <= clock.drift_bound_ns));
        }
        finish(run, agents).await;
    };
    let few = async {
        play("few", 1, 1).await;
        // The name is free again when a run has ended.
        play("few", 2, 1).await;
    };
    tokio::join!(few, play("many", 7, 2));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn who_watches_sees_the_run_and_the_sums_of_all_agents_over_nats() {
    let nats = nats("");
    let run = open(&nats.url, "run", 3).await.unwrap();
    let mut agents = vec![agent(attendance(&nats.url, "run", 1, 3))];
    reaches(&run, |run| run.agents == [None, Some(Phase::Claimed), None]).await;
    assert_eq!(run.overview().state, Phase::Open);
    agents.extend([0, 2].map(|index| agent(attendance(&nats.url, "run", index, 3))));
    run.ready().await.unwrap();
    for _ in 0..2 {
        let running = reaches(&run, |run| {
            let counts = (run.block.connections, run.block.sent);
            run.state == Phase::Running && counts == (9, 30) && run.agents == [Some(Phase::Running); 3]
        });
        tokio::join!(records(&run, block(10)), running);
        // The last counts are there before the block is.
        let seen = run.overview();
        assert_eq!((seen.state, seen.block.connections, seen.block.sent), (Phase::Merged, 0, 300));
    }
    finish(run, agents).await;
}

/// Why an agent takes no part.
async fn refused(attendance: Attendance) -> String {
    match agent(attendance).await.unwrap() {
        Err(NatsError::Refused(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn who_does_not_belong_to_the_run_is_refused_over_nats() {
    let nats = nats("");
    assert!(refused(attendance(&nats.url, "run", 3, 2)).await.contains("no agent 3 of 2"));
    let run = open(&nats.url, "run", 2).await.unwrap();
    let first = agent(attendance(&nats.url, "run", 0, 2));
    reaches(&run, |run| run.agents[0].is_some()).await;
    assert!(refused(attendance(&nats.url, "run", 0, 2)).await.contains("holds the slot"));
    let mut other = attendance(&nats.url, "run", 1, 2);
    other.policy.identity.program_sha256 = "other".to_owned();
    assert!(refused(other).await.contains("program_sha256"));
    let mut elsewhere = attendance(&nats.url, "run", 1, 2);
    elsewhere.policy.targets = vec!["wss://relay.example".parse().unwrap()];
    let second = agent(elsewhere);
    run.ready().await.unwrap();
    assert!(refused(attendance(&nats.url, "run", 1, 2)).await.contains("holds the slot"));
    let again = open(&nats.url, "run", 2).await.unwrap_err();
    assert!(matches!(again, NatsError::Taken(_)), "a coordinator started twice: {again}");
    // The target that the second agent does not allow.
    let aborted = play(&run, block(1)).await.0.unwrap_err();
    assert!(aborted.reason.contains("agent 1: ") && aborted.reason.contains("target"), "{aborted}");
    for agent in [first, second] {
        assert!(matches!(agent.await.unwrap().unwrap(), agents::Left::Stopped { .. }));
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn whatever_is_no_message_does_no_harm_over_nats() {
    let nats = nats("");
    let agents = agents(&nats.url, "run", 1);
    let spec = spec("run", 1);
    let named = format!("nsim.v1.run.{:016x}", spec.nonce);
    let run = coordinate(server(&nats.url), spec, None).await.unwrap();
    run.ready().await.unwrap();
    let client = async_nats::connect(&nats.url).await.unwrap();
    let disturbing = async {
        for garbage in ["", "{", "[]", "{\"leave\":7}", "\"ping\"", &"x".repeat(500_000)] {
            for subject in ["agent.0", "claim.0", "claim.9", "claim.x", "claim.-1"] {
                let request = async_nats::Request::new().payload(garbage.to_owned().into());
                let request = request.timeout(Some(Duration::from_millis(20)));
                let _ = client.send_request(format!("{named}.{subject}"), request).await;
            }
        }
    };
    tokio::join!(records(&run, block(20)), disturbing);
    finish(run, agents).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn an_agent_needs_no_more_than_the_rights_in_the_example_over_nats() {
    let nats = nats(EXAMPLE);
    let url = |user: &str| nats.url.replace("nats://", &format!("nats://{user}:{user}-secret@"));
    let agents = vec![
        agent(attendance(&url("agent-0"), "run", 0, 2)),
        agent(attendance(&url("agent-1"), "run", 1, 2)),
        // As a coordinator that starts the relay on its own machine.
        agent(attendance(&url("coordinator"), "run", 2, 2)),
    ];
    let run = open_with_relay(&url("coordinator"), "run", 2).await;
    run.ready().await.unwrap();
    // An agent cannot claim the slot of another, nor another run, and is told so.
    let others = agent(attendance(&url("agent-1"), "run", 0, 2)).await.unwrap().unwrap_err();
    assert!(
        matches!(&others, NatsError::Denied(what) if what.contains("agent.0") || what.contains("claim.0")),
        "{others}"
    );
    let other = agent(attendance(&url("agent-1"), "other", 1, 2)).await.unwrap().unwrap_err();
    assert!(matches!(&other, NatsError::Denied(what) if what.contains("nsim.v1.other.look")), "{other}");
    let without_a_name = open(&nats.url, "other", 1).await.unwrap_err();
    assert!(matches!(without_a_name, NatsError::Connect { is_final: true, .. }), "{without_a_name}");
    records(&run, Play { url: None, starts_relay: true, ..block(1) }).await;
    finish(run, agents).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn a_server_whose_messages_are_too_short_is_named_with_its_limit_over_nats() {
    let nats = nats("max_payload: 64KB");
    let error = open(&nats.url, "run", 1).await.unwrap_err().to_string();
    assert!(error.contains("messages of 65536 bytes") && error.contains("max_payload: 1MB"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn whoever_comes_before_the_server_waits_for_it_over_nats() {
    let stopped = nats("");
    let url = stopped.url.clone();
    drop(stopped);
    let agents = agents(&url, "run", 1);
    let opening = tokio::spawn({
        let url = url.clone();
        async move { open(&url, "run", 1).await }
    });
    sleep(Duration::from_millis(500)).await;
    let (_, port) = url.rsplit_once(':').unwrap();
    let _nats = site::nats_at(port, "");
    let run = opening.await.unwrap().unwrap();
    run.ready().await.unwrap();
    finish(run, agents).await;
}
