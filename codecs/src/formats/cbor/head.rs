//! Heads (RFC 8949 §3): a major type and an argument in the shortest form, of definite length.

use crate::{DecodeError, reader::Reader};

pub(super) const UINT: u8 = 0;
pub(super) const NEGATIVE: u8 = 1;
pub(super) const BYTES: u8 = 2;
pub(super) const TEXT: u8 = 3;
pub(super) const ARRAY: u8 = 4;
pub(super) const MAP: u8 = 5;
const TAG: u8 = 6;

const HEAD: &str = "a CBOR head";

/// Appends a head with its argument in the shortest form (RFC 8949 §4.2.1).
#[inline]
pub(super) fn write_head(major: u8, argument: u64, out: &mut Vec<u8>) {
    let [.., c, b, a] = argument.to_be_bytes();
    match argument {
        0..=23 => out.push(major << 5 | a),
        24..=0xff => out.extend_from_slice(&[major << 5 | 24, a]),
        0x100..=0xffff => out.extend_from_slice(&[major << 5 | 25, b, a]),
        0x1_0000..=0xffff_ffff => {
            let [.., d, _, _, _] = argument.to_be_bytes();
            out.extend_from_slice(&[major << 5 | 26, d, c, b, a]);
        }
        _ => {
            out.push(major << 5 | 27);
            out.extend_from_slice(&argument.to_be_bytes());
        }
    }
}

/// The major type of the next head.
#[inline]
pub(super) fn major(reader: &Reader<'_>) -> Option<u8> {
    reader.rest().first().map(|head| head >> 5)
}

/// The argument of a head that must be of this major type.
#[inline]
pub(super) fn read_argument(
    reader: &mut Reader<'_>,
    major: u8,
    what: &'static str,
) -> Result<u64, DecodeError> {
    let head = reader.u8(what)?;
    if head >> 5 != major {
        return Err(DecodeError::Malformed(what));
    }
    argument(reader, head & 0x1f)
}

/// An item that [`read_item`] found.
pub(super) enum Item {
    /// A number, a string or a boolean, read completely.
    Scalar,
    /// The head of an array or map, with the number of items that follow (keys and values counted
    /// apart).
    Items(u64),
}

/// The next number, string or boolean, or the head of an array or map.
pub(super) fn read_item(reader: &mut Reader<'_>) -> Result<Item, DecodeError> {
    let first = reader.u8(HEAD)?;
    let (major, info) = (first >> 5, first & 0x1f);
    match major {
        UINT | NEGATIVE => argument(reader, info).map(|_| Item::Scalar),
        BYTES | TEXT => {
            let length = argument(reader, info)?;
            let what = if major == BYTES { "a byte string" } else { "a text string" };
            reader.bytes(length, what).map(|_| Item::Scalar)
        }
        ARRAY => argument(reader, info).map(Item::Items),
        MAP => match argument(reader, info)?.checked_mul(2) {
            Some(items) => Ok(Item::Items(items)),
            None => Err(DecodeError::OutOfRange("map length")),
        },
        TAG => Err(DecodeError::NotCanonical("an item with a CBOR tag")),
        _ => match first {
            0xf4 | 0xf5 => Ok(Item::Scalar),
            0xf9..=0xfb => Err(DecodeError::Malformed("message: a float")),
            0xff => Err(DecodeError::Malformed("message: a break without an indefinite item")),
            _ => Err(DecodeError::Malformed("message: a simple value other than false and true")),
        },
    }
}

/// The bytes of the next item with all that is in it. Each head takes a byte, so the loop ends with
/// the input at the latest. `list` is called with the length of each array.
pub(super) fn read_whole<'a>(
    reader: &mut Reader<'a>,
    mut list: impl FnMut(u64) -> Result<(), DecodeError>,
) -> Result<&'a [u8], DecodeError> {
    let start = reader.rest();
    let mut open = 1_u64;
    while open > 0 {
        let is_list = major(reader) == Some(ARRAY);
        open -= 1;
        if let Item::Items(count) = read_item(reader)? {
            if is_list {
                list(count)?;
            }
            open = open.checked_add(count).ok_or(DecodeError::OutOfRange("number of items"))?;
        }
    }
    Ok(&start[..start.len() - reader.rest().len()])
}

#[inline]
fn argument(reader: &mut Reader<'_>, info: u8) -> Result<u64, DecodeError> {
    let (value, smallest) = match info {
        0..=23 => return Ok(info.into()),
        24 => (u64::from(reader.u8(HEAD)?), 24),
        25 => (u64::from(u16::from_be_bytes(reader.array(HEAD)?)), 1 << 8),
        26 => (u64::from(u32::from_be_bytes(reader.array(HEAD)?)), 1 << 16),
        27 => (u64::from_be_bytes(reader.array(HEAD)?), 1 << 32),
        31 => return Err(DecodeError::NotCanonical("an item of indefinite length")),
        _ => return Err(DecodeError::Malformed("CBOR head: reserved additional information")),
    };
    if value < smallest {
        return Err(DecodeError::NotCanonical("an integer or length"));
    }
    Ok(value)
}
