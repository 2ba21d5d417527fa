//! The fields of an agent's record by which the records of all agents of a plan make one.

use std::num::NonZeroU16;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{CpuTime, Environment, Expectation, Pace, Spans, ThroughputRecorder, system::quota::capacity_ns};

/// The part of a plan that one agent played, and what only all agents together can tell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShareRecord {
    /// The agent, from 0.
    pub index: u16,
    /// How many agents play the plan.
    pub of: NonZeroU16,
    /// Which play of a block it is, as the coordinator names it: rounds may play the same plan.
    pub block_id: Option<String>,
    /// SHA-256 of the plan in hex, by which agents know that they play the same.
    pub plan_sha256: String,
    /// From the plan's time zero to the instant at which the last worker of this agent began.
    pub started_late_ns: u64,
    /// From the plan's time zero to the instant at which this agent was done: the end of what CPU
    /// times are measured over.
    #[serde(default)]
    pub ended_after_ns: u64,
    /// The shortest of its handshakes with the relay, from TCP's to the end of WebSocket's: two
    /// round trips, and those of TLS.
    pub handshake_ns_min: Option<u64>,
    /// Spans with work outstanding, in nanoseconds from time zero: at most 2,048, beyond which those
    /// with the shortest pauses between them become one.
    pub active_spans_ns: Spans,
    /// Spans of envelope throughput, likewise.
    pub throughput_spans_ns: Spans,
    /// The interval that envelope throughput asks for.
    pub wanted_interval_ns: u64,
    /// Envelopes and wire bytes by interval from time zero.
    pub intervals: ThroughputRecorder,
    /// The most sends that the plan has due at one instant here.
    pub burst_sends: u64,
    /// Pace of publications at planned instants; `None` for a closed loop, and for a run that ended
    /// early.
    pub pace: Option<Pace>,
    /// Expectations of the scenario for the whole plan, with this agent's part of each figure.
    pub expected: Vec<Expectation>,
}

crate::sums! {
    ShareRecord { active_spans_ns, throughput_spans_ns, intervals, pace, expected; most ended_after_ns }
}

/// An agent's clock in a block. It corrects nothing, and only shows how well agents started together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClockRecord {
    /// The agent's start is off the common one by at most this.
    pub start_bound_ns: u64,
    /// How far its clock ran ahead of the coordinator's from before the start to the end.
    pub drift_ns: i64,
    /// The drift is off by at most this.
    pub drift_bound_ns: u64,
}

/// One agent of a merged record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentRecord {
    /// The agent, from 0.
    pub index: u16,
    /// Its client connections.
    pub connections: u64,
    /// CPU time of the clients during the run.
    pub client_cpu: CpuTime,
    /// From the plan's time zero to the instant at which its last worker began.
    pub started_late_ns: u64,
    /// Wall time of its load.
    #[serde(default)]
    pub elapsed_ns: u64,
    /// The cores that its clients can keep busy, where that is known.
    pub cores: Option<u64>,
    /// The part of them that a CPU quota leaves, in thousandths of a core, where that is less.
    pub millicores: Option<u64>,
    /// p99 of its send lag, where it sent enough for one.
    pub send_lag_ns_p99: Option<u64>,
    /// The shortest of its handshakes with the relay, from TCP's to the end of WebSocket's: two
    /// round trips, and those of TLS.
    pub handshake_ns_min: Option<u64>,
    /// Deliveries that its subscribers were owed and did not get.
    #[serde(default)]
    pub deliveries_lost: u64,
    /// Its clock against the coordinator's, which set the start; absent in older records.
    pub clock: Option<ClockRecord>,
    /// Its machine, where that differs from the machine of agent 0 in more than the load.
    pub environment: Option<Environment>,
}

impl AgentRecord {
    /// Its CPU time as a share of what its cores could give; `None` where they are not known.
    pub fn utilisation(&self) -> Option<f64> {
        let capacity_ns = capacity_ns(self.cores?, self.millicores, self.elapsed_ns);
        (capacity_ns > 0).then(|| self.client_cpu.total_ns as f64 / capacity_ns as f64)
    }
}
