//! Statistics of the events of one kind.

use std::collections::HashMap;

use codecs::{Event, Format};
use serde::Serialize;

use super::{Ratios, share};

/// Number of tag names that a [`Shape`] lists.
const TAG_NAMES: usize = 12;
/// Most characters of a tag name that are shown.
const TAG_NAME_CHARS: usize = 24;

/// Values below which the given share of events lies; all 0 when there are no events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Quantiles {
    /// 5 %.
    pub p5: usize,
    /// Half.
    pub p50: usize,
    /// 95 %.
    pub p95: usize,
    /// 99 %.
    pub p99: usize,
    /// The largest.
    pub max: usize,
}

impl Quantiles {
    fn from_values(mut values: Vec<usize>) -> Quantiles {
        values.sort_unstable();
        let at = |percent: usize| match values.len() {
            0 => 0,
            n => values[(n * percent / 100).min(n - 1)],
        };
        Quantiles { p5: at(5), p50: at(50), p95: at(95), p99: at(99), max: at(100) }
    }
}

/// A tag name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TagName {
    /// At most 24 characters of it.
    pub name: String,
    /// Which share of all tags has it.
    pub tag_share: f64,
}

/// A set of events in numbers.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Shape {
    /// Number of events.
    pub events: u64,
    /// Which share of all events.
    pub event_share: f64,
    /// Which share of all JSON bytes.
    pub byte_share: f64,
    /// Mean size as JSON.
    pub json_bytes_mean: f64,
    /// Number of events that the following was measured on.
    pub events_sampled: usize,
    /// Sizes as compact JSON.
    pub json_bytes: Quantiles,
    /// Tags per event.
    pub tags: Quantiles,
    /// Lengths of the content.
    pub content_bytes: Quantiles,
    /// Which share of tag values (all elements but the name) are 64 lowercase hex digits.
    pub hex64_value_share: f64,
    /// Which share of the JSON's bytes are hex digits of ids, keys, signatures and such values.
    pub hex_byte_share: f64,
    /// Which share of events has a character outside ASCII.
    pub nonascii_event_share: f64,
    /// The commonest names.
    pub tag_names: Vec<TagName>,
    /// Compressibility.
    pub ratios: Ratios,
}

impl Shape {
    /// The shape of events as JSON, in this order. Fields that compare them with other events are
    /// 0.
    pub(super) fn from_sample(sample: &[&[u8]]) -> Shape {
        let mut tags = Vec::with_capacity(sample.len());
        let mut content_bytes = Vec::with_capacity(sample.len());
        let mut names: HashMap<String, u64> = HashMap::new();
        let (mut values, mut hex_values, mut nonascii) = (0, 0, 0);
        for json in sample {
            let event: Event<'_> =
                Format::JSON.spec().library.decode_event(json).expect("our own JSON is an event");
            tags.push(event.tags.len());
            content_bytes.push(event.content.len());
            nonascii += u64::from(!json.is_ascii());
            for tag in &event.tags {
                let Some((name, rest)) = tag.split_first() else { continue };
                match names.get_mut(&**name) {
                    Some(count) => *count += 1,
                    None => _ = names.insert(name.to_string(), 1),
                }
                values += rest.len() as u64;
                hex_values += rest.iter().filter(|value| is_hex64(value)).count() as u64;
            }
        }
        let bytes: usize = sample.iter().map(|json| json.len()).sum();
        // Two of 32 bytes and one of 64 in every event.
        let hex_bytes = 256 * sample.len() as u64 + 64 * hex_values;
        Shape {
            events_sampled: sample.len(),
            json_bytes: Quantiles::from_values(sample.iter().map(|json| json.len()).collect()),
            tags: Quantiles::from_values(tags),
            content_bytes: Quantiles::from_values(content_bytes),
            hex64_value_share: share(hex_values, values),
            hex_byte_share: share(hex_bytes, bytes as u64),
            nonascii_event_share: share(nonascii, sample.len() as u64),
            tag_names: commonest(names),
            ratios: Ratios::from_events(sample),
            ..Shape::default()
        }
    }
}

fn is_hex64(value: &str) -> bool {
    value.len() == 64 && value.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

fn commonest(names: HashMap<String, u64>) -> Vec<TagName> {
    let total = names.values().sum();
    let mut names: Vec<_> = names.into_iter().collect();
    names.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    names.truncate(TAG_NAMES);
    names
        .into_iter()
        .map(|(name, count)| TagName {
            name: name.chars().take(TAG_NAME_CHARS).collect(),
            tag_share: share(count, total),
        })
        .collect()
}
