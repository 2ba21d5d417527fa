//! Is like compared with like? Whose code the cells of a table are, which question they answer, and
//! the parameters in which compressions differ.

use std::collections::BTreeSet;

use crate::result::{CellResult, Role};
use crate::view::LoadView;

/// The name in records of code that no crate has.
const OURS: &str = "this repository";

/// Which code the tables are of, and which verdict follows from them.
pub(crate) fn code_line(load: &LoadView<'_>) -> String {
    let all: BTreeSet<&str> = load.cells.iter().map(|view| view.cell.cell.implementation.as_str()).collect();
    let mut text = match Vec::from_iter(all).as_slice() {
        ["library"] => "Code: library, so the verdicts are about adopting a format today.".to_owned(),
        ["tuned"] => "Code: tuned, so the verdicts are about what a format can do.".to_owned(),
        _ => "Code: library cells are compared with library JSON and say what adopting a format does today; tuned \
              cells with tuned JSON, and say what the format can do."
            .to_owned(),
    };
    let ours: BTreeSet<&str> = (load.cells.iter().map(|view| &view.cell.cell))
        .filter(|cell| cell.implementation == "library" && cell.code == OURS)
        .map(|cell| cell.format.as_str())
        .collect();
    if !ours.is_empty() {
        let named = Vec::from_iter(ours).join(", ");
        text.push_str(&format!(" The library code of {named} is this repository's own, and no crate."));
    }
    text
}

/// The parameters of the compressions that are compared, where they have any.
pub(crate) fn compression_line(load: &LoadView<'_>) -> Option<String> {
    let settings = compressions(load.cells.iter().map(|view| view.cell));
    let listed: Vec<String> = settings
        .iter()
        .map(|cell| format!("{}: {}", cell.cell.compression, cell.cell.compression_parameters))
        .collect();
    (!listed.is_empty()).then(|| format!("Settings of the compressions: {}.", listed.join("; ")))
}

/// The first cell of each compression and its parameters, where it has any: a dictionary is one for
/// each format.
pub(crate) fn compressions<'c>(cells: impl Iterator<Item = &'c CellResult>) -> Vec<&'c CellResult> {
    let mut found: Vec<&CellResult> = Vec::new();
    let setting =
        |cell: &CellResult| (cell.cell.compression.clone(), cell.cell.compression_parameters.clone());
    for cell in cells.filter(|cell| !cell.cell.compression_parameters.is_empty()) {
        if found.iter().all(|other| setting(other) != setting(cell)) {
            found.push(cell);
        }
    }
    found
}

/// Cells whose reference is of other code and another format: such a ratio mixes what the code does
/// with what the format does.
pub(crate) fn mixed(load: &LoadView<'_>) -> Vec<String> {
    let code = |cell: &CellResult| cell.cell.implementation.clone();
    let ranked = load.cells.iter().filter(|view| view.cell.role == Role::Cell);
    let pairs = ranked.filter_map(|view| Some((view.cell, load.reference(view)?.cell)));
    pairs
        .filter(|(cell, reference)| {
            code(cell) != code(reference) && cell.cell.format != reference.cell.format
        })
        .map(|(cell, reference)| format!("{} with {}", cell.id, reference.id))
        .collect()
}
