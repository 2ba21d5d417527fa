//! Tables of cells, aligned for a terminal or as Markdown.

use cell::{Factor, Side};
use measure::{Allocations, Counts, CpuTime, NO_GATEWAY, Quantile, Status};
use serde::Serialize;

use crate::{
    merged::Merged,
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

/// The heading of what a relay takes beyond the floor.
const ABOVE_FLOOR: &str = "relay above floor µs/event";

/// How much a table of verdicts says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Words, and the reference of each cell.
    Full,
    /// Words, for a wide terminal.
    Words,
    /// Marks, for a terminal of 120 columns.
    Marks,
}

impl Form {
    /// Metrics that a terminal of 120 columns has room for.
    const NARROW: usize = 5;
}

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
        self.table(&self.cost_columns())
    }

    /// The columns of [`LoadView::costs`] that decide between formats.
    pub(crate) fn main_costs(&self) -> Table {
        let wide = if self.is_over_links() { ShownIn::WideOverLinks } else { ShownIn::Wide };
        let mut left_out: Vec<&str> = Metric::shown_in(wide).into_iter().map(Metric::heading).collect();
        left_out.extend(["ledger", ABOVE_FLOOR]);
        let mut columns = self.cost_columns();
        columns.retain(|column| !left_out.contains(&column.heading.as_str()));
        self.table(&columns)
    }

    fn cost_columns(&self) -> Vec<Column<'_>> {
        let metric = |metric: Metric| column(metric.heading(), move |view| self.with_ratio(view, metric));
        let mut columns: Vec<Column<'_>> = self.columns().into_iter().map(metric).collect();
        if self.floor().is_some() {
            columns.push(column(ABOVE_FLOOR, move |view| {
                let reference = self.anchor().filter(|_| view.cell.role != Role::Anchor);
                Some(self.above_floor(view, reference)?.cost())
            }));
        }
        columns
            .push(column(VALID, |view| Some(format!("{}/{}", view.merged.blocks, view.cell.blocks.len()))));
        columns.push(column("ledger", |view| ledger(view.cell)));
        columns
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

    /// One row per cell: CPU in user mode and in the kernel, cost of a handshake and of an event's first
    /// delivery, the relay's peak memory and disk writes, and the gateway's part of CPU and memory.
    /// `None` for pages, and over links, where CPU times are no evidence.
    pub(crate) fn apart(&self) -> Option<Table> {
        if self.is_over_links() || self.is_of_pages() {
            return None;
        }
        let micros = |heading: &str, ns: fn(&Merged) -> Option<u64>| {
            column(heading, move |view| {
                let envelopes = Some(view.merged.counts.envelopes()).filter(|count| *count > 0)?;
                Some(number::three(ns(&view.merged)? as f64 / envelopes as f64 / 1e3))
            })
        };
        fn client(merged: &Merged) -> Option<CpuTime> {
            (!merged.reads_lightly()).then_some(merged.client_cpu)
        }
        let mut columns = vec![
            micros("relay user µs/event", |merged| merged.relay_cpu?.user_ns),
            micros("relay system µs/event", |merged| merged.relay_cpu?.system_ns),
            micros("client user µs/event", |merged| client(merged)?.user_ns),
            micros("client system µs/event", |merged| client(merged)?.system_ns),
            column("handshake B", |view| {
                let records = view.cell.blocks.iter().filter_map(Block::usable);
                let connections: u64 = records.map(|record| record.connections).sum();
                let traffic = view.merged.traffic;
                let bytes = traffic.handshake_to_relay_bytes + traffic.handshake_to_client_bytes;
                (connections > 0).then(|| number::three(bytes as f64 / connections as f64))
            }),
        ];
        columns.extend(Self::warmth());
        columns.push(column("relay peak MiB", |view| view.relay_peak_mib().map(number::three)));
        columns.push(column("disk B/event", |view| {
            let envelopes = Some(view.merged.counts.envelopes()).filter(|count| *count > 0)?;
            let written = view.merged.relay_written_bytes.filter(|bytes| *bytes > 0)?;
            Some(number::three(written as f64 / envelopes as f64))
        }));
        columns.push(column("stored MiB", |view| {
            view.relay_stored_mib().filter(|mib| *mib > 0.0).map(number::three)
        }));
        columns.push(micros("gateway µs/event", |merged| Some(merged.gateway_cpu?.total_ns)));
        columns.push(column("gateway KiB/connection", |view| {
            view.gateway_kib_per_connection().map(number::three)
        }));
        Some(self.table(&columns).without_empty())
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
        let mut headings = self.label_headings();
        headings.extend(["population", "speaks", "over", "link"].map(str::to_owned));
        let names = headings.len();
        let numbers = ["connections", "published", "delivered", "decoded", "B/event to clients", "ledger"];
        let waits = ["session p50 ms", "response p50 ms"];
        headings.extend(numbers.into_iter().chain(waits).map(str::to_owned));
        let mut rows = Vec::new();
        for view in &self.cells {
            let records: Vec<_> = view.cell.blocks.iter().filter_map(Block::counted).collect();
            let Some(first) = records.first() else { continue };
            for (place, population) in first.populations.iter().enumerate() {
                let all = || records.iter().filter_map(|record| record.populations.get(place));
                let counts: Counts = all().map(|one| one.counts).sum();
                let bytes: u64 = all().map(|one| one.to_client.wire_bytes).sum();
                let name = population.name.as_deref();
                let is_off = all().any(|one| one.counts.balanced().is_err());
                let wait =
                    |metric: &str| shown(Metric::LatencyP50, &view.merged, &format!("{metric}.{}", name?));
                let is_known = |count: u64| (count > 0).then_some(count);
                let fields = [
                    Some(name.unwrap_or("unnamed").to_owned()),
                    Some(population.format.clone()),
                    Some(population.compression.clone()),
                    population.link.clone(),
                    Some(population.connections.to_string()),
                    Some(counts.acked.to_string()),
                    Some(counts.deliveries.to_string()),
                    is_known(counts.deliveries_unread)
                        .map(|unread| counts.deliveries.saturating_sub(unread).to_string()),
                    is_known(counts.deliveries).map(|count| number::three(bytes as f64 / count as f64)),
                    Some(if is_off { "off" } else { "balanced" }.to_owned()),
                    wait("session"),
                    wait("response"),
                ];
                rows.push(self.labels(view.cell).into_iter().chain(fields.map(or_nothing)).collect());
            }
        }
        (!rows.is_empty()).then_some(Table { names, headings, rows }.without_empty())
    }

    /// One row a cell: what both ends allocated, where that was counted.
    pub(crate) fn allocations(&self) -> Option<Table> {
        if !self.counts_allocations() {
            return None;
        }
        let count = |metric: Metric| column(metric.heading(), move |view| self.with_ratio(view, metric));
        let bytes = |heading: &str, allocated: fn(&Merged) -> Option<Allocations>| {
            column(heading, move |view| {
                let counted = view.blocks_for(Metric::RelayAllocations);
                let envelopes = counted.counts.envelopes().max(1) as f64;
                Some(number::three(allocated(counted)?.bytes as f64 / envelopes))
            })
        };
        Some(self.table(&[
            count(Metric::RelayAllocations),
            count(Metric::ClientAllocations),
            bytes("relay allocated B/event", |merged| merged.relay_allocations),
            bytes("client allocated B/event", |merged| merged.client_allocations),
        ]))
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
    pub(crate) fn verdicts(&self, comparisons: &[Comparison], form: Form) -> Table {
        let full = form == Form::Full;
        let first = |metric: Metric| comparisons.iter().find(move |c| c.metric == metric);
        let narrow = form == Form::Marks && self.is_over_links();
        let judged = (self.judged().into_iter()).filter(|metric| first(*metric).is_some()).take(if narrow {
            Form::NARROW
        } else {
            usize::MAX
        });
        let judged = judged.map(|metric| {
            let heading = match first(metric).and_then(|c| c.aa_interval).filter(|_| form != Form::Marks) {
                Some((low, high)) => format!("{} (A/A {low:.2} to {high:.2})", metric.short()),
                None => metric.short().to_owned(),
            };
            column(heading, move |view| {
                let found = comparisons.iter().find(|c| c.cell == view.cell.id && c.metric == metric)?;
                Some(if form == Form::Marks { found.short() } else { found.to_string() })
            })
        });
        let against = full.then(|| column("against", |view| Some(self.reference(view)?.cell.id.clone())));
        let floor = self.floor().filter(|_| form != Form::Marks).map(|_| {
            column("relay CPU above the floor", |view| {
                Some(self.above_floor(view, self.reference(view))?.quotient())
            })
        });
        let columns: Vec<Column<'_>> = against.into_iter().chain(judged).chain(floor).collect();
        let cells: Vec<_> = self.cells.iter().filter(|view| self.reference(view).is_some()).collect();
        let table = self.table_of(&cells, &columns);
        Table { names: table.names + usize::from(full), ..table }
    }
}

/// A metric of merged blocks in the unit of its column; brackets mark 10 to 99 samples above, fewer
/// have none.
pub(crate) fn shown(metric: Metric, merged: &Merged, latency: &str) -> Option<String> {
    match metric.row().value {
        Value::Latency(name, q) => quantile(merged.quantile(name.unwrap_or(latency), q), metric.unit()),
        Value::Throughput(q) => quantile(merged.low_throughput(q), metric.unit()),
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
