//! The strict profile that ciborium cannot enforce: one well-formed item in preferred serialization
//! (RFC 8949 §4.1), definite lengths only, nothing after it.

use super::head::{Item, read_item};
use crate::{DecodeError, reader::Reader};

/// Deepest nesting. An event inside a message needs 4 (message, event, tags, tag), a filter 4
/// (message, filter, tag conditions, values); the rest is room for extension fields.
pub(super) const MAX_DEPTH: usize = 16;

/// Walks over every head of `bytes`: shortest arguments, definite lengths, no CBOR tags, floats,
/// null or other simple values, no more nesting than [`MAX_DEPTH`], the end of the item at the end
/// of the input. Allocates nothing and takes time linear in the number of heads that are really
/// there. UTF-8 and types are the reader's to check.
///
/// # Errors
/// [`DecodeError`] with the first violation.
pub(super) fn check(bytes: &[u8]) -> Result<(), DecodeError> {
    let mut reader = Reader::new(bytes);
    let mut open = [0_u64; MAX_DEPTH]; // items still to come in each open array or map
    let mut depth = 0;
    loop {
        let inside = match read_item(&mut reader)? {
            Item::Scalar => 0,
            Item::Items(count) => {
                // Every item takes a byte at least: a claim beyond the input is refused at once.
                if count > reader.rest().len() as u64 {
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
                return reader.finish();
            };
            open[level] -= 1;
            if open[level] > 0 {
                break;
            }
            depth = level;
        }
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
