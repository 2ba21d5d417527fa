//! Counts and times of a run, and whether they may be believed.
//!
//! [`Latency`] collects durations, [`CpuClock`] reads the CPU time of a process, [`Counts`] is the
//! ledger, and [`Signals`] become a [`Validity`]. A [`RunRecord`] has all of these: a run writes it, the
//! report reads it. [`Merge`] makes one record of several agents' records and the [`RelayRecord`] of
//! their relay. This crate has no runtime, socket or Nostr: a result names its [`Cell`] by strings.
//!
//! To add a signal, give [`Signals`] a field, [`Signals::judge`] a rule with its two thresholds, and
//! the table of reasons (`validity/reason.rs`) a row.
//! To add something to the record, add a field with `#[serde(default)]` and raise the minor number
//! of [`SCHEMA_VERSION`].

#![warn(missing_docs)]

mod exit;
mod files;
mod record;
mod recorders;
mod sums;
mod system;
pub mod utc;
mod validity;
mod whole;

pub use exit::Exit;
pub use files::output::{Unwritable, WholeFile, remove_parts, try_file, try_folder, write_whole};
pub use record::link::{LinkFlow, LinkPart, LinkRecord, may_be_late_ns};
pub use record::merge::{Merge, MergeError};
pub use record::page::{FirstEvents, PageRecord};
pub use record::relay::{CpuReadings, RelayRecord};
pub use record::share::{AgentRecord, ClockRecord, ShareRecord};
pub use record::{
    AgreementRecord, AllocationsRecord, Cell, CompressionMemoryRecord, CorpusRecord, FlowRecord,
    MemoryRecord, NO_BATCHES, NO_GATEWAY, NO_LINK, Planted, PopulationRecord, RecordError, RelayProcess,
    RunRecord, SCHEMA_VERSION, Status, Tool, TrafficRecord, parse_versioned, read_versioned,
};
pub use recorders::counts::Counts;
pub use recorders::encodings::{EncodingsRecord, FirstDelivery, FirstDeliveryRecord};
pub use recorders::latency::{Latency, Quantile};
pub use recorders::live::{LIVE_EDGES_NS, LiveCounts, LiveLatency};
pub use recorders::log;
pub use recorders::slices::{Slice, SliceRecorder, Slices};
pub use recorders::spans::{Spans, union_of_spans};
pub use recorders::throughput::{Throughput, ThroughputRecorder};
pub use sums::AddUp;
pub use system::allocations::Allocations;
pub use system::cores::{self, PinnedCores};
pub use system::cpu::{
    CpuClock, CpuTime, Threads, cpu_pressure_percent, main_thread_ns, runnable_wait_ns, thread_times_ns,
};
pub use system::environment::Environment;
pub use system::helper::{Helper, HelperEnd};
pub use system::host::{HostMeter, HostRecord, MemoryKills};
pub use system::platform::{UNKNOWN_HERE, own_program};
pub use system::processes::{Processes, ProcessesCpu, ProcessesSpent, children, started_by};
pub use system::quota::{CpuQuota, QuotaMeter, UsableCores, memory_bytes};
pub use validity::bounds::{Expectation, LatencyBound};
pub use validity::reason::{FULL_FROM, Full, Reason, ReasonKind, Subject, ValidityClass};
pub use validity::saturated::{NOT_SATURATED, Saturated};
pub use validity::{Pace, Rate, Signals, Validity};
pub use whole::whole;
