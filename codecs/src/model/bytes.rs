//! An event, and the messages that bring it, as a client keeps them that makes no text of keys.

use std::borrow::Cow;

use serde::{Serialize, Serializer};

use super::{Event, RelayMessage};
use crate::hex;

/// An [`Event`] whose tag values of 64 lowercase hex digits are 32 bytes: ids and keys, above all
/// those of `e` and `p` tags. Everything else is as it is there.
///
/// ```
/// use codecs::{ByteEvent, Event, TagValue};
///
/// let tags = vec![vec!["p".into(), "07".repeat(32).into()]];
/// let event = Event { id: [1; 32], pubkey: [2; 32], created_at: 3, kind: 1, tags, content: "".into(), sig: [5; 64] };
/// let kept = ByteEvent::from(event.clone());
/// assert_eq!(kept.tags[0], [TagValue::Text("p".into()), TagValue::Key([7; 32])]);
/// assert_eq!(Event::from(kept), event);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ByteEvent<'a> {
    /// SHA-256 of the canonical serialization.
    pub id: [u8; 32],
    /// The author's x-only public key (BIP-340).
    pub pubkey: [u8; 32],
    /// Seconds since 1970 as the author claims.
    pub created_at: i64,
    /// The kind.
    pub kind: u16,
    /// Tags in the author's order.
    pub tags: Vec<Vec<TagValue<'a>>>,
    /// Text whose meaning `kind` decides.
    pub content: Cow<'a, str>,
    /// BIP-340 signature of `id`.
    pub sig: [u8; 64],
}

/// A name or a value of a tag in a [`ByteEvent`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TagValue<'a> {
    /// The bytes of 64 lowercase hex digits.
    Key([u8; 32]),
    /// Any other text.
    Text(Cow<'a, str>),
}

impl<'a> From<Cow<'a, str>> for TagValue<'a> {
    fn from(text: Cow<'a, str>) -> Self {
        match hex::decode_array(text.as_bytes()) {
            Some(key) => TagValue::Key(key),
            None => TagValue::Text(text),
        }
    }
}

impl<'a> From<TagValue<'a>> for Cow<'a, str> {
    fn from(value: TagValue<'a>) -> Self {
        match value {
            TagValue::Key(key) => Cow::Owned(hex::encode(&key)),
            TagValue::Text(text) => text,
        }
    }
}

impl<'a> From<Event<'a>> for ByteEvent<'a> {
    fn from(event: Event<'a>) -> Self {
        let Event { id, pubkey, created_at, kind, tags, content, sig } = event;
        let tags = tags.into_iter().map(|tag| tag.into_iter().map(TagValue::from).collect()).collect();
        ByteEvent { id, pubkey, created_at, kind, tags, content, sig }
    }
}

impl<'a> From<ByteEvent<'a>> for Event<'a> {
    fn from(event: ByteEvent<'a>) -> Self {
        let ByteEvent { id, pubkey, created_at, kind, tags, content, sig } = event;
        let tags = tags.into_iter().map(|tag| tag.into_iter().map(Cow::from).collect()).collect();
        Event { id, pubkey, created_at, kind, tags, content, sig }
    }
}

/// Writes the text that the value stands for, as the hash of an event takes it.
impl Serialize for TagValue<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            TagValue::Key(key) => serializer.serialize_str(hex::encode_array(key, &mut [0; 64])),
            TagValue::Text(text) => serializer.serialize_str(text),
        }
    }
}

/// A [`RelayMessage`] whose events are [`ByteEvent`]s.
///
/// ```
/// use codecs::{ByteMessage, Format, RelayMessage};
///
/// let codec = Format::JSON.spec().library;
/// let notice = br#"["NOTICE","hello"]"#;
/// let expected = ByteMessage::Other(RelayMessage::Notice { text: "hello".into() });
/// assert_eq!(codec.decode_relay_keeping_bytes(notice)?, expected);
/// # Ok::<(), codecs::DecodeError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ByteMessage<'a> {
    /// [`RelayMessage::Event`].
    Event {
        /// The subscription it matches.
        subscription: Cow<'a, str>,
        /// The event as published.
        event: ByteEvent<'a>,
    },
    /// [`RelayMessage::Events`].
    Events {
        /// The subscription they match.
        subscription: Cow<'a, str>,
        /// At least one.
        events: Vec<ByteEvent<'a>>,
    },
    /// Any message without an event.
    Other(RelayMessage<'a>),
}

impl<'a> From<RelayMessage<'a>> for ByteMessage<'a> {
    fn from(message: RelayMessage<'a>) -> Self {
        match message {
            RelayMessage::Event { subscription, event } => {
                ByteMessage::Event { subscription, event: event.into_owned().into() }
            }
            RelayMessage::Events { subscription, events } => {
                let events = events.into_iter().map(ByteEvent::from).collect();
                ByteMessage::Events { subscription, events }
            }
            message => ByteMessage::Other(message),
        }
    }
}
