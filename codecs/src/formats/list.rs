//! Arrays through serde: their length is a claim, so they grow as items arrive.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};

/// An array of `T`, kept as `U`.
pub(super) struct List<T, U>(pub(super) Vec<U>, PhantomData<T>);

impl<T, U> From<List<T, U>> for Vec<U> {
    #[inline]
    fn from(list: List<T, U>) -> Self {
        list.0
    }
}

impl<'de, T: Deserialize<'de> + Into<U>, U> Deserialize<'de> for List<T, U> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let visitor = ListVisitor(PhantomData);
        if deserializer.is_human_readable() {
            return deserializer.deserialize_seq(visitor);
        }
        // ciborium would also offer the bytes of a byte string as a sequence.
        deserializer.deserialize_any(visitor)
    }
}

struct ListVisitor<T, U>(PhantomData<(T, U)>);

impl<'de, T: Deserialize<'de> + Into<U>, U> Visitor<'de> for ListVisitor<T, U> {
    type Value = List<T, U>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<List<T, U>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = array.next_element::<T>()? {
            list.push(item.into());
        }
        Ok(List(list, PhantomData))
    }
}
