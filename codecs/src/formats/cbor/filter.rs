//! Filters: a map of numbered conditions, or one with JSON's field names.

use super::{
    Dialect,
    head::{
        ARRAY, MAP, UINT, read_argument, read_fixed, read_kind, read_text, read_time, write_bytes,
        write_head, write_text, write_time,
    },
    message::{read_name, skip, write_name},
    tuned::{read_value, write_value},
};
use crate::{DecodeError, Filter, TagFilter, model::Bounds, reader::Reader};

/// The fields in the only order allowed; the first has the number 1. The last is the numbered
/// dialects' map from letter to values. The spelled one has a field `#x` for each letter.
const FIELDS: &[&str] = &["ids", "authors", "kinds", "since", "until", "limit", "search", "tags"];

const CONDITION: &str = "tag condition";

/// Appends a filter that `check_filters` has seen.
pub(super) fn write_filter<D: Dialect>(filter: &Filter, out: &mut Vec<u8>) {
    let Filter { ids, authors, kinds, since, until, limit, search, tags, unknown: _ } = filter;
    let conditions = if D::SPELLED { tags.len() } else { usize::from(!tags.is_empty()) };
    let present = [
        ids.is_some(),
        authors.is_some(),
        kinds.is_some(),
        since.is_some(),
        until.is_some(),
        limit.is_some(),
        search.is_some(),
    ];
    let fields = present.into_iter().filter(|present| *present).count();
    write_head(MAP, (fields + conditions) as u64, out);
    let name = |number, out: &mut Vec<u8>| write_name::<D>(number, FIELDS, out);
    for (number, keys) in [(1, ids), (2, authors)] {
        if let Some(keys) = keys {
            name(number, out);
            write_head(ARRAY, keys.len() as u64, out);
            keys.iter().for_each(|key| write_bytes(key, out));
        }
    }
    if let Some(kinds) = kinds {
        name(3, out);
        write_head(ARRAY, kinds.len() as u64, out);
        kinds.iter().for_each(|kind| write_head(UINT, u64::from(*kind), out));
    }
    for (number, time) in [(4, since), (5, until)] {
        if let Some(time) = time {
            name(number, out);
            write_time(*time, out);
        }
    }
    if let Some(limit) = limit {
        name(6, out);
        write_head(UINT, *limit, out);
    }
    if let Some(search) = search {
        name(7, out);
        write_text(search, out);
    }
    if !D::SPELLED && !tags.is_empty() {
        name(8, out);
        write_head(MAP, tags.len() as u64, out);
    }
    for TagFilter { letter, values } in tags {
        let prefix = if D::SPELLED { "#" } else { "" };
        write_text(&format!("{prefix}{letter}"), out);
        write_head(ARRAY, values.len() as u64, out);
        values.iter().for_each(|value| write_value::<D>(value, out));
    }
}

/// Reads a filter that the strict walk has accepted.
pub(super) fn read_filter<D: Dialect>(
    reader: &mut Reader<'_>,
    bounds: &Bounds<'_>,
) -> Result<Filter, DecodeError> {
    let known = if D::SPELLED { &FIELDS[..7] } else { FIELDS };
    let (mut filter, mut last) = (Filter::default(), 0);
    for _ in 0..read_argument(reader, MAP, "filter")? {
        let number = match read_name::<D>(reader, known, "filter field")? {
            Ok(number) => number,
            Err(name) if D::SPELLED => {
                read_condition::<D>(name.strip_prefix('#'), &name, &mut filter, reader, bounds)?;
                continue;
            }
            Err(name) => {
                skip(reader)?;
                filter.unknown.get_or_insert(name);
                continue;
            }
        };
        if number <= last || !filter.tags.is_empty() {
            return Err(DecodeError::NotCanonical("order of a filter's fields"));
        }
        last = number;
        match number {
            1 => filter.ids = Some(read_list(reader, bounds, "ids", |r| read_fixed(r, "ids").copied())?),
            2 => {
                let key = |reader: &mut Reader<'_>| read_fixed(reader, "authors").copied();
                filter.authors = Some(read_list(reader, bounds, "authors", key)?);
            }
            3 => filter.kinds = Some(read_list(reader, bounds, "kinds", |r| read_kind(r, "kinds"))?),
            4 => filter.since = Some(read_time(reader, "since")?),
            5 => filter.until = Some(read_time(reader, "until")?),
            6 => filter.limit = Some(read_argument(reader, UINT, "limit")?),
            7 => filter.search = Some(read_text(reader, "search")?.to_owned()),
            _ => {
                let conditions = read_argument(reader, MAP, CONDITION)?;
                if conditions == 0 {
                    return Err(DecodeError::NotCanonical("an empty map of tag conditions"));
                }
                for _ in 0..conditions {
                    let name = read_text(reader, CONDITION)?;
                    read_condition::<D>(Some(name), &format!("#{name}"), &mut filter, reader, bounds)?;
                }
            }
        }
    }
    Ok(filter)
}

/// Reads the values of a condition; a field that is none, called `field`, is reported.
fn read_condition<D: Dialect>(
    letter: Option<&str>,
    field: &str,
    filter: &mut Filter,
    reader: &mut Reader<'_>,
    bounds: &Bounds<'_>,
) -> Result<(), DecodeError> {
    let Some([letter @ (b'a'..=b'z' | b'A'..=b'Z')]) = letter.map(str::as_bytes) else {
        filter.unknown.get_or_insert_with(|| field.to_owned());
        return skip(reader);
    };
    let letter = char::from(*letter);
    if filter.tags.iter().any(|condition| condition.letter == letter) {
        return Err(DecodeError::Duplicate(CONDITION));
    }
    let value = |reader: &mut Reader<'_>| {
        let value: std::borrow::Cow<'_, str> = read_value::<D>(reader)?.value(CONDITION)?;
        Ok(value.into_owned())
    };
    let values = read_list(reader, bounds, CONDITION, value)?;
    filter.tags.push(TagFilter { letter, values });
    Ok(())
}

fn read_list<'a, T>(
    reader: &mut Reader<'a>,
    bounds: &Bounds<'_>,
    what: &'static str,
    read: impl Fn(&mut Reader<'a>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let count = read_argument(reader, ARRAY, what)?;
    bounds.values(usize::try_from(count).unwrap_or(usize::MAX))?;
    (0..count).map(|_| read(reader)).collect()
}
