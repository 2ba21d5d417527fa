//! Merges the agents' records of a plan into one.

mod relay;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::{
    AddUp, AgentRecord, AllocationsRecord, CompressionMemoryRecord, Counts, MemoryRecord, ReasonKind,
    RunRecord, ShareRecord, Status, Throughput, UsableCores, Validity, ValidityClass,
    recorders::counts::MOST_COUNTED,
    recorders::latency::MOST_METRICS,
    validity::{Burst, Pace},
};

/// The most that one agent may say of itself and of why its numbers are not to be believed: ten
/// times what a busy host makes it say.
const MOST_SAID_BYTES: usize = 16 << 10;
const TOO_MUCH_SAID: &str = "more than 16 KiB of reasons and machine";

/// Why records do not make one, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MergeError(String);

fn refused<T>(why: impl Into<String>) -> Result<T, MergeError> {
    Err(MergeError(why.into()))
}

impl RunRecord {
    /// Makes one record of those of all agents of a plan, as [`Merge`] does.
    ///
    /// # Errors
    /// [`MergeError`] when a record is missing, comes twice, is of another plan or has counts that
    /// no run reaches.
    pub fn merge(records: impl IntoIterator<Item = RunRecord>) -> Result<RunRecord, MergeError> {
        let mut merge = Merge::default();
        records.into_iter().try_for_each(|record| merge.add(record))?;
        merge.finish()
    }
}

/// Makes one record of those of all agents of a plan, in any order: exactly one of each. Holds the
/// sum, and the record that is being added.
///
/// Counts, bytes, memory, CPU time of clients and buckets of histograms add up. Envelope throughput
/// is of the sums by interval. Time with work outstanding is the union of the agents' spans (as
/// `Spans::to_store` keeps it), elapsed time the longest. Validity is the worst, each reason
/// behind its agent; ledger, send lag, rate and the scenario's figures are judged over all agents,
/// too. The record is incomplete when one is. Machine, command line, start, events and cost of
/// first deliveries are agent 0's; another machine stands with its agent in [`RunRecord::agents`].
///
/// Left out: medians by second ([`RunRecord::slices`]), which do not add up, and the relay's
/// process, which no agent may read: [`Merge::finish_with`] adds what its own host read.
#[derive(Debug, Default)]
pub struct Merge(Option<Sum>);

impl Merge {
    /// Adds the record of an agent. After an error the sum is as before.
    ///
    /// # Errors
    /// [`MergeError`] when the agent was added before, or the record is of another plan, has counts
    /// that no run reaches, or says too much.
    pub fn add(&mut self, mut record: RunRecord) -> Result<(), MergeError> {
        let place = self.0.as_ref().map_or(0, |sum| sum.record.agents.len());
        let Some(share) = record.share.take() else {
            return refused(format!("record {place} is not of an agent's share of a plan"));
        };
        let (index, of) = (share.index, share.of.get());
        if index >= of {
            return refused(format!("a plan of {of} agents has no agent {index}"));
        }
        within_bounds(&share, &record)?;
        match &mut self.0 {
            Some(sum) if sum.record.agents.iter().any(|agent| agent.index == index) => {
                refused(format!("there are two records of agent {index}"))
            }
            Some(sum) => sum.alike(&share, &record).map(|()| sum.add(&share, record)),
            none => {
                *none = Some(Sum::from_record(share, record));
                Ok(())
            }
        }
    }

    /// The record of all agents.
    ///
    /// # Errors
    /// [`MergeError`] when agents are missing.
    pub fn finish(self) -> Result<RunRecord, MergeError> {
        self.whole().map(Sum::finish)
    }

    fn whole(self) -> Result<Sum, MergeError> {
        let Some(sum) = self.0 else { return refused("there is no record to merge") };
        let (of, found) = (sum.share.of.get(), sum.record.agents.len());
        if found != usize::from(of) {
            return refused(format!("a plan of {of} agents has {of} records; there are {found}"));
        }
        Ok(sum)
    }
}

/// The parts that agents share, and the sums of their measurements.
#[derive(Debug)]
struct Sum {
    /// Reasons and agents stand in the order in which their records came.
    record: RunRecord,
    share: ShareRecord,
    /// The agent whose sends at one instant take longest.
    burst: Burst,
    /// Why runs did not reach their end, by agent.
    incomplete: BTreeMap<u16, String>,
}

impl Sum {
    /// The sum of one record.
    fn from_record(share: ShareRecord, record: RunRecord) -> Sum {
        let burst = burst(&share, &record);
        let (record, incomplete) = part(&share, record);
        let incomplete = incomplete.map(|why| (share.index, why)).into_iter().collect();
        Sum { record, share, burst, incomplete }
    }

    /// Whether an agent played the same as those before it.
    fn alike(&self, share: &ShareRecord, record: &RunRecord) -> Result<(), MergeError> {
        let (first_share, first) = (&self.share, &self.record);
        let same = [
            ("schema_version", record.schema_version == first.schema_version),
            ("tool", record.tool == first.tool),
            ("commit", record.commit == first.commit),
            ("of", share.of == first_share.of),
            ("block_id", share.block_id == first_share.block_id),
            ("plan_sha256", share.plan_sha256 == first_share.plan_sha256),
            ("seed", record.seed == first.seed),
            ("cell", record.cell == first.cell),
            ("corpus", record.corpus.sha256 == first.corpus.sha256),
            ("agreement", record.agreement == first.agreement),
            ("latency_bounds", record.latency_bounds == first.latency_bounds),
        ];
        let index = share.index;
        if let Some((what, _)) = same.into_iter().find(|(_, same)| !same) {
            return refused(format!("agent {index} differs from those before it: {what}"));
        }
        let new = record.latency.keys().filter(|metric| !first.latency.contains_key(*metric)).count();
        if first.latency.len() + new > MOST_METRICS {
            return refused(format!("agent {index} has metrics that nobody else has"));
        }
        Ok(())
    }

    fn add(&mut self, share: &ShareRecord, record: RunRecord) {
        let longer = burst(share, &record);
        if longer.takes_ns() > self.burst.takes_ns() {
            self.burst = longer;
        }
        let (mut record, incomplete) = part(share, record);
        self.incomplete.extend(incomplete.map(|why| (share.index, why)));
        let sum = &mut self.record;
        sum.add_up(&record);
        sum.validity.reasons.append(&mut record.validity.reasons);
        sum.agents.append(&mut record.agents);
        if share.index == 0 {
            sum.environment = record.environment;
            sum.command = record.command;
            sum.started_utc = record.started_utc;
            sum.corpus = record.corpus;
            sum.first_delivery = record.first_delivery;
        }
        self.share.add_up(share);
    }

    fn finish(mut self) -> RunRecord {
        self.record.agents.sort_by_key(|agent| agent.index);
        self.record.validity.reasons.sort_by_key(|reason| reason.agent);
        self.judge();
        let throughput = self.throughput();
        let Sum { mut record, share, incomplete, .. } = self;
        if let Some(memory) = &mut record.compression_memory {
            memory.client_bytes_per_connection /= record.connections.max(1);
        }
        if !incomplete.is_empty() {
            let reasons: Vec<String> =
                incomplete.iter().map(|(index, why)| format!("agent {index}: {why}")).collect();
            record.status = Status::Incomplete { reason: reasons.join("; ") };
        }
        let first = &record.environment;
        for agent in &mut record.agents {
            agent.environment = agent.environment.take().filter(|own| !own.is_same_machine(first));
        }
        let active_ns = share.active_spans_ns.iter().map(|(from, to)| to - from).sum();
        RunRecord { active_ns, throughput, ..record }
    }

    /// Judges what only all agents together can tell.
    fn judge(&mut self) {
        let RunRecord { counts, latency, validity, latency_bounds, agents, .. } = &mut self.record;
        if counts.planned + counts.requests + counts.deliveries_expected == 0 {
            validity.add(ValidityClass::Invalid, ReasonKind::NothingPlanned {});
        }
        validity.judge_light(counts);
        validity.judge_unanswered(counts);
        if agents.len() > 1 {
            judge_ledger(counts, validity);
            if let Some(lag) = latency.get("send_lag") {
                self.burst.judge_lag(lag.quantile_ns(0.99), validity);
            }
            if let Some(rate) = self.share.pace.and_then(Pace::rate) {
                rate.judge(validity);
            }
        }
        self.share.expected.iter().for_each(|whole| whole.judge(validity));
        for bound in latency_bounds {
            bound.judge(latency.get(&bound.metric), validity);
        }
    }

    fn throughput(&self) -> Option<Throughput> {
        let ShareRecord { intervals, throughput_spans_ns, wanted_interval_ns, .. } = &self.share;
        let end_ns = intervals.longest_ns();
        let spans: Vec<_> = throughput_spans_ns.iter().map(|(from, to)| (from, to.min(end_ns))).collect();
        intervals.within(&spans, *wanted_interval_ns)
    }
}

/// The ledger of several agents.
fn judge_ledger(counts: &Counts, validity: &mut Validity) {
    if let Err(why) = counts.balanced() {
        validity.add(ValidityClass::Invalid, ReasonKind::Unbalanced { why });
    }
    // An agent's subscribers are owed what others publish, and do not learn what was refused.
    let rejected = counts.rejected;
    if rejected > 0 && counts.deliveries_expected > 0 {
        validity.add(ValidityClass::Invalid, ReasonKind::RefusedAmongAgents { rejected });
    }
}

/// One agent's record as a part of that of all, and why its run did not reach its end: its reasons name
/// it, it stands among the agents, nothing is of a relay, and memory of compression is that of all its
/// connections.
fn part(share: &ShareRecord, mut record: RunRecord) -> (RunRecord, Option<String>) {
    let incomplete = record.status.reason().map(str::to_owned);
    record.validity.reasons.iter_mut().for_each(|reason| reason.agent = Some(share.index));
    let agent = AgentRecord {
        index: share.index,
        connections: record.connections,
        client_cpu: record.client_cpu,
        started_late_ns: share.started_late_ns,
        elapsed_ns: record.elapsed_ns,
        cores: record.usable_cores.map(|cores| cores.clients),
        millicores: record.usable_cores.and_then(|cores| cores.clients_millicores),
        send_lag_ns_p99: record.latency.get("send_lag").and_then(|lag| lag.quantile_ns(0.99).ns()),
        handshake_ns_min: share.handshake_ns_min,
        deliveries_lost: record.counts.deliveries_lost,
        clock: None,
        environment: Some(record.environment.clone()),
    };
    let compression_memory = record.compression_memory.map(|own| CompressionMemoryRecord {
        client_bytes_per_connection: own.client_bytes_per_connection.saturating_mul(record.connections),
        relay_bytes_per_connection: None,
        relay_shared_bytes: None,
        ..own
    });
    let usable_cores =
        record.usable_cores.map(|own| UsableCores { relay: None, relay_millicores: None, ..own });
    let part = RunRecord {
        status: Status::Complete,
        agents: vec![agent],
        relay: None,
        relay_cpu: None,
        gateway_cpu: None,
        link: None,
        memory: record.memory.map(clients_memory),
        compression_memory,
        host: None,
        pinned: None,
        usable_cores,
        allocations: record.allocations.map(|own| AllocationsRecord { relay: None, ..own }),
        encodings: None,
        throughput: None,
        slices: None,
        saturated: None,
        ..record
    };
    (part, incomplete)
}

/// Whether a record counts what a run may count, and says no more than there is to say.
fn within_bounds(share: &ShareRecord, record: &RunRecord) -> Result<(), MergeError> {
    let index = share.index;
    let RunRecord { counts, traffic, client_cpu, populations, memory, compression_memory, .. } = record;
    let (usable, allocations, connections) = (record.usable_cores, record.allocations, record.connections);
    let summed = serde_json::to_value((
        (counts, traffic, client_cpu, populations, memory, compression_memory),
        (usable, allocations, connections, record.elapsed_ns, share),
    ));
    if !share.intervals.is_on_grid() || !summed.is_ok_and(|summed| within(&summed)) {
        return refused(format!("agent {index} counts more than 2^48 of something"));
    }
    if !is_short(&(&record.environment, &record.validity.reasons, &record.status)) {
        return refused(format!("agent {index} has {TOO_MUCH_SAID}"));
    }
    Ok(())
}

/// Whether a statement is no longer than [`MOST_SAID_BYTES`].
fn is_short(said: &impl Serialize) -> bool {
    serde_json::to_vec(said).is_ok_and(|said| said.len() <= MOST_SAID_BYTES)
}

/// Whether no number in it is beyond [`MOST_COUNTED`].
fn within(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.as_u64().is_none_or(|number| number <= MOST_COUNTED),
        Value::Array(values) => values.iter().all(within),
        Value::Object(fields) => fields.values().all(within),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

fn burst(share: &ShareRecord, record: &RunRecord) -> Burst {
    Burst { sends: share.burst_sends, cores: record.usable_cores.map_or(1, |cores| cores.clients) }
}

fn clients_memory(memory: MemoryRecord) -> MemoryRecord {
    let MemoryRecord { connections, client_before_bytes, client_after_bytes, .. } = memory;
    MemoryRecord { connections, client_before_bytes, client_after_bytes, ..MemoryRecord::default() }
}
