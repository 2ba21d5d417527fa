//! Is a cell saturated? The latency of a saturated cell is the length of a queue, which grows with
//! the block.

use measure::CpuTime;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::merged::Merged;

/// Share of its cores' time beyond which a process is saturated. The mean wait of a queue at 0.9 is
/// nine service times (M/M/1: ρ/(1−ρ); Kleinrock, Queueing Systems, volume 1, 1975), so small
/// differences in cost decide it.
pub(crate) const SATURATED_ABOVE: f64 = 0.90;

/// CPU time of a cell's processes as shares of what their cores could give while work was outstanding:
/// between bursts both rest, and no latency is measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Utilisation {
    /// Share of the relay's cores, if its CPU time and cores are known.
    pub relay: Option<f64>,
    /// Share of the clients' cores, if these are known.
    pub generator: Option<f64>,
}

impl Utilisation {
    /// Utilisation of merged blocks while work was outstanding.
    pub fn from_merged(merged: &Merged) -> Utilisation {
        let whole = Utilisation::of_whole_time(merged);
        let active_ns = merged.active_ns.clamp(1, merged.elapsed_ns.max(1));
        let busy = |share: f64| share * merged.elapsed_ns as f64 / active_ns as f64;
        Utilisation { relay: whole.relay.map(busy), generator: whole.generator.map(busy) }
    }

    /// Utilisation of merged blocks over their whole time, rests between bursts included. Loads are chosen
    /// by it.
    pub fn of_whole_time(merged: &Merged) -> Utilisation {
        let share = |cpu: CpuTime, capacity_ns: Option<u64>| {
            let capacity_ns = capacity_ns.filter(|capacity| *capacity > 0)?;
            Some(cpu.total_ns as f64 / capacity_ns as f64)
        };
        let relay = merged.relay_cpu.and_then(|cpu| share(cpu, merged.relay_capacity_ns));
        Utilisation { relay, generator: share(merged.client_cpu, merged.client_capacity_ns) }
    }

    /// Whether one of the processes had hardly any time to spare.
    pub fn is_saturated(&self) -> bool {
        !self.reasons().is_empty()
    }

    /// The processes that are saturated, with their shares.
    pub fn reasons(&self) -> Vec<String> {
        self.above(SATURATED_ABOVE)
    }

    /// The processes that used more than a share of their cores, with what they used.
    pub fn above(&self, most: f64) -> Vec<String> {
        let busy = |(what, share): (&str, Option<f64>)| {
            let share = share.filter(|share| *share > most)?;
            Some(format!("the {what} used {:.0} % of its cores", share * 100.0))
        };
        [("relay", self.relay), ("generator", self.generator)].into_iter().filter_map(busy).collect()
    }
}
