//! The statistics of paired rounds: an interval, a test, a correction. Pure functions of numbers.
//!
//! The unit is the round: messages of one block are not independent samples (docs/methodology.md).

/// Share of each tail that a 95 % interval leaves out at most.
pub(crate) const TAIL: f64 = 0.025;

/// Level of the test, after correction.
pub(crate) const SIGNIFICANT: f64 = 0.05;

/// The normal distribution's two-sided 5 % point.
const Z: f64 = 1.959_963_984_540_054;

/// Differences within ±2 % are "same": a judgement (docs/bias.md). A run's own resolution is its
/// A/A interval.
pub(crate) const BAND: f64 = 0.02;

/// The median; the mean of the two middle values when their number is even. `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
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
    median(&walsh_averages(values))
}

/// The means of all pairs, each value also paired with itself.
fn walsh_averages(values: &[f64]) -> Vec<f64> {
    let from = |i: usize| values[i..].iter().map(move |other| f64::midpoint(values[i], *other));
    (0..values.len()).flat_map(from).collect()
}

/// The 95 % interval of [`hodges_lehmann`]: the shifts that [`wilcoxon`] does not reject at 5 %
/// (Hollander, Wolfe & Chicken, Nonparametric Statistical Methods, §3.3). Its coverage is exact for
/// every continuous symmetric distribution and at least 95 %. `None` below six values: with five,
/// even their whole range covers the centre in 94 % of cases only.
pub(crate) fn signed_rank_interval(values: &[f64]) -> Option<(f64, f64)> {
    let outermost = outermost(values.len(), TAIL)?;
    let averages = sorted_averages(values);
    Some((averages[outermost - 1], averages[averages.len() - outermost]))
}

/// The means of all pairs, the smallest first.
pub(crate) fn sorted_averages(values: &[f64]) -> Vec<f64> {
    let mut averages = walsh_averages(values);
    averages.sort_by(f64::total_cmp);
    averages
}

/// Rank from 1 of the pair mean that bounds the shifts which [`wilcoxon`] does not reject, with less than
/// this share in each tail. `None` if the values are too few for any rejection.
pub(crate) fn outermost(values: usize, tail: f64) -> Option<usize> {
    let mut sum = 0.0;
    let shares = signed_rank_shares((1..=values).map(|rank| 2 * rank));
    // The smallest rank sum whose tail reaches the allowed share; doubled sums are even.
    let reached = shares.iter().step_by(2).position(|share| {
        sum += share;
        sum >= tail
    });
    reached.filter(|place| *place > 0)
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
    let share = signed_rank_shares(doubled_ranks.into_iter());
    let lower: f64 = share[..=positive.min(total - positive)].iter().sum();
    (2.0 * lower).min(1.0)
}

/// The share of sign patterns with each sum of doubled ranks.
fn signed_rank_shares(doubled_ranks: impl Iterator<Item = usize> + Clone) -> Vec<f64> {
    let mut share = vec![0.0; doubled_ranks.clone().sum::<usize>() + 1];
    share[0] = 1.0;
    let mut reach = 0;
    for rank in doubled_ranks {
        reach += rank;
        for sum in (0..=reach).rev() {
            let with = if sum >= rank { share[sum - rank] } else { 0.0 };
            share[sum] = f64::midpoint(share[sum], with);
        }
    }
    share
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
pub fn mann_kendall(values: &[f64]) -> f64 {
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

/// Student's two-sided 5 % point (Abramowitz and Stegun, 26.7.5), to 1 % from two degrees of freedom
/// and to 0.2 % from five.
pub(crate) fn t_quantile(freedom: f64) -> f64 {
    let z = Z;
    let g1 = (z.powi(3) + z) / 4.0;
    let g2 = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    let g3 = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
    let g4 = (79.0 * z.powi(9) + 776.0 * z.powi(7) + 1482.0 * z.powi(5) - 1920.0 * z.powi(3) - 945.0 * z)
        / 92160.0;
    z + g1 / freedom + g2 / freedom.powi(2) + g3 / freedom.powi(3) + g4 / freedom.powi(4)
}

/// The medians of the first and of the second half; `None` of fewer than two.
pub fn halves(values: &[f64]) -> Option<(f64, f64)> {
    let (first, second) = values.split_at(values.len() / 2);
    Some((median(first)?, median(second)?))
}

/// Whether counts rise: by [`mann_kendall`], and by more than 5 % and one from half to half.
pub fn grows((first, second): (f64, f64), mann_kendall: f64) -> bool {
    mann_kendall <= SIGNIFICANT && second >= first * 1.05 + 1.0
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
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::statistics::power::normal;

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
    fn the_interval_is_the_published_one() {
        // Hollander, Wolfe & Chicken, Nonparametric Statistical Methods, §3.3: depression scores,
        // (-0.786, -0.010) at 96.1 %. The same as R's wilcox.test(conf.int = TRUE).
        let depression = [-0.952, 0.147, -1.022, -0.430, -0.620, -0.590, -0.490, 0.080, -0.010];
        let (low, high) = signed_rank_interval(&depression).unwrap();
        assert!((low + 0.786).abs() < 1e-9 && (high + 0.010).abs() < 1e-9, "[{low}, {high}]");
        // With six, P(T = 0) = 1/64 < 2.5 % < P(T <= 1): the whole range.
        assert_eq!(signed_rank_interval(&[3.0, 1.0, 4.0, 1.5, 9.0, 2.0]), Some((1.0, 9.0)));
        for n in 0..6 {
            assert_eq!(signed_rank_interval(&vec![1.0; n]), None, "{n}");
        }
    }

    #[test]
    fn the_interval_holds_what_the_test_does_not_reject() {
        let mut random = ChaCha8Rng::seed_from_u64(7);
        for n in [6, 9, 13, 20] {
            let values: Vec<f64> = (0..n).map(|_| normal(&mut random) + 0.5).collect();
            let (low, high) = signed_rank_interval(&values).unwrap();
            let rejects = |shift: f64| {
                wilcoxon(&values.iter().map(|value| value - shift).collect::<Vec<_>>()) <= SIGNIFICANT
            };
            assert!(rejects(low - 1e-9) && !rejects(low + 1e-9), "{n}: {low}");
            assert!(!rejects(high - 1e-9) && rejects(high + 1e-9), "{n}: {high}");
        }
    }

    #[test]
    fn the_interval_covers_the_centre_as_often_as_it_states() {
        // The exact coverage is 1 - 2 P(T < outermost): 96.9, 95.3, 95.8 and 95.2 %.
        let mut random = ChaCha8Rng::seed_from_u64(1);
        for (n, stated) in [(6, 0.96875), (7, 0.953_125), (12, 0.957_520), (20, 0.951_563)] {
            let trials = 4_000;
            let covered = (0..trials).filter(|trial| {
                // Half of them with tails much heavier than the normal distribution's.
                let power = if trial % 2 == 0 { 1 } else { 3 };
                let values: Vec<f64> = (0..n).map(|_| normal(&mut random).powi(power)).collect();
                let (low, high) = signed_rank_interval(&values).unwrap();
                low <= 0.0 && 0.0 <= high
            });
            let coverage = covered.count() as f64 / f64::from(trials);
            let error = (stated * (1.0 - stated) / f64::from(trials)).sqrt();
            assert!((coverage - stated).abs() < 3.0 * error, "{n}: {coverage}, stated {stated}");
        }
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
}
