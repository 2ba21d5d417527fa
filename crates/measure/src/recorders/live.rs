//! Counts of clients while they play, for who watches: never part of a record.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::{recorders::counts::MOST_COUNTED, whole};

const MS: u64 = 1_000_000;

/// Upper edges of the buckets of [`LiveLatency`] in nanoseconds, 1, 2 and 5 of each decade. Longer
/// samples are in a last bucket without an edge.
pub const LIVE_EDGES_NS: [u64; 18] = [
    MS / 10,
    MS / 5,
    MS / 2,
    MS,
    2 * MS,
    5 * MS,
    10 * MS,
    20 * MS,
    50 * MS,
    100 * MS,
    200 * MS,
    500 * MS,
    1_000 * MS,
    2_000 * MS,
    5_000 * MS,
    10_000 * MS,
    20_000 * MS,
    50_000 * MS,
];

/// Latencies of deliveries by bucket: few enough numbers to send each second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveLatency {
    /// Samples up to each of [`LIVE_EDGES_NS`] and above the one before; at the end those above
    /// all.
    pub buckets: [u64; LIVE_EDGES_NS.len() + 1],
    /// The sum of all samples, each to two digits.
    pub sum_ns: u64,
}

impl LiveLatency {
    pub(crate) fn from_histogram(histogram: &Histogram<u64>) -> LiveLatency {
        let mut latency = LiveLatency::default();
        for step in histogram.iter_recorded() {
            let ns = histogram.median_equivalent(step.value_iterated_to());
            let samples = step.count_since_last_iteration();
            latency.buckets[LIVE_EDGES_NS.partition_point(|edge| *edge < ns)] += samples;
            latency.sum_ns = latency.sum_ns.saturating_add(ns.saturating_mul(samples));
        }
        latency
    }

    /// The samples since then.
    #[must_use]
    pub fn since(&self, earlier: &LiveLatency) -> LiveLatency {
        let mut latency = *self;
        latency
            .buckets
            .iter_mut()
            .zip(earlier.buckets)
            .for_each(|(now, then)| *now = now.saturating_sub(then));
        latency.sum_ns = latency.sum_ns.saturating_sub(earlier.sum_ns);
        latency
    }

    /// All samples.
    pub fn samples(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, samples| sum.saturating_add(*samples))
    }

    /// The value that the share `q` of the samples does not exceed, in nanoseconds, as if samples
    /// were spread evenly over their bucket; `None` without samples. The last edge at most.
    pub fn quantile_ns(&self, q: f64) -> Option<u64> {
        let wanted = (self.samples() as f64 * q.clamp(0.0, 1.0)).max(1.0);
        let (mut below, mut from) = (0.0, 0);
        for (samples, edge) in self.buckets.iter().zip(LIVE_EDGES_NS) {
            let samples = *samples as f64;
            if samples > 0.0 && below + samples >= wanted {
                return Some(from + whole::<u64>((edge - from) as f64 * (wanted - below) / samples));
            }
            (below, from) = (below + samples, edge);
        }
        (self.samples() > 0).then_some(from)
    }
}

crate::sums! {
    LiveLatency { buckets, sum_ns }
    LiveCounts { connections, sent, deliveries, latency }
}

/// Counts of a client process while it plays a block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LiveCounts {
    /// Its connections; 0 once it has closed them.
    pub connections: u64,
    /// Events that it sent.
    pub sent: u64,
    /// Deliveries that it received and was owed.
    pub deliveries: u64,
    /// Latencies of deliveries with both ends in this process, or of answers in a plan without
    /// deliveries: of whole seconds while it plays, of all at its end, both of ten minutes at most.
    pub latency: LiveLatency,
}

impl LiveCounts {
    /// Whether a process can say this after `earlier`: nothing but connections falls, and no count
    /// is beyond 2^48. The sum of latencies is none: 2^48 ns are 280,000 deliveries of a second.
    pub fn follows(&self, earlier: &LiveCounts) -> bool {
        let growing = |counts: &LiveCounts| {
            let LiveCounts { sent, deliveries, latency, .. } = *counts;
            [sent, deliveries].into_iter().chain(latency.buckets)
        };
        let falls = growing(self).zip(growing(earlier)).any(|(later, earlier)| later < earlier)
            || self.latency.sum_ns < earlier.latency.sum_ns;
        !falls && self.connections <= MOST_COUNTED && growing(self).all(|count| count <= MOST_COUNTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AddUp;

    fn latency(samples_ns: &[u64]) -> LiveLatency {
        let mut histogram = Histogram::new_with_bounds(1, 60_000 * MS, 2).unwrap();
        samples_ns.iter().for_each(|ns| histogram.saturating_record(*ns));
        LiveLatency::from_histogram(&histogram)
    }

    #[test]
    fn samples_fall_into_the_bucket_below_whose_edge_they_are() {
        let found = latency(&[1, 90_000, 150_000, 4 * MS, 4 * MS, 55_000 * MS]);
        let mut buckets = [0; 19];
        (buckets[0], buckets[1], buckets[5], buckets[18]) = (2, 1, 2, 1);
        assert_eq!(found.buckets, buckets);
        let exact = 1 + 90_000 + 150_000 + 8 * MS + 55_000 * MS;
        assert!(found.sum_ns.abs_diff(exact) * 100 <= exact, "{}", found.sum_ns);
        assert_eq!(found.samples(), 6);
    }

    #[test]
    fn a_quantile_lies_in_its_bucket() {
        let found = latency(&[vec![3 * MS; 98], vec![300 * MS; 2]].concat());
        let between = |q, low, high| {
            let ns = found.quantile_ns(q).unwrap();
            assert!((low..=high).contains(&ns), "{q}: {ns}");
        };
        between(0.5, 2 * MS, 5 * MS);
        between(0.99, 200 * MS, 500 * MS);
        between(0.0, 2 * MS, 5 * MS);
        between(1.0, 500 * MS, 500 * MS);
        assert_eq!(LiveLatency::default().quantile_ns(0.5), None);
        assert_eq!(latency(&[55_000 * MS]).quantile_ns(0.5), LIVE_EDGES_NS.last().copied());
    }

    #[test]
    fn counts_that_fall_or_are_beyond_all_runs_do_not_follow() {
        let earlier = LiveCounts { connections: 9, sent: 5, deliveries: 50, latency: latency(&[MS]) };
        assert!(earlier.follows(&earlier) && earlier.follows(&LiveCounts::default()));
        assert!(LiveCounts { connections: 0, ..earlier }.follows(&earlier), "closed");
        for hostile in [
            LiveCounts { sent: 4, ..earlier },
            LiveCounts { deliveries: 49, ..earlier },
            LiveCounts { latency: LiveLatency::default(), ..earlier },
            LiveCounts { deliveries: u64::MAX, ..earlier },
            LiveCounts { connections: u64::MAX, ..earlier },
            LiveCounts { latency: LiveLatency { buckets: [u64::MAX; 19], ..earlier.latency }, ..earlier },
        ] {
            assert!(!hostile.follows(&earlier), "{hostile:?}");
        }
        let slow = LiveLatency { buckets: [1_000_000; 19], sum_ns: 19_000_000 * 30_000 * MS };
        assert!(slow.sum_ns > MOST_COUNTED && LiveCounts { latency: slow, ..earlier }.follows(&earlier));
    }

    #[test]
    fn sums_do_not_overflow_and_foreign_fields_are_refused() {
        let mut sum = LiveCounts { deliveries: u64::MAX, ..LiveCounts::default() };
        sum.add_up(&LiveCounts { sent: 2, deliveries: 3, latency: latency(&[MS]), ..LiveCounts::default() });
        assert_eq!((sum.sent, sum.deliveries, sum.latency.samples()), (2, u64::MAX, 1));
        let mut json = serde_json::to_value(sum).unwrap();
        assert_eq!(serde_json::from_value::<LiveCounts>(json.clone()).unwrap(), sum);
        json["latency"]["buckets"].as_array_mut().unwrap().push(1.into());
        assert!(serde_json::from_value::<LiveCounts>(json.clone()).is_err(), "a bucket too many");
        json["latency"]["buckets"] = (-1).into();
        assert!(serde_json::from_value::<LiveCounts>(json).is_err());
    }
}
