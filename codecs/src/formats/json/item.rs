//! The small items: text, hex, whole numbers, and fields that occur once.

use std::{borrow::Cow, fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{self, DeserializeSeed, MapAccess, Unexpected, Visitor},
};

use crate::hex;

/// Text that borrows from the input unless it held an escape.
pub(in crate::formats) struct Text<'a>(pub(in crate::formats) Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

impl<'a> From<Text<'a>> for Cow<'a, str> {
    fn from(text: Text<'a>) -> Self {
        text.0
    }
}

/// Exactly `2 * N` lowercase hex digits.
pub(super) struct Hex<const N: usize>(pub(super) [u8; N]);

impl<'de, const N: usize> Deserialize<'de> for Hex<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Text::deserialize(deserializer)?;
        hex::decode_array(text.0.as_bytes())
            .map(Hex)
            .ok_or_else(|| de::Error::custom(format!("expected {} lowercase hex digits", 2 * N)))
    }
}

impl<const N: usize> From<Hex<N>> for [u8; N] {
    fn from(hex: Hex<N>) -> Self {
        hex.0
    }
}

/// Lowercase hex of any even length.
pub(super) struct HexBytes(pub(super) Vec<u8>);

impl<'de> Deserialize<'de> for HexBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Text::deserialize(deserializer)?;
        hex::decode(text.0.as_bytes())
            .map(HexBytes)
            .ok_or_else(|| de::Error::custom("expected an even number of lowercase hex digits"))
    }
}

/// A whole number in the range of `T`, which errors name as NIP-01 does.
pub(super) struct Whole<T>(T);

/// A range of whole numbers, in words.
pub(super) trait Range {
    const WORDS: &str;
}

impl Range for u16 {
    const WORDS: &str = "a whole number from 0 to 65535";
}

impl Range for i64 {
    const WORDS: &str = "a whole number of at most 63 bits";
}

impl Range for u64 {
    const WORDS: &str = "a whole number from 0, of at most 64 bits";
}

impl<'de, T: Range + TryFrom<u64> + TryFrom<i64>> Deserialize<'de> for Whole<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct WholeVisitor<T>(PhantomData<T>);
        impl<T: Range + TryFrom<u64> + TryFrom<i64>> Visitor<'_> for WholeVisitor<T> {
            type Value = Whole<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::WORDS)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Whole<T>, E> {
                let unexpected = |_| E::invalid_value(Unexpected::Unsigned(number), &self);
                T::try_from(number).map(Whole).map_err(unexpected)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Whole<T>, E> {
                let unexpected = |_| E::invalid_value(Unexpected::Signed(number), &self);
                T::try_from(number).map(Whole).map_err(unexpected)
            }
        }
        // serde_json reads every number alike.
        deserializer.deserialize_u64(WholeVisitor(PhantomData))
    }
}

impl From<Whole<u16>> for u16 {
    fn from(number: Whole<u16>) -> Self {
        number.0
    }
}

impl From<Whole<i64>> for i64 {
    fn from(number: Whole<i64>) -> Self {
        number.0
    }
}

impl From<Whole<u64>> for u64 {
    fn from(number: Whole<u64>) -> Self {
        number.0
    }
}

/// Says that a field is absent.
pub(super) fn missing<E: de::Error>(field: &str) -> E {
    E::custom(format_args!("{field} is missing"))
}

/// Says that a field stands more than once.
pub(super) fn twice<E: de::Error>(field: &str) -> E {
    E::custom(format_args!("{field} occurs twice"))
}

/// Reads the value of a field that may occur once; errors name the field.
pub(super) fn once<'de, T: Deserialize<'de> + Into<U>, U, A: MapAccess<'de>>(
    slot: &mut Option<U>,
    field: &'static str,
    object: &mut A,
) -> Result<(), A::Error> {
    once_seed(slot, field, object, PhantomData::<T>)
}

/// As [`once`], with a seed that reads the value.
pub(super) fn once_seed<'de, S: DeserializeSeed<'de, Value: Into<U>>, U, A: MapAccess<'de>>(
    slot: &mut Option<U>,
    field: &'static str,
    object: &mut A,
    seed: S,
) -> Result<(), A::Error> {
    if slot.is_some() {
        return Err(twice(field));
    }
    let value =
        object.next_value_seed(seed).map_err(|error| de::Error::custom(format!("{field}: {error}")))?;
    *slot = Some(value.into());
    Ok(())
}
