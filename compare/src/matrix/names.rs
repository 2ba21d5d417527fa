//! The values of a factor in a matrix, checked against what the factor takes.

use anyhow::anyhow;
use cell::{Cell, Factor, Side, UNKNOWN};
use codecs::UnknownName;
use program::UsageError;

/// Refuses a value, with those that there are and the names of groups.
pub(super) fn unknown<'n>(
    what: &str,
    name: &str,
    known: &[&str],
    groups: impl IntoIterator<Item = &'n str>,
) -> UsageError {
    let groups: Vec<&str> = groups.into_iter().collect();
    UsageError(anyhow!("{} (or: {})", UnknownName::new(what, name, known), groups.join(" ")))
}

/// The values that a matrix asks for, each once: those with names in the order of every table,
/// others as they are given.
pub(super) fn choose(factor: Factor, wanted: &[String]) -> Result<Vec<String>, UsageError> {
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
            return Err(unknown(row.name, text, &names, groups.iter().map(|(group, _)| *group)));
        }
        let refused = |why: String| UsageError(anyhow!("{} {text:?}: {why}", row.name));
        let normalised = factor.normalised(text).map_err(refused)?;
        if !chosen.contains(&normalised) {
            chosen.push(normalised);
        }
    }
    chosen.sort_by_key(|text| place(text));
    Ok(chosen)
}
