//! A table of a few cells in another document, kept up to date from the result that it quotes.
//!
//! The place is a comment that names the folder of the result and the cells, and one that ends it:
//!
//! ```text
//! <!-- table: results/published/mixed-day json+none json+deflate -->
//! <!-- end of table -->
//! ```

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::{
    comparison::{Comparison, Verdict},
    number,
    table::{NOTHING, Table, or_nothing},
    view::{LoadView, views},
};
use crate::{
    merged::Metric,
    result::{ResultFile, Role},
};

const BEGIN: &str = "<!-- table:";
const CLOSE: &str = "-->";
const END: &str = "<!-- end of table -->";

/// Rows that a reader takes in at a glance.
const MOST_ROWS: usize = 6;

/// The document with every table of this result made anew. `folder` is the result's, as the
/// document names it.
///
/// # Errors
/// When the result is incomplete, which no table says; when the document has no table of it, or one
/// that names what it does not have.
pub fn refreshed(document: &str, folder: &Path, result: &ResultFile) -> Result<String> {
    if let Some(reason) = result.incomplete() {
        bail!("{} is incomplete, and a table would look whole: {reason}", folder.display());
    }
    let (mut text, mut rest, mut tables) = (String::new(), document, 0);
    while let Some((before, behind)) = rest.split_once(BEGIN) {
        let (asked, behind) =
            behind.split_once(CLOSE).with_context(|| format!("a {BEGIN} without {CLOSE}"))?;
        let (old, behind) = behind.split_once(END).with_context(|| format!("a {BEGIN} without {END}"))?;
        text.push_str(&format!("{before}{BEGIN}{asked}{CLOSE}"));
        let mut words = asked.split_whitespace();
        if words.next().is_some_and(|named| Path::new(named) == folder) {
            text.push_str(&format!("\n\n{}\n", table(result, &words.collect::<Vec<_>>())?.markdown()));
            tables += 1;
        } else {
            text.push_str(old);
        }
        text.push_str(END);
        rest = behind;
    }
    let folder = folder.display();
    ensure!(
        tables > 0,
        "there is no table of {folder}; write {BEGIN} {folder} CELL … {CLOSE} and {END} where it goes"
    );
    Ok(text + rest)
}

fn table(result: &ResultFile, cells: &[&str]) -> Result<Table> {
    ensure!(
        (1..=MOST_ROWS).contains(&cells.len()),
        "a table has 1 to {MOST_ROWS} cells, not {}",
        cells.len()
    );
    let loads = views(result);
    let [load] = loads.as_slice() else { bail!("a table is of a result with one load, not {}", loads.len()) };
    let comparisons = load.comparisons();
    let resolution = |metric: Metric| {
        let interval = load.control().and_then(|control| load.to_anchor(control, metric)?.1);
        let heading = format!("{} × JSON", metric.short());
        interval.map_or_else(|| heading.clone(), |(low, high)| format!("{heading} (A/A {low:.2}–{high:.2})"))
    };
    let headings = [
        "format".to_owned(),
        "compression".to_owned(),
        "wire bytes per envelope".to_owned(),
        resolution(Metric::WireBytes),
        resolution(Metric::RelayCpu),
        resolution(Metric::ClientCpu),
    ];
    let rows = cells.iter().map(|id| row(load, &comparisons, id)).collect::<Result<_>>()?;
    Ok(Table { names: 2, headings: headings.to_vec(), rows })
}

fn row(load: &LoadView<'_>, comparisons: &[Comparison], id: &str) -> Result<Vec<String>> {
    let view = load.cells.iter().find(|view| view.cell.id == id);
    let known = || load.cells.iter().map(|view| view.cell.id.as_str()).collect::<Vec<_>>().join(" ");
    let view = view.with_context(|| format!("the result has no cell {id:?}; it has {}", known()))?;
    let is_anchor = view.cell.role == Role::Anchor;
    let ratio = |metric: Metric| {
        if is_anchor {
            return "1".to_owned();
        }
        let Some((ratio, interval)) = load.to_anchor(view, metric) else { return NOTHING.to_owned() };
        // A verdict is about the reference, which for compressed cells is another one.
        let decided = comparisons.iter().any(|c| {
            let against = load.anchor().is_some_and(|anchor| anchor.cell.id == c.reference);
            let verdict = matches!(c.verdict, Verdict::Better | Verdict::Worse | Verdict::Same);
            c.cell == id && c.metric == metric && against && verdict
        });
        let ratio = number::ratio(ratio);
        let ratio = if decided { format!("**{ratio}**") } else { ratio };
        interval.map_or_else(|| ratio.clone(), |(low, high)| format!("{ratio} [{low:.2}, {high:.2}]"))
    };
    let mut labels = load.labels(view.cell);
    let code = labels.split_off(2).join(" ");
    if !code.is_empty() {
        labels[0] = format!("{} {code}", labels[0]);
    }
    labels.push(or_nothing(load.shown(view, Metric::WireBytes)));
    labels.extend([Metric::WireBytes, Metric::RelayCpu, Metric::ClientCpu].map(ratio));
    Ok(labels)
}
