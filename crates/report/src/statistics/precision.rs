//! How many rounds a precision takes, from what a pilot shows of the variation between rounds.
//!
//! The round is the level of repetition at which the largest variation enters, so it is the one that is
//! repeated (Kalibera and Jones, Rigorous benchmarking in reasonable time, ISMM 2013,
//! <https://doi.org/10.1145/2464157.2464160>): n rounds whose logarithms of ratios deviate by s have an
//! interval of ± 1.023 t(n−1) s ÷ √n, where 1.023 is what the signed-rank interval is wider than the
//! mean's. The number is fixed before the first counted round, and the pilot's rounds do not count. An
//! interval that decides when to stop covers less than it states.

use std::{collections::BTreeMap, fmt, time::Duration};

use crate::{
    metric::{Metric, ShownIn},
    result::{MAX_ROUNDS, PlannedRounds},
    statistics::stats::t_quantile,
};

/// Rounds of a pilot. Deviations are pooled over the cells, so few rounds have many degrees of
/// freedom.
pub const PILOT_ROUNDS: u32 = 5;

/// The fewest rounds with an interval.
const FEWEST_ROUNDS: u32 = 6;

impl PlannedRounds {
    /// Plans from a pilot; `None` when it does not know the CPU time of relay or clients in two
    /// rounds.
    pub fn from_pilot(
        deviations: BTreeMap<Metric, f64>,
        round: Duration,
        precision: f64,
        max_time: Option<Duration>,
    ) -> Option<PlannedRounds> {
        let planned = Metric::shown_in(ShownIn::Planned);
        let needed = planned.iter().filter_map(|metric| deviations.get(metric));
        let rounds_needed = needed.map(|deviation| rounds_for(*deviation, precision)).max()?;
        let left = max_time.map(|time| time.saturating_sub(round * PILOT_ROUNDS));
        let fit = left.map_or(MAX_ROUNDS, |left| {
            measure::whole::<u32>(left.as_secs_f64() / round.as_secs_f64().max(1e-9)).min(MAX_ROUNDS)
        });
        Some(PlannedRounds {
            precision,
            max_time_s: max_time.map(|time| time.as_secs()),
            pilot_rounds: PILOT_ROUNDS,
            round_ns: u64::try_from(round.as_nanos()).unwrap_or(u64::MAX),
            deviations,
            rounds_needed,
            rounds: rounds_needed.min(fit),
        })
    }

    /// Whether so few rounds fit that none would have an interval.
    pub fn is_too_few(&self) -> bool {
        self.rounds < FEWEST_ROUNDS
    }

    fn time_of(&self, rounds: u32) -> Duration {
        Duration::from_nanos(self.round_ns.saturating_mul(u64::from(rounds)))
    }

    /// The half-widths that the planned rounds are expected to have.
    fn expected(&self) -> String {
        let of = |(metric, deviation): (&Metric, &f64)| {
            let half_width = half_width(*deviation, self.rounds).exp_m1() * 100.0;
            format!("{} ±{half_width:.1} %", metric.short())
        };
        self.deviations.iter().map(of).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for PlannedRounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.precision * 100.0;
        let minutes = |rounds| self.time_of(rounds).as_secs_f64() / 60.0;
        write!(
            f,
            "±{percent} % in CPU time takes {} rounds ({:.0} min), by a pilot of {} rounds that are not counted. ",
            self.rounds_needed,
            minutes(self.rounds_needed),
            self.pilot_rounds
        )?;
        if self.rounds < self.rounds_needed {
            match self.max_time_s {
                Some(seconds) if self.rounds < MAX_ROUNDS => {
                    write!(f, "Of them {} fit into {:.0} min. ", self.rounds, seconds as f64 / 60.0)?;
                }
                _ => write!(f, "At most {MAX_ROUNDS} are made. ")?,
            }
        }
        if self.is_too_few() {
            return write!(
                f,
                "Fewer than {FEWEST_ROUNDS} rounds have no interval: they take {:.0} min.",
                minutes(FEWEST_ROUNDS)
            );
        }
        write!(f, "{} rounds ({:.0} min) should give {}.", self.rounds, minutes(self.rounds), self.expected())
    }
}

/// The standard deviation within samples, pooled; `None` without two values in any of them.
pub(crate) fn pooled_deviation<'a>(samples: impl Iterator<Item = &'a [f64]>) -> Option<f64> {
    let (mut squares, mut freedom) = (0.0, 0.0);
    for sample in samples.filter(|sample| sample.len() > 1) {
        let mean = sample.iter().sum::<f64>() / sample.len() as f64;
        squares += sample.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
        freedom += (sample.len() - 1) as f64;
    }
    (freedom > 0.0).then(|| (squares / freedom).sqrt())
}

/// The fewest rounds whose interval is so narrow; beyond [`MAX_ROUNDS`] extrapolated by their root.
fn rounds_for(deviation: f64, precision: f64) -> u32 {
    let wanted = precision.ln_1p();
    let enough = |rounds: &u32| half_width(deviation, *rounds) <= wanted;
    // Beyond MAX_ROUNDS the width falls with the root of the rounds.
    (FEWEST_ROUNDS..=MAX_ROUNDS).find(enough).unwrap_or_else(|| {
        let times = (half_width(deviation, MAX_ROUNDS) / wanted).powi(2);
        measure::whole::<u32>(times.mul_add(f64::from(MAX_ROUNDS), 1.0)).max(MAX_ROUNDS + 1)
    })
}

/// The expected half-width of the signed-rank interval over so many rounds, in logarithms. Beside
/// the mean's it is wider by √(π/3), its asymptotic relative efficiency for normal values (Hodges
/// and Lehmann 1956).
fn half_width(deviation: f64, rounds: u32) -> f64 {
    // Six have their whole range, which of normal values is 2.534 deviations.
    let in_deviations = match rounds {
        0..=FEWEST_ROUNDS => 2.534 / 2.0,
        _ => {
            (std::f64::consts::PI / 3.0).sqrt() * t_quantile(f64::from(rounds - 1)) / f64::from(rounds).sqrt()
        }
    };
    deviation * in_deviations
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::statistics::{power::normal, stats};

    fn rounds(random: &mut ChaCha8Rng, deviation: f64, rounds: u32) -> Vec<f64> {
        (0..rounds).map(|_| deviation * normal(random)).collect()
    }

    fn planned(deviation: f64, precision: f64, max_time: Option<u64>) -> PlannedRounds {
        let deviations = BTreeMap::from([(Metric::RelayCpu, deviation), (Metric::LatencyP99, 0.3)]);
        let time = max_time.map(Duration::from_secs);
        PlannedRounds::from_pilot(deviations, Duration::from_secs(10), precision, time).unwrap()
    }

    #[test]
    fn the_interval_that_is_reached_is_near_the_one_that_was_asked_for() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        for (deviation, precision) in [(0.05, 0.03), (0.05, 0.01), (0.15, 0.05), (0.02, 0.01)] {
            let mut shares = Vec::new();
            for _ in 0..30 {
                // A pilot of eight cells, then the counted rounds of one of them.
                let pilot: Vec<Vec<f64>> =
                    (0..8).map(|_| rounds(&mut random, deviation, PILOT_ROUNDS)).collect();
                let found = pooled_deviation(pilot.iter().map(Vec::as_slice)).unwrap();
                let planned = planned(found, precision, None);
                let (low, high) =
                    stats::signed_rank_interval(&rounds(&mut random, deviation, planned.rounds)).unwrap();
                shares.push((high - low) / 2.0 / precision.ln_1p());
            }
            let mean = shares.iter().sum::<f64>() / shares.len() as f64;
            assert!((mean - 1.0).abs() < 0.1, "{deviation} for {precision}: {mean} of what was asked");
        }
    }

    #[test]
    fn the_width_is_that_of_the_signed_rank_interval() {
        // docs/decisions/effect.md, half of its widths.
        for (rounds, half) in [(6, 1.25), (7, 0.93), (12, 0.66), (20, 0.475)] {
            assert!(
                (half_width(1.0, rounds) / half - 1.0).abs() < 0.03,
                "{rounds}: {}",
                half_width(1.0, rounds)
            );
        }
        for (freedom, point) in [(5.0, 2.5706), (11.0, 2.2010), (30.0, 2.0423)] {
            assert!((t_quantile(freedom) / point - 1.0).abs() < 0.002, "{freedom}: {}", t_quantile(freedom));
        }
    }

    #[test]
    fn what_the_time_does_not_allow_is_said() {
        let all = planned(0.05, 0.03, None);
        assert!(all.rounds == all.rounds_needed && (12..=15).contains(&all.rounds), "{all:?}");
        assert!(all.to_string().contains("rounds (2 min) should give p99 ±"), "{all}");
        // The pilot takes 50 of the 120 s.
        let some = planned(0.05, 0.03, Some(120));
        assert_eq!((some.rounds, some.rounds_needed), (7, all.rounds_needed));
        assert!(
            some.to_string().contains("Of them 7 fit into 2 min. 7 rounds (1 min) should give"),
            "{some}"
        );
        assert!(some.to_string().contains("relay CPU ±4.8 %"), "{some}");
        let none = planned(0.05, 0.03, Some(60));
        assert!(none.is_too_few() && none.to_string().ends_with("no interval: they take 1 min."), "{none}");
        let endless = planned(0.5, 0.01, None);
        assert!(endless.rounds == MAX_ROUNDS && endless.rounds_needed > 5_000, "{endless:?}");
        assert!(endless.to_string().contains("At most 200 are made. 200 rounds"), "{endless}");
    }

    #[test]
    fn a_deviation_needs_two_rounds_and_no_common_mean() {
        assert_eq!(pooled_deviation([&[1.0][..], &[]].into_iter()), None);
        let one_each = pooled_deviation([&[1.0, 3.0][..], &[10.0, 12.0]].into_iter()).unwrap();
        assert!((one_each - 2.0_f64.sqrt()).abs() < 1e-12);
        assert!(PlannedRounds::from_pilot(BTreeMap::new(), Duration::from_secs(1), 0.03, None).is_none());
    }
}
