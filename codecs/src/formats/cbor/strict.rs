//! The strict profile that ciborium cannot enforce: one well-formed item in preferred serialization
//! (RFC 8949 §4.1), definite lengths only, nothing after it.

use crate::DecodeError;

/// Deepest nesting. An event inside a message needs 4 (message, event, tags, tag), a filter 4 (message, filter,
/// tag conditions, values); the rest is room for extension fields.
pub(super) const MAX_DEPTH: usize = 16;

/// Walks over every head of `bytes`: shortest arguments, definite lengths, no CBOR tags, floats, null or other
/// simple values, no more nesting than [`MAX_DEPTH`], the end of the item at the end of the input. Allocates nothing and
/// takes time linear in the number of heads that are really there. UTF-8 and types are the reader's to check.
///
/// # Errors
/// [`DecodeError`] with the first violation.
pub(super) fn check(bytes: &[u8]) -> Result<(), DecodeError> {
    let mut heads = Heads::new(bytes);
    let mut open = [0_u64; MAX_DEPTH]; // items still to come in each open array or map
    let mut depth = 0;
    loop {
        let inside = match heads.next()? {
            Head::Scalar => 0,
            Head::Items(count) => {
                // Every item takes a byte at least: a claim beyond the input is refused at once.
                if count > heads.0.len() as u64 {
                    return Err(DecodeError::Truncated("an array or map"));
                }
                count
            }
        };
        if inside > 0 {
            *open.get_mut(depth).ok_or(DecodeError::OutOfRange("nesting depth"))? = inside;
            depth += 1;
            continue;
        }
        // An item ended, and with it every container of which it was the last.
        loop {
            let Some(level) = depth.checked_sub(1) else {
                return match heads.0.len() {
                    0 => Ok(()),
                    rest => Err(DecodeError::Trailing(rest)),
                };
            };
            open[level] -= 1;
            if open[level] > 0 {
                break;
            }
            depth = level;
        }
    }
}

pub(super) enum Head {
    /// The item is read completely.
    Scalar,
    /// An array or map follows, with this many items (keys and values counted apart).
    Items(u64),
}

/// The input that is left.
pub(super) struct Heads<'a>(&'a [u8]);

impl<'a> Heads<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Heads(bytes)
    }

    /// The major type of the next head.
    pub(super) fn major(&self) -> Option<u8> {
        self.0.first().map(|head| head >> 5)
    }

    /// The next item, as it is written; of an array or map, the head alone.
    pub(super) fn item(&mut self) -> Result<&'a [u8], DecodeError> {
        let start = self.0;
        self.next()?;
        Ok(&start[..start.len() - self.0.len()])
    }

    /// What is in the next item, which is a string.
    pub(super) fn text(&mut self) -> Result<&'a [u8], DecodeError> {
        let first = self.take(1, "a CBOR head")?[0];
        let length = self.argument(first & 0x1f)?;
        self.take(length, "a text string")
    }

    pub(super) fn next(&mut self) -> Result<Head, DecodeError> {
        let first = self.take(1, "a CBOR head")?[0];
        let (major, info) = (first >> 5, first & 0x1f);
        match major {
            0 | 1 => self.argument(info).map(|_| Head::Scalar),
            2 | 3 => {
                let length = self.argument(info)?;
                let what = if major == 2 { "a byte string" } else { "a text string" };
                self.take(length, what).map(|_| Head::Scalar)
            }
            4 => self.argument(info).map(Head::Items),
            5 => match self.argument(info)?.checked_mul(2) {
                Some(items) => Ok(Head::Items(items)),
                None => Err(DecodeError::OutOfRange("map length")),
            },
            6 => Err(DecodeError::NotCanonical("an item with a CBOR tag")),
            _ => match first {
                0xf4 | 0xf5 => Ok(Head::Scalar),
                0xf9..=0xfb => Err(DecodeError::Malformed("message: a float")),
                0xff => Err(DecodeError::Malformed("message: a break without an indefinite item")),
                _ => Err(DecodeError::Malformed("message: a simple value other than false and true")),
            },
        }
    }

    fn argument(&mut self, info: u8) -> Result<u64, DecodeError> {
        let (value, smallest) = match info {
            0..=23 => return Ok(info.into()),
            24 => (u64::from(u8::from_be_bytes(self.array()?)), 24),
            25 => (u64::from(u16::from_be_bytes(self.array()?)), 1 << 8),
            26 => (u64::from(u32::from_be_bytes(self.array()?)), 1 << 16),
            27 => (u64::from_be_bytes(self.array()?), 1 << 32),
            31 => return Err(DecodeError::NotCanonical("an item of indefinite length")),
            _ => return Err(DecodeError::Malformed("CBOR head: reserved additional information")),
        };
        if value < smallest {
            return Err(DecodeError::NotCanonical("an integer or length"));
        }
        Ok(value)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.0.split_first_chunk().ok_or(DecodeError::Truncated("a CBOR head"))?;
        self.0 = rest;
        Ok(*head)
    }

    fn take(&mut self, length: u64, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let split = usize::try_from(length).ok().and_then(|length| self.0.split_at_checked(length));
        let (taken, rest) = split.ok_or(DecodeError::Truncated(what))?;
        self.0 = rest;
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_preferred_serialization_only() {
        use DecodeError::{Malformed, NotCanonical, OutOfRange, Trailing, Truncated};
        let ok: [&[u8]; 9] = [
            b"\x00",
            b"\x17",
            b"\x18\x18",
            b"\x39\x01\x00",
            b"\x80",
            b"\xa0",
            b"\x82\x80\xf5",
            b"\xa1\x01\x61a",
            b"\x1b\x00\x00\x00\x01\x00\x00\x00\x00",
        ];
        for bytes in ok {
            assert_eq!(check(bytes), Ok(()), "{bytes:02x?}");
        }
        let head = "a CBOR head";
        let bad: [(&[u8], DecodeError); 19] = [
            (b"", Truncated(head)),
            (b"\x18", Truncated(head)),
            (b"\x18\x17", NotCanonical("an integer or length")),
            (b"\x19\x00\xff", NotCanonical("an integer or length")),
            (b"\x1a\x00\x00\xff\xff", NotCanonical("an integer or length")),
            (b"\x1b\x00\x00\x00\x00\xff\xff\xff\xff", NotCanonical("an integer or length")),
            (b"\x58\x01a", NotCanonical("an integer or length")),
            (b"\x5f\x41a\xff", NotCanonical("an item of indefinite length")),
            (b"\x9f\xff", NotCanonical("an item of indefinite length")),
            (b"\xc1\x00", NotCanonical("an item with a CBOR tag")),
            (b"\x1c", Malformed("CBOR head: reserved additional information")),
            (b"\xf9\x00\x00", Malformed("message: a float")),
            (b"\xf6", Malformed("message: a simple value other than false and true")),
            (b"\xff", Malformed("message: a break without an indefinite item")),
            (b"\x62a", Truncated("a text string")),
            (b"\x5b\xff\xff\xff\xff\xff\xff\xff\xff", Truncated("a byte string")),
            (b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff", Truncated("an array or map")),
            (b"\xbb\xff\xff\xff\xff\xff\xff\xff\xff", OutOfRange("map length")),
            (b"\x00\x00\x00", Trailing(2)),
        ];
        for (bytes, error) in bad {
            assert_eq!(check(bytes), Err(error), "{bytes:02x?}");
        }
    }

    #[test]
    fn bounds_nesting() {
        let nested = |depth: usize| [vec![0x81; depth], vec![0x00]].concat();
        assert_eq!(check(&nested(MAX_DEPTH)), Ok(()));
        assert_eq!(check(&nested(MAX_DEPTH + 1)), Err(DecodeError::OutOfRange("nesting depth")));
        assert_eq!(check(&nested(1 << 20)), Err(DecodeError::OutOfRange("nesting depth")));
    }
}
