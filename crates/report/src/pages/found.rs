//! What a search or a browser found, as parts of a report.
use crate::{
    figures,
    pages::{
        gallery::gallery,
        part::{IN_FILES, ON_TERMINALS, Part, left_out},
    },
    result::{Browser, Search},
    tables::{browser, limits},
    verdicts::comparison::Verdict,
};

/// Roots, probes against the axis, and the figure of both.
pub(crate) fn of_search(search: &Search) -> Vec<Part> {
    let axis = search.config.axis();
    let ids = || search.cells.iter().map(|cell| cell.cell.as_str());
    let mut parts = vec![
        Part::sentence(limits::title(&search.config, axis)).only(ON_TERMINALS),
        Part::table(limits::roots(search), ids()),
    ];
    parts.extend(limits::remarks(search).into_iter().map(Part::sentence));
    if let Some((svg, legend)) = figures::search_curve(search) {
        let (value, name) = (limits::value_name(axis), limits::axis_name(axis));
        let caption = format!("{value} against {name} (● highest pass, ✕ lowest miss)");
        parts.push(Part::drawn(gallery(&legend, [(caption, svg)])));
    }
    if let Some(curve) = limits::curve(&search.cells) {
        parts.extend([Part::heading(2, "p99 against rate"), Part::table(curve, ids())]);
    }
    parts
}

/// Sentences, and a table for each part with its verdicts.
pub(crate) fn of_browser(found: &Browser) -> Vec<Part> {
    let mut parts = vec![Part::list(browser::findings(found))];
    for (heading, table) in browser::tables(found) {
        let ids: Vec<String> = table.rows.iter().map(|row| row[0].clone()).collect();
        parts.extend([Part::heading(2, heading), Part::table(table, ids.iter().map(String::as_str))]);
    }
    parts.push(Part::sentence(Verdict::MARKS).only(ON_TERMINALS));
    parts.extend(left_out(browser::left_out(found), IN_FILES));
    parts
}
