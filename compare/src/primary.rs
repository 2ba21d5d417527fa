//! The primary family of a run: the few cells that its question is about, named before the first
//! block, so that the correction for their number costs little.

use anyhow::{Result, bail};
use cell::Cell;
use codecs::UnknownName;
use report::result::Role;

use crate::matrix::CellSpec;

/// Cells of a load that are primary unless somebody names them.
const MOST: usize = 8;

/// The word for one family of all cells.
const ALL: &str = "all";

/// The names of the primary cells: the requested ones, or up to [`MOST`] per load. These differ from JSON
/// without compression only in format or only in compression, by turns in the matrix's order. For several
/// relays they are the cells of all but the first. None where all cells are to be one family.
///
/// # Errors
/// When a name is of no cell with a verdict; the text lists those that are.
pub(crate) fn primary(cells: &[CellSpec], asked: &[String]) -> Result<Vec<String>> {
    if asked == [ALL] {
        return Ok(Vec::new());
    }
    if asked.is_empty() {
        return Ok(loads(cells).flat_map(by_rule).collect());
    }
    let mut primary = Vec::new();
    for name in asked.iter().map(|name| name.trim()) {
        let named = named(cells, name);
        if named.is_empty() {
            let known: Vec<&str> = judged(cells).map(|cell| cell.id.as_str()).collect();
            bail!("--primary: {} (or: {ALL})", UnknownName::new("cell with a verdict", name, known));
        }
        primary.extend(named.into_iter().filter(|id| !primary.contains(id)).collect::<Vec<_>>());
    }
    Ok(primary)
}

/// The cells of each load, which stand side by side.
pub(crate) fn loads(cells: &[CellSpec]) -> impl Iterator<Item = &[CellSpec]> {
    cells.chunk_by(|one, other| one.load() == other.load())
}

/// The cells with verdicts.
pub(crate) fn judged(cells: &[CellSpec]) -> impl Iterator<Item = &CellSpec> {
    cells.iter().filter(|cell| cell.role == Role::Cell)
}

/// The cells of a name; where there is none, those of each load, or else those whose parameters
/// the name leaves out.
fn named(cells: &[CellSpec], name: &str) -> Vec<String> {
    let of = |is: &dyn Fn(&str) -> bool| -> Vec<String> {
        judged(cells).filter(|cell| is(&cell.id)).map(|cell| cell.id.clone()).collect()
    };
    let longer = |mark| of(&|id| id.strip_prefix(name).is_some_and(|more| more.starts_with(mark)));
    let found = [of(&|id| id == name), longer('+'), longer(':')];
    found.into_iter().find(|cells| !cells.is_empty()).unwrap_or_default()
}

/// The primary cells of one load, in the order of the matrix.
fn by_rule(load: &[CellSpec]) -> Vec<String> {
    let Some(anchor) = load.iter().find(|cell| cell.role == Role::Anchor).map(|cell| &cell.cell) else {
        return Vec::new();
    };
    let others: Vec<String> = judged(load)
        .filter(|spec| spec.cell.relay_name != anchor.relay_name)
        .map(|spec| spec.id.clone())
        .take(MOST)
        .collect();
    if !others.is_empty() {
        return others;
    }
    let formats = judged(load).filter(|spec| Cell { format: anchor.format, ..spec.cell.clone() } == *anchor);
    let compressions =
        judged(load).filter(|spec| Cell { compression: anchor.compression, ..spec.cell.clone() } == *anchor);
    let turns = formats.enumerate().chain(compressions.enumerate());
    let mut turns: Vec<(usize, &CellSpec)> = turns.collect();
    // Stable: the format of a turn stays before its compression.
    turns.sort_by_key(|(turn, _)| *turn);
    turns.truncate(MOST);
    let chosen = |cell: &&CellSpec| turns.iter().any(|(_, one)| one.id == cell.id);
    judged(load).filter(chosen).map(|cell| cell.id.clone()).collect()
}

#[cfg(test)]
mod tests {
    use cell::Factor;

    use super::*;
    use crate::matrix::{Matrix, cells};

    fn cells_with(values: &[(Factor, &str)]) -> Vec<CellSpec> {
        let each = |matrix: Matrix, (factor, text): &(Factor, &str)| matrix.with(*factor, text.split(','));
        cells(&values.iter().fold(Matrix::default(), each)).unwrap()
    }

    fn names(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn formats_without_compression_and_compressions_of_json_take_turns_up_to_eight() {
        let few = cells_with(&[
            (Factor::Format, "json,capnp,dannypack"),
            (Factor::Compression, "none,deflate,zstd"),
        ]);
        let expected = names("json+deflate json+zstd capnp+none dannypack+none");
        assert_eq!(primary(&few, &[]).unwrap(), expected);
        let many = cells_with(&[(Factor::Format, "core"), (Factor::Compression, "all")]);
        let chosen = primary(&many, &[]).unwrap();
        assert_eq!(chosen.len(), MOST);
        assert_eq!(chosen.iter().filter(|id| id.starts_with("json+")).count(), 4, "{chosen:?}");
        assert_eq!(chosen.iter().filter(|id| id.ends_with("+none")).count(), 4, "{chosen:?}");
        let many = cells_with(&[(Factor::Format, "core"), (Factor::Compression, "none,deflate")]);
        let chosen = primary(&many, &[]).unwrap();
        assert!(chosen.len() == MOST && chosen[0] == "json+deflate", "{chosen:?}");
    }

    #[test]
    fn cells_that_differ_in_more_are_secondary_and_each_load_has_a_family() {
        let values = [
            (Factor::Format, "json,capnp"),
            (Factor::Compression, "none,deflate"),
            (Factor::Batching, "off,on"),
            (Factor::Load, "1,4"),
        ];
        let expected = names("json+deflate+load-1 capnp+none+load-1 json+deflate+load-4 capnp+none+load-4");
        assert_eq!(primary(&cells_with(&values), &[]).unwrap(), expected);
        let batches = cells_with(&[
            (Factor::Format, "json"),
            (Factor::Compression, "none"),
            (Factor::Batching, "off,on"),
        ]);
        assert_eq!(primary(&batches, &[]).unwrap(), [""; 0], "nothing differs in one of both alone");
    }

    #[test]
    fn a_family_is_named_by_its_cells_and_an_unknown_one_is_answered_with_the_known() {
        let cells = cells_with(&[
            (Factor::Format, "json,capnp"),
            (Factor::Compression, "none,deflate,deflate:level=4"),
            (Factor::Load, "1,4"),
        ]);
        let asked = |names: &[&str]| {
            primary(&cells, &names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
        };
        let both = names("json+deflate+load-1 json+deflate+load-4");
        assert_eq!(asked(&["json+deflate", "json+deflate"]).unwrap(), both);
        assert_eq!(asked(&["capnp+none+load-4"]).unwrap(), ["capnp+none+load-4"]);
        assert_eq!(asked(&["all"]).unwrap(), [""; 0]);
        for unknown in ["json+none", "json-control", "floor", "xml", "json+defl", ""] {
            let error = asked(&[unknown]).unwrap_err().to_string();
            assert!(
                error.starts_with("--primary: unknown cell ") && error.contains("capnp+none+load-1"),
                "{error}"
            );
        }
    }
}
