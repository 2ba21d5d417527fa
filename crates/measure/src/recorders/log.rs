//! Writes logs for the HdrHistogram tools
//! (<https://github.com/HdrHistogram/HdrHistogram>).

use std::{
    io::{self, Write},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::{Latency, utc};

/// Writes a histogram log (`.hlog`), format version 1.3, with V2 DEFLATE histograms: plain V2 is
/// refused by the Java and the Python reader. The interval writer of the `hdrhistogram` crate
/// writes neither version nor legend.
#[derive(Debug)]
pub struct IntervalLog<W: Write> {
    writer: W,
}

impl<W: Write> IntervalLog<W> {
    /// Begins a log. Intervals count from `start`.
    ///
    /// # Errors
    /// The writer's errors.
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

    /// Writes one interval: its distance from the log's start, its length, and its samples, whose
    /// readable maximum is divided by `divisor`. Characters of `tag` which the format reserves become
    /// `_`.
    ///
    /// # Errors
    /// The writer's errors.
    pub fn interval(
        &mut self,
        (tag, divisor): (&str, f64),
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
            latency.max_ns() as f64 / divisor,
            latency.to_base64()
        )
    }

    /// Ends the log.
    ///
    /// # Errors
    /// The writer's errors.
    pub fn finish(mut self) -> io::Result<W> {
        self.writer.flush()?;
        Ok(self.writer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, process::Command};

    /// Quantiles as we and percentiles as Python states them: 99.9 / 100 is not 0.999.
    const QUANTILES: [(f64, &str); 8] = [
        (0.0, "0"),
        (0.1, "10"),
        (0.5, "50"),
        (0.75, "75"),
        (0.9, "90"),
        (0.99, "99"),
        (0.999, "99.9"),
        (1.0, "100"),
    ];

    /// A skewed distribution from 1 µs to seconds, the same at every run.
    fn skewed(samples: u64, seed: u64) -> Latency {
        let mut latency = Latency::new();
        let mut state = seed;
        for _ in 0..samples {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (mantissa, exponent) = (state >> 54, state >> 32 & 15);
            latency.record(1_000 + (mantissa << exponent.min(state >> 36 & 15) << (state >> 40 & 7)));
        }
        latency
    }

    /// Rates of 100 ms intervals as a run records them: bursts with pauses between them.
    fn rates() -> [(&'static str, Latency); 2] {
        const MS: u64 = 1_000_000;
        let mut recorder = crate::ThroughputRecorder::default();
        for ms in (0..3_000).filter(|ms| ms % 1_000 < 700) {
            (0..ms % 7).for_each(|_| recorder.delivery(ms * MS));
            recorder.wire_bytes(ms * MS, 1_250 * (ms % 7));
        }
        let found = recorder.within(&[(0, 3_000 * MS)], 100 * MS).unwrap();
        [("throughput", found.envelopes_per_s), ("throughput_wire_bytes", found.wire_bytes_per_s)]
    }

    fn log_of(intervals: &[(&str, Latency)]) -> String {
        let start = UNIX_EPOCH + Duration::from_millis(1_795_000_000_123);
        let mut log = IntervalLog::begin(Vec::new(), start, "first line\nsecond line").unwrap();
        for (i, (tag, latency)) in (0..).zip(intervals) {
            let divisor = if tag.starts_with("throughput") { 1.0 } else { 1e6 };
            let (from, length) = (Duration::from_secs(10 * i), Duration::from_secs(10));
            log.interval((tag, divisor), from, length, latency).unwrap();
        }
        String::from_utf8(log.finish().unwrap()).unwrap()
    }

    #[test]
    fn the_log_has_the_lines_that_readers_expect() {
        let text = log_of(&[("send lag,x", skewed(10, 1))]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[..2], ["#first line", "#second line"]);
        assert_eq!(lines[2], "#[Histogram log format version 1.3]");
        assert_eq!(lines[3], "#[StartTime: 1795000000.123 (seconds since epoch), 2026-11-18T11:06:40Z]");
        assert_eq!(lines[4], "#[BaseTime: 1795000000.123 (seconds since epoch)]");
        assert!(lines[5].starts_with("\"StartTimestamp\",\"Interval_Length\""));
        assert!(lines[6].starts_with("Tag=send_lag_x,0.000,10.000,"), "{}", lines[6]);
        assert!(lines[6].contains(",HISTFAAA"), "{}", lines[6]);
        // 100 ms of 0 to 6 a millisecond, three on average: rates are logged as they are.
        let text = log_of(&rates());
        let envelopes = text.lines().nth(6).unwrap().split(',').nth(3).unwrap().parse::<f64>().unwrap();
        assert!((2_900.0..3_100.0).contains(&envelopes), "{text}");
    }

    /// Reads a log and prints for each interval the integers of every percentile and every bucket.
    const PYTHON: &str = r#"
import sys
from importlib.metadata import version
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
if version("hdrhistogram") != "0.10.8": raise ImportError("expected hdrhistogram 0.10.8")
reader = HistogramLogReader(sys.argv[1], HdrHistogram(1, 60_000_000_000, 3))
while (found := reader.get_next_interval_histogram()) is not None:
    values = [found.get_value_at_percentile(float(p)) for p in sys.argv[2].split()]
    buckets = [f"{b.value_iterated_to}:{b.count_added_in_this_iter_step}" for b in found.get_recorded_iterator()]
    print(found.get_tag(), found.get_total_count(), *values, *buckets)
"#;

    #[test]
    #[ignore = "needs python3 with hdrhistogram 0.10.8"]
    fn python_reads_identical_integers() {
        let folder = tempfile::tempdir().unwrap();
        let hlog = folder.path().join("interval.hlog");
        let intervals = [
            ("response", skewed(100_000, 7)),
            ("service", skewed(1, 8)),
            ("send_lag", skewed(12_345, 9)),
            ("response", skewed(20_000, 10)),
        ];
        let intervals: Vec<_> = intervals.into_iter().chain(rates()).collect();
        fs::write(&hlog, log_of(&intervals)).unwrap();
        let percentiles = QUANTILES.map(|(_, percentile)| percentile).join(" ");
        let python = Command::new("python3").arg("-c").arg(PYTHON).arg(&hlog).arg(percentiles).output();
        let output = python.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let expected: Vec<String> = (intervals.iter())
            .map(|(tag, latency)| {
                let histogram = latency.histogram();
                let values = QUANTILES.map(|(q, _)| histogram.value_at_quantile(q).to_string()).join(" ");
                let buckets = histogram.iter_recorded();
                let buckets = buckets.map(|b| format!("{}:{}", b.value_iterated_to(), b.count_at_value()));
                format!("{tag} {} {values} {}", latency.len(), buckets.collect::<Vec<_>>().join(" "))
            })
            .collect();
        let found = String::from_utf8(output.stdout).unwrap();
        assert_eq!(found.lines().collect::<Vec<_>>(), expected);
    }
}
