//! Envelope throughput: how many envelopes and wire bytes came in each interval of the measured
//! time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{AddUp, Latency};

/// A worker's first interval; a multiple of it is reported.
const GRID_NS: u64 = 10_000_000;

/// Intervals kept at most: bounds memory (24 bytes each, 1.5 MiB a worker). Beyond it pairs become
/// one, so the grid of an hour is 80 ms.
const MOST_INTERVALS: usize = 1 << 16;

/// Intervals of a stored recorder at most: a run of 80 s at 10 ms each takes some 100 KB.
const MOST_STORED: usize = 1 << 13;

/// How often the grid may have been doubled by an agent: intervals of three hours.
const MOST_DOUBLED: u32 = 20;

/// The longest interval reported.
const LONGEST_NS: u64 = 1_000_000_000;

/// Fewest envelopes of an interval on average; with fewer, chance decides the spread.
const FEWEST_ENVELOPES: f64 = 10.0;

/// Envelope throughput of a run: the distribution over intervals that lie wholly within spans in
/// which work was outstanding. The first and the last interval of a span, of which it covers a part
/// only, are left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Throughput {
    /// The length of an interval.
    pub interval_ns: u64,
    /// Envelopes a second, one value an interval.
    pub envelopes_per_s: Latency,
    /// Wire bytes a second from relay to clients, one value an interval.
    pub wire_bytes_per_s: Latency,
}

impl AddUp for ThroughputRecorder {
    fn add_up(&mut self, other: &Self) {
        self.merge(other);
    }
}

/// Counts by interval from the start of the run, of one worker, or of all of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Intervals")]
pub struct ThroughputRecorder {
    /// The length of an interval: 10 ms, or that doubled some times.
    interval_ns: u64,
    /// For each interval, in order from the start: deliveries, acknowledgements, and wire bytes from
    /// relay to clients.
    counts: Vec<Interval>,
}

type Interval = [u64; 3];

const DELIVERIES: usize = 0;
const ACKNOWLEDGEMENTS: usize = 1;
const WIRE_BYTES: usize = 2;

impl Default for ThroughputRecorder {
    fn default() -> ThroughputRecorder {
        ThroughputRecorder { interval_ns: GRID_NS, counts: Vec::new() }
    }
}

impl ThroughputRecorder {
    /// Counts a delivery at this instant, in nanoseconds from the start.
    pub fn delivery(&mut self, now_ns: u64) {
        self.at(now_ns)[DELIVERIES] += 1;
    }

    /// Counts an acknowledged publish.
    pub fn acknowledgement(&mut self, now_ns: u64) {
        self.at(now_ns)[ACKNOWLEDGEMENTS] += 1;
    }

    /// Counts wire bytes that came from the relay.
    pub fn wire_bytes(&mut self, now_ns: u64, bytes: u64) {
        self.at(now_ns)[WIRE_BYTES] += bytes;
    }

    /// Adds the counts of another worker.
    pub fn merge(&mut self, other: &ThroughputRecorder) {
        let mut other = other.clone();
        while self.interval_ns < other.interval_ns {
            self.halve();
        }
        while other.interval_ns < self.interval_ns {
            other.halve();
        }
        if self.counts.len() < other.counts.len() {
            self.counts.resize_with(other.counts.len(), Interval::default);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(own, other)| own.add_up(other));
    }

    /// The throughput within disjoint spans in ascending order, in nanoseconds from the start, at
    /// intervals of about `wanted_ns`: longer, up to a second, when they would hold fewer than ten
    /// envelopes on average, or half of them none. Envelopes are deliveries, or acknowledgements where
    /// nothing was delivered. `None` when no interval lies wholly within a span.
    pub fn within(&self, spans: &[(u64, u64)], wanted_ns: u64) -> Option<Throughput> {
        let delivers = self.counts.iter().any(|interval| interval[DELIVERIES] > 0);
        let envelopes = |one: &Interval| one[if delivers { DELIVERIES } else { ACKNOWLEDGEMENTS }];
        let mut every = (wanted_ns / self.interval_ns).max(1);
        loop {
            let interval_ns = every * self.interval_ns;
            let whole = self.whole(spans, every);
            let sum = whole.iter().map(envelopes).fold(0, u64::saturating_add);
            let rare = (sum as f64) < FEWEST_ENVELOPES * whole.len() as f64;
            // Of bursts with pauses longer than an interval the median would be zero.
            let idle = whole.iter().filter(|one| envelopes(one) == 0).count();
            let mostly_idle = idle > 0 && idle * 2 >= whole.len();
            if (rare || mostly_idle) && interval_ns * 2 <= LONGEST_NS {
                every *= 2;
                continue;
            }
            let mut found = Throughput { interval_ns, ..Throughput::default() };
            for interval in &whole {
                found.envelopes_per_s.record(per_second(envelopes(interval), interval_ns));
                found.wire_bytes_per_s.record(per_second(interval[WIRE_BYTES], interval_ns));
            }
            return Some(found).filter(|_| !whole.is_empty());
        }
    }

    /// Makes intervals longer until there are at most 8,192, some 100 KB in a file.
    #[must_use]
    pub fn coarse_enough_to_store(mut self) -> ThroughputRecorder {
        while self.counts.len() > MOST_STORED {
            self.halve();
        }
        self
    }

    /// Whether the length of an interval is one that this program makes.
    pub(crate) fn is_on_grid(&self) -> bool {
        let times = self.interval_ns / GRID_NS;
        self.interval_ns.is_multiple_of(GRID_NS) && times.is_power_of_two() && times <= 1 << MOST_DOUBLED
    }

    /// The longest run of which this grid keeps every interval.
    pub(crate) fn longest_ns(&self) -> u64 {
        self.interval_ns.saturating_mul(MOST_INTERVALS as u64)
    }

    /// Intervals of `every` of the grid that lie wholly within one of the spans.
    fn whole(&self, spans: &[(u64, u64)], every: u64) -> Vec<Interval> {
        let length_ns = every * self.interval_ns;
        let mut whole = Vec::new();
        for (from, to) in spans {
            for n in from.div_ceil(length_ns)..to / length_ns {
                let mut sum = Interval::default();
                let first = usize::try_from(n * every).unwrap_or(usize::MAX);
                let counted = self.counts.iter().skip(first);
                counted.take(usize::try_from(every).unwrap_or(usize::MAX)).for_each(|one| sum.add_up(one));
                whole.push(sum);
            }
        }
        whole
    }

    fn at(&mut self, now_ns: u64) -> &mut Interval {
        let mut at = now_ns / self.interval_ns;
        while at >= MOST_INTERVALS as u64 {
            self.halve();
            at = now_ns / self.interval_ns;
        }
        let at = usize::try_from(at).expect("below MOST_INTERVALS");
        if at >= self.counts.len() {
            self.counts.resize_with(at + 1, Interval::default);
        }
        &mut self.counts[at]
    }

    /// Makes one interval of two.
    fn halve(&mut self) {
        let pair = |pair: &[Interval]| {
            let mut sum = Interval::default();
            pair.iter().for_each(|one| sum.add_up(one));
            sum
        };
        self.counts = self.counts.chunks(2).map(pair).collect();
        self.interval_ns = self.interval_ns.saturating_mul(2);
    }
}

/// A count as a rate, rounded.
fn per_second(count: u64, interval_ns: u64) -> u64 {
    let rate = (u128::from(count) * 1_000_000_000 + u128::from(interval_ns / 2)) / u128::from(interval_ns);
    u64::try_from(rate).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A delivery of 100 bytes each `every_ms`, for so many milliseconds.
    fn steady(every_ms: u64, ms: u64) -> ThroughputRecorder {
        let mut recorder = ThroughputRecorder::default();
        for at in (0..ms).step_by(usize::try_from(every_ms).unwrap()) {
            recorder.delivery(at * MS);
            recorder.wire_bytes(at * MS, 100);
        }
        recorder
    }

    /// Number of intervals, their length in milliseconds, and the lowest and highest rate.
    fn figures(found: &Throughput) -> (u64, u64, u64, u64) {
        let rates = &found.envelopes_per_s;
        (rates.len(), found.interval_ns / MS, rates.histogram().value_at_quantile(0.0), rates.max_ns())
    }

    #[test]
    fn intervals_that_a_span_covers_in_part_are_left_out() {
        let all = steady(1, 1_000);
        for (span, intervals) in [
            ((0, 1_000), 10),
            ((1, 1_000), 9),
            ((0, 999), 9),
            ((1, 999), 8),
            ((99, 300), 2),
            ((101, 299), 0),
            ((100, 199), 0),
        ] {
            let found = all.within(&[(span.0 * MS, span.1 * MS)], 100 * MS);
            assert_eq!(found.map_or(0, |found| found.envelopes_per_s.len()), intervals, "{span:?}");
        }
        let found = all.within(&[(0, 250 * MS), (260 * MS, 500 * MS)], 100 * MS).unwrap();
        assert_eq!(figures(&found), (4, 100, 1_000, 1_000), "no interval reaches over a pause");
    }

    #[test]
    fn a_pause_within_a_span_is_a_rate_of_zero() {
        let mut recorder = steady(1, 500);
        (800..1_000).for_each(|ms| recorder.delivery(ms * MS));
        let found = recorder.within(&[(0, 1_000 * MS)], 100 * MS).unwrap();
        assert_eq!(figures(&found), (10, 100, 0, 1_000));
    }

    #[test]
    fn rare_envelopes_make_intervals_longer_up_to_a_second() {
        let at = |every_ms| figures(&steady(every_ms, 8_000).within(&[(0, 8_000 * MS)], 100 * MS).unwrap());
        assert_eq!(at(10), (80, 100, 100, 100));
        assert_eq!(at(20), (40, 200, 50, 50));
        assert_eq!(at(100).1, 800);
        assert_eq!(at(1_000).1, 800, "a second at most");
        let short = steady(1, 50).within(&[(0, 50 * MS)], 10 * MS).unwrap();
        assert_eq!(figures(&short), (5, 10, 1_000, 1_000));
    }

    #[test]
    fn bursts_with_pauses_between_them_have_a_median_above_zero() {
        let mut bursts = ThroughputRecorder::default();
        for at in (0..8_000).step_by(50) {
            (0..500).for_each(|_| bursts.delivery(at * MS));
        }
        let found = bursts.within(&[(0, 8_000 * MS)], 10 * MS).unwrap();
        assert_eq!(found.interval_ns, 40 * MS);
        assert_eq!(found.envelopes_per_s.histogram().value_at_quantile(0.5) / 100, 125);
        // A day with one burst has none, and stays a day without deliveries.
        let mut one = ThroughputRecorder::default();
        (0..5_000).for_each(|_| one.delivery(0));
        let found = one.within(&[(0, 8_000 * MS)], 10 * MS).unwrap();
        assert_eq!(
            (found.interval_ns, found.envelopes_per_s.histogram().value_at_quantile(0.5)),
            (640 * MS, 0)
        );
    }

    #[test]
    fn acknowledgements_count_where_nothing_is_delivered() {
        let mut recorder = ThroughputRecorder::default();
        (0..100).for_each(|ms| recorder.acknowledgement(ms * MS));
        assert_eq!(figures(&recorder.within(&[(0, 100 * MS)], 100 * MS).unwrap()), (1, 100, 1_000, 1_000));
        (0..20).for_each(|ms| recorder.delivery(ms * MS));
        assert_eq!(figures(&recorder.within(&[(0, 100 * MS)], 100 * MS).unwrap()).3, 200);
        assert_eq!(ThroughputRecorder::default().within(&[], 100 * MS), None);
    }

    #[test]
    fn an_hour_keeps_every_count_in_bounded_memory() {
        let mut hour = steady(1_000, 3_600_000);
        assert!(hour.counts.len() <= MOST_INTERVALS);
        assert_eq!(hour.interval_ns, 80 * MS);
        let sum = |of: &ThroughputRecorder| of.counts.iter().map(|one| one[DELIVERIES]).sum::<u64>();
        assert_eq!(sum(&hour), 3_600);
        let mut short = steady(1, 1_000);
        short.merge(&hour);
        hour.merge(&steady(1, 1_000));
        assert_eq!((short.interval_ns, &short.counts), (hour.interval_ns, &hour.counts));
        assert_eq!(sum(&hour), 4_600);
        hour.delivery(u64::MAX);
        assert!(hour.counts.len() <= MOST_INTERVALS, "a clock that runs wild is bounded, too");
    }

    #[test]
    fn intervals_of_agents_add_up_to_those_of_one_process() {
        let mut one = ThroughputRecorder::default();
        let mut agents = vec![ThroughputRecorder::default(); 7];
        for n in 0..5_000 {
            let (now_ns, agent) = (n * n % 2_003 * MS, usize::try_from(n % 7).unwrap());
            for recorder in [&mut one, &mut agents[agent]] {
                recorder.delivery(now_ns);
                recorder.wire_bytes(now_ns, n);
            }
        }
        let mut merged = ThroughputRecorder::default();
        for agent in agents {
            let carried = serde_json::to_string(&agent.coarse_enough_to_store()).unwrap();
            merged.merge(&serde_json::from_str(&carried).unwrap());
        }
        assert_eq!(merged, one);
        let spans = [(0, 2_000 * MS)];
        assert_eq!(merged.within(&spans, 100 * MS), one.within(&spans, 100 * MS));
    }

    #[test]
    fn a_stored_recorder_is_short_and_a_foreign_grid_is_known() {
        let coarse = steady(1_000, 100_000).coarse_enough_to_store();
        assert!(coarse.counts.len() <= MOST_STORED && coarse.interval_ns == 2 * GRID_NS);
        assert_eq!(coarse.counts.iter().map(|one| one[DELIVERIES]).sum::<u64>(), 100);
        assert!(coarse.is_on_grid() && ThroughputRecorder::default().is_on_grid());
        for interval_ns in [0, GRID_NS / 2, 3 * GRID_NS, GRID_NS << 21, u64::MAX] {
            assert!(!ThroughputRecorder { interval_ns, counts: Vec::new() }.is_on_grid(), "{interval_ns}");
        }
    }
}
