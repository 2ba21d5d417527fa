//! A figure of a cell as data, and its ratio to JSON.

use serde::Serialize;

/// A figure of a cell.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Figure {
    /// In the unit of its column.
    pub(crate) value: f64,
    /// As tables show it.
    pub(crate) shown: String,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(crate) ratio: Option<BesideJson>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) at_least: bool,
    /// Why it compares with nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) why: Option<String>,
    /// What is divided, and what divides it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sums: Option<[f64; 2]>,
}

/// A figure ÷ that of JSON without compression.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct BesideJson {
    pub(crate) ratio: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) low: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) high: Option<f64>,
    /// As tables show it, with its interval.
    pub(crate) beside_json: String,
    /// Whether the interval leaves out 1 and that of JSON against itself.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    differs: bool,
}

impl BesideJson {
    pub(crate) fn new(ratio: f64, interval: Option<(f64, f64)>, beside_json: String) -> BesideJson {
        let (low, high) = interval.unzip();
        BesideJson { ratio, low, high, beside_json, differs: false }
    }

    /// With whether it differs from JSON beyond what JSON differs from itself.
    pub(crate) fn judged(self, control: Option<&BesideJson>) -> BesideJson {
        let interval = |one: &BesideJson| one.low.zip(one.high);
        let (least, most) =
            control.and_then(interval).map_or((1.0, 1.0), |(low, high)| (low.min(1.0), high.max(1.0)));
        BesideJson { differs: interval(&self).is_some_and(|(low, high)| low > most || high < least), ..self }
    }
}
