//! A cell as one value: an object of JSON with the name of each factor and its value as text.

use std::{collections::BTreeMap, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::{Cell, Factor};

impl Cell {
    /// The text of every factor, by its name.
    pub fn to_words(&self) -> BTreeMap<String, String> {
        let word = |factor: Factor| (factor.row().name.to_owned(), (factor.row().write)(self));
        Factor::ALL.into_iter().map(word).collect()
    }

    /// Reads what [`Cell::to_words`] wrote; a factor that is left out keeps its default.
    ///
    /// # Errors
    /// Names the factor that is unknown or has no such value.
    pub fn from_words<'w>(words: impl IntoIterator<Item = (&'w str, &'w str)>) -> Result<Cell, String> {
        let mut cell = Cell::default();
        for (name, text) in words {
            let factor = Factor::ALL.into_iter().find(|factor| factor.row().name == name);
            let factor = factor.ok_or_else(|| {
                format!("unknown factor {name:?}; known: {}", Factor::ALL.map(|one| one.row().name).join(" "))
            })?;
            (factor.row().read)(&mut cell, text).map_err(|why| format!("{name} {text:?}: {why}"))?;
        }
        Ok(cell)
    }
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_words().serialize(serializer)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A text for each factor that is not its default.
    fn others() -> Vec<(&'static str, &'static str)> {
        vec![
            ("format", "cbor-packed"),
            ("compression", "deflate:level=4"),
            ("batching", "on:ms=2:bytes=9"),
            ("implementation", "tuned"),
            ("verify", "id"),
            ("reencode", "never-if-canonical"),
            ("client_verify", "full"),
            ("scenario", "some/mine.toml"),
            ("rate_per_s", "0.5"),
            ("link", "slow-4g:loss=2%"),
        ]
    }

    #[test]
    fn a_cell_becomes_text_and_back_whatever_its_factors_are() {
        let standing = Cell::default();
        assert_eq!(serde_json::to_string(&standing).unwrap().parse::<Cell>(), Ok(standing.clone()));
        let names: Vec<&str> = others().iter().map(|(name, _)| *name).collect();
        assert_eq!(names, Factor::ALL.map(|factor| factor.row().name), "a value of every factor");
        for (name, text) in others() {
            let cell = Cell::from_words([(name, text)]).unwrap();
            assert_ne!(cell, standing, "{name}");
            assert_eq!(serde_json::to_string(&cell).unwrap().parse::<Cell>(), Ok(cell), "{name}");
        }
        let foreign = Cell { relay: None, ..Cell::default() };
        assert_eq!(serde_json::to_string(&foreign).unwrap().parse::<Cell>(), Ok(foreign));
    }

    #[test]
    fn what_is_no_cell_is_refused_by_the_name_of_its_factor() {
        for (text, says) in [
            (r#"{"colour":"red"}"#, "unknown factor \"colour\"; known: format"),
            (r#"{"format":"xml"}"#, "format \"xml\": "),
            (r#"{"batching":"on:ms"}"#, "\"ms\" is no limit"),
            (r#"{"rate_per_s":"-1"}"#, "above 0"),
            (r#"{"rate_per_s":1}"#, "expected a string"),
            (r#"{"link":"5g"}"#, "link \"5g\""),
            ("[]", "expected a map"),
        ] {
            let error = text.parse::<Cell>().unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
