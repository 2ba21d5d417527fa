//! Tables of cells, aligned for a terminal or as Markdown.

use cell::{Factor, Side};
use measure::{NO_GATEWAY, PopulationRecord, Quantile, Status};
use serde::Serialize;

use crate::{
    merged::{Merged, THROUGHPUT},
    metric::{Metric, ShownIn, Value},
    number,
    result::{Block, CONTROL, CellResult, FLOOR, Role},
    verdicts::comparison::Comparison,
    view::{CellView, LoadView},
};

/// Stands for a value that was not measured or has too few samples.
pub(crate) const NOTHING: &str = "–";

/// The heading of a cell's valid blocks among all.
pub(crate) const VALID: &str = "valid";

/// What stands under a heading; `None` where it was not measured.
type Field<'t> = Box<dyn Fn(&CellView<'_>) -> Option<String> + 't>;

/// A column of a table of cells.
pub(crate) struct Column<'t> {
    heading: String,
    field: Field<'t>,
}

pub(crate) fn column<'t>(
    heading: impl Into<String>,
    field: impl Fn(&CellView<'_>) -> Option<String> + 't,
) -> Column<'t> {
    Column { heading: heading.into(), field: Box::new(field) }
}

/// A field as every table has it.
pub(crate) fn or_nothing(field: Option<String>) -> String {
    field.unwrap_or_else(|| NOTHING.to_owned())
}

/// Each value once, in the order in which they come.
pub(crate) fn distinct<'t>(all: impl Iterator<Item = &'t str>) -> Vec<&'t str> {
    let mut found = Vec::new();
    all.for_each(|one| {
        if !found.contains(&one) {
            found.push(one);
        }
    });
    found
}

/// Rows of text under headings; the first columns are names, the others numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Table {
    pub(crate) names: usize,
    pub(crate) headings: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// The value of a factor as a record has it.
pub(crate) fn factor_value(factor: Factor, cell: &CellResult) -> &str {
    (factor.row().recorded)(&cell.cell).unwrap_or_default()
}

impl LoadView<'_> {
    /// The names of a cell that differ within this load: format and compression always, the others
    /// when they vary.
    pub(crate) fn labels(&self, cell: &CellResult) -> Vec<String> {
        let format = match cell.role {
            Role::Control => CONTROL,
            Role::Floor => FLOOR,
            Role::Cell | Role::Anchor => self.row_of(cell),
        };
        let others = self.varying().into_iter().map(|factor| factor_value(factor, cell).to_owned());
        [format.to_owned(), cell.cell.compression.clone()].into_iter().chain(others).collect()
    }

    /// The first column: the format of a cell, or the row of a page, which begins the name of its cell.
    pub(crate) fn row_of<'c>(&self, cell: &'c CellResult) -> &'c str {
        if self.is_of_pages() { cell.id.split('+').next().unwrap_or_default() } else { &cell.cell.format }
    }

    /// A cell's labels in one text, without the compression: `json khatru, behind the gateway`.
    pub(crate) fn name_of(&self, cell: &CellResult) -> String {
        let mut labels = self.labels(cell);
        labels.remove(1);
        // Of the factors that vary, behind the format.
        let way = self.varying().into_iter().position(|factor| factor == Factor::Via);
        let way = way.map(|place| labels.remove(1 + place)).filter(|way| way != NO_GATEWAY);
        let way = way.map_or_else(String::new, |way| format!(", behind the {way}"));
        labels.join(" ") + &way
    }

    pub(crate) fn label_headings(&self) -> Vec<String> {
        let all = [Factor::Format, Factor::Compression].into_iter().chain(self.varying());
        all.map(|factor| factor.row().heading()).collect()
    }

    /// The factors apart from format and compression whose values differ.
    pub(crate) fn varying(&self) -> Vec<Factor> {
        let always = [Factor::Format, Factor::Compression];
        let others = Factor::ALL.into_iter().filter(|factor| !always.contains(factor));
        others.filter(|factor| factor.row().side != Side::Load && self.varies(*factor)).collect()
    }

    pub(crate) fn varies(&self, factor: Factor) -> bool {
        self.cells
            .iter()
            .any(|view| factor_value(factor, view.cell) != factor_value(factor, self.cells[0].cell))
    }

    /// One row a cell: its names, and behind them these columns.
    pub(crate) fn table(&self, columns: &[Column<'_>]) -> Table {
        self.table_of(&self.cells.iter().collect::<Vec<_>>(), columns)
    }

    fn table_of(&self, cells: &[&CellView<'_>], columns: &[Column<'_>]) -> Table {
        let mut headings = self.label_headings();
        let names = headings.len();
        headings.extend(columns.iter().map(|column| column.heading.clone()));
        let row = |view: &&CellView<'_>| {
            let fields = columns.iter().map(|column| or_nothing((column.field)(view)));
            self.labels(view.cell).into_iter().chain(fields).collect()
        };
        Table { names, headings, rows: cells.iter().map(row).collect() }
    }

    /// One row per cell: its costs, each with the ratio to JSON without compression.
    pub(crate) fn costs(&self) -> Table {
        let mut columns = self.with_ratios(self.columns());
        if self.floor().is_some() {
            columns.push(column("relay above floor µs/event", |view| {
                let reference = self.anchor().filter(|_| view.cell.role != Role::Anchor);
                Some(self.above_floor(view, reference)?.cost())
            }));
        }
        columns
            .push(column(VALID, |view| Some(format!("{}/{}", view.merged.blocks, view.cell.blocks.len()))));
        columns.push(column("ledger", |view| ledger(view.cell)));
        self.table(&columns)
    }

    /// A column for each metric, with the ratio to JSON without compression.
    fn with_ratios(&self, metrics: Vec<Metric>) -> Vec<Column<'_>> {
        let metric = |metric: Metric| column(metric.heading(), move |view| self.with_ratio(view, metric));
        metrics.into_iter().map(metric).collect()
    }

    /// One row per cell: the metrics that this table shows. `None` where none was measured.
    pub(crate) fn metrics(&self, shown_in: ShownIn) -> Option<Table> {
        let metric = |metric: Metric| column(metric.heading(), move |view| self.shown(view, metric));
        let columns: Vec<Column<'_>> = Metric::shown_in(shown_in).into_iter().map(metric).collect();
        let table = self.table(&columns).without_empty();
        (table.headings.len() > table.names).then_some(table)
    }

    /// A metric of a cell in the unit of its column, see [`shown`].
    pub(crate) fn shown(&self, view: &CellView<'_>, metric: Metric) -> Option<String> {
        shown(metric, view.blocks_for(metric), self.latency.0)
    }

    /// A value as shown, with the ratio to JSON without compression after it.
    fn with_ratio(&self, view: &CellView<'_>, metric: Metric) -> Option<String> {
        let value = self.shown(view, metric)?;
        Some(match self.ratio_to_anchor(view, metric) {
            Some(ratio) => format!("{value} {}", number::ratio(ratio)),
            None => value,
        })
    }

    /// One row per cell: time of sessions from their planned instant to the end of the last step, by
    /// population if these have names. `None` in a load without sessions.
    pub(crate) fn sessions(&self) -> Option<Table> {
        const ALL: &str = "session";
        let known = self.cells.iter().flat_map(|view| view.merged.latency.iter());
        let is_session = |name: &str| name == ALL || name.starts_with("session.");
        let mut names: Vec<&str> = known
            .filter(|(name, latency)| is_session(name) && !latency.is_empty())
            .map(|(name, _)| name.as_str())
            .collect();
        names.sort_unstable();
        names.dedup();
        if names.len() > 1 {
            names.retain(|name| *name != ALL);
        }
        let quantiles = |name: &&'_ str| {
            let name = (*name).to_owned();
            [("p50", Metric::LatencyP50), ("p99", Metric::LatencyP99)].map(|(quantile, metric)| {
                let name = name.clone();
                column(format!("{name} {quantile} ms"), move |view| shown(metric, &view.merged, &name))
            })
        };
        let columns: Vec<Column<'_>> = names.iter().flat_map(quantiles).collect();
        (!names.is_empty()).then(|| self.table(&columns))
    }

    /// One row for each population of a cell whose populations do not speak the same.
    pub(crate) fn populations(&self) -> Option<Table> {
        let numbers = ["connections", "published", "delivered", "decoded", "B/event to clients", "ledger"];
        let waits = ["session p50 ms", "response p50 ms"];
        let fields = |view: &CellView<'_>, place: usize, population: &PopulationRecord| {
            let PopulationRecord { name, format, compression, link, connections, counts, .. } = population;
            let wait = |metric: &str| {
                let metric = format!("{metric}.{}", name.as_ref()?);
                shown(Metric::LatencyP50, &view.merged, &metric)
            };
            // A sum over blocks would hide what is missing in one and too much in another.
            let mut records = view.cell.blocks.iter().filter_map(Block::counted);
            let is_off = records.any(|record| {
                record.populations.get(place).is_some_and(|one| one.counts.balanced().is_err())
            });
            let known = |count: u64| (count > 0).then_some(count);
            let decoded =
                known(counts.deliveries_unread).map(|unread| counts.deliveries.saturating_sub(unread));
            let bytes = population.to_client.wire_bytes as f64;
            vec![
                Some(name.clone().unwrap_or_else(|| "unnamed".to_owned())),
                Some(format.clone()),
                Some(compression.clone()),
                link.clone(),
                Some((connections / view.counted.blocks.max(1)).to_string()),
                Some(counts.acked.to_string()),
                Some(counts.deliveries.to_string()),
                decoded.map(|decoded| decoded.to_string()),
                known(counts.deliveries).map(|count| number::three(bytes / count as f64)),
                Some(if is_off { "off" } else { "balanced" }.to_owned()),
                wait("session"),
                wait("response"),
            ]
        };
        let parts = self.cells.iter().flat_map(|view| {
            let populations = view.counted.populations.iter().enumerate();
            populations.map(move |(place, population)| (view, fields(view, place, population)))
        });
        self.table_of_parts(
            &["population", "speaks", "over", "link"],
            &[&numbers[..], &waits].concat(),
            parts,
        )
    }

    /// One row for each part of a cell, with fields under these further names and these numbers; `None`
    /// where no cell has parts.
    pub(crate) fn table_of_parts<'v>(
        &self,
        names: &[&str],
        numbers: &[&str],
        parts: impl Iterator<Item = (&'v CellView<'v>, Vec<Option<String>>)>,
    ) -> Option<Table> {
        let further = [names, numbers].concat();
        let names = self.label_headings().len() + names.len();
        let headings =
            self.label_headings().into_iter().chain(further.into_iter().map(str::to_owned)).collect();
        let row = |(view, fields): (&CellView<'_>, Vec<Option<String>>)| {
            self.labels(view.cell).into_iter().chain(fields.into_iter().map(or_nothing)).collect()
        };
        let rows: Vec<Vec<String>> = parts.map(row).collect();
        (!rows.is_empty()).then(|| Table { names, headings, rows }.without_empty())
    }

    /// One row a cell: what both ends allocated, where that was counted.
    pub(crate) fn allocations(&self) -> Option<Table> {
        let allocations = || self.with_ratios(Metric::shown_in(ShownIn::Allocations));
        self.counts_allocations().then(|| self.table(&allocations()))
    }

    /// The ratio to the nearest anchors, over rounds; of the merged blocks where single ones have
    /// too few samples.
    pub(crate) fn ratio_to_anchor(&self, view: &CellView<'_>, metric: Metric) -> Option<f64> {
        let anchor = self.anchor()?;
        if view.cell.role == Role::Anchor {
            return None;
        }
        let merged = || {
            let value = |view: &CellView<'_>| view.value(metric, self.latency.0).filter(|value| *value > 0.0);
            Some(value(view)? / value(anchor)?)
        };
        self.to_anchor(view, metric).map(|ratio| ratio.value).or_else(merged)
    }

    /// One row a cell: what it is against its reference, with interval and verdict.
    pub(crate) fn verdicts(&self, comparisons: &[Comparison]) -> Table {
        let judged =
            self.judged().into_iter().filter(|metric| comparisons.iter().any(|c| c.metric == *metric));
        let judged = judged.map(|metric| {
            column(metric.short(), move |view| {
                let found = comparisons.iter().find(|c| c.cell == view.cell.id && c.metric == metric)?;
                Some(found.to_string())
            })
        });
        let floor = self.floor().map(|_| {
            column("relay CPU above the floor", |view| {
                Some(self.above_floor(view, self.reference(view))?.quotient())
            })
        });
        let against = column("against", |view| Some(self.reference(view)?.cell.id.clone()));
        let columns: Vec<Column<'_>> = judged.chain(floor).chain([against]).collect();
        let cells: Vec<_> = self.cells.iter().filter(|view| self.reference(view).is_some()).collect();
        self.table_of(&cells, &columns)
    }
}

/// A metric of merged blocks in the unit of its column; brackets mark 10 to 99 samples above, fewer
/// have none.
pub(crate) fn shown(metric: Metric, merged: &Merged, latency: &str) -> Option<String> {
    match metric.row().value {
        Value::Latency(name, q) => quantile(merged.quantile(name.unwrap_or(latency), q), metric.unit()),
        Value::Throughput(q) => quantile(merged.quantile(THROUGHPUT, q), metric.unit()),
        _ => Some(number::three(metric.value(merged, latency)? / metric.unit())),
    }
}

/// A quantile in a unit of so many of its base units, with the same marks.
pub(crate) fn quantile(found: Quantile, unit: f64) -> Option<String> {
    let shown = |value: u64| number::three(value as f64 / unit);
    match found {
        Quantile::Exact(value) => Some(shown(value)),
        Quantile::Bracketed(value) => Some(format!("[{}]", shown(value))),
        Quantile::Missing => None,
    }
}

/// Whether the ledger of every block with a record balances, unusable blocks included.
fn ledger(cell: &CellResult) -> Option<String> {
    let records = cell.blocks.iter().filter_map(|block| block.record.as_ref());
    let (mut seen, mut off) = (0, 0);
    for record in records {
        let is_off = record.owed().balanced().is_err();
        // An interrupted block does not show what is missing.
        seen += usize::from(is_off || record.status != Status::Interrupted);
        off += usize::from(is_off);
    }
    (seen > 0).then(|| if off == 0 { "balanced".to_owned() } else { format!("{off} off") })
}

impl Table {
    /// A table without rows, whose first `names` columns are names.
    pub(crate) fn new(names: usize, headings: &[&str]) -> Table {
        Table { names, headings: headings.iter().map(|text| (*text).to_owned()).collect(), rows: Vec::new() }
    }

    /// The table without the column of this heading.
    pub(crate) fn without(self, heading: &str) -> Table {
        match self.headings.iter().position(|one| one == heading) {
            Some(column) => self.without_column(column),
            None => self,
        }
    }

    /// The table without columns in which nothing stands.
    pub(crate) fn without_empty(self) -> Table {
        let is_empty = |table: &Table, column: usize| table.rows.iter().all(|row| row[column] == NOTHING);
        (0..self.headings.len()).rev().fold(self, |table, column| {
            if is_empty(&table, column) { table.without_column(column) } else { table }
        })
    }

    fn without_column(mut self, column: usize) -> Table {
        self.names -= usize::from(column < self.names);
        self.headings.remove(column);
        self.rows.iter_mut().for_each(|row| drop(row.remove(column)));
        self
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// A Markdown table with numbers on the right.
    pub fn markdown(&self) -> String {
        let line = |fields: &[String]| format!("| {} |\n", fields.join(" | "));
        let alignment = |column: usize| if column < self.names { "---" } else { "---:" }.to_owned();
        let alignments: Vec<String> = (0..self.headings.len()).map(alignment).collect();
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        line(&self.headings) + &line(&alignments) + &rows
    }
}
