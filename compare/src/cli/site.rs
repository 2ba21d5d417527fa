//! `compare site`: one page over all results.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow};

use program::UsageError;
use report::{
    Site,
    result::{ResultFile, results_in},
};

/// Where results lie unless other folders are named.
const FOLDERS: [&str; 3] = ["results", "results/published", "results/contributed"];

const PAGE: &str = "index.html";

/// Writes the page. A result that cannot be read is named and left out.
pub(super) fn write(dir: &Path, folders: &[PathBuf]) -> Result<()> {
    let folders: Vec<PathBuf> =
        if folders.is_empty() { FOLDERS.map(PathBuf::from).to_vec() } else { folders.to_vec() };
    measure::try_folder(dir).context("DIR").map_err(UsageError)?;
    let mut site = Site::default();
    for folder in folders.iter().flat_map(|folder| results_in(folder)) {
        // One at a time: histograms of a large result take some hundred MB.
        match ResultFile::read(&folder) {
            Ok(result) => site.add(&name(&folder), &result)?,
            Err(error) => program::report(&format!("left out {}: {error:#}", folder.display())),
        }
    }
    if site.is_empty() {
        let named = folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ");
        let fix = "give the folder that has folders of results with --results, or make one with compare run";
        return Err(UsageError(anyhow!("no result in {named}: {fix}")).into());
    }
    fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let file = dir.join(PAGE);
    let page = site.html("Nostr wire formats, measured")?;
    measure::write_whole(&file, page.as_bytes())
        .with_context(|| format!("cannot write {}", file.display()))?;
    program::report(&format!("written to {}: {} results", file.display(), site.len()));
    Ok(())
}

/// The folder's name, after its parent's name if the parent tells whose result it is.
fn name(folder: &Path) -> String {
    let names: Vec<String> = (folder.components().rev().take(2))
        .map(|part| part.as_os_str().to_string_lossy().into_owned())
        .collect();
    match names.as_slice() {
        [own, parent] if parent != "results" => format!("{parent}/{own}"),
        names => names.first().cloned().unwrap_or_default(),
    }
}
