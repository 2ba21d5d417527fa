//! What adds up: over the agents of a block, and over the blocks of a cell. Each type names its
//! fields once.

use std::collections::BTreeMap;

use crate::{
    Allocations, AllocationsRecord, CompressionMemoryRecord, Counts, CpuTime, EncodingsRecord, Expectation,
    FlowRecord, Latency, MemoryRecord, Pace, PopulationRecord, RunRecord, ShareRecord, Spans, Throughput,
    ThroughputRecorder, TrafficRecord, UsableCores, Validity,
};

/// A measurement of which those of several records make one.
pub trait AddUp {
    /// Adds the same of another record.
    fn add_up(&mut self, other: &Self);
}

/// The fields of a type that add up, and those of which the largest counts. The others stay those of
/// the first record.
#[macro_export]
macro_rules! sums {
    ($($type:ty { $($sum:ident),* $(; most $($most:ident),*)? })*) => {
        $(impl $crate::AddUp for $type {
            fn add_up(&mut self, other: &Self) {
                $($crate::AddUp::add_up(&mut self.$sum, &other.$sum);)*
                $($(self.$most = self.$most.max(other.$most);)*)?
            }
        })*
    };
}

sums! {
    CpuTime { total_ns, user_ns, system_ns }
    Allocations { count, bytes }
    AllocationsRecord { client, relay }
    MemoryRecord { connections, client_before_bytes, client_after_bytes }
    CompressionMemoryRecord { ; most client_shared_bytes }
    Pace { planned, sent; most span_ns, sent_span_ns }
    Expectation { sum, per }
    Validity { ; most class, counts }
    PopulationRecord { connections, counts, to_relay, to_client }
    ShareRecord { active_spans_ns, throughput_spans_ns, intervals, pace, expected; most ended_after_ns }
    RunRecord {
        connections, counts, traffic, client_cpu, validity, populations, compression_memory, memory, usable_cores,
        allocations, latency; most elapsed_ns
    }
}

/// Types with sums of their own.
macro_rules! own_sums {
    ($($type:ty: |$sum:ident, $other:ident| $add:expr;)*) => {
        $(impl AddUp for $type {
            fn add_up(&mut self, $other: &Self) {
                let $sum = self;
                $add;
            }
        })*
    };
}

own_sums! {
    // What agents say may be anything.
    u64: |sum, other| *sum = sum.saturating_add(*other);
    bool: |sum, other| *sum |= other;
    Counts: |sum, other| *sum += *other;
    FlowRecord: |sum, other| *sum = *sum + *other;
    TrafficRecord: |sum, other| *sum = *sum + *other;
    EncodingsRecord: |sum, other| *sum = *sum + *other;
    Latency: |sum, other| sum.merge(other);
    Throughput: |sum, other| sum.merge(other);
    ThroughputRecorder: |sum, other| sum.merge(other);
    Spans: |sum, other| *sum = Spans::to_store(sum.iter().chain(other.iter()));
    // An agent without a quota has all of its cores.
    UsableCores: |sum, other| {
        let millicores = |one: &UsableCores| one.clients_millicores.unwrap_or(one.clients * 1_000);
        let limited = sum.clients_millicores.or(other.clients_millicores);
        sum.clients_millicores = limited.map(|_| millicores(sum) + millicores(other));
        sum.clients += other.clients;
    };
}

/// The sum of what both know.
impl<T: AddUp> AddUp for Option<T> {
    fn add_up(&mut self, other: &Self) {
        match (self.as_mut(), other) {
            (Some(sum), Some(other)) => sum.add_up(other),
            _ => *self = None,
        }
    }
}

impl<T: AddUp> AddUp for Vec<T> {
    fn add_up(&mut self, other: &Self) {
        self.iter_mut().zip(other).for_each(|(sum, other)| sum.add_up(other));
    }
}

impl<T: AddUp + Default> AddUp for BTreeMap<String, T> {
    fn add_up(&mut self, other: &Self) {
        other.iter().for_each(|(name, other)| self.entry(name.clone()).or_default().add_up(other));
    }
}
