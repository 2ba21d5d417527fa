//! When everything is due, computed from the seed before the run.
//!
//! Each connection has its own random stream, so its arrivals do not depend on how many others there are in the
//! same process.

use std::time::Duration;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::scenario::Arrival;

/// The instants at which connection `index` of `connections` is due within `window`, in ascending order.
pub(crate) fn arrivals(
    arrival: Arrival,
    connections: usize,
    index: usize,
    window: Duration,
    rng: &mut ChaCha8Rng,
) -> Vec<Duration> {
    match arrival {
        Arrival::Burst { period_ms } => {
            let period = Duration::from_millis(period_ms);
            (0..).map(|burst| period * burst).take_while(|at| *at < window).collect()
        }
        Arrival::Constant { rate_per_s } => {
            let gap = Duration::from_secs_f64(connections as f64 / rate_per_s);
            let first = Duration::from_secs_f64(index as f64 / rate_per_s);
            (0..).map(|n| first + gap * n).take_while(|at| *at < window).collect()
        }
        Arrival::Poisson { rate_per_s } => {
            let mean_gap_s = connections as f64 / rate_per_s;
            let mut at_s = 0.0;
            std::iter::from_fn(|| {
                // Inverse transform; 1 - u lies in (0, 1], whose logarithm is finite.
                let u: f64 = rng.random();
                at_s += -(1.0 - u).ln() * mean_gap_s;
                Some(Duration::from_secs_f64(at_s))
            })
            .take_while(|at| *at < window)
            .collect()
        }
    }
}

/// The random stream of one connection of one population.
pub(crate) fn stream(seed: u64, population: u64, connection: usize) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream((population << 32) | connection as u64);
    rng
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(2);

    fn all(arrival: Arrival, connections: usize) -> Vec<Duration> {
        let mut all: Vec<_> = (0..connections)
            .flat_map(|c| arrivals(arrival, connections, c, WINDOW, &mut stream(1, 0, c)))
            .collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn a_burst_is_due_at_the_same_instant_for_all() {
        let times = all(Arrival::Burst { period_ms: 1_000 }, 3);
        assert_eq!(times, [0, 0, 0, 1, 1, 1].map(Duration::from_secs));
    }

    #[test]
    fn constant_arrivals_are_evenly_spaced_over_all_connections() {
        let times = all(Arrival::Constant { rate_per_s: 100.0 }, 7);
        assert_eq!(times.len(), 200);
        assert!(times.windows(2).all(|w| (w[1] - w[0]).as_micros().abs_diff(10_000) <= 1), "{times:?}");
    }

    #[test]
    fn poisson_arrivals_have_the_asked_mean_and_spread_and_repeat_with_the_seed() {
        let times = all(Arrival::Poisson { rate_per_s: 5_000.0 }, 20);
        assert!((9_700..10_300).contains(&times.len()), "{}", times.len());
        let gaps: Vec<f64> = times.windows(2).map(|w| (w[1] - w[0]).as_secs_f64()).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        // An exponential distribution's standard deviation equals its mean.
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.05, "{}", variance.sqrt() / mean);
        assert_eq!(times, all(Arrival::Poisson { rate_per_s: 5_000.0 }, 20));
    }
}
