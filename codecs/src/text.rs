//! Hostile text: long text is checked for UTF-8 with SIMD, and a single letter is looked up.
//!
//! Nearly half of the values in tags are the letter that names the tag, and nearly as many an id or
//! a key. One-letter names are `&'static str` from a table, which avoids the UTF-8 check.

use std::borrow::Cow;

use crate::{
    error::DecodeError,
    fixed::Fixed,
    hex,
    model::{ByteEvent, Event, EventHead, TagValue},
};

/// A tag's value for a tuned reader: text, or bytes if it is a key. It determines the type of the
/// event.
pub(crate) trait Value<'a>: From<Cow<'a, str>> {
    /// The event with tags of these values.
    type Event;

    /// Puts an event together.
    fn event(fixed: Fixed, tags: Vec<Vec<Self>>, content: Cow<'a, str>) -> Self::Event;

    /// A one-letter value.
    fn of_letter(letter: &'static str) -> Self;

    /// The value of 64 digits that are stored as bytes.
    fn of_key(key: &[u8; 32]) -> Self;

    /// The value of 64 bytes of text, if it is kept as bytes: they are lowercase hex digits.
    fn of_digits(_digits: &[u8; 64]) -> Option<Self> {
        None
    }
}

impl<'a> Value<'a> for Cow<'a, str> {
    type Event = Event<'a>;

    #[inline]
    fn event(fixed: Fixed, tags: Vec<Vec<Self>>, content: Cow<'a, str>) -> Event<'a> {
        fixed.event(tags, content)
    }

    #[inline]
    fn of_letter(letter: &'static str) -> Self {
        Cow::Borrowed(letter)
    }

    #[inline]
    fn of_key(key: &[u8; 32]) -> Self {
        Cow::Owned(hex::encode_array(key, &mut [0; 64]).to_owned())
    }
}

impl<'a> Value<'a> for TagValue<'a> {
    type Event = ByteEvent<'a>;

    #[inline]
    fn event(fixed: Fixed, tags: Vec<Vec<Self>>, content: Cow<'a, str>) -> ByteEvent<'a> {
        let EventHead { id, pubkey, created_at, kind } = fixed.head;
        ByteEvent { id, pubkey, created_at, kind, tags, content, sig: fixed.sig }
    }

    #[inline]
    fn of_letter(letter: &'static str) -> Self {
        TagValue::Text(Cow::Borrowed(letter))
    }

    #[inline]
    fn of_key(key: &[u8; 32]) -> Self {
        TagValue::Key(*key)
    }

    #[inline]
    fn of_digits(digits: &[u8; 64]) -> Option<Self> {
        hex::pack_key(digits).map(TagValue::Key)
    }
}

/// Text as it stands in a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Found<'a> {
    /// One ASCII character.
    Letter(Letter),
    /// 32 bytes that stand for 64 hex digits.
    Key(&'a [u8; 32]),
    /// Bytes that represent twice as many hex digits.
    Hex(&'a [u8]),
    /// Bytes that should be UTF-8.
    Bytes(&'a [u8]),
}

impl<'a> Found<'a> {
    /// Text stored under the hex rule with this shortest length: `is_bytes` must be the choice that
    /// the rule makes.
    #[inline]
    pub(crate) fn stored(
        is_bytes: bool,
        stored: &'a [u8],
        min_len: usize,
        what: &'static str,
    ) -> Result<Self, DecodeError> {
        let is_wrong = if is_bytes { 2 * stored.len() < min_len } else { hex::is_hex(stored, min_len) };
        match (is_wrong, is_bytes) {
            (true, _) => Err(DecodeError::NotCanonical(what)),
            (false, true) => Ok(Found::Hex(stored)),
            (false, false) => Ok(Found::Bytes(stored)),
        }
    }

    /// The text; borrowed unless it stands for hex digits.
    #[inline]
    pub(crate) fn text(self, what: &'static str) -> Result<Cow<'a, str>, DecodeError> {
        self.value(what)
    }

    /// The value of a tag.
    #[inline]
    pub(crate) fn value<V: Value<'a>>(self, what: &'static str) -> Result<V, DecodeError> {
        Ok(match self {
            Found::Letter(letter) => V::of_letter(letter.text()),
            Found::Key(bytes) => V::of_key(bytes),
            Found::Hex(bytes) => V::from(Cow::Owned(hex::encode(bytes))),
            Found::Bytes(bytes) => match bytes.try_into().ok().and_then(V::of_digits) {
                Some(value) => value,
                None => V::from(Cow::Borrowed(checked(bytes, what)?)),
            },
        })
    }
}

/// `bytes` as text.
pub(crate) fn checked<'a>(bytes: &'a [u8], what: &'static str) -> Result<&'a str, DecodeError> {
    // Below 64 bytes this asks the standard library.
    simdutf8::basic::from_utf8(bytes).map_err(|_| DecodeError::Utf8(what))
}

/// One ASCII character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Letter(u8);

impl Letter {
    /// The letter that this byte is, if it is one.
    #[inline]
    pub(crate) fn new(byte: u8) -> Option<Letter> {
        byte.is_ascii().then_some(Letter(byte))
    }

    /// Its text, from a table.
    #[inline]
    pub(crate) fn text(self) -> &'static str {
        LETTERS[usize::from(self.0 & 0x7f)]
    }
}

static LETTERS: [&str; 128] = {
    let mut letters = [""; 128];
    let mut rest: &[u8] = &ASCII;
    while let Some((letter, after)) = rest.split_at_checked(1) {
        if let Ok(text) = str::from_utf8(letter) {
            letters[128 - rest.len()] = text;
        }
        rest = after;
    }
    letters
};

static ASCII: [u8; 128] = {
    let mut ascii = [0; 128];
    let mut byte = 0;
    while byte < 128 {
        ascii[byte as usize] = byte;
        byte += 1;
    }
    ascii
};

/// Characters of a peer's words that are shown.
const QUOTED_CHARS: usize = 200;

/// A peer's words for people: short, on one line and harmless to a terminal.
pub fn quoted(text: &str) -> String {
    quoted_up_to(text, QUOTED_CHARS)
}

/// What a program wrote, for people: a line break and two spaces before each line, which is as
/// [`quoted`].
pub fn quoted_lines(text: &str) -> String {
    text.lines().map(|line| format!("\n  {}", quoted(line))).collect()
}

/// [`quoted`] of at most so many characters.
pub fn quoted_up_to(text: &str, most: usize) -> String {
    let mut quoted = String::new();
    for (n, char) in text.chars().enumerate() {
        match char {
            _ if n == most => {
                quoted.push('…');
                break;
            }
            '"' | '\'' | '\\' => quoted.push(char),
            _ => quoted.extend(char.escape_debug()),
        }
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_byte_is_what_the_standard_library_says() {
        for byte in 0..=255 {
            let bytes = [byte];
            let expected = str::from_utf8(&bytes);
            assert_eq!(checked(&bytes, "text").ok(), expected.ok());
            assert_eq!(Letter::new(byte).map(Letter::text), expected.ok());
        }
    }

    /// Every length around the widths of SIMD, with a broken byte at every place.
    #[test]
    fn a_broken_byte_is_found_anywhere() {
        for len in (1..70).chain([127, 128, 129, 130, 200]) {
            let mut bytes = vec![b'a'; len];
            assert!(checked(&bytes, "text").is_ok());
            for place in 0..len {
                bytes[place] = 0xe4;
                assert_eq!(checked(&bytes, "text"), Err(DecodeError::Utf8("text")), "{place} of {len}");
                bytes[place] = b'a';
            }
        }
    }

    #[test]
    fn quotes_are_short_and_hold_nothing_that_moves_a_cursor() {
        let quote = quoted(&format!("[\"NOTICE\",\"\u{1b}[2J\r\n\u{202e}{}\"]", "ä".repeat(1_000)));
        assert!(quote.starts_with("[\"NOTICE\",\"\\u{1b}[2J\\r\\n\\u{202e}ää"), "{quote}");
        assert!(quote.chars().count() < 2 * QUOTED_CHARS && quote.ends_with("ä…"), "{quote}");
        assert_eq!(quoted(&quote[..30]), quote[..30], "a quote of a quote is the same");
        assert_eq!(quoted_lines("one\u{1b}[2J\r\ntwo\rthree\n"), "\n  one\\u{1b}[2J\n  two\\rthree");
    }
}
