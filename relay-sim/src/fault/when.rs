//! When a fault acts: on which connections and messages, from which time on, how often.

use std::{ops::RangeInclusive, str::FromStr, time::Duration};

use super::duration;

/// The keys behind a fault.
pub(super) const KEYS: [&str; 6] = ["connection", "message", "after", "for", "probability", "seed"];

/// Their values. Without any, a fault acts always.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct When {
    pub(super) connection: RangeInclusive<u64>,
    pub(super) message: RangeInclusive<u64>,
    pub(super) after: Duration,
    /// How long, from `after` on.
    pub(super) lasts: Duration,
    pub(super) rate: Rate,
    pub(super) seed: u64,
}

impl Default for When {
    fn default() -> Self {
        let all = 1..=u64::MAX;
        let (after, lasts) = (Duration::ZERO, Duration::MAX);
        When { connection: all.clone(), message: all, after, lasts, rate: Rate::ALL, seed: 1 }
    }
}

impl When {
    /// Takes `KEY=VALUE`.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        const NUMBERS: &str = "number such as 2, 2-5 or 2-";
        const TIME: &str = "time such as 500ms or 3s";
        let (read, expected) = match key {
            "connection" => (range(value).map(|range| self.connection = range), NUMBERS),
            "message" => (range(value).map(|range| self.message = range), NUMBERS),
            "after" => (duration(value).map(|after| self.after = after), TIME),
            "for" => (duration(value).map(|lasts| self.lasts = lasts), TIME),
            "probability" => (value.parse().ok().map(|rate| self.rate = rate), "share such as 10% or 0.1"),
            "seed" => (value.parse().ok().map(|seed| self.seed = seed), "whole number"),
            _ => return Err(format!("{key:?} is no key; known: {}", KEYS.join(", "))),
        };
        read.ok_or_else(|| format!("{key}={value} is no {expected}"))
    }

    /// Whether it may act `elapsed` after the faults began to.
    pub(super) fn is_now(&self, elapsed: Duration) -> bool {
        elapsed.checked_sub(self.after).is_some_and(|since| since < self.lasts)
    }

    /// Whether it may act on the `message`th of the `connection`th connection, from 1.
    pub(super) fn is_here(&self, connection: u64, message: u64) -> bool {
        self.connection.contains(&connection) && self.message.contains(&message)
    }
}

/// Reads `2`, `2-5` or `2-`, from 1 on.
fn range(text: &str) -> Option<RangeInclusive<u64>> {
    let number = |text: &str| text.parse::<u64>().ok().filter(|number| *number > 0);
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let first = number(first)?;
    let last = if last.is_empty() { u64::MAX } else { number(last)? };
    (first <= last).then_some(first..=last)
}

/// A share in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rate(u32);

impl Rate {
    pub(super) const ALL: Rate = Rate(1_000_000);

    /// Whether a number that looks random falls into it.
    pub(super) fn takes(self, drawn: u64) -> bool {
        drawn % 1_000_000 < self.0.into()
    }
}

const MILLION: f64 = 1e6;

impl FromStr for Rate {
    type Err = ();

    /// Reads `1%` or `0.01`: above 0, and at most 1.
    fn from_str(text: &str) -> Result<Rate, ()> {
        let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 0.01));
        if !number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Err(());
        }
        let millionths = (number.parse::<f64>().map_err(|_| ())? * unit * MILLION).round();
        if !(1.0..=MILLION).contains(&millionths) {
            return Err(());
        }
        Ok(Rate(measure::whole(millionths)))
    }
}
