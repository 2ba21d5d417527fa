//! Agents that differ from the others of their run stand in the report, others do not, and none
//! breaks it.

use measure::{AgentRecord, ClockRecord, RunRecord, UsableCores};

use crate::common::{PLAIN, record, result};
use report::{ResultFile, merged::Merged};

const HEADING: &str = "Agents that differ from the others";

fn agent(index: u16) -> AgentRecord {
    AgentRecord {
        index,
        connections: 5,
        client_cpu: measure::CpuTime { total_ns: 500_000_000, user_ns: None, system_ns: None },
        started_late_ns: 300_000,
        elapsed_ns: 2_000_000_000,
        cores: Some(1),
        millicores: None,
        send_lag_ns_p99: Some(200_000),
        handshake_ns_min: Some(400_000),
        deliveries_lost: 0,
        clock: drifted(200_000),
        environment: None,
    }
}

fn drifted(drift_ns: i64) -> Option<ClockRecord> {
    Some(ClockRecord { start_bound_ns: 50_000, drift_ns, drift_bound_ns: 100_000 })
}

/// A result over four agents, changed in the first block of each cell.
fn result_with(change: impl Fn(&mut [AgentRecord])) -> ResultFile {
    result("standard", 6, &[], |id, round, _| {
        let mut agents: Vec<AgentRecord> = (0..4).map(agent).collect();
        if round == 0 {
            change(&mut agents);
        }
        RunRecord {
            agents,
            usable_cores: Some(UsableCores { clients: 4, ..UsableCores::default() }),
            ..record(id, 1, PLAIN)
        }
    })
}

/// The rows of the summary's table.
fn rows(result: &ResultFile) -> Vec<String> {
    let summary = report::summary(result);
    let Some((_, section)) = summary.split_once(HEADING) else { return Vec::new() };
    section
        .lines()
        .skip_while(|line| !line.starts_with("| ---"))
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .map(str::to_owned)
        .collect()
}

#[test]
fn an_agent_that_differs_has_a_row_with_what_differs_alone_and_agents_that_are_alike_have_none() {
    type Change = fn(&mut AgentRecord);
    let beyond: [(Change, &str); 6] = [
        (|agent| agent.started_late_ns = 41_000_000, "| 2 | 3 of 18 | 41 (0.3) | – | – | – | – | – |"),
        (|agent| agent.client_cpu.total_ns = 1_900_000_000, "| 2 | 3 of 18 | – | 95 (25) | – | – | – | – |"),
        (|agent| agent.send_lag_ns_p99 = Some(1_300_000), "| 2 | 3 of 18 | – | – | 1.3 (0.2) | – | – | – |"),
        (|agent| agent.deliveries_lost = 1, "| 2 | 3 of 18 | – | – | – | 1 (0) | – | – |"),
        (|agent| agent.clock = drifted(-1_300_000), "| 2 | 3 of 18 | – | – | – | – | 1.2 (0.1) | – |"),
        (|agent| agent.handshake_ns_min = Some(1_500_000), "| 2 | 3 of 18 | – | – | – | – | – | 1.5 (0.4) |"),
    ];
    for (change, row) in beyond {
        assert_eq!(rows(&result_with(|agents| change(&mut agents[2]))), [row]);
        let all = result_with(|agents| agents.iter_mut().for_each(change));
        assert_eq!(rows(&all), [""; 0], "all alike, however bad");
    }
    let within: [Change; 8] = [
        |agent| agent.started_late_ns = 20_000_000,
        |agent| agent.client_cpu.total_ns = 1_480_000_000,
        |agent| agent.send_lag_ns_p99 = Some(1_190_000),
        |agent| agent.clock = drifted(1_100_000),
        |agent| agent.handshake_ns_min = Some(1_300_000),
        |agent| agent.clock = None,
        |agent| agent.send_lag_ns_p99 = None,
        |agent| agent.cores = None,
    ];
    for near in within {
        assert_eq!(rows(&result_with(|agents| near(&mut agents[2]))), [""; 0], "within the criterion");
    }
    let two = rows(&result_with(|agents| {
        agents[3].deliveries_lost = 7;
        agents[0].started_late_ns = 30_000_000;
        agents[0].deliveries_lost = 2;
    }));
    assert_eq!(
        two,
        ["| 0 | 3 of 18 | 30 (0.3) | – | – | 2 (0) | – | – |", "| 3 | 3 of 18 | – | – | – | 7 (0) | – | – |"]
    );
    // Of two agents the worse differs, and one alone never does.
    let some = |count: u16| {
        result("standard", 6, &[], move |id, _, _| {
            let mut agents: Vec<AgentRecord> = (0..count).map(agent).collect();
            agents[0].deliveries_lost = 5;
            RunRecord { agents, ..record(id, 1, PLAIN) }
        })
    };
    assert_eq!(rows(&some(1)), [""; 0]);
    assert_eq!(rows(&some(2)), ["| 0 | 18 of 18 | – | – | – | 5 (0) | – | – |"]);
}

#[test]
fn a_run_over_agents_states_how_common_their_starts_were() {
    let states = |result: &ResultFile, sentence: &str| {
        for text in [report::summary(result), report::terminal(result, false)] {
            // Folded on a terminal.
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(text.contains(sentence), "{sentence:?} in {text}");
        }
    };
    let alike =
        "Starts: agents of one block began at most 0 ms apart, by clocks that are known within 0.05 ms.";
    states(&result_with(|_| {}), alike);
    let apart = result_with(|agents| {
        agents[1].started_late_ns = 500_000;
        agents[3].started_late_ns = 2_700_000;
        agents[2].clock = Some(ClockRecord { start_bound_ns: 1_250_000, ..drifted(0).unwrap() });
    });
    states(&apart, "began at most 2.4 ms apart, by clocks that are known within 1.25 ms.");
    let alone =
        result("standard", 6, &[], |id, _, _| RunRecord { agents: vec![agent(0)], ..record(id, 1, PLAIN) });
    assert!(!report::summary(&alone).contains("Starts: "), "of one agent there is nothing to say");
}

#[test]
fn what_agents_say_of_their_cores_overflows_nothing() {
    let cores = UsableCores { relay: Some(1 << 48), clients: 1 << 48, ..UsableCores::default() };
    let said = RunRecord { usable_cores: Some(cores), elapsed_ns: 1 << 48, ..record("json+none", 1, PLAIN) };
    let merged = Merged::of_counts([&said, &said]);
    assert_eq!(merged.client_capacity_ns, Some(u64::MAX));
    assert_eq!(merged.relay_capacity_ns, Some(u64::MAX));
}
