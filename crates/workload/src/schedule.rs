//! The instants at which everything is due, computed from the seed before the run.
//!
//! Each connection has its own random stream, so its arrivals do not depend on the other
//! connections of its worker.

use std::time::Duration;

use corpus::Random;

use crate::scenario::{Arrival, Span};

/// A duration in nanoseconds; a `u64` holds 584 years.
pub fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The instants at which connection `index` of `connections` is due within `spans`, in ascending
/// order. Each round of a closed loop has the start of the first span, the earliest instant at
/// which it may start.
pub(crate) fn arrivals(
    arrival: Arrival,
    connections: usize,
    index: usize,
    spans: &[Span],
    random: &mut Random,
) -> Vec<Duration> {
    match arrival {
        Arrival::Burst { period_ms } => {
            let period = Duration::from_millis(period_ms);
            let bursts = |span: &Span| {
                let Span { from, to, .. } = *span;
                (0..).map(move |burst| from + period * burst).take_while(move |at| *at < to)
            };
            spans.iter().flat_map(bursts).collect()
        }
        Arrival::Constant { rate_per_s } => {
            let steps = (0..).map(|n| (index as f64 + n as f64 * connections as f64) / rate_per_s);
            at_load(steps, spans)
        }
        Arrival::Poisson { rate_per_s } => {
            let mean_gap_s = connections as f64 / rate_per_s;
            let mut at_s = 0.0;
            let steps = std::iter::from_fn(|| {
                // Inverse transform sampling; 1 - u lies in (0, 1], so that the logarithm is
                // finite.
                at_s += -(1.0 - random.unit()).ln() * mean_gap_s;
                Some(at_s)
            });
            at_load(steps, spans)
        }
        Arrival::Spread { over_ms } => {
            let over_s = over_ms as f64 / 1e3;
            let instants =
                spans.iter().map(|span| span.from + Duration::from_secs_f64(random.unit() * over_s));
            instants.collect()
        }
        Arrival::Closed { rounds, .. } => spans.first().map_or_else(Vec::new, |span| vec![span.from; rounds]),
    }
}

/// Maps ascending instants of full load, in seconds, to instants of the spans: at half the load,
/// time passes half as fast. Poisson arrivals so mapped are a Poisson process whose rate follows
/// the load (time-rescaling).
fn at_load(instants_s: impl Iterator<Item = f64>, spans: &[Span]) -> Vec<Duration> {
    let mut at = Vec::new();
    let mut spans = spans.iter();
    let mut current = spans.next();
    let mut before_s = 0.0;
    for instant_s in instants_s {
        loop {
            let Some(span) = current else { return at };
            let length_s = (span.to - span.from).as_secs_f64();
            let [from, to] = span.load;
            let work_s = length_s * (from + to) / 2.0;
            if instant_s - before_s < work_s {
                let within_s = within(instant_s - before_s, from, (to - from) / length_s);
                at.push(span.from + Duration::from_secs_f64(within_s.min(length_s)));
                break;
            }
            before_s += work_s;
            current = spans.next();
        }
    }
    at
}

/// Solves `from·t + slope·t²/2 = work` for t ≥ 0, in the form that loses no digits when the slope
/// is small.
fn within(work: f64, from: f64, slope: f64) -> f64 {
    let root = (from * from + 2.0 * slope * work).max(0.0).sqrt();
    if from + root == 0.0 { 0.0 } else { 2.0 * work / (from + root) }
}

/// The random stream of one connection of one population.
pub(crate) fn stream(seed: u64, population: &str, connection: usize) -> Random {
    Random::new(&format!("client-sim {population} {connection}"), seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const TWO: &[Span] = &[Span { from: Duration::ZERO, to: Duration::from_secs(2), load: [1.0, 1.0] }];

    fn all(arrival: Arrival, connections: usize, spans: &[Span]) -> Vec<Duration> {
        let mut all: Vec<_> = (0..connections)
            .flat_map(|c| arrivals(arrival, connections, c, spans, &mut stream(1, "test", c)))
            .collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn a_burst_is_due_at_the_same_instant_for_all() {
        let times = all(Arrival::Burst { period_ms: 1_000 }, 3, TWO);
        assert_eq!(times, [0, 0, 0, 1, 1, 1].map(Duration::from_secs));
    }

    #[test]
    fn constant_arrivals_are_evenly_spaced_over_all_connections() {
        let times = all(Arrival::Constant { rate_per_s: 100.0 }, 7, TWO);
        assert_eq!(times.len(), 200);
        assert!(times.windows(2).all(|w| (w[1] - w[0]).as_micros().abs_diff(10_000) <= 1), "{times:?}");
    }

    #[test]
    fn poisson_arrivals_have_the_asked_mean_and_spread_and_repeat_with_the_seed() {
        let times = all(Arrival::Poisson { rate_per_s: 5_000.0 }, 20, TWO);
        assert!((9_700..10_300).contains(&times.len()), "{}", times.len());
        let gaps: Vec<f64> = times.windows(2).map(|w| (w[1] - w[0]).as_secs_f64()).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // An exponential distribution's standard deviation equals its mean.
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "{}", variance.sqrt() / mean);
        assert_eq!(times, all(Arrival::Poisson { rate_per_s: 5_000.0 }, 20, TWO));
    }

    #[test]
    fn a_ramp_gives_a_quarter_of_its_arrivals_in_its_first_half_and_spans_may_have_gaps() {
        let ramp = Span { from: SECOND, to: 3 * SECOND, load: [0.0, 1.0] };
        let steady = Span { from: 4 * SECOND, to: 5 * SECOND, load: [0.5, 0.5] };
        for arrival in [Arrival::Constant { rate_per_s: 40_000.0 }, Arrival::Poisson { rate_per_s: 40_000.0 }]
        {
            let times = all(arrival, 4, &[ramp, steady]);
            let between = |from: u32, to: u32| {
                times.iter().filter(|t| (from * SECOND..to * SECOND).contains(*t)).count() as f64
            };
            for (from, to, expected) in
                [(0, 1, 0.0), (1, 2, 10_000.0), (2, 3, 30_000.0), (3, 4, 0.0), (4, 5, 20_000.0)]
            {
                let found = between(from, to);
                assert!(
                    (found - expected).abs() <= expected * 0.04 + 1.0,
                    "{arrival:?} {from}..{to}: {found}"
                );
            }
        }
    }

    #[test]
    fn a_spread_has_everyone_once_in_each_span_and_a_closed_loop_starts_with_the_first() {
        let later = Span { from: 5 * SECOND, to: 9 * SECOND, load: [1.0, 1.0] };
        let times = all(Arrival::Spread { over_ms: 500 }, 10, &[TWO[0], later]);
        let early = times.iter().filter(|t| **t < SECOND / 2).count();
        assert_eq!((times.len(), early), (20, 10), "{times:?}");
        let times = all(Arrival::Closed { rounds: 2, think_ms: 0 }, 2, &[later]);
        assert_eq!(times, [5 * SECOND; 4]);
    }
}
