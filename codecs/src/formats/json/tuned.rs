//! JSON by hand: events go straight into the caller's buffer, and one walk checks as it reads, in any field order
//! and with any white space. Unknown fields, escapes in names or hex, and numbers that are no plain integers are
//! left to the library.

use std::borrow::Cow;

use super::{Json, push_batch};
use crate::{
    Codec, DecodeError, EncodeError, Event, EventHead, Tag, TextView,
    codec::assert_batch,
    formats::tuned::{Tune, Verb},
    hex,
    model::TagLayout,
    text::{self, Found, Letter},
    walk::{Checked, Fixed, TagSink, VALUE, Walk, Walked},
};

/// JSON by hand.
#[derive(Debug)]
pub(in crate::formats) struct Hand;

impl Tune for Hand {
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

    fn read_head(bytes: &[u8]) -> Result<EventHead, DecodeError> {
        let (mut fixed, mut seen, mut expected) = (Fixed::BLANK, 0, 0);
        let mut cursor = Cursor::new(bytes);
        cursor.expect(b'{')?;
        loop {
            let field = cursor.field(expected)?;
            match field {
                TAGS => cursor.tags(&mut Checked).map(|_| ())?,
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
        let subscription = cursor.string().ok()?.view().ok()?;
        cursor.expect(b',').ok()?;
        Some((subscription.to_text(), cursor.rest))
    }

    fn wrap(subscription: &str, event: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(EVENT);
        write_text(subscription, out);
        out.push(b',');
        out.extend_from_slice(event);
        out.push(b']');
    }

    fn split_batch<'a>(
        bytes: &'a [u8],
        mut each: impl FnMut(&'a [u8]) -> Option<()>,
    ) -> Option<Cow<'a, str>> {
        let mut cursor = Cursor::new(bytes.strip_prefix(EVENTS)?);
        let subscription = cursor.string().ok()?.view().ok()?;
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
        Some(subscription.to_text())
    }

    fn wrap_batch(subscription: &str, events: &[&[u8]], out: &mut Vec<u8>) {
        assert_batch(events);
        out.extend_from_slice(EVENTS);
        write_text(subscription, out);
        push_batch(events, out);
    }
}

const EVENTS: &[u8] = b"[\"EVENTS\",";
const EVENT: &[u8] = b"[\"EVENT\",";
const AUTH: &[u8] = b"[\"AUTH\",";

// --- writing -------------------------------------------------------------------------------------------------

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

/// A value and the byte before it. Letters and keys, nearly all of what there is, are written with both quotes at
/// once.
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

fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let (run, special) = rest.split_at(plain_len(rest));
        out.extend_from_slice(run);
        let Some((byte, after)) = special.split_first() else { break };
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            control => {
                out.extend_from_slice(b"\\u00");
                hex::encode_into(&[*control], out);
            }
        }
        rest = after;
    }
    out.push(b'"');
}

/// How many bytes stand before the first quote, backslash or control character. Long runs go by 32 bytes, which
/// the compiler does with SIMD; the last few by 8 at a time.
fn plain_len(bytes: &[u8]) -> usize {
    let (chunks, _) = bytes.as_chunks::<32>();
    let mut len = 32 * chunks.iter().take_while(|chunk| !has_special(chunk)).count();
    while let Some(chunk) = bytes[len..].first_chunk::<8>() {
        let special = special_bytes(u64::from_le_bytes(*chunk));
        if special != 0 {
            return len + special.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    len + bytes[len..].iter().position(is_special).unwrap_or(bytes.len() - len)
}

#[inline]
fn has_special<const N: usize>(bytes: &[u8; N]) -> bool {
    bytes.iter().fold(false, |any, byte| any | is_special(byte))
}

#[inline]
fn is_special(byte: &u8) -> bool {
    *byte < 0x20 || *byte == b'"' || *byte == b'\\'
}

/// The high bit of each special byte. Bits above the lowest that is set may be wrong: borrows run upwards.
fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
    let is_zero = |word: u64| word.wrapping_sub(ONES) & !word;
    let is_control = word.wrapping_sub(ONES * 0x20) & !word;
    (is_control | is_zero(word ^ (ONES * u64::from(b'"'))) | is_zero(word ^ (ONES * u64::from(b'\\')))) & HIGH
}

// --- reading -------------------------------------------------------------------------------------------------

/// Sends the caller to the library, which knows whether the form is unusual or wrong.
const UNUSUAL: DecodeError = DecodeError::Malformed("JSON");

impl Walk for Hand {
    const LAYOUT: &'static dyn TagLayout = &Layout;

    #[inline]
    fn walk<'a>(
        bytes: &'a [u8],
        fixed: &mut Fixed,
        tags: &mut impl TagSink<'a>,
    ) -> Result<Walked<'a>, DecodeError> {
        let text = text::checked(bytes, "message")?;
        let (mut tag_bytes, mut content) = (&bytes[..0], TextView::Plain(""));
        let (mut seen, mut expected) = (0, 0);
        let mut cursor = Cursor { rest: bytes, text: Some(text) };
        cursor.expect(b'{')?;
        loop {
            let field = cursor.field(expected)?;
            if seen & 1 << field != 0 {
                return Err(UNUSUAL);
            }
            match field {
                TAGS => tag_bytes = cursor.tags(tags)?,
                CONTENT => content = cursor.string()?.view()?,
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
        if seen == ALL { Ok(Walked { content: Found::Text(content), tags: tag_bytes }) } else { Err(UNUSUAL) }
    }
}

/// The fields in their usual order, as they are usually written behind the comma.
const FIELDS: [&[u8]; 7] = [
    b"\"id\":",
    b"\"pubkey\":",
    b"\"created_at\":",
    b"\"kind\":",
    b"\"tags\":",
    b"\"content\":",
    b"\"sig\":",
];
// Their places there.
const ID: usize = 0;
const PUBKEY: usize = 1;
const CREATED_AT: usize = 2;
const KIND: usize = 3;
const TAGS: usize = 4;
const CONTENT: usize = 5;
const SIG: usize = 6;
/// Sets of fields: the head, and all.
const HEAD: u8 = 1 << ID | 1 << PUBKEY | 1 << CREATED_AT | 1 << KIND;
const ALL: u8 = (1 << FIELDS.len()) - 1;

#[derive(Debug)]
struct Layout;

impl TagLayout for Layout {
    fn next_tag<'a>(&self, tags: &mut &'a [u8]) -> Option<&'a [u8]> {
        let mut cursor = Cursor::new(tags);
        cursor.skip(b',');
        cursor.expect(b'[').ok()?;
        let start = cursor.rest;
        let mut inside = cursor;
        inside.values(|cursor| cursor.string().map(|_| ())).ok()?;
        *tags = inside.rest;
        start.get(..start.len() - inside.rest.len() - 1)
    }

    fn next_value<'a>(&self, tag: &mut &'a [u8]) -> Option<TextView<'a>> {
        let mut cursor = Cursor::new(tag);
        cursor.skip(b',');
        let value = cursor.value().ok()?;
        *tag = cursor.rest;
        value.view(VALUE).ok()
    }
}

/// A string between its quotes.
struct Quoted<'a> {
    inside: &'a [u8],
    /// The same, where it is known to be UTF-8.
    text: Option<&'a str>,
    is_escaped: bool,
}

impl<'a> Quoted<'a> {
    fn view(&self) -> Result<TextView<'a>, DecodeError> {
        let text = match self.text {
            Some(text) => text,
            None => text::checked(self.inside, "message")?,
        };
        Ok(if self.is_escaped { TextView::Escaped(text) } else { TextView::Plain(text) })
    }
}

/// What is left to be read.
#[derive(Clone, Copy)]
struct Cursor<'a> {
    rest: &'a [u8],
    /// All of the message, where it was checked as a whole: its end is the end of `rest`.
    text: Option<&'a str>,
}

impl<'a> Cursor<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Cursor { rest: bytes, text: None }
    }

    #[inline]
    fn skip_space(&mut self) {
        while let Some((b' ' | b'\n' | b'\r' | b'\t', rest)) = self.rest.split_first() {
            self.rest = rest;
        }
    }

    /// The next byte that is no white space, which is taken.
    #[inline]
    fn next(&mut self) -> Result<u8, DecodeError> {
        self.skip_space();
        let (byte, rest) = self.rest.split_first().ok_or(UNUSUAL)?;
        self.rest = rest;
        Ok(*byte)
    }

    fn expect(&mut self, byte: u8) -> Result<(), DecodeError> {
        if self.next()? == byte { Ok(()) } else { Err(UNUSUAL) }
    }

    /// Takes `byte` if it is next.
    fn skip(&mut self, byte: u8) -> bool {
        self.skip_space();
        let rest = self.rest.strip_prefix(&[byte]);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn finish(mut self) -> Result<(), DecodeError> {
        self.skip_space();
        if self.rest.is_empty() { Ok(()) } else { Err(UNUSUAL) }
    }

    /// A string; its escapes are checked, its UTF-8 is not.
    fn string(&mut self) -> Result<Quoted<'a>, DecodeError> {
        self.expect(b'"')?;
        let start = self.rest;
        let mut is_escaped = false;
        loop {
            self.rest = &self.rest[plain_len(self.rest)..];
            match self.rest {
                [b'"', rest @ ..] => {
                    self.rest = rest;
                    let inside = &start[..start.len() - rest.len() - 1];
                    return Ok(Quoted { inside, text: self.checked(inside.len()), is_escaped });
                }
                [b'\\', escape @ ..] => {
                    is_escaped = true;
                    self.rest = after_escape(escape)?;
                }
                _ => return Err(UNUSUAL), // the end, or a control character
            }
        }
    }

    /// What looks like an object: braces are paired outside of strings, and nothing else is looked at.
    fn object(&mut self) -> Result<&'a [u8], DecodeError> {
        self.skip_space();
        let start = self.rest;
        let mut depth = 0_usize;
        loop {
            match self.rest.first() {
                Some(b'"') => self.string().map(|_| ())?,
                Some(b'{') => {
                    depth += 1;
                    self.rest = &self.rest[1..];
                }
                Some(b'}') => {
                    depth = depth.checked_sub(1).ok_or(UNUSUAL)?;
                    self.rest = &self.rest[1..];
                }
                Some(_) if depth > 0 => self.rest = &self.rest[1..],
                _ => return Err(UNUSUAL),
            }
            if depth == 0 {
                return Ok(&start[..start.len() - self.rest.len()]);
            }
        }
    }

    /// The text of so many bytes before the quote that was taken last. Quotes are no part of other characters, so
    /// the cut is between two.
    #[inline]
    fn checked(&self, len: usize) -> Option<&'a str> {
        let text = self.text?;
        let end = text.len().checked_sub(self.rest.len() + 1)?;
        text.get(end.checked_sub(len)?..end)
    }

    /// The field whose name and colon are next: tried is the one that usually follows.
    #[inline]
    fn field(&mut self, expected: usize) -> Result<usize, DecodeError> {
        if let Some(name) = FIELDS.get(expected)
            && let Some(rest) = self.rest.strip_prefix(*name)
        {
            self.rest = rest;
            return Ok(expected);
        }
        self.any_field()
    }

    fn any_field(&mut self) -> Result<usize, DecodeError> {
        let name = self.string()?;
        self.expect(b':')?;
        let is_name = |field: &&[u8]| field.get(1..field.len() - 2) == Some(name.inside);
        FIELDS.iter().position(is_name).ok_or(UNUSUAL)
    }

    /// The value of one of the first four fields.
    #[inline]
    fn head_field(&mut self, field: usize, head: &mut EventHead) -> Result<(), DecodeError> {
        match field {
            ID => self.fixed(&mut head.id)?,
            PUBKEY => self.fixed(&mut head.pubkey)?,
            CREATED_AT => head.created_at = self.time()?,
            _ => head.kind = self.kind()?,
        }
        Ok(())
    }

    fn fixed<const N: usize>(&mut self, bytes: &mut [u8; N]) -> Result<(), DecodeError> {
        self.expect(b'"')?;
        let (digits, rest) = self.rest.split_at_checked(2 * N).ok_or(UNUSUAL)?;
        self.rest = rest.strip_prefix(b"\"").ok_or(UNUSUAL)?;
        if hex::decode_to(digits, bytes) { Ok(()) } else { Err(UNUSUAL) }
    }

    /// Digits without a leading zero, at most 19: enough for an i64, too few to overflow a u64.
    fn digits(&mut self) -> Result<u64, DecodeError> {
        let len = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.rest.split_at(len);
        if len == 0 || len > 19 || (len > 1 && digits[0] == b'0') {
            return Err(UNUSUAL);
        }
        self.rest = rest;
        Ok(digits.iter().fold(0, |value, digit| 10 * value + u64::from(digit - b'0')))
    }

    fn time(&mut self) -> Result<i64, DecodeError> {
        let is_negative = self.skip(b'-');
        let size = i64::try_from(self.digits()?).map_err(|_| UNUSUAL)?;
        match (is_negative, size) {
            (false, size) => Ok(size),
            (true, 1..) => Ok(-size),
            (true, _) => Err(UNUSUAL), // a float
        }
    }

    fn kind(&mut self) -> Result<u16, DecodeError> {
        self.skip_space();
        u16::try_from(self.digits()?).map_err(|_| UNUSUAL)
    }

    /// The array of tags, and what stands in it.
    fn tags(&mut self, tags: &mut impl TagSink<'a>) -> Result<&'a [u8], DecodeError> {
        self.expect(b'[')?;
        let start = self.rest;
        if !self.skip(b']') {
            loop {
                self.expect(b'[')?;
                tags.tag(|| 0);
                self.values(|cursor| tags.value(cursor.value()?))?;
                match self.next()? {
                    b',' => {}
                    b']' => break,
                    _ => return Err(UNUSUAL),
                }
            }
        }
        Ok(&start[..start.len() - self.rest.len() - 1])
    }

    /// A string, its UTF-8 checked; names of one letter at a glance.
    #[inline(always)]
    fn value(&mut self) -> Result<Found<'a>, DecodeError> {
        if let [b'"', letter, b'"', rest @ ..] = self.rest
            && !is_special(letter)
            && let Some(letter) = Letter::new(*letter)
        {
            self.rest = rest;
            return Ok(Found::Letter(letter));
        }
        self.string()?.view().map(Found::Text)
    }

    /// Strings up to the bracket that closes their array.
    #[inline]
    fn values(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        if self.skip(b']') {
            return Ok(());
        }
        loop {
            each(self)?;
            match self.next()? {
                b',' => {}
                b']' => return Ok(()),
                _ => return Err(UNUSUAL),
            }
        }
    }
}

/// What follows an escape, whose backslash is taken already.
fn after_escape(escape: &[u8]) -> Result<&[u8], DecodeError> {
    match escape {
        [b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't', rest @ ..] => Ok(rest),
        [b'u', rest @ ..] => {
            let (unit, rest) = utf16_unit(rest)?;
            if !matches!(unit, 0xd800..=0xdfff) {
                return Ok(rest);
            }
            // Half of a pair, which must be the first half and be followed by the second.
            let (second, rest) = utf16_unit(rest.strip_prefix(b"\\u").ok_or(UNUSUAL)?)?;
            match (unit, second) {
                (0xd800..=0xdbff, 0xdc00..=0xdfff) => Ok(rest),
                _ => Err(UNUSUAL),
            }
        }
        _ => Err(UNUSUAL),
    }
}

fn utf16_unit(digits: &[u8]) -> Result<(u16, &[u8]), DecodeError> {
    let (digits, rest) = digits.split_first_chunk::<4>().ok_or(UNUSUAL)?;
    let unit = digits.iter().try_fold(0, |unit, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(unit << 4 | u16::try_from(digit).ok()?)
    });
    Ok((unit.ok_or(UNUSUAL)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte at every place of every length that the chunks treat differently.
    #[test]
    fn plain_runs_end_at_the_first_special_byte() {
        for len in [1, 7, 8, 9, 31, 32, 33, 40, 63, 64, 65, 72] {
            for place in 0..len {
                for byte in 0..=255_u8 {
                    let mut text = vec![b'a'; len];
                    text[place] = byte;
                    let is_special = byte < 0x20 || byte == b'"' || byte == b'\\';
                    let expected = if is_special { place } else { len };
                    assert_eq!(plain_len(&text), expected, "{byte:#x} at {place} of {len}");
                    text[len - 1] = b'"';
                    assert_eq!(plain_len(&text), expected.min(len - 1), "{byte:#x} at {place} of {len}");
                }
            }
        }
    }
}
