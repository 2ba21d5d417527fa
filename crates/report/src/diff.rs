//! Compares two results: did a cell's cost change, relative to JSON in its own run, or
//! what a search found of it?

use std::fmt::Write as _;

use cell::{Factor, Row};

use crate::{
    derived::comparisons,
    number,
    pages::{provenance, text::LEFT_OUT},
    result::{Axis, CONTROL, CellResult, FLOOR, ResultFile, Search},
    statistics::{
        bracket::{End, Limit},
        stats::BAND,
    },
    tables::{browser, limits, table::Table},
    verdicts::comparison::{Comparison, Verdict},
};

/// Changes of the cells that two results share.
#[derive(Debug, Clone, PartialEq)]
pub struct Diff {
    /// One for each shared cell and metric; better and worse are of the second against the first.
    pub changes: Vec<Change>,
}

/// One cell in one metric, capacity or time.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The cell's name; of two cells that take equally long both, and the round trip.
    pub cell: String,
    /// The metric, or `capacity`, or `break-even`.
    pub metric: String,
    /// In the first result, for people.
    pub before: String,
    /// In the second.
    pub after: String,
    /// The second ÷ the first; absent where either is not known.
    pub change: Option<f64>,
    /// From the ends of both intervals that lie furthest apart: wider than 95 %, because nothing
    /// pairs two runs.
    pub interval: Option<(f64, f64)>,
    /// Better and worse need the interval wholly beyond ±2 %.
    pub verdict: Verdict,
    /// Whether the verdict counts: not of JSON against itself, nor of a relay without Nostr work.
    pub counts: bool,
}

/// Changes that are named in a line.
const MOST_NAMED: usize = 3;

/// Changes since an earlier run, in one line. `None` if that run had other cells, relays or another
/// machine, or is incomplete.
pub fn since(before: &ResultFile, after: &ResultFile) -> Option<String> {
    let cells =
        |result: &ResultFile| -> Vec<String> { result.cells.iter().map(|cell| cell.id.clone()).collect() };
    let relays = |result: &ResultFile| -> Vec<(String, String)> {
        result.config.relays.iter().map(|relay| (relay.name.clone(), relay.command.clone())).collect()
    };
    let is_alike = before.incomplete().is_none()
        && cells(before) == cells(after)
        && relays(before) == relays(after)
        && before.config.url == after.config.url
        && unlike(before, after).is_empty();
    if !is_alike {
        return None;
    }
    let diff = diff(before, after);
    let of = |verdict: Verdict| -> Vec<&Change> {
        diff.changes.iter().filter(|one| one.counts && one.verdict == verdict).collect()
    };
    let named = |verdict: Verdict| {
        let changes = of(verdict);
        let name = |one: &&Change| {
            let ratio = one.change.map_or_else(String::new, |ratio| format!(" {}", number::ratio(ratio)));
            format!("{} {}{ratio}", one.cell, one.metric)
        };
        let names: Vec<String> = changes.iter().take(MOST_NAMED).map(name).collect();
        let more = if changes.len() > MOST_NAMED { ", …" } else { "" };
        match changes.len() {
            0 => format!("0 {verdict}"),
            count => format!("{count} {verdict} ({}{more})", names.join(", ")),
        }
    };
    Some(format!(
        "{}, {}, {} the same, {} not significant",
        named(Verdict::Worse),
        named(Verdict::Better),
        of(Verdict::Same).len(),
        of(Verdict::Inconclusive).len()
    ))
}

/// A fact of a result by its name.
type Fact = (&'static str, fn(&ResultFile) -> String);

/// What two results must have in common.
const ALIKE: [Fact; 8] = [
    ("corpus", |result| known(result.corpus.as_ref().map(|corpus| corpus.sha256.clone()))),
    ("SLO", |result| known(result.search.as_ref().map(|search| search.config.slo.clone()))),
    ("rates", |result| {
        known(result.search.as_ref().map(|search| limits::axis_name(search.config.axis()).to_owned()))
    }),
    ("scenarios", |result| result.config.scenarios.join(",")),
    ("host", |result| {
        let build = if result.host.optimised { "optimised" } else { "not optimised" };
        format!("{}, {build}", provenance::machine(&result.host))
    }),
    ("browser", |result| known(result.config.browser.as_ref().map(browser::conditions))),
    ("seconds of a block", |result| result.config.seconds.to_string()),
    ("arguments of clients", |result| result.config.client_args.join(" ")),
];

fn known(fact: Option<String>) -> String {
    fact.unwrap_or_else(|| "none".to_owned())
}

/// Why two results do not compare; empty when they do.
pub fn unlike(before: &ResultFile, after: &ResultFile) -> Vec<String> {
    let differ =
        |what: &str, one: String, other: String| (one != other).then(|| format!("{what}: {one} and {other}"));
    let facts = ALIKE.iter().filter_map(|(what, of)| differ(what, of(before), of(after)));
    // The first cell says what is to be said of all.
    let setting = after.cells.iter().find_map(|cell| {
        let earlier = before.cells.iter().find(|before| before.id == cell.id)?;
        differ(&cell.id, setting(earlier), setting(cell))
    });
    facts.chain(setting).collect()
}

/// The setting of a cell; its name has only the factors that varied in its run.
fn setting(cell: &CellResult) -> String {
    let recorded = |row: &Row| Some(format!("{} {}", row.heading(), (row.recorded)(&cell.cell)?));
    let named = [Factor::Format, Factor::Scenario];
    let factors = Factor::ALL.into_iter().filter(|factor| !named.contains(factor));
    let mut parts: Vec<String> = factors.filter_map(|factor| recorded(factor.row())).collect();
    parts.push(format!("parameters {}", cell.cell.compression_parameters));
    parts.extend(cell.rate_per_s.map(|rate| format!("{rate} events/s")));
    parts.join(", ")
}

/// Compares what two results give to the same cells.
pub fn diff(before: &ResultFile, after: &ResultFile) -> Diff {
    match (&before.search, &after.search) {
        (Some(before), Some(after)) => of_roots(before, after),
        _ => of_ratios(before, after),
    }
}

/// The ratios to JSON, each in its own run.
fn of_ratios(before: &ResultFile, after: &ResultFile) -> Diff {
    let earlier = comparisons(before);
    let changes = comparisons(after).into_iter().filter_map(|after| {
        let same = |c: &&Comparison| {
            (&c.cell, &c.reference, c.metric) == (&after.cell, &after.reference, after.metric)
        };
        let before = earlier.iter().find(same)?.clone();
        let interval = apart(before.interval, after.interval);
        let withheld = before.is_withheld() || after.is_withheld();
        Some(Change {
            metric: after.metric.short().to_owned(),
            before: number::ratio(before.ratio),
            after: number::ratio(after.ratio),
            change: Some(after.ratio / before.ratio),
            interval,
            verdict: verdict(interval.filter(|_| !withheld)),
            counts: after.cell.rsplit(':').next() != Some(CONTROL),
            cell: after.cell,
        })
    });
    Diff { changes: changes.collect() }
}

/// What two searches found. A break-even is neither better nor worse elsewhere.
fn of_roots(before: &Search, after: &Search) -> Diff {
    let axis = after.config.axis();
    let earlier = limits::limits(before);
    let changes = limits::limits(after).into_iter().filter_map(|after| {
        let before = earlier.iter().find(|before| before.cell == after.cell)?;
        let rates = before.capacity_per_s.zip(after.capacity_per_s);
        let interval = apart(range(before), range(&after));
        let metric = if axis == Axis::Bandwidth { "break-even" } else { "capacity" };
        Some(Change {
            metric: metric.to_owned(),
            before: limits::root_of(axis, before),
            after: limits::root_of(axis, &after),
            change: rates.map(|(before, after)| f64::from(after) / f64::from(before)),
            interval,
            // More is better.
            verdict: match verdict(interval.filter(|_| axis != Axis::Bandwidth)) {
                Verdict::Better => Verdict::Worse,
                Verdict::Worse => Verdict::Better,
                other => other,
            },
            counts: after.cell != FLOOR && axis != Axis::Bandwidth,
            cell: after.cell,
        })
    });
    Diff { changes: changes.collect() }
}

/// The range of a capacity. If the relay did not end the search, it lies above the kept rate.
fn range(limit: &Limit) -> Option<(f64, f64)> {
    match limit.end {
        End::Slo => limit.interval_per_s.map(|(low, high)| (low.into(), high.into())),
        End::GeneratorLimit | End::RateLimit => limit.kept_per_s().map(|kept| (kept.into(), f64::INFINITY)),
        End::NothingPassed => Some((0.0, 1.0)),
        End::Delayed | End::RelayChanged | End::TooFewAnswers | End::Disturbed | End::Unfinished => None,
    }
}

/// The quotient of two intervals: from the ends that lie furthest apart.
fn apart(before: Option<(f64, f64)>, after: Option<(f64, f64)>) -> Option<(f64, f64)> {
    before
        .zip(after)
        .map(|(b, a)| (a.0 / b.1, a.1 / b.0))
        .filter(|(low, high)| !low.is_nan() && !high.is_nan())
}

/// Better and worse need the interval wholly beyond ±2 %.
fn verdict(interval: Option<(f64, f64)>) -> Verdict {
    interval.map_or(Verdict::Inconclusive, |interval| Verdict::of_interval(interval, BAND))
}

impl Diff {
    /// True when any change that counts is called so.
    pub fn any(&self, verdict: Verdict) -> bool {
        self.changes.iter().any(|change| change.counts && change.verdict == verdict)
    }

    /// The table for a terminal of `room` columns. Where it is narrow the change
    /// gets room first, then before and after.
    pub fn terminal(&self, room: Option<usize>) -> String {
        let headings = ["cell", "metric", "change", "before", "after"].map(str::to_owned).to_vec();
        let row = |change: &Change| {
            let mut what = change.change.map_or_else(String::new, |ratio| number::ratio(ratio) + " ");
            if let Some((low, high)) = change.interval.filter(|(_, high)| high.is_finite()) {
                write!(what, "[{low:.2}, {high:.2}] ").expect("writing to a string does not fail");
            }
            let Change { cell, metric, before, after, verdict, .. } = change;
            Vec::from([cell, metric, &format!("{what}{verdict}"), before, after].map(String::clone))
        };
        let table = Table { names: 2, headings, rows: self.changes.iter().map(row).collect() };
        let mut text = table.text(room);
        if text.contains(LEFT_OUT) {
            text.push_str("All columns: in a pipe.\n");
        }
        text
    }
}
