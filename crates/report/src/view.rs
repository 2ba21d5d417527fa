//! A result by load: the cells with their usable blocks merged, and each block as a multiple of its
//! nearest anchors.

use std::collections::BTreeMap;

use measure::{NO_LINK, NOT_SATURATED};

use crate::{
    merged::{Merged, SESSION, THROUGHPUT, latency_of},
    metric::{Metric, ShownIn},
    number::Ratio,
    reference,
    result::{Block, CellResult, ResultFile, Role, percent},
    statistics::steady::Steadiness,
    utilisation::Utilisation,
};

/// Logarithms of ratios by round.
pub(crate) type LogRatios = BTreeMap<u32, f64>;

/// The cells of one scenario at one rate over one link.
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
    /// The blocks whose ledger is valid together, without latencies.
    pub(crate) counted: Merged,
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
        let with_role = |role: Role| cells.iter().copied().find(|cell| cell.role == role);
        let anchors = Anchors::from_cell(with_role(Role::Anchor), latency.0);
        // With two relays alone, every block of the first is next to a block of the other.
        let pair = (cells.len() == 3).then(|| Some([with_role(Role::Anchor)?, with_role(Role::Control)?]));
        let to_anchor = |cell: &CellResult| match (cell.role, pair.flatten()) {
            (Role::Anchor, _) => BTreeMap::new(),
            (Role::Cell, Some([anchor, control])) if anchor.cell.relay != cell.cell.relay => {
                divide_by_round(cell, [anchor, control], latency.0)
            }
            _ => anchors.divide(cell, latency.0),
        };
        let view = |cell: &&'a CellResult| CellView {
            cell,
            steady: Steadiness::from_cell(cell).filter(|_| latency != SESSION),
            merged: Merged::from_records(cell.blocks.iter().filter_map(Block::usable)),
            counted: Merged::of_counts(cell.blocks.iter().filter_map(Block::counted)),
            to_anchor: to_anchor(cell),
        };
        LoadView { result, cells: cells.iter().map(view).collect(), latency }
    }

    /// The load as a heading: the scenario and, where the matrix sets them, utilisation or
    /// multiple, rate and link.
    pub(crate) fn name(&self) -> String {
        match self.saturates() {
            NOT_SATURATED => self.name_at_any_limit(),
            whom => format!("{} with saturated {whom}", self.name_at_any_limit()),
        }
    }

    /// The load's name without what it saturates.
    pub(crate) fn name_at_any_limit(&self) -> String {
        match self.cells[0].cell.cell.link.as_str() {
            NO_LINK => self.demand(),
            link => format!("{} over {link}", self.demand()),
        }
    }

    /// The load's name without its link.
    pub(crate) fn demand(&self) -> String {
        let cell = self.cells[0].cell;
        let rate = cell.rate_per_s.map_or_else(String::new, |rate| format!(" at {rate} events/s"));
        let times = match (cell.utilisation, cell.cell.load.as_str()) {
            (Some(share), _) => format!(" at {} % of each relay's cores", percent(share)),
            (None, "1") => String::new(),
            (None, load) => format!(" at load {load}"),
        };
        format!("{}{times}{rate}", cell.cell.scenario)
    }

    /// The process that the load saturates, or [`NOT_SATURATED`].
    pub(crate) fn saturates(&self) -> &str {
        &self.cells[0].cell.cell.saturate
    }

    /// Whether users have emulated access links, so that CPU times are no evidence.
    pub(crate) fn is_over_links(&self) -> bool {
        self.cells.iter().any(|view| view.merged.link.is_some() || view.cell.cell.link != NO_LINK)
    }

    /// Whether clients counted deliveries unread, so that their CPU times are no evidence.
    pub(crate) fn reads_lightly(&self) -> bool {
        self.cells.iter().any(|view| view.counted.reads_lightly())
    }

    /// Whether the latency is of sessions, each over its user's own link: they begin when they
    /// begin, and have no steady state.
    pub(crate) fn is_of_sessions(&self) -> bool {
        self.latency == SESSION
    }

    /// The name of the relay that the others are compared with, where relays are compared.
    pub(crate) fn first_relay(&self) -> Option<&str> {
        self.result.config.relays.first().map(|relay| relay.name.as_str())
    }

    /// Whether allocations were counted, so that latencies and CPU times are no evidence.
    pub(crate) fn counts_allocations(&self) -> bool {
        let records = |view: &CellView<'a>| view.cell.blocks.iter().filter_map(|block| block.record.as_ref());
        self.cells.iter().flat_map(records).any(|record| record.allocations.is_some())
    }

    /// The metrics with verdicts.
    pub(crate) fn judged(&self) -> Vec<Metric> {
        Metric::shown_in(match () {
            () if self.is_of_pages() => ShownIn::VerdictsOfPages,
            () if self.counts_allocations() => ShownIn::VerdictsCounting,
            () if self.is_over_links() => ShownIn::VerdictsOverLinks,
            () if self.first_relay().is_some() => ShownIn::VerdictsOfRelays,
            () => ShownIn::Verdicts,
        })
    }

    /// The columns of the table of costs. The slow tail of throughput is p1 where every cell has
    /// intervals enough, p10 elsewhere, so that cells compare.
    pub(crate) fn columns(&self) -> Vec<Metric> {
        let has_p1 = |view: &CellView<'a>| {
            !view.merged.latency.contains_key(THROUGHPUT)
                || view.value(Metric::ThroughputP1, self.latency.0).is_some()
        };
        let all_have = self.cells.iter().all(has_p1);
        let other_tail = if all_have { Metric::ThroughputP10 } else { Metric::ThroughputP1 };
        let mut columns = Metric::shown_in(match () {
            () if self.is_of_pages() => ShownIn::CostsOfPages,
            () if self.is_over_links() => ShownIn::CostsOverLinks,
            () if self.first_relay().is_some() => ShownIn::CostsOfRelays,
            () => ShownIn::Costs,
        });
        columns.retain(|metric| *metric != other_tail);
        if self.is_of_pages() {
            // A device has no CPU time, a decoder no packets.
            let is_known =
                |metric: Metric| self.cells.iter().any(|view| view.value(metric, self.latency.0).is_some());
            columns.retain(|metric| is_known(*metric));
        }
        columns
    }

    /// JSON without compression, to which the ratios of the table refer.
    pub(crate) fn anchor(&self) -> Option<&CellView<'a>> {
        self.cells.iter().find(|view| view.cell.role == Role::Anchor)
    }

    /// The anchor under its other name.
    pub(crate) fn control(&self) -> Option<&CellView<'a>> {
        self.cells.iter().find(|view| view.cell.role == Role::Control)
    }

    /// The reference of a cell, see [`reference::reference`].
    pub(crate) fn reference(&self, view: &CellView<'a>) -> Option<&CellView<'a>> {
        let cells: Vec<_> = self.cells.iter().map(|view| (view.cell.role, &view.cell.cell)).collect();
        let own = self.cells.iter().position(|other| other.cell.id == view.cell.id)?;
        reference::reference(&cells, own).map(|found| &self.cells[found])
    }

    /// Logarithms of cell ÷ reference by round, each first divided by its anchors.
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

impl LoadView<'_> {
    /// A cell ÷ JSON without compression over rounds; `None` of the anchor and of what was not
    /// measured.
    pub(crate) fn to_anchor(&self, view: &CellView<'_>, metric: Metric) -> Option<Ratio> {
        Ratio::over_rounds(&view.to_anchor.get(&metric)?.values().copied().collect::<Vec<_>>())
    }
}

impl CellView<'_> {
    /// Whether it is known to be unsteady.
    pub(crate) fn is_unsteady(&self) -> bool {
        self.steady.as_ref().is_some_and(|found| !found.is_steady())
    }

    /// The blocks that a metric is of.
    pub(crate) fn blocks_for(&self, metric: Metric) -> &Merged {
        if metric.needs_quiet() { &self.merged } else { &self.counted }
    }

    /// A metric over the blocks that it may use.
    pub(crate) fn value(&self, metric: Metric, latency: &str) -> Option<f64> {
        metric.value(self.blocks_for(metric), latency)
    }

    /// Why its latency is the length of a queue: processes that were full, and blocks in which the
    /// cell made the generator late.
    pub(crate) fn saturated(&self) -> Vec<String> {
        let blocks = &self.cell.blocks;
        let is_late = |block: &&Block| block.counted().is_some_and(|one| one.validity.is_own_lateness());
        let late = blocks.iter().filter(is_late).count();
        let late = (late > 0).then(|| format!("the generator was late in {late} of {} blocks", blocks.len()));
        self.utilisation().reasons().into_iter().chain(late).collect()
    }

    /// CPU time as shares of the cores.
    pub(crate) fn utilisation(&self) -> Utilisation {
        Utilisation::from_merged(&self.merged)
    }
}

/// One block's values by metric, without zeros: nothing is a multiple of zero.
type Values = BTreeMap<Metric, f64>;

/// The values that a block's validity allows.
fn values(block: &Block, latency: &str) -> Values {
    let (usable, counted) = (block.usable(), block.counted());
    let (usable, counted) =
        (usable.map(|one| Merged::from_records([one])), counted.map(|one| Merged::of_counts([one])));
    let known = |metric: &Metric| {
        let metric = *metric;
        let measured = if metric.needs_quiet() { usable.as_ref() } else { counted.as_ref() };
        Some((metric, metric.value(measured?, latency).filter(|value| *value > 0.0)?))
    };
    Metric::ALL.iter().filter_map(known).collect()
}

/// The anchor blocks of a load, by round and position.
struct Anchors(BTreeMap<(u32, u32), Values>);

impl Anchors {
    fn from_cell(cell: Option<&CellResult>, latency: &str) -> Anchors {
        let blocks = cell.into_iter().flat_map(|cell| &cell.blocks);
        let anchor = |block: &Block| ((block.round, block.position), values(block, latency));
        Anchors(blocks.map(anchor).collect())
    }

    fn divide(&self, cell: &CellResult, latency: &str) -> BTreeMap<Metric, LogRatios> {
        let mut ratios: BTreeMap<Metric, LogRatios> = BTreeMap::new();
        for block in &cell.blocks {
            for (metric, own) in values(block, latency) {
                if let Some(log) = self.log_ratio(block, metric, own) {
                    ratios.entry(metric).or_default().insert(block.round, log);
                }
            }
        }
        ratios
    }

    /// The mean logarithm of a block's ratios to two anchors: the last one before it, and the first one
    /// after it in the same round.
    fn log_ratio(&self, block: &Block, metric: Metric, own: f64) -> Option<f64> {
        let (round, place) = (block.round, block.position);
        let known = |(_, values): (_, &Values)| values.get(&metric).copied();
        let before = self.0.range((round, 0)..(round, place)).rev().find_map(known);
        let behind = self.0.range((round, place)..=(round, u32::MAX)).find_map(known);
        // The mean of the two ratios' logarithms: pooled anchors bias high quantiles
        // (docs/decisions/anchors.md).
        let logs: Vec<f64> = before.into_iter().chain(behind).map(|anchor| (own / anchor).ln()).collect();
        (!logs.is_empty()).then(|| logs.iter().sum::<f64>() / logs.len() as f64)
    }
}

/// The mean logarithm of a cell's blocks of a round over that of its references' blocks.
fn divide_by_round(
    cell: &CellResult,
    references: [&CellResult; 2],
    latency: &str,
) -> BTreeMap<Metric, LogRatios> {
    let means = |blocks: &mut dyn Iterator<Item = &Block>| {
        let mut logs: BTreeMap<(Metric, u32), Vec<f64>> = BTreeMap::new();
        for block in blocks {
            for (metric, value) in values(block, latency) {
                logs.entry((metric, block.round)).or_default().push(value.ln());
            }
        }
        logs.into_iter().map(|(place, logs)| (place, logs.iter().sum::<f64>() / logs.len() as f64))
    };
    let references: BTreeMap<_, _> = means(&mut references.iter().flat_map(|one| &one.blocks)).collect();
    let mut ratios: BTreeMap<Metric, LogRatios> = BTreeMap::new();
    for (place, own) in means(&mut cell.blocks.iter()) {
        if let Some(reference) = references.get(&place) {
            ratios.entry(place.0).or_default().insert(place.1, own - reference);
        }
    }
    ratios
}

impl CellResult {
    pub(crate) fn load(&self) -> (&str, Option<u32>, Option<&str>, Option<f64>, &str, &str) {
        let load = Some(&*self.cell.load).filter(|_| self.utilisation.is_none());
        (&self.cell.scenario, self.rate_per_s, load, self.utilisation, &self.cell.saturate, &self.cell.link)
    }
}
