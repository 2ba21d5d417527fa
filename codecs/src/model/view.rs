//! Events in other forms than [`Event`]: just the head, a view of the frame, and a frame's parts owned in one piece.

use std::{borrow::Cow, fmt, ops::Range};

use super::{Event, Tag};
use crate::{hex, text::Found};

/// What routing and storing an event ask of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventHead {
    /// SHA-256 of the canonical serialization.
    pub id: [u8; 32],
    /// The author's x-only public key (BIP-340).
    pub pubkey: [u8; 32],
    /// Seconds since 1970 as the author claims.
    pub created_at: i64,
    /// What the event is.
    pub kind: u16,
}

impl From<&Event<'_>> for EventHead {
    fn from(event: &Event<'_>) -> Self {
        EventHead { id: event.id, pubkey: event.pubkey, created_at: event.created_at, kind: event.kind }
    }
}

/// An event that stays in its frame: checked as a whole, so that it is exactly what
/// [`decode_event`](crate::EventCodec::decode_event) would give, with tags and content read when asked for.
#[derive(Debug)]
pub struct EventView<'a> {
    /// Id, author, time and kind.
    pub head: EventHead,
    /// BIP-340 signature of the id.
    pub sig: [u8; 64],
    body: Body<'a>,
}

#[derive(Debug)]
enum Body<'a> {
    InFrame { content: Found<'a>, tags: &'a [u8], layout: &'static dyn TagLayout },
    Decoded { content: Cow<'a, str>, tags: Vec<Tag<'a>> },
}

/// How a format lays out tags. It is only ever shown bytes that its codec has checked, and ends an iteration early
/// where that proves untrue.
pub(crate) trait TagLayout: fmt::Debug + Sync {
    /// Takes the next tag off `tags`: the bytes of its values.
    fn next_tag<'a>(&self, tags: &mut &'a [u8]) -> Option<&'a [u8]>;

    /// Takes the next value off the bytes of a tag.
    fn next_value<'a>(&self, tag: &mut &'a [u8]) -> Option<TextView<'a>>;
}

impl<'a> EventView<'a> {
    /// A view of a frame that its codec has checked.
    pub(crate) fn in_frame(
        head: EventHead,
        sig: [u8; 64],
        content: Found<'a>,
        tags: &'a [u8],
        layout: &'static dyn TagLayout,
    ) -> Self {
        EventView { head, sig, body: Body::InFrame { content, tags, layout } }
    }

    /// What stands in for a view where an implementation has none: the decoded event.
    pub(crate) fn decoded(event: Event<'a>) -> Self {
        let head = EventHead::from(&event);
        EventView { head, sig: event.sig, body: Body::Decoded { content: event.content, tags: event.tags } }
    }

    /// The content.
    pub fn content(&self) -> TextView<'_> {
        match &self.body {
            Body::InFrame { content, .. } => content.view("content").unwrap_or(TextView::Plain("")), // checked
            Body::Decoded { content, .. } => TextView::Plain(content),
        }
    }

    /// The tags in the author's order, each read as the iterator reaches it.
    pub fn tags(&self) -> impl Iterator<Item = TagView<'_>> {
        let mut rest = match &self.body {
            Body::InFrame { tags, layout, .. } => Lazy::InFrame(tags, *layout),
            Body::Decoded { tags, .. } => Lazy::Decoded(tags.as_slice()),
        };
        std::iter::from_fn(move || match &mut rest {
            Lazy::InFrame(tags, layout) => Some(TagView(Lazy::InFrame(layout.next_tag(tags)?, *layout))),
            Lazy::Decoded(tags) => Some(TagView(Lazy::Decoded(tags.split_off_first()?))),
        })
    }

    /// The first value of the first tag with this name.
    pub fn first_tag_value(&self, name: &str) -> Option<TextView<'_>> {
        self.tags().find(|tag| tag.values().next().is_some_and(|n| n.is(name)))?.values().nth(1)
    }

    /// The event with everything read.
    pub fn to_event(&self) -> Event<'_> {
        let EventHead { id, pubkey, created_at, kind } = self.head;
        Event {
            id,
            pubkey,
            created_at,
            kind,
            tags: self.tags().map(|tag| tag.values().map(TextView::to_text).collect()).collect(),
            content: self.content().to_text(),
            sig: self.sig,
        }
    }
}

impl Event<'_> {
    /// Its tags as those of a view.
    pub(super) fn tag_views(&self) -> impl Iterator<Item = TagView<'_>> {
        self.tags.iter().map(|tag| TagView(Lazy::Decoded(tag)))
    }
}

/// What is still to be read: bytes that were checked, or a list that an implementation without views decoded.
#[derive(Debug)]
enum Lazy<'v, T> {
    InFrame(&'v [u8], &'static dyn TagLayout),
    Decoded(&'v [T]),
}

impl<T> Clone for Lazy<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Lazy<'_, T> {} // derived, it would ask the same of `T`

/// A tag of an [`EventView`].
#[derive(Debug, Clone, Copy)]
pub struct TagView<'v>(Lazy<'v, Cow<'v, str>>);

impl<'v> TagView<'v> {
    /// The tag's name and values, each read as the iterator reaches it.
    pub fn values(self) -> impl Iterator<Item = TextView<'v>> {
        let mut rest = self.0;
        std::iter::from_fn(move || match &mut rest {
            Lazy::InFrame(tag, layout) => layout.next_value(tag),
            Lazy::Decoded(values) => values.split_off_first().map(|value| TextView::Plain(value)),
        })
    }
}

/// Text as it stands in a frame.
#[derive(Debug, Clone, Copy)]
pub enum TextView<'v> {
    /// As it is.
    Plain(&'v str),
    /// The lowercase hex digits of these bytes.
    Hex(&'v [u8]),
    /// The inside of a JSON string that has escapes, all of them valid.
    Escaped(&'v str),
}

impl<'v> TextView<'v> {
    /// The text; borrowed where it stands as it is.
    pub fn to_text(self) -> Cow<'v, str> {
        match self {
            TextView::Plain(text) => Cow::Borrowed(text),
            TextView::Hex(bytes) => Cow::Owned(hex::encode(bytes)),
            TextView::Escaped(escaped) => {
                let mut text = String::with_capacity(escaped.len());
                self.push_to(&mut text);
                Cow::Owned(text)
            }
        }
    }

    /// Appends the text to `out`.
    pub fn push_to(self, out: &mut String) {
        match self {
            TextView::Plain(text) => out.push_str(text),
            TextView::Hex(bytes) => hex::push_text(bytes, out),
            TextView::Escaped(text) => Unescaped(text).for_each(|piece| match piece {
                Piece::Run(run) => out.push_str(run),
                Piece::Char(c) => out.push(c),
            }),
        }
    }

    /// Whether this is `text`. Allocates nothing.
    pub fn is(self, text: &str) -> bool {
        match self {
            TextView::Plain(plain) => plain == text,
            TextView::Hex(bytes) => hex::spells(text, bytes),
            TextView::Escaped(escaped) => {
                let mut rest = text;
                let mut take = |part: &str| rest.strip_prefix(part).map(|after| rest = after).is_some();
                Unescaped(escaped).all(|piece| match piece {
                    Piece::Run(run) => take(run),
                    Piece::Char(c) => take(c.encode_utf8(&mut [0; 4])),
                }) && rest.is_empty()
            }
        }
    }
}

/// The pieces of a JSON string's inside whose escapes were checked.
struct Unescaped<'v>(&'v str);

enum Piece<'v> {
    Run(&'v str),
    Char(char),
}

impl<'v> Iterator for Unescaped<'v> {
    type Item = Piece<'v>;

    fn next(&mut self) -> Option<Piece<'v>> {
        let Some(escape) = self.0.strip_prefix('\\') else {
            if self.0.is_empty() {
                return None;
            }
            let (run, rest) = self.0.split_at(self.0.find('\\').unwrap_or(self.0.len()));
            self.0 = rest;
            return Some(Piece::Run(run));
        };
        let mut chars = escape.chars();
        let plain = match chars.next()? {
            'b' => '\u{8}',
            't' => '\t',
            'n' => '\n',
            'f' => '\u{c}',
            'r' => '\r',
            'u' => return self.unicode(escape),
            other => other, // a quote or a slash
        };
        self.0 = chars.as_str();
        Some(Piece::Char(plain))
    }
}

impl<'v> Unescaped<'v> {
    /// `u` and four hex digits, or twice that for what UTF-16 writes as a pair (RFC 8259 §7).
    fn unicode(&mut self, escape: &'v str) -> Option<Piece<'v>> {
        let unit = |range: Range<usize>| u16::from_str_radix(escape.get(range)?, 16).ok();
        let first = unit(1..5)?;
        let (c, len) = match char::from_u32(first.into()) {
            Some(c) => (c, 5),
            None => (char::decode_utf16([first, unit(7..11)?]).next()?.ok()?, 11),
        };
        self.0 = escape.get(len..)?;
        Some(Piece::Char(c))
    }
}

/// An event that owns all it holds in one piece of memory, as its format laid it out: one allocation, however many
/// tags it has, against one for each value of an [`Event`]. Checked as a whole, and read through a view.
#[derive(Debug, Clone)]
pub struct FlatEvent {
    /// Id, author, time and kind.
    pub head: EventHead,
    /// BIP-340 signature of the id.
    pub sig: [u8; 64],
    /// Tags, then the content.
    bytes: Vec<u8>,
    tag_bytes: usize,
    content: Form,
    layout: &'static dyn TagLayout,
}

/// How the content of a [`FlatEvent`] stands there.
#[derive(Debug, Clone, Copy)]
enum Form {
    Plain,
    Hex,
    Escaped,
}

impl FlatEvent {
    /// A copy of the parts of a frame that its codec has checked.
    pub(crate) fn in_frame(
        head: EventHead,
        sig: [u8; 64],
        content: Found<'_>,
        tags: &[u8],
        layout: &'static dyn TagLayout,
    ) -> Self {
        let (form, content) = match content {
            Found::Bytes(bytes) => (Form::Plain, bytes),
            Found::Letter(letter) => (Form::Plain, letter.text().as_bytes()),
            Found::Text(TextView::Plain(text)) => (Form::Plain, text.as_bytes()),
            Found::Key(bytes) => (Form::Hex, bytes.as_slice()),
            Found::Hex(bytes) | Found::Text(TextView::Hex(bytes)) => (Form::Hex, bytes),
            Found::Text(TextView::Escaped(text)) => (Form::Escaped, text.as_bytes()),
        };
        let mut bytes = Vec::with_capacity(tags.len() + content.len());
        bytes.extend_from_slice(tags);
        bytes.extend_from_slice(content);
        FlatEvent { head, sig, bytes, tag_bytes: tags.len(), content: form, layout }
    }

    /// What it holds in memory besides itself.
    pub fn heap_bytes(&self) -> usize {
        self.bytes.capacity()
    }

    /// The event, to be read.
    pub fn view(&self) -> EventView<'_> {
        let (tags, content) = self.bytes.split_at(self.tag_bytes);
        let content = match self.content {
            Form::Plain => Found::Bytes(content),
            Form::Hex => Found::Hex(content),
            Form::Escaped => Found::Text(TextView::Escaped(str::from_utf8(content).unwrap_or_default())),
        };
        EventView::in_frame(self.head, self.sig, content, tags, self.layout)
    }
}

impl PartialEq for FlatEvent {
    fn eq(&self, other: &Self) -> bool {
        self.view().to_event() == other.view().to_event()
    }
}

impl Eq for FlatEvent {}

impl From<&Event<'_>> for FlatEvent {
    fn from(event: &Event<'_>) -> Self {
        let tag_bytes: usize = event.tags.iter().map(|tag| size_of::<u64>() + Sized::tag_bytes(tag)).sum();
        let mut bytes = Vec::with_capacity(tag_bytes + event.content.len());
        for tag in &event.tags {
            bytes.extend_from_slice(&(Sized::tag_bytes(tag) as u64).to_le_bytes());
            for value in tag {
                bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
                bytes.extend_from_slice(value.as_bytes());
            }
        }
        bytes.extend_from_slice(event.content.as_bytes());
        FlatEvent {
            head: event.into(),
            sig: event.sig,
            bytes,
            tag_bytes,
            content: Form::Plain,
            layout: &Sized,
        }
    }
}

/// The layout of a [`FlatEvent`] whose implementation has none: each tag and each value behind its length (u64 LE).
#[derive(Debug)]
struct Sized;

impl Sized {
    /// The values of a tag, each behind its length.
    fn tag_bytes(tag: &Tag<'_>) -> usize {
        tag.iter().map(|value| size_of::<u64>() + value.len()).sum()
    }

    fn next<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
        let (len, rest) = bytes.split_first_chunk()?;
        let (part, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
        *bytes = rest;
        Some(part)
    }
}

impl TagLayout for Sized {
    fn next_tag<'a>(&self, tags: &mut &'a [u8]) -> Option<&'a [u8]> {
        Sized::next(tags)
    }

    fn next_value<'a>(&self, tag: &mut &'a [u8]) -> Option<TextView<'a>> {
        str::from_utf8(Sized::next(tag)?).ok().map(TextView::Plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_read_as_json_means_them() {
        let cases =
            [r"", r"plain", r"\\", r#"a\"b\/\b\f\n\r\tz"#, r"\u0041\u00e4\ud83c\udf0D!", r"\n\n", r"ä\u0000"];
        for escaped in cases {
            let text: String = serde_json::from_str(&format!("\"{escaped}\"")).expect("valid JSON");
            let view = TextView::Escaped(escaped);
            assert_eq!(view.to_text(), text);
            assert!(view.is(&text) && !view.is(&format!("{text}x")) && !view.is("other"), "{escaped}");
        }
    }

    #[test]
    fn flat_events_keep_the_shape_of_tags() {
        let tags: Vec<Tag<'_>> =
            vec![vec![], vec!["".into()], vec!["e".into(), "".into(), "ä".into()], vec![], vec!["x".into()]];
        let (id, pubkey, sig) = ([1; 32], [2; 32], [5; 64]);
        let event = Event { id, pubkey, created_at: -3, kind: 4, tags, content: "c".into(), sig };
        let flat = FlatEvent::from(&event);
        assert_eq!(flat.view().to_event(), event);
        assert_eq!((flat.head, flat.sig), (EventHead::from(&event), event.sig));
    }
}
