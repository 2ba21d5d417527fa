//! CBOR array:
//!
//! ```text
//! 87 id bstr32  pubkey bstr32  created_at int  kind uint  tags [[tstr / bstr…]…]  content tstr  sig bstr64
//! ```
//!
//! Tag values that are lowercase hex of even length from 8 digits on are byte strings. Exactly
//! seven elements: there is no room for extensions. Messages are numbered arrays; see the `cbor`
//! module.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer, Serializer,
    de::{self, IgnoredAny, SeqAccess, Visitor},
    ser::SerializeSeq,
};

use super::cbor::{Bytes, Dialect, Fixed, Tags, tags};
use crate::Event;

#[derive(Debug)]
pub(super) struct CborPacked;

impl Dialect for CborPacked {
    const SPELLED: bool = false;
    const COMPACT: bool = true;
    const EVENT_HEAD: u8 = 0x87;
    const KEYS: [&'static [u8]; 7] = [&[]; 7];

    fn write_event<S: Serializer>(event: &Event<'_>, serializer: S) -> Result<S::Ok, S::Error> {
        let mut array = serializer.serialize_seq(Some(7))?;
        array.serialize_element(&Bytes(&event.id))?;
        array.serialize_element(&Bytes(&event.pubkey))?;
        array.serialize_element(&event.created_at)?;
        array.serialize_element(&event.kind)?;
        array.serialize_element(&tags::<Self>(&event.tags))?;
        array.serialize_element(&event.content)?;
        array.serialize_element(&Bytes(&event.sig))?;
        array.end()
    }

    fn read_event<'de, R: Deserializer<'de>>(deserializer: R) -> Result<Event<'static>, R::Error> {
        // Not `deserialize_seq`: ciborium would also offer the bytes of a byte string.
        deserializer.deserialize_any(EventVisitor)
    }
}

struct EventVisitor;

impl<'de> Visitor<'de> for EventVisitor {
    type Value = Event<'static>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an event array of 7")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<Event<'static>, A::Error> {
        let event = Event {
            id: next::<Fixed<32>, A>(&mut array, "id")?.0,
            pubkey: next::<Fixed<32>, A>(&mut array, "pubkey")?.0,
            created_at: next(&mut array, "created_at")?,
            kind: next(&mut array, "kind")?,
            tags: next::<Tags<CborPacked>, A>(&mut array, "tags")?.0,
            content: Cow::Owned(next(&mut array, "content")?),
            sig: next::<Fixed<64>, A>(&mut array, "sig")?.0,
        };
        match array.next_element::<IgnoredAny>()? {
            None => Ok(event),
            Some(_) => Err(de::Error::custom("expected an event array of 7, found more elements")),
        }
    }
}

fn next<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(
    array: &mut A,
    field: &'static str,
) -> Result<T, A::Error> {
    array.next_element()?.ok_or_else(|| de::Error::missing_field(field))
}
