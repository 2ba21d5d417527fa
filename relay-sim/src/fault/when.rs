//! When a fault acts: on which connections and messages, from which time on, how often.

use std::{str::FromStr, time::Duration};

use super::duration;

/// The keys behind a fault. Without any, it acts always.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct When {
    pub(super) connection: Option<Range>,
    pub(super) message: Option<Range>,
    pub(super) after: Option<Duration>,
    /// How long, from `after` on.
    pub(super) lasts: Option<Duration>,
    pub(super) rate: Rate,
    pub(super) seed: u64,
}

impl Default for When {
    fn default() -> Self {
        When { connection: None, message: None, after: None, lasts: None, rate: Rate::ALL, seed: 1 }
    }
}

impl When {
    /// Takes `KEY=VALUE`.
    pub(super) fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let bad = |expected| move || format!("{key}={value} is no {expected}");
        match key {
            "connection" => {
                self.connection = Some(value.parse().map_err(|()| bad("number such as 2, 2-5 or 2-")())?);
            }
            "message" => {
                self.message = Some(value.parse().map_err(|()| bad("number such as 2, 2-5 or 2-")())?);
            }
            "after" => self.after = Some(duration(value).ok_or_else(bad("time such as 500ms or 3s"))?),
            "for" => self.lasts = Some(duration(value).ok_or_else(bad("time such as 500ms or 3s"))?),
            "probability" => {
                self.rate = value.parse().map_err(|()| bad("share such as 10% or 0.1")())?;
            }
            "seed" => self.seed = value.parse().map_err(|_| bad("whole number")())?,
            _ => {
                return Err(format!(
                    "{key:?} is no key; known: connection, message, after, for, probability, seed"
                ));
            }
        }
        Ok(())
    }

    /// Whether it may act `elapsed` after the faults began to.
    pub(super) fn is_now(&self, elapsed: Duration) -> bool {
        let after = self.after.unwrap_or_default();
        elapsed >= after && self.lasts.is_none_or(|lasts| elapsed < after + lasts)
    }

    /// Whether it may act on the `message`th of the `connection`th connection, from 1.
    pub(super) fn is_here(&self, connection: u64, message: u64) -> bool {
        self.connection.is_none_or(|range| range.has(connection))
            && self.message.is_none_or(|range| range.has(message))
    }
}

/// Numbers from one to another, both among them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    first: u64,
    last: u64,
}

impl Range {
    fn has(self, number: u64) -> bool {
        (self.first..=self.last).contains(&number)
    }
}

impl FromStr for Range {
    type Err = ();

    /// Reads `2`, `2-5` or `2-`, from 1 on.
    fn from_str(text: &str) -> Result<Range, ()> {
        let number = |text: &str| text.parse::<u64>().ok().filter(|number| *number > 0).ok_or(());
        let (first, last) = match text.split_once('-') {
            None => (number(text)?, number(text)?),
            Some((first, "")) => (number(first)?, u64::MAX),
            Some((first, last)) => (number(first)?, number(last)?),
        };
        if first > last { Err(()) } else { Ok(Range { first, last }) }
    }
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
