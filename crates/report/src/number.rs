//! Numbers as a reader wants them: three digits that matter, units in the heading.

use std::fmt;

use crate::statistics::stats;

/// Three significant digits, thousands grouped: `0.123`, `1.23`, `12.3`, `123`, `12,345`.
pub(crate) fn three(value: f64) -> String {
    let decimals = match value {
        value if value < 0.9995 => 3,
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    if decimals > 0 { text } else { grouped(&text) }
}

/// A tick of an axis: no more digits than it needs, thousands as k.
pub(crate) fn short(value: f64) -> String {
    let (value, unit) = if value >= 1e6 {
        (value / 1e6, "M")
    } else if value >= 10_000.0 {
        (value / 1e3, "k")
    } else {
        (value, "")
    };
    let decimals = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        3
    };
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{unit}")
}

/// Three significant digits with a unit of thousands: `381k`, `17.8k`, `1.23M`.
pub(crate) fn scaled(value: f64) -> String {
    match value {
        value if value >= 999_500.0 => three(value / 1e6) + "M",
        value if value >= 9_995.0 => three(value / 1e3) + "k",
        value => three(value),
    }
}

/// A ratio: `×0.63`, `×12.5`.
pub(crate) fn ratio(value: f64) -> String {
    let decimals = if value < 9.995 { 2 } else { 1 };
    format!("×{value:.decimals$}")
}

/// A figure ÷ another one, with its 95 % interval where it has one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) value: f64,
    pub(crate) interval: Option<(f64, f64)>,
}

impl Ratio {
    /// The estimate over rounds, by logarithms of their ratios; `None` without any.
    pub(crate) fn over_rounds(logs: &[f64]) -> Option<Ratio> {
        let interval = stats::signed_rank_interval(logs).map(|(low, high)| (low.exp(), high.exp()));
        Some(Ratio { value: stats::hodges_lehmann(logs)?.exp(), interval })
    }

    /// Whether its interval leaves out equality and the interval of JSON against itself.
    pub(crate) fn differs(self, control: Option<Ratio>) -> bool {
        let (least, most) = control
            .and_then(|control| control.interval)
            .map_or((1.0, 1.0), |(low, high)| (low.min(1.0), high.max(1.0)));
        self.interval.is_some_and(|(low, high)| low > most || high < least)
    }

    /// `×0.90±.02`: the larger half of the interval, without its zero.
    pub(crate) fn with_reach(self) -> String {
        let text = ratio(self.value);
        let Some((low, high)) = self.interval else { return text };
        let decimals = if self.value < 9.995 { 2 } else { 1 };
        let reach = format!("{:.decimals$}", (high - self.value).max(self.value - low));
        format!("{text}±{}", reach.strip_prefix('0').unwrap_or(&reach))
    }
}

impl fmt::Display for Ratio {
    /// `×0.63 [0.60, 0.66]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&ratio(self.value))?;
        self.interval.map_or(Ok(()), |(low, high)| write!(f, " [{low:.2}, {high:.2}]"))
    }
}

/// Groups a whole number's digits by thousands.
pub fn grouped(digits: &str) -> String {
    let mut text = String::new();
    for (i, digit) in digits.char_indices() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of rounds in words.
pub fn rounds(count: u32) -> String {
    format!("{count} round{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_that_matter() {
        for (value, text) in [
            (0.0, "0.000"),
            (0.1234, "0.123"),
            (0.99951, "1.00"),
            (9.996, "10.0"),
            (12.34, "12.3"),
            (99.96, "100"),
            (999.6, "1,000"),
            (12_345.6, "12,346"),
            (1_234_567.0, "1,234,567"),
        ] {
            assert_eq!(three(value), text);
        }
        for (value, text) in [
            (0.05, "0.05"),
            (1.0, "1"),
            (1.2, "1.2"),
            (50.0, "50"),
            (9_000.0, "9000"),
            (20_000.0, "20k"),
            (1e6, "1M"),
        ] {
            assert_eq!(short(value), text);
        }
        for (value, text) in
            [(17_830.0, "17.8k"), (381_000.0, "381k"), (999_600.0, "1.00M"), (9_990.0, "9,990")]
        {
            assert_eq!(scaled(value), text);
        }
        assert_eq!((ratio(0.631), ratio(12.54)), ("×0.63".to_owned(), "×12.5".to_owned()));
    }
}
