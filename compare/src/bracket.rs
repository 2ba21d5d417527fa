//! The highest rate that a relay sustains under an SLO: the last rate that passed and the first
//! that failed.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::result::{CellProbes, Probe, ProbeOutcome, Purpose, SearchConfig};

/// The highest rate that one cell sustains under an SLO, as a bracket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Limit {
    /// The cell's name.
    pub cell: String,
    /// The highest rate that passed.
    pub last_pass_per_s: Option<u32>,
    /// The lowest rate that did not.
    pub first_fail_per_s: Option<u32>,
    /// What did not pass there.
    pub end: End,
    /// Of the repetitions of the last pass, how many passed.
    pub pass_confirmed: u32,
    /// Of the repetitions of the first fail, how many failed.
    pub fail_confirmed: u32,
}

/// Why a search ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The relay missed the SLO.
    Slo,
    /// The generator or the host failed there, so the relay's limit is higher.
    GeneratorLimit,
    /// Nothing failed up to the highest allowed rate.
    RateLimit,
    /// Not even one event a second passed.
    NothingPassed,
    /// The search was interrupted before the bracket was small enough.
    Unfinished,
}

impl Limit {
    /// The bracket that a cell's probes leave.
    pub fn of(config: &SearchConfig, found: &CellProbes) -> Limit {
        let mut bracket = Bracket::new(config);
        for probe in found.probes.iter().filter(|probe| probe.purpose == Purpose::Search) {
            bracket.tell(probe.rate_per_s, probe.outcome);
        }
        let confirmed = |rate: Option<u32>, passed: bool| {
            let same = |probe: &&Probe| {
                probe.purpose == Purpose::Confirm
                    && Some(probe.rate_per_s) == rate
                    && (probe.outcome == ProbeOutcome::Pass) == passed
            };
            u32::try_from(found.probes.iter().filter(same).count()).unwrap_or(u32::MAX)
        };
        let fail = bracket.fail.map(|(rate, _)| rate);
        Limit {
            cell: found.cell.clone(),
            last_pass_per_s: bracket.pass,
            first_fail_per_s: fail,
            end: if bracket.next().is_some() { End::Unfinished } else { bracket.end() },
            pass_confirmed: confirmed(bracket.pass, true),
            fail_confirmed: confirmed(fail, false),
        }
    }
}

/// The search of one cell, without the measuring: doubles the rate until it fails, then halves the
/// gap.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bracket {
    pub(crate) pass: Option<u32>,
    pub(crate) fail: Option<(u32, ProbeOutcome)>,
    start: u32,
    limit: u32,
    precision: f64,
}

impl Bracket {
    pub(crate) fn new(config: &SearchConfig) -> Bracket {
        let (limit, precision) = (config.limit_per_s, config.precision);
        Bracket { pass: None, fail: None, start: config.start_per_s.min(limit), limit, precision }
    }

    /// The rate to try next; `None` when the bracket is small enough or cannot become smaller.
    pub(crate) fn next(&self) -> Option<u32> {
        match (self.pass, self.fail) {
            (None, None) => Some(self.start),
            (Some(pass), None) => Some(pass.saturating_mul(2).min(self.limit)).filter(|rate| *rate > pass),
            (None, Some((fail, _))) => Some(fail / 2).filter(|rate| *rate > 0),
            (Some(pass), Some((fail, _))) => {
                let near = f64::from(fail) <= f64::from(pass) * (1.0 + self.precision);
                Some(u32::midpoint(pass, fail)).filter(|rate| !near && *rate > pass)
            }
        }
    }

    pub(crate) fn tell(&mut self, rate: u32, outcome: ProbeOutcome) {
        match outcome {
            ProbeOutcome::Pass => self.pass = Some(self.pass.map_or(rate, |pass| pass.max(rate))),
            _ => self.fail = Some((rate, outcome)),
        }
    }

    fn end(&self) -> End {
        match (self.pass, self.fail) {
            (_, Some((_, ProbeOutcome::GeneratorLimit))) => End::GeneratorLimit,
            (None, _) => End::NothingPassed,
            (Some(_), None) => End::RateLimit,
            (Some(_), Some(_)) => End::Slo,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> SearchConfig {
        SearchConfig {
            scenario: "x".to_owned(),
            slo: "p99<10ms".to_owned(),
            start_per_s: 100,
            limit_per_s: 100_000,
            probe_seconds: 1,
            precision: 0.05,
            confirmations: 3,
            curve: true,
            seed: 1,
            corpus: None,
            client_args: Vec::new(),
        }
    }

    /// Plays a relay that sustains so many events a second.
    fn found(start: u32, limit: u32, sustains: u32, beyond: ProbeOutcome) -> (Bracket, u32) {
        let mut bracket = Bracket::new(&SearchConfig { start_per_s: start, limit_per_s: limit, ..config() });
        let mut probes = 0;
        while let Some(rate) = bracket.next() {
            assert!(rate <= limit && probes < 60, "{bracket:?}");
            bracket.tell(rate, if rate <= sustains { ProbeOutcome::Pass } else { beyond });
            probes += 1;
        }
        (bracket, probes)
    }

    #[test]
    fn the_bracket_holds_the_limit_and_is_small() {
        for sustains in [1, 7, 99, 100, 101, 4_321, 50_000] {
            let (bracket, probes) = found(100, 100_000, sustains, ProbeOutcome::Fail);
            let (pass, (fail, _)) = (bracket.pass.unwrap(), bracket.fail.unwrap());
            assert!(pass <= sustains && sustains < fail, "{sustains}: [{pass}, {fail}]");
            assert!(f64::from(fail) <= f64::from(pass) * 1.05 || fail == pass + 1, "[{pass}, {fail}]");
            assert!(probes <= 20, "{probes}");
            assert_eq!(bracket.end(), End::Slo);
        }
    }

    #[test]
    fn what_ends_a_search_is_said() {
        assert_eq!(found(100, 100_000, 0, ProbeOutcome::Fail).0.end(), End::NothingPassed);
        assert_eq!(found(100, 1_000, 5_000, ProbeOutcome::Fail).0.end(), End::RateLimit);
        assert_eq!(found(100, 100_000, 5_000, ProbeOutcome::GeneratorLimit).0.end(), End::GeneratorLimit);
    }
}
