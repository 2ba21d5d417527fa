//! JSON, tuned: events go straight into the caller's buffer, and are read in one pass that checks,
//! in any field order and with any white space. Unknown fields, escapes in names or hex, and
//! numbers that are no plain integers are left to the library.

use std::borrow::Cow;

use super::{
    Json, UNUSUAL,
    cursor::{ALL, CONTENT, Cursor, HEAD, SIG, TAGS},
    escape::{has_special, is_special, write_text},
    push_batch, read_array,
};
use crate::{
    Codec, DecodeError, EncodeError, Event, EventHead, Tag,
    codec::assert_batch,
    fixed::Fixed,
    formats::tuned::{TunedFormat, Verb},
    hex,
    text::{self, Value},
};

/// Tuned JSON.
#[derive(Debug)]
pub(in crate::formats) struct TunedJson;

impl TunedFormat for TunedJson {
    const LIBRARY: &'static dyn Codec = &Json;

    fn write_event(event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut start = [0; 162];
        start[..7].copy_from_slice(b"{\"id\":\"");
        hex::encode_to(&event.id, &mut start[7..71]);
        start[71..83].copy_from_slice(b"\",\"pubkey\":\"");
        hex::encode_to(&event.pubkey, &mut start[83..147]);
        start[147..].copy_from_slice(b"\",\"created_at\":");
        out.extend_from_slice(&start);
        out.extend_from_slice(itoa::Buffer::new().format(event.created_at).as_bytes());
        out.extend_from_slice(b",\"kind\":");
        out.extend_from_slice(itoa::Buffer::new().format(event.kind).as_bytes());
        out.extend_from_slice(b",\"tags\":[");
        write_tags(&event.tags, out);
        out.extend_from_slice(b"],\"content\":");
        write_text(&event.content, out);
        let mut end = [0; 138];
        end[..8].copy_from_slice(b",\"sig\":\"");
        hex::encode_to(&event.sig, &mut end[8..136]);
        end[136..].copy_from_slice(b"\"}");
        out.extend_from_slice(&end);
        Ok(())
    }

    fn read<'a, V: Value<'a>>(bytes: &'a [u8]) -> Result<V::Event, DecodeError> {
        let (mut fixed, mut tags, mut content) = (Fixed::BLANK, Vec::new(), Cow::Borrowed(""));
        let (mut seen, mut expected) = (0, 0);
        let mut cursor = Cursor::of_text(text::checked(bytes, "message")?);
        cursor.expect(b'{')?;
        loop {
            let field = cursor.field(expected)?;
            if seen & 1 << field != 0 {
                return Err(UNUSUAL);
            }
            match field {
                TAGS => tags = cursor.tags()?,
                CONTENT => content = cursor.text(cursor.rest.len())?,
                SIG => cursor.fixed(&mut fixed.sig)?,
                _ => cursor.head_field(field, &mut fixed.head)?,
            }
            seen |= 1 << field;
            expected = field + 1;
            match cursor.next()? {
                b',' => {}
                b'}' => break,
                _ => return Err(UNUSUAL),
            }
        }
        cursor.finish()?;
        if seen == ALL { Ok(V::event(fixed, tags, content)) } else { Err(UNUSUAL) }
    }

    fn read_head(bytes: &[u8]) -> Result<EventHead, DecodeError> {
        let (mut fixed, mut seen, mut expected) = (Fixed::BLANK, 0, 0);
        let mut cursor = Cursor::new(bytes);
        cursor.expect(b'{')?;
        loop {
            let field = cursor.field(expected)?;
            match field {
                TAGS => cursor.tags::<Cow<'_, str>>().map(drop)?,
                CONTENT | SIG => cursor.string().map(|_| ())?,
                _ => cursor.head_field(field, &mut fixed.head)?,
            }
            seen |= 1 << field;
            if seen & HEAD == HEAD {
                return Ok(fixed.head);
            }
            expected = field + 1;
            cursor.expect(b',')?;
        }
    }

    fn write_client(verb: Verb, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.extend_from_slice(if verb == Verb::Event { EVENT } else { AUTH });
        Self::write_event(event, out)?;
        out.push(b']');
        Ok(())
    }

    fn split_client(bytes: &[u8]) -> Option<(Verb, &[u8])> {
        let message = bytes.strip_suffix(b"]")?;
        match message.strip_prefix(EVENT) {
            Some(event) => Some((Verb::Event, event)),
            None => message.strip_prefix(AUTH).map(|event| (Verb::Auth, event)),
        }
    }

    fn write_relay(subscription: &str, event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        out.extend_from_slice(EVENT);
        write_text(subscription, out);
        out.push(b',');
        Self::write_event(event, out)?;
        out.push(b']');
        Ok(())
    }

    fn split_relay(bytes: &[u8]) -> Option<(Cow<'_, str>, &[u8])> {
        let mut cursor = Cursor::new(bytes.strip_suffix(b"]")?.strip_prefix(EVENT)?);
        let subscription = cursor.string().ok()?.text().ok()?;
        cursor.expect(b',').ok()?;
        Some((subscription, cursor.rest))
    }

    fn write_ok(id: &[u8; 32], accepted: bool, text: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut start = [0; 71];
        start[..7].copy_from_slice(b"[\"OK\",\"");
        hex::encode_to(id, &mut start[7..]);
        out.extend_from_slice(&start);
        let verdict: &[u8] = if accepted { b"\",true," } else { b"\",false," };
        out.extend_from_slice(verdict);
        write_text(text, out);
        out.push(b']');
        Ok(())
    }

    fn around(subscription: &str, _event: &[u8], out: &mut Vec<u8>) -> &'static [u8] {
        out.extend_from_slice(EVENT);
        write_text(subscription, out);
        out.push(b',');
        b"]"
    }

    fn split_batch<'a>(
        bytes: &'a [u8],
        mut each: impl FnMut(&'a [u8]) -> Option<()>,
    ) -> Option<Cow<'a, str>> {
        let mut cursor = Cursor::new(bytes.strip_prefix(EVENTS)?);
        let subscription = cursor.string().ok()?.text().ok()?;
        cursor.expect(b',').ok()?;
        cursor.expect(b'[').ok()?;
        loop {
            each(cursor.object().ok()?)?;
            match cursor.next().ok()? {
                b',' => {}
                b']' => break,
                _ => return None,
            }
        }
        cursor.expect(b']').ok()?;
        cursor.finish().ok()?;
        Some(subscription)
    }

    fn wrap_batch(subscription: &str, events: &[&[u8]], out: &mut Vec<u8>) {
        assert_batch(events);
        out.extend_from_slice(EVENTS);
        write_text(subscription, out);
        push_batch(events, out);
    }
}

/// The events of an array; the library reads unusual forms.
pub(in crate::formats) fn read_tuned_array(bytes: &[u8]) -> Result<Vec<Event<'_>>, DecodeError> {
    read_usual_array(bytes).or_else(|_| read_array(bytes))
}

fn read_usual_array(bytes: &[u8]) -> Result<Vec<Event<'_>>, DecodeError> {
    let mut cursor = Cursor::new(bytes);
    let mut events = Vec::new();
    cursor.expect(b'[')?;
    if !cursor.skip(b']') {
        loop {
            events.push(TunedJson::read_event(cursor.object()?)?);
            match cursor.next()? {
                b',' => {}
                b']' => break,
                _ => return Err(UNUSUAL),
            }
        }
    }
    cursor.finish().map(|()| events)
}

const EVENTS: &[u8] = b"[\"EVENTS\",";
const EVENT: &[u8] = b"[\"EVENT\",";
const AUTH: &[u8] = b"[\"AUTH\",";

// --- writing ---

fn write_tags(tags: &[Tag<'_>], out: &mut Vec<u8>) {
    for (index, tag) in tags.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        let Some((name, values)) = tag.split_first() else {
            out.extend_from_slice(b"[]");
            continue;
        };
        write_behind(b'[', name, out);
        values.iter().for_each(|value| write_behind(b',', value, out));
        out.push(b']');
    }
}

/// A value and the byte before it. Letters and keys, nearly all of what there is, are written with
/// both quotes at once.
fn write_behind(before: u8, text: &str, out: &mut Vec<u8>) {
    if let [letter] = text.as_bytes()
        && !is_special(letter)
    {
        out.extend_from_slice(&[before, b'"', *letter, b'"']);
    } else if let Ok(key) = <&[u8; 64]>::try_from(text.as_bytes())
        && !has_special(key)
    {
        let mut quoted = [b'"'; 67];
        quoted[0] = before;
        quoted[2..66].copy_from_slice(key);
        out.extend_from_slice(&quoted);
    } else {
        out.push(before);
        write_text(text, out);
    }
}
