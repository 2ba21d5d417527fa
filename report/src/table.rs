//! Tables of cells, aligned for a terminal or as Markdown.

use cell::{Factor, Side};
use measure::{Counts, Quantile, RunRecord};

use super::{
    comparison::Comparison,
    number,
    view::{CellView, LoadView},
};
use crate::{
    merged::{Merged, Metric},
    result::{Block, CONTROL, CellResult, FLOOR, Role},
    stats,
};

/// Stands for a value that was not measured or has too few samples.
pub(crate) const NOTHING: &str = "–";

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

/// Rows of text under headings; the first columns are names, the others numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    pub(crate) names: usize,
    pub(crate) headings: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

/// The value of a factor as a record has it.
fn value(factor: Factor, cell: &CellResult) -> &str {
    (factor.row().recorded)(&cell.cell).unwrap_or_default()
}

impl LoadView<'_> {
    /// The names of a cell that differ within this load: format and compression always, the others
    /// when they vary.
    pub(crate) fn labels(&self, cell: &CellResult) -> Vec<String> {
        let format = match cell.role {
            Role::Control => CONTROL,
            Role::Floor => FLOOR,
            Role::Cell | Role::Anchor => &cell.cell.format,
        };
        let others = self.varying().into_iter().map(|factor| value(factor, cell).to_owned());
        [format.to_owned(), cell.cell.compression.clone()].into_iter().chain(others).collect()
    }

    /// The ids behind the rows of [`LoadView::costs`], or of [`LoadView::verdicts`], where the
    /// anchor has none.
    pub(crate) fn row_ids(&self, verdicts: bool) -> Vec<&str> {
        let shown = self.cells.iter().filter(|view| !verdicts || self.reference(view).is_some());
        shown.map(|view| view.cell.id.as_str()).collect()
    }

    pub(crate) fn label_headings(&self) -> Vec<String> {
        let all = [Factor::Format, Factor::Compression].into_iter().chain(self.varying());
        all.map(|factor| factor.row().heading.to_owned()).collect()
    }

    /// The factors apart from format and compression whose values differ.
    fn varying(&self) -> Vec<Factor> {
        let always = [Factor::Format, Factor::Compression];
        let others = Factor::ALL.into_iter().filter(|factor| !always.contains(factor));
        others.filter(|factor| factor.row().side != Side::Load && self.varies(*factor)).collect()
    }

    pub(crate) fn varies(&self, factor: Factor) -> bool {
        self.cells.iter().any(|view| value(factor, view.cell) != value(factor, self.cells[0].cell))
    }

    /// One row a cell: what it cost, and behind it the ratio to JSON without compression.
    pub(crate) fn costs(&self) -> Table {
        let mut headings = self.label_headings();
        let names = headings.len();
        headings.extend(self.columns().iter().map(|metric| metric.heading().to_owned()));
        headings.extend(self.floor().map(|_| ABOVE_FLOOR.to_owned()));
        headings.extend(["valid".to_owned(), "ledger".to_owned()]);
        Table { names, headings, rows: self.cells.iter().map(|view| self.cost_row(view)).collect() }
    }

    /// The columns of [`LoadView::costs`] that decide between formats.
    pub(crate) fn main_costs(&self) -> Table {
        let rates = [Metric::ThroughputP50, Metric::ThroughputP1, Metric::ThroughputP10];
        let mut left_out = rates.map(Metric::heading).to_vec();
        left_out.extend(["p99.9 ms", "ledger", ABOVE_FLOOR]);
        if self.is_over_links() {
            left_out.push(Metric::WireBytes.heading());
        }
        let mut table = self.costs();
        let kept = |line: &[String], headings: &[String]| -> Vec<String> {
            let of = headings.iter().zip(line).filter(|(heading, _)| !left_out.contains(&heading.as_str()));
            of.map(|(_, field)| field.clone()).collect()
        };
        table.rows = table.rows.iter().map(|row| kept(row, &table.headings)).collect();
        table.headings = kept(&table.headings, &table.headings);
        table
    }

    fn cost_row(&self, view: &CellView<'_>) -> Vec<String> {
        let mut row = self.labels(view.cell);
        for metric in self.columns().iter().copied() {
            let value = shown(metric, view.blocks_for(metric), self.latency.0);
            // No ratio beside a missing value.
            row.push(match self.ratio_to_anchor(view, metric).filter(|_| value != NOTHING) {
                Some(ratio) => format!("{value} {}", number::ratio(ratio)),
                None => value,
            });
        }
        let above = self.above_floor(view, self.anchor().filter(|_| view.cell.role != Role::Anchor));
        let above = above.map_or_else(|| NOTHING.to_owned(), |above| above.cost());
        row.extend(self.floor().map(|_| above));
        row.push(format!("{}/{}", view.merged.blocks, view.cell.blocks.len()));
        row.push(ledger(view.cell));
        row
    }

    /// One row a cell: CPU in user mode and in the kernel, what a connection costs before its first
    /// message, what the first delivery of an event costs, and the most memory that the relay had;
    /// `None` over links, where CPU times are no evidence.
    pub(crate) fn apart(&self) -> Option<Table> {
        if self.is_over_links() {
            return None;
        }
        let mut headings = self.label_headings();
        let names = headings.len();
        headings.extend(
            [
                "relay user µs/event",
                "relay system µs/event",
                "client user µs/event",
                "client system µs/event",
                "handshake B",
            ]
            .map(str::to_owned),
        );
        let warmth = self.knows_warmth();
        headings.extend(Self::WARMTH.map(str::to_owned).into_iter().filter(|_| warmth));
        let memory = self.cells.iter().any(|view| view.relay_peak_mib().is_some());
        headings.extend(memory.then(|| "relay peak MiB".to_owned()));
        let row = |view: &CellView<'_>| {
            let mut row = self.labels(view.cell);
            let envelopes = view.merged.counts.envelopes();
            let micros = |ns: Option<u64>| {
                let ns = ns.filter(|_| envelopes > 0);
                ns.map_or_else(|| NOTHING.to_owned(), |ns| number::three(ns as f64 / envelopes as f64 / 1e3))
            };
            let relay = view.merged.relay_cpu;
            let client = Some(view.merged.client_cpu).filter(|_| !view.merged.reads_lightly());
            row.push(micros(relay.and_then(|cpu| cpu.user_ns)));
            row.push(micros(relay.and_then(|cpu| cpu.system_ns)));
            row.push(micros(client.and_then(|cpu| cpu.user_ns)));
            row.push(micros(client.and_then(|cpu| cpu.system_ns)));
            let connections: u64 =
                (view.cell.blocks.iter().filter_map(Block::usable)).map(|record| record.connections).sum();
            let traffic = view.merged.traffic;
            let bytes = traffic.handshake_to_relay_bytes + traffic.handshake_to_client_bytes;
            row.push(if connections == 0 {
                NOTHING.to_owned()
            } else {
                number::three(bytes as f64 / connections as f64)
            });
            row.extend(view.warmth().into_iter().filter(|_| warmth));
            row.extend(
                memory.then(|| view.relay_peak_mib().map_or_else(|| NOTHING.to_owned(), number::three)),
            );
            row
        };
        Some(Table { names, headings, rows: self.cells.iter().map(row).collect() })
    }

    /// One row a cell: sessions from the instant each was due by plan to the end of its last step,
    /// by population where these have names; `None` in a load without sessions.
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
        let mut headings = self.label_headings();
        let labels = headings.len();
        for name in &names {
            headings.extend(["p50", "p99"].map(|quantile| format!("{name} {quantile} ms")));
        }
        let row = |view: &CellView<'_>| {
            let mut row = self.labels(view.cell);
            for name in &names {
                row.extend([Metric::LatencyP50, Metric::LatencyP99].map(|m| shown(m, &view.merged, name)));
            }
            row
        };
        let rows = self.cells.iter().map(row).collect();
        (!names.is_empty()).then_some(Table { names: labels, headings, rows })
    }

    /// One row for each population of a cell whose populations do not speak the same. Behind it the
    /// ids of the cells.
    pub(crate) fn populations(&self) -> Option<(Table, Vec<&str>)> {
        let mut headings = self.label_headings();
        headings.extend(["population", "speaks", "over"].map(str::to_owned));
        let has_link = |record: &RunRecord| record.populations.iter().any(|one| one.link.is_some());
        let over_links =
            self.cells.iter().flat_map(|view| &view.cell.blocks).filter_map(Block::counted).any(has_link);
        headings.extend(over_links.then(|| "link".to_owned()));
        let names = headings.len();
        let light = self.reads_lightly();
        let numbers = ["connections", "published", "delivered"].map(str::to_owned);
        headings.extend(numbers.into_iter().chain(light.then(|| "decoded".to_owned())));
        headings.extend(["B/event to clients", "ledger"].map(str::to_owned));
        headings.extend(
            ["session p50 ms", "response p50 ms"].map(str::to_owned).into_iter().filter(|_| over_links),
        );
        let (mut rows, mut ids) = (Vec::new(), Vec::new());
        for view in &self.cells {
            let records: Vec<_> = view.cell.blocks.iter().filter_map(Block::counted).collect();
            let Some(first) = records.first() else { continue };
            for (place, population) in first.populations.iter().enumerate() {
                let all = || records.iter().filter_map(|record| record.populations.get(place));
                let counts: Counts = all().map(|one| one.counts).sum();
                let bytes: u64 = all().map(|one| one.to_client.wire_bytes).sum();
                let name = population.name.clone().unwrap_or_else(|| "unnamed".to_owned());
                let mut row = self.labels(view.cell);
                let waits = ["session", "response"].map(|metric| match &population.name {
                    Some(name) => shown(Metric::LatencyP50, &view.merged, &format!("{metric}.{name}")),
                    None => NOTHING.to_owned(),
                });
                row.extend([name, population.format.clone(), population.compression.clone()]);
                let link = population.link.clone().unwrap_or_else(|| NOTHING.to_owned());
                row.extend(over_links.then_some(link));
                row.extend([population.connections, counts.acked, counts.deliveries].map(|n| n.to_string()));
                let decoded = counts.deliveries.saturating_sub(counts.deliveries_unread);
                row.extend(light.then(|| decoded.to_string()));
                row.push(match counts.deliveries {
                    0 => NOTHING.to_owned(),
                    deliveries => number::three(bytes as f64 / deliveries as f64),
                });
                let is_off = all().any(|one| one.counts.balanced().is_err());
                row.push(if is_off { "off" } else { "balanced" }.to_owned());
                row.extend(waits.into_iter().filter(|_| over_links));
                rows.push(row);
                ids.push(view.cell.id.as_str());
            }
        }
        (!rows.is_empty()).then_some((Table { names, headings, rows }, ids))
    }

    /// One row for each format and level of the clients' own checks: what a client spends, and what
    /// the format saves of it, where the levels differ.
    /// Behind it the ids of its rows.
    pub(crate) fn beside_checks(&self) -> Option<(Table, Vec<&str>)> {
        if !self.varies(Factor::ClientVerify) {
            return None;
        }
        let mut headings = self.label_headings();
        let names = headings.len();
        headings.extend(["client µs/event", "reference µs/event", "saved"].map(str::to_owned));
        let comparisons = self.comparisons();
        let row = |view: &CellView<'_>| {
            let reference = self.reference(view).filter(|_| view.cell.role == Role::Cell)?;
            let of = |one: &&Comparison| one.cell == view.cell.id && one.metric == Metric::ClientCpu;
            let percent = |ratio: f64| 100.0 * (1.0 - ratio);
            let shown = |view: &CellView<'_>| {
                shown(Metric::ClientCpu, view.blocks_for(Metric::ClientCpu), self.latency.0)
            };
            let mut row = self.labels(view.cell);
            row.extend([shown(view), shown(reference)]);
            row.push(comparisons.iter().find(of).map_or_else(
                || NOTHING.to_owned(),
                |one| {
                    let saved = percent(one.ratio);
                    match one.interval {
                        Some((low, high)) => {
                            format!(
                                "{saved:.0} % [{:.0}, {:.0}] {}",
                                percent(high),
                                percent(low),
                                one.verdict
                            )
                        }
                        None => format!("{saved:.0} % {}", one.verdict),
                    }
                },
            ));
            Some(row)
        };
        let compared = self.cells.iter().filter(|view| {
            let level = |cell| value(Factor::ClientVerify, cell);
            self.reference(view).is_some_and(|reference| level(reference.cell) == level(view.cell))
        });
        let (ids, rows) = compared.filter_map(|view| Some((view.cell.id.as_str(), row(view)?))).unzip();
        Some((Table { names, headings, rows }, ids))
    }

    /// One row a cell: what both ends allocated, where that was counted.
    pub(crate) fn allocations(&self) -> Option<Table> {
        if !self.counts_allocations() {
            return None;
        }
        let mut headings = self.label_headings();
        let names = headings.len();
        let counts = [Metric::RelayAllocations, Metric::ClientAllocations];
        headings.extend(counts.map(|metric| metric.heading().to_owned()));
        headings.extend(["relay allocated B/event", "client allocated B/event"].map(str::to_owned));
        let row = |view: &CellView<'_>| {
            let mut row = self.labels(view.cell);
            row.extend(counts.map(|metric| {
                let value = shown(metric, view.blocks_for(metric), self.latency.0);
                match self.ratio_to_anchor(view, metric).filter(|_| value != NOTHING) {
                    Some(ratio) => format!("{value} {}", number::ratio(ratio)),
                    None => value,
                }
            }));
            let counted = view.blocks_for(Metric::RelayAllocations);
            let envelopes = counted.counts.envelopes().max(1) as f64;
            row.extend([counted.relay_allocations, counted.client_allocations].map(|allocated| {
                allocated
                    .map_or_else(|| NOTHING.to_owned(), |sum| number::three(sum.bytes as f64 / envelopes))
            }));
            row
        };
        Some(Table { names, headings, rows: self.cells.iter().map(row).collect() })
    }

    /// The ratio to the nearest anchors, over rounds; of the merged blocks where single ones have
    /// too few samples.
    pub(crate) fn ratio_to_anchor(&self, view: &CellView<'_>, metric: Metric) -> Option<f64> {
        let anchor = self.anchor()?;
        if view.cell.role == Role::Anchor {
            return None;
        }
        let logs: Vec<f64> = self.log_ratios(view, anchor, metric).into_values().collect();
        let merged = || {
            let value = |view: &CellView<'_>| view.value(metric, self.latency.0).filter(|value| *value > 0.0);
            Some(value(view)? / value(anchor)?)
        };
        stats::hodges_lehmann(&logs).map(f64::exp).or_else(merged)
    }

    /// One row a cell: what it is against its reference, with interval and verdict.
    pub(crate) fn verdicts(&self, comparisons: &[Comparison], form: Form) -> Table {
        let full = form == Form::Full;
        let mut headings = self.label_headings();
        let names = headings.len() + usize::from(full);
        let of = |metric: Metric| comparisons.iter().find(move |c| c.metric == metric);
        let narrow = form == Form::Marks && self.is_over_links();
        let judged: Vec<Metric> = (self.judged().iter().copied())
            .filter(|metric| of(*metric).is_some())
            .take(if narrow { Form::NARROW } else { usize::MAX })
            .collect();
        headings.extend(full.then(|| "against".to_owned()));
        headings.extend(judged.iter().map(|metric| {
            match of(*metric).and_then(|c| c.aa_interval).filter(|_| form != Form::Marks) {
                Some((low, high)) => format!("{} (A/A {low:.2} to {high:.2})", metric.short()),
                None => metric.short().to_owned(),
            }
        }));
        let floor = self.floor().filter(|_| form != Form::Marks);
        headings.extend(floor.map(|_| "relay CPU above the floor".to_owned()));
        let row = |view: &CellView<'_>| {
            let mut row = self.labels(view.cell);
            let reference = self.reference(view)?;
            row.extend(full.then(|| reference.cell.id.clone()));
            row.extend(judged.iter().map(|metric| {
                let found = comparisons.iter().find(|c| c.cell == view.cell.id && c.metric == *metric);
                let shown = if form == Form::Marks { Comparison::short } else { Comparison::to_string };
                found.map_or_else(|| NOTHING.to_owned(), shown)
            }));
            row.extend(floor.map(|_| {
                let above = self.above_floor(view, Some(reference));
                above.map_or_else(|| NOTHING.to_owned(), |above| above.quotient())
            }));
            Some(row)
        };
        Table { names, headings, rows: self.cells.iter().filter_map(row).collect() }
    }
}

/// A metric of merged blocks in the unit of its column; brackets mark 10 to 99 samples above, a
/// dash fewer.
pub(crate) fn shown(metric: Metric, merged: &Merged, latency: &str) -> String {
    if let Some(q) = metric.quantile() {
        return quantile(merged.quantile(metric.latency(latency), q), metric.unit());
    }
    if let Some(q) = metric.low_quantile() {
        return quantile(merged.low_throughput(q), metric.unit());
    }
    let value = metric.value(merged, latency);
    value.map_or_else(|| NOTHING.to_owned(), |value| number::three(value / metric.unit()))
}

/// A quantile in a unit of so many of its base units, with the same marks.
pub(crate) fn quantile(found: Quantile, unit: f64) -> String {
    let shown = |value: u64| number::three(value as f64 / unit);
    match found {
        Quantile::Exact(value) => shown(value),
        Quantile::Bracketed(value) => format!("[{}]", shown(value)),
        Quantile::Missing => NOTHING.to_owned(),
    }
}

/// Whether the ledger of every block with a record balances, unusable blocks included.
fn ledger(cell: &CellResult) -> String {
    let records = cell.blocks.iter().filter_map(|block| block.record.as_ref());
    let (mut seen, mut off) = (0, 0);
    for record in records {
        seen += 1;
        off += usize::from(record.counts.balanced().is_err());
    }
    match (seen, off) {
        (0, _) => NOTHING.to_owned(),
        (_, 0) => "balanced".to_owned(),
        _ => format!("{off} off"),
    }
}

impl Table {
    /// A table without rows, whose first `names` columns are names.
    pub(crate) fn new(names: usize, headings: &[&str]) -> Table {
        Table { names, headings: headings.iter().map(|text| (*text).to_owned()).collect(), rows: Vec::new() }
    }

    /// The same without the column of a heading.
    pub(crate) fn without(mut self, heading: &str) -> Table {
        if let Some(column) = self.headings.iter().position(|one| one == heading) {
            self.headings.remove(column);
            self.rows.iter_mut().for_each(|row| drop(row.remove(column)));
        }
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
