//! A loss of an agent, the server or the coordinator.

use std::time::{Duration, Instant};

use agents::{Left, RunState, nats::Arrival};
use nix::sys::signal::Signal;
use tokio::time::{sleep, timeout};

use crate::site::{agent, agents, attendance, block, finished, nats, open, play, process};

/// Plays a block of 20 s with agents in processes, loses something after its start, and returns
/// how many partial records were kept.
async fn loses(signal: Signal, agent: Option<u16>) -> usize {
    let nats = nats(None);
    let mut agents: Vec<_> = (0..3).map(|index| process(&nats.url, "run", index, 3, &[])).collect();
    let run = open(&nats.url, "run", 3).await.unwrap();
    run.ready().await.unwrap();
    let mut overview = run.overview();
    let losing = async {
        let running = overview.wait_for(|run| run.state == RunState::Running);
        timeout(Duration::from_secs(30), running).await.unwrap().unwrap();
        sleep(Duration::from_millis(500)).await;
        match agent {
            Some(index) => agents[usize::from(index)].signal(signal),
            None => nats.process.signal(signal),
        }
        let lost = Instant::now();
        // The lost agent is the last of them.
        let others = if agent.is_some() { 2 } else { 3 };
        for agent in agents.drain(..others) {
            let (exit_code, reason) = agent.end(Duration::from_millis(1_200));
            assert_eq!(exit_code, Some(5), "{reason}");
        }
        assert!(lost.elapsed() <= Duration::from_millis(1_200), "all stopped after {:?}", lost.elapsed());
        lost
    };
    let playing = async {
        let (clocks, arrived) = play(&run, block(0, 20)).await;
        (clocks.unwrap_err(), arrived, Instant::now())
    };
    let (lost, (aborted, arrived, known)) = tokio::join!(tokio::task::unconstrained(losing), playing);
    // With the time that partial records are waited for.
    assert!(known - lost <= Duration::from_millis(1_000 + 2_800), "{aborted:?} after {:?}", known - lost);
    for Arrival { index, ending, is_partial } in &arrived {
        assert!(ending.exit_code == Some(5) && *is_partial, "agent {index} says that it was stopped");
    }
    arrived.len()
}

// With a thread for each case, which waits for processes, and some for the runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
#[ignore = "needs nats-server"]
async fn an_agent_or_a_server_that_is_killed_or_stopped_stops_all_within_a_second_over_nats() {
    let cases = [
        (Signal::SIGKILL, Some(2), 2),
        (Signal::SIGSTOP, Some(2), 2),
        (Signal::SIGKILL, None, 0),
        (Signal::SIGSTOP, None, 0),
    ];
    let at_once = cases.map(|(signal, agent, _)| tokio::spawn(loses(signal, agent)));
    for (kept, (signal, agent, partial)) in at_once.into_iter().zip(cases) {
        assert_eq!(kept.await.unwrap(), partial, "{signal} to {agent:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn a_coordinator_that_is_gone_stops_its_agents_over_nats() {
    let nats = nats(None);
    let agents = agents(&nats.url, "run", 2);
    let run = open(&nats.url, "run", 2).await.unwrap();
    run.ready().await.unwrap();
    drop(run);
    finished(agents).await;
    let waiting = agent(attendance(&nats.url, "run", 0, 2));
    let run = open(&nats.url, "run", 2).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    drop(run);
    let left = waiting.await.unwrap().unwrap().left;
    assert!(
        matches!(&left, Left::Stopped { reason, .. } if reason == "the coordinator was stopped"),
        "{left:?}"
    );
}
