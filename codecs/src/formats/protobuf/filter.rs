//! Filters: fields 1 to 8 of a message, absent when nothing is asked.

use std::borrow::Cow;

use super::{
    Dialect,
    strict::{COMPACT_VALUE, MIN_HEX_CHARS, extensions, text_or_hex},
    tuned::{VALUE, has_key, optional_bytes, read_key, sized, write_key},
    write_bytes,
};
use crate::{
    DecodeError, EncodeError, Filter, TagFilter,
    envelope::read_kinds,
    hex,
    model::Bounds,
    reader::{Reader, write_sized, write_varint},
    text,
};

const IDS: u8 = 1 << 3 | 2;
const AUTHORS: u8 = 2 << 3 | 2;
const KINDS: u8 = 3 << 3 | 2;
const SINCE: u8 = 4 << 3;
const UNTIL: u8 = 5 << 3;
const LIMIT: u8 = 6 << 3;
const SEARCH: u8 = 7 << 3 | 2;
const CONDITION: u8 = 8 << 3 | 2;
/// In a condition.
const LETTER: u8 = 1 << 3 | 2;
const VALUES: u8 = 2 << 3 | 2;

/// Appends a filter that `check_filters` has seen.
pub(super) fn write_filter<D: Dialect>(filter: &Filter, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let Filter { ids, authors, kinds, since, until, limit, search, tags, unknown: _ } = filter;
    let is_empty = |list: &Option<Vec<[u8; 32]>>| list.as_ref().is_some_and(Vec::is_empty);
    if is_empty(ids) || is_empty(authors) || kinds.as_ref().is_some_and(Vec::is_empty) {
        let what = "an empty list in a filter, which proto3 does not tell from an absent one";
        return Err(EncodeError::Unrepresentable { format: D::NAME, what });
    }
    for (key, keys) in [(IDS, ids), (AUTHORS, authors)] {
        keys.iter().flatten().for_each(|bytes| write_key::<D, 32, 64>(key, bytes, out));
    }
    if let Some(kinds) = kinds {
        out.push(KINDS);
        write_sized(out, |out| {
            kinds.iter().for_each(|kind| write_varint(u64::from(*kind), out));
            Ok(())
        })?;
    }
    let numbers =
        [(SINCE, since.map(i64::cast_unsigned)), (UNTIL, until.map(i64::cast_unsigned)), (LIMIT, *limit)];
    for (key, number) in numbers {
        if let Some(number) = number {
            out.push(key);
            write_varint(number, out);
        }
    }
    if let Some(search) = search {
        write_bytes(SEARCH, search.as_bytes(), out);
    }
    for TagFilter { letter, values } in tags {
        out.push(CONDITION);
        write_sized(out, |out| {
            write_bytes(LETTER, letter.to_string().as_bytes(), out);
            values.iter().try_for_each(|value| write_value::<D>(value, out))
        })?;
    }
    Ok(())
}

fn write_value<D: Dialect>(value: &str, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    if !D::COMPACT {
        write_bytes(VALUES, value.as_bytes(), out);
        return Ok(());
    }
    out.push(VALUES);
    write_sized(out, |out| {
        match hex::decode(value.as_bytes()).filter(|_| hex::is_compactable(value, MIN_HEX_CHARS)) {
            Some(bytes) => write_bytes(COMPACT_VALUE, &bytes, out),
            None => write_bytes(VALUE, value.as_bytes(), out),
        }
        Ok(())
    })
}

pub(super) fn read_filter<D: Dialect>(bytes: &[u8], bounds: &Bounds<'_>) -> Result<Filter, DecodeError> {
    let mut reader = Reader::new(bytes);
    let filter = Filter {
        ids: read_keys::<D>(&mut reader, IDS, bounds, "ids")?,
        authors: read_keys::<D>(&mut reader, AUTHORS, bounds, "authors")?,
        kinds: optional_bytes(&mut reader, KINDS, "kinds")?.map(|run| read_kinds(run, bounds)).transpose()?,
        since: read_number(&mut reader, SINCE, "since")?.map(u64::cast_signed),
        until: read_number(&mut reader, UNTIL, "until")?.map(u64::cast_signed),
        limit: read_number(&mut reader, LIMIT, "limit")?,
        search: if has_key(&mut reader, SEARCH) {
            Some(text::checked(sized(&mut reader, "search")?, "search")?.to_owned())
        } else {
            None
        },
        tags: read_conditions::<D>(&mut reader, bounds)?,
        unknown: None,
    };
    let unknown = extensions(reader, 9)?.map(|number| format!("field {number}"));
    Ok(Filter { unknown, ..filter })
}

fn read_keys<D: Dialect>(
    reader: &mut Reader<'_>,
    key: u8,
    bounds: &Bounds<'_>,
    what: &'static str,
) -> Result<Option<Vec<[u8; 32]>>, DecodeError> {
    let mut keys = Vec::new();
    while has_key(reader, key) {
        bounds.values(keys.len() + 1)?;
        let mut bytes = [0; 32];
        read_key::<D, 32>(reader, what, &mut bytes)?;
        keys.push(bytes);
    }
    Ok(if keys.is_empty() { None } else { Some(keys) })
}

/// A number that may be zero.
fn read_number(reader: &mut Reader<'_>, key: u8, what: &'static str) -> Result<Option<u64>, DecodeError> {
    if has_key(reader, key) { reader.varint(what).map(Some) } else { Ok(None) }
}

fn read_conditions<D: Dialect>(
    reader: &mut Reader<'_>,
    bounds: &Bounds<'_>,
) -> Result<Vec<TagFilter>, DecodeError> {
    let what = "tag condition";
    let mut conditions: Vec<TagFilter> = Vec::new();
    while has_key(reader, CONDITION) {
        let mut condition = Reader::new(sized(reader, what)?);
        let letter = match optional_bytes(&mut condition, LETTER, what)? {
            Some([letter]) if letter.is_ascii_alphabetic() => char::from(*letter),
            _ => return Err(DecodeError::Malformed("tag condition's letter")),
        };
        if conditions.iter().any(|earlier| earlier.letter == letter) {
            return Err(DecodeError::Duplicate(what));
        }
        let mut values = Vec::new();
        while has_key(&mut condition, VALUES) {
            bounds.values(values.len() + 1)?;
            let stored = sized(&mut condition, what)?;
            let value: Cow<'_, str> = if D::COMPACT {
                text_or_hex(stored, what)?.text(what)?
            } else {
                text::checked(stored, what)?.into()
            };
            values.push(value.into_owned());
        }
        condition.finish()?;
        conditions.push(TagFilter { letter, values });
    }
    Ok(conditions)
}
