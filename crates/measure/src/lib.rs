//! Counts and times of a run, and whether they may be believed.
//!
//! [`Latency`] collects durations, [`CpuClock`] what a process spent, [`Counts`] is the ledger,
//! [`Signals`] become a [`Validity`], and all of it ends in a [`RunRecord`], the file one run
//! writes and the report reads; [`Merge`] makes one of the records of several agents and the
//! [`RelayRecord`] of their relay. Nothing here knows a runtime, a socket or Nostr: a result names
//! its [`Cell`] by strings.
//!
//! To add a signal, give [`Signals`] a field, [`Signals::judge`] a rule with its two thresholds, and
//! the table of reasons (`reason.rs`) a row.
//! To add something to the record, add a field with `#[serde(default)]` and raise the minor number
//! of [`SCHEMA_VERSION`].

#![warn(missing_docs)]

mod allocations;
mod bounds;
pub mod cores;
mod counts;
mod cpu;
mod encodings;
mod environment;
mod exit;
mod host;
mod latency;
mod link;
mod live;
pub mod log;
mod merge;
mod output;
mod processes;
mod quota;
mod reason;
mod record;
mod relay;
mod saturated;
mod share;
mod slices;
mod spans;
mod sums;
#[cfg_attr(target_os = "linux", path = "linux.rs")]
#[cfg_attr(not(target_os = "linux"), path = "elsewhere.rs")]
mod system;
mod throughput;
mod unpack;
pub mod utc;
mod validity;
mod whole;

pub use allocations::Allocations;
pub use bounds::{Expectation, LatencyBound};
pub use counts::Counts;
pub use cpu::{
    CpuClock, CpuTime, Threads, cpu_pressure_percent, main_thread_ns, runnable_wait_ns, thread_times_ns,
};
pub use encodings::{EncodingsRecord, FirstDelivery, FirstDeliveryRecord};
pub use environment::Environment;
pub use exit::Exit;
pub use host::{HostMeter, HostRecord, MemoryKills};
pub use latency::{Latency, LatencyError, Quantile};
pub use link::{LinkFlow, LinkPart, LinkRecord, PartFlow, may_be_late_ns};
pub use live::{LIVE_EDGES_NS, LiveCounts, LiveLatency};
pub use merge::{Merge, MergeError};
pub use output::{Unwritable, WholeFile, remove_parts, try_file, try_folder, write_whole};
pub use processes::{Processes, ProcessesCpu, ProcessesSpent, children, started_by};
pub use quota::{CpuQuota, QuotaMeter, UsableCores};
pub use reason::{Reason, ReasonKind, Subject};
pub use record::{
    AgreementRecord, AllocationsRecord, Cell, CompressionMemoryRecord, CorpusRecord, FlowRecord,
    MemoryRecord, NO_BATCHES, NO_LINK, PinnedCores, Planted, PopulationRecord, RecordError, RelayProcess,
    RunRecord, SCHEMA_VERSION, Status, Tool, TrafficRecord, parse_versioned, read_status, read_versioned,
};
pub use relay::{CpuReadings, RelayRecord};
pub use saturated::{FULL_FROM, Full, NOT_SATURATED, Saturated};
pub use share::{AgentRecord, ClockRecord, ShareRecord};
pub use slices::{LastSecond, Slice, SliceRecorder, Slices};
pub use spans::{Spans, union_of_spans};
pub use sums::AddUp;
pub use system::{UNKNOWN_HERE, own_program};
pub use throughput::{Throughput, ThroughputRecorder};
pub use validity::{Pace, Rate, Signals, Validity, ValidityClass};
pub use whole::whole;
