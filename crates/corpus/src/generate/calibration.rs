//! Statistics of real events: `data/calibration.json`, described in `data/README.md`.

use std::{collections::BTreeMap, sync::LazyLock};

use serde::Deserialize;

use crate::random::{Random, Weighted, power};

/// The measured statistics.
#[derive(Debug, Deserialize)]
pub(super) struct Calibration {
    quantiles: Vec<f64>,
    /// Events of each kind in an audit of 50,000.
    pub(super) kind_counts: BTreeMap<u16, usize>,
    /// Events of each kind among 561 that a relay sent live.
    pub(super) live_kind_counts: BTreeMap<u16, usize>,
    /// Reactions, each with how many of 575 it was.
    pub(super) reactions: Vec<(String, usize)>,
    /// Content lengths on which real gift wraps cluster: NIP-44's padding steps.
    pub(super) gift_wrap_bytes: Vec<usize>,
    kinds: BTreeMap<u16, Shape>,
}

/// Statistics of the events of one kind.
#[derive(Debug, Deserialize)]
pub(super) struct Shape {
    #[serde(default)]
    json_bytes: Vec<f64>,
    content_bytes: Vec<f64>,
    tags: Vec<f64>,
    /// The fraction from which a tag count between two quantiles is rounded up.
    #[serde(default = "half")]
    tags_round_up_from: f64,
    #[serde(default)]
    pub(super) reuse: Reuse,
    pub(super) tag_names: Vec<TagName>,
}

fn half() -> f64 {
    0.5
}

/// Shares of draws that repeat a value of recent events of the kind, as threads, clients and
/// services do. Fitted to the stream compression of real events of the kind.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(super) struct Reuse {
    /// The author.
    pub(super) author: f64,
    /// A `p` value; in follow lists, how often a run shared with an earlier list begins.
    pub(super) key: f64,
    /// An `e` or `a` value, or the note that is answered.
    pub(super) id: f64,
}

/// A tag that occurs in events of a kind.
#[derive(Debug, Deserialize)]
pub(super) struct TagName {
    pub(super) name: String,
    /// Share of events with it.
    pub(super) event_share: f64,
    /// Whether one event may have several.
    pub(super) repeats: bool,
    /// Forms of its values, separated by commas, and which share of all tags of the kind has each.
    shapes: Vec<(String, f64)>,
}

impl Calibration {
    pub(super) fn get() -> &'static Calibration {
        static CALIBRATION: LazyLock<Calibration> = LazyLock::new(|| {
            serde_json::from_str(include_str!("../../../../data/calibration.json"))
                .expect("a test generates from the calibration in the repository")
        });
        &CALIBRATION
    }

    /// The shape of a kind; if none was measured, a similar kind's.
    pub(super) fn shape(&self, kind: u16) -> &Shape {
        let measured = match kind {
            _ if self.kinds.contains_key(&kind) => kind,
            9 | 14 | 42 => 1311,
            5_000..=5_999 => 5_300,
            6_000..=6_999 => 6_300,
            10_000..=19_999 => 10_063,
            30_000..=39_999 => 30_000,
            _ => 1,
        };
        &self.kinds[&measured]
    }

    /// Content bytes at this place of the distribution, 0..1.
    pub(super) fn content_bytes(&self, shape: &Shape, place: f64) -> usize {
        interpolate(&self.quantiles, &shape.content_bytes, place, half())
    }

    /// Bytes as JSON at this place of the distribution, 0..1, if they were measured.
    pub(super) fn json_bytes(&self, shape: &Shape, place: f64) -> Option<usize> {
        (!shape.json_bytes.is_empty()).then(|| interpolate(&self.quantiles, &shape.json_bytes, place, half()))
    }

    /// Number of tags at this place of the distribution, 0..1.
    pub(super) fn tags(&self, shape: &Shape, place: f64) -> usize {
        interpolate(&self.quantiles, &shape.tags, place, shape.tags_round_up_from)
    }
}

impl TagName {
    /// Which share of all tags of the kind has this name.
    pub(super) fn tag_share(&self) -> f64 {
        self.shapes.iter().map(|(_, share)| share).sum()
    }

    /// One of its forms, as often as real events use it.
    pub(super) fn draw_shape(&self, random: &mut Random) -> &str {
        let weights = self.shapes.iter().map(|(_, share)| *share);
        &self.shapes[Weighted::new(weights).draw(random)].0
    }
}

/// The value at `place`: linear between neighbouring quantiles, geometric if they differ by more
/// than three times, because a straight line would make the tail of follow lists far too heavy.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "quantiles are small and positive"
)]
fn interpolate(quantiles: &[f64], values: &[f64], place: f64, round_up_from: f64) -> usize {
    let above = quantiles.partition_point(|&q| q <= place).clamp(1, quantiles.len() - 1);
    let (low, high) = (values[above - 1], values[above]);
    let part = (place - quantiles[above - 1]) / (quantiles[above] - quantiles[above - 1]);
    let value =
        if low > 0.0 && high > 3.0 * low { low * power(high / low, part) } else { low + (high - low) * part };
    (value + 1.0 - round_up_from) as usize
}
