//! Counts instructions in user space by Valgrind, instead of timing: a cost that repeats, of relay
//! and clients apart.
//!
//! The same binary plays in one process what is counted (`rehearsals::instructions`);
//! `callgrind.rs` runs it and reads what Valgrind wrote. Every count is made twice, by two
//! processes, and the difference is stated.

mod callgrind;

use anyhow::{Context, Result};
use measure::{SCHEMA_VERSION, Tool};
use serde_json::json;

pub use callgrind::{NotInstalled, Program};

use crate::{matrix::CellSpec, usage::SKIP_INVALID};
use report::result::{Conditions, Instructions, Role, Row};

/// The part of a scenario that is counted.
#[derive(Debug, Clone)]
pub struct Play<'a> {
    /// Seconds of the plan.
    pub seconds: f64,
    /// The seed of everything random.
    pub seed: u64,
    /// The corpus file, when another than the bundled one.
    pub corpus: Option<&'a str>,
    /// Whether what in it is no valid event is left out.
    pub skip_invalid: bool,
}

/// Counts the hot paths of codecs, wire, relay and clients; of `only` those whose names contain it.
/// `tell` is given each name as it was counted. `plant` makes a format encode one event in so many
/// twice, as in `json=50`, to test whether that is found.
///
/// # Errors
/// [`NotInstalled`] without Valgrind; when the program fails, or its counts cannot be read.
pub fn count_hot_paths(
    program: &Program,
    only: Option<&str>,
    plant: Option<&str>,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<Instructions> {
    let only = only.iter().flat_map(|only| ["--only".to_owned(), (*only).to_owned()]);
    let plant = plant.iter().flat_map(|plant| ["--plant".to_owned(), (*plant).to_owned()]);
    let (conditions, rows) = program.count(&only.chain(plant).collect::<Vec<_>>(), tell)?;
    Ok(counted(conditions, rows))
}

/// Counts a scenario in each cell; controls and floors are left out.
///
/// # Errors
/// As [`count_hot_paths`].
pub fn count_cells(
    program: &Program,
    cells: &[CellSpec],
    play: &Play<'_>,
    tell: &(dyn Fn(&str) + Sync),
) -> Result<Instructions> {
    let mut loads: Vec<Vec<&CellSpec>> = Vec::new();
    for cell in cells.iter().filter(|cell| matches!(cell.role, Role::Anchor | Role::Cell)) {
        match loads.iter_mut().find(|load| load[0].load() == cell.load()) {
            Some(load) => load.push(cell),
            None => loads.push(vec![cell]),
        }
    }
    let (mut conditions, mut rows) = (None, Vec::new());
    for load in loads {
        let mut args = vec!["--scenario".to_owned(), load[0].cell.scenario.clone()];
        args.extend(["--seconds".to_owned(), play.seconds.to_string()]);
        args.extend(["--seed".to_owned(), play.seed.to_string()]);
        args.extend(play.corpus.iter().flat_map(|file| ["--corpus".to_owned(), (*file).to_owned()]));
        args.extend(play.skip_invalid.then(|| SKIP_INVALID.to_owned()));
        for cell in load {
            let counted = json!({ "id": cell.id, "cell": cell.cell });
            args.extend(["--cell".to_owned(), counted.to_string()]);
        }
        let (made_under, counts) = program.count(&args, tell)?;
        conditions = Some(made_under);
        rows.extend(counts);
    }
    Ok(counted(conditions.context("a matrix has cells")?, rows))
}

fn counted(conditions: Conditions, rows: Vec<Row>) -> Instructions {
    Instructions {
        schema_version: SCHEMA_VERSION.to_owned(),
        tool: Tool { name: "compare".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() },
        conditions,
        rows,
    }
}
