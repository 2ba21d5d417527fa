//! The root of a search: the highest rate that a relay sustains under an SLO, the load at which it
//! uses a share of its cores, the bandwidth at which two cells take equally long. From probes that
//! chance may have decided.
//!
//! Near the root the same rate passes once and fails the next time. So the answer is not the first
//! miss but what all probes together make likely: the root has a probability distribution, every
//! probe updates it, and the next probe goes to its median (QUEST: Watson and Pelli, A Bayesian
//! adaptive psychometric method, Perception & Psychophysics 33, 1983;
//! <https://doi.org/10.3758/BF03202828>). A rate above a sustained one is never more likely to be
//! sustained, whatever single probes say. A share of cores is measured, not only met or missed, so
//! there the next probe goes where the last ones point.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::result::{Axis, CellProbes, Probe, ProbeOutcome, Purpose, SearchConfig};

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

/// The largest step from one rate to the next when a share of cores suggests it: the cost of a delivery
/// at a low load predicts little about a much higher one.
const FARTHEST: f64 = 40.0;

/// The fewest probes that call one of two cells faster throughout: with five, chance alone does so
/// once in sixteen.
const FEWEST_OF_ONE_SIGN: usize = 6;

/// Misses that show a delay, and the share of the p99 of the first that the last has: each is at
/// half of the rate before.
const DELAYED: (usize, f64) = (3, 0.8);

/// What a search found of one cell, or of two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Limit {
    /// The cell's name; of two cells `one ÷ other, round trip`.
    pub cell: String,
    /// The rate at which a probe is as likely to keep the SLO as to miss it, where the relay misses
    /// it; absent where anything else ended the search. In deliveries that came per second where
    /// loads are searched, and kbit per second where bandwidths are.
    pub capacity_per_s: Option<u32>,
    /// The 95 % credible interval of the rate at which probes begin to miss, whoever misses;
    /// absent until one was met and one missed.
    pub interval_per_s: Option<(u32, u32)>,
    /// What came per second in the highest probe that passed, where loads are searched.
    pub delivered_per_s: Option<u32>,
    /// The highest rate that was asked for and passed. Chance may let it lie above the first that
    /// failed.
    pub last_pass_per_s: Option<u32>,
    /// The lowest rate that was asked for and did not pass, whoever failed.
    pub first_fail_per_s: Option<u32>,
    /// Why the search ended.
    pub end: End,
    /// Probes that found this.
    pub probes: u32,
}

/// Why a search ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The relay missed the SLO, or the faster one of two cells changed.
    Slo,
    /// The generator failed there, so the relay's limit is higher.
    GeneratorLimit,
    /// Nothing failed up to the highest allowed rate.
    RateLimit,
    /// Not even one event a second passed; of two cells, the faster one changes below the lowest
    /// bandwidth.
    NothingPassed,
    /// The relay missed by as much at a fraction of the rate: it delays answers at any rate.
    Delayed,
    /// The relay missed far below what it had kept before: what it stores makes it slower. Of two
    /// cells, chance decides which is faster.
    RelayChanged,
    /// Too few answers come at the rate that was to be tried.
    TooFewAnswers,
    /// The host was too busy, several probes in a row.
    Disturbed,
    /// The search was interrupted before the bracket was small enough.
    Unfinished,
}

impl Limit {
    /// The limit that a cell's probes leave.
    pub fn from_probes(config: &SearchConfig, found: &CellProbes) -> Limit {
        let bracket = Bracket::of(config, found);
        let searched = || found.probes.iter().filter(|probe| probe.purpose == Purpose::Search);
        let end = if bracket.next_rate().is_some() { End::Unfinished } else { bracket.end() };
        let highest = searched().filter(|probe| probe.outcome == ProbeOutcome::Pass);
        let highest = highest.max_by_key(|probe| probe.rate_per_s);
        let delivered = highest.filter(|_| bracket.axis == Axis::Load).and_then(|probe| {
            let played = probe.played?;
            Some((played.envelopes_per_s(), played.envelopes_per_s() / f64::from(probe.rate_per_s)))
        });
        let came = |rate: u32| {
            delivered.map_or(rate, |(_, share)| measure::whole((f64::from(rate) * share).round()))
        };
        Limit {
            cell: found.cell.clone(),
            capacity_per_s: bracket.root_per_s().filter(|_| end == End::Slo).map(came),
            interval_per_s: (bracket.interval_per_s().filter(|_| end != End::RelayChanged))
                .map(|(low, high)| (came(low), came(high))),
            delivered_per_s: delivered.map(|(per_s, _)| measure::whole(per_s.round())),
            last_pass_per_s: bracket.highest_pass(),
            first_fail_per_s: bracket.lowest_miss(),
            end,
            probes: u32::try_from(searched().count()).unwrap_or(u32::MAX),
        }
    }

    /// What was kept: a lower bound of the capacity.
    pub fn kept_per_s(&self) -> Option<u32> {
        self.delivered_per_s.or(self.last_pass_per_s)
    }

    /// Whether it answers the question, with a figure or with a bound.
    pub fn is_answer(&self, axis: Axis) -> bool {
        match self.end {
            End::Slo => true,
            End::RateLimit | End::GeneratorLimit => self.last_pass_per_s.is_some(),
            End::NothingPassed => axis == Axis::Bandwidth,
            End::Delayed | End::RelayChanged | End::TooFewAnswers | End::Disturbed | End::Unfinished => false,
        }
    }
}

/// The search of one root, without the measuring. The rate doubles until a probe misses, or halves
/// until one passes; from then on each probe goes to the median of the root's distribution, and to
/// no more than twice what passed.
#[derive(Debug, Clone, PartialEq)]
pub struct Bracket {
    axis: Axis,
    /// Whether a share of cores is sought, which a probe's quotient says how far it is from.
    is_measured: bool,
    start: u32,
    limit: u32,
    precision: f64,
    belief: Belief,
    /// Probes that say something, with who missed; of two cells, the first of them passes.
    seen: Vec<Probe>,
    /// Whether the second cell is faster where the search began.
    is_turned: bool,
    disturbed_in_a_row: u32,
    has_few_answers: bool,
}

impl Bracket {
    pub fn new(config: &SearchConfig) -> Bracket {
        let (limit, precision) = (config.limit_per_s, config.precision.max(1e-3));
        Bracket {
            axis: config.axis(),
            is_measured: config.utilisation.is_some(),
            start: config.start_per_s.min(limit),
            limit,
            precision,
            belief: Belief::new(limit, precision),
            seen: Vec::new(),
            is_turned: false,
            disturbed_in_a_row: 0,
            has_few_answers: false,
        }
    }

    /// What a cell's probes leave.
    pub fn of(config: &SearchConfig, found: &CellProbes) -> Bracket {
        let mut bracket = Bracket::new(config);
        let searched = found.probes.iter().filter(|probe| probe.purpose == Purpose::Search);
        searched.for_each(|probe| bracket.observe(probe));
        bracket
    }

    /// The rate to try next; `None` when the root is known well enough or cannot become known
    /// better.
    pub fn next_rate(&self) -> Option<u32> {
        let is_over = self.disturbed_in_a_row >= MOST_DISTURBED
            || self.has_few_answers
            || self.seen.len() >= MOST_PROBES
            || self.has_changed()
            || self.is_delayed()
            || self.hit().is_some();
        match (self.highest_pass(), self.lowest_miss()) {
            _ if is_over => None,
            (None, None) => Some(self.start),
            (Some(pass), None) if pass < self.limit => {
                Some(self.pointed(pass).unwrap_or(pass.saturating_mul(2)).clamp(pass + 1, self.limit))
            }
            (Some(_), None) => {
                let ends = [self.start, self.limit];
                let is_one_sign = self.axis == Axis::Bandwidth && self.seen.len() < FEWEST_OF_ONE_SIGN;
                is_one_sign.then(|| ends[self.seen.len() % 2])
            }
            (None, Some(miss)) => Some(self.pointed(miss).unwrap_or(miss / 2).min(miss.saturating_sub(1)))
                .filter(|rate| *rate > 0),
            (Some(pass), Some(miss)) if self.is_measured => {
                let between = (f64::from(pass) * f64::from(miss)).sqrt();
                let rate = self.pointed(pass).unwrap_or(measure::whole(between));
                (miss.saturating_sub(pass) > 1 && f64::from(miss) > f64::from(pass) * (1.0 + self.precision))
                    .then(|| if pass < rate && rate < miss { rate } else { measure::whole(between) })
                    .filter(|rate| pass < *rate)
            }
            (Some(pass), Some(_)) => {
                let [low, median, high] = self.belief.quantiles([TAIL, 0.5, 1.0 - TAIL]);
                // Misses among passes leave everything above as likely; far above the capacity a
                // probe takes minutes to end.
                let rate = self.rate(median).min(pass.saturating_mul(2));
                let rate = if self.axis == Axis::Bandwidth { rate.max(self.start) } else { rate };
                (!self.is_narrow(low, high) && !self.is_below_start(high)).then_some(rate)
            }
        }
    }

    /// Narrows the bracket by a probe's outcome. One that says nothing is repeated.
    pub fn observe(&mut self, probe: &Probe) {
        match probe.outcome {
            ProbeOutcome::Disturbed => {
                self.disturbed_in_a_row += 1;
                return;
            }
            ProbeOutcome::TooFewAnswers => {
                self.has_few_answers = true;
                return;
            }
            ProbeOutcome::Pass | ProbeOutcome::Fail | ProbeOutcome::GeneratorLimit => {}
        }
        self.disturbed_in_a_row = 0;
        let mut probe = probe.clone();
        if self.axis == Axis::Bandwidth {
            if self.seen.is_empty() {
                self.is_turned = probe.outcome == ProbeOutcome::Fail;
            }
            let is_pass = (probe.outcome == ProbeOutcome::Pass) != self.is_turned;
            probe.outcome = if is_pass { ProbeOutcome::Pass } else { ProbeOutcome::Fail };
        }
        let log_rate = f64::from(probe.rate_per_s.max(1)).ln();
        self.belief.update(log_rate, probe.outcome == ProbeOutcome::Pass);
        self.seen.push(probe);
    }

    /// The rate that this one's share of cores points to, where shares are sought.
    fn pointed(&self, rate: u32) -> Option<u32> {
        let at = |wanted: u32| self.seen.iter().rev().find(|probe| probe.rate_per_s == wanted)?.quotient;
        let quotient = at(rate).filter(|quotient| self.is_measured && *quotient > 0.0)?;
        let aim = if self.axis == Axis::Load { 1.0 } else { 1.0 - self.precision / 2.0 };
        let rate_of = |probe: &Probe| f64::from(probe.rate_per_s);
        let rate = f64::from(rate);
        // The line through another probe, because a relay takes CPU time for being awake, too.
        let on_the_line = self.seen.iter().rev().find_map(|probe| {
            let slope = (quotient - probe.quotient?) / (rate - rate_of(probe));
            (slope > 0.0 && slope.is_finite()).then(|| rate + (aim - quotient) / slope)
        });
        let next = on_the_line.unwrap_or(rate * aim / quotient);
        let is_on_its_side = (next > rate) == (quotient < aim);
        let next = next.clamp(rate / FARTHEST, rate * FARTHEST).round().max(1.0);
        is_on_its_side.then(|| measure::whole(next))
    }

    /// The rate of a probe whose share of cores is the one that is sought; of a rate at most that.
    fn hit(&self) -> Option<u32> {
        let most = if self.axis == Axis::Load { 1.0 + self.precision } else { 1.0 };
        let is_hit = |probe: &&Probe| {
            // A miss below the share is one of something else.
            let is_of_share = |quotient: f64| probe.outcome == ProbeOutcome::Pass || quotient > 1.0;
            let is_near = |quotient: f64| (1.0 - self.precision..=most).contains(&quotient);
            let quotient = probe.quotient.filter(|quotient| self.is_measured && is_of_share(*quotient));
            quotient.is_some_and(is_near)
        };
        self.seen.iter().find(is_hit).map(|probe| probe.rate_per_s)
    }

    /// Whether the relay answers as late at a quarter of the rate, and not because of a queue that
    /// outlasts the probe.
    fn is_delayed(&self) -> bool {
        let (misses, share) = DELAYED;
        let Some(last) = self.seen.len().checked_sub(misses).map(|from| &self.seen[from..]) else {
            return false;
        };
        let is_searched = self.highest_pass().is_none() && self.axis != Axis::Bandwidth && !self.is_measured;
        let is_queue = |probe: &Probe| {
            let tail_s = probe.achieved.map(|share| f64::from(probe.seconds) * (1.0 / share - 1.0));
            tail_s.zip(probe.p99_ns).is_none_or(|(tail_s, ns)| tail_s > 2.0 * ns as f64 / 1e9)
        };
        let all_relay = last.iter().all(|probe| probe.outcome == ProbeOutcome::Fail && !is_queue(probe));
        let ends_ns = last[0].p99_ns.zip(last[misses - 1].p99_ns);
        let is_as_late = ends_ns.is_some_and(|(first, last)| last as f64 >= share * first as f64);
        is_searched && all_relay && is_as_late
    }

    /// Whether two searches would agree within the precision: their difference is √2 times as
    /// uncertain as each of them.
    fn is_narrow(&self, low: f64, high: f64) -> bool {
        high - low <= self.precision * std::f64::consts::SQRT_2 || high.exp() - low.exp() < 1.0
    }

    /// Whether the faster one of two cells changes below the lowest bandwidth, if anywhere.
    fn is_below_start(&self, high: f64) -> bool {
        self.axis == Axis::Bandwidth && high <= f64::from(self.start).ln()
    }

    /// The rate that is known to be sustained, by whoever ended it.
    pub fn sustained(&self) -> Option<u32> {
        self.hit().or(self.root_per_s()).or(self.highest_pass())
    }

    /// The median of what is believed; of shares of cores the highest that was below.
    fn root_per_s(&self) -> Option<u32> {
        let median = || self.rate(self.belief.quantiles([0.5])[0]);
        self.is_bracketed().then(|| if self.is_measured { self.highest_pass() } else { Some(median()) })?
    }

    fn interval_per_s(&self) -> Option<(u32, u32)> {
        let [low, high] = self.belief.quantiles([TAIL, 1.0 - TAIL]);
        self.is_bracketed().then(|| (self.rate(low), self.rate(high)))
    }

    fn is_bracketed(&self) -> bool {
        self.highest_pass().is_some() && self.lowest_miss().is_some()
    }

    fn highest_pass(&self) -> Option<u32> {
        let passed = self.seen.iter().filter(|probe| probe.outcome == ProbeOutcome::Pass);
        passed.map(|probe| probe.rate_per_s).max()
    }

    fn lowest_miss(&self) -> Option<u32> {
        let missed = self.seen.iter().filter(|probe| probe.outcome != ProbeOutcome::Pass);
        missed.map(|probe| probe.rate_per_s).min()
    }

    /// Whether two misses are below half of what had passed twice before each.
    fn has_changed(&self) -> bool {
        let kept_before = |at: usize| {
            let passed = self.seen[..at].iter().filter(|probe| {
                probe.outcome == ProbeOutcome::Pass
                    && probe.rate_per_s / KEPT_BEFORE >= self.seen[at].rate_per_s
            });
            passed.count() >= 2
        };
        let missed = |at: &usize| self.seen[*at].outcome == ProbeOutcome::Fail;
        (0..self.seen.len()).filter(missed).filter(|at| kept_before(*at)).count() >= 2
    }

    /// Who ended the search: most of the misses near the capacity were theirs.
    fn end(&self) -> End {
        let (Some(miss), passed) = (self.lowest_miss(), self.highest_pass()) else {
            return match () {
                () if self.has_few_answers => End::TooFewAnswers,
                () if self.disturbed_in_a_row > 0 => End::Disturbed,
                () => End::RateLimit,
            };
        };
        let near = NEAR * f64::from(self.root_per_s().unwrap_or(miss).max(miss));
        let of = |who: ProbeOutcome| {
            let is = |probe: &&Probe| probe.outcome == who && f64::from(probe.rate_per_s) <= near;
            self.seen.iter().filter(is).count()
        };
        let relays = of(ProbeOutcome::Fail) > of(ProbeOutcome::GeneratorLimit);
        match (passed, relays) {
            _ if self.disturbed_in_a_row >= MOST_DISTURBED => End::Disturbed,
            _ if self.has_few_answers => End::TooFewAnswers,
            _ if self.has_changed() => End::RelayChanged,
            _ if self.is_delayed() => End::Delayed,
            _ if self.is_below_start(self.belief.quantiles([1.0 - TAIL])[0]) => End::NothingPassed,
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
    /// Log weight of each capacity with each of [`SPREADS`]; the largest is 0.
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
            slo: "p99<10ms".to_owned(),
            start_per_s: 100,
            limit_per_s: 40_000,
            precision: 0.05,
            curve: true,
            ..SearchConfig::default()
        }
    }

    fn probe(rate_per_s: u32, outcome: ProbeOutcome) -> Probe {
        Probe {
            rate_per_s,
            played: None,
            seconds: 10,
            purpose: Purpose::Search,
            outcome,
            why: Vec::new(),
            p99_ns: None,
            achieved: None,
            quotient: None,
            counts: None,
            said: None,
        }
    }

    /// Plays probes until the bracket asks for no more.
    fn searched(config: &SearchConfig, mut probe: impl FnMut(u32) -> Probe) -> Bracket {
        let mut bracket = Bracket::new(config);
        let mut probes = 0;
        while let Some(rate) = bracket.next_rate() {
            assert!((1..=config.limit_per_s).contains(&rate) && probes <= 5 * MOST_PROBES, "{rate}");
            bracket.observe(&probe(rate));
            probes += 1;
        }
        bracket
    }

    fn found(start: u32, limit: u32, mut outcome: impl FnMut(u32) -> ProbeOutcome) -> Bracket {
        let config = SearchConfig { start_per_s: start, limit_per_s: limit, ..config() };
        searched(&config, |rate| probe(rate, outcome(rate)))
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
            let (capacity, (low, high)) = (bracket.root_per_s().unwrap(), bracket.interval_per_s().unwrap());
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
            let [one, other] = searches.each_ref().map(|bracket| f64::from(bracket.root_per_s().unwrap()));
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
        let capacity = bracket.root_per_s().unwrap();
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

    /// A search for a bandwidth from 250 kbit/s to 100 Mbit/s.
    fn bandwidths() -> SearchConfig {
        let links = Some(crate::result::SearchedLinks { uplink_share: 0.25, rtts_ns: vec![30_000_000] });
        SearchConfig { links, start_per_s: 250, limit_per_s: 100_000, ..config() }
    }

    /// The first of two cells needs `saved` ms less whatever the bandwidth, and 700 kB more; both
    /// deviate by `noise` as a share. They are even at 5,600,000 ÷ `saved` kbit/s.
    fn two_cells(saved: f64, noise: f64, seed: u64) -> impl FnMut(u32) -> Probe {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut deviation =
            move || 1.0 + noise * ((0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0);
        move |kbit| {
            let one = (200.0 + 12_000_000.0 / f64::from(kbit)) * deviation();
            let other = (200.0 + saved + 6_400_000.0 / f64::from(kbit)) * deviation();
            probe(kbit, if one < other { ProbeOutcome::Pass } else { ProbeOutcome::Fail })
        }
    }

    #[test]
    fn the_interval_of_a_break_even_holds_it_whichever_cell_is_faster_below() {
        let mut covered = 0;
        for (noise, seed) in
            [0.005, 0.02].into_iter().flat_map(|noise| (0..20).map(move |seed| (noise, seed)))
        {
            let bracket = searched(&bandwidths(), two_cells(700.0, noise, seed));
            assert_eq!(bracket.end(), End::Slo, "{:?}", bracket.seen);
            let (low, high) = bracket.interval_per_s().unwrap();
            covered += u32::from(low <= 8_000 && 8_000 <= high);
            assert!(bracket.is_turned && f64::from(high) < 1.2 * f64::from(low), "[{low}, {high}]");
        }
        assert!(covered >= 36, "{covered} of 40");
        let turned = |rate| if rate < 8_000 { ProbeOutcome::Pass } else { ProbeOutcome::Fail };
        let root = searched(&bandwidths(), |rate| probe(rate, turned(rate))).root_per_s().unwrap();
        assert!((7_800..8_200).contains(&root), "{root}");
    }

    #[test]
    fn cells_of_which_one_is_always_faster_have_no_break_even_and_equal_ones_none_that_is_narrow() {
        for seed in 0..20 {
            let bracket = searched(&bandwidths(), two_cells(-150.0, 0.01, seed));
            assert_eq!((bracket.end(), bracket.highest_pass()), (End::RateLimit, Some(100_000)));
            assert!(bracket.is_turned && bracket.seen.len() >= FEWEST_OF_ONE_SIGN);
        }
        // Chance turned the first probe alone.
        let mut first = true;
        let bracket = searched(&bandwidths(), |rate| {
            let is_first = std::mem::take(&mut first);
            probe(rate, if is_first { ProbeOutcome::Fail } else { ProbeOutcome::Pass })
        });
        assert_eq!(bracket.end(), End::NothingPassed, "{:?}", bracket.seen);
    }
}
