//! Traces of radio links in the format of mahimahi's `mm-link`
//! (<https://github.com/ravinet/mahimahi>): each line is a millisecond at which the link may carry
//! 1,500 bytes, and the trace begins again after its last line.

use std::{fmt, str::FromStr};

/// The largest IP packet that crosses a link, and the size of a trace's opportunity, in bytes.
pub const MTU: usize = 1_500;

/// An hour of a link that carries 12 Mbit/s: more is no trace of a radio link.
const MOST_LINES: usize = 3_600_000;

/// The opportunities of one period.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// In milliseconds, in ascending order.
    at_ms: Vec<u64>,
}

/// Why a text is no trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct TraceError {
    line: usize,
    why: &'static str,
}

impl FromStr for Trace {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Trace, TraceError> {
        let mut at_ms = Vec::new();
        let mut last = 0;
        for (line, text) in (1..).zip(text.lines()) {
            let bad = |why| TraceError { line, why };
            let at: u64 = text.trim().parse().map_err(|_| bad("expected a whole number of milliseconds"))?;
            if at < last {
                return Err(bad("earlier than the line before"));
            }
            // A day: sums of periods then stay far below the range of nanoseconds.
            if at > 86_400_000 || line > MOST_LINES {
                return Err(bad("a trace has at most a day and 3,600,000 lines"));
            }
            last = at;
            at_ms.push(at);
        }
        if last == 0 {
            return Err(TraceError { line: at_ms.len().max(1), why: "the trace must end after 0 ms" });
        }
        Ok(Trace { at_ms })
    }
}

impl Trace {
    /// Bits a second over a period.
    pub(crate) fn mean_bits_per_s(&self) -> u64 {
        self.at_ms.len() as u64 * MTU as u64 * 8_000 / self.period_ms()
    }

    /// When opportunity `n`, counted over all periods, comes.
    pub(crate) fn at_ns(&self, n: u64) -> u64 {
        let len = self.at_ms.len() as u64;
        let place = usize::try_from(n % len).expect("the remainder is the index of a line");
        (n / len * self.period_ms() + self.at_ms[place]) * 1_000_000
    }

    /// The first opportunity at this instant or later.
    pub(crate) fn first_from(&self, ns: u64) -> u64 {
        let period_ns = self.period_ms() * 1_000_000;
        // A period ends with its last line: that instant is not yet the next period's.
        let periods = ns.saturating_sub(1) / period_ns;
        let within = ns - periods * period_ns;
        let place = self.at_ms.partition_point(|at| at * 1_000_000 < within) as u64;
        periods * self.at_ms.len() as u64 + place
    }

    fn period_ms(&self) -> u64 {
        self.at_ms.last().copied().unwrap_or(1)
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} opportunities in {} ms", self.at_ms.len(), self.period_ms())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_begins_again_after_its_last_line() {
        let trace: Trace = "1\n1\n4\n".parse().unwrap();
        let at: Vec<u64> = (0..7).map(|n| trace.at_ns(n) / 1_000_000).collect();
        assert_eq!(at, [1, 1, 4, 5, 5, 8, 9]);
        assert_eq!(trace.mean_bits_per_s(), 9_000_000);
        let first = |ms: u64| trace.first_from(ms * 1_000_000);
        assert_eq!((0..10).map(first).collect::<Vec<_>>(), [0, 0, 2, 2, 2, 3, 5, 5, 5, 6]);
    }

    #[test]
    fn the_first_opportunity_is_the_earliest_that_is_not_past() {
        for text in ["3", "0\n3", "0\n0\n1\n1\n3\n3", "2\n2\n2"] {
            let trace: Trace = text.parse().unwrap();
            for ms in 0..20 {
                let ns = ms * 1_000_000;
                let slow = (0..).find(|n| trace.at_ns(*n) >= ns).unwrap();
                assert_eq!(trace.first_from(ns), slow, "{text:?} at {ms}");
                assert_eq!(trace.first_from(ns + 1), (0..).find(|n| trace.at_ns(*n) > ns).unwrap());
            }
        }
    }

    #[test]
    fn what_is_no_trace_is_refused_by_its_line() {
        for (text, says) in [
            ("", "line 1: the trace must end after 0 ms"),
            ("0\n0", "line 2: the trace must end"),
            ("1\nx", "line 2: expected a whole number"),
            ("5\n4", "line 2: earlier"),
            ("-1", "line 1: expected"),
            ("86400001", "line 1: a trace has at most"),
        ] {
            let error = text.parse::<Trace>().unwrap_err().to_string();
            assert!(error.contains(says), "{text:?}: {error}");
        }
    }
}
