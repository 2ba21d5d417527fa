//! Power of a plan: the smallest difference that its rounds find four times of five, from a
//! deviation between rounds that is known before the run.
//!
//! Runs of normal rounds are simulated, because six to thirty of them are too few for the normal
//! approximation of the signed-rank test. A run of rounds z finds a shift θ where θ + σ A exceeds
//! the edge of the band and θ + σ B exceeds zero; A and B are the lower ends of its interval and of
//! the one that belongs to the corrected level. So each run needs one θ, and the power is a
//! quantile of these.

use std::collections::BTreeMap;

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::{
    metric::{Metric, ShownIn},
    statistics::{
        judge::is_corrected,
        stats::{self, BAND, SIGNIFICANT, TAIL},
    },
};

/// The share of runs that find the difference which a plan states.
const POWER: f64 = 0.8;

/// Runs that are simulated: they know a difference to about 2 % of itself.
const RUNS: usize = 2_000;

/// How far JSON against itself deviates from round to round, in logarithms: the median over the
/// loads of published results without links. A test compares them.
const TYPICAL: [(Metric, f64); 5] = [
    (Metric::WireBytes, 0.0),
    (Metric::RelayCpu, 0.074),
    (Metric::ClientCpu, 0.091),
    (Metric::LatencyP50, 0.134),
    (Metric::LatencyP99, 0.3),
];

/// Typical deviations of cells over links.
const TYPICAL_OVER_LINKS: [(Metric, f64); 5] = [
    (Metric::LatencyP50, 0.009),
    (Metric::FirstEventP50, 0.017),
    (Metric::FiftiethEventP50, 0.0029),
    (Metric::EoseP50, 0.0052),
    (Metric::PacketBytes, 0.0003),
];

/// A plan's rounds and the cells that its verdicts are corrected for.
#[derive(Debug, Clone, Copy)]
pub struct Design<'a> {
    /// Rounds that are counted.
    pub rounds: u32,
    /// Cells of the largest family that is named first.
    pub cells: usize,
    /// Whether that is a primary family among others.
    pub is_primary: bool,
    /// Whether users have emulated links.
    pub is_over_links: bool,
    /// Deviations of a pilot, in logarithms.
    pub pilot: Option<&'a BTreeMap<Metric, f64>>,
}

impl Design<'_> {
    /// The differences that the rounds find, in one line.
    pub fn power(&self) -> String {
        let Design { rounds, cells, is_primary, is_over_links, pilot } = *self;
        let Some(simulated) = Simulated::new(rounds, cells) else {
            return "Fewer than six rounds find no difference".to_owned();
        };
        let typical: &[(Metric, f64)] = if is_over_links { &TYPICAL_OVER_LINKS } else { &TYPICAL };
        let (known, noise) = match pilot {
            Some(deviations) => (deviations.clone(), "as noisy as the pilot's"),
            None => (typical.iter().copied().collect(), "as noisy as the published ones"),
        };
        let table = if is_over_links { ShownIn::VerdictsOverLinks } else { ShownIn::Verdicts };
        let found = Metric::shown_in(table).into_iter().filter_map(|metric| {
            let percent = simulated.effect(*known.get(&metric)?).exp_m1() * 100.0;
            Some(format!("{percent:.0} % in {}", metric.short()))
        });
        let found = found.collect::<Vec<_>>().join(", ");
        let cells = match (cells, is_primary) {
            (1, _) => "one cell".to_owned(),
            (cells, true) => format!("{cells} primary cells"),
            (cells, false) => format!("{cells} cells"),
        };
        format!("{rounds} rounds {noise} find, four times of five, a difference of {found} ({cells})")
    }
}

/// Lower ends of the intervals of simulated runs, in deviations: that of 95 %, and the one that
/// belongs to the corrected level.
struct Simulated(Vec<(f64, f64)>);

impl Simulated {
    /// Runs of so many rounds, of which one cell among so many differs; `None` where no verdict is
    /// possible.
    fn new(rounds: u32, cells: usize) -> Option<Simulated> {
        let corrected = if is_corrected(rounds, cells) { cells.max(1) as f64 } else { 1.0 };
        let values = rounds as usize;
        let of_interval = stats::outermost(values, TAIL)?;
        let of_test = stats::outermost(values, SIGNIFICANT / 2.0 / corrected)?;
        let mut random = ChaCha8Rng::seed_from_u64(u64::from(rounds));
        let run = |_| {
            let rounds: Vec<f64> = (0..values).map(|_| normal(&mut random)).collect();
            let averages = stats::sorted_averages(&rounds);
            (averages[of_interval - 1], averages[of_test - 1])
        };
        Some(Simulated((0..RUNS).map(run).collect()))
    }

    /// The logarithm of the ratio that is found with [`POWER`] where rounds deviate by so much.
    fn effect(&self, deviation: f64) -> f64 {
        let edge = BAND.ln_1p();
        let needs = |(interval, test): &(f64, f64)| (edge - deviation * interval).max(-deviation * test);
        let mut needed: Vec<f64> = self.0.iter().map(needs).collect();
        needed.sort_by(f64::total_cmp);
        needed[measure::whole::<usize>(POWER * needed.len() as f64)]
    }
}

/// A standard normal number (Box and Muller 1958).
pub(crate) fn normal(random: &mut ChaCha8Rng) -> f64 {
    let (radius, turn) = (1.0 - random.random::<f64>(), random.random::<f64>());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * turn).cos()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{fs, path::Path};

    use measure::NOT_SATURATED;

    use super::*;
    use crate::{
        result::{ResultFile, Role},
        statistics::{
            judge::{Sample, judge},
            precision::pooled_deviation,
        },
        verdicts::comparison::Verdict,
        view::views,
    };

    /// The share of runs with a verdict on the first of so many cells, whose cost differs.
    pub(crate) fn found(
        random: &mut ChaCha8Rng,
        rounds: u32,
        cells: usize,
        deviation: f64,
        effect: f64,
    ) -> f64 {
        let trials = 400;
        let is_found = |_: &u32| {
            let mut sample = |shift: f64| Sample {
                cell: "a",
                reference: "b",
                role: Role::Cell,
                family: None,
                is_corrected: is_corrected(rounds, cells),
                logs: (0..rounds).map(|_| shift + deviation * normal(random)).collect(),
                withheld: None,
            };
            let samples: Vec<Sample<'_>> =
                (0..cells).map(|cell| sample(if cell == 0 { effect } else { 0.0 })).collect();
            let judged = judge(Metric::RelayCpu, &samples);
            judged[0].as_ref().expect("each cell has rounds").verdict == Verdict::Worse
        };
        f64::from(u32::try_from((0..trials).filter(is_found).count()).unwrap()) / f64::from(trials)
    }

    #[test]
    fn the_stated_difference_is_found_four_times_of_five() {
        let mut random = ChaCha8Rng::seed_from_u64(35);
        for (rounds, cells, deviation) in [(6, 8, 0.05), (12, 8, 0.03), (16, 1, 0.1)] {
            let effect = Simulated::new(rounds, cells).unwrap().effect(deviation);
            let share = found(&mut random, rounds, cells, deviation, effect);
            // Three standard errors; Holm's later steps find slightly more.
            assert!((0.73..=0.87).contains(&share), "{rounds} rounds, {cells} cells, {deviation}: {share}");
            let half = found(&mut random, rounds, cells, deviation, effect / 2.0);
            assert!(half < 0.4, "{rounds} rounds, {cells} cells: half of it is found {half}");
        }
    }

    /// Deviations of JSON against itself: the median over the loads of published results.
    fn published(over_links: bool) -> BTreeMap<Metric, f64> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/published");
        let mut known: BTreeMap<Metric, Vec<f64>> = BTreeMap::new();
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if !entry.is_dir() {
                continue;
            }
            let result = ResultFile::read(&entry).unwrap();
            for load in views(&result) {
                let Some((control, anchor)) = load.control().zip(load.anchor()) else { continue };
                if load.is_over_links() != over_links
                    || load.counts_allocations()
                    || load.saturates() != NOT_SATURATED
                {
                    continue;
                }
                for metric in load.judged() {
                    let logs: Vec<f64> = load.log_ratios(control, anchor, metric).into_values().collect();
                    known.entry(metric).or_default().extend(pooled_deviation([&*logs].into_iter()));
                }
            }
        }
        known.into_iter().filter_map(|(metric, all)| Some((metric, stats::median(&all)?))).collect()
    }

    #[test]
    #[ignore = "reads every published result, a minute without optimisation"]
    fn typical_deviations_are_those_of_the_published_controls() {
        for (typical, over_links) in [(&TYPICAL[..], false), (&TYPICAL_OVER_LINKS, true)] {
            let published = published(over_links);
            println!("{published:.4?}");
            for (metric, deviation) in typical {
                let found = published[metric];
                let is_near = (found / 1.5..=found * 1.5).contains(deviation);
                assert!(
                    is_near || (found < 0.001 && *deviation < 0.001),
                    "{metric:?}: {deviation}, not {found}"
                );
            }
        }
    }

    #[test]
    fn more_rounds_and_fewer_cells_find_smaller_differences() {
        let effect = |rounds, cells| Simulated::new(rounds, cells).map(|all| all.effect(0.05));
        assert!(effect(16, 8) < effect(12, 8) && effect(40, 8) < effect(16, 8));
        assert!(effect(16, 8) < effect(16, 60));
        // Nothing deviates: the edge of the band decides.
        assert!((Simulated::new(12, 8).unwrap().effect(0.0) - BAND.ln_1p()).abs() < 1e-12);
        assert_eq!(effect(5, 1), None);
    }
}
