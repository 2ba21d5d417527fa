//! The small items: byte strings, lists, tag values, and names that are words or numbers.

use std::{borrow::Cow, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, DeserializeSeed, SeqAccess, Unexpected, Visitor},
};

use super::Dialect;
use crate::hex;

/// Shortest text that travels as bytes (hex rule B).
pub(super) const MIN_HEX_LEN: usize = 8;

/// Writes a byte string.
pub(in crate::formats) struct Bytes<'b>(pub(in crate::formats) &'b [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

/// Reads a byte string of exactly `N`.
pub(in crate::formats) struct Fixed<const N: usize>(pub(in crate::formats) [u8; N]);

impl<'de, const N: usize> Deserialize<'de> for Fixed<N> {
    fn deserialize<R: Deserializer<'de>>(deserializer: R) -> Result<Self, R::Error> {
        struct FixedVisitor<const N: usize>;
        impl<const N: usize> Visitor<'_> for FixedVisitor<N> {
            type Value = Fixed<N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a byte string of {N}")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Fixed<N>, E> {
                bytes.try_into().map(Fixed).map_err(|_| E::invalid_length(bytes.len(), &self))
            }
        }
        // Without `visit_seq`: ciborium would also offer an array of integers.
        deserializer.deserialize_bytes(FixedVisitor)
    }
}

impl<const N: usize> From<Fixed<N>> for [u8; N] {
    fn from(bytes: Fixed<N>) -> Self {
        bytes.0
    }
}

/// Reads a byte string of any length.
pub(super) struct Blob(pub(super) Vec<u8>);

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<R: Deserializer<'de>>(deserializer: R) -> Result<Self, R::Error> {
        struct BlobVisitor;
        impl Visitor<'_> for BlobVisitor {
            type Value = Blob;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a byte string")
            }

            fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Blob, E> {
                Ok(Blob(bytes))
            }
        }
        // Not `deserialize_bytes`, which hands over what fits ciborium's buffer of 4 KiB and
        // nothing longer.
        deserializer.deserialize_byte_buf(BlobVisitor)
    }
}

/// Writes the list with `item` around each entry.
pub(super) struct Each<'l, T, F>(pub(super) &'l [T], pub(super) F);

impl<'l, T, V: Serialize, F: Fn(&'l T) -> V> Serialize for Each<'l, T, F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(&self.1))
    }
}

/// Reads an array of `T`, kept as `U`. `Vec` itself would also take a byte string for a list of
/// small numbers.
pub(super) struct List<T, U = T>(pub(super) Vec<U>, pub(super) PhantomData<T>);

impl<'de, T: Deserialize<'de> + Into<U>, U> Deserialize<'de> for List<T, U> {
    fn deserialize<R: Deserializer<'de>>(deserializer: R) -> Result<Self, R::Error> {
        struct ListVisitor<T, U>(PhantomData<(T, U)>);
        impl<'de, T: Deserialize<'de> + Into<U>, U> Visitor<'de> for ListVisitor<T, U> {
            type Value = List<T, U>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut array: A) -> Result<List<T, U>, A::Error> {
                let mut list = Vec::new(); // the length is a claim: grow as items arrive
                while let Some(item) = array.next_element::<T>()? {
                    list.push(item.into());
                }
                Ok(List(list, PhantomData))
            }
        }
        deserializer.deserialize_any(ListVisitor(PhantomData))
    }
}

/// A tag value: text, or under the hex rule a byte string for lowercase hex.
pub(super) struct Value<D, T>(pub(super) T, PhantomData<D>);

impl<D, T> Value<D, T> {
    pub(super) fn new(text: T) -> Self {
        Value(text, PhantomData)
    }
}

impl<D: Dialect> Serialize for Value<D, &str> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.0;
        if !D::COMPACT || !hex::is_compactable(text, MIN_HEX_LEN) {
            return serializer.serialize_str(text);
        }
        // Ids and keys are the usual case and need no allocation.
        if let Some(bytes) = hex::decode_array::<32>(text.as_bytes()) {
            return serializer.serialize_bytes(&bytes);
        }
        serializer
            .serialize_bytes(&hex::decode(text.as_bytes()).expect("the text was found to be lowercase hex"))
    }
}

impl<'de, D: Dialect> Deserialize<'de> for Value<D, String> {
    fn deserialize<R: Deserializer<'de>>(deserializer: R) -> Result<Self, R::Error> {
        if D::COMPACT {
            deserializer.deserialize_any(CompactVisitor).map(Value::new)
        } else {
            String::deserialize(deserializer).map(Value::new)
        }
    }
}

impl<D> From<Value<D, String>> for String {
    fn from(value: Value<D, String>) -> Self {
        value.0
    }
}

impl<D> From<Value<D, String>> for Cow<'_, str> {
    fn from(value: Value<D, String>) -> Self {
        Cow::Owned(value.0)
    }
}

struct CompactVisitor;

impl Visitor<'_> for CompactVisitor {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a tag value: text, or at least 4 bytes in place of hex")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<String, E> {
        if 2 * bytes.len() < MIN_HEX_LEN {
            return Err(E::invalid_length(bytes.len(), &self));
        }
        Ok(hex::encode(bytes))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
        self.visit_string(text.to_owned())
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<String, E> {
        if hex::is_compactable(&text, MIN_HEX_LEN) {
            return Err(E::invalid_value(Unexpected::Str(&text), &"bytes in place of lowercase hex"));
        }
        Ok(text)
    }
}

/// A verb or field: its number, JSON's word for it, and the form of a verb's messages.
#[derive(Clone, Copy)]
pub(super) struct Name(pub(super) u64, pub(super) &'static str, pub(super) &'static str);

impl Name {
    /// The name as the word or as the number.
    pub(super) fn written(self, spelled: bool) -> impl Serialize {
        WrittenName { name: self, spelled }
    }
}

struct WrittenName {
    name: Name,
    spelled: bool,
}

impl Serialize for WrittenName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.spelled {
            serializer.serialize_str(self.name.1)
        } else {
            serializer.serialize_u64(self.name.0)
        }
    }
}

/// Reads a name and returns JSON's word for it if it is one of `known`; otherwise the word or
/// number.
pub(super) struct ReadName<D>(&'static [Name], PhantomData<D>);

impl<D> ReadName<D> {
    pub(super) fn with_known(known: &'static [Name]) -> Self {
        ReadName(known, PhantomData)
    }
}

impl<'de, D: Dialect> DeserializeSeed<'de> for ReadName<D> {
    type Value = Cow<'static, str>;

    fn deserialize<R: Deserializer<'de>>(self, deserializer: R) -> Result<Self::Value, R::Error> {
        if D::SPELLED {
            deserializer.deserialize_identifier(self)
        } else {
            deserializer.deserialize_u64(self)
        }
    }
}

impl<D: Dialect> Visitor<'_> for ReadName<D> {
    type Value = Cow<'static, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if D::SPELLED { "a word" } else { "a number" })
    }

    fn visit_str<E>(self, word: &str) -> Result<Cow<'static, str>, E> {
        let known = self.0.iter().find(|name| name.1 == word);
        Ok(known.map_or_else(|| Cow::Owned(word.to_owned()), |name| Cow::Borrowed(name.1)))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Cow<'static, str>, E> {
        let known = self.0.iter().find(|name| name.0 == number);
        Ok(known.map_or_else(|| Cow::Owned(number.to_string()), |name| Cow::Borrowed(name.1)))
    }
}
