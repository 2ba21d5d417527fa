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
    /// Each tag after its length, and in it each value after its length; then the content. Lengths
    /// are text, too ([`push_length`]), so that the parts need no second UTF-8 check.
    text: Box<str>,
    tag_bytes: usize,
}

impl FlatEvent {
    /// Bytes on the heap that it owns.
    pub fn heap_bytes(&self) -> usize {
        self.text.len()
    }

    /// The tags in the author's order, each as its name and values.
    pub fn tags(&self) -> impl Iterator<Item = impl Iterator<Item = &str>> {
        let mut tags = &self.text[..self.tag_bytes];
        std::iter::from_fn(move || {
            let mut values = next_part(&mut tags)?;
            Some(std::iter::from_fn(move || next_part(&mut values)))
        })
    }

    /// The first value of the first tag with this name.
    pub fn first_tag_value(&self, name: &str) -> Option<&str> {
        self.tags().find_map(|mut tag| (tag.next() == Some(name)).then_some(tag))?.next()
    }

    /// The content.
    pub fn content(&self) -> &str {
        &self.text[self.tag_bytes..]
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
        let tag_bytes = event.tags.iter().map(|tag| with_length(tag_bytes(tag))).sum();
        let mut text = String::with_capacity(tag_bytes + event.content.len());
        for tag in &event.tags {
            push_length(self::tag_bytes(tag), &mut text);
            for value in tag {
                push_length(value.len(), &mut text);
                text.push_str(value);
            }
        }
        text.push_str(&event.content);
        FlatEvent { head: event.into(), sig: event.sig, text: text.into_boxed_str(), tag_bytes }
    }
}

fn tag_bytes(tag: &Tag<'_>) -> usize {
    tag.iter().map(|value| with_length(value.len())).sum()
}

/// The largest length of one character. A longer length has several characters of seven bits each,
/// lowest bits first, after a character that exceeds this by their number.
const MAX_SHORT: u8 = 119;

const DIGIT_BITS: u32 = 7;

/// Number of characters of a length after its first.
fn digits(len: usize) -> u8 {
    if len <= MAX_SHORT.into() {
        return 0;
    }
    let bits = usize::BITS - len.leading_zeros();
    // Memory ends long before eight of them, with which the first character would be the last of
    // ASCII.
    bits.div_ceil(DIGIT_BITS).to_le_bytes()[0]
}

/// Appends a length as ASCII.
fn push_length(mut len: usize, text: &mut String) {
    let digits = digits(len);
    if digits == 0 {
        text.push(char::from(len.to_le_bytes()[0]));
        return;
    }
    text.push(char::from(MAX_SHORT + digits));
    for _ in 0..digits {
        text.push(char::from(len.to_le_bytes()[0] & 0x7f));
        len >>= DIGIT_BITS;
    }
}

/// Bytes of a part and its length.
fn with_length(len: usize) -> usize {
    1 + usize::from(digits(len)) + len
}

/// Takes the next part and its length off `text`.
fn next_part<'a>(text: &mut &'a str) -> Option<&'a str> {
    let (&first, behind) = text.as_bytes().split_first()?;
    let digits = usize::from(first.saturating_sub(MAX_SHORT));
    let len = if digits == 0 {
        first.into()
    } else {
        behind
            .get(..digits)?
            .iter()
            .rev()
            .fold(0_usize, |len, digit| (len << DIGIT_BITS) | usize::from(*digit))
    };
    let (part, rest) = text[1 + digits..].split_at_checked(len)?;
    *text = rest;
    Some(part)
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

    #[test]
    fn values_of_every_length_come_out_as_they_went_in() {
        let lengths = [0, 1, 64, 119, 120, 127, 128, (1 << 14) - 1, 1 << 14, (1 << 21) - 1, 1 << 21];
        let tag: Tag<'_> = lengths.iter().map(|&len| "x".repeat(len).into()).collect();
        let (id, pubkey, sig) = ([1; 32], [2; 32], [5; 64]);
        let tags = vec![tag, vec!["e".into()]];
        let event = Event { id, pubkey, created_at: 0, kind: 1, tags, content: "c".into(), sig };
        let flat = FlatEvent::from(&event);
        assert_eq!(flat.to_event(), event);
        let text: usize = lengths.iter().sum();
        let of_lengths = (5 + 1) + (1 + 1 + 1 + 1 + 2 + 2 + 3 + 3 + 4 + 4 + 5) + 1;
        assert_eq!(flat.heap_bytes(), text + of_lengths + "e".len() + "c".len(), "memory is what it needs");
    }
}
