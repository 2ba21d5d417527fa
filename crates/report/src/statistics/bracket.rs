//! The highest rate that a relay sustains under an SLO, from probes that chance may have decided.
//!
//! Near the capacity the same rate is met once and missed the next time. So the answer is not the
//! first miss but what all probes together make likely: the capacity has a probability
//! distribution, every probe updates it, and the next probe goes to its median (QUEST: Watson and
//! Pelli, A Bayesian adaptive psychometric method, Perception & Psychophysics 33, 1983;
//! <https://doi.org/10.3758/BF03202828>). A rate above a sustained one is never more likely to be
//! sustained, whatever single probes say.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::result::{CellProbes, Probe, ProbeOutcome, Purpose, SearchConfig};

/// How gradually the share of met probes falls around the capacity, as logistic scales of the
/// logarithm of the rate; the first goes from 90 % to 10 % within 2 % of the rate, the last within
/// 42 %. All are as likely before the first probe.
const SPREADS: [f64; 5] = [0.005, 0.01, 0.02, 0.04, 0.08];

/// Share of probes that come out either way whatever the rate: the host had other things to do.
const STRAY: f64 = 0.03;

/// Probes after which a bracket is left as wide as it is.
const MOST_PROBES: usize = 48;

/// Probes in a row that say nothing, after which the host is given up.
const MOST_DISTURBED: u32 = 5;

/// Misses within this factor of the capacity decide whose they are: further up everything is late.
const NEAR: f64 = 1.25;

/// A miss at a rate of which the relay has twice kept this multiple is a relay that has changed, if
/// there is another such miss.
const KEPT_BEFORE: u32 = 2;

/// Tails outside of the 95 % interval.
const TAIL: f64 = 0.025;

/// The highest rate that one cell sustains under an SLO.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Limit {
    /// The cell's name.
    pub cell: String,
    /// The rate at which a probe is as likely to keep the SLO as to miss it, where the relay misses
    /// it; absent where anything else ended the search.
    pub capacity_per_s: Option<u32>,
    /// The 95 % credible interval of the rate at which probes begin to miss, whoever misses;
    /// absent until one was met and one missed.
    pub interval_per_s: Option<(u32, u32)>,
    /// The highest rate that passed. Chance may let it lie above the first that failed.
    pub last_pass_per_s: Option<u32>,
    /// The lowest rate that did not, whoever failed.
    pub first_fail_per_s: Option<u32>,
    /// Who ended it.
    pub end: End,
    /// Probes that found this.
    pub probes: u32,
}

/// Why a search ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The relay missed the SLO.
    Slo,
    /// The generator failed there, so the relay's limit is higher.
    GeneratorLimit,
    /// Nothing failed up to the highest allowed rate.
    RateLimit,
    /// Not even one event a second passed.
    NothingPassed,
    /// The relay missed far below what it had kept before: what it stores makes it slower.
    RelayChanged,
    /// The host was too busy, several probes in a row.
    Disturbed,
    /// The search was interrupted before the bracket was small enough.
    Unfinished,
}

impl Limit {
    /// The limit that a cell's probes leave.
    pub fn from_probes(config: &SearchConfig, found: &CellProbes) -> Limit {
        let mut bracket = Bracket::new(config);
        let searched = || found.probes.iter().filter(|probe| probe.purpose == Purpose::Search);
        for Probe { rate_per_s, outcome, .. } in searched() {
            bracket.observe(*rate_per_s, *outcome);
        }
        let end = if bracket.next_rate().is_some() { End::Unfinished } else { bracket.end() };
        Limit {
            cell: found.cell.clone(),
            capacity_per_s: bracket.capacity_per_s().filter(|_| end == End::Slo),
            interval_per_s: bracket.interval_per_s().filter(|_| end != End::RelayChanged),
            last_pass_per_s: bracket.highest_pass(),
            first_fail_per_s: bracket.lowest_miss(),
            end,
            probes: u32::try_from(searched().count()).unwrap_or(u32::MAX),
        }
    }
}

/// The search of one cell, without the measuring. The rate doubles until a probe misses, or halves
/// until one passes; from then on each probe goes to the median of the capacity's distribution, and
/// to no more than twice what passed.
#[derive(Debug, Clone, PartialEq)]
pub struct Bracket {
    start: u32,
    limit: u32,
    precision: f64,
    belief: Belief,
    /// Probes that say something, with who missed.
    seen: Vec<(u32, ProbeOutcome)>,
    disturbed_in_a_row: u32,
}

impl Bracket {
    pub fn new(config: &SearchConfig) -> Bracket {
        let (limit, precision) = (config.limit_per_s, config.precision);
        Bracket {
            start: config.start_per_s.min(limit),
            limit,
            precision,
            belief: Belief::new(limit, precision),
            seen: Vec::new(),
            disturbed_in_a_row: 0,
        }
    }

    /// The rate to try next; `None` when the capacity is known well enough or cannot become known
    /// better.
    pub fn next_rate(&self) -> Option<u32> {
        if self.disturbed_in_a_row >= MOST_DISTURBED || self.seen.len() >= MOST_PROBES || self.has_changed() {
            return None;
        }
        match (self.highest_pass(), self.lowest_miss()) {
            (None, None) => Some(self.start),
            (Some(pass), None) => Some(pass.saturating_mul(2).min(self.limit)).filter(|rate| *rate > pass),
            (None, Some(miss)) => Some(miss / 2).filter(|rate| *rate > 0),
            (Some(pass), Some(_)) => {
                let [low, median, high] = self.belief.quantiles([TAIL, 0.5, 1.0 - TAIL]);
                // Misses among passes leave everything above as likely; far above the capacity a
                // probe takes minutes to end.
                (!self.is_narrow(low, high)).then(|| self.rate(median).min(pass.saturating_mul(2)))
            }
        }
    }

    /// Takes a probe's outcome into account.
    pub fn observe(&mut self, rate_per_s: u32, outcome: ProbeOutcome) {
        if outcome == ProbeOutcome::Disturbed {
            self.disturbed_in_a_row += 1;
            return;
        }
        self.disturbed_in_a_row = 0;
        self.seen.push((rate_per_s, outcome));
        self.belief.update(f64::from(rate_per_s.max(1)).ln(), outcome == ProbeOutcome::Pass);
    }

    /// Whether two searches would agree within the precision: their difference is √2 times as
    /// uncertain as each of them.
    fn is_narrow(&self, low: f64, high: f64) -> bool {
        high - low <= self.precision * std::f64::consts::SQRT_2 || high.exp() - low.exp() < 1.0
    }

    /// The rate that is known to be sustained, by whoever ended it.
    pub fn sustained(&self) -> Option<u32> {
        self.capacity_per_s().or(self.highest_pass())
    }

    /// The median of what is believed.
    fn capacity_per_s(&self) -> Option<u32> {
        self.is_bracketed().then(|| self.rate(self.belief.quantiles([0.5])[0]))
    }

    fn interval_per_s(&self) -> Option<(u32, u32)> {
        let [low, high] = self.belief.quantiles([TAIL, 1.0 - TAIL]);
        self.is_bracketed().then(|| (self.rate(low), self.rate(high)))
    }

    fn is_bracketed(&self) -> bool {
        self.highest_pass().is_some() && self.lowest_miss().is_some()
    }

    fn highest_pass(&self) -> Option<u32> {
        let passed = self.seen.iter().filter(|(_, outcome)| *outcome == ProbeOutcome::Pass);
        passed.map(|(rate, _)| *rate).max()
    }

    fn lowest_miss(&self) -> Option<u32> {
        let missed = self.seen.iter().filter(|(_, outcome)| *outcome != ProbeOutcome::Pass);
        missed.map(|(rate, _)| *rate).min()
    }

    /// Whether two misses are below half of what had passed twice before each.
    fn has_changed(&self) -> bool {
        let kept_before = |at: usize| {
            let (missed, _) = self.seen[at];
            let passed = self.seen[..at]
                .iter()
                .filter(|(rate, outcome)| *outcome == ProbeOutcome::Pass && rate / KEPT_BEFORE >= missed);
            passed.count() >= 2
        };
        let misses = self.seen.iter().enumerate().filter(|(_, (_, outcome))| *outcome == ProbeOutcome::Fail);
        misses.filter(|(at, _)| kept_before(*at)).count() >= 2
    }

    /// Who ended the search: most of the misses near the capacity were theirs.
    fn end(&self) -> End {
        let (Some(miss), passed) = (self.lowest_miss(), self.highest_pass()) else {
            return if self.disturbed_in_a_row > 0 { End::Disturbed } else { End::RateLimit };
        };
        let near = NEAR * f64::from(self.capacity_per_s().unwrap_or(miss).max(miss));
        let of = |who: ProbeOutcome| {
            let is = |(rate, outcome): &&(u32, ProbeOutcome)| *outcome == who && f64::from(*rate) <= near;
            self.seen.iter().filter(is).count()
        };
        let relays = of(ProbeOutcome::Fail) > of(ProbeOutcome::GeneratorLimit);
        match (passed, relays) {
            _ if self.disturbed_in_a_row >= MOST_DISTURBED => End::Disturbed,
            _ if self.has_changed() => End::RelayChanged,
            (_, false) => End::GeneratorLimit,
            (None, true) => End::NothingPassed,
            (Some(_), true) => End::Slo,
        }
    }

    fn rate(&self, log: f64) -> u32 {
        measure::whole(log.exp().round().clamp(1.0, f64::from(self.limit)))
    }
}

/// A probability distribution of the capacity and of how gradually probes begin to miss there.
#[derive(Debug, Clone, PartialEq)]
struct Belief {
    /// Logarithms of rates, evenly spaced: every order of magnitude is as likely.
    capacities: Vec<f64>,
    /// Of each capacity with each of [`SPREADS`]; the largest is 0.
    log_weights: Vec<[f64; SPREADS.len()]>,
}

impl Belief {
    fn new(limit_per_s: u32, precision: f64) -> Belief {
        let (low, high) = (0.5_f64.ln(), (2.0 * f64::from(limit_per_s)).ln());
        let step = precision / 4.0;
        let steps: usize = measure::whole(((high - low) / step).ceil());
        let capacities: Vec<f64> = (0..=steps).map(|at| low + step * at as f64).collect();
        Belief { log_weights: vec![[0.0; SPREADS.len()]; capacities.len()], capacities }
    }

    fn update(&mut self, log_rate: f64, passed: bool) {
        let mut best = f64::NEG_INFINITY;
        for (capacity, weights) in self.capacities.iter().zip(&mut self.log_weights) {
            for (spread, weight) in SPREADS.iter().zip(weights) {
                let sustained = 1.0 / (1.0 + ((log_rate - capacity) / spread).exp());
                let passes = STRAY + (1.0 - 2.0 * STRAY) * sustained;
                *weight += if passed { passes } else { 1.0 - passes }.ln();
                best = best.max(*weight);
            }
        }
        self.log_weights.iter_mut().flatten().for_each(|weight| *weight -= best);
    }

    /// The logarithms of the rates below which the capacity lies with these probabilities.
    fn quantiles<const N: usize>(&self, shares: [f64; N]) -> [f64; N] {
        let weights: Vec<f64> =
            self.log_weights.iter().map(|weights| weights.iter().map(|weight| weight.exp()).sum()).collect();
        let all: f64 = weights.iter().sum();
        let step = self.capacities[1] - self.capacities[0];
        shares.map(|share| {
            let mut below = 0.0;
            for (capacity, weight) in self.capacities.iter().zip(&weights) {
                if below + weight >= share * all {
                    // A grid point stands for the step around it.
                    return capacity + step * ((share * all - below) / weight - 0.5);
                }
                below += weight;
            }
            self.capacities[self.capacities.len() - 1]
        })
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    fn config() -> SearchConfig {
        SearchConfig {
            scenario: "x".to_owned(),
            slo: "p99<10ms".to_owned(),
            start_per_s: 100,
            limit_per_s: 40_000,
            probe_seconds: 1,
            precision: 0.05,
            curve: true,
            seed: 1,
            ..SearchConfig::default()
        }
    }

    /// Plays probes until the bracket asks for no more.
    fn found(start: u32, limit: u32, mut probe: impl FnMut(u32) -> ProbeOutcome) -> Bracket {
        let mut bracket = Bracket::new(&SearchConfig { start_per_s: start, limit_per_s: limit, ..config() });
        let mut probes = 0;
        while let Some(rate) = bracket.next_rate() {
            assert!((1..=limit).contains(&rate) && probes <= 5 * MOST_PROBES, "{rate}");
            let outcome = probe(rate);
            bracket.observe(rate, outcome);
            probes += 1;
        }
        bracket
    }

    /// A relay that sustains so much, always.
    fn exact(sustains: u32, beyond: ProbeOutcome) -> impl FnMut(u32) -> ProbeOutcome {
        move |rate| if rate <= sustains { ProbeOutcome::Pass } else { beyond }
    }

    /// A relay whose probes are met less and less often around its capacity, and one in 25 by
    /// chance alone.
    fn noisy(capacity: f64, spread: f64, seed: u64) -> impl FnMut(u32) -> ProbeOutcome {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        move |rate| {
            let sustained = 1.0 / (1.0 + ((f64::from(rate) / capacity).ln() / spread).exp());
            let passes = 0.02 + 0.96 * sustained;
            if random.random::<f64>() < passes { ProbeOutcome::Pass } else { ProbeOutcome::Fail }
        }
    }

    #[test]
    fn a_relay_without_noise_is_bracketed_within_the_precision() {
        for sustains in [1, 7, 99, 100, 101, 4_321, 30_000] {
            let bracket = found(100, 40_000, exact(sustains, ProbeOutcome::Fail));
            let (capacity, (low, high)) =
                (bracket.capacity_per_s().unwrap(), bracket.interval_per_s().unwrap());
            let off = (f64::from(capacity) / f64::from(sustains)).ln().abs();
            assert!(off < 0.05 || capacity.abs_diff(sustains) <= 1, "{sustains}: {capacity} [{low}, {high}]");
            assert!(low <= sustains + 1 && sustains <= high + 1, "{sustains}: [{low}, {high}]");
            assert!(bracket.seen.len() <= 40, "{sustains}: {} probes", bracket.seen.len());
            assert_eq!(bracket.end(), End::Slo);
        }
    }

    #[test]
    fn two_searches_agree_within_5_percent_in_95_of_100_whatever_the_noise() {
        let (mut agree, mut covered, mut all) = (0, 0, 0);
        for (spread, seed) in
            [0.005, 0.02, 0.04].into_iter().flat_map(|spread| (0..20).map(move |seed| (spread, seed)))
        {
            let capacity = 60.0 * 1.37_f64.powi(seed);
            let seed = u64::try_from(seed).unwrap();
            let searches =
                [2 * seed, 2 * seed + 1].map(|seed| found(250, 40_000, noisy(capacity, spread, seed)));
            let [one, other] =
                searches.each_ref().map(|bracket| f64::from(bracket.capacity_per_s().unwrap()));
            agree += u32::from((one / other).ln().abs() <= 0.05 || (one - other).abs() <= 1.0);
            for bracket in searches {
                let (low, high) = bracket.interval_per_s().unwrap();
                covered += u32::from(f64::from(low) - 0.5 <= capacity && capacity <= f64::from(high) + 0.5);
                assert_eq!(bracket.end(), End::Slo);
            }
            all += 1;
        }
        assert!(agree * 100 >= all * 95, "{agree} of {all} pairs agree");
        assert!(covered * 100 >= 2 * all * 90, "{covered} of {} intervals hold the capacity", 2 * all);
    }

    #[test]
    fn one_stray_miss_far_below_the_capacity_decides_nothing() {
        let mut first = true;
        let mut relay = exact(4_000, ProbeOutcome::Fail);
        let bracket =
            found(
                250,
                40_000,
                |rate| if std::mem::take(&mut first) { ProbeOutcome::Fail } else { relay(rate) },
            );
        let capacity = bracket.capacity_per_s().unwrap();
        assert!((3_800..=4_200).contains(&capacity), "{capacity}");
    }

    #[test]
    fn no_probe_goes_beyond_twice_what_passed() {
        for seed in 0..50 {
            // Chance decides over a wide range of rates.
            let mut relay = noisy(2_000.0, 0.5, seed);
            let mut passed = 100;
            found(100, 1_000_000, |rate| {
                assert!(rate <= 2 * passed, "{rate} after {passed}");
                let outcome = relay(rate);
                passed = passed.max(if outcome == ProbeOutcome::Pass { rate } else { 0 });
                outcome
            });
        }
    }

    #[test]
    fn a_relay_that_gets_slower_as_it_stores_ends_its_search_before_probes_take_minutes() {
        // The sustained rate falls with the square of what it stores, a second's worth of each
        // probe.
        let mut stored = 0;
        let bracket = found(250, 40_000, |rate| {
            stored += rate;
            if rate <= 300_000_000 / stored.pow(2) { ProbeOutcome::Pass } else { ProbeOutcome::Fail }
        });
        assert_eq!(bracket.end(), End::RelayChanged, "{:?}", bracket.seen);
        assert!(bracket.lowest_miss().unwrap() > 5 && bracket.seen.len() < 20, "{:?}", bracket.seen);
    }

    #[test]
    fn what_ends_a_search_is_said() {
        assert_eq!(found(100, 40_000, exact(0, ProbeOutcome::Fail)).end(), End::NothingPassed);
        assert_eq!(found(100, 1_000, exact(5_000, ProbeOutcome::Fail)).end(), End::RateLimit);
        let generator = found(100, 40_000, exact(5_000, ProbeOutcome::GeneratorLimit));
        assert_eq!(generator.end(), End::GeneratorLimit);
        // The relay fails just where the generator does; far above both do.
        let both = |rate: u32| match rate {
            0..=1_000 => ProbeOutcome::Pass,
            1_001..=3_000 => ProbeOutcome::Fail,
            _ => ProbeOutcome::GeneratorLimit,
        };
        assert_eq!(found(2_000, 40_000, both).end(), End::Slo);
        assert_eq!(found(100, 40_000, |_| ProbeOutcome::Disturbed).end(), End::Disturbed);
        let mut turn = 0;
        let mut relay = exact(5_000, ProbeOutcome::Fail);
        let disturbed_at_times = found(100, 40_000, |rate| {
            turn += 1;
            if turn % 3 == 0 { ProbeOutcome::Disturbed } else { relay(rate) }
        });
        assert_eq!(disturbed_at_times.end(), End::Slo);
    }
}
