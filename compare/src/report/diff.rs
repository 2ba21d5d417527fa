//! Compares two results: did a cell's cost change, relative to JSON in its own run?

use std::fmt::Write as _;

use cell::{Factor, Row};

use super::{
    browser,
    comparison::{Comparison, Control, Verdict, comparisons, control_of},
    number,
    table::Table,
};
use crate::{
    matrix::CONTROL,
    result::{CellResult, ResultFile},
    stats::BAND,
};

/// What became of the cells that two results share.
#[derive(Debug, Clone, PartialEq)]
pub struct Diff {
    /// One for each shared cell and metric; better and worse are of the second against the first.
    pub changes: Vec<Change>,
}

/// One cell in one metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// In the first result.
    pub before: Comparison,
    /// In the second.
    pub after: Comparison,
    /// The second ratio ÷ the first.
    pub change: f64,
    /// From the ends of both intervals that lie furthest apart: wider than 95 %, because nothing
    /// pairs two runs.
    pub interval: Option<(f64, f64)>,
    /// Better and worse need the interval wholly beyond ±2 %.
    pub verdict: Verdict,
}

/// Why two results do not compare; empty when they do.
pub fn unlike(before: &ResultFile, after: &ResultFile) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut check = |what: &str, one: String, other: String| {
        if one != other {
            reasons.push(format!("{what}: {one} and {other}"));
        }
    };
    let corpus = |result: &ResultFile| {
        result.corpus.as_ref().map_or("none".to_owned(), |corpus| corpus.sha256.clone())
    };
    let host = |result: &ResultFile| {
        let host = &result.host;
        let cpu = host.cpu.as_deref().unwrap_or("unknown");
        let kernel = host.kernel.as_deref().unwrap_or("unknown");
        let build = if host.optimised { "optimised" } else { "not optimised" };
        format!("{cpu}, {}, {:?} bytes, kernel {kernel}, {build}", host.cores_text(), host.memory_bytes)
    };
    check("corpus", corpus(before), corpus(after));
    check("scenarios", before.config.scenarios.join(","), after.config.scenarios.join(","));
    check("host", host(before), host(after));
    let pages = |result: &ResultFile| result.browser.as_ref().map_or("none".to_owned(), browser::conditions);
    check("browser", pages(before), pages(after));
    check("seconds of a block", before.config.seconds.to_string(), after.config.seconds.to_string());
    check("arguments of clients", before.config.client_args.join(" "), after.config.client_args.join(" "));
    let pairs = after.cells.iter().filter_map(|cell| {
        let earlier = before.cells.iter().find(|before| before.id == cell.id)?;
        Some((&cell.id, setting(earlier), setting(cell)))
    });
    // The first says what is to be said of all.
    if let Some((id, earlier, later)) = pairs.into_iter().find(|(_, earlier, later)| earlier != later) {
        check(id, earlier, later);
    }
    reasons
}

/// What a cell was measured with; its name has only the factors that varied in its run.
fn setting(cell: &CellResult) -> String {
    let recorded = |row: &Row| Some(format!("{} {}", row.heading, (row.recorded)(&cell.cell)?));
    let named = [Factor::Format, Factor::Scenario];
    let factors = Factor::ALL.into_iter().filter(|factor| !named.contains(factor));
    let mut parts: Vec<String> = factors.filter_map(|factor| recorded(factor.row())).collect();
    parts.push(format!("parameters {}", cell.cell.compression_parameters));
    parts.extend(cell.rate_per_s.map(|rate| format!("{rate} events/s")));
    parts.join(", ")
}

/// Compares the ratios that two results give to the same cells.
pub fn diff(before: &ResultFile, after: &ResultFile) -> Diff {
    let earlier = comparisons(before);
    let changes = comparisons(after).into_iter().filter_map(|after| {
        let same = |c: &&Comparison| {
            (&c.cell, &c.reference, c.metric) == (&after.cell, &after.reference, after.metric)
        };
        let before = earlier.iter().find(same)?.clone();
        let interval = before.interval.zip(after.interval).map(|(b, a)| (a.0 / b.1, a.1 / b.0));
        let withheld = |one: &Comparison| {
            matches!(one.verdict, Verdict::Unsteady | Verdict::Saturated)
                || control_of(one.aa_interval) == Control::Broken
        };
        let withheld = [&before, &after].into_iter().any(withheld);
        let verdict = match interval.filter(|_| !withheld) {
            Some((_, high)) if high < 1.0 - BAND => Verdict::Better,
            Some((low, _)) if low > 1.0 + BAND => Verdict::Worse,
            Some((low, high)) if low >= 1.0 - BAND && high <= 1.0 + BAND => Verdict::Same,
            _ => Verdict::Inconclusive,
        };
        Some(Change { change: after.ratio / before.ratio, before, after, interval, verdict })
    });
    Diff { changes: changes.collect() }
}

impl Diff {
    /// True when any change is called so, that of the control apart.
    pub fn any(&self, verdict: Verdict) -> bool {
        let is_control = |cell: &str| cell.rsplit(':').next() == Some(CONTROL);
        let ranked = self.changes.iter().filter(|change| !is_control(&change.after.cell));
        ranked.map(|change| change.verdict).any(|found| found == verdict)
    }

    /// For a terminal.
    pub fn terminal(&self) -> String {
        let headings = ["cell", "metric", "before", "after", "change"].map(str::to_owned).to_vec();
        let row = |change: &Change| {
            let mut what = number::ratio(change.change);
            if let Some((low, high)) = change.interval {
                write!(what, " [{low:.2}, {high:.2}]").expect("writing to a string does not fail");
            }
            vec![
                change.after.cell.clone(),
                change.after.metric.short().to_owned(),
                number::ratio(change.before.ratio),
                number::ratio(change.after.ratio),
                format!("{what} {}", change.verdict),
            ]
        };
        Table { names: 2, headings, rows: self.changes.iter().map(row).collect() }.text()
    }
}
