//! One line of progress each second.

use std::{
    io::{Write, stderr, stdout},
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use measure::{LastSecond, LiveCounts};
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
    /// Deliveries as the last line had them, and when.
    before: (Instant, u64),
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
        let (total, before) = (total.as_secs_f64(), (shared.start(), 0));
        Progress { shared, interval, quiet, json, seconds: 0, total, before, bar }
    }

    /// Waits for the next second and prints its line; cancel-safe.
    pub(crate) async fn tick(&mut self) {
        self.interval.tick().await;
        self.seconds += 1;
        let total = self.total;
        let second = self.shared.last_second();
        if self.json {
            let mut line = serde_json::json!({
                "second": self.seconds, "of": total.ceil(), "samples": second.samples,
                "latency_ns_p50": second.latency_ns_p50, "latency_ns_p99": second.latency_ns_p99,
                "so_far": self.shared.live(),
            });
            if let Some(counts) = line["so_far"].as_object_mut().filter(|_| !self.shared.is_live()) {
                counts.remove("latency");
            }
            writeln!(stdout(), "{line}").ok();
        }
        if self.quiet {
            return;
        }
        let (now, deliveries) = (Instant::now(), self.shared.deliveries());
        let elapsed = now.duration_since(self.before.0).as_secs_f64();
        // Where nothing is delivered, samples are of answers.
        let rate = match deliveries {
            0 => second.samples as f64,
            _ => deliveries.saturating_sub(self.before.1) as f64 / elapsed.max(0.001),
        };
        self.before = (now, deliveries);
        let line = format!(
            "{} s of {total:.0} s, {deliveries} deliveries, {rate:.0}/s{}",
            self.seconds,
            quantiles(second)
        );
        match &self.bar {
            Some(bar) => bar.set_message(line),
            // A closed standard error does not end a measurement.
            None => drop(writeln!(stderr(), "{line}")),
        }
    }
}

/// Nothing of a second without samples.
fn quantiles(of: LastSecond) -> String {
    let ms = |ns: u64| format!("{:.2} ms", ns as f64 / 1e6);
    match of.samples {
        0 => String::new(),
        _ => format!(", p50 {}, p99 {}", ms(of.latency_ns_p50), ms(of.latency_ns_p99)),
    }
}

/// Tells a coordinator what a share counted in all, once its connections are closed.
pub(crate) fn tell_all(shared: &Shared, recorder: &Recorder) {
    if shared.is_live() {
        let latency = recorder.live(0..usize::MAX);
        let counts = LiveCounts { connections: 0, latency, ..shared.live() };
        writeln!(stdout(), "{}", serde_json::json!({ "so_far": counts })).ok();
    }
}
