//! The strict profile of protobuf: an event in the one form that prost itself writes.
//!
//! Any protobuf reader takes fields in any order, twice, with padded varints and explicit defaults,
//! and skips unknown fields. So one event has endless encodings, and `kind` 65,537 may read as 1.
//! This walk goes over the bytes before prost does and allocates nothing. It is part of our decoding
//! time and not of prost's.
//!
//! Fields after the last one are extensions and ignored, as unknown fields of JSON events are.

use super::{
    Dialect,
    tuned::{
        CONTENT, CREATED_AT, ID, KIND, PUBKEY, SIG, TAG, VALUE, has_key, optional_bytes, optional_varint,
        sized,
    },
};
use crate::{DecodeError, reader::Reader, text::Found};

/// Shortest hex text stored as bytes, in formats that do so.
pub(in crate::formats) const MIN_HEX_CHARS: usize = 8;

pub(super) const KIND_MAX: u64 = u16::MAX as u64;

/// The key of a tag's values in a compact dialect: field 2, which others refuse. Skipping it would
/// empty every tag.
pub(super) const COMPACT_VALUE: u8 = 2 << 3 | 2;

/// Checks an event that fills `bytes`. UTF-8 is prost's to check, lengths of ids and keys the
/// conversion's.
pub(super) fn check_event<D: Dialect>(bytes: &[u8]) -> Result<(), DecodeError> {
    let mut reader = Reader::new(bytes);
    required(&mut reader, ID, "id")?;
    required(&mut reader, PUBKEY, "pubkey")?;
    optional_varint(&mut reader, CREATED_AT, u64::MAX, "created_at")?;
    optional_varint(&mut reader, KIND, KIND_MAX, "kind")?;
    while has_key(&mut reader, TAG) {
        check_tag::<D>(Reader::new(sized(&mut reader, "tag")?))?;
    }
    optional_bytes(&mut reader, CONTENT, "content")?;
    required(&mut reader, SIG, "sig")?;
    extensions(reader, 8).map(drop)
}

fn check_tag<D: Dialect>(mut values: Reader<'_>) -> Result<(), DecodeError> {
    let (what, key) = ("tag value", if D::COMPACT { COMPACT_VALUE } else { VALUE });
    while has_key(&mut values, key) {
        let value = sized(&mut values, what)?;
        if D::COMPACT {
            text_or_hex(value, what)?;
        }
    }
    values.finish()
}

fn required(reader: &mut Reader<'_>, key: u8, what: &'static str) -> Result<(), DecodeError> {
    optional_bytes(reader, key, what)?.ok_or(DecodeError::Missing(what)).map(drop)
}

/// Passes over fields of a later version, whose numbers begin with `first` and ascend. Returns the
/// number of the first one.
pub(super) fn extensions(mut reader: Reader<'_>, first: u64) -> Result<Option<u64>, DecodeError> {
    let (mut last, mut found) = (first, None);
    while !reader.is_empty() {
        let (number, wire) = key(&mut reader)?;
        if number < last {
            return Err(DecodeError::NotCanonical("order of fields"));
        }
        last = number;
        skip(wire, &mut reader)?;
        found.get_or_insert(number);
    }
    Ok(found)
}

/// A oneof of `text = 1` and `hex = 2`: exactly one of them, and hex wherever the rule has it.
pub(super) fn text_or_hex<'a>(value: &'a [u8], what: &'static str) -> Result<Found<'a>, DecodeError> {
    let mut value = Reader::new(value);
    let is_hex = !has_key(&mut value, VALUE);
    if is_hex && !has_key(&mut value, COMPACT_VALUE) {
        return Err(DecodeError::Malformed(what));
    }
    let stored = sized(&mut value, what)?;
    value.finish()?;
    Found::stored(is_hex, stored, MIN_HEX_CHARS, what)
}

/// A field's number and wire type.
pub(super) fn key(reader: &mut Reader<'_>) -> Result<(u64, u64), DecodeError> {
    let key = reader.varint("field key")?;
    if (1 << 3..1 << 32).contains(&key) {
        Ok((key >> 3, key & 7))
    } else {
        Err(DecodeError::OutOfRange("field key"))
    }
}

/// Passes over a field that is not known. Groups, gone from proto3, are refused.
pub(super) fn skip(wire: u64, reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    let what = "unknown field";
    match wire {
        0 => drop(reader.varint(what)?),
        1 => drop(reader.array::<8>(what)?),
        2 => drop(sized(reader, what)?),
        5 => drop(reader.array::<4>(what)?),
        _ => return Err(DecodeError::Malformed(what)),
    }
    Ok(())
}
