//! A loss of a connection, the server or the coordinator. Agents that are killed or stopped are in
//! the tests of `compare`, whose agents are processes.

use std::time::{Duration, Instant};

use agents::{Left, Phase};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::time::sleep;

use crate::site::{Way, agent, agents, attendance, block, finish, nats, open, play, reaches, way_to};

/// A loss of a run of three agents; of the agents it is the last.
#[derive(Debug, Clone, Copy)]
enum Loss {
    Server(Signal),
    Connection(Way),
}

/// Plays a block of 20 s and loses something after its start.
async fn loses(loss: Loss) {
    let nats = nats("");
    let (through, way) = way_to(&nats.url);
    let urls = [&nats.url, &nats.url, &through];
    let agents: Vec<_> =
        (0..).zip(urls).map(|(index, url)| agent(attendance(url, "run", index, 3))).collect();
    let run = open(&nats.url, "run", 3).await.unwrap();
    run.ready().await.unwrap();
    let losing = async {
        reaches(&run, |run| run.state == Phase::Running).await;
        sleep(Duration::from_millis(500)).await;
        match loss {
            Loss::Server(signal) => {
                let server = Pid::from_raw(nats.process.0.id().try_into().unwrap());
                kill(server, signal).unwrap();
            }
            Loss::Connection(is) => {
                way.send_replace(is);
            }
        }
        let lost = Instant::now();
        reaches(&run, |run| run.state == Phase::Aborted).await;
        // Silence takes 600 ms, what is closed less: the rest is for a busy host.
        let known = lost.elapsed();
        assert!(known <= Duration::from_secs(1), "{loss:?}: known after {known:?}");
        for agent in agents {
            let left = agent.await.unwrap().unwrap();
            assert!(matches!(left, Left::Stopped(_)), "{loss:?}: {left:?}");
        }
        let stopped = lost.elapsed();
        assert!(stopped <= Duration::from_millis(2_200), "{loss:?}: all stopped after {stopped:?}");
    };
    let ((), (aborted, arrived)) = tokio::join!(losing, play(&run, block(200)));
    let reason = aborted.unwrap_err().reason;
    let named = if matches!(loss, Loss::Server(Signal::SIGKILL)) { "the NATS server" } else { "agent " };
    assert!(reason.contains(named) && reason.contains("lost"), "{loss:?}: {reason}");
    assert!(arrived.is_empty(), "{loss:?}: {arrived:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
#[ignore = "needs nats-server"]
async fn a_loss_of_a_connection_or_the_server_stops_all_within_a_second_over_nats() {
    let cases = [
        Loss::Connection(Way::Closed),
        Loss::Connection(Way::Cut),
        Loss::Server(Signal::SIGKILL),
        Loss::Server(Signal::SIGSTOP),
    ];
    futures::future::join_all(cases.map(loses)).await;
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
