//! What a search or a browser found, as parts of a report.
use crate::{
    pages::part::{IN_FILES, ON_TERMINALS, Part, left_out},
    result::{Browser, Search},
    tables::{browser, limits},
    verdicts::comparison::Verdict,
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

/// Sentences, and a table for each part with its verdicts.
pub(crate) fn of_browser(found: &Browser) -> Vec<Part> {
    let mut parts = vec![Part::list(browser::findings(found))];
    for (heading, table) in browser::tables(found) {
        parts.extend([Part::heading(2, heading), Part::table(table)]);
    }
    parts.push(Part::sentence(Verdict::MARKS).only(ON_TERMINALS));
    parts.extend(left_out(browser::left_out(found), IN_FILES));
    parts
}
