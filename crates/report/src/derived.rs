//! `derived.json`: what follows from a result, for other programs. `compare report` makes it anew
//! from the result alone.

use std::{collections::BTreeMap, path::Path};

use anyhow::Result;
use measure::Tool;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    metric::Metric,
    result::{ResultFile, unfinished::write_json},
    slo::SloResult,
    statistics::{bracket::Limit, steady::Steadiness},
    tables::{floor::AboveFloor, limits, slos::slos},
    utilisation::Utilisation,
    verdicts::comparison::Comparison,
    view::{LoadView, views},
};

/// The name of the file beside the result.
pub const DERIVED_FILE: &str = "derived.json";

/// The layout of [`Derived`]. An added field raises the second number, any other change the first.
pub const DERIVED_SCHEMA_VERSION: &str = "3.0";

/// Figures, comparisons and verdicts that follow from a result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Derived {
    /// [`DERIVED_SCHEMA_VERSION`] of the writer.
    pub schema_version: String,
    /// The program that wrote this; another one than that of the result when it was rendered again.
    pub tool: Tool,
    /// The command that made the result.
    pub command: Vec<String>,
    /// When the result was begun.
    pub started_utc: String,
    /// Why the schedule was not played to its end; absent when it was.
    pub incomplete: Option<String>,
    /// Each cell in numbers, in the order of every table.
    pub cells: Vec<CellFigures>,
    /// Each cell against its reference.
    pub comparisons: Vec<Comparison>,
    /// Whether each cell keeps each demand.
    pub slos: Vec<SloResult>,
    /// The root of each cell, or pair of cells, of a search.
    pub limits: Vec<Limit>,
}

/// One cell over its usable blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellFigures {
    /// The cell's name.
    pub id: String,
    /// Blocks that ran.
    pub blocks: u64,
    /// Blocks whose latencies, CPU times and rates count.
    pub usable_blocks: u64,
    /// The ones that bytes and allocations are of: those whose ledger is valid, on a busy host too.
    pub counted_blocks: u64,
    /// Which latency the quantiles are of.
    pub latency: String,
    /// Figures in base units (a second, a byte, a nanosecond); one with too few samples is absent.
    pub figures: BTreeMap<Metric, f64>,
    /// The relay's CPU above that of the floor relay; absent without a floor, and of the floor.
    pub relay_cpu_above_floor: Option<AboveFloor>,
    /// Whether the blocks were the same from beginning to end, where that can be told.
    pub steady: Option<Steadiness>,
    /// CPU time as shares of the cores.
    pub utilisation: Utilisation,
    /// Why the cell is saturated, so that its latencies have no other verdict; empty when it is
    /// not.
    pub saturated: Vec<String>,
}

impl Derived {
    /// Everything that follows from a result.
    pub fn from_result(result: &ResultFile) -> Derived {
        let loads = views(result);
        Derived {
            schema_version: DERIVED_SCHEMA_VERSION.to_owned(),
            tool: Tool { name: "compare".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
            command: result.command.clone(),
            started_utc: result.started_utc.clone(),
            incomplete: result.incomplete().map(str::to_owned),
            cells: loads.iter().flat_map(cells).collect(),
            comparisons: comparisons(result),
            slos: slos(result, &loads),
            limits: result.search.as_ref().map_or_else(Vec::new, limits::limits),
        }
    }

    /// The JSON schema of the file, generated from these types.
    pub fn json_schema() -> serde_json::Value {
        schemars::schema_for!(Derived).to_value()
    }

    /// Writes the file into the result's folder.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        write_json(&folder.join(DERIVED_FILE), self)
    }
}

/// Each cell of a result against its reference, for every judged metric.
pub fn comparisons(result: &ResultFile) -> Vec<Comparison> {
    views(result).iter().flat_map(LoadView::comparisons).collect()
}

fn cells(load: &LoadView<'_>) -> Vec<CellFigures> {
    let of = |view: &crate::view::CellView<'_>| CellFigures {
        id: view.cell.id.clone(),
        blocks: view.cell.blocks.len() as u64,
        usable_blocks: view.merged.blocks,
        counted_blocks: view.counted.blocks,
        latency: load.latency.0.to_owned(),
        figures: (Metric::ALL.iter())
            .filter_map(|metric| Some((*metric, view.value(*metric, load.latency.0)?)))
            .collect(),
        relay_cpu_above_floor: load.above_floor(view, load.reference(view)),
        steady: view.steady.clone(),
        utilisation: view.utilisation(),
        saturated: view.saturated(),
    };
    load.cells.iter().map(of).collect()
}
