//! What a search found, as parts of a report.
use crate::{
    pages::part::{ON_TERMINALS, Part},
    result::Search,
    tables::limits,
};

/// Roots, and p99 against the axis.
pub(crate) fn of_search(search: &Search) -> Vec<Part> {
    let axis = search.config.axis();
    let mut parts = vec![
        Part::sentence(limits::title(&search.config, axis)).only(ON_TERMINALS),
        Part::table(limits::roots(search)),
    ];
    parts.extend(limits::remarks(search).into_iter().map(Part::sentence));
    if let Some(curve) = limits::curve(&search.cells) {
        parts.extend([Part::heading(2, "p99 against rate"), Part::table(curve)]);
    }
    parts
}
