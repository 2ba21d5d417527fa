//! Finding of one test, and how much is tested.

use std::{path::PathBuf, time::Instant};

use clap::Args;
use report::result::{MAX_ROUNDS, Oracle};

#[derive(Debug, Default, Args)]
pub struct Options {
    /// Only the tests that take seconds, and the shorter form of each
    #[arg(long)]
    pub quick: bool,
    /// Only these tests, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "NAMES", value_parser = super::names())]
    pub only: Vec<String>,
    /// Write the result as JSON, for `compare run --selftest FILE`
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// How often the trials (a-a, plus-10) are repeated
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeats: u32,
    /// Rounds of a trial
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(6..=i64::from(MAX_ROUNDS)))]
    pub rounds: u32,
    /// Seconds of a trial's block
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub seconds: u32,
}

/// An oracle's result before it is named.
#[derive(Debug, Default)]
pub(super) struct Finding {
    pub(super) done: String,
    pub(super) limit: String,
    pub(super) measured: String,
    pub(super) values: Vec<(&'static str, f64)>,
    pub(super) passed: bool,
    /// Why nothing was tested: neither passed nor failed.
    pub(super) untested: Option<String>,
}

impl Finding {
    pub(super) fn named(self, name: &str, began: Instant) -> Oracle {
        Oracle {
            name: name.to_owned(),
            done: self.done,
            limit: self.limit,
            measured: self.measured,
            // JSON has no NaN, so values that were not measured are absent.
            values: (self.values.into_iter().filter(|(_, value)| value.is_finite()))
                .map(|(name, value)| (name.to_owned(), value))
                .collect(),
            passed: self.passed,
            seconds: began.elapsed().as_secs_f64(),
        }
    }
}
