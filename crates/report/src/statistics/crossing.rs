//! Where two cells take equally long: the break-even bandwidth, from pairs of blocks at several
//! bandwidths. Pure functions of a result.
//!
//! At each bandwidth of the grid the logarithms of time ÷ time, one a round, decide who is faster.
//! Where the sign changes between two decided bandwidths, the break-even lies between them. Its
//! interval holds each bandwidth at which the signed-rank test does not reject equal times. Between
//! two bandwidths of the grid, a block's time is taken as linear in 1 ÷ bandwidth: a transfer takes
//! its bytes ÷ bandwidth and what does not depend on it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    result::{BreakEven, CellTimes},
    statistics::stats,
};

/// Steps between two decided bandwidths, at whose ends equal times are tested: each 1 % of their
/// quotient's logarithm.
const STEPS: u32 = 100;

/// One cell against another at one round trip.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Versus {
    /// The cell's name.
    pub cell: String,
    /// The name of the cell that it is divided by.
    pub other: String,
    /// The round trip without queues.
    pub rtt_ns: u64,
    /// The times at each bandwidth, ascending.
    pub points: Vec<TimeRatio>,
    /// Whether probabilities are corrected by Holm over the bandwidths. With fewer rounds than that
    /// needs to find anything at all, each bandwidth stands alone.
    pub corrected: bool,
    /// Where the faster one changes; empty without a break-even.
    pub crossings: Vec<Crossing>,
}

/// The times of two cells at one bandwidth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimeRatio {
    /// The downlink.
    pub down_bits_per_s: u64,
    /// The Hodges–Lehmann estimate over rounds of time ÷ time of the other, taken in logarithms;
    /// absent without a round that has both.
    pub ratio: Option<f64>,
    /// Its 95 % interval, by inverting the signed-rank test; absent below six rounds.
    pub interval: Option<(f64, f64)>,
    /// Rounds in which both count.
    pub rounds: u32,
    /// Wilcoxon's signed-rank test, two-sided, corrected as [`Versus::corrected`] says.
    pub p: f64,
    /// Who is faster, where interval and test agree.
    pub faster: Option<Faster>,
}

/// Who takes less time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Faster {
    /// [`Versus::cell`].
    Cell,
    /// [`Versus::other`].
    Other,
}

/// A break-even bandwidth.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Crossing {
    /// Who is faster below it; the other one is above.
    pub faster_below: Faster,
    /// The bracket: the bandwidths of the grid next to it at which it is decided who is faster.
    pub bracket_bits_per_s: (u64, u64),
    /// The bandwidth at which the Hodges–Lehmann estimate of both times is the same; absent when
    /// too few rounds have both sides of it.
    pub bits_per_s: Option<f64>,
    /// The 95 % interval of the break-even; absent below six rounds.
    pub interval_bits_per_s: Option<(f64, f64)>,
}

/// Times in nanoseconds by bandwidth and round.
type Times = BTreeMap<u64, BTreeMap<u32, f64>>;

/// Every cell against every earlier one, at every round trip.
pub fn versus(found: &BreakEven) -> Vec<Versus> {
    let mut all = Vec::new();
    for rtt_ns in &found.config.rtts_ns {
        for (place, other) in found.cells.iter().enumerate() {
            for cell in &found.cells[place + 1..] {
                all.push(pair(found, cell, other, *rtt_ns));
            }
        }
    }
    all
}

/// Median over rounds of a cell's times in nanoseconds by bandwidth, for tables and figures.
pub(crate) fn medians(cell: &CellTimes, rtt_ns: u64) -> BTreeMap<u64, f64> {
    let of = |(down, rounds): (u64, BTreeMap<u32, f64>)| {
        Some((down, stats::median(&rounds.into_values().collect::<Vec<_>>())?))
    };
    times(cell, rtt_ns).into_iter().filter_map(of).collect()
}

fn times(cell: &CellTimes, rtt_ns: u64) -> Times {
    let mut times = Times::new();
    for block in cell.blocks.iter().filter(|block| block.rtt_ns == rtt_ns) {
        if let Some(ns) = block.time_ns_p50.filter(|ns| *ns > 0) {
            times.entry(block.down_bits_per_s).or_default().insert(block.round, ns as f64);
        }
    }
    times
}

fn pair(found: &BreakEven, cell: &CellTimes, other: &CellTimes, rtt_ns: u64) -> Versus {
    let grid = &found.config.down_bits_per_s;
    let both = Both { one: times(cell, rtt_ns), other: times(other, rtt_ns) };
    let mut points: Vec<TimeRatio> = grid.iter().map(|down| both.ratio(*down)).collect();
    // By the plan alone, independent of the data.
    let smallest = stats::wilcoxon_smallest(found.config.rounds as usize);
    let corrected = smallest * grid.len() as f64 <= stats::SIGNIFICANT;
    if corrected {
        let holm = stats::holm(&points.iter().map(|point| point.p).collect::<Vec<_>>());
        points.iter_mut().zip(holm).for_each(|(point, p)| point.p = p);
    }
    for point in &mut points {
        point.faster = faster(point);
    }
    let decided: Vec<(u64, Faster)> =
        points.iter().filter_map(|point| Some((point.down_bits_per_s, point.faster?))).collect();
    let changes = decided.windows(2).filter(|next| next[0].1 != next[1].1);
    let crossings = changes.map(|next| both.crossing(next[0].1, (next[0].0, next[1].0))).collect();
    Versus { cell: cell.cell.clone(), other: other.cell.clone(), rtt_ns, points, corrected, crossings }
}

fn faster(point: &TimeRatio) -> Option<Faster> {
    let (low, high) = point.interval.filter(|_| point.p <= stats::SIGNIFICANT)?;
    match () {
        () if high < 1.0 => Some(Faster::Cell),
        () if low > 1.0 => Some(Faster::Other),
        () => None,
    }
}

/// The times of two cells.
struct Both {
    one: Times,
    other: Times,
}

impl Both {
    fn ratio(&self, down_bits_per_s: u64) -> TimeRatio {
        let none = BTreeMap::new();
        let of = |times: &Times| times.get(&down_bits_per_s).unwrap_or(&none).clone();
        let logs = log_ratios(&of(&self.one), &of(&self.other));
        let interval = stats::signed_rank_interval(&logs);
        TimeRatio {
            down_bits_per_s,
            ratio: stats::hodges_lehmann(&logs).map(f64::exp),
            interval: interval.map(|(low, high)| (low.exp(), high.exp())),
            rounds: u32::try_from(logs.len()).unwrap_or(u32::MAX),
            p: if logs.is_empty() { 1.0 } else { stats::wilcoxon(&logs) },
            faster: None,
        }
    }

    /// The break-even between two bandwidths at which different cells are faster.
    fn crossing(&self, faster_below: Faster, bracket: (u64, u64)) -> Crossing {
        let (low, high) = (bracket.0 as f64, bracket.1 as f64);
        let at = |step: u32| low * (high / low).powf(f64::from(step) / f64::from(STEPS));
        let logs = |step: u32| log_ratios(&between(&self.one, at(step)), &between(&self.other, at(step)));
        let (mut estimates, mut equal, mut tested) = (Vec::new(), Vec::new(), false);
        for step in 0..=STEPS {
            let logs = logs(step);
            estimates.extend(stats::hodges_lehmann(&logs).map(|estimate| (step, estimate)));
            let Some((low, high)) = stats::signed_rank_interval(&logs) else { continue };
            tested = true;
            if low <= 0.0 && 0.0 <= high {
                equal.push(step);
            }
        }
        let change = estimates.windows(2).find(|next| (next[0].1 < 0.0) != (next[1].1 < 0.0));
        let bits_per_s = change.map(|next| {
            let share = next[0].1 / (next[0].1 - next[1].1);
            at(next[0].0) * (at(next[1].0) / at(next[0].0)).powf(share)
        });
        // The limits lie between two steps, and without any equal one both in the same.
        let outer = |(first, last): (&u32, &u32)| (first.saturating_sub(1), (last + 1).min(STEPS));
        let steps = equal.first().zip(equal.last()).map(outer);
        let steps = steps.or(change.filter(|_| tested).map(|next| (next[0].0, next[1].0)));
        let interval = steps.map(|(first, last)| (at(first), at(last)));
        Crossing { faster_below, bracket_bits_per_s: bracket, bits_per_s, interval_bits_per_s: interval }
    }
}

fn log_ratios(one: &BTreeMap<u32, f64>, other: &BTreeMap<u32, f64>) -> Vec<f64> {
    one.iter().filter_map(|(round, ns)| Some((ns / other.get(round)?).ln())).collect()
}

/// Times at a bandwidth, of the rounds that have both neighbours on the grid.
fn between(times: &Times, bits_per_s: f64) -> BTreeMap<u32, f64> {
    let above = times.iter().find(|(down, _)| **down as f64 >= bits_per_s);
    let below = times.iter().rev().find(|(down, _)| **down as f64 <= bits_per_s);
    let Some(((low, slow), (high, quick))) = below.zip(above) else { return BTreeMap::new() };
    let (low, high) = (*low as f64, *high as f64);
    let share = if low < high { (1.0 / bits_per_s - 1.0 / high) / (1.0 / low - 1.0 / high) } else { 1.0 };
    let time = |(round, slow): (&u32, &f64)| {
        let quick = quick.get(round)?;
        Some((*round, quick + share * (slow - quick)))
    };
    slow.iter().filter_map(time).collect()
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;
    use crate::result::{BreakEvenConfig, TimedBlock};

    const GRID: [u64; 9] = [250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000];

    /// A cell that takes `fixed_ms` and its bytes ÷ bandwidth.
    #[derive(Clone, Copy)]
    struct Costs {
        fixed_ms: f64,
        bytes: f64,
    }

    impl Costs {
        fn ns(self, down_bits_per_s: u64) -> f64 {
            self.fixed_ms * 1e6 + self.bytes * 8e9 / down_bits_per_s as f64
        }
    }

    /// Blocks whose times deviate by `noise`, as a share, each by itself, beside what a round's
    /// blocks have in common.
    fn found(costs: &[Costs], rounds: u32, noise: f64, seed: u64) -> BreakEven {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        // The sum of twelve uniform numbers has the variance 1.
        let mut normal = move || (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
        let down_bits_per_s: Vec<u64> = GRID.iter().map(|kbit| kbit * 1_000).collect();
        let mut cells: Vec<CellTimes> =
            (0..costs.len()).map(|at| CellTimes { cell: format!("cell-{at}"), blocks: Vec::new() }).collect();
        for round in 0..rounds {
            for down in &down_bits_per_s {
                let common = (3.0 * noise * normal()).exp();
                for (cell, costs) in cells.iter_mut().zip(costs) {
                    let ns = costs.ns(*down) * common * (noise * normal()).exp();
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "nanoseconds"
                    )]
                    let ns = ns as u64;
                    cell.blocks.push(block(round, *down, Some(ns)));
                }
            }
        }
        let config = BreakEvenConfig {
            scenario: "x".to_owned(),
            down_bits_per_s,
            uplink_share: 0.25,
            rtts_ns: vec![30_000_000],
            rounds,
            seconds: 5,
            seed,
            corpus: None,
            client_args: Vec::new(),
        };
        BreakEven { config, latency: "session".to_owned(), cells }
    }

    fn block(round: u32, down_bits_per_s: u64, time_ns_p50: Option<u64>) -> TimedBlock {
        TimedBlock {
            round,
            down_bits_per_s,
            rtt_ns: 30_000_000,
            link: String::new(),
            time_ns_p50,
            samples: 100,
            down_bytes: 0,
            up_bytes: 0,
            lateness_ns_p99: None,
            process_ns: 0,
            why: Vec::new(),
        }
    }

    /// Cell 0 needs more bytes, cell 1 more time that no bandwidth saves: even at 8 Mbit/s.
    const EVEN_AT_8_MBIT: [Costs; 2] =
        [Costs { fixed_ms: 200.0, bytes: 1_500_000.0 }, Costs { fixed_ms: 900.0, bytes: 800_000.0 }];

    #[test]
    fn without_noise_the_break_even_is_found_to_a_percent() {
        let all = versus(&found(&EVEN_AT_8_MBIT, 9, 1e-6, 1));
        let [one] = all.as_slice() else { panic!("{all:?}") };
        let [crossing] = one.crossings.as_slice() else { panic!("{one:?}") };
        assert_eq!((one.cell.as_str(), one.other.as_str(), one.corrected), ("cell-1", "cell-0", true));
        assert_eq!(crossing.faster_below, Faster::Cell);
        assert_eq!(crossing.bracket_bits_per_s, (5_000_000, 10_000_000));
        let at = crossing.bits_per_s.unwrap();
        let (low, high) = crossing.interval_bits_per_s.unwrap();
        assert!((at / 8e6).ln().abs() < 0.01 && low < 8e6 && 8e6 < high && high / low < 1.02, "{crossing:?}");
        assert!(one.points[..5].iter().all(|point| point.faster == Some(Faster::Cell)), "{one:?}");
        assert!(one.points[5..].iter().all(|point| point.faster == Some(Faster::Other)), "{one:?}");
    }

    #[test]
    fn the_interval_holds_the_break_even_as_often_as_it_states() {
        let (mut covered, mut all) = (0, 0);
        for (noise, seed) in [0.01, 0.03].into_iter().flat_map(|noise| (0..80).map(move |seed| (noise, seed)))
        {
            let pairs = versus(&found(&EVEN_AT_8_MBIT, 9, noise, seed));
            let crossings = &pairs[0].crossings;
            assert_eq!(crossings.len(), 1, "{noise} {seed}: {crossings:?}");
            let (low, high) = crossings[0].interval_bits_per_s.unwrap();
            covered += u32::from(low <= 8e6 && 8e6 <= high);
            all += 1;
        }
        // The signed-rank interval of nine rounds covers 96.1 %; three standard errors are 4.6 %.
        assert!(f64::from(covered) >= 0.915 * f64::from(all), "{covered} of {all}");
    }

    #[test]
    fn equal_cells_have_no_break_even_and_nobody_is_faster() {
        let same = [EVEN_AT_8_MBIT[0]; 2];
        let decided = |seed: &u64| {
            let pairs = versus(&found(&same, 9, 0.02, *seed));
            assert!(pairs[0].crossings.is_empty(), "{seed}: {:?}", pairs[0]);
            pairs[0].points.iter().any(|point| point.faster.is_some())
        };
        // Any false finding at any of the nine bandwidths: 5 % at most, and three standard errors.
        let wrong = (0..200).filter(decided).count();
        assert!(wrong <= 19, "{wrong} of 200");
    }

    #[test]
    fn a_cell_that_is_always_faster_has_no_break_even() {
        let smaller =
            [Costs { fixed_ms: 200.0, bytes: 1_500_000.0 }, Costs { fixed_ms: 150.0, bytes: 800_000.0 }];
        for seed in 0..50 {
            let pairs = versus(&found(&smaller, 9, 0.02, seed));
            assert!(pairs[0].crossings.is_empty(), "{:?}", pairs[0]);
            assert!(pairs[0].points.iter().all(|point| point.faster == Some(Faster::Cell)), "{:?}", pairs[0]);
        }
    }

    #[test]
    fn blocks_that_do_not_count_leave_their_round_and_no_other() {
        let mut found = found(&EVEN_AT_8_MBIT, 9, 0.001, 1);
        for block in &mut found.cells[0].blocks {
            // Two rounds at 10 Mbit/s, and all but five at 100 Mbit/s.
            if block.down_bits_per_s == 10_000_000 && block.round < 2
                || block.down_bits_per_s == 100_000_000 && block.round < 4
            {
                block.time_ns_p50 = None;
            }
        }
        let one = &versus(&found)[0];
        let rounds: Vec<u32> = one.points.iter().map(|point| point.rounds).collect();
        assert_eq!(rounds, [9, 9, 9, 9, 9, 7, 9, 9, 5]);
        let last = &one.points[8];
        assert_eq!((last.interval, last.faster), (None, None), "five rounds have no interval");
        assert!(last.ratio.is_some());
        let crossing = &one.crossings[0];
        assert_eq!(crossing.bracket_bits_per_s, (5_000_000, 10_000_000), "{one:?}");
        assert!((crossing.bits_per_s.unwrap() / 8e6).ln().abs() < 0.02, "{crossing:?}");
    }

    #[test]
    fn few_rounds_decide_alone_or_not_at_all() {
        let six = &versus(&found(&EVEN_AT_8_MBIT, 6, 0.001, 1))[0];
        assert!(!six.corrected && six.crossings.len() == 1, "{six:?}");
        let five = &versus(&found(&EVEN_AT_8_MBIT, 5, 0.001, 1))[0];
        assert!(
            five.crossings.is_empty() && five.points.iter().all(|point| point.faster.is_none()),
            "{five:?}"
        );
    }

    #[test]
    fn every_cell_meets_every_other_at_every_round_trip() {
        let mut found = found(&[EVEN_AT_8_MBIT[0]; 3], 1, 0.01, 1);
        found.config.rtts_ns = vec![30_000_000, 150_000_000];
        let all: Vec<(u64, String, String)> =
            versus(&found).into_iter().map(|one| (one.rtt_ns, one.cell, one.other)).collect();
        assert_eq!(all.len(), 6);
        assert_eq!(all[2], (30_000_000, "cell-2".to_owned(), "cell-1".to_owned()));
    }
}
