//! The last run of the same cells on this machine, beside the one that just ended.

use std::{fs, path::Path};

use report::result::ResultFile;

/// Folders that are looked at, the latest first: each is read whole.
const MOST_LOOKED_AT: usize = 8;

/// Changes since the same cells were measured last, with the folder of that run; `None` if no recent
/// folder next to this one has them.
pub(super) fn since(result: &ResultFile, folder: &Path) -> Option<String> {
    if result.incomplete().is_some() {
        return None;
    }
    // Names begin with the date, so they sort by it.
    let mut earlier: Vec<_> = fs::read_dir(folder.parent()?)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|other| other.is_dir() && other.file_name() < folder.file_name())
        .collect();
    earlier.sort_unstable();
    earlier.iter().rev().take(MOST_LOOKED_AT).find_map(|other| {
        let line = report::since(&ResultFile::read(other).ok()?, result)?;
        let (other, folder) = (other.display(), folder.display());
        Some(format!("since {other}: {line}\ncompare diff {other} {folder} shows each"))
    })
}
