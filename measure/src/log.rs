//! Logs that the HdrHistogram tools of other languages read.

use std::{
    io::{self, Write},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{Latency, utc};

/// Nanoseconds in the unit of the readable columns, milliseconds.
const MAX_VALUE_DIVISOR: f64 = 1e6;

/// Lines of a percentile table for each halving of the distance to 100 %, as in Java's default.
const TICKS_PER_HALF_DISTANCE: u32 = 5;

/// Writes a histogram log (`.hlog`), format version 1.3, with V2 DEFLATE histograms: plain V2 is refused by the Java
/// and the Python reader. The interval writer of the `hdrhistogram` crate writes neither version nor legend.
#[derive(Debug)]
pub struct IntervalLog<W: Write> {
    writer: W,
}

impl<W: Write> IntervalLog<W> {
    /// Begins a log. Intervals count from `start`.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn begin(mut writer: W, start: SystemTime, comment: &str) -> io::Result<IntervalLog<W>> {
        let since_epoch = start.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        for line in comment.lines() {
            writeln!(writer, "#{line}")?;
        }
        writeln!(writer, "#[Histogram log format version 1.3]")?;
        writeln!(writer, "#[StartTime: {since_epoch:.3} (seconds since epoch), {}]", utc::format(start))?;
        writeln!(writer, "#[BaseTime: {since_epoch:.3} (seconds since epoch)]")?;
        writeln!(
            writer,
            "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\""
        )?;
        Ok(IntervalLog { writer })
    }

    /// Writes one interval: its distance from the log's start, its length, and its samples (the readable maximum is in
    /// milliseconds). Characters of `tag` which the format reserves become `_`.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn interval(
        &mut self,
        tag: &str,
        from: Duration,
        length: Duration,
        latency: &Latency,
    ) -> io::Result<()> {
        let tag = tag.replace([',', ' ', '\n', '\r'], "_");
        writeln!(
            self.writer,
            "Tag={tag},{:.3},{:.3},{:.3},{}",
            from.as_secs_f64(),
            length.as_secs_f64(),
            latency.max_ns() as f64 / MAX_VALUE_DIVISOR,
            latency.to_base64()
        )
    }

    /// Ends the log.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn finish(mut self) -> io::Result<W> {
        self.writer.flush()?;
        Ok(self.writer)
    }
}

/// Writes a percentile table (`.hgrm`) in milliseconds, in the layout of Java's `outputPercentileDistribution`.
///
/// # Errors
/// Those of the writer.
pub fn percentiles(mut writer: impl Write, latency: &Latency) -> io::Result<()> {
    let histogram = latency.histogram();
    let digits = usize::from(histogram.sigfig());
    writeln!(
        writer,
        "{:>12} {:>14} {:>10} {:>14}\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    )?;
    let mut count = 0;
    for step in histogram.iter_quantiles(TICKS_PER_HALF_DISTANCE) {
        let value = step.value_iterated_to() as f64 / MAX_VALUE_DIVISOR;
        let quantile = step.quantile_iterated_to();
        count += step.count_since_last_iteration();
        write!(writer, "{value:12.digits$} {quantile:2.12} {count:10}")?;
        if quantile < 1.0 {
            write!(writer, " {:14.2}", 1.0 / (1.0 - quantile))?;
        }
        writeln!(writer)?;
    }
    let (mean, deviation) = (histogram.mean() / MAX_VALUE_DIVISOR, histogram.stdev() / MAX_VALUE_DIVISOR);
    let maximum = histogram.max() as f64 / MAX_VALUE_DIVISOR;
    writeln!(writer, "#[Mean    = {mean:12.digits$}, StdDeviation   = {deviation:12.digits$}]")?;
    writeln!(writer, "#[Max     = {maximum:12.digits$}, Total count    = {:12}]", histogram.len())?;
    // 2,048 is what three significant digits need: the power of two that resolves 2 × 10³ unit steps.
    writeln!(writer, "#[Buckets = {:12}, SubBuckets     = {:12}]", histogram.buckets(), 2048)
}
