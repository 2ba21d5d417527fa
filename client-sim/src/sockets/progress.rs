//! One line of progress each second.

use std::{
    io::{Write, stderr, stdout},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use measure::{LiveCounts, LiveLatency};
use tokio::time::{Interval, MissedTickBehavior, interval_at};

use crate::args::Args;
use client::{recorder::Recorder, shared::Shared};

const PERIOD: Duration = Duration::from_secs(1);

/// Behind the end of a second, when workers sum it up.
const BEHIND: Duration = Duration::from_millis(100);

/// Shows how far a run is, and the rate, p50 and p99 of its last second: on standard error, where a
/// terminal has its line rewritten, and with `json` as JSON lines on standard output.
pub(crate) struct Progress<'a> {
    shared: &'a Shared,
    interval: Interval,
    quiet: bool,
    json: bool,
    seconds: u64,
    /// Length of the run, in seconds.
    total: f64,
    /// Deliveries and latencies as the last line had them, and when.
    before: (Instant, u64, LiveLatency),
    /// The line of a terminal, which is cleared when this is dropped.
    bar: Option<ProgressBar>,
}

impl<'a> Progress<'a> {
    /// Makes the progress of a run that has just started.
    /// `expected` is how long it takes, where that is longer than its plan.
    pub(crate) fn new(shared: &'a Shared, args: &Args, expected: Option<Duration>) -> Self {
        let (quiet, json) = (args.quiet, args.progress_json);
        let last = shared.workload.last_due();
        let total = expected.map_or(last, |expected| expected.max(last));
        let mut interval = interval_at((shared.start() + PERIOD + BEHIND).into(), PERIOD);
        interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let bar = (!quiet && program::rewrites_lines(&stderr())).then(|| {
            let style = ProgressStyle::with_template("{wide_msg}")
                .expect("the template is a constant that was tried");
            // Drawn once a second: ticks alone draw.
            ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(2)).with_style(style)
        });
        let (total, before) = (total.as_secs_f64(), (shared.start(), 0, LiveLatency::default()));
        Progress { shared, interval, quiet, json, seconds: 0, total, before, bar }
    }

    /// Waits for the next second and prints its line; cancel-safe.
    pub(crate) async fn tick(&mut self) {
        self.interval.tick().await;
        self.seconds += 1;
        let total = self.total;
        let (now, deliveries, latency) =
            (Instant::now(), self.shared.deliveries(), self.shared.live_latency());
        let (then, came_before, before) = std::mem::replace(&mut self.before, (now, deliveries, latency));
        let second = latency.since(&before);
        let samples = second.samples();
        let [p50_ns, p99_ns] = [0.5, 0.99].map(|q| second.quantile_ns(q).unwrap_or(0));
        self.shared.latency_ns_p99.store(p99_ns, Ordering::Relaxed);
        if self.json {
            let line = serde_json::json!({
                "second": self.seconds, "of": total.ceil(), "samples": samples,
                "latency_ns_p50": p50_ns, "latency_ns_p99": p99_ns, "so_far": self.shared.live(),
            });
            writeln!(stdout(), "{line}").ok();
        }
        if self.quiet {
            return;
        }
        let elapsed = now.duration_since(then).as_secs_f64();
        // Where nothing is delivered, samples are of answers.
        let rate = match deliveries {
            0 => samples as f64,
            _ => deliveries.saturating_sub(came_before) as f64 / elapsed.max(0.001),
        };
        let ms = |ns: u64| format!("{:.2} ms", ns as f64 / 1e6);
        let quantiles = match samples {
            0 => String::new(),
            _ => format!(", p50 {}, p99 {}", ms(p50_ns), ms(p99_ns)),
        };
        let second = self.seconds;
        let line = format!("{second} s of {total:.0} s, {deliveries} deliveries, {rate:.0}/s{quantiles}");
        match &self.bar {
            Some(bar) => bar.set_message(line),
            // A closed standard error does not end a measurement.
            None => drop(writeln!(stderr(), "{line}")),
        }
    }
}

/// Tells a coordinator what a share counted in all, once its connections are closed.
pub(crate) fn tell_all(shared: &Shared, recorder: &Recorder) {
    let latency = recorder.live(shared.live_timing, 0..usize::MAX);
    let counts = LiveCounts { connections: 0, latency, ..shared.live() };
    writeln!(stdout(), "{}", serde_json::json!({ "so_far": counts })).ok();
}
