//! Durations in nanoseconds as HDR histograms (<https://github.com/HdrHistogram/HdrHistogram>):
//! merging them keeps every quantile, a mean of quantiles does not. [`crate::Throughput`] keeps
//! rates in the same histograms, with units a second in place of nanoseconds.

use std::{borrow::Cow, collections::BTreeMap, fmt, io::Read};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use flate2::read::ZlibDecoder;
use hdrhistogram::{
    Histogram,
    serialization::{Deserializer, Serializer, V2DeflateSerializer},
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer as SerdeDeserializer, Serialize, de};

use crate::{AddUp, whole};

/// One minute: every timeout of a run is shorter, so a longer duration is a fault and counts as
/// clipped.
const HIGHEST_NS: u64 = 60_000_000_000;

/// Three decimal digits (a quantile is off by at most 0.1 %) in 216 KiB.
const SIGNIFICANT_DIGITS: u8 = 3;

/// From this many samples above it a quantile is printed as it is: p99 needs 10,000 samples in all.
const SAMPLES_ABOVE_EXACT: u64 = 100;

/// From this many samples above it a quantile is printed in brackets.
const SAMPLES_ABOVE_BRACKETED: u64 = 10;

/// Histograms of a record: eleven metrics, and these again for each named population. A text of a
/// megabyte could otherwise claim gigabytes.
pub(crate) const MOST_METRICS: usize = 1_024;

/// An inflated histogram with the bounds of [`Latency`] has at most 27,648 counts of at most 9
/// bytes: a quarter of a megabyte. A file that inflates to more than this is no histogram of this
/// program.
const MAX_INFLATED_BYTES: u64 = 512 * 1024;

/// A histogram of durations: 1 ns to 60 s, three significant digits, the same bounds everywhere so
/// that any two merge. One that was read from a file takes a few KB, until something is recorded.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "StoredLatency", into = "StoredLatency")]
#[schemars(with = "StoredLatency")]
pub struct Latency {
    samples: Samples,
    clipped: u64,
}

#[derive(Clone)]
enum Samples {
    /// With room for every value.
    Open(Histogram<u64>),
    /// As they came from a file: a V2 histogram that was read once, and how many there are.
    Read(Box<[u8]>, u64),
}

/// A quantile together with how far the sample size supports it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Quantile {
    /// Nanoseconds; at least 100 samples lie above.
    Exact(u64),
    /// Nanoseconds; 10 to 99 samples lie above, so the value is an indication and is printed in
    /// brackets.
    Bracketed(u64),
    /// Fewer than 10 samples lie above: no number would mean anything.
    #[default]
    Missing,
}

impl Quantile {
    /// The value in nanoseconds, unless it is missing.
    pub fn ns(self) -> Option<u64> {
        match self {
            Quantile::Exact(ns) | Quantile::Bracketed(ns) => Some(ns),
            Quantile::Missing => None,
        }
    }
}

impl Latency {
    /// An empty histogram (216 KiB: keep one a thread, metric and cell, never one a connection).
    pub fn new() -> Latency {
        let histogram = Histogram::new_with_bounds(1, HIGHEST_NS, SIGNIFICANT_DIGITS)
            .expect("1 < 60 s and 3 digits are bounds the library accepts");
        Latency { samples: Samples::Open(histogram), clipped: 0 }
    }

    /// Adds a duration in nanoseconds. More than 60 s is recorded as 60 s and counted by
    /// [`Latency::clipped`].
    pub fn record(&mut self, ns: u64) {
        if ns > HIGHEST_NS {
            self.clipped += 1;
        }
        self.open().saturating_record(ns.min(HIGHEST_NS));
    }

    /// Adds every sample of another histogram.
    pub fn merge(&mut self, other: &Latency) {
        if self.is_empty() {
            self.samples = other.samples.clone();
        } else {
            self.open().add(&*other.histogram()).expect("every Latency has the same bounds");
        }
        self.clipped = self.clipped.saturating_add(other.clipped);
    }

    /// Samples, clipped ones included.
    pub fn len(&self) -> u64 {
        match &self.samples {
            Samples::Open(histogram) => histogram.len(),
            Samples::Read(_, samples) => *samples,
        }
    }

    /// True when nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Samples that were longer than 60 s. A run with any of them is invalid.
    pub fn clipped(&self) -> u64 {
        self.clipped
    }

    /// The shortest sample in nanoseconds (to three digits, rounded down), 0 when there is none.
    pub fn min_ns(&self) -> u64 {
        self.histogram().min()
    }

    /// The longest sample in nanoseconds (to three digits), 0 when there is none.
    pub fn max_ns(&self) -> u64 {
        self.histogram().max()
    }

    /// The value that the share `q` (0.5 is the median) of the samples does not exceed, as far as
    /// the samples beyond it support one: those above, or below of a lower quantile.
    pub fn quantile_ns(&self, q: f64) -> Quantile {
        let value = || self.histogram().value_at_quantile(q);
        match samples_above(self.len(), q.max(1.0 - q)) {
            SAMPLES_ABOVE_EXACT.. => Quantile::Exact(value()),
            SAMPLES_ABOVE_BRACKETED.. => Quantile::Bracketed(value()),
            _ => Quantile::Missing,
        }
    }

    /// The histogram itself, for the log writers.
    pub(crate) fn histogram(&self) -> Cow<'_, Histogram<u64>> {
        match &self.samples {
            Samples::Open(histogram) => Cow::Borrowed(histogram),
            Samples::Read(v2, _) => Cow::Owned(inflated(v2).expect("it was read before")),
        }
    }

    /// The histogram with room for every value.
    fn open(&mut self) -> &mut Histogram<u64> {
        if matches!(self.samples, Samples::Read(..)) {
            self.samples = Samples::Open(self.histogram().into_owned());
        }
        let Samples::Open(histogram) = &mut self.samples else { unreachable!("it was opened above") };
        histogram
    }

    /// Encodes as V2 DEFLATE in base64, which the Java and Python readers of HdrHistogram accept.
    pub(crate) fn to_base64(&self) -> String {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&*self.histogram(), &mut bytes)
            .expect("writing to a vector does not fail and our bounds fit the format");
        BASE64.encode(bytes)
    }

    /// Reads what [`Latency::to_base64`] wrote. The text may come from anyone's result file; an error
    /// says what is wrong with it.
    fn from_base64(text: &str, clipped: u64) -> Result<Latency, String> {
        let bytes = BASE64.decode(text).map_err(|error| format!("a histogram is not base64: {error}"))?;
        // The outer layer is a cookie and a length (4 bytes each), then zlib. It is undone here
        // because the library would reserve whatever the inner header claims.
        let zlib = bytes.get(8..).ok_or(CUT)?;
        let mut payload = Vec::new();
        ZlibDecoder::new(zlib)
            .take(MAX_INFLATED_BYTES + 1)
            .read_to_end(&mut payload)
            .map_err(|error| format!("{UNREADABLE}: {error}"))?;
        check_payload_header(&payload)?;
        let samples = inflated(&payload)?.len();
        Ok(Latency { samples: Samples::Read(payload.into(), samples), clipped })
    }
}

const CUT: &str = "a histogram ends inside its header";
const UNREADABLE: &str = "not a readable V2 DEFLATE histogram";

/// Refuses a V2 header that claims more than the payload holds or other bounds than [`Latency`]'s.
/// Layout: cookie, payload length, normalizing offset, digits (4 bytes each), lowest, highest (8
/// each), ratio (8); all big-endian.
fn check_payload_header(payload: &[u8]) -> Result<(), String> {
    let field = |from: usize, to: usize| {
        let bytes = payload.get(from..to).ok_or(CUT)?;
        Ok::<_, String>(bytes.iter().fold(0_u64, |value, byte| value << 8 | u64::from(*byte)))
    };
    let claimed = field(4, 8)?;
    let found = payload.len().saturating_sub(40) as u64;
    if claimed != found {
        return Err(format!("{UNREADABLE}: the header claims {claimed} bytes, {found} follow"));
    }
    let (digits, lowest, highest) = (field(12, 16)?, field(16, 24)?, field(24, 32)?);
    if (digits, lowest, highest) != (u64::from(SIGNIFICANT_DIGITS), 1, HIGHEST_NS) {
        return Err(format!(
            "a histogram from {lowest} to {highest} with {digits} digits; expected 1 to {HIGHEST_NS} ns with \
             {SIGNIFICANT_DIGITS}"
        ));
    }
    Ok(())
}

/// Samples above the quantile. The small addend undoes the rounding of `1 - q`: 1,000,000 × (1 −
/// 0.9999) is 100.
fn samples_above(samples: u64, q: f64) -> u64 {
    whole(samples as f64 * (1.0 - q.clamp(0.0, 1.0)) + 1e-6)
}

/// A V2 histogram without its outer layer.
fn inflated(v2: &[u8]) -> Result<Histogram<u64>, String> {
    Deserializer::new().deserialize(&mut &*v2).map_err(|error| format!("{UNREADABLE}: {error:?}"))
}

impl PartialEq for Latency {
    fn eq(&self, other: &Latency) -> bool {
        self.clipped == other.clipped && self.histogram() == other.histogram()
    }
}

impl AddUp for Latency {
    fn add_up(&mut self, other: &Self) {
        self.merge(other);
    }
}

impl Default for Latency {
    fn default() -> Latency {
        Latency::new()
    }
}

impl fmt::Debug for Latency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (samples, p50_ns) = (self.len(), self.histogram().value_at_quantile(0.5));
        write!(f, "Latency({samples} samples, {} clipped, p50 {p50_ns} ns)", self.clipped)
    }
}

/// Reads the histograms of a record, not more than a record has.
pub(crate) fn by_metric<'de, D: SerdeDeserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Latency>, D::Error> {
    // As text they take no more than their file.
    let stored = BTreeMap::<String, StoredLatency>::deserialize(deserializer)?;
    if stored.len() > MOST_METRICS {
        return Err(de::Error::custom(format!("more than {MOST_METRICS} histograms")));
    }
    let read = |(metric, stored)| Ok((metric, Latency::try_from(stored).map_err(de::Error::custom)?));
    stored.into_iter().map(read).collect()
}

/// How a [`Latency`] stands in a file: the sample count is for human readers and checked on the way
/// in.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Latency")]
struct StoredLatency {
    /// Samples, clipped ones included.
    samples: u64,
    /// Samples beyond 60 s.
    clipped: u64,
    /// The HdrHistogram in V2 DEFLATE form, base64; nanoseconds, in `throughput` units a second.
    v2_deflate: String,
}

impl From<Latency> for StoredLatency {
    fn from(latency: Latency) -> StoredLatency {
        let v2_deflate = latency.to_base64();
        StoredLatency { samples: latency.len(), clipped: latency.clipped, v2_deflate }
    }
}

impl TryFrom<StoredLatency> for Latency {
    type Error = String;

    fn try_from(stored: StoredLatency) -> Result<Latency, String> {
        let latency = Latency::from_base64(&stored.v2_deflate, stored.clipped)?;
        let (held, said) = (latency.len(), stored.samples);
        if held == said {
            Ok(latency)
        } else {
            Err(format!("a histogram holds {held} samples, the file says {said}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uniform(samples: u64) -> Latency {
        let mut latency = Latency::new();
        (1..=samples).for_each(|i| latency.record(i * 1_000));
        latency
    }

    #[test]
    fn a_record_has_not_more_histograms_than_metrics() {
        let read = |count: usize| {
            let metric = |n| (format!("metric.{n}"), serde_json::to_value(Latency::new()).unwrap());
            by_metric(serde_json::Value::Object((0..count).map(metric).collect()))
        };
        assert_eq!(read(300).unwrap().len(), 300);
        let error = read(MOST_METRICS + 1).unwrap_err().to_string();
        assert!(error.contains("more than 1024 histograms"), "{error}");
    }

    #[test]
    fn a_quantile_needs_samples_above_it() {
        for (samples, q, exact, bracketed) in [
            (200, 0.5, true, false),
            (199, 0.5, false, true),
            (19, 0.5, false, false),
            (10_000, 0.99, true, false),
            (9_999, 0.99, false, true),
            (1_000, 0.99, false, true),
            (999, 0.99, false, false),
            (1_000_000, 0.9999, true, false),
        ] {
            let quantile = uniform(samples).quantile_ns(q);
            assert_eq!(matches!(quantile, Quantile::Exact(_)), exact, "{samples} samples, {q}: {quantile:?}");
            assert_eq!(matches!(quantile, Quantile::Bracketed(_)), bracketed, "{samples} samples, {q}");
        }
    }

    #[test]
    fn too_long_is_clipped_and_counted() {
        let mut latency = uniform(5);
        latency.record(HIGHEST_NS);
        assert_eq!(latency.clipped(), 0);
        latency.record(HIGHEST_NS + 1);
        latency.record(u64::MAX);
        assert_eq!((latency.clipped(), latency.len()), (2, 8));
        let mut merged = Latency::new();
        merged.merge(&latency);
        merged.merge(&latency);
        assert_eq!((merged.clipped(), merged.len()), (4, 16));
    }

    #[test]
    fn serde_keeps_every_bucket() {
        let mut latency = uniform(12_345);
        latency.record(u64::MAX);
        latency.record(0);
        for latency in [latency, Latency::new()] {
            let json = serde_json::to_string(&latency).unwrap();
            let back: Latency = serde_json::from_str(&json).unwrap();
            assert_eq!(back, latency);
            assert_eq!(back.to_base64(), latency.to_base64());
        }
    }

    #[test]
    fn damaged_histograms_are_errors() {
        let good = serde_json::to_value(uniform(100)).unwrap();
        let text = good["v2_deflate"].as_str().unwrap();
        let mut foreign = Vec::new();
        let other = Histogram::<u64>::new_with_bounds(1, 1_000_000, 2).unwrap();
        V2DeflateSerializer::new().serialize(&other, &mut foreign).unwrap();
        for (damaged, expected) in [
            ("%%%".to_owned(), "base64"),
            ("AAAA".to_owned(), "ends inside"),
            (text[..text.len() - 12].to_owned(), "histogram"),
            (BASE64.encode(&foreign), "expected 1 to 60000000000"),
        ] {
            let mut value = good.clone();
            value["v2_deflate"] = damaged.into();
            let error = serde_json::from_value::<Latency>(value).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let mut value = good;
        value["samples"] = 99.into();
        let error = serde_json::from_value::<Latency>(value).unwrap_err().to_string();
        assert!(error.contains("holds 100 samples, the file says 99"), "{error}");
    }

    #[test]
    fn a_deflate_bomb_is_refused_in_bounded_memory() {
        use flate2::{Compression, write::ZlibEncoder};
        use std::io::Write as _;
        let mut bytes = vec![0x1c, 0x84, 0x93, 0x14, 0, 0, 0, 0];
        let mut encoder = ZlibEncoder::new(&mut bytes, Compression::best());
        encoder.write_all(&vec![0; 8 << 20]).unwrap();
        encoder.finish().unwrap();
        let error = Latency::from_base64(&BASE64.encode(&bytes), 0).unwrap_err().to_string();
        assert!(error.contains("the header claims 0 bytes"), "{error}");
    }
}
