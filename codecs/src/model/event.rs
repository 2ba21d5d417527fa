//! The event: NIP-01's only object.

use std::borrow::Cow;

/// One tag: its name and values, all text. May be empty, and so may each value.
pub type Tag<'a> = Vec<Cow<'a, str>>;

/// A NIP-01 event. Text borrows from the frame it was decoded from where the format allows it;
/// `Event<'static>` owns everything.
///
/// Holding an `Event` says nothing about its id or signature: see [`Event::verify`].
///
/// ```
/// use codecs::{Event, KindClass};
///
/// let tags = vec![vec!["d".into(), "my-article".into()]];
/// let (id, pubkey, sig) = ([1; 32], [2; 32], [3; 64]);
/// let event = Event { id, pubkey, created_at: 4, kind: 30_023, tags, content: "".into(), sig };
/// assert_eq!(event.class(), KindClass::Addressable);
/// assert_eq!(event.address(), "my-article");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event<'a> {
    /// SHA-256 of the canonical serialization.
    pub id: [u8; 32],
    /// The author's x-only public key (BIP-340).
    pub pubkey: [u8; 32],
    /// Seconds since 1970 as the author claims.
    pub created_at: i64,
    /// The kind, which NIP-01 bounds to 0..=65535.
    pub kind: u16,
    /// Tags in the author's order.
    pub tags: Vec<Tag<'a>>,
    /// Text whose meaning `kind` decides.
    pub content: Cow<'a, str>,
    /// BIP-340 signature of `id`.
    pub sig: [u8; 64],
}

/// The fields by which an event is routed and stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventHead {
    /// SHA-256 of the canonical serialization.
    pub id: [u8; 32],
    /// The author's x-only public key (BIP-340).
    pub pubkey: [u8; 32],
    /// Seconds since 1970 as the author claims.
    pub created_at: i64,
    /// The kind.
    pub kind: u16,
}

impl From<&Event<'_>> for EventHead {
    fn from(event: &Event<'_>) -> Self {
        EventHead { id: event.id, pubkey: event.pubkey, created_at: event.created_at, kind: event.kind }
    }
}

/// A relay's treatment of events of a kind (NIP-01).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KindClass {
    /// All are stored.
    Regular,
    /// Only the newest of an author and kind is stored.
    Replaceable,
    /// Passed on, never stored.
    Ephemeral,
    /// Only the newest of an author, kind and first `d` value is stored.
    Addressable,
}

impl KindClass {
    /// The class of `kind`.
    ///
    /// ```
    /// assert_eq!(codecs::KindClass::from_kind(20_001), codecs::KindClass::Ephemeral);
    /// ```
    pub fn from_kind(kind: u16) -> KindClass {
        match kind {
            0 | 3 | 10_000..=19_999 => KindClass::Replaceable,
            20_000..=29_999 => KindClass::Ephemeral,
            30_000..=39_999 => KindClass::Addressable,
            _ => KindClass::Regular,
        }
    }
}

impl Event<'_> {
    /// A relay's treatment of the event.
    pub fn class(&self) -> KindClass {
        KindClass::from_kind(self.kind)
    }

    /// The `d` value that distinguishes the event from others of its author and kind; empty if it
    /// does not matter.
    pub fn address(&self) -> &str {
        match self.class() {
            KindClass::Addressable => self.first_tag_value("d").unwrap_or_default(),
            _ => "",
        }
    }

    /// An event that has no author and no id yet.
    pub fn unsigned<'a>(
        kind: u16,
        created_at: i64,
        tags: Vec<Tag<'a>>,
        content: impl Into<Cow<'a, str>>,
    ) -> Event<'a> {
        let content = content.into();
        Event { id: [0; 32], pubkey: [0; 32], created_at, kind, tags, content, sig: [0; 64] }
    }

    /// Copies whatever is still borrowed, so that the event outlives its frame.
    pub fn into_owned(self) -> Event<'static> {
        Event {
            id: self.id,
            pubkey: self.pubkey,
            created_at: self.created_at,
            kind: self.kind,
            tags: self
                .tags
                .into_iter()
                .map(|tag| tag.into_iter().map(|value| Cow::Owned(value.into_owned())).collect())
                .collect(),
            content: Cow::Owned(self.content.into_owned()),
            sig: self.sig,
        }
    }

    /// The first value of the first tag with this name, as NIP-01 reads the `d` of an address.
    pub fn first_tag_value(&self, name: &str) -> Option<&str> {
        self.tags
            .iter()
            .find(|tag| tag.first().is_some_and(|n| n == name))
            .and_then(|tag| tag.get(1))
            .map(|v| &**v)
    }
}
