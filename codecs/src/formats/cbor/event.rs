//! The event's tags in every layout, and the event as a map.

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
use crate::{Event, Tag};

/// Tags to be written.
pub(in crate::formats) fn tags<'e, D: Dialect>(tags: &'e [Tag<'e>]) -> impl Serialize {
    Each(tags, |tag: &'e Tag<'e>| Each(tag, |value: &'e Cow<'e, str>| Value::<D, &'e str>::new(value)))
}

/// Tags as read.
pub(in crate::formats) struct Tags<D>(pub(in crate::formats) Vec<Tag<'static>>, PhantomData<D>);

impl<'de, D: Dialect> Deserialize<'de> for Tags<D> {
    fn deserialize<R: Deserializer<'de>>(deserializer: R) -> Result<Self, R::Error> {
        List::<OneTag<D>, _>::deserialize(deserializer).map(|tags| Tags(tags.0, PhantomData))
    }
}

struct OneTag<D>(Tag<'static>, PhantomData<D>);

impl<'de, D: Dialect> Deserialize<'de> for OneTag<D> {
    fn deserialize<R: Deserializer<'de>>(deserializer: R) -> Result<Self, R::Error> {
        List::<Value<D, String>, _>::deserialize(deserializer).map(|values| OneTag(values.0, PhantomData))
    }
}

impl<D> From<OneTag<D>> for Tag<'static> {
    fn from(tag: OneTag<D>) -> Self {
        tag.0
    }
}

const ID: Name = Name(0, "id", "");
const PUBKEY: Name = Name(1, "pubkey", "");
const CREATED_AT: Name = Name(2, "created_at", "");
const KIND: Name = Name(3, "kind", "");
const TAGS: Name = Name(4, "tags", "");
const CONTENT: Name = Name(5, "content", "");
const SIG: Name = Name(6, "sig", "");
const FIELDS: &[Name] = &[ID, PUBKEY, CREATED_AT, KIND, TAGS, CONTENT, SIG];

/// Writes the event as a map in the order of NIP-01.
pub(in crate::formats) fn write_map<D: Dialect, S: Serializer>(
    event: &Event<'_>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(FIELDS.len()))?;
    map.serialize_entry(&ID.written(D::SPELLED), &Bytes(&event.id))?;
    map.serialize_entry(&PUBKEY.written(D::SPELLED), &Bytes(&event.pubkey))?;
    map.serialize_entry(&CREATED_AT.written(D::SPELLED), &event.created_at)?;
    map.serialize_entry(&KIND.written(D::SPELLED), &event.kind)?;
    map.serialize_entry(&TAGS.written(D::SPELLED), &tags::<D>(&event.tags))?;
    map.serialize_entry(&CONTENT.written(D::SPELLED), &event.content)?;
    map.serialize_entry(&SIG.written(D::SPELLED), &Bytes(&event.sig))?;
    map.end()
}

/// Reads an event that [`write_map`] could have written. Fields of a later version may follow,
/// their names in ascending order (by length, then bytes: numeric order for numbers); they are
/// ignored.
pub(in crate::formats) fn read_map<'de, D: Dialect, R: Deserializer<'de>>(
    deserializer: R,
) -> Result<Event<'static>, R::Error> {
    deserializer.deserialize_map(EventVisitor::<D>(PhantomData))
}

struct EventVisitor<D>(PhantomData<D>);

impl<'de, D: Dialect> Visitor<'de> for EventVisitor<D> {
    type Value = Event<'static>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Event<'static>, A::Error> {
        let event = Event {
            id: field::<D, Fixed<32>, A>(&mut map, ID)?.0,
            pubkey: field::<D, Fixed<32>, A>(&mut map, PUBKEY)?.0,
            created_at: field::<D, i64, A>(&mut map, CREATED_AT)?,
            kind: field::<D, u16, A>(&mut map, KIND)?,
            tags: field::<D, Tags<D>, A>(&mut map, TAGS)?.0,
            content: Cow::Owned(field::<D, String, A>(&mut map, CONTENT)?),
            sig: field::<D, Fixed<64>, A>(&mut map, SIG)?.0,
        };
        let mut last: Option<Cow<'static, str>> = None;
        while let Some(name) = map.next_key_seed(ReadName::<D>::with_known(FIELDS))? {
            let ascends = |last: &Cow<'_, str>| (last.len(), &**last) < (name.len(), &*name);
            if FIELDS.iter().any(|field| field.1 == name) || !last.as_ref().is_none_or(ascends) {
                return Err(de::Error::custom(format!("field {name:?} occurs twice or out of order")));
            }
            map.next_value::<IgnoredAny>()?;
            last = Some(name);
        }
        Ok(event)
    }
}

fn field<'de, D: Dialect, T: Deserialize<'de>, A: MapAccess<'de>>(
    map: &mut A,
    expected: Name,
) -> Result<T, A::Error> {
    match map.next_key_seed(ReadName::<D>::with_known(FIELDS))? {
        Some(name) if name == expected.1 => map.next_value(),
        Some(name) => Err(de::Error::custom(format!("expected field {:?}, found {name:?}", expected.1))),
        None => Err(de::Error::missing_field(expected.1)),
    }
}
