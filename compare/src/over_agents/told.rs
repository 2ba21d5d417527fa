//! What agents are told of a block.

use std::{fs, path::Path};

use agents::RelayPlay;
use anyhow::{Context, Result};

use crate::{matrix::CellSpec, result::Role};

/// What the agent that starts the relay of a cell is told of it.
pub(super) fn relay_play(cell: &CellSpec) -> Result<RelayPlay> {
    let limits = cell.batch_limits().unwrap_or_default();
    let text = |name: &str| limits.iter().find(|(limit, _)| *limit == name).map(|(_, value)| *value);
    let wrong = || format!("the limits of batches are whole numbers: {}", cell.batching);
    Ok(RelayPlay {
        verify: cell.verify.clone(),
        reencode: cell.reencode.clone(),
        batch_ms: text("ms").map(str::parse).transpose().with_context(wrong)?,
        batch_n: text("n").map(str::parse).transpose().with_context(wrong)?,
        batch_bytes: text("bytes").map(str::parse).transpose().with_context(wrong)?,
        floor: cell.role == Role::Floor,
    })
}

/// The name of a scenario and, when it is a file, its text: agents know the others by name.
pub(super) fn scenario(name: &str) -> Result<(String, Option<String>)> {
    let Some(stem) = Path::new(name).file_stem().filter(|_| name.contains(['/', '.'])) else {
        return Ok((name.to_owned(), None));
    };
    let text = fs::read_to_string(name).with_context(|| format!("cannot read scenario {name}"))?;
    Ok((stem.to_string_lossy().into_owned(), Some(text)))
}
