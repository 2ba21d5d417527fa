//! Statistics of a corpus: kinds, sizes, tags, share of hex, compressibility.
//!
//! An [`Analyzer`] takes events one at a time and keeps a sample of at most [`SAMPLE_BYTES`], so
//! its memory does not depend on the file. Counts and sums are exact; quantiles, shares of tags and
//! compression ratios are the sample's. A corpus that fits is its own sample. Tests compare the
//! generator's events with the same statistics.

mod ratios;
mod shape;

use std::collections::BTreeMap;

use codecs::Event;
use serde::Serialize;

pub use self::{
    ratios::Ratios,
    shape::{Quantiles, Shape, TagName},
};
use crate::{json::json, random::Random};

/// JSON bytes that the sample may hold: some 26,000 events of the audited archive's mix, or 1,000
/// large follow lists.
pub const SAMPLE_BYTES: usize = 64 << 20;

/// A class of events by size or by number of tags, and its totals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Class {
    /// `500-2K`
    pub name: &'static str,
    /// Number of events.
    pub events: u64,
    /// Their bytes as compact JSON.
    pub json_bytes: u64,
}

/// The classes of size, by the first number of JSON bytes that is too large for each.
const SIZE_CLASSES: [(&str, usize); 5] =
    [("<500", 500), ("500-2K", 2_000), ("2K-10K", 10_000), ("10K-100K", 100_000), (">=100K", usize::MAX)];

/// The classes of tag count, by the first count that is too large for each.
const TAG_CLASSES: [(&str, usize); 5] =
    [("0", 1), ("1-5", 6), ("6-20", 21), ("21-100", 101), (">100", usize::MAX)];

/// The result of an analysis. Bytes are of the compact JSON object, without the message around it.
#[derive(Debug, Clone, Serialize)]
pub struct Analysis {
    /// Number of events given.
    pub events: u64,
    /// Number of events in the sample: all, unless the corpus exceeds [`SAMPLE_BYTES`].
    pub events_sampled: u64,
    /// Classes by size.
    pub size_classes: Vec<Class>,
    /// Classes by number of tags.
    pub tag_classes: Vec<Class>,
    /// All kinds together.
    pub all: Shape,
    /// Each kind, commonest first.
    pub kinds: Vec<(u16, Shape)>,
}

impl Analysis {
    /// The shape of one kind.
    pub fn kind(&self, kind: u16) -> Option<&Shape> {
        self.kinds.iter().find(|(found, _)| *found == kind).map(|(_, shape)| shape)
    }
}

/// Takes events, gives an [`Analysis`].
#[derive(Debug)]
pub struct Analyzer {
    counts: BTreeMap<u16, Count>,
    size_classes: Vec<Class>,
    tag_classes: Vec<Class>,
    sample: Vec<Kept>,
    sample_bytes: usize,
    limit_bytes: usize,
    /// An event is in the sample when its draw is below this.
    threshold: f64,
    random: Random,
}

#[derive(Debug, Default, Clone, Copy)]
struct Count {
    events: u64,
    json_bytes: u64,
}

#[derive(Debug)]
struct Kept {
    draw: f64,
    kind: u16,
    json: Box<[u8]>,
}

impl Default for Analyzer {
    fn default() -> Analyzer {
        Analyzer::with_limit(SAMPLE_BYTES)
    }
}

impl Analyzer {
    /// An analyzer whose sample holds at most `limit_bytes` of JSON.
    pub fn with_limit(limit_bytes: usize) -> Analyzer {
        let classes = |bounds: [(&'static str, usize); 5]| {
            bounds.iter().map(|&(name, _)| Class { name, events: 0, json_bytes: 0 }).collect()
        };
        Analyzer {
            counts: BTreeMap::new(),
            size_classes: classes(SIZE_CLASSES),
            tag_classes: classes(TAG_CLASSES),
            sample: Vec::new(),
            sample_bytes: 0,
            limit_bytes,
            threshold: 1.0,
            random: Random::new("relay-sim analyzer", 0),
        }
    }

    /// Counts one event.
    pub fn add(&mut self, event: &Event<'_>) {
        let json = json(event);
        let bytes = json.len() as u64;
        let count = self.counts.entry(event.kind).or_default();
        count.events += 1;
        count.json_bytes += bytes;
        for (classes, bounds, value) in [
            (&mut self.size_classes, SIZE_CLASSES, json.len()),
            (&mut self.tag_classes, TAG_CLASSES, event.tags.len()),
        ] {
            let class = bounds.iter().position(|&(_, end)| value < end).unwrap_or(bounds.len() - 1);
            classes[class].events += 1;
            classes[class].json_bytes += bytes;
        }
        let draw = self.random.unit();
        if draw < self.threshold {
            self.sample_bytes += json.len();
            self.sample.push(Kept { draw, kind: event.kind, json: json.into_bytes().into() });
            self.shrink();
        }
    }

    /// Every event has the same chance to be in the sample at any time. Its draw decides, and the
    /// threshold falls for old and new events alike.
    fn shrink(&mut self) {
        while self.sample_bytes > self.limit_bytes && self.sample.len() > 1 {
            self.threshold /= 2.0;
            let threshold = self.threshold;
            self.sample.retain(|kept| kept.draw < threshold);
            self.sample_bytes = self.sample.iter().map(|kept| kept.json.len()).sum();
        }
    }

    /// The numbers.
    pub fn finish(self) -> Analysis {
        let total = self.counts.values().fold(Count::default(), |sum, count| Count {
            events: sum.events + count.events,
            json_bytes: sum.json_bytes + count.json_bytes,
        });
        let shape = |count: Count, sample: &[&[u8]]| {
            let mut shape = Shape::from_sample(sample);
            shape.events = count.events;
            shape.event_share = share(count.events, total.events);
            shape.byte_share = share(count.json_bytes, total.json_bytes);
            shape.json_bytes_mean = share(count.json_bytes, count.events);
            shape
        };
        let mut by_kind: BTreeMap<u16, Vec<&[u8]>> = BTreeMap::new();
        for kept in &self.sample {
            by_kind.entry(kept.kind).or_default().push(&kept.json);
        }
        let all: Vec<&[u8]> = self.sample.iter().map(|kept| &*kept.json).collect();
        let mut kinds: Vec<_> = self
            .counts
            .iter()
            .map(|(&kind, &count)| (kind, shape(count, by_kind.get(&kind).map_or(&[], Vec::as_slice))))
            .collect();
        kinds.sort_by_key(|(kind, shape)| (std::cmp::Reverse(shape.events), *kind));
        Analysis {
            events: total.events,
            events_sampled: self.sample.len() as u64,
            size_classes: self.size_classes,
            tag_classes: self.tag_classes,
            all: shape(total, &all),
            kinds,
        }
    }
}

/// A share; 0 if the whole is 0.
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}
