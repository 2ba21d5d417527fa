//! Text from strangers: UTF-8 checked with SIMD where it is long, and looked up where it is one letter.
//!
//! Of the values in tags nearly half are the one letter that names the tag, and nearly as many an id or a key. The
//! letters stand ready in a table, which spares a reader the check and an owner the allocation.

use std::borrow::Cow;

use crate::{DecodeError, TextView, hex};

/// Text as it is found in a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Found<'a> {
    /// One ASCII character.
    Letter(Letter),
    /// 32 bytes that stand for 64 hex digits.
    Key(&'a [u8; 32]),
    /// Bytes that stand for twice as many hex digits.
    Hex(&'a [u8]),
    /// Bytes that should be UTF-8.
    Bytes(&'a [u8]),
    /// Text whose UTF-8 was checked.
    Text(TextView<'a>),
}

impl<'a> Found<'a> {
    /// Whether it is text.
    #[inline]
    pub(crate) fn check(self, what: &'static str) -> Result<(), DecodeError> {
        match self {
            Found::Bytes(bytes) if !is_valid(bytes) => Err(DecodeError::Utf8(what)),
            _ => Ok(()),
        }
    }

    /// The text, where it is.
    #[inline]
    pub(crate) fn view(self, what: &'static str) -> Result<TextView<'a>, DecodeError> {
        Ok(match self {
            Found::Letter(letter) => TextView::Plain(letter.text()),
            Found::Key(bytes) => TextView::Hex(bytes),
            Found::Hex(bytes) => TextView::Hex(bytes),
            Found::Bytes(bytes) => TextView::Plain(checked(bytes, what)?),
            Found::Text(text) => text,
        })
    }

    /// The text, owned, but for letters: those are there for ever.
    #[inline(always)]
    pub(crate) fn own(self, what: &'static str) -> Result<Cow<'static, str>, DecodeError> {
        Ok(match self {
            Found::Letter(letter) => Cow::Borrowed(letter.text()),
            Found::Key(bytes) => Cow::Owned(hex::encode_array(bytes, &mut [0; 64]).to_owned()),
            Found::Bytes(bytes) => Cow::Owned(checked(bytes, what)?.to_owned()),
            Found::Hex(bytes) => Cow::Owned(hex::encode(bytes)),
            Found::Text(text) => Cow::Owned(text.to_text().into_owned()),
        })
    }
}

/// Whether `bytes` are UTF-8: [`checked`] for those who do not need the text, quicker where it is short and ASCII.
pub(crate) fn is_valid(bytes: &[u8]) -> bool {
    is_short_ascii(bytes) || checked(bytes, "").is_ok()
}

/// Whether these are at most 128 bytes, all ASCII: seen by a look at each end, of which one may cover both.
#[inline]
fn is_short_ascii(bytes: &[u8]) -> bool {
    match bytes.len() {
        0..4 => bytes.is_ascii(),
        4..8 => both_ends_are_ascii::<4>(bytes),
        8..16 => both_ends_are_ascii::<8>(bytes),
        16..32 => both_ends_are_ascii::<16>(bytes),
        32..64 => both_ends_are_ascii::<32>(bytes),
        64..=128 => both_ends_are_ascii::<64>(bytes),
        _ => false,
    }
}

/// Whether the first and the last `N` bytes are ASCII; the compiler makes SIMD of it.
#[inline]
fn both_ends_are_ascii<const N: usize>(bytes: &[u8]) -> bool {
    let (Some(first), Some(last)) = (bytes.first_chunk::<N>(), bytes.last_chunk::<N>()) else { return false };
    let all_bits = |bytes: &[u8; N]| bytes.iter().fold(0, |all, byte| all | byte);
    (all_bits(first) | all_bits(last)).is_ascii()
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

    /// Its text, which is there for ever.
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
            assert!(checked(&bytes, "text").is_ok() && is_valid(&bytes));
            for place in 0..len {
                bytes[place] = 0xe4;
                assert_eq!(checked(&bytes, "text"), Err(DecodeError::Utf8("text")), "{place} of {len}");
                assert!(!is_valid(&bytes), "{place} of {len}");
                bytes[place] = b'a';
            }
        }
    }

    #[test]
    fn text_beyond_ascii_is_valid_at_any_length() {
        for len in 0..70 {
            let text = "ä".repeat(len);
            assert!(is_valid(text.as_bytes()), "{len}");
            assert_eq!(is_valid(&text.as_bytes()[..text.len().saturating_sub(1)]), len == 0, "{len}");
        }
    }
}
