//! A run second by second, so that a reader can see whether it was the same from its beginning to
//! its end.

use std::ops::Range;

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AddUp, LiveLatency};

/// The length of a slice.
const SLICE_NS: u64 = 1_000_000_000;

/// Slices kept at most: bounds memory (30 KiB a slice); steadiness shows within ten seconds.
const MOST_SLICES: usize = 600;

/// Two digits are enough for differences of 5 %, in a seventh of the memory of three.
const SIGNIFICANT_DIGITS: u8 = 2;

/// Fewest samples of a median; fewer leave it to chance.
const SAMPLES_FOR_MEDIAN: u64 = 20;

/// One minute, as everywhere.
const HIGHEST_NS: u64 = 60_000_000_000;

/// One second of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Slice {
    /// Samples that arrived in the second.
    pub samples: u64,
    /// The median of their latencies in nanoseconds, to two digits; absent with fewer than 20.
    pub latency_ns_p50: Option<u64>,
    /// Samples due by the end of the second that arrived later.
    pub in_flight: u64,
}

/// The whole seconds of a run after its warm-up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Slices {
    /// The metric: `response`, else `publish_ok`, else `eose`.
    pub of: String,
    /// In order; only seconds in which work was planned, so without the last answers.
    pub seconds: Vec<Slice>,
}

/// Collects one metric of one worker by seconds from the start of the run.
#[derive(Debug, Clone, Default)]
pub struct SliceRecorder(Vec<Second>);

#[derive(Debug, Clone, Default)]
struct Second {
    /// Latencies of samples that arrived in the second; allocated by the first of them.
    latency: Option<Histogram<u64>>,
    /// Samples due in the second.
    due: u64,
}

impl SliceRecorder {
    /// Adds a sample that was due and arrived at these nanoseconds from the start.
    pub fn record(&mut self, due_ns: u64, now_ns: u64) {
        if let Some(second) = self.second(due_ns) {
            second.due += 1;
        }
        if let Some(second) = self.second(now_ns) {
            second.add(now_ns.saturating_sub(due_ns).clamp(1, HIGHEST_NS));
        }
    }

    /// Adds the samples of another worker.
    pub fn merge(&mut self, other: &SliceRecorder) {
        if self.0.len() < other.0.len() {
            self.0.resize_with(other.0.len(), Second::default);
        }
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            own.due += other.due;
            match (&mut own.latency, &other.latency) {
                (Some(own), Some(other)) => own.add(other).expect("all have the same bounds"),
                (own @ None, other) => own.clone_from(other),
                (Some(_), None) => {}
            }
        }
    }

    /// The samples that arrived in these seconds, by bucket.
    pub fn live(&self, seconds: Range<usize>) -> LiveLatency {
        let within = self.0.iter().take(seconds.end).skip(seconds.start);
        let mut latency = LiveLatency::default();
        for histogram in within.filter_map(|second| second.latency.as_ref()) {
            latency.add_up(&LiveLatency::from_histogram(histogram));
        }
        latency
    }

    /// The whole seconds within `planned_ns` from the start, from the first in which something
    /// came.
    pub fn seconds(&self, planned_ns: u64) -> Vec<Slice> {
        let whole = usize::try_from(planned_ns / SLICE_NS).unwrap_or(usize::MAX);
        let mut in_flight = 0_u64;
        let slices = self.0.iter().take(whole).map(|second| {
            let samples = second.latency.as_ref().map_or(0, Histogram::len);
            // Earlier ones were counted then: the difference cannot fall below zero.
            in_flight = (in_flight + second.due).saturating_sub(samples);
            let median = second.latency.as_ref().filter(|_| samples >= SAMPLES_FOR_MEDIAN);
            Slice { samples, latency_ns_p50: median.map(|l| l.value_at_quantile(0.5)), in_flight }
        });
        slices.skip_while(|slice| slice.samples == 0).collect()
    }

    fn second(&mut self, ns: u64) -> Option<&mut Second> {
        let at = usize::try_from(ns / SLICE_NS).ok().filter(|at| *at < MOST_SLICES)?;
        if at >= self.0.len() {
            self.0.resize_with(at + 1, Second::default);
        }
        self.0.get_mut(at)
    }
}

impl Second {
    fn add(&mut self, ns: u64) {
        let new = || {
            Histogram::new_with_bounds(1, HIGHEST_NS, SIGNIFICANT_DIGITS)
                .expect("1 < 60 s and 2 digits are bounds the library accepts")
        };
        self.latency.get_or_insert_with(new).saturating_record(ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A sample each 10 ms of so many seconds, each with the latency that `latency_ms` gives to its
    /// second.
    fn played(seconds: u64, latency_ms: impl Fn(u64) -> u64) -> SliceRecorder {
        let mut recorder = SliceRecorder::default();
        for at in 0..seconds * 100 {
            let due = at * 10 * MS;
            recorder.record(due, due + latency_ms(at / 100) * MS);
        }
        recorder
    }

    #[test]
    fn a_second_knows_its_median_and_what_it_left_behind() {
        let slices = played(3, |_| 5).seconds(3_000 * MS);
        assert_eq!(slices.len(), 3);
        for slice in slices {
            let p50 = slice.latency_ns_p50.unwrap() as f64 / (5 * MS) as f64;
            assert!((0.99..1.01).contains(&p50), "{slice:?}");
            assert_eq!((slice.samples, slice.in_flight), (100, 0));
        }
        // 500 ms late: half of the first second's samples come in the second.
        let slices = played(3, |_| 500).seconds(3_000 * MS);
        assert_eq!(
            slices.iter().map(|s| (s.samples, s.in_flight)).collect::<Vec<_>>(),
            [(50, 50), (100, 50), (100, 50)]
        );
    }

    #[test]
    fn only_whole_planned_seconds_after_the_warm_up_count() {
        let mut recorder = SliceRecorder::default();
        (0..30).for_each(|n| recorder.record(2_000 * MS + n, 2_001 * MS + n));
        recorder.record(3_100 * MS, 3_200 * MS);
        recorder.record(4_100 * MS, 4_200 * MS);
        let slices = recorder.seconds(4_500 * MS);
        assert_eq!(slices.iter().map(|slice| slice.samples).collect::<Vec<_>>(), [30, 1]);
        assert!(slices[0].latency_ns_p50.is_some() && slices[1].latency_ns_p50.is_none());
        assert!(recorder.seconds(1_000 * MS).is_empty());
    }

    #[test]
    fn workers_add_up_and_memory_is_bounded() {
        let mut one = played(2, |_| 5);
        one.merge(&played(3, |_| 5));
        assert_eq!(one.seconds(3_000 * MS).iter().map(|s| s.samples).collect::<Vec<_>>(), [200, 200, 100]);
        one.record(u64::MAX - 1, u64::MAX);
        assert_eq!(one.0.len(), 3);
    }
}
