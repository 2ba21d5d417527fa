//! A loss of the server or the coordinator. Agents that are killed or stopped are in
//! the tests of `compare`, whose agents are processes.

use std::time::{Duration, Instant};

use agents::{Left, Phase};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::time::sleep;

use crate::site::{agent, agents, attendance, block, finish, nats, open, play, reaches};

/// Plays a block of 20 s of three agents and ends the server after its start.
async fn loses_the_server(by: Signal) {
    let nats = nats("");
    let agents = agents(&nats.url, "run", 3);
    let run = open(&nats.url, "run", 3).await.unwrap();
    run.ready().await.unwrap();
    let losing = async {
        reaches(&run, |run| run.state == Phase::Running).await;
        sleep(Duration::from_millis(500)).await;
        kill(Pid::from_raw(nats.process.0.id().try_into().unwrap()), by).unwrap();
        let lost = Instant::now();
        reaches(&run, |run| run.state == Phase::Aborted).await;
        // Silence takes 600 ms, what is closed less: the rest is for a busy host.
        let known = lost.elapsed();
        assert!(known <= Duration::from_secs(1), "{by}: known after {known:?}");
        for agent in agents {
            let left = agent.await.unwrap().unwrap();
            assert!(matches!(left, Left::Stopped(_)), "{by}: {left:?}");
        }
        let stopped = lost.elapsed();
        assert!(stopped <= Duration::from_millis(2_200), "{by}: all stopped after {stopped:?}");
    };
    let ((), (aborted, arrived)) = tokio::join!(losing, play(&run, block(200)));
    let reason = aborted.unwrap_err().reason;
    let named = if by == Signal::SIGKILL { "the NATS server" } else { "agent " };
    assert!(reason.contains(named) && reason.contains("lost"), "{by}: {reason}");
    assert!(arrived.is_empty(), "{by}: {arrived:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs nats-server"]
async fn a_server_that_is_killed_or_stopped_stops_all_within_a_second_over_nats() {
    tokio::join!(loses_the_server(Signal::SIGKILL), loses_the_server(Signal::SIGSTOP));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn a_coordinator_that_is_gone_stops_its_agents_over_nats() {
    let nats = nats("");
    let all = agents(&nats.url, "run", 2);
    let run = open(&nats.url, "run", 2).await.unwrap();
    run.ready().await.unwrap();
    finish(run, all).await;
    let waiting = agent(attendance(&nats.url, "run", 0, 2));
    let run = open(&nats.url, "run", 2).await.unwrap();
    reaches(&run, |run| run.agents[0].is_some()).await;
    drop(run);
    let left = waiting.await.unwrap().unwrap();
    assert_eq!(left, Left::Stopped("the coordinator was stopped".to_owned()));
}
