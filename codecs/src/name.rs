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

/// Gives an enum its names from one list: `ALL`, `name`, `Display`, and `FromStr`, whose
/// [`UnknownName`] lists them.
///
/// ```
/// #[derive(Debug, Clone, Copy, PartialEq)]
/// enum Side { Left, Right }
///
/// codecs::names! { Side, "side": Left = "left", Right = "right" }
/// assert_eq!(("left".parse(), Side::ALL.map(Side::name)), (Ok(Side::Left), ["left", "right"]));
/// ```
#[macro_export]
macro_rules! names {
    ($type:ident, $what:literal: $($variant:ident = $name:literal),+ $(,)?) => {
        impl $type {
            /// Every one, in the order of every table.
            pub const ALL: [$type; [$($name),+].len()] = [$($type::$variant),+];

            /// The word on the command line and in results.
            pub fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)+
                }
            }
        }

        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl ::std::str::FromStr for $type {
            type Err = $crate::UnknownName;

            fn from_str(name: &str) -> Result<Self, $crate::UnknownName> {
                let found = Self::ALL.into_iter().find(|one| one.name() == name);
                found.ok_or_else(|| $crate::UnknownName::new($what, name, Self::ALL.map(Self::name)))
            }
        }
    };
}

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
