//! Filters within limits.

use std::{cell::Cell, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};

use super::item::{Hex, Text, Whole, once, once_seed, twice};
use crate::{Filter, OverLimit, TagFilter, model::Bounds};

/// Records a limit that was exceeded, because serde has errors of its own.
pub(super) type Over<'s> = &'s Cell<Option<Box<OverLimit>>>;

/// Stops serde at a limit.
pub(super) fn stop<T, E: de::Error>(result: Result<T, Box<OverLimit>>, over: Over<'_>) -> Result<T, E> {
    result.map_err(|error| {
        let reason = E::custom(&error);
        over.set(Some(error));
        reason
    })
}

/// Reads a filter within limits.
#[derive(Clone, Copy)]
pub(super) struct FilterSeed<'s> {
    pub(super) bounds: &'s Bounds<'s>,
    pub(super) over: Over<'s>,
}

impl<'s> FilterSeed<'s> {
    /// Reads one of the filter's lists.
    fn list<T, U>(self) -> ListSeed<'s, T, U> {
        ListSeed(self, PhantomData)
    }

    fn keys(self) -> ListSeed<'s, Hex<32>, [u8; 32]> {
        self.list()
    }

    fn kinds(self) -> ListSeed<'s, Whole<u16>, u16> {
        self.list()
    }
}

impl<'de> DeserializeSeed<'de> for FilterSeed<'_> {
    type Value = Filter;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Filter, D::Error> {
        deserializer.deserialize_map(self)
    }
}

/// Reads a list of `T`, kept as `U`, within the limit.
struct ListSeed<'s, T, U>(FilterSeed<'s>, PhantomData<(T, U)>);

impl<'de, T: Deserialize<'de> + Into<U>, U> DeserializeSeed<'de> for ListSeed<'_, T, U> {
    type Value = Vec<U>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<U>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T: Deserialize<'de> + Into<U>, U> Visitor<'de> for ListSeed<'_, T, U> {
    type Value = Vec<U>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<U>, A::Error> {
        let FilterSeed { bounds, over } = self.0;
        let mut list = Vec::new();
        while let Some(element) = elements.next_element::<T>()? {
            stop(bounds.values(list.len() + 1), over)?;
            list.push(element.into());
        }
        Ok(list)
    }
}

impl<'de> Visitor<'de> for FilterSeed<'_> {
    type Value = Filter;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a filter object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Filter, A::Error> {
        let mut filter = Filter::default();
        while let Some(Text(key)) = object.next_key()? {
            match &*key {
                "ids" => once_seed(&mut filter.ids, "ids", &mut object, self.keys())?,
                "authors" => once_seed(&mut filter.authors, "authors", &mut object, self.keys())?,
                "kinds" => once_seed(&mut filter.kinds, "kinds", &mut object, self.kinds())?,
                "since" => once::<Whole<i64>, _, _>(&mut filter.since, "since", &mut object)?,
                "until" => once::<Whole<i64>, _, _>(&mut filter.until, "until", &mut object)?,
                "limit" => once::<Whole<u64>, _, _>(&mut filter.limit, "limit", &mut object)?,
                "search" => once::<String, _, _>(&mut filter.search, "search", &mut object)?,
                other => match tag_letter(other) {
                    Some(letter) if filter.tags.iter().any(|t| t.letter == letter) => {
                        return Err(twice("a tag condition"));
                    }
                    Some(letter) => {
                        let values = object.next_value_seed(self.list::<String, String>())?;
                        filter.tags.push(TagFilter { letter, values });
                    }
                    None => {
                        object.next_value::<IgnoredAny>()?;
                        filter.unknown.get_or_insert_with(|| key.into_owned());
                    }
                },
            }
        }
        Ok(filter)
    }
}

/// The letter of a `#x` filter field.
fn tag_letter(field: &str) -> Option<char> {
    match field.as_bytes() {
        [b'#', letter] if letter.is_ascii_alphabetic() => Some(char::from(*letter)),
        _ => None,
    }
}
