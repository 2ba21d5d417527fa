//! Cost of an event's first delivery to the relay, and how many deliveries were first ones.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Deliveries of a run by where the relay had the event's bytes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EncodingsRecord {
    /// Events that the relay encoded: the first delivery in a format.
    pub cold: u64,
    /// Deliveries of events that it had encoded before.
    pub cached: u64,
    /// Deliveries with the bytes of the publisher (`relay-sim --reencode never-if-canonical`).
    #[serde(default)]
    pub spliced: u64,
}

crate::sums! { EncodingsRecord { cold, cached, spliced } }

impl EncodingsRecord {
    /// The share of deliveries whose event was encoded for them; `None` without deliveries.
    pub fn cold_share(self) -> Option<f64> {
        self.share(self.cold)
    }

    /// The share of deliveries with the bytes of the publisher; `None` without deliveries.
    pub fn spliced_share(self) -> Option<f64> {
        self.share(self.spliced)
    }

    fn share(self, part: u64) -> Option<f64> {
        let all = self.cold + self.cached + self.spliced;
        (all > 0).then(|| part as f64 / all as f64)
    }
}

/// CPU time of the relay for identical passes over every stored event that the plan asks for,
/// before the clock starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FirstDeliveryRecord {
    /// Distinct events, each sent once a pass.
    pub events: u64,
    /// The first pass: each event is encoded.
    pub cold_ns: u64,
    /// Each later pass: copies of encoded bytes.
    pub warm_ns: Vec<u64>,
}

/// The cost of a first delivery beyond that of a later one, for each distinct event.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FirstDelivery {
    /// Nanoseconds of the relay's CPU; `None` when not above the resolution.
    pub cpu_ns: Option<f64>,
    /// By how much identical warm passes differ, in nanoseconds for each event.
    pub resolution_ns: f64,
}

impl FirstDelivery {
    /// The mean over blocks of the cold pass less the median warm one. The resolution is the mean
    /// distance between a block's fastest and slowest warm pass, divided by √blocks. `None` unless
    /// some block has two warm passes or more.
    pub fn from_blocks<'a>(
        blocks: impl IntoIterator<Item = &'a FirstDeliveryRecord>,
    ) -> Option<FirstDelivery> {
        let (mut difference, mut spread, mut count) = (0.0, 0.0, 0.0);
        for block in blocks {
            let mut warm = block.warm_ns.clone();
            warm.sort_unstable();
            let [fastest, .., slowest] = warm[..] else { continue };
            if block.events == 0 {
                continue;
            }
            let events = block.events as f64;
            difference += (block.cold_ns as f64 - warm[warm.len() / 2] as f64) / events;
            spread += (slowest - fastest) as f64 / events;
            count += 1.0;
        }
        (count > 0.0).then(|| {
            let (cpu_ns, resolution_ns) = (difference / count, spread / count / f64::sqrt(count));
            FirstDelivery { cpu_ns: Some(cpu_ns).filter(|ns| *ns > resolution_ns), resolution_ns }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(cold_ns: u64, warm_ns: &[u64]) -> FirstDeliveryRecord {
        FirstDeliveryRecord { events: 10, cold_ns, warm_ns: warm_ns.to_vec() }
    }

    #[test]
    fn a_first_delivery_costs_what_the_cold_pass_takes_beyond_a_warm_one() {
        let one = FirstDelivery::from_blocks(&[block(1_500, &[510, 490, 500])]).unwrap();
        assert_eq!((one.cpu_ns, one.resolution_ns), (Some(100.0), 2.0));
        let four = FirstDelivery::from_blocks(
            &[1_500, 1_600, 1_700, 1_600].map(|cold| block(cold, &[510, 490, 500])),
        );
        assert_eq!(four, Some(FirstDelivery { cpu_ns: Some(110.0), resolution_ns: 1.0 }));
    }

    #[test]
    fn a_difference_within_the_spread_of_warm_passes_is_absent() {
        for (cold_ns, warm_ns) in [(520, [400, 500, 600]), (700, [400, 500, 600]), (300, [500, 501, 502])] {
            let found = FirstDelivery::from_blocks(&[block(cold_ns, &warm_ns)]).unwrap();
            assert_eq!(found.cpu_ns, None, "{cold_ns} {warm_ns:?}");
        }
        assert!(FirstDelivery::from_blocks(&[block(701, &[400, 500, 600])]).unwrap().cpu_ns.is_some());
    }
}
