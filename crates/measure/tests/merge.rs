//! Records of agents become one, added one at a time.

#![expect(clippy::unwrap_used, reason = "a helper that fails fails its test")]

use measure::{
    FlowRecord, Latency, Merge, Pace, ReasonKind, RunRecord, Spans, Status, Validity, ValidityClass,
};
use serde_json::json;

const METRICS: [&str; 6] = ["response", "service", "send_lag", "publish_ok", "eose", "handshake"];

/// The record of agent `index` of `of`, each with other figures.
fn record(index: u16, of: u16) -> RunRecord {
    let n = u64::from(index) + 1;
    let flow = FlowRecord { messages: n, payload_bytes: 10 * n, wire_bytes: 12 * n };
    let share = json!({
        "index": index, "of": of, "plan_sha256": "00", "started_late_ns": n, "handshake_ns_min": 10 * n,
        "active_spans_ns": [[1_000 * n, 1_000 * n + 100]],
        "throughput_spans_ns": [[0, 100_000_000]], "wanted_interval_ns": 100_000_000,
        "intervals": {"interval_ns": 10_000_000, "counts": [[n, 0, n]]},
        "burst_sends": n, "pace": null,
        "expected": [{"figure": "published", "sum": n, "per": null, "min": null, "max": null}],
    });
    let memory = json!({
        "client_bytes_per_connection": 100 * n, "client_shared_bytes": n,
        "relay_bytes_per_connection": 1, "relay_shared_bytes": 1,
    });
    let mut record: RunRecord = serde_json::from_str(include_str!("record.json")).unwrap();
    record.environment.cores = 2 + u64::from(index == 2);
    record.command.push(format!("--share={index}/{of}"));
    record.corpus.name = format!("{index}.jsonl");
    (record.connections, record.elapsed_ns, record.client_cpu.total_ns) = (n, 1_000 * n, n);
    (record.counts.planned, record.counts.acked) = (n, n);
    (record.traffic.to_relay, record.traffic.to_client) = (flow, flow);
    record.share = serde_json::from_value(share).unwrap();
    record.compression_memory = serde_json::from_value(memory).unwrap();
    record.latency = METRICS.map(|metric| (metric.to_owned(), latency_of(samples(n)))).into();
    record
}

fn samples(n: u64) -> impl Iterator<Item = u64> {
    (0..50).map(move |i| n * 1_000_000 + i * 10_000)
}

fn latency_of(samples: impl Iterator<Item = u64>) -> Latency {
    let mut latency = Latency::new();
    samples.for_each(|ns| latency.record(ns));
    latency
}

fn merged(order: &[u16]) -> RunRecord {
    let of = u16::try_from(order.len()).unwrap();
    RunRecord::merge(order.iter().map(|index| record(*index, of))).unwrap()
}

#[test]
fn agents_in_any_order_make_one_record() {
    let sum = merged(&[0, 1, 2, 3, 4]);
    for order in [[4, 3, 2, 1, 0], [2, 0, 4, 1, 3], [1, 2, 3, 4, 0]] {
        assert_eq!(merged(&order), sum, "{order:?}");
    }
    assert_eq!((sum.connections, sum.counts.acked, sum.client_cpu.total_ns), (15, 15, 15));
    assert_eq!((sum.elapsed_ns, sum.active_ns), (5_000, 500));
    assert_eq!((sum.command[1].as_str(), sum.corpus.name.as_str()), ("--share=0/5", "0.jsonl"));
    let memory = sum.compression_memory.unwrap();
    // The mean over connections: (1·100 + 2·200 + 3·300 + 4·400 + 5·500) / 15.
    assert_eq!((memory.client_bytes_per_connection, memory.client_shared_bytes), (366, 5));
    assert_eq!(memory.relay_bytes_per_connection, None);
    let all = latency_of((1..=5).flat_map(samples));
    assert!(METRICS.iter().all(|metric| sum.latency[*metric] == all), "one pass over all samples");
    let shortest: Vec<Option<u64>> = sum.agents.iter().map(|agent| agent.handshake_ns_min).collect();
    assert_eq!(shortest, [10, 20, 30, 40, 50].map(Some));
    let machines: Vec<bool> = sum.agents.iter().map(|agent| agent.environment.is_some()).collect();
    assert_eq!(machines, [false, false, true, false, false], "another machine than agent 0's");
}

#[test]
fn reasons_and_classes_are_the_worst_of_all_in_the_order_of_agents() {
    let mut merge = Merge::default();
    for index in [2, 0, 1] {
        let mut one = record(index, 3);
        if index > 0 {
            one.validity.add(ValidityClass::Suspect, ReasonKind::Clipped { samples: index.into() });
            one.status = Status::Incomplete { reason: format!("left {index}") };
        }
        merge.add(one).unwrap();
    }
    let sum = merge.finish().unwrap();
    assert_eq!((sum.validity.class, sum.validity.counts), (ValidityClass::Suspect, ValidityClass::Valid));
    let of = |agent| format!("agent {agent}: {agent} samples exceeded the histogram's 60 s");
    assert_eq!(sum.validity.to_string(), [of(1), of(2)].join("; "));
    let reason = "agent 1: left 1; agent 2: left 2".to_owned();
    assert_eq!(sum.status, Status::Incomplete { reason });
}

#[test]
fn what_is_not_every_share_of_one_plan_makes_no_record() {
    let (one, whole) = (record(0, 2), merged(&[0, 1]));
    for (records, says) in [
        (vec![], "there is no record to merge"),
        (vec![one.clone()], "a plan of 2 agents has 2 records; there are 1"),
        (vec![one.clone(), record(2, 2)], "a plan of 2 agents has no agent 2"),
        (vec![one, whole], "record 1 is not of an agent's share of a plan"),
    ] {
        assert_eq!(RunRecord::merge(records).unwrap_err().to_string(), says);
    }
}

#[test]
fn what_each_agent_has_too_little_of_to_be_judged_is_judged_over_all() {
    type Change = fn(&mut RunRecord);
    let judged = |change: Change| {
        let mut both = [record(0, 2), record(1, 2)];
        both.iter_mut().for_each(change);
        RunRecord::merge(both).unwrap().validity
    };
    assert_eq!(judged(|_| {}), Validity::default());
    let (valid, invalid) = (ValidityClass::Valid, ValidityClass::Invalid);
    let cases: [(Change, ValidityClass, &str); 4] = [
        (
            |record| {
                record.share.as_mut().unwrap().burst_sends = 1;
                record.latency.insert("send_lag".to_owned(), latency_of([60_000_000; 600].into_iter()));
            },
            valid,
            "send lag p99 60",
        ),
        (
            |record| {
                let pace = Pace { planned: 60, sent: 50, span_ns: 1_000_000_000, sent_span_ns: 0 };
                record.share.as_mut().unwrap().pace = Some(pace);
            },
            valid,
            "sent 100.0 of 120.0 planned events/s",
        ),
        (
            |record| {
                (record.counts.acked, record.counts.rejected) = (record.counts.acked - 1, 1);
                (record.counts.deliveries_expected, record.counts.deliveries) = (1, 1);
            },
            invalid,
            "the relay refused 2 events; whether other agents got them cannot be judged",
        ),
        (|record| record.counts.acked -= 1, invalid, "the ledger does not balance"),
    ];
    for (change, counts, says) in cases {
        let validity = judged(change);
        assert_eq!((validity.class, validity.counts), (invalid, counts), "{says}: {validity:?}");
        assert!(validity.reasons.len() == 1 && validity.to_string().starts_with(says), "{validity}");
    }
}

#[test]
fn a_record_that_is_refused_leaves_the_sum_as_it_was() {
    type Change = fn(&mut RunRecord);
    let refused: [(Change, &str); 7] = [
        (|record| record.share.as_mut().unwrap().index = 0, "there are two records of agent 0"),
        (|record| record.seed = 8, "agent 1 differs from those before it: seed"),
        (|record| record.share.as_mut().unwrap().plan_sha256 = "01".to_owned(), "before it: plan_sha256"),
        (|record| record.counts.acked = u64::MAX, "agent 1 counts more than 2^48 of something"),
        (
            |record| record.share.as_mut().unwrap().active_spans_ns = Spans::to_store([(0, 1 << 49)]),
            "counts more than 2^48",
        ),
        (
            |record| {
                let said = ReasonKind::Said { sentence: "x".repeat(16 << 10) };
                record.validity.add(ValidityClass::Valid, said);
            },
            "agent 1 has more than 16 KiB of reasons and machine",
        ),
        (
            |record| {
                let metric = |n| (format!("metric.{n}"), Latency::new());
                record.latency.extend((0..1_019).map(metric));
            },
            "agent 1 has metrics that nobody else has",
        ),
    ];
    let mut merge = Merge::default();
    merge.add(record(0, 2)).unwrap();
    for (change, says) in refused {
        let mut hostile = record(1, 2);
        change(&mut hostile);
        let error = merge.add(hostile).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    merge.add(record(1, 2)).unwrap();
    assert_eq!(merge.finish().unwrap(), merged(&[0, 1]));
}

/// Bytes held at most while the records of so many agents are read and added one by one.
fn held_bytes(of: u16) -> u64 {
    let texts: Vec<String> = (0..of).map(|index| record(index, of).to_json()).collect();
    let adding = || {
        let mut merge = Merge::default();
        for text in &texts {
            merge.add(serde_json::from_str(text).unwrap()).unwrap();
        }
        assert_eq!(merge.finish().unwrap().agents.len(), usize::from(of));
    };
    allocation_counter::measure(adding).bytes_max
}

#[test]
fn a_merge_holds_the_sum_whatever_the_number_of_agents() {
    let (two, hundred) = (held_bytes(2), held_bytes(100));
    assert!(two < 10 * 216 * 1_024, "the sum of {} histograms took {two} bytes", METRICS.len());
    // The part of each agent in the record of all.
    assert!(hundred < two + 98 * 2_048, "100 agents took {hundred} bytes, two took {two}");
}

#[test]
fn a_record_that_is_read_keeps_a_few_kilobytes_of_each_histogram() {
    let mut written = record(0, 1);
    let one = || latency_of((1_000..3_000).flat_map(|us| [us * 1_000; 10]));
    written.latency = METRICS.map(|metric| (metric.to_owned(), one())).into();
    let (text, mut read) = (written.to_json(), None);
    let kept = allocation_counter::measure(|| read = serde_json::from_str::<RunRecord>(&text).ok());
    assert_eq!(read, Some(written));
    assert!(kept.bytes_current < 6 * 10_000, "{kept:?}");
}
