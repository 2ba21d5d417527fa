//! The page's data: tables of formats × compressions, each figure with its interval and its blocks. The
//! page computes no figure.

use std::collections::BTreeMap;

use cell::Factor;
use measure::{NO_GATEWAY, NOT_SATURATED, Slice};
use serde_json::{Value, json};

use crate::{
    merged::Merged,
    metric::Metric,
    number::Ratio,
    pages::{
        model::Report,
        part::Medium,
        provenance,
        sentences::why,
        throughput::{Grid, Quantity, closing},
    },
    result::{Block, Role, Search},
    statistics::steady::by_second,
    tables::{
        limits,
        table::{factor_value, or_nothing, shown},
    },
    verdicts::answer::answer as of_verdicts,
    view::{CellView, LoadView, views},
};

/// The figures of the page, with the metrics of other tables; the rate of a planned load is no figure.
const FIGURES: [(&str, Option<Metric>); 6] = [
    (RATE, None),
    (BYTES, Some(Metric::WireBytes)),
    ("relay_cpu", Some(Metric::RelayCpu)),
    ("client_cpu", Some(Metric::ClientCpu)),
    ("p50", Some(Metric::LatencyP50)),
    ("p99", Some(Metric::LatencyP99)),
];
const RATE: &str = "rate";
const BYTES: &str = "bytes";

/// Why a load has no such figure.
fn missing_of(metric: Option<Metric>, load: &LoadView<'_>) -> &'static str {
    let is_cpu = matches!(metric, Some(Metric::RelayCpu | Metric::ClientCpu));
    match () {
        () if metric.is_none() && load.saturates() == NOT_SATURATED => {
            "the plan sets the rate; --saturate measures it"
        }
        () if is_cpu && load.is_over_links() => "CPU times over emulated links are no evidence",
        () if metric == Some(Metric::ClientCpu) && load.reads_lightly() => {
            "light readers do less than clients"
        }
        () => "not measured, or too few samples",
    }
}

impl Report<'_> {
    /// What the page shows of a result, as JSON for an element of HTML (web/site/src/data.ts has its
    /// types). `name` is the result's folder.
    pub(crate) fn explored(&self, name: &str) -> serde_json::Result<String> {
        let result = self.result;
        let corpus = result.corpus.as_ref().map_or_else(
            || "unknown".to_owned(),
            |corpus| {
                let print = corpus.sha256.get(..12).unwrap_or(&corpus.sha256);
                format!("{}, {}, {print}", corpus.name, corpus.origin)
            },
        );
        let explored = json!({
            "name": name,
            "title": self.title,
            "command": provenance::command(result),
            "reproduce": provenance::reproduce(result),
            "started_utc": result.started_utc,
            "source": result.git.as_ref().map(ToString::to_string),
            "changed": result.git.as_ref().filter(|git| git.dirty).map(|_| true),
            "machine": provenance::machine(&result.host),
            "measured_by": result.provenance.as_ref().map(ToString::to_string),
            "corpus": corpus,
            "warnings": self.warnings,
            "headline": self.headline,
            "tables": views(result).iter().flat_map(tables).collect::<Vec<_>>(),
            "search": result.search.as_ref().map(probes),
            "parts": self.parts(Medium::Summary).map(|part| &part.what).collect::<Vec<_>>(),
        });
        // Inside a script element only "<" could begin something else; it stands in strings alone.
        Ok(serde_json::to_string(&present(explored))?.replace('<', "\\u003c"))
    }
}

/// JSON without what is not known.
fn present(json: Value) -> Value {
    match json {
        Value::Object(fields) => {
            let known = fields.into_iter().filter(|(_, value)| !value.is_null());
            known.map(|(name, value)| (name, present(value))).collect()
        }
        Value::Array(all) => all.into_iter().map(present).collect(),
        one => one,
    }
}

/// The probes of a search against its axis.
fn probes(search: &Search) -> Value {
    let axis = search.config.axis();
    let cells = search.cells.iter().map(|cell| (cell.cell.as_str(), limits::points(cell, axis)));
    json!({
        "x": limits::axis_name(axis),
        "y": limits::value_name(axis),
        "cells": cells.collect::<Vec<_>>(),
    })
}

/// The factors that tables of one load differ in.
const APART: [Factor; 3] = [Factor::Implementation, Factor::Relay, Factor::Via];

/// Tables of cells that compare: one load, one implementation, one relay.
fn tables(load: &LoadView<'_>) -> Vec<Value> {
    // Rows of a page are decoders, and its costs other ones: the summary has them.
    if load.is_of_pages() {
        return Vec::new();
    }
    let grids: Vec<Grid> =
        Quantity::ALL.into_iter().filter_map(|quantity| Grid::at_limit(load, quantity)).collect();
    let shown = load.cells.iter().filter(|view| matches!(view.cell.role, Role::Anchor | Role::Cell));
    let apart = |view: &CellView<'_>| APART.map(|factor| factor_value(factor, view.cell).to_owned());
    let mut groups: Vec<([String; 3], Vec<&CellView<'_>>)> = Vec::new();
    for view in shown {
        let own = apart(view);
        match groups.iter_mut().find(|(group, _)| *group == own) {
            Some((_, views)) => views.push(view),
            None => groups.push((own, vec![view])),
        }
    }
    groups.into_iter().map(|(_, views)| table(load, &grids, &views)).collect()
}

fn table(load: &LoadView<'_>, grids: &[Grid], views: &[&CellView<'_>]) -> Value {
    let first = &views[0].cell.cell;
    let control = control(load, grids);
    let cells: Vec<Value> = views.iter().map(|view| cell(load, grids, &control, view)).collect();
    let lacks = |key: &str| cells.iter().all(|cell| cell["figures"].get(key).is_none());
    let missing = FIGURES.into_iter().filter(|(key, _)| lacks(key));
    let missing: BTreeMap<_, _> = missing.map(|(key, metric)| (key, missing_of(metric, load))).collect();
    let control: BTreeMap<_, _> = control.into_iter().map(|(key, (_, text))| (key, text)).collect();
    // At a limit what its figures say, otherwise the answer of the verdicts.
    let answer = match load.saturates() {
        NOT_SATURATED => of_verdicts(load, &load.comparisons()),
        _ => closing(grids).into_iter().collect(),
    };
    let deliveries = views[0].merged.counts.deliveries as f64;
    let per = |under: f64| (deliveries > 0.0 && under > 0.0).then(|| digits(deliveries / under));
    json!({
        "scenario": load.demand(),
        "side": load.saturates(),
        "implementation": first.implementation,
        "relay": relay(views[0]),
        "link": first.link,
        "fan_out": per(views[0].merged.counts.acked as f64),
        "deliveries_per_s": per(views[0].merged.active_ns as f64 / 1e9),
        "latency": load.latency.0,
        "answer": answer,
        "control": control,
        "missing": missing,
        "cells": cells,
    })
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

/// JSON against itself, with its text.
type Control = BTreeMap<&'static str, (Ratio, String)>;

fn control(load: &LoadView<'_>, grids: &[Grid]) -> Control {
    let of = |(key, metric)| Some((key, beside_json(load, grid_of(grids, key), load.control()?, metric)?));
    FIGURES.into_iter().filter_map(of).collect()
}

/// The figures of a key at its limit.
fn grid_of<'g>(grids: &'g [Grid], key: &str) -> Option<&'g Grid> {
    grids.iter().find(|grid| key == if grid.quantity == Quantity::Bytes { BYTES } else { RATE })
}

/// A cell ÷ JSON without compression: of the figures of a limit, else over rounds.
fn beside_json(
    load: &LoadView<'_>,
    grid: Option<&Grid>,
    view: &CellView<'_>,
    metric: Option<Metric>,
) -> Option<(Ratio, String)> {
    match grid {
        Some(grid) => grid.ratio(view.cell).map(|ratio| (ratio, ratio.with_reach())),
        None => load.to_anchor(view, metric?).map(|ratio| (ratio, ratio.to_string())),
    }
}

fn cell(load: &LoadView<'_>, grids: &[Grid], control: &Control, view: &CellView<'_>) -> Value {
    let cell = &view.cell.cell;
    let others = load.varying().into_iter().filter(|factor| !APART.contains(factor));
    let others = others.map(|factor| factor_value(factor, view.cell)).filter(|value| *value != "none");
    let row: Vec<&str> = std::iter::once(load.row_of(view.cell)).chain(others).collect();
    // Ratios across implementations say nothing about a format.
    let is_own = load.anchor().is_some_and(|anchor| anchor.cell.cell.implementation == cell.implementation);
    let figure = |(key, metric): (&'static str, Option<Metric>)| {
        let grid = grid_of(grids, key);
        let mut figure = match grid {
            Some(grid) => at_limit(grid, view)?,
            None => of_metric(load, view, metric?)?,
        };
        if let Some((ratio, text)) = beside_json(load, grid, view, metric).filter(|_| is_own) {
            let (low, high) = ratio.interval.unzip();
            let differs = ratio.differs(control.get(key).map(|(control, _)| *control));
            figure["ratio"] = json!(ratio.value);
            (figure["low"], figure["high"]) = (json!(low), json!(high));
            figure["beside_json"] = json!(text);
            figure["differs"] = json!(differs.then_some(true));
        }
        Some((key, figure))
    };
    json!({
        "id": view.cell.id,
        "row": row.join(" "),
        "compression": cell.compression,
        "parameters": cell.compression_parameters,
        "code": cell.code,
        "figures": FIGURES.into_iter().filter_map(figure).collect::<BTreeMap<_, _>>(),
        "slowest": slowest(load, view),
        "seconds_p50": by_seconds(view, |slice| Some(slice.latency_ns_p50? as f64 / 1e6)),
        "seconds_envelopes": by_seconds(view, |slice| Some(slice.samples as f64)),
        "blocks": view.cell.blocks.iter().map(|one| block(one, load.latency.0)).collect::<Vec<_>>(),
    })
}

/// A figure as the table of a limit has it.
fn at_limit(grid: &Grid, view: &CellView<'_>) -> Option<Value> {
    let entry = grid.of_cell(&view.cell.id)?;
    let bound = if entry.is_full { "" } else { "≥" };
    Some(json!({
        "value": entry.value?,
        "shown": format!("{bound}{}", grid.quantity.shown(entry.value?)),
        "at_least": (!entry.is_full).then_some(true),
        "sums": [entry.sums.over, entry.sums.under],
    }))
}

/// A figure as the table of costs has it.
fn of_metric(load: &LoadView<'_>, view: &CellView<'_>, metric: Metric) -> Option<Value> {
    let measured = view.blocks_for(metric);
    let value = metric.value(measured, load.latency.0)? / metric.unit();
    let queue = || match view.saturated() {
        reasons if reasons.is_empty() => {
            view.is_unsteady().then(|| "unsteady: it depends on the block's length".to_owned())
        }
        reasons => Some(format!("the length of a queue: {}", reasons.join(", "))),
    };
    value.is_finite().then(|| {
        json!({
            "value": digits(value),
            "shown": or_nothing(shown(metric, measured, load.latency.0)),
            "why": if metric.is_latency() { queue() } else { None },
        })
    })
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

/// A block in numbers, as far as it has evidence of them.
fn block(block: &Block, latency: &str) -> Value {
    let record = block.record.as_ref();
    let merged = record.map(|record| Merged::from_records([record]));
    let value = |metric: Metric| {
        let value = metric.value(merged.as_ref()?, latency)? / metric.unit();
        value.is_finite().then(|| digits(value))
    };
    let seconds = |ns: u64| digits(ns as f64 / 1e9);
    json!({
        "round": block.round + 1,
        "place": block.position + 1,
        "validity": record
            .map_or_else(|| "without a record".to_owned(), |record| record.validity.class.to_string()),
        "envelopes": record.map(|record| record.counts.envelopes()),
        "relay_s": record.and_then(|record| record.relay_cpu).map(|cpu| seconds(cpu.total_ns)),
        "client_s": record.map(|record| record.client_cpu.total_ns).filter(|ns| *ns > 0).map(seconds),
        "bytes": value(Metric::WireBytes),
        "p50": value(Metric::LatencyP50),
        "p99": value(Metric::LatencyP99),
        "why": Some(why(block)).filter(|why| !why.is_empty()),
    })
}

/// Six digits: more than any interval knows.
fn digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}
