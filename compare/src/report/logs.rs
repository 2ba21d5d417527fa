//! The histograms of a result as files that the HdrHistogram tools of other languages read.

use std::{
    fs::{self, File},
    io::BufWriter,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result};
use measure::log::{self, IntervalLog};

use super::{figures, view::views};
use crate::result::ResultFile;

/// Writes `hlog/<cell>.hlog` into the result's folder: every metric, one interval for each usable
/// block.
///
/// # Errors
/// When a file cannot be written.
pub fn write_intervals(result: &ResultFile, started: SystemTime, folder: &Path) -> Result<()> {
    let hlogs = make(folder, "hlog")?;
    for cell in result.cells.iter().filter(|cell| cell.blocks.iter().any(|block| block.usable().is_some())) {
        let path = hlogs.join(format!("{}.hlog", cell.id));
        let write = || -> std::io::Result<()> {
            let comment = format!("{} of {}; usable blocks only", cell.id, cell.cell.scenario);
            let mut log = IntervalLog::begin(BufWriter::new(File::create(&path)?), started, &comment)?;
            for (block, record) in cell.blocks.iter().filter_map(|block| Some((block, block.usable()?))) {
                let from = Duration::from_nanos(block.started_after_ns);
                for (name, latency) in &record.latency {
                    log.interval(name, from, Duration::from_nanos(record.elapsed_ns), latency)?;
                }
            }
            log.finish()?;
            Ok(())
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Writes `hgrm/<cell>.hgrm` into the result's folder: the latency of the table, usable blocks
/// merged.
///
/// # Errors
/// When a file cannot be written.
pub fn write_percentiles(result: &ResultFile, folder: &Path) -> Result<()> {
    let hgrms = make(folder, "hgrm")?;
    for load in views(result) {
        for view in &load.cells {
            let Some(latency) = view.merged.latency.get(load.latency.0) else { continue };
            let path = hgrms.join(format!("{}.hgrm", view.cell.id));
            let mut table = Vec::new();
            log::percentiles(&mut table, latency).context("a vector takes everything")?;
            fs::write(&path, table).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

/// Writes `bytes-and-cpu.svg`, or one for each load where there are several.
///
/// # Errors
/// When a file cannot be written.
pub fn write_pictures(result: &ResultFile, folder: &Path) -> Result<()> {
    let loads = views(result);
    for load in &loads {
        let Some(svg) = figures::picture(load) else { continue };
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let which = match loads.len() {
            1 => String::new(),
            _ => format!("-{}", load.name().chars().map(plain).collect::<String>()),
        };
        let path = folder.join(format!("bytes-and-cpu{which}.svg"));
        fs::write(&path, svg).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn make(folder: &Path, name: &str) -> Result<PathBuf> {
    let made = folder.join(name);
    fs::create_dir_all(&made).with_context(|| format!("cannot make {}", made.display()))?;
    Ok(made)
}
