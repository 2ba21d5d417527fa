//! A median and how sure it is.

use serde::Serialize;

/// A median of rounds with its 95 % interval.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Estimate {
    pub(crate) median: f64,
    /// Absent below [`MIN_ROUNDS`] rounds.
    pub(crate) interval: Option<(f64, f64)>,
}

/// With five, even the whole range misses the median in 6 % of cases.
pub(crate) const MIN_ROUNDS: usize = 7;

/// Share of resamples left out at each end.
const TAIL: f64 = 0.025;

impl Estimate {
    /// Of an odd number of values; `None` of another.
    pub(crate) fn from_values(mut values: Vec<f64>) -> Option<Estimate> {
        let n = values.len();
        if n.is_multiple_of(2) {
            return None;
        }
        values.sort_by(f64::total_cmp);
        let interval = (n >= MIN_ROUNDS).then(|| {
            let (low, high) = ranks(n);
            (values[low], values[high])
        });
        Some(Estimate { median: values[n / 2], interval })
    }

    /// Round by round, one divided by the other.
    pub(crate) fn of_ratio(values: &[f64], base: &[f64]) -> Option<Estimate> {
        Estimate::from_values(values.iter().zip(base).map(|(value, base)| value / base).collect())
    }
}

/// The places in the sorted values between which the percentile bootstrap puts the median (Efron &
/// Tibshirani, An Introduction to the Bootstrap, §13.3). No resample is drawn: of `n` values, an
/// odd number, the median of a resample is at most the `k`th when more than half of its draws are,
/// which is a binomial tail.
fn ranks(n: usize) -> (usize, usize) {
    let at_most = |k: usize| binomial_tail(n, k as f64 / n as f64, n / 2 + 1);
    let place = |share: f64| (1..n).find(|k| at_most(*k) >= share).unwrap_or(n) - 1;
    (place(TAIL), place(1.0 - TAIL))
}

/// The chance of `least` or more successes in `n` draws.
fn binomial_tail(n: usize, chance: f64, least: usize) -> f64 {
    let term = |successes: usize| {
        let ways = (0..successes).map(|i| ((n - i) as f64 / (i + 1) as f64).ln()).sum::<f64>();
        (ways + successes as f64 * chance.ln() + (n - successes) as f64 * (1.0 - chance).ln()).exp()
    };
    (least..=n).map(term).sum()
}
