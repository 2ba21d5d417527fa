//! The histograms of a result as files that the HdrHistogram tools of other languages read.

use std::{
    fs::{self, File},
    io::BufWriter,
    path::Path,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result};
use measure::log::{self, IntervalLog};

use super::views;
use crate::ResultFile;

/// Writes `hlog/<cell>.hlog` (every metric, one interval for each usable block) and `hgrm/<cell>.hgrm` (the latency of
/// the table, blocks merged) into the result's folder.
///
/// # Errors
/// When a file cannot be written.
pub fn write_logs(result: &ResultFile, started: SystemTime, folder: &Path) -> Result<()> {
    let (hlogs, hgrms) = (folder.join("hlog"), folder.join("hgrm"));
    for folder in [&hlogs, &hgrms] {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    for (latency, view) in
        views(result).iter().flat_map(|load| load.cells.iter().map(|view| (load.latency.0, view)))
    {
        let (cell, merged) = (view.cell, &view.merged);
        if merged.blocks == 0 {
            continue;
        }
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
        if let Some(latency) = merged.latency.get(latency) {
            let path = hgrms.join(format!("{}.hgrm", cell.id));
            let mut table = Vec::new();
            log::percentiles(&mut table, latency).context("a vector takes everything")?;
            fs::write(&path, table).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}
