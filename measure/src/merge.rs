//! One record of the records of all agents that played a plan together.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{
    AgentRecord, Allocations, AllocationsRecord, CompressionMemoryRecord, Counts, CpuTime, Environment,
    Latency, MemoryRecord, PopulationRecord, RunRecord, ShareRecord, Status, Throughput, ThroughputRecorder,
    TrafficRecord, UsableCores, Validity, ValidityClass,
    spans::union_of_spans,
    validity::{Burst, Pace},
};

/// The most that one agent may count of anything: 65,535 such counts add up within 64 bits.
const MOST: u64 = 1 << 48;

/// Why records do not make one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MergeError {
    /// There is nothing to merge.
    #[error("there is no record to merge")]
    Nothing,
    /// A record is of a whole plan.
    #[error("record {place} is not of an agent's share of a plan")]
    Whole {
        /// Its place in the list, from 0.
        place: usize,
    },
    /// Some are missing, or there are too many.
    #[error("a plan of {of} agents has {of} records; there are {found}")]
    Number {
        /// How many agents play the plan.
        of: u16,
        /// How many records there are.
        found: usize,
    },
    /// The plan has no such agent.
    #[error("a plan of {of} agents has no agent {index}")]
    Beyond {
        /// The agent.
        index: u16,
        /// How many agents play the plan.
        of: u16,
    },
    /// An agent reported twice.
    #[error("there are two records of agent {index}")]
    Twice {
        /// The agent.
        index: u16,
    },
    /// Agents did not play the same.
    #[error("agent {index} differs from agent 0: {what}")]
    Differs {
        /// The agent.
        index: u16,
        /// In which field.
        what: &'static str,
    },
    /// A count that no run reaches.
    #[error("agent {index} counts more than 2^48 of something")]
    TooLarge {
        /// The agent.
        index: u16,
    },
}

/// A record of an agent, with what makes it one.
type Part<'a> = (&'a ShareRecord, &'a RunRecord);

impl RunRecord {
    /// Makes one record of those of all agents of a plan, in any order: exactly one of each.
    ///
    /// Counts, bytes, memory, CPU time of clients and buckets of histograms add up. Envelope
    /// throughput is of the sums by interval. Time with work outstanding is the union of the
    /// agents' spans, elapsed time the longest. Validity is the worst, each reason behind its
    /// agent; ledger, send lag, rate and the scenario's figures are judged over all agents, too.
    /// The record is incomplete when one is. Machine, command line, start and cost of first
    /// deliveries are agent 0's; another machine stands with its agent in [`RunRecord::agents`].
    ///
    /// Left out: medians by second ([`RunRecord::slices`]), which do not add up, and the relay's
    /// process, which no agent may read.
    ///
    /// # Errors
    /// [`MergeError`] when a record is missing, comes twice, is of another plan or has counts that
    /// no run reaches.
    pub fn merge(records: &[RunRecord]) -> Result<RunRecord, MergeError> {
        let parts = parts(records)?;
        let (first_share, first) = *parts.first().ok_or(MergeError::Nothing)?;
        parts.iter().try_for_each(|part| alike((first_share, first), *part))?;
        let counts: Counts = parts.iter().map(|(_, record)| record.counts).sum();
        let latency = latencies(&parts);
        let validity = validity(&parts, counts, &latency);
        Ok(RunRecord {
            status: status(&parts),
            relay: None,
            connections: sum(&parts, |record| record.connections),
            elapsed_ns: parts.iter().map(|(_, record)| record.elapsed_ns).max().unwrap_or(0),
            active_ns: union_of_spans(parts.iter().flat_map(|(share, _)| share.active_spans_ns.iter()))
                .iter()
                .map(|(from, to)| to - from)
                .sum(),
            counts,
            traffic: parts.iter().fold(TrafficRecord::default(), |sum, (_, record)| sum + record.traffic),
            client_cpu: cpu(&parts),
            relay_cpu: None,
            populations: populations(&parts),
            validity,
            link: None,
            memory: memory(&parts),
            compression_memory: compression_memory(&parts),
            pinned: None,
            usable_cores: usable_cores(&parts),
            allocations: allocations(&parts),
            encodings: None,
            throughput: throughput(&parts),
            slices: None,
            latency,
            share: None,
            agents: parts.iter().map(|(share, record)| agent(share, record, &first.environment)).collect(),
            ..first.clone()
        })
    }
}

/// The records in the order of their agents.
fn parts(records: &[RunRecord]) -> Result<Vec<Part<'_>>, MergeError> {
    let share = |(place, record): (usize, &'_ RunRecord)| match &record.share {
        Some(_) => Ok(()),
        None => Err(MergeError::Whole { place }),
    };
    records.iter().enumerate().try_for_each(share)?;
    let mut parts: Vec<Part<'_>> =
        records.iter().filter_map(|record| Some((record.share.as_ref()?, record))).collect();
    parts.sort_by_key(|(share, _)| share.index);
    let of = parts.first().ok_or(MergeError::Nothing)?.0.of.get();
    if let Some([(share, _), _]) = parts.array_windows().find(|[one, next]| one.0.index == next.0.index) {
        return Err(MergeError::Twice { index: share.index });
    }
    if let Some((share, _)) = parts.iter().find(|(share, _)| share.index >= of) {
        return Err(MergeError::Beyond { index: share.index, of });
    }
    if parts.len() != usize::from(of) {
        return Err(MergeError::Number { of, found: parts.len() });
    }
    Ok(parts)
}

/// Whether an agent played the same as agent 0, and counts what a run may count.
fn alike((first_share, first): Part<'_>, (share, record): Part<'_>) -> Result<(), MergeError> {
    let names = |record: &RunRecord| -> Vec<_> {
        let key = |one: &PopulationRecord| {
            (one.name.clone(), one.format.clone(), one.compression.clone(), one.link.clone())
        };
        record.populations.iter().map(key).collect()
    };
    let figures = |share: &ShareRecord| -> Vec<_> {
        let bounds = |one: &crate::Expectation| {
            (one.figure.clone(), one.min.map(f64::to_bits), one.max.map(f64::to_bits))
        };
        share.expected.iter().map(bounds).collect()
    };
    let same = [
        ("schema_version", record.schema_version == first.schema_version),
        ("tool", record.tool == first.tool),
        ("of", share.of == first_share.of),
        ("block_id", share.block_id == first_share.block_id),
        ("plan_sha256", share.plan_sha256 == first_share.plan_sha256),
        ("seed", record.seed == first.seed),
        ("cell", record.cell == first.cell),
        ("corpus", record.corpus.sha256 == first.corpus.sha256),
        ("agreement", record.agreement == first.agreement),
        ("populations", names(record) == names(first)),
        ("latency_bounds", record.latency_bounds == first.latency_bounds),
        ("expected", figures(share) == figures(first_share)),
        ("wanted_interval_ns", share.wanted_interval_ns == first_share.wanted_interval_ns),
    ];
    let index = share.index;
    if let Some((what, _)) = same.into_iter().find(|(_, same)| !same) {
        return Err(MergeError::Differs { index, what });
    }
    let RunRecord { counts, traffic, client_cpu, populations, memory, compression_memory, .. } = record;
    let (usable, allocations, connections) = (record.usable_cores, record.allocations, record.connections);
    let summed = serde_json::to_value((
        (counts, traffic, client_cpu, populations, memory, compression_memory),
        (usable, allocations, connections, record.elapsed_ns, share),
    ));
    let end_ns = share.active_spans_ns.end_ns().max(share.throughput_spans_ns.end_ns());
    match end_ns <= MOST && summed.is_ok_and(|summed| within(&summed)) {
        true => Ok(()),
        false => Err(MergeError::TooLarge { index }),
    }
}

/// Whether no number in it is beyond [`MOST`].
fn within(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_u64().is_none_or(|number| number <= MOST),
        Value::Array(values) => values.iter().all(within),
        Value::Object(fields) => fields.values().all(within),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

fn sum(parts: &[Part<'_>], of: impl Fn(&RunRecord) -> u64) -> u64 {
    parts.iter().map(|(_, record)| of(record)).sum()
}

fn cpu(parts: &[Part<'_>]) -> CpuTime {
    let times = parts.iter().map(|(_, record)| record.client_cpu);
    times.reduce(|sum, time| sum + time).unwrap_or_default()
}

fn latencies(parts: &[Part<'_>]) -> BTreeMap<String, Latency> {
    let mut merged = BTreeMap::<String, Latency>::new();
    for (metric, latency) in parts.iter().flat_map(|(_, record)| &record.latency) {
        merged.entry(metric.clone()).or_default().merge(latency);
    }
    merged
}

/// The worst of all agents, and what only all together can tell.
fn validity(parts: &[Part<'_>], counts: Counts, latency: &BTreeMap<String, Latency>) -> Validity {
    let mut validity = Validity::default();
    for (share, record) in parts {
        validity.class = validity.class.max(record.validity.class);
        validity.counts = validity.counts.max(record.validity.counts);
        let reasons = record.validity.reasons.iter();
        validity.reasons.extend(reasons.map(|reason| Validity::of_agent(share.index, reason)));
    }
    if counts.planned + counts.requests + counts.deliveries_expected == 0 {
        validity.add(ValidityClass::Invalid, "nothing was planned, so nothing was measured".to_owned());
    }
    if parts.len() > 1 {
        judge_ledger(counts, &mut validity);
        judge_sending(parts, latency, &mut validity);
    }
    let Some((first_share, first)) = parts.first() else { return validity };
    for (place, expected) in first_share.expected.iter().enumerate() {
        let each = || parts.iter().filter_map(|(share, _)| share.expected.get(place));
        let mut whole = expected.clone();
        whole.sum = each().map(|one| one.sum).sum();
        whole.per = each().map(|one| one.per).sum();
        whole.judge(&mut validity);
    }
    for bound in &first.latency_bounds {
        bound.judge(latency.get(&bound.metric), &mut validity);
    }
    validity
}

/// The ledger of several agents.
fn judge_ledger(counts: Counts, validity: &mut Validity) {
    if let Err(failure) = counts.balanced() {
        validity.add(ValidityClass::Invalid, format!("the ledger does not balance: {failure}"));
    }
    // An agent's subscribers are owed what others publish, and do not learn what was refused.
    if counts.rejected > 0 && counts.deliveries_expected > 0 {
        let reason = format!(
            "the relay refused {} events; whether other agents got them cannot be judged",
            counts.rejected
        );
        validity.add(ValidityClass::Invalid, reason);
    }
}

/// Send lag and rate of several agents, each of which may have too few samples for a verdict.
fn judge_sending(parts: &[Part<'_>], latency: &BTreeMap<String, Latency>, validity: &mut Validity) {
    let burst = |(share, record): &Part<'_>| Burst {
        sends: share.burst_sends,
        cores: record.usable_cores.map_or(1, |cores| cores.clients),
    };
    let longest = parts.iter().map(burst).max_by_key(|burst| burst.takes_ns());
    if let (Some(burst), Some(lag)) = (longest, latency.get("send_lag")) {
        burst.judge_lag(lag.quantile_ns(0.99), validity);
    }
    let pace = parts.iter().try_fold(Pace::default(), |sum, (share, _)| Some(sum + share.pace?));
    if let Some(rate) = pace.and_then(Pace::rate) {
        rate.judge(validity);
    }
}

fn status(parts: &[Part<'_>]) -> Status {
    let reason = |(share, record): &Part<'_>| match &record.status {
        Status::Complete => None,
        Status::Incomplete { reason } => Some(Validity::of_agent(share.index, reason)),
    };
    let reasons: Vec<String> = parts.iter().filter_map(reason).collect();
    match reasons.is_empty() {
        true => Status::Complete,
        false => Status::Incomplete { reason: reasons.join("; ") },
    }
}

fn populations(parts: &[Part<'_>]) -> Vec<PopulationRecord> {
    let mut records = parts.iter().map(|(_, record)| &record.populations);
    let mut sums = records.next().cloned().unwrap_or_default();
    for others in records {
        for (sum, one) in sums.iter_mut().zip(others) {
            sum.connections += one.connections;
            sum.counts += one.counts;
            sum.to_relay = sum.to_relay + one.to_relay;
            sum.to_client = sum.to_client + one.to_client;
        }
    }
    sums
}

/// The same of every agent; `None` where one does not know it.
fn of_all<T>(parts: &[Part<'_>], of: impl Fn(&RunRecord) -> Option<T>) -> Option<Vec<T>> {
    parts.iter().map(|(_, record)| of(record)).collect()
}

/// Memory of the client processes.
fn memory(parts: &[Part<'_>]) -> Option<MemoryRecord> {
    let memories = of_all(parts, |record| record.memory)?;
    let sum = |of: fn(&MemoryRecord) -> u64| memories.iter().map(of).sum();
    Some(MemoryRecord {
        connections: sum(|memory| memory.connections),
        client_before_bytes: sum(|memory| memory.client_before_bytes),
        client_after_bytes: sum(|memory| memory.client_after_bytes),
        relay_before_bytes: None,
        relay_after_bytes: None,
        relay_peak_bytes: None,
    })
}

/// The mean of a connection, each agent's with the weight of its connections, and the most that
/// connections of one thread share.
fn compression_memory(parts: &[Part<'_>]) -> Option<CompressionMemoryRecord> {
    let memories = of_all(parts, |record| Some((record.connections, record.compression_memory?)))?;
    let own =
        memories.iter().map(|(n, memory)| u128::from(*n) * u128::from(memory.client_bytes_per_connection));
    let connections: u128 = memories.iter().map(|(connections, _)| u128::from(*connections)).sum();
    Some(CompressionMemoryRecord {
        client_bytes_per_connection: u64::try_from(own.sum::<u128>() / connections.max(1))
            .unwrap_or(u64::MAX),
        client_shared_bytes: memories.iter().map(|(_, memory)| memory.client_shared_bytes).max().unwrap_or(0),
        relay_bytes_per_connection: None,
        relay_shared_bytes: None,
    })
}

fn usable_cores(parts: &[Part<'_>]) -> Option<UsableCores> {
    let clients = of_all(parts, |record| Some(record.usable_cores?.clients))?;
    Some(UsableCores { relay: None, clients: clients.iter().sum() })
}

fn allocations(parts: &[Part<'_>]) -> Option<AllocationsRecord> {
    let clients = of_all(parts, |record| Some(record.allocations?.client))?;
    Some(AllocationsRecord {
        client: clients.into_iter().fold(Allocations::default(), |a, b| a + b),
        relay: None,
    })
}

fn throughput(parts: &[Part<'_>]) -> Option<Throughput> {
    let mut intervals = ThroughputRecorder::default();
    parts.iter().for_each(|(share, _)| intervals.merge(&share.intervals));
    let spans = union_of_spans(parts.iter().flat_map(|(share, _)| share.throughput_spans_ns.iter()));
    let end_ns = intervals.longest_ns();
    let spans: Vec<_> = spans.into_iter().map(|(from, to)| (from, to.min(end_ns))).collect();
    intervals.within(&spans, parts.first()?.0.wanted_interval_ns)
}

fn agent(share: &ShareRecord, record: &RunRecord, first: &Environment) -> AgentRecord {
    let machine = |environment: &Environment| Environment { load_1_minute: None, ..environment.clone() };
    let differs = machine(&record.environment) != machine(first);
    AgentRecord {
        index: share.index,
        connections: record.connections,
        client_cpu: record.client_cpu,
        started_late_ns: share.started_late_ns,
        elapsed_ns: record.elapsed_ns,
        cores: record.usable_cores.map(|cores| cores.clients),
        send_lag_ns_p99: record.latency.get("send_lag").and_then(|lag| lag.quantile_ns(0.99).ns()),
        deliveries_lost: record.counts.deliveries_lost,
        environment: differs.then(|| record.environment.clone()),
    }
}
