//! A result as reports look at it: the cells of one load with their usable blocks merged, and each block as a multiple
//! of the anchors next to it.

use std::collections::BTreeMap;

use measure::RunRecord;

use super::steady::Steadiness;
use crate::{
    matrix,
    merged::{Merged, Metric, latency_of},
    result::{Block, CellResult, ResultFile, Role},
};

/// Logarithms of ratios by round.
pub(crate) type LogRatios = BTreeMap<u32, f64>;

/// The cells of one scenario at one rate.
pub(crate) struct LoadView<'a> {
    pub(crate) result: &'a ResultFile,
    /// In the order of every table.
    pub(crate) cells: Vec<CellView<'a>>,
    /// The metric of the latency columns, and what it means.
    pub(crate) latency: (&'static str, &'static str),
}

/// One cell.
pub(crate) struct CellView<'a> {
    pub(crate) cell: &'a CellResult,
    /// Its usable blocks together.
    pub(crate) merged: Merged,
    /// Whether its blocks were the same from beginning to end, where that can be told.
    pub(crate) steady: Option<Steadiness>,
    /// For each metric its blocks divided by the anchors next to them.
    to_anchor: BTreeMap<Metric, LogRatios>,
}

/// The loads of a result, in the order of its cells.
pub(crate) fn views(result: &ResultFile) -> Vec<LoadView<'_>> {
    let mut loads: Vec<Vec<&CellResult>> = Vec::new();
    for cell in &result.cells {
        match loads.iter_mut().find(|load| load[0].load() == cell.load()) {
            Some(load) => load.push(cell),
            None => loads.push(vec![cell]),
        }
    }
    loads.into_iter().map(|cells| LoadView::new(result, &cells)).collect()
}

impl<'a> LoadView<'a> {
    fn new(result: &'a ResultFile, cells: &[&'a CellResult]) -> LoadView<'a> {
        let latency = latency_of(cells.iter().flat_map(|cell| &cell.blocks).filter_map(Block::usable));
        let anchors = Anchors::of(cells.iter().copied().find(|cell| cell.role == Role::Anchor), latency.0);
        let view = |cell: &&'a CellResult| CellView {
            cell,
            steady: Steadiness::of(cell),
            merged: Merged::of(cell.blocks.iter().filter_map(Block::usable)),
            to_anchor: if cell.role == Role::Anchor {
                BTreeMap::new()
            } else {
                anchors.divide(cell, latency.0)
            },
        };
        LoadView { result, cells: cells.iter().map(view).collect(), latency }
    }

    /// What is offered, as a heading: the scenario and, where the matrix sets it, the rate.
    pub(crate) fn name(&self) -> String {
        let cell = self.cells[0].cell;
        let rate = cell.rate_per_s.map_or_else(String::new, |rate| format!(" at {rate} events/s"));
        format!("{}{rate}", cell.cell.scenario)
    }

    /// Whether allocations were counted, so that latencies and CPU times are no evidence.
    pub(crate) fn counts_allocations(&self) -> bool {
        let records = |view: &CellView<'a>| view.cell.blocks.iter().filter_map(|block| block.record.as_ref());
        self.cells.iter().flat_map(records).any(|record| record.allocations.is_some())
    }

    /// What verdicts speak of.
    pub(crate) fn judged(&self) -> &'static [Metric] {
        if self.counts_allocations() { &Metric::JUDGED_COUNTING } else { &Metric::JUDGED }
    }

    /// JSON without compression, to which the ratios of the table refer.
    pub(crate) fn anchor(&self) -> Option<&CellView<'a>> {
        self.cells.iter().find(|view| view.cell.role == Role::Anchor)
    }

    /// The anchor under its other name.
    pub(crate) fn control(&self) -> Option<&CellView<'a>> {
        self.cells.iter().find(|view| view.cell.role == Role::Control)
    }

    /// What a cell is compared with, like with like: a format with JSON under the same compression and batching, by the
    /// same kind of code, with the same checks; JSON in batches with JSON event by event under the same compression; any
    /// other JSON cell with JSON without compression; what has no such partner with the next simpler cell, at last the
    /// anchor. `None` for the anchor and the floor, which is never ranked.
    pub(crate) fn reference(&self, view: &CellView<'a>) -> Option<&CellView<'a>> {
        let cell = &view.cell.cell;
        if matches!(view.cell.role, Role::Anchor | Role::Floor) {
            return None;
        }
        let find = |format: &str, compression: &str, batching: &str, implementation: &str| {
            self.cells.iter().find(|other| {
                let names = &other.cell.cell;
                !matches!(other.cell.role, Role::Control | Role::Floor)
                    && other.cell.id != view.cell.id
                    && (names.format.as_str(), names.compression.as_str()) == (format, compression)
                    && names.batching == batching
                    && (names.implementation.as_str(), &names.verify) == (implementation, &cell.verify)
            })
        };
        let json =
            |compression, batching| find(matrix::BASE_FORMAT, compression, batching, &cell.implementation);
        let singly = self.anchor().map_or("none", |anchor| anchor.cell.cell.batching.as_str());
        let like = match cell.format == matrix::BASE_FORMAT {
            false => json(&cell.compression, &cell.batching),
            true if cell.batching != singly => json(&cell.compression, singly),
            true => None,
        };
        // Code of another kind never ranks formats: a tuned format without tuned JSON is compared with its own library.
        let others = self.cells.iter().map(|other| other.cell.cell.implementation.as_str());
        let other = others.into_iter().find(|name| *name != cell.implementation);
        like.or_else(|| json(matrix::BASE_COMPRESSION, &cell.batching))
            .or_else(|| find(&cell.format, &cell.compression, &cell.batching, other?))
            .or_else(|| self.anchor())
    }

    /// One cell as multiples of another, by round, from what both are to their anchors.
    pub(crate) fn log_ratios(
        &self,
        view: &CellView<'a>,
        reference: &CellView<'a>,
        metric: Metric,
    ) -> LogRatios {
        let none = LogRatios::new();
        let of = view.to_anchor.get(&metric).unwrap_or(&none);
        if reference.cell.role == Role::Anchor {
            return of.clone();
        }
        let base = reference.to_anchor.get(&metric).unwrap_or(&none);
        of.iter().filter_map(|(round, value)| Some((*round, value - base.get(round)?))).collect()
    }
}

impl CellView<'_> {
    /// Known not to be steady.
    pub(crate) fn is_unsteady(&self) -> bool {
        self.steady.as_ref().is_some_and(|found| !found.is_steady())
    }
}

/// What one block measured, by metric. What it does not know, or zero, is absent: nothing is a multiple of that.
type Values = BTreeMap<Metric, f64>;

fn values(record: &RunRecord, latency: &str) -> Values {
    let block = Merged::of([record]);
    let known = |metric: Metric| Some((metric, metric.value(&block, latency).filter(|value| *value > 0.0)?));
    Metric::ALL.into_iter().chain(Metric::JUDGED_COUNTING).filter_map(known).collect()
}

/// The usable anchor blocks of a load, by round and position.
struct Anchors(BTreeMap<(u32, u32), Values>);

impl Anchors {
    fn of(cell: Option<&CellResult>, latency: &str) -> Anchors {
        let blocks = cell.into_iter().flat_map(|cell| &cell.blocks);
        let anchor = |block: &Block| Some(((block.round, block.position), values(block.usable()?, latency)));
        Anchors(blocks.filter_map(anchor).collect())
    }

    /// The last anchor before and the first behind a place in the same round.
    fn around(&self, round: u32, position: u32) -> impl Iterator<Item = &Values> {
        let before = self.0.range((round, 0)..(round, position)).next_back();
        let behind = self.0.range((round, position)..=(round, u32::MAX)).next();
        before.into_iter().chain(behind).map(|(_, values)| values)
    }

    fn divide(&self, cell: &CellResult, latency: &str) -> BTreeMap<Metric, LogRatios> {
        let mut ratios: BTreeMap<Metric, LogRatios> = BTreeMap::new();
        for block in &cell.blocks {
            let Some(record) = block.usable() else { continue };
            for (metric, own) in values(record, latency) {
                // The mean of the two ratios' logarithms. Of anchors pooled, a high quantile is the worse one's own: a
                // block of JSON had ×0.87 of its neighbours' p99 (docs/decisions/anchors.md).
                let anchors = self.around(block.round, block.position);
                let logs: Vec<f64> =
                    anchors.filter_map(|anchor| Some((own / anchor.get(&metric)?).ln())).collect();
                if !logs.is_empty() {
                    let mean = logs.iter().sum::<f64>() / logs.len() as f64;
                    ratios.entry(metric).or_default().insert(block.round, mean);
                }
            }
        }
        ratios
    }
}

impl CellResult {
    fn load(&self) -> (&str, Option<u32>) {
        (&self.cell.scenario, self.rate_per_s)
    }
}
