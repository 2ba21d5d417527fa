//! Filters: a map of numbered conditions, or one with JSON's field names.

use std::{borrow::Cow, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, IgnoredAny, MapAccess, Visitor},
    ser::SerializeMap,
};

use super::{
    Bytes, Dialect, Fixed,
    item::{Each, List, Name, ReadName, Value},
};
use crate::{Filter, TagFilter};

const IDS: Name = Name(1, "ids", "");
const AUTHORS: Name = Name(2, "authors", "");
const KINDS: Name = Name(3, "kinds", "");
const SINCE: Name = Name(4, "since", "");
const UNTIL: Name = Name(5, "until", "");
const LIMIT: Name = Name(6, "limit", "");
const SEARCH: Name = Name(7, "search", "");
/// Numbered dialects only: a map from letter to values. The spelled one has a field `#x` for each
/// letter.
const TAGS: Name = Name(8, "tags", "");

/// The fields of a dialect in the only order allowed; the spelled one's `#x` come last.
const fn fields<D: Dialect>() -> &'static [Name] {
    const NUMBERED: &[Name] = &[IDS, AUTHORS, KINDS, SINCE, UNTIL, LIMIT, SEARCH, TAGS];
    const SPELLED: &[Name] = &[IDS, AUTHORS, KINDS, SINCE, UNTIL, LIMIT, SEARCH];
    if D::SPELLED { SPELLED } else { NUMBERED }
}

/// A filter to be written.
pub(super) struct FilterCbor<'m, D>(&'m Filter, PhantomData<D>);

impl<'m, D> FilterCbor<'m, D> {
    pub(super) fn new(filter: &'m Filter) -> Self {
        FilterCbor(filter, PhantomData)
    }
}

impl<'m, D: Dialect> Serialize for FilterCbor<'m, D> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Filter { ids, authors, kinds, since, until, limit, search, tags, unknown: _ } = self.0;
        self.0.check_writable().map_err(serde::ser::Error::custom)?;
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
        let mut map = Fields(serializer.serialize_map(Some(fields + conditions))?, D::SPELLED);
        map.field(IDS, ids.as_ref().map(|ids| Each(ids, |id: &'m [u8; 32]| Bytes(id))))?;
        map.field(AUTHORS, authors.as_ref().map(|keys| Each(keys, |key: &'m [u8; 32]| Bytes(key))))?;
        map.field(KINDS, kinds.as_ref())?;
        map.field(SINCE, since.as_ref())?;
        map.field(UNTIL, until.as_ref())?;
        map.field(LIMIT, limit.as_ref())?;
        map.field(SEARCH, search.as_ref())?;
        let mut map = map.0;
        if D::SPELLED {
            for TagFilter { letter, values } in tags {
                map.serialize_entry(&format!("#{letter}"), &values_of::<D>(values))?;
            }
        } else if !tags.is_empty() {
            map.serialize_entry(&TAGS.0, &Conditions::<D>(tags, PhantomData))?;
        }
        map.end()
    }
}

struct Fields<M>(M, bool);

impl<M: SerializeMap> Fields<M> {
    fn field(&mut self, name: Name, value: Option<impl Serialize>) -> Result<(), M::Error> {
        match value {
            Some(value) => self.0.serialize_entry(&name.written(self.1), &value),
            None => Ok(()),
        }
    }
}

fn values_of<'m, D: Dialect>(values: &'m [String]) -> impl Serialize {
    Each(values, |value: &'m String| Value::<D, &'m str>::new(value))
}

struct Conditions<'m, D>(&'m [TagFilter], PhantomData<D>);

impl<D: Dialect> Serialize for Conditions<'_, D> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|tag| (tag.letter, values_of::<D>(&tag.values))))
    }
}

/// A filter as read.
pub(super) struct OwnedFilter<D>(Filter, PhantomData<D>);

impl<D> From<OwnedFilter<D>> for Filter {
    fn from(filter: OwnedFilter<D>) -> Self {
        filter.0
    }
}

impl<'de, D: Dialect> Deserialize<'de> for OwnedFilter<D> {
    fn deserialize<R: Deserializer<'de>>(deserializer: R) -> Result<Self, R::Error> {
        deserializer.deserialize_map(FilterVisitor::<D>(PhantomData)).map(|f| OwnedFilter(f, PhantomData))
    }
}

struct FilterVisitor<D>(PhantomData<D>);

impl<'de, D: Dialect> Visitor<'de> for FilterVisitor<D> {
    type Value = Filter;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a filter map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Filter, A::Error> {
        let mut filter = Filter::default();
        let mut last = 0;
        while let Some(name) = map.next_key_seed(ReadName::<D>::with_known(fields::<D>()))? {
            let Some(&Name(number, word, _)) = fields::<D>().iter().find(|field| field.1 == name) else {
                other_field::<D, A>(&mut filter, name, &mut map)?;
                continue;
            };
            if number <= last || !filter.tags.is_empty() {
                return Err(de::Error::custom(format!("filter field {word:?} occurs twice or out of order")));
            }
            last = number;
            match number {
                1 => filter.ids = Some(map.next_value::<List<Fixed<32>, _>>()?.0),
                2 => filter.authors = Some(map.next_value::<List<Fixed<32>, _>>()?.0),
                3 => filter.kinds = Some(map.next_value::<List<u16>>()?.0),
                4 => filter.since = Some(map.next_value()?),
                5 => filter.until = Some(map.next_value()?),
                6 => filter.limit = Some(map.next_value()?),
                7 => filter.search = Some(map.next_value()?),
                _ => {
                    let conditions: OwnedConditions<D> = map.next_value()?;
                    filter.tags = conditions.tags;
                    filter.unknown = filter.unknown.or(conditions.unknown);
                }
            }
        }
        Ok(filter)
    }
}

/// Reads a `#x` condition of the spelled dialect, or reports a field that is not known.
fn other_field<'de, D: Dialect, A: MapAccess<'de>>(
    filter: &mut Filter,
    name: Cow<'static, str>,
    map: &mut A,
) -> Result<(), A::Error> {
    match name.strip_prefix('#').and_then(tag_letter) {
        Some(letter) if D::SPELLED => condition::<D, A>(&mut filter.tags, letter, map),
        _ => {
            map.next_value::<IgnoredAny>()?;
            filter.unknown.get_or_insert_with(|| name.into_owned());
            Ok(())
        }
    }
}

fn condition<'de, D: Dialect, A: MapAccess<'de>>(
    tags: &mut Vec<TagFilter>,
    letter: char,
    map: &mut A,
) -> Result<(), A::Error> {
    if tags.iter().any(|condition| condition.letter == letter) {
        return Err(de::Error::custom(format!("tag condition {letter:?} occurs twice")));
    }
    let values = map.next_value::<List<Value<D, String>, String>>()?.0;
    tags.push(TagFilter { letter, values });
    Ok(())
}

fn tag_letter(name: &str) -> Option<char> {
    match name.as_bytes() {
        [letter] if letter.is_ascii_alphabetic() => Some(char::from(*letter)),
        _ => None,
    }
}

/// The numbered dialects' map from letter to values.
struct OwnedConditions<D> {
    tags: Vec<TagFilter>,
    unknown: Option<String>,
    dialect: PhantomData<D>,
}

impl<'de, D: Dialect> Deserialize<'de> for OwnedConditions<D> {
    fn deserialize<R: Deserializer<'de>>(deserializer: R) -> Result<Self, R::Error> {
        struct ConditionsVisitor<D>(PhantomData<D>);
        impl<'de, D: Dialect> Visitor<'de> for ConditionsVisitor<D> {
            type Value = OwnedConditions<D>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of tag conditions")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let (mut tags, mut unknown) = (Vec::new(), None);
                while let Some(name) = map.next_key::<String>()? {
                    if let Some(letter) = tag_letter(&name) {
                        condition::<D, A>(&mut tags, letter, &mut map)?;
                    } else {
                        map.next_value::<IgnoredAny>()?;
                        unknown.get_or_insert_with(|| format!("#{name}"));
                    }
                }
                if tags.is_empty() && unknown.is_none() {
                    return Err(de::Error::custom("an empty map of tag conditions; it should be left out"));
                }
                Ok(OwnedConditions { tags, unknown, dialect: PhantomData })
            }
        }
        deserializer.deserialize_map(ConditionsVisitor(PhantomData))
    }
}
