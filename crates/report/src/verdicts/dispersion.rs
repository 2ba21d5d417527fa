//! Dispersion of the anchor: how well JSON is known against itself, and when that is too little.

use crate::view::LoadView;
use crate::{
    metric::{Metric, ShownIn},
    result::MAX_ROUNDS,
};

/// The widest half of the interval of JSON against itself: beyond it a difference of 10 % is missed
/// more often than found. By simulation (docs/methodology.md, "From blocks to verdicts").
const WIDEST: f64 = 0.07;

/// The half of the interval at which that difference is found four times of five.
const ENOUGH: f64 = 0.05;

impl LoadView<'_> {
    /// That JSON deviates from itself too much to find 10 %, with what to do; `None` where it does
    /// not.
    pub(crate) fn dispersed(&self) -> Option<String> {
        let control = self.control()?;
        let judged = self.judged();
        let judged = Metric::shown_in(ShownIn::Planned).into_iter().filter(|metric| judged.contains(metric));
        let known = judged.filter_map(|metric| Some((metric, self.to_anchor(control, metric)?.interval?)));
        let half = |(low, high): (f64, f64)| (high / low).sqrt() - 1.0;
        let wide: Vec<(Metric, f64)> = known
            .map(|(metric, interval)| (metric, half(interval)))
            .filter(|(_, half)| *half > WIDEST)
            .collect();
        let widest = wide.iter().map(|(_, half)| *half).max_by(f64::total_cmp)?;
        let named: Vec<String> = wide
            .iter()
            .map(|(metric, half)| format!("{} to ±{:.1} %", metric.short(), half * 100.0))
            .collect();
        let rounds = (f64::from(self.result.config.rounds) * (widest / ENOUGH).powi(2)).ceil();
        let more = if rounds <= f64::from(MAX_ROUNDS) {
            format!(", or --rounds {rounds}, which find it four times of five")
        } else {
            String::new()
        };
        Some(format!(
            "Noisy: JSON against itself is known in {} only, and beyond ±{:.0} % a difference of 10 % is missed more \
             often than found. Quiet the host: end other programs, leave out --no-pin, take an idle machine{more}.",
            named.join(", "),
            WIDEST * 100.0,
        ))
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::statistics::{
        power::{normal, tests::found},
        stats,
    };

    /// Cells of a family, of which one differs.
    const CELLS: usize = 8;

    /// The share of runs that are warned of.
    fn warned(random: &mut ChaCha8Rng, rounds: u32, deviation: f64) -> f64 {
        const TRIALS: u32 = 400;
        let is_wide = |_: &u32| {
            let logs: Vec<f64> = (0..rounds).map(|_| deviation * normal(random)).collect();
            let (low, high) = stats::signed_rank_interval(&logs).unwrap();
            ((high - low) / 2.0).exp_m1() > WIDEST
        };
        (0..TRIALS).filter(is_wide).count() as f64 / f64::from(TRIALS)
    }

    #[test]
    fn a_run_that_misses_ten_percent_is_warned_of_and_one_that_finds_it_is_not() {
        let mut random = ChaCha8Rng::seed_from_u64(35);
        // Deviations at which 10 % is found four times of five, half of the time and one time of
        // five.
        for (rounds, deviations) in
            [(6, [0.04, 0.06, 0.10]), (12, [0.07, 0.09, 0.13]), (16, [0.09, 0.12, 0.17])]
        {
            let shares = deviations.map(|deviation| {
                let found = found(&mut random, rounds, CELLS, deviation, 0.1_f64.ln_1p());
                (found, warned(&mut random, rounds, deviation))
            });
            println!("{rounds} rounds, {deviations:?}: {shares:.2?} found and warned of");
            let [finds, half, misses] = shares;
            assert!(finds.0 > 0.72 && finds.1 < 0.22, "{rounds} rounds: {finds:?}");
            assert!((0.4..0.6).contains(&half.0), "{rounds} rounds: {half:?}");
            assert!(misses.0 < 0.28 && misses.1 > 0.75, "{rounds} rounds: {misses:?}");
        }
    }
}
