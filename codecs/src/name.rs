//! Names from closed lists.

use std::fmt;

/// A name that is not in a closed list; the message lists the known ones, and those that were
/// likely meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownName {
    what: String,
    name: String,
    known: Vec<String>,
}

impl UnknownName {
    /// Says that `name` is no `what`, and which ones are.
    pub fn new<S: AsRef<str>>(what: &str, name: &str, known: impl IntoIterator<Item = S>) -> Self {
        let known = known.into_iter().map(|known| known.as_ref().to_owned()).collect();
        UnknownName { what: what.to_owned(), name: name.to_owned(), known }
    }

    /// The family that the name stands for, or the known name that is most like it.
    fn meant(&self) -> Vec<&str> {
        /// Names from peers may be long.
        const LONGEST: usize = 40;
        const ALIKE: f64 = 0.8;
        let name = self.name.as_str();
        if name.is_empty() || name.len() > LONGEST {
            return Vec::new();
        }
        let known = || self.known.iter().map(String::as_str);
        let family: Vec<&str> = known().filter(|known| known.starts_with(&format!("{name}-"))).collect();
        if !family.is_empty() {
            return family;
        }
        // HTTP's names of RFC 1951's algorithm, and that of its WebSocket extension (RFC 7692).
        let alias = ["gzip", "zlib", "permessage-deflate"].contains(&name).then_some("deflate");
        let likeness = |known: &str| strsim::jaro_winkler(alias.unwrap_or(name), known);
        let best =
            known().map(|known| (likeness(known), known)).max_by(|one, other| one.0.total_cmp(&other.0));
        best.filter(|(likeness, _)| *likeness >= ALIKE).map(|(_, known)| known).into_iter().collect()
    }
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown {} {:?}", self.what, self.name)?;
        match self.meant().as_slice() {
            [] => {}
            [one] => write!(f, " (did you mean {one}?)")?,
            [most @ .., last] => write!(f, " (did you mean {} or {last}?)", most.join(", "))?,
        }
        write!(f, "; known: {}", self.known.join(" "))
    }
}

impl std::error::Error for UnknownName {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_was_likely_meant_is_named() {
        let known = ["json", "cbor-packed", "cbor-intkey", "proto-binary", "deflate"];
        for (name, hint) in [
            ("jsn", " (did you mean json?)"),
            ("cbor", " (did you mean cbor-packed or cbor-intkey?)"),
            ("proto", " (did you mean proto-binary?)"),
            ("protobinary", " (did you mean proto-binary?)"),
            ("permessage-deflate", " (did you mean deflate?)"),
            ("xml", ""),
            ("", ""),
            (&"json".repeat(20), ""),
        ] {
            let text = UnknownName::new("format", name, known).to_string();
            let expected = format!("unknown format {name:?}{hint}; known: json cbor-packed");
            assert!(text.starts_with(&expected), "{text}");
        }
    }
}
