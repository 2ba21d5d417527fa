//! The timings of one worker. A recorder for each connection would take gigabytes at 10,000
//! connections.

use std::{collections::BTreeMap, ops::Range};

use measure::{Latency, LiveLatency, SliceRecorder, Slices, ThroughputRecorder};
use workload::Timing;

/// One timed interval, with both ends on one clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    pub timing: Timing,
    /// The instant it was due, or began, in nanoseconds.
    pub since_ns: u64,
    /// The instant it ended, in nanoseconds.
    pub now_ns: u64,
    /// Whether the sample counts for its population only: a slow reader would distort the sum of
    /// all clients.
    pub apart: bool,
}

/// Timings that are also kept second by second. Slices show the first of them that has samples.
const SLICED: [Timing; 3] = [Timing::Response, Timing::PublishOk, Timing::Eose];

/// Histograms by timing, for all clients together and for each named population, and what came in
/// each interval.
#[derive(Debug, Default)]
pub struct Recorder {
    latencies: BTreeMap<(Timing, Option<usize>), Latency>,
    slices: [SliceRecorder; SLICED.len()],
    pub throughput: ThroughputRecorder,
}

impl Recorder {
    /// Adds a sample of a client; `label` is its population, where that has a name.
    pub fn add(&mut self, label: Option<usize>, sample: &Sample) {
        let Sample { timing, since_ns, now_ns, apart } = *sample;
        let ns = now_ns.saturating_sub(since_ns);
        if label.is_some() {
            self.latencies.entry((timing, label)).or_default().record(ns);
        }
        if apart {
            return;
        }
        self.latencies.entry((timing, None)).or_default().record(ns);
        match timing {
            Timing::Response => self.throughput.delivery(now_ns),
            Timing::PublishOk => self.throughput.acknowledgement(now_ns),
            _ => {}
        }
        if let Some(sliced) = SLICED.iter().position(|sliced| *sliced == timing) {
            self.slices[sliced].record(since_ns, now_ns);
        }
    }

    /// Adds the timings of another worker.
    pub fn merge(&mut self, other: &Recorder) {
        for (key, latency) in &other.latencies {
            self.latencies.entry(*key).or_default().merge(latency);
        }
        for (own, other) in self.slices.iter_mut().zip(&other.slices) {
            own.merge(other);
        }
        self.throughput.merge(&other.throughput);
    }

    /// The histogram of a timing over all clients.
    pub fn all(&self, timing: Timing) -> Option<&Latency> {
        self.latencies.get(&(timing, None))
    }

    /// How many values exceeded the range of the histograms.
    pub fn clipped(&self) -> u64 {
        self.latencies.values().map(Latency::clipped).sum()
    }

    /// The samples of a timing that arrived in these seconds, by bucket.
    pub fn live(&self, of: Timing, seconds: Range<usize>) -> LiveLatency {
        let of = SLICED.iter().position(|sliced| *sliced == of);
        of.map(|of| self.slices[of].live(seconds)).unwrap_or_default()
    }

    /// The seconds in which work was planned, of the first timing in `SLICED` that has samples.
    pub fn slices(&self, planned_ns: u64) -> Option<Slices> {
        let known = SLICED.iter().zip(&self.slices).find(|(timing, _)| self.all(**timing).is_some());
        known.map(|(timing, slices)| Slices {
            of: timing.name().to_owned(),
            seconds: slices.seconds(planned_ns),
        })
    }

    /// The histograms by their names in results: `eose` for all clients, `eose.home` for the
    /// population `home`. Timings without samples are left out.
    pub fn into_named(self, labels: &[String]) -> BTreeMap<String, Latency> {
        let name = |(timing, label): (Timing, Option<usize>)| match label.and_then(|label| labels.get(label))
        {
            Some(label) => format!("{}.{label}", timing.name()),
            None => timing.name().to_owned(),
        };
        self.latencies.into_iter().map(|(key, latency)| (name(key), latency)).collect()
    }
}
