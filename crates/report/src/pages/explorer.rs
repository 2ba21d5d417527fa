//! The page's data: tables of formats × compressions, each figure with its interval and its blocks. The
//! page computes no figure.

use std::collections::BTreeMap;

use cell::Factor;
use measure::{NO_GATEWAY, NOT_SATURATED, Slice};
use serde::Serialize;

use crate::{
    merged::Merged,
    metric::Metric,
    number,
    pages::{
        figure::{BesideJson, Figure},
        part::{Part, What},
        provenance,
        sentences::why,
        throughput::{Grid, Quantity, closing},
    },
    result::{Block, ResultFile, Role, Search},
    statistics::steady::by_second,
    tables::{
        limits,
        table::{NOTHING, factor_value, shown},
    },
    verdicts::answer::answer as of_verdicts,
    view::{CellView, LoadView, views},
};

/// A figure of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Key {
    Rate,
    Bytes,
    RelayCpu,
    ClientCpu,
    P50,
    P99,
}

impl Key {
    const ALL: [Key; 6] = [Key::Rate, Key::Bytes, Key::RelayCpu, Key::ClientCpu, Key::P50, Key::P99];

    /// The metric of other tables; the rate of a planned load is no figure.
    fn metric(self) -> Option<Metric> {
        match self {
            Key::Rate => None,
            Key::Bytes => Some(Metric::WireBytes),
            Key::RelayCpu => Some(Metric::RelayCpu),
            Key::ClientCpu => Some(Metric::ClientCpu),
            Key::P50 => Some(Metric::LatencyP50),
            Key::P99 => Some(Metric::LatencyP99),
        }
    }

    /// Why a load has no figure.
    fn missing(self, load: &LoadView<'_>) -> &'static str {
        let is_cpu = matches!(self, Key::RelayCpu | Key::ClientCpu);
        match () {
            () if self == Key::Rate && load.saturates() == NOT_SATURATED => {
                "the plan sets the rate; --saturate measures it"
            }
            () if is_cpu && load.is_over_links() => "CPU times over emulated links are no evidence",
            () if self == Key::ClientCpu && load.reads_lightly() => "light readers do less than clients",
            () => "not measured, or too few samples",
        }
    }
}

#[derive(Debug, Serialize)]
struct Explored<'a> {
    name: &'a str,
    title: &'a str,
    command: String,
    reproduce: String,
    started_utc: &'a str,
    /// The commit.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    /// Whether files differed from the commit, so that it states less than other results' commits.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    changed: bool,
    machine: String,
    /// Who measured it, as they say.
    #[serde(skip_serializing_if = "Option::is_none")]
    measured_by: Option<String>,
    corpus: String,
    warnings: &'a [String],
    headline: &'a str,
    tables: Vec<Table>,
    #[serde(skip_serializing_if = "Option::is_none")]
    search: Option<Probes<'a>>,
    parts: Vec<&'a What>,
}

/// The probes of a search against its axis.
#[derive(Debug, Serialize)]
struct Probes<'a> {
    x: &'static str,
    y: &'static str,
    cells: Vec<(&'a str, Vec<(f64, f64)>)>,
}

impl Probes<'_> {
    fn new(search: &Search) -> Probes<'_> {
        let axis = search.config.axis();
        let cells = search.cells.iter().map(|cell| (cell.cell.as_str(), limits::points(cell, axis)));
        Probes { x: limits::axis_name(axis), y: limits::value_name(axis), cells: cells.collect() }
    }
}

/// Cells that compare: one load, one implementation, one relay.
#[derive(Debug, Serialize)]
struct Table {
    scenario: String,
    side: String,
    implementation: String,
    relay: String,
    link: String,
    /// Deliveries for each accepted publish.
    #[serde(skip_serializing_if = "Option::is_none")]
    fan_out: Option<f64>,
    /// Deliveries for each second with work outstanding.
    #[serde(skip_serializing_if = "Option::is_none")]
    deliveries_per_s: Option<f64>,
    latency: &'static str,
    /// What came out, in sentences.
    answer: Vec<String>,
    /// JSON against itself.
    control: BTreeMap<Key, String>,
    /// Why a figure has no value in any cell.
    missing: BTreeMap<Key, &'static str>,
    cells: Vec<Cell>,
}

#[derive(Debug, Serialize)]
struct Cell {
    id: String,
    row: String,
    compression: String,
    parameters: String,
    code: String,
    figures: BTreeMap<Key, Figure>,
    /// N with the latency in ms that the slowest 1 in N exceed.
    slowest: Vec<(f64, f64)>,
    /// p50 in ms of each second of a block, the median over rounds.
    seconds_p50: Vec<f64>,
    /// Envelopes in each second of a block, the median over rounds.
    seconds_envelopes: Vec<f64>,
    blocks: Vec<BlockRow>,
}

/// A block in numbers; what it has no evidence of is absent.
#[derive(Debug, Default, Serialize)]
struct BlockRow {
    round: u32,
    place: u32,
    validity: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    envelopes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    relay_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p50: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    p99: Option<f64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    why: String,
}

/// The page's sentences next to its data.
pub(crate) struct Said<'a> {
    /// Name of the result's folder.
    pub(crate) name: &'a str,
    pub(crate) title: &'a str,
    pub(crate) warnings: &'a [String],
    pub(crate) headline: &'a str,
    pub(crate) parts: Vec<&'a Part>,
}

impl Said<'_> {
    /// What the page shows of a result, as JSON for an element of HTML.
    pub(crate) fn of(&self, result: &ResultFile) -> serde_json::Result<String> {
        let git = result.git.as_ref();
        let explored = Explored {
            name: self.name,
            title: self.title,
            command: provenance::command(result),
            reproduce: provenance::reproduce(result),
            started_utc: &result.started_utc,
            source: git.map(ToString::to_string),
            changed: git.is_some_and(|git| git.dirty),
            machine: provenance::machine(&result.host).replacen("Machine: ", "", 1),
            measured_by: result.provenance.as_ref().map(ToString::to_string),
            corpus: result.corpus.as_ref().map_or_else(
                || "unknown".to_owned(),
                |corpus| {
                    let print = corpus.sha256.get(..12).unwrap_or(&corpus.sha256);
                    format!("{}, {}, {print}", corpus.name, corpus.origin)
                },
            ),
            warnings: self.warnings,
            headline: self.headline,
            tables: views(result).iter().flat_map(tables).collect(),
            search: result.search.as_ref().map(Probes::new),
            parts: self.parts.iter().map(|part| &part.what).collect(),
        };
        // Inside a script element only "<" could begin something else; it stands in strings alone.
        Ok(serde_json::to_string(&explored)?.replace('<', "\\u003c"))
    }
}

/// The factors that tables of one load differ in.
const APART: [Factor; 3] = [Factor::Implementation, Factor::Relay, Factor::Via];

fn tables(load: &LoadView<'_>) -> Vec<Table> {
    // Rows of a page are decoders, and its costs other ones: the summary has them.
    if load.is_of_pages() {
        return Vec::new();
    }
    let grids: Vec<Grid> =
        Quantity::ALL.into_iter().filter_map(|quantity| Grid::at_limit(load, quantity)).collect();
    let shown = || load.cells.iter().filter(|view| matches!(view.cell.role, Role::Anchor | Role::Cell));
    let apart = |view: &CellView<'_>| APART.map(|factor| factor_value(factor, view.cell).to_owned());
    let mut groups: Vec<([String; 3], Vec<&CellView<'_>>)> = Vec::new();
    for view in shown() {
        let own = apart(view);
        match groups.iter_mut().find(|(group, _)| *group == own) {
            Some((_, views)) => views.push(view),
            None => groups.push((own, vec![view])),
        }
    }
    groups.into_iter().map(|(_, views)| Table::new(load, &grids, &views)).collect()
}

impl Table {
    fn new(load: &LoadView<'_>, grids: &[Grid], views: &[&CellView<'_>]) -> Table {
        let first = &views[0].cell.cell;
        let control = control(load, grids);
        let cells: Vec<Cell> = views.iter().map(|view| Cell::new(load, grids, &control, view)).collect();
        let lacks = |key: &Key| cells.iter().all(|cell| !cell.figures.contains_key(key));
        let missing = Key::ALL.into_iter().filter(lacks).map(|key| (key, key.missing(load))).collect();
        let counts = &views[0].merged.counts;
        Table {
            scenario: load.demand(),
            side: match load.saturates() {
                NOT_SATURATED => "none".to_owned(),
                side => side.to_owned(),
            },
            implementation: first.implementation.clone(),
            relay: relay(views[0]),
            link: first.link.clone(),
            fan_out: (counts.deliveries > 0 && counts.acked > 0)
                .then(|| digits(counts.deliveries as f64 / counts.acked as f64)),
            deliveries_per_s: (counts.deliveries > 0 && views[0].merged.active_ns > 0)
                .then(|| digits(counts.deliveries as f64 * 1e9 / views[0].merged.active_ns as f64)),
            latency: load.latency.0,
            answer: answer(load, grids),
            control: control.into_iter().map(|(key, ratio)| (key, ratio.beside_json)).collect(),
            missing,
            cells,
        }
    }
}

/// At a limit what its figures say, otherwise the answer of the verdicts.
fn answer(load: &LoadView<'_>, grids: &[Grid]) -> Vec<String> {
    match load.saturates() {
        NOT_SATURATED => of_verdicts(load, &load.comparisons()),
        _ => closing(grids).into_iter().collect(),
    }
}

/// The relay's name, and what stands before it.
fn relay(view: &CellView<'_>) -> String {
    let cell = &view.cell.cell;
    let stated = view.cell.blocks.iter().find_map(|block| block.record.as_ref()?.relay.as_ref());
    let name = match &*cell.relay {
        "" => stated.map_or("unknown", |relay| relay.software.as_str()),
        name => name,
    };
    match &*cell.via {
        NO_GATEWAY => name.to_owned(),
        via => format!("{name} behind the {via}"),
    }
}

/// JSON against itself.
type Control = BTreeMap<Key, BesideJson>;

fn control(load: &LoadView<'_>, grids: &[Grid]) -> Control {
    let of = |key: Key| {
        let of_limit = grids.iter().find(|grid| key_of(grid.quantity) == key);
        let ratio = match of_limit {
            Some(grid) => grid.control?.beside_json(),
            None => over_rounds(load, load.control()?, key.metric()?)?,
        };
        Some((key, ratio))
    };
    Key::ALL.into_iter().filter_map(of).collect()
}

fn key_of(quantity: Quantity) -> Key {
    match quantity {
        Quantity::Sends | Quantity::Reads => Key::Rate,
        Quantity::Bytes => Key::Bytes,
    }
}

impl Cell {
    fn new(load: &LoadView<'_>, grids: &[Grid], control: &Control, view: &CellView<'_>) -> Cell {
        let cell = &view.cell.cell;
        let others = load.varying().into_iter().filter(|factor| !APART.contains(factor));
        let others = others.map(|factor| factor_value(factor, view.cell)).filter(|value| *value != "none");
        let row: Vec<&str> = std::iter::once(load.row_of(view.cell)).chain(others).collect();
        let mut figures: BTreeMap<Key, Figure> = Key::ALL
            .into_iter()
            .filter_map(|key| Some((key, of_metric(load, view, key.metric()?)?)))
            .collect();
        let of_limit =
            grids.iter().filter_map(|grid| Some((key_of(grid.quantity), grid.figure(&view.cell.id)?)));
        figures.extend(of_limit);
        // Ratios across implementations say nothing about a format.
        let is_own =
            load.anchor().is_some_and(|anchor| anchor.cell.cell.implementation == cell.implementation);
        for (key, figure) in &mut figures {
            figure.ratio = figure.ratio.take().filter(|_| is_own).map(|ratio| ratio.judged(control.get(key)));
        }
        Cell {
            id: view.cell.id.clone(),
            row: row.join(" "),
            compression: cell.compression.clone(),
            parameters: cell.compression_parameters.clone(),
            code: cell.code.clone(),
            figures,
            slowest: slowest(load, view),
            seconds_p50: by_seconds(view, |slice| Some(slice.latency_ns_p50? as f64 / 1e6)),
            seconds_envelopes: by_seconds(view, |slice| Some(slice.samples as f64)),
            blocks: view.cell.blocks.iter().map(|block| BlockRow::new(block, load.latency.0)).collect(),
        }
    }
}

/// A cell ÷ JSON without compression over rounds.
fn over_rounds(load: &LoadView<'_>, view: &CellView<'_>, metric: Metric) -> Option<BesideJson> {
    let (ratio, interval) = load.to_anchor(view, metric)?;
    Some(BesideJson::new(ratio, interval, number::with_interval(ratio, interval)))
}

/// A figure as the table of costs has it, with its ratio over rounds.
fn of_metric(load: &LoadView<'_>, view: &CellView<'_>, metric: Metric) -> Option<Figure> {
    let measured = view.blocks_for(metric);
    let value = metric.value(measured, load.latency.0)? / metric.unit();
    let queue = || match view.saturated() {
        reasons if reasons.is_empty() => {
            view.is_unsteady().then(|| "unsteady: it depends on the block's length".to_owned())
        }
        reasons => Some(format!("the length of a queue: {}", reasons.join(", "))),
    };
    Some(Figure {
        value: digits(value),
        shown: shown(metric, measured, load.latency.0).unwrap_or_else(|| NOTHING.to_owned()),
        ratio: over_rounds(load, view, metric),
        why: if metric.is_latency() { queue() } else { None },
        ..Figure::default()
    })
    .filter(|figure| figure.value.is_finite())
}

/// Evenly spaced in the logarithm of N, as far as the samples support a number.
fn slowest(load: &LoadView<'_>, view: &CellView<'_>) -> Vec<(f64, f64)> {
    let steps = (0..=24).map(|step| 2.0_f64 * 10.0_f64.powf(f64::from(step) / 4.0));
    let shown = steps.map_while(|inverse| {
        let ns = view.merged.quantile(load.latency.0, 1.0 - 1.0 / inverse).ns()?;
        Some((digits(inverse), digits(ns as f64 / 1e6)))
    });
    shown.filter(|(_, ms)| *ms > 0.0).collect()
}

/// The median over rounds of each second of a cell's blocks; nothing of too few seconds.
fn by_seconds(view: &CellView<'_>, value: impl Fn(&Slice) -> Option<f64>) -> Vec<f64> {
    /// Fewest seconds of a block that have a course.
    const SECONDS: usize = 3;
    let usable = view.cell.blocks.iter().filter_map(Block::usable);
    let blocks: Vec<&[Slice]> =
        usable.filter_map(|record| Some(record.slices.as_ref()?.seconds.as_slice())).collect();
    let seconds = by_second(&blocks, |block| block.iter().map(&value).collect());
    let course: Vec<f64> = seconds.into_iter().map(digits).collect();
    if course.len() < SECONDS { Vec::new() } else { course }
}

impl BlockRow {
    fn new(block: &Block, latency: &str) -> BlockRow {
        let row = BlockRow { round: block.round + 1, place: block.position + 1, ..BlockRow::default() };
        let Some(record) = &block.record else {
            return BlockRow { validity: "without a record".to_owned(), why: why(block), ..row };
        };
        let merged = Merged::from_records([record]);
        let value = |metric: Metric| {
            Some(digits(metric.value(&merged, latency)? / metric.unit())).filter(|value| value.is_finite())
        };
        let seconds = |ns: u64| digits(ns as f64 / 1e9);
        BlockRow {
            validity: record.validity.class.to_string(),
            envelopes: Some(record.counts.envelopes()),
            relay_s: record.relay_cpu.map(|cpu| seconds(cpu.total_ns)),
            client_s: Some(record.client_cpu.total_ns).filter(|ns| *ns > 0).map(seconds),
            bytes: value(Metric::WireBytes),
            p50: value(Metric::LatencyP50),
            p99: value(Metric::LatencyP99),
            why: why(block),
            ..row
        }
    }
}

/// Six digits: more than any interval knows.
fn digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}
