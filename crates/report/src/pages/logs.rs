//! The histograms of a result as files that the HdrHistogram tools of other languages read.

use std::{
    fs::{self, File},
    io::BufWriter,
    path::Path,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result};
use measure::log::IntervalLog;

use crate::result::ResultFile;

/// Writes `hlog/<cell>.hlog` into the result's folder: every metric, and envelope throughput in
/// envelopes and in wire bytes a second; one interval for each usable block.
///
/// # Errors
/// When a file cannot be written.
pub fn write_intervals(result: &ResultFile, started: SystemTime, folder: &Path) -> Result<()> {
    let hlogs = folder.join("hlog");
    fs::create_dir_all(&hlogs).with_context(|| format!("cannot make {}", hlogs.display()))?;
    for cell in result.cells.iter().filter(|cell| cell.blocks.iter().any(|block| block.usable().is_some())) {
        let path = hlogs.join(format!("{}.hlog", cell.id));
        let write = || -> std::io::Result<()> {
            let comment = format!("{} of {}; usable blocks only", cell.id, cell.cell.scenario);
            let mut log = IntervalLog::begin(BufWriter::new(File::create(&path)?), started, &comment)?;
            for (block, record) in cell.blocks.iter().filter_map(|block| Some((block, block.usable()?))) {
                let from = Duration::from_nanos(block.started_after_ns);
                let length = Duration::from_nanos(record.elapsed_ns);
                // Readable maxima are milliseconds of latencies, and rates as they are.
                for (name, latency) in &record.latency {
                    log.interval((name, 1e6), from, length, latency)?;
                }
                if let Some(throughput) = &record.throughput {
                    let (envelopes, bytes) = (&throughput.envelopes_per_s, &throughput.wire_bytes_per_s);
                    log.interval(("throughput", 1.0), from, length, envelopes)?;
                    log.interval(("throughput_wire_bytes", 1.0), from, length, bytes)?;
                }
            }
            log.finish()?;
            Ok(())
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
