//! Blocks are on disk as they come: this is what is left of a command that never wrote its result.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use measure::{SCHEMA_VERSION, Status};
use serde::{Deserialize, Serialize};

use super::{Block, ResultFile};

/// The folder in a result's, until `result.json` is written.
const BLOCKS: &str = "blocks";

/// The file with the run's arguments and everything that has no file of its own: a result without blocks
/// of cells.
const PLAN: &str = "plan.json";

/// A block with the cell that it belongs to.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    schema_version: String,
    cell: String,
    block: Block,
}

/// Makes the folder for blocks in `folder` anew and states the plan there. A status that is not
/// complete says what the blocks are of.
///
/// # Errors
/// When either cannot be written.
pub fn begin(folder: &Path, plan: &ResultFile) -> Result<PathBuf> {
    remove(folder);
    state(folder, plan)?;
    Ok(folder.join(BLOCKS))
}

/// States what there is so far, beside the blocks that are there.
///
/// # Errors
/// When it cannot be written.
pub fn state(folder: &Path, so_far: &ResultFile) -> Result<()> {
    let blocks = folder.join(BLOCKS);
    fs::create_dir_all(&blocks).with_context(|| format!("cannot make {}", blocks.display()))?;
    write_json(&blocks.join(PLAN), so_far)
}

/// Writes one block, which is on the disk when this returns.
///
/// # Errors
/// When it cannot be written.
pub fn keep(blocks: &Path, cell: &str, block: &Block) -> Result<()> {
    let name = format!("{:03}-{:03}.json", block.round, block.position);
    let kept =
        Kept { schema_version: SCHEMA_VERSION.to_owned(), cell: cell.to_owned(), block: block.clone() };
    write_json(&blocks.join(name), &kept)
}

/// Removes the blocks of a run whose result is written, or that measured nothing.
pub fn remove(folder: &Path) {
    // Files that stay do no harm: a result is read before them.
    let _ = fs::remove_dir_all(folder.join(BLOCKS));
}

/// The blocks of a run without a result; `None` when `folder` has none.
///
/// # Errors
/// Names the file that cannot be read, or that belongs to no cell of the plan.
pub(super) fn read(folder: &Path) -> Result<Option<ResultFile>> {
    let blocks = folder.join(BLOCKS);
    let plan = blocks.join(PLAN);
    if !plan.is_file() {
        return Ok(None);
    }
    let mut result: ResultFile = measure::read_versioned(&plan, "plan")?;
    let unread = || format!("cannot read {}", blocks.display());
    let mut found: Vec<(PathBuf, Kept)> = Vec::new();
    for entry in fs::read_dir(&blocks).with_context(unread)? {
        let file = entry.with_context(unread)?.path();
        if file == plan || file.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        match measure::read_versioned(&file, "block") {
            Ok(kept) => found.push((file, kept)),
            // A run that is under way ended and removed it.
            Err(_) if !file.exists() => {}
            Err(error) => return Err(error.into()),
        }
    }
    // By round and place, of which there may be more than the digits of a name.
    found.sort_by_key(|(_, kept)| (kept.block.round, kept.block.position));
    let count = found.len();
    let played = found.last().map_or(0, |(_, kept)| kept.block.round as usize + 1);
    result.schedule.truncate(played.max(result.config.rounds as usize));
    for (file, Kept { cell, block, .. }) in found {
        let cells = &mut result.cells;
        let place = cells.iter_mut().find(|one| one.id == cell).with_context(|| {
            format!("{} has a block of {cell:?}, which {} does not name", file.display(), plan.display())
        })?;
        if let Some(record) = &block.record {
            place.cell = record.cell.clone();
            result.corpus.get_or_insert_with(|| record.corpus.clone());
        }
        place.blocks.push(block);
    }
    let of = result.incomplete().map_or_else(String::new, |what| format!(" ({what})"));
    let holds =
        if result.search.is_some() { String::new() } else { format!(", {BLOCKS} holds {count} blocks") };
    result.status = Status::Incomplete { reason: format!("unfinished{of}: no result was written{holds}") };
    Ok(Some(result))
}

/// Writes indented JSON that is either whole and on the disk, or not there.
///
/// # Errors
/// When the file cannot be written; one that was there stays as it was.
pub(crate) fn write_json(file: &Path, value: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(value).context("a result does not serialize")?;
    text.push('\n');
    measure::write_whole(file, text.as_bytes()).with_context(|| format!("cannot write {}", file.display()))
}
