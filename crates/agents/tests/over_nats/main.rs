//! Runs over a real NATS server: what is played together, what a loss does, who is refused.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

mod account;
mod coordinator;
mod files;
mod losses;
mod secure;
mod site;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use agents::{
    AgentState, Left, Overview, Phase, RunState,
    nats::{Arrival, Attendance, NatsError},
};
use async_nats::{
    HeaderMap,
    jetstream::{self, stream},
};
use futures::StreamExt;
use measure::LiveCounts;
use tokio::time::{sleep, timeout};

use crate::site::{
    TARGET, agent, agents, attendance, block, counted, finished, hasty, nats, open, open_with_relay, play,
    process, records, relay_block,
};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn blocks_start_together_and_every_record_comes_once_over_nats() {
    let nats = nats(None);
    let jetstream = jetstream::new(async_nats::connect(&nats.url).await.unwrap());
    let play = async |name, of, blocks| {
        let agents = agents(&nats.url, name, of);
        let run = open(&nats.url, name, of).await.unwrap();
        run.ready().await.unwrap();
        for position in 0..blocks {
            let (records, clocks) = records(&run, block(position, 1), of).await;
            // All of them have this machine's clock, whose offset from itself is 0.
            let starts: Vec<u64> = records.iter().map(|record| record["at_ns"].as_u64().unwrap()).collect();
            let bound_ns = clocks.iter().map(|clock| clock.start_bound_ns).max().unwrap();
            let spread_ns = starts.iter().max().unwrap() - starts.iter().min().unwrap();
            assert!(spread_ns <= 2 * bound_ns && bound_ns <= 5_000_000, "{spread_ns} {bound_ns}");
        }
        let stream = jetstream.get_stream("NSIM").await.unwrap();
        let kept = stream.info_with_subjects(format!("nsim.v1.{name}.result.>")).await.unwrap();
        assert_eq!(kept.count().await, usize::from(of), "those of the block before are forgotten");
        assert_eq!(run.finish(), 0);
        finished(agents).await;
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
    let nats = nats(None);
    let of = 3;
    let run = open(&nats.url, "run", of).await.unwrap();
    let mut overview = run.overview();
    let mut agents = vec![agent(attendance(&nats.url, "run", 1, of))];
    let one = overview.wait_for(|run| run.agents[1] == AgentState::In(Phase::Claimed));
    let seen = timeout(Duration::from_secs(5), one).await.unwrap().unwrap().clone();
    assert_eq!(
        (seen.state.clone(), seen.agents_in(AgentState::Missing).collect::<Vec<_>>()),
        (RunState::Open, vec![0, 2])
    );
    agents.extend([0, 2].map(|index| agent(attendance(&nats.url, "run", index, of))));
    run.ready().await.unwrap();
    let sum = |is_over| {
        let mut sum = LiveCounts::default();
        (0..of).for_each(|index| sum.add(&counted(index, is_over)));
        (sum.sent, sum.deliveries)
    };
    for position in 0..2 {
        let running = async {
            let all = |run: &Overview| run.state == RunState::Running && run.block.connections == 9;
            overview.wait_for(all).await.unwrap().clone()
        };
        let (_, seen) = tokio::join!(records(&run, block(position, 10), of), running);
        assert_eq!((seen.block.sent, seen.block.deliveries), sum(false));
        assert_eq!(seen.agents_in(AgentState::In(Phase::Running)).count(), 3);
        // The last counts are there before the block is.
        let seen = overview.borrow_and_update().clone();
        assert_eq!((seen.state, seen.blocks_merged), (RunState::Merged, u64::from(position) + 1));
        assert_eq!((seen.block.sent, seen.block.deliveries), sum(true));
        assert_eq!((seen.block.connections, seen.counts_refused), (0, 0));
        assert_eq!(seen.run.sent, sum(true).0 * (u64::from(position) + 1), "blocks add up");
    }
    run.finish();
    finished(agents).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn an_agent_that_starts_the_relay_says_where_and_is_stopped_last_over_nats() {
    let nats = nats(None);
    let refused = agent(attendance(&nats.url, "run", 2, 2));
    let run = open(&nats.url, "run", 2).await.unwrap();
    let reason = refused.await.unwrap().unwrap_err().to_string();
    assert!(reason.contains("started by no agent"), "{reason}");
    drop(run);
    let mut all = agents(&nats.url, "run", 2);
    all.push(agent(attendance(&nats.url, "run", 2, 2)));
    let run = open_with_relay(&nats.url, "run", 2).await.unwrap();
    run.ready().await.unwrap();
    for position in 0..2 {
        let (records, _) = records(&run, relay_block(position), 2).await;
        let urls: Vec<_> = records.iter().map(|record| record["url"].clone()).collect();
        assert_eq!(urls, [TARGET, TARGET, ""]);
    }
    run.finish();
    finished(all).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn who_does_not_belong_to_the_run_is_refused_over_nats() {
    let nats = nats(None);
    assert!(refused(attendance(&nats.url, "run", 3, 2)).await.contains("no agent 3 of 2"));
    let run = open(&nats.url, "run", 2).await.unwrap();
    let first = agent(attendance(&nats.url, "run", 0, 2));
    sleep(Duration::from_millis(700)).await;
    assert!(refused(attendance(&nats.url, "run", 0, 2)).await.contains("holds the slot"));
    assert!(refused(attendance(&nats.url, "run", 1, 3)).await.contains("2 agents"));
    let mut other = attendance(&nats.url, "run", 1, 2);
    other.policy.identity.program_sha256 = "other".to_owned();
    assert!(refused(other).await.contains("program_sha256"));
    let mut elsewhere = attendance(&nats.url, "run", 1, 2);
    elsewhere.policy.targets = vec!["wss://relay.example".parse().unwrap()];
    let second = agent(elsewhere);
    run.ready().await.unwrap();
    assert!(refused(attendance(&nats.url, "run", 1, 2)).await.contains("no longer open"));
    let again = open(&nats.url, "run", 2).await.unwrap_err();
    assert!(matches!(again, NatsError::Taken(_)), "a coordinator started twice: {again}");
    // The target that the second agent does not allow.
    let aborted = play(&run, block(0, 1)).await.0.unwrap_err();
    assert!(aborted.reason.contains("does not allow the target"), "{}", aborted.reason);
    for agent in [first, second] {
        assert!(matches!(agent.await.unwrap().unwrap().left, Left::Stopped { .. }));
    }
    assert!(matches!(open("nats://127.0.0.1:1", "run", 1).await.unwrap_err(), NatsError::Connect { .. }));
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
async fn who_comes_once_the_start_is_set_is_refused_and_the_block_is_played_over_nats() {
    let nats = nats(None);
    let agents = agents(&nats.url, "run", 2);
    let run = open(&nats.url, "run", 2).await.unwrap();
    run.ready().await.unwrap();
    let mut overview = run.overview();
    let joining = async {
        let armed = overview.wait_for(|run| run.state == RunState::Armed);
        timeout(Duration::from_secs(30), armed).await.unwrap().unwrap();
        for index in [0, 1] {
            assert!(refused(attendance(&nats.url, "run", index, 2)).await.contains("no longer open"));
        }
        let state = overview.borrow().state.clone();
        assert!(matches!(state, RunState::Armed | RunState::Running), "it was tried too late: {state:?}");
    };
    // 5 s, so that a busy host tries in time.
    tokio::join!(records(&run, block(0, 50), 2), joining);
    run.finish();
    finished(agents).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn a_record_that_is_published_again_is_refused_over_nats() {
    let nats = nats(None);
    let agents = agents(&nats.url, "run", 1);
    let run = open(&nats.url, "run", 1).await.unwrap();
    run.ready().await.unwrap();
    records(&run, block(0, 1), 1).await;
    let subject = "nsim.v1.run.result.0.0.0";
    let jetstream = jetstream::new(async_nats::connect(&nats.url).await.unwrap());
    let stream = jetstream.get_stream("NSIM").await.unwrap();
    let stored = stream.get_last_raw_message_by_subject(subject).await.unwrap();
    let publish = async |headers: HeaderMap| {
        let sent = jetstream.publish_with_headers(subject, headers, "{}".into()).await.unwrap();
        sent.await.map(|acknowledged| acknowledged.duplicate)
    };
    // The message id is known; after the server has forgotten it, the subject is taken; and without
    // the expected sequence, too.
    assert!(publish(stored.headers.clone()).await.unwrap(), "known as a duplicate");
    let mut later = stored.headers.clone();
    later.insert("Nats-Msg-Id", "another");
    let error = publish(later).await.unwrap_err();
    assert!(error.to_string().contains("wrong last sequence"), "{error}");
    let error = publish(HeaderMap::new()).await.unwrap_err();
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("10077"), "{error:?}");
    let after = stream.get_last_raw_message_by_subject(subject).await.unwrap();
    assert_eq!((after.sequence, after.payload), (stored.sequence, stored.payload));
    records(&run, block(1, 1), 1).await;
    run.finish();
    finished(agents).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn a_record_is_refused_when_the_server_has_forgotten_its_id_over_nats() {
    let nats = nats(None);
    let agents = agents(&nats.url, "run", 1);
    let run = open(&nats.url, "run", 1).await.unwrap();
    let jetstream = jetstream::new(async_nats::connect(&nats.url).await.unwrap());
    let stream = jetstream.get_stream("NSIM").await.unwrap();
    // The shortest that a server takes, instead of two minutes.
    let duplicate_window = Duration::from_millis(100);
    let config = stream::Config { duplicate_window, ..stream.cached_info().config.clone() };
    jetstream.update_stream(config).await.unwrap();
    run.ready().await.unwrap();
    records(&run, block(0, 1), 1).await;
    let subject = "nsim.v1.run.result.0.0.0";
    let stored = stream.get_last_raw_message_by_subject(subject).await.unwrap();
    let known = Instant::now();
    // The server forgets by a timer, some time after the window.
    let error = loop {
        sleep(2 * duplicate_window).await;
        let again = jetstream.publish_with_headers(subject, stored.headers.clone(), "{}".into());
        match again.await.unwrap().await {
            Ok(acknowledged) => assert!(acknowledged.duplicate, "{acknowledged:?}"),
            Err(error) => break error,
        }
        assert!(known.elapsed() < Duration::from_secs(5), "the server forgets no id");
    };
    assert!(error.to_string().contains("wrong last sequence"), "{error}");
    let after = stream.get_last_raw_message_by_subject(subject).await.unwrap();
    assert_eq!((after.sequence, after.payload), (stored.sequence, stored.payload));
    run.finish();
    finished(agents).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn two_runs_at_once_do_not_hear_each_other_and_count_what_they_drop_over_nats() {
    let nats = nats(None);
    let client = async_nats::connect(&nats.url).await.unwrap();
    let play = async |name: &'static str, of| {
        let agents = agents(&nats.url, name, of);
        let run = open(&nats.url, name, of).await.unwrap();
        run.ready().await.unwrap();
        let playing = records(&run, block(0, 10), of);
        let mut overview = run.overview();
        let disturbing = async {
            overview.wait_for(|run| run.state == RunState::Running).await.unwrap();
            let mut headers = HeaderMap::new();
            headers.insert("Nsim-Run", "other:0");
            let abort = r#"{"reason":"from elsewhere"}"#;
            client
                .publish_with_headers(format!("nsim.v1.{name}.abort"), headers.clone(), abort.into())
                .await
                .unwrap();
            let ping = async_nats::Request::new().payload(r#"{"seq":1}"#.into()).headers(headers);
            let ping = ping.timeout(Some(Duration::from_millis(300)));
            let answer = client.send_request(format!("nsim.v1.{name}.agent.0.ping"), ping).await;
            assert_eq!(answer.unwrap_err().kind(), async_nats::RequestErrorKind::TimedOut);
            for garbage in ["", "{", "[]", &"x".repeat(500_000)] {
                client
                    .publish(format!("nsim.v1.{name}.agent.0.cmd"), garbage.to_owned().into())
                    .await
                    .unwrap();
            }
            // The server has them before the last command of the run.
            client.flush().await.unwrap();
        };
        tokio::join!(playing, disturbing);
        assert_eq!(run.finish(), 0, "nobody answers in the name of another run");
        // An abort to each of them, and to the first a ping and four commands.
        let expected = [1 + 1 + 4, 1, 1];
        assert_eq!(finished(agents).await, expected[..usize::from(of)]);
    };
    tokio::join!(play("one", 2), play("two", 3));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn clocks_seconds_apart_start_within_the_bound_over_nats() {
    let nats = nats(None);
    let of = 3;
    let apart = ["unshare", "--user", "--map-root-user", "--time", "--fork"];
    let seconds = [0, 4, -4];
    let processes = [0, 1, 2].map(|index| {
        let monotonic = format!("--monotonic={}", seconds[usize::from(index)]);
        process(&nats.url, "run", index, of, &[&apart[..], &[monotonic.as_str()]].concat())
    });
    let run = open(&nats.url, "run", of).await.unwrap();
    run.ready().await.unwrap();
    let (clocks, arrived) = play(&run, block(0, 1)).await;
    let stated = |arrival: &Arrival, name: &str| {
        let record: serde_json::Value = serde_json::from_slice(&arrival.ending.record).unwrap();
        record[name].as_i64().unwrap()
    };
    let clocks = clocks.unwrap();
    let first_ns = stated(&arrived[0], "at_ns");
    for ((clock, arrival), seconds) in clocks.iter().zip(&arrived).zip(seconds) {
        // The instant that each was told, but for what its clock shows more than the first one's.
        let at_ns = stated(arrival, "at_ns");
        let off_ns = (at_ns - first_ns - seconds * 1_000_000_000).unsigned_abs();
        let bound_ns = clock.start_bound_ns + clocks[0].start_bound_ns;
        assert!(off_ns <= bound_ns && bound_ns <= 10_000_000, "{off_ns} ns off, bound {bound_ns}");
        // A timer of 1 ms may be late on a busy host.
        assert!((0..20_000_000).contains(&(stated(arrival, "started_ns") - at_ns)));
        // All are one clock, which does not drift from itself.
        assert!(clock.drift_ns.unsigned_abs() <= clock.drift_bound_ns, "{clock:?}");
    }
    run.finish();
    for process in processes {
        assert_eq!(process.end(Duration::from_secs(5)).0, Some(0));
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs nats-server"]
async fn an_agent_needs_no_more_than_the_rights_in_the_example_over_nats() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("nats-server.conf");
    let nats = nats(Some(&config));
    let url = |user: &str| nats.url.replace("nats://", &format!("nats://{user}:{user}-secret@"));
    let agents = vec![
        agent(attendance(&url("agent-0"), "run", 0, 2)),
        agent(attendance(&url("agent-1"), "run", 1, 2)),
        // As a coordinator that starts the relay on its own machine.
        agent(attendance(&url("coordinator"), "run", 2, 2)),
    ];
    let run = open_with_relay(&url("coordinator"), "run", 2).await.unwrap();
    run.ready().await.unwrap();
    records(&run, relay_block(0), 2).await;
    // An agent cannot command another, nor publish in its name.
    let options =
        async_nats::ConnectOptions::with_user_and_password("agent-1".into(), "agent-1-secret".into());
    let client = options.connect(&nats.url).await.unwrap();
    let request = async_nats::Request::new().payload("{}".into()).timeout(Some(Duration::from_millis(500)));
    client.send_request("nsim.v1.run.agent.0.cmd", request).await.unwrap_err();
    let sent = hasty(client).publish("nsim.v1.run.result.0.1.0", "{}".into()).await.unwrap();
    sent.await.unwrap_err();
    assert!(open(&nats.url, "other", 1).await.is_err(), "without a name");
    run.finish();
    finished(agents).await;
}
