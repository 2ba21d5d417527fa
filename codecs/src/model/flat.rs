//! An event in one piece of memory, for programs that keep many.

use super::{Event, EventHead, Tag};

/// An event that owns all it holds in one allocation, however many tags it has; an [`Event`] has
/// one for each value.
///
/// ```
/// use codecs::{Event, FlatEvent};
///
/// let tags = vec![vec!["e".into(), "".into()], vec![]];
/// let event =
///     Event { id: [1; 32], pubkey: [2; 32], created_at: 3, kind: 4, tags, content: "hi".into(), sig: [5; 64] };
/// let flat = FlatEvent::from(&event);
/// assert_eq!(flat.head.kind, 4);
/// assert_eq!(flat.first_tag_value("e"), Some(""));
/// assert_eq!(flat.to_event(), event);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlatEvent {
    /// Id, author, time and kind.
    pub head: EventHead,
    /// BIP-340 signature of the id.
    pub sig: [u8; 64],
    /// Each tag behind its length, in which each value stands behind its length (u64 LE); then the
    /// content.
    bytes: Vec<u8>,
    tag_bytes: usize,
}

impl FlatEvent {
    /// What it holds in memory besides itself.
    pub fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// The tags in the author's order, each as its name and values.
    pub fn tags(&self) -> impl Iterator<Item = impl Iterator<Item = &str>> {
        let mut tags = &self.bytes[..self.tag_bytes];
        std::iter::from_fn(move || {
            let mut values = next_part(&mut tags)?;
            Some(std::iter::from_fn(move || next_part(&mut values).map(text)))
        })
    }

    /// The first value of the first tag with this name.
    pub fn first_tag_value(&self, name: &str) -> Option<&str> {
        self.tags().find_map(|mut tag| (tag.next() == Some(name)).then_some(tag))?.next()
    }

    /// The content.
    pub fn content(&self) -> &str {
        text(&self.bytes[self.tag_bytes..])
    }

    /// The event as a tree again, which borrows its text from here.
    pub fn to_event(&self) -> Event<'_> {
        let EventHead { id, pubkey, created_at, kind } = self.head;
        let tags = self.tags().map(|tag| tag.map(Into::into).collect()).collect();
        Event { id, pubkey, created_at, kind, tags, content: self.content().into(), sig: self.sig }
    }
}

impl From<&Event<'_>> for FlatEvent {
    fn from(event: &Event<'_>) -> Self {
        let tag_bytes = event.tags.iter().map(|tag| LENGTH_BYTES + tag_bytes(tag)).sum();
        let mut bytes = Vec::with_capacity(tag_bytes + event.content.len());
        for tag in &event.tags {
            bytes.extend_from_slice(&(self::tag_bytes(tag) as u64).to_le_bytes());
            for value in tag {
                bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
                bytes.extend_from_slice(value.as_bytes());
            }
        }
        bytes.extend_from_slice(event.content.as_bytes());
        FlatEvent { head: event.into(), sig: event.sig, bytes, tag_bytes }
    }
}

const LENGTH_BYTES: usize = size_of::<u64>();

fn tag_bytes(tag: &Tag<'_>) -> usize {
    tag.iter().map(|value| LENGTH_BYTES + value.len()).sum()
}

/// Takes the next part and its length off `bytes`.
fn next_part<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, rest) = bytes.split_first_chunk()?;
    let (part, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
    *bytes = rest;
    Some(part)
}

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).expect("a flat event is made of text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flat_events_keep_the_shape_of_tags() {
        let tags: Vec<Tag<'_>> =
            vec![vec![], vec!["".into()], vec!["e".into(), "".into(), "ä".into()], vec![], vec!["x".into()]];
        let (id, pubkey, sig) = ([1; 32], [2; 32], [5; 64]);
        let event = Event { id, pubkey, created_at: -3, kind: 4, tags, content: "c".into(), sig };
        let flat = FlatEvent::from(&event);
        assert_eq!(flat.to_event(), event);
        assert_eq!((flat.head, flat.sig), (EventHead::from(&event), event.sig));
        assert_eq!(flat.first_tag_value("e"), Some(""));
        assert_eq!(flat.first_tag_value("x"), None);
    }
}
