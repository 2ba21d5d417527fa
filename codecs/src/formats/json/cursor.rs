//! Reads the usual form of JSON: any field order, any white space.

use std::borrow::Cow;

use super::{
    UNUSUAL,
    escape::{after_escape, has_special, is_special, plain_len, unescaped},
};
use crate::{
    error::DecodeError,
    hex,
    model::EventHead,
    text::{self, Letter, Value},
};

/// The fields in their usual order, as they usually follow the comma.
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
pub(super) const TAGS: usize = 4;
pub(super) const CONTENT: usize = 5;
pub(super) const SIG: usize = 6;
/// Sets of fields: the head, and all.
pub(super) const HEAD: u8 = 1 << ID | 1 << PUBKEY | 1 << CREATED_AT | 1 << KIND;
pub(super) const ALL: u8 = (1 << FIELDS.len()) - 1;

/// Room for tags that is made at once: the number that most notes have.
const FEW_TAGS: usize = 8;

/// Room for a tag's value with escapes: many such values may be in one message.
const ESCAPED_VALUE_BYTES: usize = 32;

/// A string between its quotes.
pub(super) struct Quoted<'a> {
    inside: &'a [u8],
    /// The bytes inside as text, if they are known to be UTF-8.
    text: Option<&'a str>,
    is_escaped: bool,
}

impl<'a> Quoted<'a> {
    #[inline]
    pub(super) fn text(&self) -> Result<Cow<'a, str>, DecodeError> {
        let text = match self.text {
            Some(text) => text,
            None => text::checked(self.inside, "message")?,
        };
        if self.is_escaped {
            return unescaped(text, 0, text.len()).map(|(text, _)| Cow::Owned(text));
        }
        Ok(Cow::Borrowed(text))
    }
}

/// The text that is left to be read.
#[derive(Clone, Copy)]
pub(super) struct Cursor<'a> {
    pub(super) rest: &'a [u8],
    /// The whole message, if it was checked as a whole: its end is the end of `rest`.
    text: Option<&'a str>,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Cursor { rest: bytes, text: None }
    }

    /// A cursor over a message whose UTF-8 was checked as a whole.
    pub(super) fn of_text(text: &'a str) -> Self {
        Cursor { rest: text.as_bytes(), text: Some(text) }
    }

    #[inline]
    fn skip_space(&mut self) {
        while let Some((b' ' | b'\n' | b'\r' | b'\t', rest)) = self.rest.split_first() {
            self.rest = rest;
        }
    }

    /// The next byte that is no white space, which is taken.
    #[inline]
    pub(super) fn next(&mut self) -> Result<u8, DecodeError> {
        self.skip_space();
        let (byte, rest) = self.rest.split_first().ok_or(UNUSUAL)?;
        self.rest = rest;
        Ok(*byte)
    }

    pub(super) fn expect(&mut self, byte: u8) -> Result<(), DecodeError> {
        if self.next()? == byte { Ok(()) } else { Err(UNUSUAL) }
    }

    /// Takes `byte` if it is next.
    pub(super) fn skip(&mut self, byte: u8) -> bool {
        self.skip_space();
        let rest = self.rest.strip_prefix(&[byte]);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    pub(super) fn finish(mut self) -> Result<(), DecodeError> {
        self.skip_space();
        if self.rest.is_empty() { Ok(()) } else { Err(UNUSUAL) }
    }

    /// A string; its escapes are checked, its UTF-8 is not.
    pub(super) fn string(&mut self) -> Result<Quoted<'a>, DecodeError> {
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

    /// A string as text, in one pass. `room_bytes` are a guess at the length of one with escapes.
    #[inline]
    pub(super) fn text(&mut self, room_bytes: usize) -> Result<Cow<'a, str>, DecodeError> {
        let Some(text) = self.text else { return self.string()?.text() };
        self.expect(b'"')?;
        let plain_bytes = plain_len(self.rest);
        let (plain, behind) = self.rest.split_at(plain_bytes);
        if let [b'"', rest @ ..] = behind {
            self.rest = rest;
            return Quoted { inside: plain, text: self.checked(plain_bytes), is_escaped: false }.text();
        }
        let rest = text.get(text.len() - self.rest.len()..).ok_or(UNUSUAL)?;
        let (text, rest) = unescaped(rest, plain_bytes, room_bytes)?;
        self.rest = rest.as_bytes().strip_prefix(b"\"").ok_or(UNUSUAL)?;
        Ok(Cow::Owned(text))
    }

    /// Takes a text with paired braces outside of strings, an object by its looks; nothing else is
    /// looked at.
    pub(super) fn object(&mut self) -> Result<&'a [u8], DecodeError> {
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

    /// The text of so many bytes before the quote that was taken last. Quotes are no part of other
    /// characters, so the cut is between two.
    #[inline]
    fn checked(&self, len: usize) -> Option<&'a str> {
        let text = self.text?;
        let end = text.len().checked_sub(self.rest.len() + 1)?;
        text.get(end.checked_sub(len)?..end)
    }

    /// The field whose name and colon are next: tried is the one that usually follows.
    #[inline]
    pub(super) fn field(&mut self, expected: usize) -> Result<usize, DecodeError> {
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
    pub(super) fn head_field(&mut self, field: usize, head: &mut EventHead) -> Result<(), DecodeError> {
        match field {
            ID => self.fixed(&mut head.id)?,
            PUBKEY => self.fixed(&mut head.pubkey)?,
            CREATED_AT => head.created_at = self.time()?,
            _ => head.kind = self.kind()?,
        }
        Ok(())
    }

    pub(super) fn fixed<const N: usize>(&mut self, bytes: &mut [u8; N]) -> Result<(), DecodeError> {
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

    pub(super) fn tags<V: Value<'a>>(&mut self) -> Result<Vec<Vec<V>>, DecodeError> {
        let mut tags = Vec::new();
        self.expect(b'[')?;
        if self.skip(b']') {
            return Ok(tags);
        }
        tags.reserve(FEW_TAGS);
        loop {
            self.expect(b'[')?;
            let mut tag = Vec::new();
            self.values(|cursor| {
                tag.push(cursor.value()?);
                Ok(())
            })?;
            tags.push(tag);
            match self.next()? {
                b',' => {}
                b']' => return Ok(tags),
                _ => return Err(UNUSUAL),
            }
        }
    }

    /// A tag's value. One-letter names, and values as long as a key, are recognised with their
    /// quotes.
    #[inline(always)]
    fn value<V: Value<'a>>(&mut self) -> Result<V, DecodeError> {
        if let [b'"', letter, b'"', rest @ ..] = self.rest
            && !is_special(letter)
            && let Some(letter) = Letter::new(*letter)
        {
            self.rest = rest;
            return Ok(V::of_letter(letter.text()));
        }
        if let Some(([b'"', key @ .., b'"'], rest)) = self.rest.split_first_chunk::<66>()
            && !has_special::<64>(key)
        {
            self.rest = rest;
            if let Some(value) = V::of_digits(key) {
                return Ok(value);
            }
            let quoted = Quoted { inside: key, text: self.checked(key.len()), is_escaped: false };
            return quoted.text().map(V::from);
        }
        self.text(ESCAPED_VALUE_BYTES).map(V::from)
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
