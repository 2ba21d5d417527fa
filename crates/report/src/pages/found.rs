//! What a search or a browser found, as parts of a report.
use crate::{
    figures,
    pages::{
        gallery::{figure, gallery},
        part::{IN_FILES, IN_SUMMARY, ON_PAGE, ON_TERMINALS, Part, left_out},
    },
    result::{BreakEven, Browser, Search, SearchConfig},
    tables::{break_even, browser, limits},
    verdicts::comparison::Verdict,
};

/// Capacities, p99 against rate, and the figure of both.
pub(crate) fn of_search(search: &Search) -> Vec<Part> {
    let SearchConfig { scenario, slo, .. } = &search.config;
    let ids = || search.cells.iter().map(|cell| cell.cell.as_str());
    let mut parts = vec![
        Part::heading(2, "The highest sustainable rate").only(ON_PAGE),
        Part::sentence(format!("{scenario} under {slo}")).only(ON_TERMINALS),
        Part::table(limits::capacities(search), ids()),
    ];
    parts.extend(limits::remarks(search).into_iter().map(Part::sentence));
    if let Some((svg, legend)) = figures::search_curve(search) {
        let caption = "p99 against rate (● highest pass, ✕ lowest miss)".to_owned();
        parts.push(Part::drawn(gallery(&legend, [(caption, svg)])));
    }
    if let Some(curve) = limits::curve(&search.cells) {
        parts.extend([Part::heading(2, "p99 against rate"), Part::table(curve, ids())]);
    }
    parts
}

/// Sentences, times against bandwidth, and both tables. The picture stands beside a whole result.
pub(crate) fn of_break_even(found: &BreakEven, is_whole: bool) -> Vec<Part> {
    let mut parts = vec![
        Part::heading(2, "Break-even bandwidths").only(ON_PAGE),
        Part::list(break_even::findings(found).into_iter().chain(break_even::remark(found)).collect()),
    ];
    let mut blocks = found.cells.iter().flat_map(|cell| &cell.blocks);
    if is_whole && blocks.any(|block| block.time_ns_p50.is_some()) {
        parts.push(
            Part::sentence(format!("![Time against bandwidth]({})", break_even::PICTURE)).only(IN_SUMMARY),
        );
    }
    if let Some(svg) = figures::time_against_bandwidth(found) {
        let caption = "Time against bandwidth (a ring is a break-even, with its interval)";
        parts.push(Part::drawn(figure(caption, &svg)));
    }
    for (caption, table) in
        break_even::captions(found).into_iter().zip([break_even::times(found), break_even::ratios(found)])
    {
        let ids: Vec<String> = table.rows.iter().map(|row| row[1].clone()).collect();
        parts.extend([Part::heading(2, caption), Part::table(table, ids.iter().map(String::as_str))]);
    }
    parts.extend(left_out(break_even::left_out(found), IN_FILES));
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
