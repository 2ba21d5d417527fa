//! A loss of an agent, its connection, the server or the coordinator.

use std::time::{Duration, Instant};

use agents::{Left, RunState, nats::Arrival};
use nix::sys::signal::Signal;
use tokio::time::{sleep, timeout};

use crate::site::{Way, agent, agents, attendance, block, finished, nats, open, play, process, way_to};

/// A loss of a run of three agents; of the agents it is the last.
#[derive(Debug, Clone, Copy)]
enum Loss {
    Agent(Signal),
    Server(Signal),
    Connection(Way),
}

/// Plays a block of 20 s with agents in processes, loses something after its start, and returns
/// how many partial records were kept.
async fn loses(loss: Loss) -> usize {
    let nats = nats(None);
    let (through, way) = way_to(&nats.url);
    let urls = [&nats.url, &nats.url, &through];
    let mut agents: Vec<_> = (0..).zip(urls).map(|(index, url)| process(url, "run", index, 3, &[])).collect();
    let run = open(&nats.url, "run", 3).await.unwrap();
    run.ready().await.unwrap();
    let (mut overview, mut watched) = (run.overview(), run.overview());
    // By a task of its own, because this one waits for processes meanwhile.
    let known = tokio::spawn(async move {
        let is_over = |state: &RunState| matches!(state, RunState::Aborted(_));
        watched.wait_for(|run| is_over(&run.state)).await.unwrap();
        Instant::now()
    });
    let losing = async {
        let running = overview.wait_for(|run| run.state == RunState::Running);
        timeout(Duration::from_secs(30), running).await.unwrap().unwrap();
        sleep(Duration::from_millis(500)).await;
        match loss {
            Loss::Agent(signal) => agents[2].signal(signal),
            Loss::Server(signal) => nats.process.signal(signal),
            Loss::Connection(is) => {
                way.send_replace(is);
            }
        }
        let lost = Instant::now();
        // An agent that is killed or stopped does not say how it ends.
        let others = if matches!(loss, Loss::Agent(_)) { 2 } else { 3 };
        for agent in agents.drain(..others) {
            let (exit_code, reason) = agent.end(Duration::from_millis(1_200));
            assert_eq!(exit_code, Some(5), "{loss:?}: {reason}");
        }
        let stopped = lost.elapsed();
        assert!(stopped <= Duration::from_millis(1_200), "{loss:?}: all stopped after {stopped:?}");
        lost
    };
    let playing = async {
        let (clocks, arrived) = play(&run, block(0, 20)).await;
        (clocks.unwrap_err(), arrived, Instant::now())
    };
    let (lost, (aborted, arrived, told)) = tokio::join!(tokio::task::unconstrained(losing), playing);
    // Silence takes 600 ms, what is closed less: the rest is for a busy host.
    let known = known.await.unwrap() - lost;
    assert!(known <= Duration::from_secs(1), "{loss:?}: {aborted:?} known after {known:?}");
    // With the time that partial records are waited for.
    assert!(told - lost <= Duration::from_millis(1_000 + 2_800), "{loss:?}: told after {:?}", told - lost);
    for Arrival { index, ending, is_partial } in &arrived {
        assert!(ending.exit_code == Some(5) && *is_partial, "agent {index} says that it was stopped");
    }
    arrived.len()
}

// With a thread for each case, which waits for processes, and some for the runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 9)]
#[ignore = "needs nats-server"]
async fn a_loss_of_an_agent_its_connection_or_the_server_stops_all_within_a_second_over_nats() {
    let cases = [
        (Loss::Agent(Signal::SIGKILL), 2),
        (Loss::Agent(Signal::SIGSTOP), 2),
        (Loss::Connection(Way::Closed), 2),
        (Loss::Connection(Way::Cut), 2),
        (Loss::Server(Signal::SIGKILL), 0),
        (Loss::Server(Signal::SIGSTOP), 0),
    ];
    let at_once = cases.map(|(loss, _)| tokio::spawn(loses(loss)));
    for (kept, (loss, partial)) in at_once.into_iter().zip(cases) {
        assert_eq!(kept.await.unwrap(), partial, "{loss:?}");
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
