//! JSON by hand: events go straight into the caller's buffer, and one walk checks as it reads, in any field order
//! and with any white space. Unknown fields, escapes in names or hex, and numbers that are no plain integers are
//! left to the library.

use std::borrow::Cow;

use super::{Json, push_batch};
use crate::{
    Codec, DecodeError, EncodeError, Event, EventHead, TextView,
    codec::assert_batch,
    formats::tuned::{Tune, Verb},
    hex,
    model::TagLayout,
    walk::{TagSink, Walk, Walked},
};

/// JSON by hand.
#[derive(Debug)]
pub(in crate::formats) struct Hand;

impl Tune for Hand {
    const LIBRARY: &'static dyn Codec = &Json;

    fn write_event(event: &Event<'_>, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let (mut key, mut sig) = ([0; 64], [0; 128]);
        out.extend_from_slice(b"{\"id\":\"");
        out.extend_from_slice(hex::encode_array(&event.id, &mut key).as_bytes());
        out.extend_from_slice(b"\",\"pubkey\":\"");
        out.extend_from_slice(hex::encode_array(&event.pubkey, &mut key).as_bytes());
        out.extend_from_slice(b"\",\"created_at\":");
        out.extend_from_slice(itoa::Buffer::new().format(event.created_at).as_bytes());
        out.extend_from_slice(b",\"kind\":");
        out.extend_from_slice(itoa::Buffer::new().format(event.kind).as_bytes());
        out.extend_from_slice(b",\"tags\":[");
        write_list(&event.tags, out, |tag, out| {
            out.push(b'[');
            write_list(tag, out, |value, out| write_text(value, out));
            out.push(b']');
        });
        out.extend_from_slice(b"],\"content\":");
        write_text(&event.content, out);
        out.extend_from_slice(b",\"sig\":\"");
        out.extend_from_slice(hex::encode_array(&event.sig, &mut sig).as_bytes());
        out.extend_from_slice(b"\"}");
        Ok(())
    }

    fn read_head(bytes: &[u8]) -> Result<EventHead, DecodeError> {
        let (mut id, mut pubkey, mut created_at, mut kind) = (None, None, None, None);
        let mut cursor = Cursor(bytes);
        cursor.expect(b'{')?;
        loop {
            match cursor.name()? {
                b"id" => id = Some(cursor.fixed()?),
                b"pubkey" => pubkey = Some(cursor.fixed()?),
                b"created_at" => created_at = Some(cursor.time()?),
                b"kind" => kind = Some(cursor.kind()?),
                b"tags" => drop(cursor.tags(&mut Passed)?),
                b"content" | b"sig" => cursor.string().map(|_| ())?,
                _ => return Err(UNUSUAL),
            }
            if let (Some(id), Some(pubkey), Some(created_at), Some(kind)) = (id, pubkey, created_at, kind) {
                return Ok(EventHead { id, pubkey, created_at, kind });
            }
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
        let mut cursor = Cursor(bytes.strip_suffix(b"]")?.strip_prefix(EVENT)?);
        let subscription = cursor.string().ok()?.view().ok()?;
        cursor.expect(b',').ok()?;
        Some((subscription.to_text(), cursor.0))
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
        let mut cursor = Cursor(bytes.strip_prefix(EVENTS)?);
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

fn write_list<T>(items: &[T], out: &mut Vec<u8>, write: impl Fn(&T, &mut Vec<u8>)) {
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(item, out);
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
    let is_special = |byte: &u8| *byte < 0x20 || *byte == b'"' || *byte == b'\\';
    let (chunks, _) = bytes.as_chunks::<32>();
    let plain =
        chunks.iter().take_while(|chunk| !chunk.iter().fold(false, |any, byte| any | is_special(byte)));
    let mut len = 32 * plain.count();
    while let Some(chunk) = bytes[len..].first_chunk::<8>() {
        let special = special_bytes(u64::from_le_bytes(*chunk));
        if special != 0 {
            return len + special.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    len + bytes[len..].iter().position(is_special).unwrap_or(bytes.len() - len)
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

    fn walk<'a>(bytes: &'a [u8], tags: &mut impl TagSink<'a>) -> Result<Walked<'a>, DecodeError> {
        let (mut id, mut pubkey, mut created_at, mut kind) = (None, None, None, None);
        let (mut tag_bytes, mut content, mut sig) = (None, None, None);
        let mut cursor = Cursor(bytes);
        cursor.expect(b'{')?;
        loop {
            let is_first = match cursor.name()? {
                b"id" => id.replace(cursor.fixed()?).is_none(),
                b"pubkey" => pubkey.replace(cursor.fixed()?).is_none(),
                b"created_at" => created_at.replace(cursor.time()?).is_none(),
                b"kind" => kind.replace(cursor.kind()?).is_none(),
                b"tags" if tag_bytes.is_some() => false,
                b"tags" => tag_bytes.replace(cursor.tags(tags)?).is_none(),
                b"content" => content.replace(cursor.string()?.view()?).is_none(),
                b"sig" => sig.replace(cursor.fixed()?).is_none(),
                _ => false,
            };
            if !is_first {
                return Err(UNUSUAL);
            }
            match cursor.next()? {
                b',' => {}
                b'}' => break,
                _ => return Err(UNUSUAL),
            }
        }
        cursor.finish()?;
        let (Some(id), Some(pubkey), Some(created_at), Some(kind)) = (id, pubkey, created_at, kind) else {
            return Err(UNUSUAL);
        };
        let (Some(tags), Some(content), Some(sig)) = (tag_bytes, content, sig) else { return Err(UNUSUAL) };
        Ok(Walked { head: EventHead { id, pubkey, created_at, kind }, sig, content, tags })
    }
}

#[derive(Debug)]
struct Layout;

impl TagLayout for Layout {
    fn next_tag<'a>(&self, tags: &mut &'a [u8]) -> Option<&'a [u8]> {
        let mut cursor = Cursor(tags);
        cursor.skip(b',');
        cursor.expect(b'[').ok()?;
        let start = cursor.0;
        let mut inside = cursor;
        inside.values(|_| Ok(())).ok()?;
        *tags = inside.0;
        start.get(..start.len() - inside.0.len() - 1)
    }

    fn next_value<'a>(&self, tag: &mut &'a [u8]) -> Option<TextView<'a>> {
        let mut cursor = Cursor(tag);
        cursor.skip(b',');
        let value = cursor.string().ok()?;
        *tag = cursor.0;
        value.view().ok()
    }
}

/// Tags that are only passed over.
struct Passed;

impl TagSink<'_> for Passed {
    fn tag(&mut self, _room: usize) {}

    fn value(&mut self, _value: TextView<'_>) {}
}

/// A string between its quotes.
struct Quoted<'a> {
    inside: &'a [u8],
    is_escaped: bool,
}

impl<'a> Quoted<'a> {
    fn view(&self) -> Result<TextView<'a>, DecodeError> {
        let text = str::from_utf8(self.inside).map_err(|_| DecodeError::Utf8("message"))?;
        Ok(if self.is_escaped { TextView::Escaped(text) } else { TextView::Plain(text) })
    }
}

/// What is left of the text.
#[derive(Clone, Copy)]
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn skip_space(&mut self) {
        while let Some((b' ' | b'\n' | b'\r' | b'\t', rest)) = self.0.split_first() {
            self.0 = rest;
        }
    }

    /// The next byte that is no white space, which is taken.
    fn next(&mut self) -> Result<u8, DecodeError> {
        self.skip_space();
        let (byte, rest) = self.0.split_first().ok_or(UNUSUAL)?;
        self.0 = rest;
        Ok(*byte)
    }

    fn expect(&mut self, byte: u8) -> Result<(), DecodeError> {
        if self.next()? == byte { Ok(()) } else { Err(UNUSUAL) }
    }

    /// Takes `byte` if it is next.
    fn skip(&mut self, byte: u8) -> bool {
        self.skip_space();
        let rest = self.0.strip_prefix(&[byte]);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn finish(mut self) -> Result<(), DecodeError> {
        self.skip_space();
        if self.0.is_empty() { Ok(()) } else { Err(UNUSUAL) }
    }

    /// A string; its escapes are checked, its UTF-8 is not.
    fn string(&mut self) -> Result<Quoted<'a>, DecodeError> {
        self.expect(b'"')?;
        let start = self.0;
        let mut is_escaped = false;
        loop {
            self.0 = &self.0[plain_len(self.0)..];
            match self.0 {
                [b'"', rest @ ..] => {
                    self.0 = rest;
                    return Ok(Quoted { inside: &start[..start.len() - rest.len() - 1], is_escaped });
                }
                [b'\\', escape @ ..] => {
                    is_escaped = true;
                    self.0 = after_escape(escape)?;
                }
                _ => return Err(UNUSUAL), // the end, or a control character
            }
        }
    }

    /// What looks like an object: braces are paired outside of strings, and nothing else is looked at.
    fn object(&mut self) -> Result<&'a [u8], DecodeError> {
        self.skip_space();
        let start = self.0;
        let mut depth = 0_usize;
        loop {
            match self.0.first() {
                Some(b'"') => self.string().map(|_| ())?,
                Some(b'{') => {
                    depth += 1;
                    self.0 = &self.0[1..];
                }
                Some(b'}') => {
                    depth = depth.checked_sub(1).ok_or(UNUSUAL)?;
                    self.0 = &self.0[1..];
                }
                Some(_) if depth > 0 => self.0 = &self.0[1..],
                _ => return Err(UNUSUAL),
            }
            if depth == 0 {
                return Ok(&start[..start.len() - self.0.len()]);
            }
        }
    }

    /// The name of a field without escapes, and its colon.
    fn name(&mut self) -> Result<&'a [u8], DecodeError> {
        let name = self.string()?;
        self.expect(b':')?;
        if name.is_escaped { Err(UNUSUAL) } else { Ok(name.inside) }
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.expect(b'"')?;
        let (digits, rest) = self.0.split_at_checked(2 * N).ok_or(UNUSUAL)?;
        self.0 = rest.strip_prefix(b"\"").ok_or(UNUSUAL)?;
        hex::decode_array(digits).ok_or(UNUSUAL)
    }

    /// Digits without a leading zero, at most 19: enough for an i64, too few to overflow a u64.
    fn digits(&mut self) -> Result<u64, DecodeError> {
        let len = self.0.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = self.0.split_at(len);
        if len == 0 || len > 19 || (len > 1 && digits[0] == b'0') {
            return Err(UNUSUAL);
        }
        self.0 = rest;
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
        let start = self.0;
        if !self.skip(b']') {
            loop {
                self.expect(b'[')?;
                tags.tag(0);
                self.values(|value| {
                    tags.value(value.view()?);
                    Ok(())
                })?;
                match self.next()? {
                    b',' => {}
                    b']' => break,
                    _ => return Err(UNUSUAL),
                }
            }
        }
        Ok(&start[..start.len() - self.0.len() - 1])
    }

    /// Strings up to the bracket that closes their array.
    fn values(
        &mut self,
        mut each: impl FnMut(Quoted<'a>) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        if self.skip(b']') {
            return Ok(());
        }
        loop {
            each(self.string()?)?;
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
