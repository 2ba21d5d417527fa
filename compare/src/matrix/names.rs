//! The values of a factor in a matrix, checked against what the factor takes.

use std::fmt;

use cell::{Cell, Factor, Side, UNKNOWN};

/// A value that a factor does not have, with those that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownName {
    pub(super) what: String,
    pub(super) name: String,
    pub(super) known: Vec<&'static str>,
    /// Names of groups.
    pub(super) groups: Vec<&'static str>,
    /// The fault of a value that is no mere name.
    pub(super) why: Option<String>,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.why {
            return write!(f, "{} {:?}: {why}", self.what, self.name);
        }
        let unknown = codecs::UnknownName::new(&self.what, &self.name, &self.known);
        write!(f, "{unknown} (or: {})", self.groups.join(" "))
    }
}

impl std::error::Error for UnknownName {}

/// The values that a matrix asks for, each once: those with names in the order of every table,
/// others as they are given.
pub(super) fn choose(factor: Factor, wanted: &[String]) -> Result<Vec<String>, UnknownName> {
    let row = factor.row();
    let (names, groups) = ((row.names)(), row.groups());
    // An empty list asks for nothing else than without it.
    let standing = [(row.write)(&Cell::default())];
    let wanted = if wanted.is_empty() { &standing[..] } else { wanted };
    let members = |text: &str| groups.iter().find(|(group, _)| *group == text).map(|(_, members)| members);
    let mut asked: Vec<&str> = Vec::new();
    for text in wanted.iter().map(|text| text.trim()) {
        match members(text) {
            Some(members) => asked.extend(members),
            None => asked.push(text),
        }
    }
    let place = |text: &str| {
        let name = text.split(':').next().unwrap_or(text);
        names.iter().position(|known| *known == name)
    };
    let mut chosen: Vec<String> = Vec::new();
    for text in asked {
        let is_foreign = row.side == Side::Relay && text == UNKNOWN;
        if !names.is_empty() && !is_foreign && place(text).is_none() {
            return Err(UnknownName {
                what: row.name.to_owned(),
                name: text.to_owned(),
                known: names,
                groups: groups.iter().map(|(group, _)| *group).collect(),
                why: None,
            });
        }
        let normalised = factor.normalised(text).map_err(|why| UnknownName {
            what: row.name.to_owned(),
            name: text.to_owned(),
            known: Vec::new(),
            groups: Vec::new(),
            why: Some(why),
        })?;
        if !chosen.contains(&normalised) {
            chosen.push(normalised);
        }
    }
    chosen.sort_by_key(|text| place(text));
    Ok(chosen)
}
