//! Bounds of a format on events and messages, and the parts that have one form only.

use std::ops::RangeInclusive;

use crate::{hex, model::Event};

/// The largest event that a format can hold; `usize::MAX` means that the layout sets no limit.
/// Encoders reject larger events with [`EncodeError`](crate::EncodeError). They also reject events
/// that are too long as a whole: 8 MiB before packing in capnp-packed, some 500 MB in Cap'n Proto
/// and FlatBuffers.
///
/// ```
/// use codecs::Format;
///
/// let tlv: Format = "tlv".parse()?;
/// assert_eq!(tlv.spec().capacity.value_bytes, 255);
/// # Ok::<(), codecs::UnknownName>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capacity {
    /// `created_at`.
    pub times: RangeInclusive<i64>,
    /// Tags of an event.
    pub tags: usize,
    /// The name and values of one tag.
    pub tag_values: usize,
    /// Bytes of one value as it is stored. Hex that [`Capacity::hex_chars`] turns into bytes counts
    /// half its digits.
    pub value_bytes: usize,
    /// Least digits of lowercase hex, of even length, that are stored as bytes; `None`: never.
    pub hex_chars: Option<usize>,
    /// Bytes of all tags together: their values, one byte more for each value, and one for each
    /// tag.
    pub tags_bytes: usize,
    /// Bytes of the content.
    pub content_bytes: usize,
    /// Bytes of a subscription id in a message.
    pub subscription_bytes: usize,
}

impl Capacity {
    /// Every event and subscription id.
    pub const ANY: Capacity = Capacity {
        times: i64::MIN..=i64::MAX,
        tags: usize::MAX,
        tag_values: usize::MAX,
        value_bytes: usize::MAX,
        hex_chars: None,
        tags_bytes: usize::MAX,
        content_bytes: usize::MAX,
        subscription_bytes: usize::MAX,
    };

    /// Every event, in the common envelope, whose subscription ids have a length of one byte.
    pub(super) const ENVELOPE: Capacity = Capacity { subscription_bytes: 255, ..Capacity::ANY };

    /// Whether the format can hold the event.
    pub fn holds(&self, event: &Event<'_>) -> bool {
        let stored_bytes = |value: &str| match self.hex_chars {
            Some(least) if hex::is_compactable(value, least) => value.len() / 2,
            _ => value.len(),
        };
        let mut tags_bytes = 0;
        let tags_fit = event.tags.iter().all(|tag| {
            tags_bytes += 1 + tag.iter().map(|value| 1 + value.len()).sum::<usize>();
            tag.len() <= self.tag_values && tag.iter().all(|value| stored_bytes(value) <= self.value_bytes)
        });
        tags_fit
            && tags_bytes <= self.tags_bytes
            && event.tags.len() <= self.tags
            && event.content.len() <= self.content_bytes
            && self.times.contains(&event.created_at)
    }
}

/// The part that has exactly one form: bytes that a decoder accepts are then those that an encoder
/// writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OneForm {
    /// Nothing: encoders may choose.
    Nothing,
    /// Events.
    Events,
    /// Events and relay messages. (In a client's request, unknown filter fields are read and never
    /// written.)
    EventsAndRelayMessages,
}
