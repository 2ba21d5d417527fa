//! Recognises the text that encoders write, without writing it.
//!
//! Lengths decide. Among all texts of one event, the encoders' is the shortest: no white space, no
//! unknown field, no needless escape. A text of that length differs from it only in the order of
//! the fields, and in the case of the digits of `\u00XX`, which stands for a control character
//! without a shorter escape. So each name is expected at its place, and an event with such a
//! character is not recognised.

use std::borrow::Cow;

use super::escape::plain_len;
use crate::Event;

/// Whether `text`, which was read as `event`, is what encoders write for it. Costs a few
/// comparisons for each value of a tag: only values that had escapes are looked at.
pub(in crate::formats) fn is_canonical(text: &[u8], event: &Event<'_>) -> bool {
    skip_event(text, event) == Some(b"")
}

fn skip_event<'t>(text: &'t [u8], event: &Event<'_>) -> Option<&'t [u8]> {
    let mut number = itoa::Buffer::new();
    let rest = text.strip_prefix(b"{\"id\":\"")?.get(64..)?;
    let rest = rest.strip_prefix(b"\",\"pubkey\":\"")?.get(64..)?;
    let rest = rest.strip_prefix(b"\",\"created_at\":")?;
    let rest = rest.strip_prefix(number.format(event.created_at).as_bytes())?;
    let rest = rest.strip_prefix(b",\"kind\":")?.strip_prefix(number.format(event.kind).as_bytes())?;
    let rest = rest.strip_prefix(b",\"tags\":[")?.get(tags_len(event)?..)?;
    let rest = rest.strip_prefix(b"],\"content\":")?.get(quoted_len(&event.content)?..)?;
    rest.strip_prefix(b",\"sig\":\"")?.get(128..)?.strip_prefix(b"\"}")
}

/// Bytes between the brackets around the tags.
fn tags_len(event: &Event<'_>) -> Option<usize> {
    let mut len = event.tags.len().saturating_sub(1);
    for tag in &event.tags {
        len += 2 + tag.len().saturating_sub(1);
        for value in tag {
            len += quoted_len(value)?;
        }
    }
    Some(len)
}

/// Bytes of a text and its quotes; `None` if it has two forms of that length. Borrowed text had no
/// escapes.
#[expect(clippy::ptr_arg, reason = "a text that is owned had escapes")]
fn quoted_len(text: &Cow<'_, str>) -> Option<usize> {
    let Cow::Owned(text) = text else { return Some(2 + text.len()) };
    let (mut rest, mut len) = (text.as_bytes(), 2 + text.len());
    while let [special, after @ ..] = &rest[plain_len(rest)..] {
        if !matches!(special, b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c) {
            return None;
        }
        len += 1;
        rest = after;
    }
    Some(len)
}
