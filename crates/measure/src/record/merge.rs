//! Merges the agents' records of a plan into one.

mod relay;

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use crate::{
    AddUp, AgentRecord, AllocationsRecord, CompressionMemoryRecord, Environment, MemoryRecord, Reason,
    ReasonKind, RunRecord, ShareRecord, Status, Throughput, UsableCores, Validity, ValidityClass,
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
        let place = self.0.as_ref().map_or(0, |sum| sum.agents.len());
        let Some(share) = record.share.take() else {
            return refused(format!("record {place} is not of an agent's share of a plan"));
        };
        let (index, of) = (share.index, share.of.get());
        if index >= of {
            return refused(format!("a plan of {of} agents has no agent {index}"));
        }
        within_bounds(&share, &record)?;
        match &mut self.0 {
            Some(sum) if sum.agents.contains_key(&index) => {
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
        let (of, found) = (sum.share.of.get(), sum.agents.len());
        if found != usize::from(of) {
            return refused(format!("a plan of {of} agents has {of} records; there are {found}"));
        }
        Ok(sum)
    }
}

/// The parts that agents share, and the sums of their measurements.
#[derive(Debug)]
struct Sum {
    record: RunRecord,
    share: ShareRecord,
    /// The agent whose sends at one instant take longest.
    burst: Burst,
    /// Bytes of compression in all connections; `None` where an agent does not know them.
    compression_bytes: Option<u128>,
    agents: BTreeMap<u16, Said>,
}

/// One agent's part in the record of all.
#[derive(Debug)]
struct Said {
    agent: AgentRecord,
    reasons: Vec<Reason>,
    incomplete: Option<String>,
}

impl Sum {
    /// The sum of one record.
    fn from_record(share: ShareRecord, mut record: RunRecord) -> Sum {
        let said = Said::take_from(&share, &mut record);
        let (burst, compression_bytes) = (burst(&share, &record), compression_bytes(&record));
        let without_relay = RunRecord {
            relay: None,
            relay_cpu: None,
            gateway_cpu: None,
            link: None,
            memory: record.memory.map(clients_memory),
            host: None,
            pinned: None,
            usable_cores: record.usable_cores.map(|cores| UsableCores {
                relay: None,
                relay_millicores: None,
                ..cores
            }),
            allocations: record.allocations.map(|own| AllocationsRecord { relay: None, ..own }),
            encodings: None,
            throughput: None,
            slices: None,
            saturated: None,
            ..record
        };
        let agents = BTreeMap::from([(share.index, said)]);
        Sum { record: without_relay, share, burst, compression_bytes, agents }
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

    fn add(&mut self, share: &ShareRecord, mut record: RunRecord) {
        self.agents.insert(share.index, Said::take_from(share, &mut record));
        let longer = burst(share, &record);
        if longer.takes_ns() > self.burst.takes_ns() {
            self.burst = longer;
        }
        self.compression_bytes =
            self.compression_bytes.zip(compression_bytes(&record)).map(|(sum, own)| sum + own);
        self.record.add_up(&record);
        self.share.add_up(share);
        if share.index == 0 {
            let sum = &mut self.record;
            sum.environment = record.environment;
            sum.command = record.command;
            sum.started_utc = record.started_utc;
            sum.corpus = record.corpus;
            sum.first_delivery = record.first_delivery;
        }
    }

    fn finish(self) -> RunRecord {
        let validity = self.validity();
        let throughput = self.throughput();
        let Sum { record, share, compression_bytes, agents, .. } = self;
        let mean = compression_bytes.map(|bytes| bytes / u128::from(record.connections.max(1)));
        let known = record.compression_memory.zip(mean);
        let compression_memory = known.map(|(memory, mean)| CompressionMemoryRecord {
            client_bytes_per_connection: u64::try_from(mean).unwrap_or(u64::MAX),
            relay_bytes_per_connection: None,
            relay_shared_bytes: None,
            ..memory
        });
        let reason =
            |(index, said): (&u16, &Said)| Some(format!("agent {index}: {}", said.incomplete.as_ref()?));
        let reasons: Vec<String> = agents.iter().filter_map(reason).collect();
        let status = if reasons.is_empty() {
            Status::Complete
        } else {
            Status::Incomplete { reason: reasons.join("; ") }
        };
        let agents = agents.into_values().map(|said| said.agent_beside(&record.environment)).collect();
        RunRecord {
            status,
            active_ns: share.active_spans_ns.iter().map(|(from, to)| to - from).sum(),
            validity,
            compression_memory,
            throughput,
            agents,
            ..record
        }
    }

    /// The worst of all agents, and what only all together can tell.
    fn validity(&self) -> Validity {
        let (counts, latency) = (self.record.counts, &self.record.latency);
        // Holds the worst classes of the agents.
        let mut validity = Validity { reasons: Vec::new(), ..self.record.validity };
        for (index, said) in &self.agents {
            let of_agent = |reason: &Reason| Reason { agent: Some(*index), ..reason.clone() };
            validity.reasons.extend(said.reasons.iter().map(of_agent));
        }
        if counts.planned + counts.requests + counts.deliveries_expected == 0 {
            validity.add(ValidityClass::Invalid, ReasonKind::NothingPlanned {});
        }
        validity.judge_light(&counts);
        validity.judge_unanswered(&counts);
        if self.agents.len() > 1 {
            self.judge_ledger(&mut validity);
            if let Some(lag) = latency.get("send_lag") {
                self.burst.judge_lag(lag.quantile_ns(0.99), &mut validity);
            }
            if let Some(rate) = self.share.pace.and_then(Pace::rate) {
                rate.judge(&mut validity);
            }
        }
        self.share.expected.iter().for_each(|whole| whole.judge(&mut validity));
        for bound in &self.record.latency_bounds {
            bound.judge(latency.get(&bound.metric), &mut validity);
        }
        validity
    }

    /// The ledger of several agents.
    fn judge_ledger(&self, validity: &mut Validity) {
        let counts = self.record.counts;
        if let Err(why) = counts.balanced() {
            validity.add(ValidityClass::Invalid, ReasonKind::Unbalanced { why });
        }
        // An agent's subscribers are owed what others publish, and do not learn what was refused.
        let rejected = counts.rejected;
        if rejected > 0 && counts.deliveries_expected > 0 {
            validity.add(ValidityClass::Invalid, ReasonKind::RefusedAmongAgents { rejected });
        }
    }

    fn throughput(&self) -> Option<Throughput> {
        let ShareRecord { intervals, throughput_spans_ns, wanted_interval_ns, .. } = &self.share;
        let end_ns = intervals.longest_ns();
        let spans: Vec<_> = throughput_spans_ns.iter().map(|(from, to)| (from, to.min(end_ns))).collect();
        intervals.within(&spans, *wanted_interval_ns)
    }
}

impl Said {
    /// Takes it out of the record.
    fn take_from(share: &ShareRecord, record: &mut RunRecord) -> Said {
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
        let incomplete = record.status.reason().map(str::to_owned);
        Said { agent, reasons: std::mem::take(&mut record.validity.reasons), incomplete }
    }

    /// The agent's record, with its machine where it is another than agent 0's.
    fn agent_beside(self, first: &Environment) -> AgentRecord {
        let environment = self.agent.environment.filter(|own| !own.is_same_machine(first));
        AgentRecord { environment, ..self.agent }
    }
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

/// Bytes of compression in all connections of an agent: the mean of all is of those of all.
fn compression_bytes(record: &RunRecord) -> Option<u128> {
    let each = record.compression_memory?.client_bytes_per_connection;
    Some(u128::from(record.connections) * u128::from(each))
}

fn clients_memory(memory: MemoryRecord) -> MemoryRecord {
    let MemoryRecord { connections, client_before_bytes, client_after_bytes, .. } = memory;
    MemoryRecord { connections, client_before_bytes, client_after_bytes, ..MemoryRecord::default() }
}
