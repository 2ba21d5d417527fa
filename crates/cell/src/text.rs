//! A cell as one value: an object of JSON with the name of each factor and its value as text.

use std::{collections::BTreeMap, str::FromStr};

use codecs::UnknownName;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::{Cell, Factor};

impl Cell {
    /// Reads the texts of factors by their names; a factor that is left out keeps its default.
    ///
    /// # Errors
    /// Names the factor that is unknown or has no such value.
    pub fn from_words<'w>(words: impl IntoIterator<Item = (&'w str, &'w str)>) -> Result<Cell, String> {
        let mut cell = Cell::default();
        for (name, text) in words {
            let factor = Factor::ALL.into_iter().find(|factor| factor.row().name == name);
            let names = Factor::ALL.map(|one| one.row().name);
            let factor = factor.ok_or_else(|| UnknownName::new("factor", name, names).to_string())?;
            (factor.row().read)(&mut cell, text).map_err(|why| format!("{name} {text:?}: {why}"))?;
        }
        Ok(cell)
    }
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Factor::ALL.map(|factor| (factor.row().name, (factor.row().write)(self))))
    }
}

impl<'de> Deserialize<'de> for Cell {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cell, D::Error> {
        let words = BTreeMap::<String, String>::deserialize(deserializer)?;
        Cell::from_words(words.iter().map(|(name, text)| (name.as_str(), text.as_str())))
            .map_err(D::Error::custom)
    }
}

impl FromStr for Cell {
    type Err = String;

    fn from_str(text: &str) -> Result<Cell, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }
}
