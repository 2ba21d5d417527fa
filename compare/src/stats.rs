//! The statistics of paired rounds: an interval, a test, a correction. Pure functions of numbers.
//!
//! The unit is the round: messages of one block are not independent samples (docs/methodology.md).

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Resamples of an interval. The Monte Carlo error of a 2.5 % tail is then 0.16 percentage points.
const RESAMPLES: usize = 10_000;

/// One in so many resamples is left out at each end: what remains is a 95 % interval.
const TAIL: usize = 40;

/// Level of the test, after correction.
pub(crate) const SIGNIFICANT: f64 = 0.05;

/// Differences within ±2 % are "same": half the width of an A/A interval on the machine of the
/// published results.
pub(crate) const BAND: f64 = 0.02;

/// The median; the mean of the two middle values when their number is even. `None` of nothing.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    (n > 0).then(|| f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]))
}

/// The Hodges–Lehmann estimate of where `values` lie: the median of the means of all pairs, each
/// value also paired with itself (Hodges & Lehmann 1963). It is the shift that [`wilcoxon`] finds
/// least surprising, and its interval is narrower than that of the median
/// (docs/decisions/effect.md). `None` of nothing.
pub(crate) fn hodges_lehmann(values: &[f64]) -> Option<f64> {
    median(&pairs(values).map(|(mean, ..)| mean).collect::<Vec<_>>())
}

/// The mean of every pair, and of which values.
fn pairs(values: &[f64]) -> impl Iterator<Item = (f64, usize, usize)> {
    let of = move |i: usize| (i..values.len()).map(move |j| (f64::midpoint(values[i], values[j]), i, j));
    (0..values.len()).flat_map(of)
}

/// Percentile bootstrap of [`hodges_lehmann`] (Efron & Tibshirani, An Introduction to the
/// Bootstrap, §13.3).
///
/// Which rounds a resample holds does not depend on their values, so the resamples are drawn once
/// for a number of rounds and serve every comparison with that many.
#[derive(Debug, Clone)]
pub(crate) struct Bootstrap {
    n: usize,
    /// How often each round is in each resample, `n` numbers a resample.
    counts: Vec<u32>,
}

impl Bootstrap {
    /// Draws the resamples of `n` rounds; the same seed gives the same ones.
    pub(crate) fn new(n: usize, seed: u64) -> Bootstrap {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut counts = vec![0; n * RESAMPLES];
        for resample in counts.chunks_exact_mut(n.max(1)) {
            for _ in 0..n {
                resample[random.random_range(0..n)] += 1;
            }
        }
        Bootstrap { n, counts }
    }

    /// The 95 % interval of the estimate, or `None` when there are not as many values as it was
    /// made for or fewer than six: with five, even their whole range misses the centre in 6 % of
    /// cases.
    pub(crate) fn interval(&self, values: &[f64]) -> Option<(f64, f64)> {
        if values.len() != self.n || self.n < 6 {
            return None;
        }
        let mut pairs: Vec<_> = pairs(values).collect();
        pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut estimates: Vec<f64> =
            self.counts.chunks_exact(self.n).map(|resample| weighted(&pairs, resample)).collect();
        estimates.sort_by(f64::total_cmp);
        // The smallest values that a share of TAIL, and all but that, do not exceed.
        let left_out = RESAMPLES / TAIL;
        Some((estimates[left_out - 1], estimates[RESAMPLES - left_out - 1]))
    }
}

/// The estimate of a resample, from the pairs of all values in order of their means: the pairs that
/// a resample forms are those, more often or not at all.
fn weighted(pairs: &[(f64, usize, usize)], counts: &[u32]) -> f64 {
    let total: u32 = counts.iter().sum();
    let all = total * (total + 1) / 2;
    let (mut before, mut lower) = (0, None);
    for (mean, i, j) in pairs {
        before += if i == j { counts[*i] * (counts[*i] + 1) / 2 } else { counts[*i] * counts[*j] };
        if before > (all - 1) / 2 {
            let lower = *lower.get_or_insert(*mean);
            if before > all / 2 {
                return f64::midpoint(lower, *mean);
            }
        }
    }
    unreachable!("the middle of a resample's pairs is one of them")
}

/// Wilcoxon's signed-rank test: the two-sided probability of a sum of ranks at least as uneven, if
/// each difference had been as likely with the other sign (Wilcoxon 1945). Zeros are left out, ties
/// share their mean rank, and the distribution is the exact one for those ranks, so no table and no
/// approximation limits it.
pub(crate) fn wilcoxon(differences: &[f64]) -> f64 {
    let mut signed: Vec<f64> = differences.iter().copied().filter(|difference| *difference != 0.0).collect();
    signed.sort_by(|a, b| a.abs().total_cmp(&b.abs()));
    // Twice the rank: mean ranks of ties end in a half.
    let mut doubled_ranks = Vec::with_capacity(signed.len());
    while doubled_ranks.len() < signed.len() {
        let first = doubled_ranks.len();
        let tied = signed[first..].iter().take_while(|value| value.abs() == signed[first].abs()).count();
        doubled_ranks.extend(std::iter::repeat_n(2 * first + tied + 1, tied));
    }
    let total: usize = doubled_ranks.iter().sum();
    let positive = signed.iter().zip(&doubled_ranks).filter(|(value, _)| **value > 0.0);
    let positive: usize = positive.map(|(_, rank)| rank).sum();
    // The share of sign patterns with each sum.
    let mut share = vec![0.0; total + 1];
    share[0] = 1.0;
    let mut reach = 0;
    for rank in doubled_ranks {
        reach += rank;
        for sum in (0..=reach).rev() {
            let with = if sum >= rank { share[sum - rank] } else { 0.0 };
            share[sum] = f64::midpoint(share[sum], with);
        }
    }
    let lower: f64 = share[..=positive.min(total - positive)].iter().sum();
    (2.0 * lower).min(1.0)
}

/// The smallest probability that [`wilcoxon`] can give for so many rounds: all differences of one
/// sign.
pub(crate) fn wilcoxon_smallest(rounds: usize) -> f64 {
    0.5_f64.powi(i32::try_from(rounds).unwrap_or(i32::MAX) - 1).min(1.0)
}

/// Holm's step-down correction (Holm 1979): with it, the chance of any false finding in the whole
/// family stays below the level, whatever the dependence between the tests.
pub(crate) fn holm(probabilities: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|a, b| probabilities[*a].total_cmp(&probabilities[*b]));
    let mut corrected = vec![1.0; probabilities.len()];
    let mut worst = 0.0_f64;
    for (done, index) in order.into_iter().enumerate() {
        worst = worst.max((probabilities.len() - done) as f64 * probabilities[index]).min(1.0);
        corrected[index] = worst;
    }
    corrected
}

/// Mann–Kendall's test for a trend (Mann 1945, Kendall 1975): the two-sided probability of values
/// that rise or fall as consistently, if their order had been chance; by the normal approximation,
/// which is meant for ten values or more. Ties and continuity are corrected for. 1 of fewer than
/// two values.
pub(crate) fn mann_kendall(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    let later = |at: usize| &values[at + 1..];
    let signs = (0..values.len()).flat_map(|at| later(at).iter().map(move |other| order(values[at], *other)));
    let s = signs.sum::<f64>();
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let of = |n: f64| n * (n - 1.0) * (2.0 * n + 5.0);
    let ties: f64 = sorted.chunk_by(|a, b| order(*a, *b) == 0.0).map(|tied| of(tied.len() as f64)).sum();
    let variance = (of(n) - ties) / 18.0;
    if variance <= 0.0 || s == 0.0 {
        return 1.0;
    }
    let z = (s.abs() - 1.0) / variance.sqrt();
    libm::erfc(z / std::f64::consts::SQRT_2)
}

/// 1 when the second is larger, -1 when it is smaller, 0 when they are equal.
fn order(one: f64, other: f64) -> f64 {
    match one.partial_cmp(&other) {
        Some(std::cmp::Ordering::Less) => 1.0,
        Some(std::cmp::Ordering::Greater) => -1.0,
        _ => 0.0,
    }
}

/// The Theil–Sen slope (Theil 1950, Sen 1968): the median over all pairs of the change per step,
/// robust against outliers. `None` of fewer than two.
pub(crate) fn theil_sen(values: &[f64]) -> Option<f64> {
    let pairs = (0..values.len()).flat_map(|i| (i + 1..values.len()).map(move |j| (i, j)));
    median(&pairs.map(|(i, j)| (values[j] - values[i]) / (j - i) as f64).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn powers(n: i32) -> Vec<f64> {
        (0..n).map(|i| 2.0_f64.powi(i)).collect()
    }

    #[test]
    fn the_interval_is_the_one_of_all_possible_resamples() {
        // Quantiles of the exact bootstrap distribution, all n^n resamples enumerated in Python.
        // Between those of 2 and 3 % (97 and 98 %) lie three standard errors of 10,000 resamples.
        for (n, low, high) in
            [(6, 2.5..=2.5, 18.0..=20.0), (7, 2.0..=2.75, 34.0..=36.0), (9, 5.0..=6.0, 129.0..=129.0)]
        {
            let values = powers(n);
            for seed in 0..5 {
                let found = Bootstrap::new(values.len(), seed).interval(&values).unwrap();
                assert!(low.contains(&found.0) && high.contains(&found.1), "n = {n}, seed {seed}: {found:?}");
            }
        }
    }

    #[test]
    fn the_estimate_is_the_median_of_all_pairs_means() {
        // Hollander, Wolfe & Chicken, Nonparametric Statistical Methods, example 3.3: depression
        // scores, -0.46.
        let depression = [-0.952, 0.147, -1.022, -0.430, -0.620, -0.590, -0.490, 0.080, -0.010];
        assert!((hodges_lehmann(&depression).unwrap() + 0.46).abs() < 1e-9);
        assert_eq!(hodges_lehmann(&[]), None);
        assert_eq!(hodges_lehmann(&[3.0]), Some(3.0));
        // Pairs of 1, 2 and 6: 1, 1.5, 2, 3.5, 4 and 6.
        assert_eq!(hodges_lehmann(&[6.0, 1.0, 2.0]), Some(2.75));
    }

    #[test]
    fn a_resample_is_weighed_as_if_its_values_were_written_out() {
        let values = [0.3, -1.0, 2.5, 0.7, 9.0, -0.2];
        let mut pairs: Vec<_> = pairs(&values).collect();
        pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
        for counts in [[1; 6], [0, 0, 6, 0, 0, 0], [2, 0, 1, 3, 0, 0], [0, 1, 2, 0, 1, 2]] {
            let written: Vec<f64> = (values.iter().zip(counts))
                .flat_map(|(value, count)| std::iter::repeat_n(*value, count as usize))
                .collect();
            assert_eq!(Some(weighted(&pairs, &counts)), hodges_lehmann(&written), "{counts:?}");
        }
    }

    #[test]
    fn fewer_than_six_rounds_have_no_interval() {
        for n in 0..6 {
            let values = powers(n);
            assert_eq!(Bootstrap::new(values.len(), 1).interval(&values), None, "{n}");
        }
        assert_eq!(Bootstrap::new(7, 1).interval(&powers(8)), None);
    }

    #[test]
    fn wilcoxon_gives_the_published_probabilities() {
        // Darwin's maize pairs; SciPy 1.17.1 documents and computes 0.041259765625.
        let darwin =
            [6., 8., 14., 16., 23., 24., 28., 29., 41., -48., 49., 56., 60., -67., 75.].map(|d: f64| d / 8.0);
        let twenty: Vec<f64> =
            (0..20).map(|i| f64::from((i * 7) % 20 + 1) * if i % 3 == 0 { -1.0 } else { 1.0 }).collect();
        for (differences, probability) in [
            (darwin.to_vec(), 0.041_259_765_625),
            // scipy.stats.wilcoxon(method="exact"), SciPy 1.17.1.
            ((1..=6).map(f64::from).collect(), 0.031_25),
            (vec![1., 2., 3., 4., 5., 6., 7., 8., -9., 10., 11., -12.], 0.176_269_531_25),
            (twenty, 0.002_712_249_755_859_375),
            // Ties and a zero: all 2^9 sign patterns enumerated in Python.
            (vec![0.5, -0.5, 1.5, 1.5, 2.0, -0.25, 0.0, 3.0, 3.0, 3.0], 0.023_437_5),
            (vec![0.0; 8], 1.0),
            (vec![], 1.0),
        ] {
            let found = wilcoxon(&differences);
            assert!((found - probability).abs() < 1e-12, "{differences:?}: {found}, expected {probability}");
            let mirrored: Vec<f64> = differences.iter().map(|difference| -difference).collect();
            assert_eq!(wilcoxon(&mirrored), found);
        }
        for rounds in [1, 6, 12, 20] {
            let all_above: Vec<f64> = (1..=rounds).map(f64::from).collect();
            assert_eq!(wilcoxon(&all_above), wilcoxon_smallest(all_above.len()));
        }
    }

    #[test]
    fn holm_corrects_as_statsmodels_does() {
        // statsmodels 0.15.0, multipletests(method="holm").
        let corrected = holm(&[0.01, 0.04, 0.03, 0.005, 0.2, 0.5, 0.0004]);
        for (found, expected) in corrected.iter().zip([0.05, 0.12, 0.12, 0.03, 0.4, 0.5, 0.0028]) {
            assert!((found - expected).abs() < 1e-12, "{corrected:?}");
        }
        assert_eq!(holm(&[]), Vec::<f64>::new());
        assert_eq!(holm(&[0.9, 0.8]), [1.0, 1.0]);
    }

    #[test]
    fn a_trend_is_found_as_pymannkendall_finds_it() {
        // pymannkendall 1.4.3, original_test: p and slope.
        let cases: [(&[f64], f64, f64); 6] = [
            (&[1., 2., 3., 4., 5., 6., 7., 8., 9., 10.], 8.303_070_332_638_107e-05, 1.0),
            (
                &[4.1, 3.9, 4.3, 4.0, 4.2, 3.8, 4.1, 4.0, 4.2, 3.9],
                0.716_129_568_855_563_1,
                -0.014_285_714_285_714_235,
            ),
            (
                &[1., 1., 2., 2., 3., 2., 3., 3., 4., 4., 4., 5.],
                0.000_182_972_210_686_971_3,
                0.333_333_333_333_333_3,
            ),
            (&[10., 9., 9.5, 8., 8.2, 7., 6., 6.5, 5., 4.], 0.000_676_764_180_121_081, -0.65),
            (&[2.0; 10], 1.0, 0.0),
            (
                &[5., 3., 6., 2., 7., 4., 8., 6., 5., 9., 7., 6., 8., 10., 7., 9., 8., 11., 9., 10.],
                0.000_216_626_975_020_783_87,
                0.333_333_333_333_333_3,
            ),
        ];
        for (values, p, slope) in cases {
            let found = (mann_kendall(values), theil_sen(values).unwrap());
            assert!((found.0 - p).abs() < 1e-12 && (found.1 - slope).abs() < 1e-12, "{values:?}: {found:?}");
            let backwards: Vec<f64> = values.iter().rev().copied().collect();
            assert!((mann_kendall(&backwards) - p).abs() < 1e-12);
        }
        assert_eq!((mann_kendall(&[]), mann_kendall(&[1.0]), theil_sen(&[1.0])), (1.0, 1.0, None));
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
