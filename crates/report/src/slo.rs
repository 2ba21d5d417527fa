//! Service level objectives: `p99<10ms, lost=0, achieved>=0.99`.

use std::{fmt, str::FromStr};

use measure::RunRecord;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{merged::Merged, metric::Metric};

/// Bounds, all of which must hold.
#[derive(Debug, Clone, Default)]
pub struct Slo(Vec<Bound>);

type Holds = fn(&f64, &f64) -> bool;

/// One bound.
#[derive(Debug, Clone)]
struct Bound {
    figure: Figure,
    /// Of a value and the bound's.
    holds: Holds,
    /// In the base unit: nanoseconds, bytes, a count, a share.
    value: f64,
    /// As it was written.
    text: String,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Figure {
    /// A quantile of the load's latency.
    Quantile(f64),
    /// Expected deliveries that never came.
    Lost,
    /// Publishes that the relay refused.
    Rejected,
    /// The block's seconds ÷ the time until the last answer: 1 when the relay keeps up.
    Achieved,
    /// A column of the tables.
    Of(Metric),
}

/// One bound judged in one cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SloResult {
    /// The cell's name.
    pub cell: String,
    /// The bound as it was written.
    pub bound: String,
    /// The measured value, in nanoseconds, bytes, events or as a share; absent when there were too
    /// few samples.
    pub value: Option<f64>,
    /// Whether it holds; false without a value.
    pub met: bool,
}

/// Measured blocks of one cell.
#[derive(Debug, Clone)]
pub struct Measured {
    merged: Merged,
    lost: u64,
    planned_ns: f64,
    taken_ns: f64,
    /// Whether latencies and the achieved rate are taken without what the generator was late.
    without_lag: bool,
}

impl Measured {
    /// Blocks that each had `seconds` of work planned.
    pub fn from_records(records: &[&RunRecord], seconds: u32) -> Measured {
        let planned = f64::from(seconds) * 1e9;
        let merged = Merged::from_records(records.iter().copied());
        Measured {
            lost: merged.counts.deliveries_lost,
            merged,
            planned_ns: planned * records.len() as f64,
            taken_ns: records.iter().map(|record| planned.max(record.elapsed_ns as f64)).sum(),
            without_lag: false,
        }
    }

    /// Replaces the lost deliveries, so that blocks outside the tables count.
    pub(crate) fn with_lost(self, lost: u64) -> Measured {
        Measured { lost, ..self }
    }

    /// The blocks as if the generator had been punctual: each quantile less the send lag's.
    pub fn without_lag(self) -> Measured {
        Measured { without_lag: true, ..self }
    }

    /// The blocks together.
    pub fn merged(&self) -> &Merged {
        &self.merged
    }

    pub fn achieved(&self) -> Option<f64> {
        let taken_ns = (self.taken_ns - self.lag_ns(0.99) as f64).max(self.planned_ns);
        (taken_ns > 0.0).then(|| self.planned_ns / taken_ns)
    }

    /// How late the generator sent, in nanoseconds, where that is no fault of the relay.
    fn lag_ns(&self, q: f64) -> u64 {
        if self.without_lag { self.merged.quantile("send_lag", q).ns().unwrap_or(0) } else { 0 }
    }

    /// The value of a figure in its base unit: nanoseconds, bytes, a count or a share.
    fn figure(&self, figure: Figure, latency: &str) -> Option<f64> {
        match figure {
            Figure::Quantile(q) => {
                let ns = self.merged.quantile(latency, q).ns()?;
                Some(ns.saturating_sub(self.lag_ns(q)) as f64)
            }
            Figure::Lost => Some(self.lost as f64),
            Figure::Rejected => Some(self.merged.counts.rejected as f64),
            Figure::Achieved => self.achieved(),
            Figure::Of(metric) => metric.value(&self.merged, latency),
        }
    }
}

impl Slo {
    /// Judges a cell; `latency` names what its quantiles are of.
    pub fn judge(&self, cell: &str, measured: &Measured, latency: &str) -> Vec<SloResult> {
        let judge = |bound: &Bound| {
            let value = measured.figure(bound.figure, latency);
            SloResult {
                cell: cell.to_owned(),
                bound: bound.text.clone(),
                value,
                met: value.is_some_and(|value| (bound.holds)(&value, &bound.value)),
            }
        };
        self.0.iter().map(judge).collect()
    }

    /// Why probes of `seconds`, which may last `longest`, can miss the bound on the achieved rate
    /// by answers within the bound on latency: it lets them end sooner.
    pub fn contradiction(&self, seconds: u32, longest: u32) -> Option<String> {
        let highest = |is_such: fn(&Bound) -> bool| {
            let bounds = self.0.iter().filter(|bound| is_such(bound));
            bounds.max_by(|one, other| one.value.total_cmp(&other.value))
        };
        let late = highest(|bound| matches!(bound.figure, Figure::Quantile(_)) && bound.is_upper())?;
        let achieved = highest(|bound| bound.figure == Figure::Achieved && !bound.is_upper())?;
        let tail = (1.0 / achieved.value - 1.0).max(0.0);
        let allowed_ns = tail * f64::from(seconds) * 1e9;
        let enough = (late.value / 1e9 / tail).ceil();
        let is_possible = enough <= f64::from(longest);
        let longer = if is_possible { format!("take --probe-seconds {enough}, or ") } else { String::new() };
        (late.value > allowed_ns).then(|| {
            format!(
                "{achieved} lets a probe of {seconds} s end {:.1} ms late, and {late} an answer come {:.1} ms late: \
                 {longer}leave {achieved} out",
                allowed_ns / 1e6,
                late.value / 1e6,
                achieved = achieved.text,
                late = late.text,
            )
        })
    }
}

impl Bound {
    /// Whether it is kept by whatever is small enough.
    fn is_upper(&self) -> bool {
        (self.holds)(&0.0, &self.value)
    }
}

impl fmt::Display for Slo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.iter().map(|bound| bound.text.as_str()).collect::<Vec<_>>().join(", "))
    }
}

impl FromStr for Slo {
    type Err = String;

    fn from_str(text: &str) -> Result<Slo, String> {
        let unknown = |part: &str| {
            format!(
                "{part:?} is no bound; expected a figure (p50 p90 p99 p99.9 relay_cpu in ns, us, ms or s; lost, rejected, \
                 achieved, wire_bytes without a unit), one of < <= = >= >, and a number, as in p99<10ms, lost=0, \
                 achieved>=0.99"
            )
        };
        let bound = |part: &str| bound(part.trim()).ok_or_else(|| unknown(part.trim()));
        text.split(',').map(bound).collect::<Result<_, _>>().map(Slo)
    }
}

fn bound(text: &str) -> Option<Bound> {
    let at = text.find(['<', '=', '>'])?;
    let (name, rest) = text.split_at(at);
    let operators: [(&str, Holds); 5] =
        [("<=", f64::le), (">=", f64::ge), ("<", f64::lt), (">", f64::gt), ("=", f64::eq)];
    let (operator, holds) = operators.into_iter().find(|(operator, _)| rest.starts_with(operator))?;
    let number = rest[operator.len()..].trim();
    let (figure, time) = match name.trim() {
        "p50" => (Figure::Quantile(0.5), true),
        "p90" => (Figure::Quantile(0.9), true),
        "p99" => (Figure::Quantile(0.99), true),
        "p99.9" => (Figure::Quantile(0.999), true),
        "relay_cpu" => (Figure::Of(Metric::RelayCpu), true),
        "lost" => (Figure::Lost, false),
        "rejected" => (Figure::Rejected, false),
        "achieved" => (Figure::Achieved, false),
        "wire_bytes" => (Figure::Of(Metric::WireBytes), false),
        _ => return None,
    };
    let unit_at = number.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(number.len());
    let (digits, unit) = number.split_at(unit_at);
    let factor = match (time, unit) {
        (true, "ns") | (false, "") => 1.0,
        (true, "us") => 1e3,
        (true, "ms") => 1e6,
        (true, "s") => 1e9,
        _ => return None,
    };
    let value = digits.trim().parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0)?;
    Some(Bound { figure, holds, value: value * factor, text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read_and_written() {
        let text = "p99<10ms, lost=0, achieved>=0.99";
        let slo: Slo = text.parse().unwrap();
        assert_eq!(slo.to_string(), text);
        assert_eq!(slo.0[0].figure, Figure::Quantile(0.99));
        assert!((slo.0[0].value - 1e7).abs() < 1.0);
        for bad in [
            "",
            "p99",
            "p99<",
            "p99<10",
            "p95<1ms",
            "lost=0ms",
            "p99<-1ms",
            "p99<1e400ms",
            "p99=>1ms",
            "lost<NaN",
        ] {
            let error = bad.parse::<Slo>().unwrap_err();
            assert!(error.contains("as in p99<10ms, lost=0"), "{error}");
        }
    }

    #[test]
    fn a_bound_holds_on_its_own_side() {
        for (text, holds) in [
            ("lost<2", [true, false, false]),
            ("lost<=2", [true, true, false]),
            ("lost=2", [false, true, false]),
            ("lost>=2", [false, true, true]),
            ("lost>2", [false, false, true]),
        ] {
            let bound = bound(text).unwrap();
            assert_eq!([1.0, 2.0, 3.0].map(|value| (bound.holds)(&value, &bound.value)), holds, "{text}");
        }
    }

    #[test]
    fn answers_in_time_may_not_miss_the_achieved_rate() {
        let contradiction = |text: &str, seconds| text.parse::<Slo>().unwrap().contradiction(seconds, 60);
        assert_eq!(contradiction("p99<10ms, lost=0, achieved>=0.99", 1), None);
        assert_eq!(contradiction("p99<100ms, lost=0", 1), None);
        assert_eq!(contradiction("p99<100ms, achieved<=0.5", 1), None);
        let found = contradiction("p50<1ms, p99<100ms, achieved>=0.99", 3).unwrap();
        let expected = "achieved>=0.99 lets a probe of 3 s end 30.3 ms late, and p99<100ms an answer come \
                        100.0 ms late: take --probe-seconds 10, or leave achieved>=0.99 out";
        assert_eq!(found, expected);
        assert_eq!(contradiction("p99<100ms, achieved>=0.99", 10), None);
        assert!(
            contradiction("p99<1ms, achieved>=1", 60)
                .unwrap()
                .ends_with("1.0 ms late: leave achieved>=1 out")
        );
    }

    #[test]
    fn what_was_not_measured_is_not_met() {
        let slo: Slo = "p99<10ms,lost=0".parse().unwrap();
        let nothing = Measured::from_records(&[], 1);
        let found = slo.judge("json+none", &nothing, "response");
        assert_eq!((found[0].value, found[0].met), (None, false));
        assert!(found[1].met);
    }
}
