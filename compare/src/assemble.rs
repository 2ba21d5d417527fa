//! Results of the blocks that a plan left.

use std::{ffi::OsString, time::SystemTime};

use measure::{Environment, utc};
use program::command_line;

use crate::{matrix::CellSpec, plan::BlockOrder};
use report::result::{Block, CellResult, Config, Git, ResultFile};

/// A complete result of this program on this host, without blocks.
pub(crate) fn header(args: &[OsString], git: Option<Git>, started: SystemTime, config: Config) -> ResultFile {
    ResultFile::begun(command_line(args), git, Environment::collect(), utc::format(started), config)
}

/// Sorts blocks under their cells. `blocks` pairs each block with its index in `cells`.
pub fn assemble(
    header: ResultFile,
    cells: &[CellSpec],
    plan: &BlockOrder,
    blocks: Vec<(usize, Block)>,
) -> ResultFile {
    let played = blocks.last().map_or(0, |(_, block)| block.round as usize + 1);
    let mut by_cell: Vec<Vec<Block>> = cells.iter().map(|_| Vec::new()).collect();
    for (cell, block) in blocks {
        by_cell[cell].push(block);
    }
    let ids = |round: &Vec<usize>| round.iter().map(|cell| cells[*cell].id.clone()).collect();
    let rounds = plan.rounds.iter().chain(&plan.spare).take(plan.rounds.len().max(played));
    let schedule = rounds.map(ids).collect();
    let cells = cells.iter().zip(by_cell).map(|(spec, blocks)| cell_result(spec, blocks)).collect();
    header.with_cells(cells, schedule)
}

/// A run before its first block, with the further rounds that it may come to.
pub(crate) fn planned(header: ResultFile, cells: &[CellSpec], plan: &BlockOrder) -> ResultFile {
    let all = BlockOrder {
        rounds: plan.rounds.iter().chain(&plan.spare).cloned().collect(),
        ..BlockOrder::default()
    };
    assemble(header, cells, &all, Vec::new())
}

/// The blocks of a cell with the names that its runs stated, or without a record the names of the
/// matrix.
fn cell_result(spec: &CellSpec, blocks: Vec<Block>) -> CellResult {
    let stated = blocks.iter().find_map(|block| Some(block.record.as_ref()?.cell.clone()));
    let cell = stated.unwrap_or_else(|| spec.cell.recorded());
    let rate_per_s = spec.cell.whole_rate_per_s();
    CellResult {
        id: spec.id.clone(),
        role: spec.role,
        rate_per_s,
        utilisation: spec.utilisation,
        cell,
        blocks,
    }
}
