//! Filters and their values in the common envelope.

use std::convert::Infallible;

use crate::{
    error::{DecodeError, EncodeError},
    hex,
    model::{Bounds, Filter, MAX_FILTERS, TagFilter},
    reader::{Reader, write_sized, write_varint},
};

/// Shortest hex text that a filter stores as bytes.
const MIN_HEX_CHARS: usize = 8;

/// Rejects filters that no format can express, or would read back differently.
pub(crate) fn check_filters(format: &'static str, filters: &[Filter]) -> Result<(), EncodeError> {
    let refuse = |what| Err(EncodeError::Unrepresentable { format, what });
    if filters.len() > MAX_FILTERS {
        let what = "a number of filters";
        return Err(EncodeError::TooLarge { format, what, actual: filters.len(), max: MAX_FILTERS });
    }
    for filter in filters {
        if filter.unknown.is_some() {
            return refuse("a filter field that is not in NIP-01");
        }
        for (index, condition) in filter.tags.iter().enumerate() {
            if !condition.letter.is_ascii_alphabetic() {
                return refuse("a tag condition without a letter");
            }
            if filter.tags[..index].iter().any(|earlier| earlier.letter == condition.letter) {
                return refuse("two tag conditions of one letter");
            }
        }
    }
    Ok(())
}

pub(super) fn write_sized_filter(filter: &Filter, out: &mut Vec<u8>) {
    let Ok(()) = write_sized::<Infallible>(out, |out| {
        write_filter(filter, out);
        Ok(())
    });
}

fn write_filter(filter: &Filter, out: &mut Vec<u8>) {
    let Filter { ids, authors, kinds, since, until, limit, search, tags, unknown: _ } = filter;
    for (tag, keys) in [(1, ids), (2, authors)] {
        if let Some(keys) = keys {
            field(tag, out, |out| out.extend_from_slice(keys.as_flattened()));
        }
    }
    if let Some(kinds) = kinds {
        field(3, out, |out| kinds.iter().for_each(|kind| write_varint(u64::from(*kind), out)));
    }
    let numbers = [(4, since.map(i64::cast_unsigned)), (5, until.map(i64::cast_unsigned)), (6, *limit)];
    for (tag, number) in numbers {
        if let Some(number) = number {
            field(tag, out, |out| write_varint(number, out));
        }
    }
    if let Some(search) = search {
        field(7, out, |out| out.extend_from_slice(search.as_bytes()));
    }
    for TagFilter { letter, values } in tags {
        field(8, out, |out| {
            out.push(u8::try_from(*letter).expect("check_filters wants an ASCII letter"));
            values.iter().for_each(|value| write_element(value, out));
        });
    }
}

fn field(tag: u8, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    let Ok(()) = write_sized::<Infallible>(out, |out| {
        write(out);
        Ok(())
    });
}

/// Appends an `elem`.
pub(crate) fn write_element(value: &str, out: &mut Vec<u8>) {
    if hex::is_compactable(value, MIN_HEX_CHARS) {
        write_varint(value.len() as u64 | 1, out); // twice the bytes is the number of digits
        hex::decode_into(value, out);
    } else {
        write_varint(2 * value.len() as u64, out);
        out.extend_from_slice(value.as_bytes());
    }
}

pub(super) fn read_sized_filter(reader: &mut Reader<'_>, bounds: &Bounds<'_>) -> Result<Filter, DecodeError> {
    let len = reader.varint("filter's length")?;
    read_filter(Reader::new(reader.bytes(len, "filter")?), bounds)
}

fn read_filter(mut reader: Reader<'_>, bounds: &Bounds<'_>) -> Result<Filter, DecodeError> {
    let mut filter = Filter::default();
    let mut last = 0;
    while !reader.is_empty() {
        let tag = reader.u8("filter field")?;
        if tag < last {
            return Err(DecodeError::NotCanonical("order of a filter's fields"));
        }
        if tag == last && (1..8).contains(&tag) {
            return Err(DecodeError::Duplicate("filter field"));
        }
        last = tag;
        let len = reader.varint("filter field's length")?;
        let mut payload = Reader::new(reader.bytes(len, "filter field")?);
        match tag {
            1 => filter.ids = Some(read_keys(&mut payload, bounds, "ids")?),
            2 => filter.authors = Some(read_keys(&mut payload, bounds, "authors")?),
            3 => filter.kinds = Some(read_kinds(&mut payload, bounds)?),
            4 => filter.since = Some(payload.varint("since")?.cast_signed()),
            5 => filter.until = Some(payload.varint("until")?.cast_signed()),
            6 => filter.limit = Some(payload.varint("limit")?),
            7 => filter.search = Some(payload.rest_text("search")?.to_owned()),
            8 => {
                let condition = read_condition(&mut payload, bounds)?;
                if filter.tags.iter().any(|earlier| earlier.letter == condition.letter) {
                    return Err(DecodeError::Duplicate("tag condition"));
                }
                filter.tags.push(condition);
            }
            _ => {
                payload.take_rest();
                filter.unknown.get_or_insert_with(|| format!("field {tag}"));
            }
        }
        payload.finish()?;
    }
    Ok(filter)
}

fn read_keys(
    payload: &mut Reader<'_>,
    bounds: &Bounds<'_>,
    what: &'static str,
) -> Result<Vec<[u8; 32]>, DecodeError> {
    let (keys, rest) = payload.take_rest().as_chunks();
    bounds.values(keys.len())?;
    if rest.is_empty() { Ok(keys.to_vec()) } else { Err(DecodeError::Truncated(what)) }
}

fn read_kinds(payload: &mut Reader<'_>, bounds: &Bounds<'_>) -> Result<Vec<u16>, DecodeError> {
    let mut kinds = Vec::new();
    while !payload.is_empty() {
        bounds.values(kinds.len() + 1)?;
        let kind = payload.varint("kinds")?;
        kinds.push(u16::try_from(kind).map_err(|_| DecodeError::OutOfRange("kinds"))?);
    }
    Ok(kinds)
}

fn read_condition(payload: &mut Reader<'_>, bounds: &Bounds<'_>) -> Result<TagFilter, DecodeError> {
    let letter = char::from(payload.u8("tag condition's letter")?);
    if !letter.is_ascii_alphabetic() {
        return Err(DecodeError::Malformed("tag condition's letter"));
    }
    Ok(TagFilter { letter, values: read_elements(payload, bounds)? })
}

/// Reads an `elem` after the other until nothing is left.
pub(crate) fn read_elements(
    payload: &mut Reader<'_>,
    bounds: &Bounds<'_>,
) -> Result<Vec<String>, DecodeError> {
    let what = "tag condition";
    let mut values = Vec::new();
    while !payload.is_empty() {
        bounds.values(values.len() + 1)?;
        let head = payload.varint(what)?;
        let is_bytes = head & 1 == 1;
        let value = if is_bytes {
            hex::encode(payload.bytes(head >> 1, what)?)
        } else {
            payload.text(head >> 1, what)?.to_owned()
        };
        if hex::is_compactable(&value, MIN_HEX_CHARS) != is_bytes {
            return Err(DecodeError::NotCanonical(what));
        }
        values.push(value);
    }
    Ok(values)
}
