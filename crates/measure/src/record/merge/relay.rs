//! The relay's part of one record.

use super::{Merge, MergeError, TOO_MUCH_SAID, is_short, refused, within};
use crate::{RelayProcess, RelayRecord, RunRecord, Subject};

impl Merge {
    /// The record of all agents and of the relay that was started for them. The relay's CPU time is
    /// that until the last agent was done.
    ///
    /// # Errors
    /// [`MergeError`] when agents are missing, or the relay's part is of another play of a block,
    /// counts what no run reaches, or says too much.
    pub fn finish_with(self, relay: &RelayRecord) -> Result<RunRecord, MergeError> {
        let sum = self.whole()?;
        let share = &sum.share;
        let same = [
            ("schema_version", relay.schema_version == sum.record.schema_version),
            ("tool", relay.tool == sum.record.tool),
            ("block_id", relay.block_id == share.block_id),
            ("plan_sha256", relay.plan_sha256 == share.plan_sha256),
        ];
        if let Some((what, _)) = same.into_iter().find(|(_, same)| !same) {
            return refused(format!("the relay's part differs from the agents': {what}"));
        }
        let figures = serde_json::to_value((
            (relay.cores, &relay.cpu, relay.memory_bytes, relay.memory_peak_bytes, relay.encodings),
            (relay.compression_bytes_per_connection, relay.compression_shared_bytes, relay.allocations),
            (relay.process.written_bytes, relay.process.stored_bytes),
        ));
        if !figures.is_ok_and(|figures| within(&figures)) {
            return refused("the relay's part counts more than 2^48 of something");
        }
        if !is_short(&(&relay.environment, &relay.process)) {
            return refused(format!("the relay's part has {TOO_MUCH_SAID}"));
        }
        let relay_cpu = relay.cpu.at(share.ended_after_ns);
        Ok(with(RunRecord { relay_cpu, encodings: relay.encodings, ..sum.finish() }, relay))
    }
}

fn with(mut merged: RunRecord, relay: &RelayRecord) -> RunRecord {
    let (own, first) = (&relay.environment, &merged.environment);
    let environment = (!own.is_same_machine(first)).then(|| own.clone());
    merged.relay = Some(RelayProcess { environment, clock: None, ..relay.process.clone() });
    if let Some(cores) = &mut merged.usable_cores {
        cores.relay = Some(relay.cores);
        cores.relay_millicores = cores.within(own.cpu_quota, None).relay_millicores;
    }
    if let Some(memory) = &mut merged.memory {
        (memory.relay_after_bytes, memory.relay_peak_bytes) = (relay.memory_bytes, relay.memory_peak_bytes);
    }
    if let Some(memory) = &mut merged.compression_memory {
        memory.relay_bytes_per_connection = relay.compression_bytes_per_connection;
        memory.relay_shared_bytes = relay.compression_shared_bytes;
    }
    if let Some(allocations) = &mut merged.allocations {
        allocations.relay = relay.allocations;
    }
    merged.validity.judge_log(Subject::Relay, relay.process.log_level.as_deref());
    merged.validity.judge_pressure(relay.cpu_pressure_percent, Subject::RelayHost);
    if let Some(quota) = relay.environment.cpu_quota {
        let used_ns = merged.relay_cpu.map_or(0, |cpu| cpu.total_ns);
        merged.validity.judge_quota(quota, Subject::Relay, used_ns, merged.elapsed_ns);
    }
    merged
}
