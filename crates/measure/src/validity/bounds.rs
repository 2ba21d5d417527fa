//! Demands of a scenario: figures that make a run count as evidence, and latencies that the relay
//! must keep.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Latency, ReasonKind, Validity, ValidityClass};

/// A bound that a scenario sets to a sum, or to a ratio of two sums: both add up over agents.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Expectation {
    /// The figure's name in the scenario.
    pub figure: String,
    /// The sum.
    pub sum: u64,
    /// The divisor of the sum; `None` for a figure that is a sum itself.
    pub per: Option<u64>,
    /// Not below.
    pub min: Option<f64>,
    /// Not above.
    pub max: Option<f64>,
}

crate::sums! { Expectation { sum, per } }

impl Expectation {
    /// The figure; `None` when there is nothing to divide by.
    pub fn value(&self) -> Option<f64> {
        match self.per {
            None => Some(self.sum as f64),
            Some(per) => (per > 0).then(|| self.sum as f64 / per as f64),
        }
    }

    /// Judges a run by the figure: out of bounds it makes the run invalid, without a value suspect.
    pub fn judge(&self, validity: &mut Validity) {
        let figure = self.figure.clone();
        let Some(value) = self.value() else {
            return validity.add(ValidityClass::Suspect, ReasonKind::TooFew { figure });
        };
        if let Some(min) = self.min.filter(|min| value < *min) {
            validity.add(ValidityClass::Invalid, ReasonKind::BelowExpected { figure, value, min });
        } else if let Some(max) = self.max.filter(|max| value > *max) {
            validity.add(ValidityClass::Invalid, ReasonKind::AboveExpected { figure, value, max });
        }
    }
}

/// A bound that a scenario sets to a quantile of a latency.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyBound {
    /// The metric, as in [`crate::RunRecord::latency`].
    pub metric: String,
    /// Between 0 and 1.
    pub quantile: f64,
    /// Not below.
    pub min_ms: Option<f64>,
    /// Not above.
    pub max_ms: Option<f64>,
}

impl LatencyBound {
    /// Whether a latency keeps it.
    pub fn is_met(&self, latency_ns: u64) -> bool {
        let ms = latency_ns as f64 / 1e6;
        self.min_ms.is_none_or(|min| ms >= min) && self.max_ms.is_none_or(|max| ms <= max)
    }

    /// Makes a run suspect whose samples are too few to tell whether the bound is met. A missed
    /// bound is the relay's failure, not the run's.
    pub fn judge(&self, latency: Option<&Latency>, validity: &mut Validity) {
        let known = latency.and_then(|latency| latency.quantile_ns(self.quantile).ns());
        if known.is_none() {
            let figure = format!("{}_ms_p{}", self.metric, self.quantile * 100.0);
            validity.add(ValidityClass::Suspect, ReasonKind::TooFew { figure });
        }
    }
}

impl fmt::Display for LatencyBound {
    /// `response_ms_p99<=5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(min) = self.min_ms {
            write!(f, "{min}<=")?;
        }
        write!(f, "{}_ms_p{}", self.metric, self.quantile * 100.0)?;
        self.max_ms.map_or(Ok(()), |max| write!(f, "<={max}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(sum: u64, per: Option<u64>) -> Validity {
        let figure = "deliveries".to_owned();
        let mut validity = Validity::default();
        Expectation { figure, sum, per, min: Some(10.0), max: Some(20.0) }.judge(&mut validity);
        validity
    }

    #[test]
    fn what_was_not_reached_invalidates_and_what_cannot_be_told_is_said() {
        assert_eq!(judged(10, None), Validity::default());
        assert_eq!(judged(40, Some(2)), Validity::default());
        let few = judged(18, Some(2));
        assert_eq!(few.class, ValidityClass::Invalid);
        assert_eq!(few.to_string(), "deliveries is 9.0, expected at least 10");
        assert_eq!(judged(21, None).to_string(), "deliveries is 21.0, expected at most 20");
        assert_eq!(judged(5, Some(0)).class, ValidityClass::Suspect);
    }

    #[test]
    fn a_latency_out_of_bounds_is_the_relays_failure_and_too_few_samples_are_said() {
        let bound =
            LatencyBound { metric: "response".to_owned(), quantile: 0.99, min_ms: None, max_ms: Some(5.0) };
        let mut slow = Latency::new();
        (0..10_000).for_each(|_| slow.record(6_000_000));
        let mut validity = Validity::default();
        bound.judge(Some(&slow), &mut validity);
        assert_eq!(validity, Validity::default());
        for none in [None, Some(&Latency::new())] {
            let mut validity = Validity::default();
            bound.judge(none, &mut validity);
            let says = "response_ms_p99 is expected, but there are too few values to tell";
            assert_eq!((validity.class, validity.to_string()), (ValidityClass::Suspect, says.to_owned()));
        }
    }
}
